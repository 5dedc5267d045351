//! Writes the library's log to standard error: [`start`].

use std::{fmt, sync::OnceLock, time::SystemTime};

use fsgather::Error;
use fsgather_config::{
    environment::{self, Variables},
    settings::Settings,
};
use fsgather_core::StandardError;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    prelude::*,
    registry::LookupSpan,
};

use crate::{
    colour::{Hue, Paint},
    log_filter,
    output::Stream,
};

/// The verbosity of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loudness {
    /// Errors only, and no progress.
    Quiet,
    /// The default: `FSGATHER_LOG` decides.
    Usual,
    /// Also the actions of the command.
    More,
    /// Also their details.
    Everything,
}

static LOUDNESS: OnceLock<Loudness> = OnceLock::new();

/// Sets the verbosity of this process.
pub(crate) fn be(loudness: Loudness) {
    LOUDNESS.get_or_init(|| loudness);
}

/// Returns true if only errors are printed.
pub(crate) fn is_quiet() -> bool {
    LOUDNESS.get() == Some(&Loudness::Quiet)
}

impl Loudness {
    /// The log filter for this verbosity, which overrides the variable.
    const fn filter(self) -> Option<&'static str> {
        match self {
            Self::Quiet => Some("error"),
            Self::Usual => None,
            Self::More => Some("info"),
            Self::Everything => Some("debug"),
        }
    }

    fn for_ranks(self, variables: &Variables) -> Vec<(&'static str, &'static str)> {
        let filter = self.filter().map(|filter| (environment::LOG, filter));
        let progress = (self == Self::Quiet).then_some((environment::PROGRESS, "off"));
        let said = filter.into_iter().chain(progress);
        said.filter(|(name, _)| variables.get(name).is_none())
            .collect()
    }
}

/// Environment variables that give ranks the same verbosity, without those that are set already: names and values.
pub(crate) fn for_ranks(variables: &Variables) -> Vec<(&'static str, &'static str)> {
    let loudness = LOUDNESS.get().copied().unwrap_or(Loudness::Usual);
    loudness.for_ranks(variables)
}

/// Formats lines such as `fsgather: rank 3: warning: ...`; if the filter includes more than warnings, with the time in front.
struct Line {
    rank: u32,
    is_timed: bool,
    paint: Paint,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (level, hue) = match *event.metadata().level() {
            Level::ERROR => ("error: ", Hue::Bad),
            Level::WARN => ("warning: ", Hue::Stale),
            Level::INFO => ("", Hue::Quiet),
            Level::DEBUG => ("debug: ", Hue::Quiet),
            Level::TRACE => ("trace: ", Hue::Quiet),
        };
        let level = self.paint.on(hue, level);
        if self.is_timed {
            let now = humantime::format_rfc3339_millis(SystemTime::now());
            write!(line, "{now} ")?;
        }
        write!(line, "fsgather: rank {}: {level}", self.rank)?;
        context.format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}

/// Begins to write the log that `FSGATHER_LOG` selects.
///
/// # Errors
///
/// Returns [`Error::Config`] for a filter or another variable that is not valid.
pub(crate) fn start() -> Result<(), Error> {
    start_with(&Settings::resolve(&Variables::of_process())?)
}

/// The same with known settings.
///
/// # Errors
///
/// Returns [`Error::Config`] for a filter that is not valid.
pub(crate) fn start_with(settings: &Settings) -> Result<(), Error> {
    let asked = LOUDNESS.get().and_then(|loudness| loudness.filter());
    let text = asked.unwrap_or(&settings.log.value);
    let filter = log_filter::parse(text)?;
    let levels = filter.iter().map(|(_, level)| level);
    let line = Line {
        rank: settings.detection.rank.get(),
        is_timed: levels
            .chain(filter.default_level())
            .any(|level| level > Level::WARN),
        paint: Paint::of(Stream::Stderr),
    };
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        // Ranks that wait for this process must not wait for the reader of its log.
        .with_writer(|| StandardError)
        .event_format(line)
        .with_filter(filter);
    // A subscriber that was set earlier stays.
    let _ = tracing_subscriber::registry().with(layer).try_init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_what_they_have_not_been_told_already() {
        let none = Variables::default();
        assert_eq!(Loudness::Usual.for_ranks(&none), []);
        assert_eq!(
            Loudness::Everything.for_ranks(&none),
            [("FSGATHER_LOG", "debug")]
        );
        assert_eq!(
            Loudness::Quiet.for_ranks(&none),
            [("FSGATHER_LOG", "error"), ("FSGATHER_PROGRESS", "off")]
        );
        let some = Variables::from_iter([("FSGATHER_LOG", "warn")]);
        assert_eq!(Loudness::More.for_ranks(&some), []);
        assert_eq!(
            Loudness::Quiet.for_ranks(&some),
            [("FSGATHER_PROGRESS", "off")]
        );
    }
}
