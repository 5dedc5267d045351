//! Parses the command line: [`Arguments`], one [`Verb`] each.
//!
//! The arguments of each verb are with the verb, as a `clap::Args` with examples in its `after_long_help`; this module has only the list of
//! verbs, and the end of the help of each ([`command`]).

use std::ffi::OsString;

use clap::{
    ArgAction, ColorChoice, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{exit, heeded_variables, log::Loudness, run, verbs};

/// The heading of options that every verb has.
const EVERYWHERE: &str = "Options of every verb";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "fsgather",
    version,
    about = "Gather results of many processes through a shared directory",
    long_about = "Gather results of many processes through a shared directory.\n\n\
        A job runs as several processes, its ranks, numbered from 0. A launcher (srun, mpirun, torchrun)\n\
        or `fsgather run` starts them.",
    after_help = "`fsgather help VERB` explains a verb in full, with examples.",
    after_long_help = exit::table(),
)]
pub(crate) struct Arguments {
    /// Print one JSON document on standard output, for programs; `schema_version` in it changes when its form does.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,

    /// Print nothing but errors and results.
    #[arg(short, long, global = true, help_heading = EVERYWHERE, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more about what is done; given twice, everything. `FSGATHER_LOG` chooses by module.
    #[arg(short, long, global = true, help_heading = EVERYWHERE, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// When to use colour; `auto` means on terminals, or as `NO_COLOR` and `CLICOLOR_FORCE` say.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,

    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Demo(verbs::demo::DemoArguments),
    Run(run::RunArguments),
    Gather(verbs::gather::GatherArguments),
    Broadcast(verbs::broadcast::BroadcastArguments),
    Barrier(verbs::barrier::BarrierArguments),
    Ps(verbs::ps::PsArguments),
    Trace(verbs::trace::TraceArguments),
    Samples(verbs::samples::SamplesArguments),
    Inspect(verbs::inspect::InspectArguments),
    Clean(verbs::clean::CleanArguments),
    Doctor(verbs::doctor::DoctorArguments),
    Bench(verbs::bench::BenchArguments),
    Licences(verbs::licences::LicencesArguments),
    Completions(verbs::completions::CompletionsArguments),
    Manual(verbs::manual::ManualArguments),
    BenchRank(verbs::bench::BenchRankArguments),
    DemoRank(verbs::demo::DemoRankArguments),
    /// End the ranks of `fsgather run` when that is killed; it starts this by itself.
    #[command(hide = true)]
    GuardRun,
}

impl Verb {
    /// Returns true if `--json` has a meaning for it.
    const fn has_document(&self) -> bool {
        !matches!(self, Self::Completions(_) | Self::Manual(_))
    }

    /// Returns true if it runs as a member of a world, where a signal may have to end it while it hangs.
    pub(crate) const fn may_be_left_behind(&self) -> bool {
        matches!(
            self,
            Self::Gather(_)
                | Self::Broadcast(_)
                | Self::Barrier(_)
                | Self::Clean(_)
                | Self::Doctor(_)
                | Self::BenchRank(_)
        )
    }
}

/// The complete command line as it is parsed: the help of each verb ends with the variables that it reads, and the exit codes.
pub(crate) fn command() -> Command {
    let command = Arguments::command();
    let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let names: Vec<String> = visible.map(|verb| verb.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |verb| {
            let examples = verb.get_after_long_help();
            let examples = examples.map(ToString::to_string).unwrap_or_default();
            let variables = heeded_variables::text(name);
            let codes = exit::table();
            verb.after_long_help(format!("{examples}\n\n{variables}{codes}"))
        })
    })
}

impl Arguments {
    /// The verbosity that the options select.
    pub(crate) const fn loudness(&self) -> Loudness {
        match (self.quiet, self.verbose) {
            (true, _) => Loudness::Quiet,
            (false, 0) => Loudness::Usual,
            (false, 1) => Loudness::More,
            (false, _) => Loudness::Everything,
        }
    }

