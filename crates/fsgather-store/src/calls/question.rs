//! Questions about the activity of a world's ranks, and their answers: [`Question`].

use std::path::{Path, PathBuf};

use fsgather_core::{Error, StorageCause, sys::files};
use uuid::Uuid;

use super::MAX_LEN;
use crate::{
    layout::{self, RendezvousEntry},
    os::{file, listing, process::user_text, remove},
};

/// Maximum length of the answer to a question in bytes, without the newline.
pub const LONGEST_ANSWER: usize = (1 << 20) - 1;

/// A question about the activity of a world's ranks. It is a file in a rendezvous directory where rank 0 looks for it.
///
/// The question and its answers count only if the user of the job owns the files: other users may write into the same
/// directory.
#[derive(Clone, Debug)]
pub struct Question {
    rendezvous: PathBuf,
    world: Uuid,
    nonce: u32,
    /// The user who owns the job.
    owner: u32,
}

impl Question {
    /// Asks a world whose rank 0 runs as `owner`. If root asks, the file is given to that user, because ranks accept no
    /// questions of other users.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if the question cannot be written, or cannot be given to `owner`.
    pub fn ask(rendezvous: &Path, world: Uuid, owner: u32) -> Result<Self, Error> {
        let question = Self {
            rendezvous: rendezvous.to_owned(),
            world,
            nonce: fsgather_core::sys::random::fresh(),
            owner,
        };
        let path = question.path();
        let failed = |cause: &std::io::Error| Error::storage("make", &path, cause);
        let made = file::create_new(&path, 0o600).map_err(|error| failed(&error))?;
        let found = file::examine(&made).map_err(|error| failed(&error))?;
        if found.uid != owner
            && let Err(refused) = files::set_owner(&made, owner)
        {
            question.withdraw();
            let owner = user_text(owner);
            let cause = format!(
                "its ranks take questions of {owner} only, and this one cannot be given to {owner} ({}): ask as {owner}",
                std::io::Error::from(refused)
            );
            return Err(Error::storage(
                "make",
                &path,
                StorageCause::described(cause),
            ));
        }
        // Closing makes the file visible on other hosts.
        file::close(made).map_err(|error| failed(&error))?;
        Ok(question)
    }

    /// Returns the questions of this user to a world, in a rendezvous directory.
    #[must_use]
    pub fn to(rendezvous: &Path, world: Uuid) -> Vec<Self> {
        let owner = rustix::process::geteuid().as_raw();
        let is_one = |name: &str| name.starts_with(layout::ASKED_STEM);
        let names = listing::names_if(rendezvous, &is_one).unwrap_or_default();
        let asked = names
            .iter()
            .filter_map(|name| match RendezvousEntry::parse(name)? {
                RendezvousEntry::Asked { world: of, nonce } if of == world => Some(Self {
                    rendezvous: rendezvous.to_owned(),
                    world,
                    nonce,
                    owner,
                }),
                _ => None,
            });
        asked
            .filter(|question| owner_of(&question.path()) == Some(owner))
            .collect()
    }

    /// Random number of the question.
    #[must_use]
    pub const fn nonce(&self) -> u32 {
        self.nonce
    }

    /// Removes the question and its answers.
    pub fn withdraw(&self) {
        remove::or_leave(&self.path());
        for answer in self.answers() {
            remove::or_leave(&answer);
        }
    }

    fn path(&self) -> PathBuf {
        let (world, nonce) = (self.world, self.nonce);
        let name = RendezvousEntry::Asked { world, nonce };
        self.rendezvous.join(name.to_string())
    }

    /// Returns the paths of all answers, of any owner.
    fn answers(&self) -> Vec<PathBuf> {
        // The listing bypasses a client's cache of the directory.
        let is_one = |name: &str| name.starts_with(layout::ANSWER_STEM);
        let names = listing::names_if(&self.rendezvous, &is_one).unwrap_or_default();
        let to_this = |name: &String| {
            matches!(
                RendezvousEntry::parse(name),
                Some(RendezvousEntry::Answer { world, nonce, .. }) if (world, nonce) == (self.world, self.nonce)
            )
        };
        let names = names.into_iter().filter(to_this);
        names.map(|name| self.rendezvous.join(name)).collect()
    }

