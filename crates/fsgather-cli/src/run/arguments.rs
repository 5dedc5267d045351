//! The arguments of `run`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;
use fsgather::{Error, WorldSize};
use rustix::process::{Resource, getrlimit};

use crate::{
    duration::{duration, positive_duration},
    verbs::trace::trace_file,
};

/// The most ranks one machine is asked to run; a larger number is taken for a slip of the finger.
const MOST_LOCAL_RANKS: u32 = 4096;

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
  signal kills them. A signal that was ignored when `run` started (nohup) stays
  ignored. What ranks leave behind in their process groups is ended with them.
  If `run` itself is killed, the ranks are killed at once, with all that is in
  their process groups.

  The exit code is that of the first rank that failed, 128 + n for signal n.
  Code 11 says that another rank was lost: if a signal killed that other one,
  the signal counts. 127: the command was not found. 126: it cannot be
  executed. 141: the reader of standard output went away, and the ranks were
  ended. 2: wrong arguments.

Output:
  On a terminal the last line shows the progress of the current gather, unless
  FSGATHER_PROGRESS=off or -q is given. -q and -v hold for the ranks as well,
  unless FSGATHER_LOG says otherwise.

  Lines are printed whole; a rank's last line gets a line break if it has none.
  A line of more than 64 KiB comes in pieces of 64 KiB, a line each.

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
    /// How many ranks to start.
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = local_ranks)]
    pub(super) ranks: WorldSize,

    /// Existing directory in which the ranks meet and hand over data (env: `FSGATHER_DIR`, else `EXP_DIR`;
    /// else `/tmp/fsgather-<uid>`).
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    /// How long ranks wait while nothing moves, to meet and then in each call, such as 30s
    /// (default: 5m to meet, 30m in each call; env: `FSGATHER_JOIN_TIMEOUT`, `FSGATHER_TIMEOUT`).
    #[arg(long, value_name = "D", value_parser = positive_duration)]
    pub(super) timeout: Option<Duration>,

    /// How long the other ranks may go on after one has failed, so that they can print what they know.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "5s")]
    pub(super) grace: Duration,

    /// How long ranks have to end after SIGTERM, before SIGKILL.
    #[arg(long, value_name = "D", value_parser = duration, default_value = "5s")]
    pub(super) kill_after: Duration,

    /// Pass on what ranks print as it is: no `[rank]` before a line, no line break added.
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

    /// The command of each rank, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}

impl RunArguments {
    /// Finds out what cannot work before anything is started.
    pub(super) fn check(&self, json: bool) -> Result<(), Error> {
        if json && self.no_prefix {
            return Err(Error::config(
                "--json and --no-prefix cannot be combined: both want standard output for themselves",
            ));
        }
        check_open_files(self.ranks)
    }
}

/// Finds out whether that many ranks can be relayed.
///
/// # Errors
///
/// [`Error::Config`] when this process may not have as many open files as that takes.
pub(crate) fn check_open_files(ranks: WorldSize) -> Result<(), Error> {
    let needed = 2 * u64::from(ranks.get()) + OTHER_FILES;
    match getrlimit(Resource::Nofile).current {
        Some(allowed) if allowed < needed => Err(Error::config(format!(
            "{ranks} ranks need {needed} open files, but {allowed} are allowed; raise that with `ulimit -n {needed}`"
        ))),
        _ => Ok(()),
    }
}

fn local_ranks(text: &str) -> Result<WorldSize, String> {
    let explain = || format!("write a number of ranks between 1 and {MOST_LOCAL_RANKS}");
    let ranks: u32 = text.parse().map_err(|_| explain())?;
    match WorldSize::new(ranks) {
        Ok(world) if ranks <= MOST_LOCAL_RANKS => Ok(world),
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
    fn a_misspelt_option_is_not_taken_for_the_command() {
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
    fn a_document_and_bytes_cannot_share_standard_output() {
        let run = parse(&["-n", "2", "--no-prefix", "--", "echo"]).unwrap();
        assert!(run.check(true).is_err());
        assert!(run.check(false).is_ok());
    }
}
