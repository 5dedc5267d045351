//! The verb `clean`: removes leftovers of crashes from shared directories.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
    ops::ControlFlow,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use fsgather::Interrupt;
use fsgather_core::{bytes_text, duration_text, typed_duration_text};
use fsgather_store::{Cleaning, CleaningStep, Failed, Kept, Planned, Rules};
use serde::Serialize;

use super::{
    inspect::{self, ErrorReport},
    others,
};
use crate::{
    alike::{Alike, Counts, One, Size},
    duration::positive_duration,
    exit,
    failure::Failure,
    interruption::Interruption,
    invocation::Invocation,
    output::{self, Stream},
    shell_word::shell_word,
    table::{TableStyle, plain, wrapped},
};

const EXAMPLES: &str = "\
Examples:
  fsgather clean /shared/scratch
      shows what would be removed and why, and removes nothing
  fsgather clean /shared/scratch --execute
      removes it
  fsgather clean --older-than 7d --execute /shared/scratch
      where nothing is proved, only what has not changed for a week

Removed are gather directories whose owner is proved to be gone, those that
their owner is done with, and, where nothing is proved, those in which nothing
has changed for the age given and whose heartbeat stands still for 30 seconds.
Never removed: what shows life, what other users own, what holds anything
unknown. Run by root, this and `inspect` print a command that cleans up as each
of the other users. Several directories are removed at a time. After a signal it
stops between two files, and says what has gone and what has not.

With --json, standard output carries
  {schema_version, executed, planned: [{path, what, bytes, reason}], removed,
   failed: [{path, error}], kept: [{path, what, reason, user}], stopped,
   untouched, bytes}.
It exits with 1 when something could not be removed, with 130 or 143 when
SIGINT or SIGTERM has stopped it.";

/// Remove what crashes have left in shared directories; without `--execute`, show it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CleanArguments {
    /// Where to clean; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Where it cannot be proved that an owner is gone: remove what has not changed for so long.
    #[arg(long, value_name = "D", value_parser = positive_duration, default_value = "24h")]
    older_than: Duration,

    /// Remove what the plan shows; without it nothing is removed.
    #[arg(long, visible_alias = "yes")]
    execute: bool,

    /// Show a row for everything; without it, of many rows those that are alike become one line.
    #[arg(long)]
    long: bool,

    /// Show what would be removed, and why; the same as without options.
    #[arg(long, short = 'n', conflicts_with = "execute")]
    dry_run: bool,
}

impl CleanArguments {
    /// The options that choose the items to remove, as words of a command line, each with a space after it.
    fn repeated(&self) -> String {
        let named = self.directories.iter();
        let mut words: String = named
            .map(|path| shell_word(&path.display().to_string()) + " ")
            .collect();
        if self.older_than != Rules::default().older_than {
            let _ = write!(
                words,
                "--older-than {} ",
                shell_word(&typed_duration_text(self.older_than))
            );
        }
        words
    }
}

#[derive(Serialize)]
struct CleanReport {
    executed: bool,
    planned: Vec<PlannedReport>,
    removed: Vec<PlannedReport>,
    failed: Vec<ErrorReport>,
    kept: Vec<KeptReport>,
    stopped: bool,
    untouched: Vec<PlannedReport>,
    bytes: u64,
}

#[derive(Serialize)]
struct PlannedReport {
    path: String,
    what: String,
    bytes: u64,
    reason: String,
}

#[derive(Serialize)]
struct KeptReport {
    path: String,
    what: String,
    reason: String,
    /// The other user who may be able to remove it.
    user: Option<String>,
}

/// Removes leftovers of crashes, or shows them.
///
/// # Errors
///
/// Returns an error if the plan cannot be made or shown.
pub(crate) fn clean(
    arguments: &CleanArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    let settings = inspect::settings()?;
    let directories = inspect::directories(&arguments.directories, &settings)?;
    let rules = Rules {
        older_than: arguments.older_than,
        ..Rules::default()
    };
    let execute = arguments.execute;
    let mut course = Course {
        invocation,
        tells: !json,
        lines: Lines::new(TableStyle::of_output()),
        has_said: false,
        interrupt: Interrupt::default(),
        interruption: None,
        shown: Ok(()),
    };
    let done = fsgather_store::clean(&directories, rules, execute, &mut |step| {
        course.on(step, rules.watch)
    })?;
    let Course {
        mut lines,
        interruption,
        shown,
        ..
    } = course;
    let signal = interruption.and_then(|interruption| interruption.signal());
    let shown = shown.and_then(|()| {
        if json {
            output::json(&report(&done, execute))
        } else {
            let text = text(&done, arguments, signal.map(|(name, _)| name), &mut lines);
            output::write(Stream::Stdout, text.as_bytes())
        }
    });
    inspect::is_read(shown)?;
    if !json {
        for Failed { path, reason } in &done.failed {
            let path = path.display().to_string();
            // An error of the file system names it itself.
            let what = if reason.contains(&path) {
                ""
            } else {
                &format!("{path}: ")
            };
            output::say(&plain(&format!("fsgather clean: {what}{reason}")));
        }
    }
    Ok(match signal {
        Some((_, code)) if done.is_stopped => code,
        _ if done.failed.is_empty() => exit::DONE,
        _ => exit::OTHER,
    })
}

