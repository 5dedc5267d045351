//! Runs commands on a terminal of their own.

use std::{path::Path, process::Command};

/// Runs a command on a new terminal with the number of columns in the first argument, and passes on its output.
const AT_TERMINAL: &str = "
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    size = struct.pack('HHHH', 24, int(sys.argv[1]), 0, 0)
    fcntl.ioctl(1, termios.TIOCSWINSZ, size)
    os.execvp(sys.argv[2], sys.argv[2:])
while True:
    try:
        written = os.read(terminal, 65536)
    except OSError:
        break
    os.write(1, written)
sys.exit(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
";

/// A program with these variables and `TERM` on a terminal with this number of columns.
pub(crate) fn at_terminal(
    columns: u32,
    program: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-c", AT_TERMINAL, &columns.to_string()])
        .args(["env", "--ignore-environment", "TERM=xterm"])
        .args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        )
        .arg(program)
        .args(arguments);
    command
}
