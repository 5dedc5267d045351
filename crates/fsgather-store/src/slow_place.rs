//! Warnings while a file system does not respond: [`watched`].

use std::{
    path::Path,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use fsgather_core::{FIRST_WARNING, duration_text, warning_after};

/// Maximum time to wait at the end for a warning in progress.
const LAST_WARNING: Duration = Duration::from_secs(1);

/// Runs `look` on a file system. While it does not return, logs warnings, first after 30 seconds; `text` makes their text from
/// the time waited so far. System calls cannot be interrupted, so a warning is all that is possible.
///
/// ```
/// use std::path::Path;
///
/// use fsgather_store::slow_place::{directory_text, watched};
///
/// let directory = Path::new("/");
/// assert!(watched(directory_text(directory), || directory.exists()));
/// ```
pub fn watched<R>(text: impl Fn(&str) -> String + Send + 'static, look: impl FnOnce() -> R) -> R {
    watched_from(
        FIRST_WARNING,
        move |lasts| fsgather_core::warn!("{}", text(&duration_text(lasts))),
        look,
    )
}

/// Returns the text of warnings about a directory in which ranks meet.
pub fn directory_text(directory: &Path) -> impl Fn(&str) -> String + Send + use<> {
    let directory = directory.display().to_string();
    move |lasts| {
        format!(
            "still waiting for the file system of {directory}, which has not answered for {lasts}; ranks meet there once it does"
        )
    }
}

/// Returns the text of warnings about the removal of a job's files at its end.
pub fn removal_text(directory: &Path) -> impl Fn(&str) -> String + Send + use<> {
    let directory = directory.display().to_string();
    move |lasts| {
        format!(
            "still removing what this job has left in {directory}, for {lasts} now; its file system is slow or does not answer"
        )
    }
}

fn watched_from<R>(
    first: Duration,
    warn: impl Fn(Duration) + Send + 'static,
    look: impl FnOnce() -> R,
) -> R {
    let (looking, has_looked) = channel::<()>();
    let (warning, has_warned) = channel::<()>();
    let began = Instant::now();
    let watch = move || {
        // Dropped when no more warnings follow.
        let _warning = warning;
        let mut next = first;
        while has_looked.recv_timeout(next.saturating_sub(began.elapsed()))
            == Err(RecvTimeoutError::Timeout)
        {
            warn(next);
            next = warning_after(next);
        }
    };
    // If no thread can be started, only the warnings are missing.
    let watching = thread::Builder::new()
        .name("fsgather-slow".into())
        .spawn(watch);
    let looked = look();
    drop(looking);
    // No thread remains that could be in the way of a later fork. The exception is a log handler that keeps the thread, like
    // that of an interpreter that is shutting down.
    let is_over = has_warned.recv_timeout(LAST_WARNING) == Err(RecvTimeoutError::Disconnected);
    if let (Ok(watching), true) = (watching, is_over) {
        let _ = watching.join();
    }
    looked
}

#[cfg(test)]
mod tests {
    use fsgather_testkit::pace::within_patience;

    use super::*;

    #[test]
    fn a_hung_file_system_is_named_repeatedly_until_it_answers() {
        let (tell, told) = channel();
        let first = Duration::from_millis(20);
        let warn = move |lasts| tell.send(lasts).unwrap();
        let lasts = watched_from(first, warn, || [told.recv().unwrap(), told.recv().unwrap()]);
        assert_eq!(lasts, [first, first * 2]);
        let text = directory_text(Path::new("/shared/a"))("30 s");
        assert!(
            text.contains("file system of /shared/a, which has not answered for 30 s"),
            "{text}"
        );
        let text = removal_text(Path::new("/shared/a"))("30 s");
        assert!(text.contains("left in /shared/a, for 30 s now"), "{text}");
        // No thread is left that warns.
        within_patience(|| told.iter().for_each(drop));
    }

    #[test]
    fn one_that_answers_is_not_spoken_of() {
        let (tell, told) = channel();
        let warn = move |lasts| tell.send(lasts).unwrap();
        assert_eq!(watched_from(FIRST_WARNING, warn, || 7), 7);
        assert!(told.recv().is_err());
    }

    #[test]
    fn who_listens_and_does_not_come_back_keeps_nobody() {
        let (tell, told) = channel();
        let (_never, comes_back) = channel::<()>();
        let warn = move |lasts| {
            tell.send(lasts).unwrap();
            let _ = comes_back.recv();
        };
        let look = || told.recv().unwrap();
        assert_eq!(
            watched_from(Duration::from_millis(20), warn, look).as_millis(),
            20
        );
    }
}