/// A cleaning in progress.
struct Course<'a> {
    invocation: &'a Invocation,
    /// True if each removal is printed as it happens.
    tells: bool,
    lines: Lines,
    has_said: bool,
    interrupt: Interrupt,
    /// Watches signals once something may have been removed. Until then, signals end the command.
    interruption: Option<Interruption>,
    /// The first error of writing to standard output.
    shown: io::Result<()>,
}

impl Course<'_> {
    fn on(&mut self, step: CleaningStep<'_>, watch: Duration) -> ControlFlow<()> {
        match step {
            CleaningStep::Planned(_) => {
                let watched = Interruption::watch(&self.interrupt, self.invocation.early_end());
                match watched {
                    Ok(interruption) => self.interruption = Some(interruption),
                    Err(error) => tracing::debug!("signals are not watched: {error}"),
                }
            }
            // Logs and mails from cron should contain only lines that need a reader.
            CleaningStep::Watching
                if !std::mem::replace(&mut self.has_said, true) && io::stderr().is_terminal() =>
            {
                let watch = duration_text(watch);
                output::say(&format!(
                    "fsgather clean: watching for {watch} whether heartbeats change, where it is not known if the owner is gone"
                ));
            }
            // A reader that has closed the pipe has not asked to stop.
            CleaningStep::Removed(item) if self.tells && self.shown.is_ok() => {
                let line = self
                    .lines
                    .line("removed", &item.path, Some(item.bytes), &item.reason);
                self.shown = output::write(Stream::Stdout, line.as_bytes());
            }
            _ => {}
        }
        if self.interrupt.reason().is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

fn bytes_of(items: &[Planned]) -> u64 {
    let bytes = items.iter().map(|item| item.bytes);
    bytes.fold(0, u64::saturating_add)
}

/// Formats lines about one item each.
struct Lines {
    look: TableStyle,
    /// The directory of the previous items, which a terminal shows only once.
    parent: Option<PathBuf>,
}

impl Lines {
    const fn new(look: TableStyle) -> Self {
        Self { look, parent: None }
    }

    fn line(&mut self, verb: &str, path: &Path, size: Option<u64>, reason: &str) -> String {
        const INDENT: &str = "              ";
        let size = size.map_or(String::new(), |size| format!("  {}", bytes_text(size)));
        let mut text = String::new();
        let mut shown = path;
        // Whole paths are for programs. They rarely fit a terminal.
        if self.look.width.is_some()
            && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
        {
            if self.parent.as_deref() != Some(parent) {
                text = format!("in {}:\n", plain(&parent.display().to_string()));
                self.parent = Some(parent.to_owned());
            }
            shown = Path::new(name);
        }
        let shown = plain(&shown.display().to_string());
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{verb:<12}  {shown}{size}");
        text + &wrapped(INDENT, INDENT, &plain(reason), self.look.width)
    }
}

/// Renders the planned and the kept items, and returns whether each of them is shown: if there are many, items that are alike become one
/// line, unless the caller asks for all.
fn items(planned: &[Planned], kept: &[Kept], is_long: bool, lines: &mut Lines) -> (String, bool) {
    let planned = planned.iter().map(|item| {
        let one = one("would remove", &item.what, &item.gist, Size::Of(item.bytes));
        (one, &item.path, Some(item.bytes), &item.reason)
    });
    let kept = kept.iter().map(|item| {
        let one = one("kept", &item.what, &item.gist, Size::Untold);
        (one, &item.path, None, &item.reason)
    });
    let all: Vec<_> = planned.chain(kept).collect();
    let counts = Counts::of(all.iter().map(|(one, ..)| one), is_long);
    let mut alike = Alike::default();
    let mut text = String::new();
    for (one, path, size, reason) in &all {
        if counts.has_several(one) {
            alike.add(one);
        } else {
            text += &lines.line(one.fate.unwrap_or_default(), path, *size, reason);
        }
    }
    if alike.is_empty() {
        return (text, true);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    (text + &alike.text(&lines.look), false)
}

fn one<'a>(fate: &'static str, what: &'a str, gist: &'a str, size: Size) -> One<'a> {
    One {
        fate: Some(fate),
        what,
        hue: None,
        gist,
        host: None,
        age: None,
        size,
    }
}

