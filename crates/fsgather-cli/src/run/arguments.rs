//! The arguments of `run`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use fsgather::{Error, WorldSize};
use fsgather_core::sys::limits::raise_open_files;
use rustix::fs::{Access, access};

use crate::{
    duration::{duration, positive_duration},
    failure::Failure,
    verbs::trace::trace_file,
};

/// Maximum number of ranks on one machine; a larger number is probably a typing error.
const MAX_LOCAL_RANKS: u32 = 4096;

/// Open files that `run` needs besides two for each rank.
const OTHER_FILES: u64 = 32;

const EXAMPLES: &str = "\
Examples:
  fsgather run -n 4 -- python evaluate.py
      four ranks; their lines come prefixed with [0] to [3]
  fsgather run -n 8 --dir /scratch/me --timeout 10m -- ./simulate input.toml
      payloads go to /scratch/me; 10 minutes without progress fail the job
  fsgather run -n 2 --json -- ./job 2>job.log | jq .exit_code
      what the ranks print goes to job.log, how they ended to jq
  fsgather run -n 4 --python-patch -- python train.py
      torch's gathers of objects go through fsgather; train.py is unchanged
  fsgather run -n 4 --trace calls.html -- python evaluate.py
      a picture of who waited for whom, of the last 1000 calls of each rank
  fsgather run -n 1 --no-prefix -- ./produce >result.bin
      the bytes are not changed

What each rank gets, as variables:
  FSGATHER_RANK, FSGATHER_WORLD_SIZE, FSGATHER_LOCAL_RANK,
  FSGATHER_LOCAL_WORLD_SIZE, FSGATHER_JOB, FSGATHER_DIR; with --timeout also
  FSGATHER_TIMEOUT and FSGATHER_JOIN_TIMEOUT. Also those of torchrun: RANK,
  WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE,
  ROLE_RANK, ROLE_WORLD_SIZE, ROLE_NAME, MASTER_ADDR, MASTER_PORT,
  TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_MAX_RESTARTS.
  Rank 0 has the standard input of `run`, the others have none. Each rank is a
  session and a process group of its own.

How it ends:
  When a rank fails, the others have --grace to end by themselves; then they
  get SIGTERM and, --kill-after later, SIGKILL. SIGINT, SIGTERM and SIGHUP are
  passed on to all ranks, which may then take as long as they need; a second
  signal kills them. The same signal again within 0.1 s is an echo of the first:
  `timeout` signals a process and its group. A signal that was ignored when
  `run` started (nohup) stays ignored. Processes that ranks leave behind in
  their process groups are ended with them. A daemon that has left its group and
  still holds the output of a rank is waited for, --kill-after at most, and
  `run` says so. If `run` itself is killed, the ranks are killed at once, with
  all that is in their process groups.

  A rank that ends before its first call is reported to the ranks that wait for
  it, which fail at once. Without a time-out they also fail once such a rank has
  used less than 1 % of a processor for 30 minutes.

  The exit code is that of the first rank that failed, 128 + n for signal n.
  Code 11 says that another rank was lost: if a signal killed that other one,
  the signal counts. 127: the command was not found. 126: it cannot be
  executed. 141: the reader of standard output went away, and the ranks were
  ended. 2: wrong arguments.

Output:
  On a terminal the last line shows the progress of the current gather, unless
  FSGATHER_PROGRESS=off or -q is given. -q and -v hold for the ranks as well,
  unless FSGATHER_LOG says otherwise.

  Lines are printed whole. The beginning of a line that takes longer than 0.1 s,
  such as a prompt or a progress bar, is passed on before its end; output of
  another rank then begins a new line. A rank's last line gets a line break if
  it has none. A line of more than 64 KiB is split into lines of 64 KiB. With
  --no-prefix, bytes are passed on unchanged and at once.

  A reader that stops reading standard output stops the ranks that write to it;
  lines on standard error still appear. When all ranks have ended, `run` waits
  until the rest of their output is read, and says so.

  The soft limit of open files is raised as far as the ranks need it.

With --json, standard output carries one document when all is over:
  {schema_version, job, world_size, directory, exit_code, seconds,
   failed_first, cause, ranks: [{rank, pid, exit_code, signal, error}]}
  `failed_first` is the rank that failed first, and `cause` the sentence that
  says why the job failed; null if no rank failed. The `exit_code` of a rank is
  null if a signal ended it; `signal` is its name, else null; `error` is the
  last error that it reported. `ranks` lists those that were started. Invalid
  arguments print no document.";

