//! What the library notes, on standard error: [`start`].

use std::{fmt, sync::OnceLock};

use fsgather::{Error, environment::Variables, settings::Settings};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    EnvFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// How much is to be said, as the command line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loudness {
    /// Errors alone, and no progress.
    Quiet,
    /// What `FSGATHER_LOG` asks for.
    Usual,
    /// And what is done.
    More,
    /// And how.
    Everything,
}

static LOUDNESS: OnceLock<Loudness> = OnceLock::new();

/// Notes how much is to be said by this process.
pub(crate) fn be(loudness: Loudness) {
    LOUDNESS.get_or_init(|| loudness);
}

/// Whether errors alone are to be said.
pub(crate) fn is_quiet() -> bool {
    LOUDNESS.get() == Some(&Loudness::Quiet)
}

impl Loudness {
    /// The filter that it stands for, which goes before that of the variable.
    const fn filter(self) -> Option<&'static str> {
        match self {
            Self::Quiet => Some("error"),
            Self::Usual => None,
            Self::More => Some("info"),
            Self::Everything => Some("debug"),
        }
    }
}

/// Lines such as `fsgather: rank 3: warning: ...`.
struct Line {
    rank: u32,
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
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            Level::DEBUG => "debug: ",
            Level::TRACE => "trace: ",
        };
        write!(line, "fsgather: rank {}: {level}", self.rank)?;
        context.format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}

/// Begins to write what `FSGATHER_LOG` asks for.
///
/// # Errors
///
/// [`Error::Config`] for a filter or another variable that cannot be understood.
pub(crate) fn start() -> Result<(), Error> {
    start_with(&Settings::resolve(&Variables::of_process())?)
}

/// The same with settings that are known already.
///
/// # Errors
///
/// [`Error::Config`] for a filter that cannot be understood.
pub(crate) fn start_with(settings: &Settings) -> Result<(), Error> {
    let asked = LOUDNESS.get().and_then(|loudness| loudness.filter());
    let text = asked.unwrap_or(&settings.log.value);
    let filter = EnvFilter::try_new(text).map_err(|error| {
        Error::config(format!(
            "FSGATHER_LOG: {text:?} is no log filter ({error}); write one such as warn or fsgather=debug"
        ))
    })?;
    let line = Line {
        rank: settings.detection.rank.get(),
    };
    // Somebody who has set one up before us keeps it.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .event_format(line)
        .try_init();
    Ok(())
}