/// Renders the part that has not been printed yet: the plan, or the items that were kept, and the total.
fn text(
    done: &Cleaning,
    arguments: &CleanArguments,
    signal: Option<&str>,
    lines: &mut Lines,
) -> String {
    let execute = arguments.execute;
    let planned: &[Planned] = if execute { &[] } else { &done.planned };
    let (mut text, is_all) = items(planned, &done.kept, arguments.long, lines);
    if !text.is_empty() || !done.removed.is_empty() {
        text.push('\n');
    }
    let of = |items: &[Planned]| (items.len(), bytes_text(bytes_of(items)));
    let kept = done.kept.len();
    let (count, bytes) = of(if execute {
        &done.removed
    } else {
        &done.planned
    });
    // Writing to a `String` cannot fail.
    let _ = if execute {
        let (failed, (untouched, left)) = (done.failed.len(), of(&done.untouched));
        let stopped = signal.filter(|_| done.is_stopped);
        let (before, after) = match stopped {
            Some(signal) => (
                format!("stopped by {signal}: "),
                format!(", {untouched} to go ({left})"),
            ),
            None => (String::new(), String::new()),
        };
        writeln!(
            text,
            "{before}{count} removed ({bytes}){after}, {kept} kept, {failed} failed"
        )
    } else if count == 0 {
        let failed = done.failed.len();
        let failed = (failed > 0).then(|| format!(", {failed} not looked at"));
        writeln!(
            text,
            "nothing to remove, {kept} kept{}",
            failed.unwrap_or_default()
        )
    } else {
        writeln!(
            text,
            "{count} to remove ({bytes}), {kept} kept; nothing was removed yet: fsgather clean {}--execute",
            arguments.repeated()
        )
    };
    if !is_all {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "each of them: fsgather clean {}--long",
            arguments.repeated()
        );
    }
    let foreign = done.kept.iter().filter_map(|kept| kept.foreign.as_deref());
    let command = format!("fsgather clean {}--execute", arguments.repeated());
    text + &others::text(foreign, &command, rustix::process::geteuid().is_root())
}

fn report(done: &Cleaning, executed: bool) -> CleanReport {
    let planned = |items: &[Planned]| {
        let items = items.iter().map(|item| PlannedReport {
            path: item.path.display().to_string(),
            what: item.what.clone(),
            bytes: item.bytes,
            reason: item.reason.clone(),
        });
        items.collect::<Vec<_>>()
    };
    CleanReport {
        executed,
        bytes: bytes_of(if executed {
            &done.removed
        } else {
            &done.planned
        }),
        planned: planned(&done.planned),
        removed: planned(&done.removed),
        stopped: done.is_stopped,
        untouched: planned(&done.untouched),
        failed: done
            .failed
            .iter()
            .map(|failed| ErrorReport {
                path: failed.path.display().to_string(),
                error: failed.reason.clone(),
            })
            .collect(),
        kept: done
            .kept
            .iter()
            .map(|kept| KeptReport {
                path: kept.path.display().to_string(),
                what: kept.what.clone(),
                reason: kept.reason.clone(),
                user: kept.foreign.clone(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, error::ErrorKind};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        arguments: CleanArguments,
    }

    fn read(words: &str) -> Result<CleanArguments, clap::Error> {
        let command = Command::try_parse_from(words.split(' '))?;
        Ok(command.arguments)
    }

    #[test]
    fn what_is_suggested_chooses_what_was_shown() {
        for (given, suggested) in [
            ("clean", ""),
            ("clean /shared -n", "/shared "),
            (
                "clean --older-than 7d /shared /scratch",
                "/shared /scratch --older-than 7d ",
            ),
            ("clean --older-than 90m --dry-run", "--older-than '1h 30m' "),
        ] {
            let arguments = read(given).unwrap();
            assert!(!arguments.execute);
            assert_eq!(arguments.repeated(), suggested);
        }
        let again = read("clean /shared --older-than 7d --yes").unwrap();
        assert_eq!(again.older_than, Duration::from_secs(7 * 24 * 3600));
    }

    #[test]
    fn a_dry_run_removes_nothing() {
        let refused = read("clean --dry-run --execute").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ArgumentConflict);
    }
}
