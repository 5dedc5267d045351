//! Says that a file system is waited for, as long as it does not answer: [`watched`].

use std::{
    path::Path,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use fsgather_core::{FIRST_WARNING, duration_text, warning_after};

/// Looks at a directory. While its file system does not answer, a warning names it, after 30 seconds for the first time: nothing
/// else can, since nobody has met yet, and a call of the system cannot be cut short.
pub(crate) fn watched<R>(directory: &Path, look: impl FnOnce() -> R) -> R {
    watched_from(
        directory,
        FIRST_WARNING,
        |text| fsgather_core::warn!("{text}"),
        look,
    )
}

fn watched_from<R>(
    directory: &Path,
    first: Duration,
    warn: impl Fn(String) + Send + 'static,
    look: impl FnOnce() -> R,
) -> R {
    let (looking, has_looked) = channel::<()>();
    let (directory, began) = (directory.to_owned(), Instant::now());
    let watch = move || {
        let mut next = first;
        while has_looked.recv_timeout(next.saturating_sub(began.elapsed()))
            == Err(RecvTimeoutError::Timeout)
        {
            warn(format!(
                "still waiting for the file system of {}, which has not answered for {}; ranks meet there once it does",
                directory.display(),
                duration_text(next)
            ));
            next = warning_after(next);
        }
    };
    // Without a thread it is only not said.
    let watching = thread::Builder::new()
        .name("fsgather-slow".into())
        .spawn(watch);
    let looked = look();
    drop(looking);
    // No thread is left that a program which forks next would have to reckon with.
    if let Ok(watching) = watching {
        let _ = watching.join();
    }
    looked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_does_not_answer_is_named_again_and_again_until_it_does() {
        let (tell, told) = channel();
        let first = Duration::from_millis(20);
        let warn = move |text| tell.send(text).unwrap();
        let texts = watched_from(Path::new("/shared/a"), first, warn, || {
            [told.recv().unwrap(), told.recv().unwrap()]
        });
        for text in texts {
            assert!(
                text.contains("file system of /shared/a, which has not answered for"),
                "{text}"
            );
        }
        // Nobody is there to warn any more.
        assert!(told.recv().is_err());
    }

    #[test]
    fn one_that_answers_is_not_spoken_of() {
        let (tell, told) = channel();
        let warn = move |text: String| tell.send(text).unwrap();
        assert_eq!(watched_from(Path::new("/x"), FIRST_WARNING, warn, || 7), 7);
        assert!(told.recv().is_err());
    }
}