/// Start N ranks on this machine, and end them together.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// Number of ranks to start.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = local_ranks)]
    pub(super) ranks: WorldSize,

    /// Existing directory in which the ranks meet and hand over data (env: `FSGATHER_DIR`, else `EXP_DIR`;
    /// else `/tmp/fsgather-<uid>`).
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    /// How long ranks wait while nothing moves, to meet and then in each call, such as 30s
    /// (default: 30m without a sign of work of the missing ranks; env: `FSGATHER_JOIN_TIMEOUT`, `FSGATHER_TIMEOUT`).
    #[arg(long, value_name = "D", value_parser = positive_duration)]
    pub(super) timeout: Option<Duration>,

    /// Time for the other ranks to end by themselves after one has failed, so that they can report what they know.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "5s")]
    pub(super) grace: Duration,

    /// Time from SIGTERM to SIGKILL for ranks that do not end.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "5s")]
    pub(super) kill_after: Duration,

    /// Pass on all output of the ranks unchanged and at once: no `[rank]` before a line, no line break added.
    #[arg(long)]
    pub(super) no_prefix: bool,

    /// Have Python programs use fsgather as `FSGATHER_PATCH` says (`torch` if it is not set), also with torch
    /// before 2.5, which does not read that variable.
    #[arg(long)]
    pub(super) python_patch: bool,

    /// Write what the ranks have called, and when, to a file once they have ended: a page with a picture where its
    /// name ends in `.html`, else for Perfetto and Chrome, as `.json`.
    #[arg(long, value_name = "FILE", value_parser = trace_file)]
    pub(super) trace: Option<PathBuf>,

    /// Time without a sign of work after which a rank that has not joined fails the others; for tests.
    #[arg(long, hide = true, value_name = "D", value_parser = positive_duration)]
    pub(super) idle_limit: Option<Duration>,

    /// The command of each rank, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

impl RunArguments {
    /// Rejects arguments that cannot work, before anything is started.
    pub(super) fn check(&self, json: bool) -> Result<(), Failure> {
        if json && self.no_prefix {
            return Err(Error::config(
                "--json and --no-prefix cannot be combined: both want standard output for themselves",
            )
            .into());
        }
        if let Some(file) = &self.trace {
            check_trace_file(file)?;
        }
        allow_open_files(self.ranks)?;
        Ok(())
    }
}

/// Raises the soft limit of open files as far as it takes to relay the ranks, and checks that it suffices.
///
/// # Errors
///
/// Returns [`Error::Config`] if this process may not open enough files.
pub(crate) fn allow_open_files(ranks: WorldSize) -> Result<(), Error> {
    let needed = 2 * u64::from(ranks.get()) + OTHER_FILES;
    match raise_open_files(needed) {
        Some(allowed) if allowed < needed => Err(Error::config(format!(
            "{ranks} ranks need {needed} open files, but {allowed} are allowed; raise that with `ulimit -n {needed}`"
        ))),
        _ => Ok(()),
    }
}

/// Checks that a trace can be written to a file, without making it.
fn check_trace_file(file: &Path) -> Result<(), Failure> {
    if file.is_dir() {
        let name = file.display();
        let text = format!("--trace: {name} is a directory; name a file");
        return Err(Failure::usage(text));
    }
    let parent = file.parent().filter(|parent| *parent != Path::new(""));
    let directory = parent.unwrap_or(Path::new("."));
    let written = if file.exists() { file } else { directory };
    access(written, Access::WRITE_OK).map_err(|errno| Failure::file("write", file)(errno.into()))
}

fn local_ranks(text: &str) -> Result<WorldSize, String> {
    let explain = || format!("write a number of ranks between 1 and {MAX_LOCAL_RANKS}");
    let ranks: u32 = text.parse().map_err(|_| explain())?;
    match WorldSize::new(ranks) {
        Ok(world) if ranks <= MAX_LOCAL_RANKS => Ok(world),
        _ => Err(explain()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Verb};

    fn parse(arguments: &[&str]) -> Result<RunArguments, clap::Error> {
        let words = ["fsgather", "run"].iter().chain(arguments);
        match Arguments::try_parse_from(words)?.verb {
            Verb::Run(run) => Ok(run),
            _ => panic!("not the verb asked for"),
        }
    }

    #[test]
    fn everything_after_the_command_belongs_to_it() {
        for words in [
            &["-n", "2", "--", "echo", "--json", "-n", "--", "-x"][..],
            &["-n2", "echo", "--json", "-n", "--", "-x"][..],
        ] {
            let run = parse(words).unwrap();
            assert_eq!(run.ranks.get(), 2);
            let expected = ["echo", "--json", "-n", "--", "-x"].map(OsString::from);
            assert_eq!(run.command, expected);
        }
    }

    #[test]
    fn a_misspelt_option_is_not_the_command() {
        assert!(parse(&["-n", "2", "--tiemout", "5s", "--", "echo"]).is_err());
    }

    #[test]
    fn impossible_numbers_of_ranks_are_refused() {
        for wrong in ["0", "-1", "4097", "100000", "99999999999", "two", ""] {
            let text = parse(&["-n", wrong, "--", "echo"]).unwrap_err().to_string();
            assert!(
                text.contains("between 1 and 4096") || wrong == "-1",
                "{text}"
            );
        }
    }

    #[test]
    fn ranks_and_command_are_required() {
        assert!(parse(&["--", "echo"]).is_err());
        assert!(parse(&["-n", "2"]).is_err());
        assert!(parse(&["-n", "2", "--"]).is_err());
    }

    #[test]
    fn a_trace_file_is_checked_and_not_made() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("calls.html");
        check_trace_file(&file).unwrap();
        assert!(!file.exists());
        assert!(check_trace_file(place.path()).is_err());
        let nowhere = check_trace_file(Path::new("/nowhere/calls.html")).unwrap_err();
        assert!(nowhere.to_string().contains("/nowhere/calls.html"));
    }

    #[test]
    fn a_document_and_bytes_cannot_share_standard_output() {
        let run = parse(&["-n", "2", "--no-prefix", "--", "echo"]).unwrap();
        assert!(run.check(true).is_err());
        assert!(run.check(false).is_ok());
    }
}