    /// Writes an answer if the question is still there. The text is one line of at most [`LONGEST_ANSWER`] bytes.
    pub fn answer(&self, text: &str) {
        let is_asked = listing::examine_path(&self.path()).is_ok();
        let name = RendezvousEntry::Answer {
            world: self.world,
            nonce: self.nonce,
            salt: fsgather_core::sys::random::fresh(),
        };
        let path = self.rendezvous.join(name.to_string());
        let line = format!("{text}\n");
        if is_asked && let Err(error) = file::write_new(&path, 0o600, line.as_bytes(), true) {
            tracing::debug!(path = %path.display(), %error, "a question cannot be answered");
        }
    }

    /// Returns the answer, once it is complete.
    #[must_use]
    pub fn look_for_answer(&self) -> Option<String> {
        self.answers().iter().find_map(|path| {
            let bytes = file::read_small(path, &[self.owner], MAX_LEN).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            Some(text.strip_suffix('\n')?.to_owned())
        })
    }

    /// Returns the reasons why answers of other users do not count.
    #[must_use]
    pub fn refused_answers(&self) -> Vec<String> {
        let answers = self.answers().into_iter();
        let refused = answers.filter_map(|path| {
            let owner = owner_of(&path).filter(|owner| *owner != self.owner)?;
            Some(format!(
                "{}: an answer of {}, but this is a job of {}",
                path.display(),
                user_text(owner),
                user_text(self.owner)
            ))
        });
        refused.collect()
    }
}

fn owner_of(path: &Path) -> Option<u32> {
    Some(listing::examine_path(path).ok()?.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn answers_and_questions_find_each_other_and_go_together() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let asked = Question::ask(place.path(), one, me()).unwrap();
        let found = Question::to(place.path(), one);
        let nonces: Vec<u32> = found.iter().map(Question::nonce).collect();
        assert_eq!(nonces, [asked.nonce()]);
        assert!(Question::to(place.path(), other).is_empty());
        assert_eq!(asked.look_for_answer(), None);
        found[0].answer("all wait");
        assert_eq!(asked.look_for_answer().as_deref(), Some("all wait"));
        asked.withdraw();
        assert!(Question::to(place.path(), one).is_empty());
        found[0].answer("too late");
        assert_eq!(listing::names(place.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn only_root_can_ask_the_job_of_another_user() {
        const OTHER: u32 = 12_345;
        let place = tempfile::tempdir().unwrap();
        let world = Uuid::from_u128(1);
        let asked = Question::ask(place.path(), world, OTHER);
        if me() == 0 {
            let path = asked.unwrap().path();
            assert_eq!(owner_of(&path), Some(OTHER));
        } else {
            let refused = asked.unwrap_err().to_string();
            assert!(refused.contains("ask as uid 12345"), "{refused}");
            assert_eq!(listing::names(place.path()).unwrap(), Vec::<String>::new());
        }
        assert!(Question::to(place.path(), world).is_empty());
    }

    #[test]
    fn answers_of_other_users_do_not_count_and_are_reported() {
        const OTHER: u32 = 12_345;
        if me() != 0 {
            eprintln!("ignored: files of another user take root");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        for owner in [me(), 54_321] {
            let asked = Question::ask(place.path(), Uuid::from_u128(1), owner).unwrap();
            let give =
                |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None).unwrap();
            asked.answer("forged");
            let forged = asked.answers();
            give(&forged[0], OTHER);
            assert_eq!(asked.look_for_answer(), None);
            // The foreign answer does not keep rank 0 from answering.
            asked.answer("all wait");
            let mut answers = asked.answers();
            answers.retain(|path| !forged.contains(path));
            give(&answers[0], owner);
            assert_eq!(asked.look_for_answer().as_deref(), Some("all wait"));
            let refused = asked.refused_answers();
            assert_eq!(refused.len(), 1);
            assert!(refused[0].contains(": an answer of uid 12345, but"));
            asked.withdraw();
            assert_eq!(listing::names(place.path()).unwrap(), Vec::<String>::new());
        }
    }
}