    /// Parses a command line, without the command's own name.
    ///
    /// # Errors
    ///
    /// Returns the exit code if nothing remains to be done: help was printed, or the command line is wrong and the reason was printed.
    pub(crate) fn read(words: &[OsString]) -> Result<Self, u8> {
        let name = OsString::from("fsgather");
        // Help and errors are printed before the other words are parsed.
        let command = || command().color(asked_colour(words));
        let words_given = words;
        let words = std::iter::once(&name).chain(words);
        let matches = command().try_get_matches_from(words);
        let read = matches.and_then(|matches| Self::from_arg_matches(&matches));
        let read = read.and_then(|read| {
            if read.json && !read.verb.has_document() {
                let refusal =
                    "--json cannot be used with this verb: its output is a text for other programs";
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, refusal));
            }
            Ok(read)
        });
        read.map_err(|mut refusal| {
            if refusal.kind() == ErrorKind::UnknownArgument
                && let Some(tip) = tip_for_concat(words_given)
            {
                refusal.insert(
                    ContextKind::Suggested,
                    ContextValue::StyledStrs(vec![tip.into()]),
                );
            }
            let refusal = refusal.format(&mut command());
            // A failure to print cannot be reported: the stream for it is the one that failed.
            let _ = refusal.print();
            if refusal.use_stderr() {
                exit::USAGE
            } else {
                exit::DONE
            }
        })
    }
}

/// A hint about `--concat FILE`: its file must follow an equals sign because it is optional.
fn tip_for_concat(words: &[OsString]) -> Option<String> {
    let mut words = words.iter().skip_while(|word| *word != "--concat");
    let file = words
        .nth(1)?
        .to_str()
        .filter(|file| !file.starts_with('-'))?;
    Some(format!("write --concat={file}"))
}

/// Returns the choice of colours of the command line, as far as it can be read.
fn asked_colour(words: &[OsString]) -> ColorChoice {
    let words: Vec<&str> = words.iter().map_while(|word| word.to_str()).collect();
    let own = words.split(|word| *word == "--").next().unwrap_or_default();
    let asked = own.iter().enumerate().find_map(|(at, word)| {
        if *word == "--color" {
            own.get(at + 1).copied()
        } else {
            word.strip_prefix("--color=")
        }
    });
    let choice = asked.and_then(|asked| ColorChoice::from_str(asked, false).ok());
    choice.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn verbs_without_a_document_refuse_json() {
        for line in [
            "completions bash --json",
            "--json manual",
            "manual run --json",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(Arguments::read(&words).err(), Some(exit::USAGE), "{line}");
        }
        assert!(Arguments::read(&["ps".into(), "--json".into()]).is_ok());
    }

    #[test]
    fn help_is_coloured_as_the_command_line_says() {
        for (line, choice) in [
            ("inspect", ColorChoice::Auto),
            ("--color always inspect --help", ColorChoice::Always),
            ("inspect --color=never --wrong", ColorChoice::Never),
            ("inspect --color=sometimes", ColorChoice::Auto),
            ("run -n 2 -- ls --color=always", ColorChoice::Auto),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(asked_colour(&words), choice, "{line}");
        }
    }

    #[test]
    fn every_visible_verb_has_examples_in_its_long_help() {
        for verb in command().get_subcommands_mut() {
            if !verb.is_hide_set() {
                let name = verb.get_name().to_owned();
                let help = verb.render_long_help().to_string();
                assert!(help.contains("Examples:"), "{name}: {help}");
                assert!(help.contains(&format!("fsgather {name} ")), "{help}");
                assert!(help.contains("Exit codes:"), "{name}: {help}");
                let long = verb.get_after_long_help().unwrap().to_string();
                for line in long.lines() {
                    assert!(line.len() <= 80, "too wide for a terminal: {line}");
                }
            }
        }
    }
}
