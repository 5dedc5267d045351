//! The `fsgather` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The link, not what it points to: this very program even if its file is replaced while it runs.
    let program = vec!["/proc/self/exe".into()];
    fsgather_cli::main(std::env::args_os().skip(1), program, None).into()
}
