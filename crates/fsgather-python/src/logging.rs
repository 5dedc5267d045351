//! Forwards the library's log to Python's `logging`: [`install`], [`forward`].
//!
//! Events come from threads that must not wait for the interpreter's lock, and arrive even while Python ends. So they are queued, and the
//! next thread that has the lock anyway forwards them: after each call, and ten times a second while a call waits.

use std::{
    collections::VecDeque,
    fmt::{self, Write},
    sync::{Mutex, OnceLock},
};

use fsgather_config::environment::Variables;
use fsgather_core::{lock, plain_text};
use pyo3::{exceptions::PyException, prelude::*};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{Layer, layer::Context, prelude::*};

use crate::errors;

/// A level above all others.
const OFF: u8 = 60;

/// Maximum number of queued records; beyond that the oldest are dropped.
const MAX_RECORDS: usize = 1000;

struct LogRecord {
    level: Level,
    target: String,
    message: String,
}

static QUEUE: Mutex<VecDeque<LogRecord>> = Mutex::new(VecDeque::new());

/// Queues events of the library, filtered by `FSGATHER_LOG`, which also sets the level of the logger `fsgather`. Does nothing if this
/// process has another subscriber already.
///
/// # Errors
///
/// Returns `fsgather.ConfigError` for an invalid filter.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.get().is_some() {
        return Ok(());
    }
    let variables = Variables::of_process();
    let text = variables
        .get("FSGATHER_LOG")
        .filter(|text| !text.is_empty());
    let filter = text.unwrap_or("warn");
    let filter =
        fsgather_cli::log_filter::parse(filter).map_err(|error| errors::raise(py, &error))?;
    if text.is_some() {
        let levels = filter.iter().map(|(_, level)| level);
        let highest = levels.chain(filter.default_level()).max();
        let level = highest.and_then(LevelFilter::into_level);
        let listen = py.import("fsgather._logging")?.getattr("listen")?;
        listen.call1((level.map_or(OFF, level_of),))?;
    }
    INSTALLED.get_or_init(|| {
        let queueing = Queueing.with_filter(filter);
        let _ = tracing_subscriber::registry().with(queueing).try_init();
    });
    Ok(())
}

/// Passes queued records to the logger `fsgather`. An exception in the logger is reported as unraisable.
///
/// # Errors
///
/// Returns other exceptions, such as `KeyboardInterrupt`: Python may handle signals here.
pub(crate) fn forward(py: Python<'_>) -> PyResult<()> {
    loop {
        let record = lock(&QUEUE).pop_front();
        let Some(record) = record else {
            return Ok(());
        };
        match hand_over(py, &record) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, None);
            }
            handed_over => handed_over?,
        }
    }
}

fn hand_over(py: Python<'_>, record: &LogRecord) -> PyResult<()> {
    let logger = py
        .import("fsgather._logging")?
        .call_method1("logger", (name_of(&record.target),))?;
    logger.call_method1("log", (level_of(record.level), "%s", &record.message))?;
    Ok(())
}

/// For Python, `fsgather_control::mesh` is a part of the library.
fn name_of(target: &str) -> String {
    let (_, modules) = target.split_once("::").unwrap_or_default();
    if modules.is_empty() {
        return "fsgather".into();
    }
    format!("fsgather.{}", modules.replace("::", "."))
}

const fn level_of(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct Queueing;

impl<S: Subscriber> Layer<S> for Queueing {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let record = LogRecord {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            // It may contain names of files that others have left.
            message: plain_text(&(text.message + &text.fields)).into_owned(),
        };
        let mut queue = lock(&QUEUE);
        if queue.len() == MAX_RECORDS {
            queue.pop_front();
        }
        queue.push_back(record);
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}
