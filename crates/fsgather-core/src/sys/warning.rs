//! Warnings for people, heard also where a program listens to no log: [`warn!`](crate::warn). ADR 0028 says why.

use std::{io::Write, sync::Mutex};

#[doc(hidden)]
pub use tracing;
use tracing::{dispatcher, subscriber::NoSubscriber};

use crate::sys::StandardError;

/// Who speaks where nobody listens to the log; nobody until it is said.
static SPEAKER: Mutex<Option<String>> = Mutex::new(None);

/// Warns: as an event of the log; where the program listens to none, as a line on standard error as well, once it is known
/// [who speaks](speak_as). Takes what [`format!`] takes.
///
/// The event is made in any case: `tracing` hands those to which nobody listens to the crate `log`, where it was built to.
///
/// ```
/// fsgather_core::sys::warning::speak_as(Some("rank 3"));
/// // fsgather: rank 3: warning: rank 2 is still waited for
/// fsgather_core::warn!("rank {} is still waited for", 2);
/// ```
#[macro_export]
macro_rules! warn {
    ($($text:tt)+) => {{
        let text = ::std::format!($($text)+);
        $crate::sys::warning::tracing::warn!("{text}");
        if !$crate::sys::warning::is_listened_to() {
            $crate::sys::warning::write(&text);
        }
    }};
}

/// What several of one process are called together.
const SEVERAL: &str = "a rank of this process";

/// Has warnings to which nobody listens written to standard error from now on, as words of this process's `who`; with `None` no more.
/// Where there are several in a process it is not told which of them speaks.
pub fn speak_as(who: Option<&str>) {
    let mut speaker = crate::sys::lock(&SPEAKER);
    let is_another = speaker
        .as_deref()
        .is_some_and(|before| who.is_some_and(|who| who != before));
    *speaker = if is_another {
        Some(SEVERAL.to_owned())
    } else {
        who.map(str::to_owned)
    };
}

/// Whether this thread's program listens to the log, whatever of it it takes.
#[must_use]
pub fn is_listened_to() -> bool {
    dispatcher::get_default(|listener| !listener.is::<NoSubscriber>())
}

/// Writes a warning to [standard error](StandardError), whole lines at a time. Best effort.
pub fn write(text: &str) {
    let Some(who) = crate::sys::lock(&SPEAKER).clone() else {
        return;
    };
    let line = format!("fsgather: {who}: warning: {text}\n");
    let _ = StandardError.write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_listens_where_there_is_a_subscriber_even_one_that_takes_nothing() {
        assert!(!is_listened_to());
        let deaf = Deaf;
        tracing::subscriber::with_default(deaf, || assert!(is_listened_to()));
        assert!(!is_listened_to());
    }

    #[test]
    fn several_speakers_of_a_process_are_not_told_apart() {
        let speaker = || crate::sys::lock(&SPEAKER).clone();
        let told = [Some("rank 3"), Some("rank 3"), Some("rank 4"), None].map(|who| {
            speak_as(who);
            speaker()
        });
        let told = told.each_ref().map(Option::as_deref);
        assert_eq!(told, [Some("rank 3"), Some("rank 3"), Some(SEVERAL), None]);
    }

    struct Deaf;

    impl tracing::Subscriber for Deaf {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            false
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {}

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }
}
