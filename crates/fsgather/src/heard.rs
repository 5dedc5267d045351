//! Collects warnings, for tests of their texts: [`heard`].

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use fsgather_core::lock;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Returns the warnings of this thread during `act`.
pub(crate) fn heard(act: impl FnOnce()) -> Vec<String> {
    let listener = Listener::default();
    let warnings = Arc::clone(&listener.0);
    tracing::subscriber::with_default(listener, act);
    std::mem::take(&mut *lock(&warnings))
}

#[derive(Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{value:?}");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        lock(&self.0).push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
