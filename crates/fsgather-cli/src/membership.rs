//! Joining the other ranks from a command: [`Membership`].

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use fsgather::{Builder, Communicator, Interrupt};
use fsgather_config::{environment::Variables, error_file, settings::Settings};

use crate::{
    duration::positive_duration, failure::Failure, interruption::Interruption,
    invocation::Invocation, log, purpose::CommandPurpose,
};

/// Arguments that all verbs of ranks share.
#[derive(Args, Clone, Debug)]
pub(crate) struct JoinArguments {
    /// Directory that all ranks share, to meet and to hand over data (env: `FSGATHER_DIR`, else `EXP_DIR`; else a default).
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// How long to wait while nothing moves, for ranks to meet and then for their data, such as 30s (default: 30m
    /// each; env: `FSGATHER_JOIN_TIMEOUT`, `FSGATHER_TIMEOUT`).
    #[arg(long, value_name = "D", value_parser = positive_duration)]
    timeout: Option<Duration>,

    /// The name of this step of a script; all ranks must give the same. It keeps two steps from taking each other's data.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl JoinArguments {
    /// The purpose of a command: its verb and its output. Only the last part of the output path counts, since ranks may have different
    /// directories.
    pub(crate) fn purpose(&self, verb: impl Into<String>, output: Option<&str>) -> CommandPurpose {
        CommandPurpose {
            verb: verb.into(),
            name: self.name.clone(),
            output: output.and_then(|output| {
                let name = Path::new(output).file_name()?;
                Some(name.to_string_lossy().into_owned())
            }),
        }
    }
}

/// Returns a builder with the settings of a command, and starts its log.
fn builder(arguments: &JoinArguments) -> Result<Builder, Failure> {
    let settings = Settings::resolve(&Variables::of_process())?;
    log::start_with(&settings)?;
    let mut builder = Communicator::builder();
    if let Some(dir) = &arguments.dir {
        builder = builder.directory(dir);
    }
    if let Some(timeout) = arguments.timeout {
        builder = builder.timeout(timeout).join_timeout(timeout);
    }
    Ok(builder)
}

/// Membership of the world that the launcher describes, for as long as a command runs.
pub(crate) struct Membership {
    pub(crate) communicator: Communicator,
    interrupt: Interrupt,
    interruption: Interruption,
    line: String,
}

impl Membership {
    /// Meets the other ranks.
    ///
    /// # Errors
    ///
    /// Returns an error if the ranks do not meet, or a signal ends the meeting.
    pub(crate) fn join(
        arguments: &JoinArguments,
        invocation: &Invocation,
    ) -> Result<Self, Failure> {
        Self::enter(builder(arguments)?, invocation)
    }

    /// Meets the other ranks for calls that move no payloads.
    ///
    /// # Errors
    ///
    /// Returns an error if the ranks do not meet, or a signal ends the meeting.
    pub(crate) fn join_without_payloads(
        arguments: &JoinArguments,
        invocation: &Invocation,
    ) -> Result<Self, Failure> {
        Self::enter(builder(arguments)?.without_payloads(), invocation)
    }

    /// Meets the other ranks with the settings of a builder.
    ///
    /// # Errors
    ///
    /// Returns an error if the ranks do not meet, or a signal ends the meeting.
    pub(crate) fn enter(builder: Builder, invocation: &Invocation) -> Result<Self, Failure> {
        let interrupt = Interrupt::default();
        let interruption = Interruption::watch(&interrupt, invocation.early_end()).map_err(
            Failure::denied("watch signals", "socketpair, rt_sigaction or clone3"),
        )?;
        let line = invocation.command_line();
        let builder = builder.interrupt(&interrupt).call_site(line.clone());
        match builder.build() {
            Ok(communicator) => Ok(Self {
                communicator,
                interrupt,
                interruption,
                line,
            }),
            Err(error) => Err(interruption.explain(error)),
        }
    }

    /// The same as [`complete`](Self::complete), after a check that all ranks are in this command.
    ///
    /// # Errors
    ///
    /// Returns an error if they are not, the failure of the work, or that of another rank.
    pub(crate) fn complete_as<R>(
        self,
        purpose: CommandPurpose,
        work: impl FnOnce(&Communicator) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let line = self.line.clone();
        self.complete(|communicator| {
            purpose.agree(communicator, line)?;
            work(communicator)
        })
    }

    /// Does the verb's work and ends the membership with its outcome: the other ranks learn of a failure,
    /// and success means that all ranks have succeeded.
    ///
    /// # Errors
    ///
    /// Returns the failure of the work, or that of another rank.
    pub(crate) fn complete<R>(
        self,
        work: impl FnOnce(&Communicator) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let Self {
            communicator,
            interrupt,
            interruption,
            line: _,
        } = self;
        match work(&communicator) {
            Ok(result) => match communicator.close() {
                Ok(()) => Ok(result),
                Err(error) => Err(interruption.explain(error)),
            },
            Err(Failure::Library(error)) => {
                drop(communicator);
                Err(interruption.explain(error))
            }
            Err(Failure::Own(error)) => {
                drop(communicator);
                Err(match interruption.explain(error) {
                    Failure::Library(error) => Failure::Own(error),
                    signal => signal,
                })
            }
            Err(failure) => {
                // No other rank knows yet of a failure outside the library.
                error_file::record_own(&failure.to_string());
                interrupt.raise(failure.to_string());
                drop(communicator);
                Err(failure)
            }
        }
    }
}

/// Replaces `{rank}` by the rank's number in plain decimal.
pub(crate) fn for_rank(template: &str, rank: fsgather::Rank) -> PathBuf {
    PathBuf::from(template.replace("{rank}", &rank.to_string()))
}

/// Refuses an empty path.
pub(crate) fn needs_name(option: &str, place: Option<&str>) -> Result<(), Failure> {
    match place {
        Some("") => Err(Failure::usage(format!(
            "{option} is empty: name a place, or leave the option out"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a template that every rank would expand to the same name.
pub(crate) fn needs_rank(option: &str, template: &str) -> Result<(), Failure> {
    if template.contains("{rank}") {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{option} {template}: every rank would write to the same place; put {{rank}} into it, such as \
         {template}.{{rank}}"
    )))
}

#[cfg(test)]
mod tests {
    use fsgather::Rank;

    use super::*;
    use crate::exit;

    #[test]
    fn templates_need_and_get_the_rank() {
        assert!(needs_rank("--out", "results").is_err());
        assert!(needs_rank("--out", "results.{rank}").is_ok());
        assert!(needs_name("--out", Some("")).is_err());
        assert!(needs_name("--out", Some("x")).is_ok() && needs_name("--out", None).is_ok());
        assert_eq!(for_rank("r{rank}/x", Rank::new(12)), PathBuf::from("r12/x"));
        assert_eq!(
            exit::USAGE,
            needs_rank("--out", "x").unwrap_err().exit_code()
        );
    }
}
