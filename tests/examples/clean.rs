//! Cleans a directory as `fsgather clean --execute` does, but with less timeout: `clean DIR WATCH_MS`.
//!
//! Silence counts from the first moment, and beats are watched for as long as the argument says.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use fsgather_store::{Rules, clean};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, watch] = &arguments[..] else {
        return ExitCode::from(2);
    };
    let rules = Rules {
        older_than: Duration::ZERO,
        watch: Duration::from_millis(watch.parse().unwrap_or(0)),
        ..Rules::default()
    };
    let directories = [PathBuf::from(directory)];
    match clean(&directories, rules, true, &mut |_| {
        std::ops::ControlFlow::Continue(())
    }) {
        Ok(done) => {
            let _ = writeln!(io::stdout(), "{done:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
