//! Says that a place of meeting is waited for, as long as it does not answer: [`watched`].

use std::{
    path::Path,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use fsgather_core::{FIRST_WARNING, duration_text, warning_after};

/// Maximum time that a warning that is under way at the end may take.
const LAST_WARNING: Duration = Duration::from_secs(1);

/// Looks at a place, or works there. While that does not come back, a warning with this text for so long a wait says so, after 30 seconds
/// for the first time: nothing else can, since calls of the system cannot be cut short.
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

/// What is said of a directory in which ranks meet.
pub fn directory_text(directory: &Path) -> impl Fn(&str) -> String + Send + use<> {
    let directory = directory.display().to_string();
    move |lasts| {
        format!(
            "still waiting for the file system of {directory}, which has not answered for {lasts}; ranks meet there once it does"
        )
    }
}

/// The same of what a job removes at its end.
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
        // Gone once nothing more is said.
        let _warning = warning;
        let mut next = first;
        while has_looked.recv_timeout(next.saturating_sub(began.elapsed()))
            == Err(RecvTimeoutError::Timeout)
        {
            warn(next);
            next = warning_after(next);
        }
    };
    // Without a thread it is only not said.
    let watching = thread::Builder::new()
        .name("fsgather-slow".into())
        .spawn(watch);
    let looked = look();
    drop(looking);
    // No thread is left that a program which forks next would have to reckon with; unless who listens to the log keeps it, as an
    // interpreter does that has come to its end.
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
    fn a_file_system_that_does_not_answer_is_named_again_and_again_until_it_does() {
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
