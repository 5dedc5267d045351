//! Warnings for users, which appear even if a program has no log subscriber: [`warn!`](crate::warn). ADR 0028 has the
//! reasons.

use std::{io::Write, sync::Mutex};

#[doc(hidden)]
pub use tracing;
use tracing::{dispatcher, subscriber::NoSubscriber};

use crate::sys::StandardError;

/// The name in warnings on standard error; `None` until it is set, and then nothing is written.
static SPEAKER: Mutex<Option<String>> = Mutex::new(None);

/// Warns, by an event of the log. If the program has no subscriber, also writes a line to standard error, once [a
/// name](speak_as) is set. Takes the arguments of [`format!`].
///
/// The event is made in any case: without a subscriber, `tracing` passes events to the crate `log`, if it was built to.
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

/// The name if a process has several ranks.
const ANY_RANK: &str = "a rank of this process";

/// Makes warnings without a subscriber go to standard error from now on, in the name of `who`; with `None` no more. If
/// a process has several ranks, the name does not say which of them warns.
pub fn speak_as(who: Option<&str>) {
    let mut speaker = crate::sys::lock(&SPEAKER);
    let is_another = speaker
        .as_deref()
        .is_some_and(|before| who.is_some_and(|who| who != before));
    *speaker = if is_another {
        Some(ANY_RANK.to_owned())
    } else {
        who.map(str::to_owned)
    };
}

/// Returns true if this thread's program has a log subscriber, even if that ignores some events.
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
    fn any_subscriber_counts_even_one_that_takes_nothing() {
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
        assert_eq!(told, [Some("rank 3"), Some("rank 3"), Some(ANY_RANK), None]);
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
