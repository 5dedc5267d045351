//! Questions what the ranks of a world are doing, and their answers: [`Question`].

use std::path::{Path, PathBuf};

use fsgather_core::Error;
use uuid::Uuid;

use super::MAX_LEN;
use crate::{
    layout::{self, RendezvousEntry},
    os::{file, listing, remove},
};

/// The longest answer to a question, in bytes, without the end of its line.
pub const LONGEST_ANSWER: usize = (1 << 20) - 1;

/// A question to a world what its ranks are doing, which lies in a rendezvous directory where rank 0 looks for it.
#[derive(Clone, Debug)]
pub struct Question {
    rendezvous: PathBuf,
    world: Uuid,
    nonce: u32,
}

impl Question {
    /// Asks.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when the question cannot be left.
    pub fn ask(rendezvous: &Path, world: Uuid) -> Result<Self, Error> {
        let question = Self {
            rendezvous: rendezvous.to_owned(),
            world,
            nonce: fsgather_core::sys::random::fresh(),
        };
        let path = question.path();
        file::write_new(&path, 0o600, b"", true)
            .map_err(|error| Error::storage("make", &path, &error))?;
        Ok(question)
    }

    /// The questions to a world in a rendezvous directory.
    #[must_use]
    pub fn to(rendezvous: &Path, world: Uuid) -> Vec<Self> {
        let is_one = |name: &str| name.starts_with(layout::ASKED_STEM);
        let names = listing::names_if(rendezvous, &is_one).unwrap_or_default();
        let asked = names
            .iter()
            .filter_map(|name| match RendezvousEntry::parse(name)? {
                RendezvousEntry::Asked { world: of, nonce } if of == world => Some(Self {
                    rendezvous: rendezvous.to_owned(),
                    world,
                    nonce,
                }),
                _ => None,
            });
        asked
            .filter(|question| owner_if_trusted(&question.path()).is_some())
            .collect()
    }

    /// Tells it from others.
    #[must_use]
    pub const fn nonce(&self) -> u32 {
        self.nonce
    }

    /// Takes the question back, and its answer away.
    pub fn withdraw(&self) {
        remove::or_leave(&self.path());
        remove::or_leave(&self.path_of_answer());
    }

    fn path(&self) -> PathBuf {
        let (world, nonce) = (self.world, self.nonce);
        let name = RendezvousEntry::Asked { world, nonce };
        self.rendezvous.join(name.to_string())
    }

    fn path_of_answer(&self) -> PathBuf {
        let (world, nonce) = (self.world, self.nonce);
        let name = RendezvousEntry::Answer { world, nonce };
        self.rendezvous.join(name.to_string())
    }

    /// Answers, unless nobody wants to know any more. The text is one line, no longer than [`LONGEST_ANSWER`].
    pub fn answer(&self, text: &str) {
        let is_asked = listing::examine_path(&self.path()).is_ok();
        let path = self.path_of_answer();
        let line = format!("{text}\n");
        if is_asked && let Err(error) = file::write_new(&path, 0o600, line.as_bytes(), true) {
            tracing::debug!(path = %path.display(), %error, "a question cannot be answered");
        }
    }

    /// The answer, once it is there as a whole.
    #[must_use]
    pub fn look_for_answer(&self) -> Option<String> {
        // A client that remembers what is in the directory asks again.
        let stem = layout::ANSWER_STEM;
        listing::names_if(&self.rendezvous, &|name| name.starts_with(stem)).ok()?;
        let path = self.path_of_answer();
        let owner = owner_if_trusted(&path)?;
        let bytes = file::read_small(&path, &[owner], MAX_LEN).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        Some(text.strip_suffix('\n')?.to_owned())
    }
}

/// Whose a file is, if it is this user's; servers may show files of root as somebody else's.
fn owner_if_trusted(path: &Path) -> Option<u32> {
    let me = rustix::process::geteuid().as_raw();
    let owner = listing::examine_path(path).ok()?.uid;
    (me == 0 || me == owner).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_finds_the_questions_that_it_is_asked_and_their_answers_go_with_them() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let asked = Question::ask(place.path(), one).unwrap();
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
    fn root_reads_answers_of_other_users() {
        const OTHER: u32 = 12_345;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let asked = Question::ask(place.path(), Uuid::from_u128(1)).unwrap();
        asked.answer("all wait");
        std::os::unix::fs::chown(asked.path_of_answer(), Some(OTHER), None).unwrap();
        assert_eq!(asked.look_for_answer().as_deref(), Some("all wait"));
    }
}
