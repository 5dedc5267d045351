//! The `fsgather` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The link itself, not its target: it starts this very program even if its file is replaced meanwhile.
    let program = vec!["/proc/self/exe".into()];
    fsgather_cli::main(std::env::args_os().skip(1), program, None).into()
}
