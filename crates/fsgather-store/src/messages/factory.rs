//! Makes the directories through which worlds exchange messages: [`MessageDirFactory`].

use std::{path::PathBuf, sync::Arc, time::Duration};

use fsgather_core::{
    BackgroundThreads, Error, Mailbox, MailboxFactory, ProcessId, Rank, WorldSize, read_message,
    sys::clock,
};
use uuid::Uuid;

use crate::{
    directory::{
        gather_dir::{GatherDir, GatherFacts},
        owner::{OwnerRecord, draw_id},
    },
    layout::RendezvousEntry,
    lifecycle::{janitor::Janitor, judgement::BEAT_PERIOD},
    messages::{message_dir::MessageDir, role::Role},
    os::listing,
    rendezvous::file_backend::BackendDirectory,
};

/// The facts of the owner record of a message directory that its maker provides.
#[derive(Clone, Debug)]
pub struct MarkerOwner {
    /// The process.
    pub process: ProcessId,
    /// The user's number.
    pub uid: u32,
    /// The user's name.
    pub user: String,
    /// The job, if it has a name.
    pub job: Option<String>,
    /// The permissions of directories.
    pub mode: u32,
}

/// Makes and enters gather directories for messages, in the rendezvous directories where ranks meet.
///
/// Each world gets its own directory, beside those for payloads and of the same kind: with an owner record and a heartbeat, so
/// that it can be judged and removed like them. Rank 0 makes it in the first place where that is possible; the others look for
/// it in all places.
///
/// ```
/// # use fsgather_core::{MailboxFactory, Rank, Retirement, WorldSize};
/// # use fsgather_store::{
/// #     BackendDirectory, MessageDirFactory, MarkerOwner, check_writable, make_rendezvous, this_process,
/// # };
/// # let place = tempfile::tempdir()?;
/// # let directory = make_rendezvous(place.path())?;
/// # let own = check_writable(&directory)?;
/// # let owner = MarkerOwner {
/// #     process: this_process()?, uid: 0, user: "me".into(), job: None, mode: 0o700,
/// # };
/// let factory = MessageDirFactory::new(vec![BackendDirectory { directory, own }], owner);
/// let (facts, root) = factory.open(uuid::Uuid::from_u128(1), WorldSize::new(2)?)?;
/// let member = factory.enter(&facts, Rank::new(1), 7)?.ok_or("not seen")?;
/// member.send(1, None, b"here I am")?;
/// let messages = root.receive(true)?;
/// assert_eq!(messages[0].body.as_deref(), Some(&b"here I am"[..]));
/// member.retire(Retirement::Over);
/// root.retire(Retirement::Over);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MessageDirFactory {
    places: Vec<BackendDirectory>,
    owner: MarkerOwner,
    threads: BackgroundThreads,
}

impl MessageDirFactory {
    /// Makes a factory with these places. No file is touched until it is used.
    #[must_use]
    pub fn new(places: Vec<BackendDirectory>, owner: MarkerOwner) -> Self {
        Self {
            places,
            owner,
            threads: BackgroundThreads::default(),
        }
    }

    /// Makes a panic of the factory's threads end the world of `threads`.
    #[must_use]
    pub fn with_threads(self, threads: BackgroundThreads) -> Self {
        Self { threads, ..self }
    }

    fn make(
        &self,
        place: &BackendDirectory,
        communicator: Uuid,
        world_size: WorldSize,
    ) -> Result<GatherDir, Error> {
        let now = clock::wall();
        let record = OwnerRecord {
            process: self.owner.process.clone(),
            uid: self.owner.uid,
            user: self.owner.user.clone(),
            job: self.owner.job.clone(),
            world_size,
            gather: draw_id(now, self.owner.job.as_deref(), &self.owner.process),
            communicator,
            created: now,
            // The ranks are not known yet.
            ranks: Vec::new(),
        };
        GatherDir::create_for_messages(&place.directory, self.owner.mode, record, place.own)
    }
}

impl MailboxFactory for MessageDirFactory {
    fn open(
        &self,
        communicator: Uuid,
        world_size: WorldSize,
    ) -> Result<(Vec<u8>, Arc<dyn Mailbox>), Error> {
        let mut failure = None;
        for place in &self.places {
            match self.make(place, communicator, world_size) {
                Ok(directory) => {
                    let facts = postcard::to_stdvec(directory.facts()).map_err(|error| {
                        Error::config(format!("where messages go cannot be told: {error}"))
                    })?;
                    let care = Janitor::start(&directory, &self.threads)?
                        .care_for(directory.clone(), Some(BEAT_PERIOD));
                    let its = MessageDir::new(
                        directory,
                        Role::Coordinator,
                        &self.owner.process,
                        Some(care),
                    );
                    its.make_host_directories()?;
                    return Ok((facts, Arc::new(its)));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| {
            Error::config("there is no directory for messages; name one with FSGATHER_DIR")
        }))
    }

    fn enter(
        &self,
        facts: &[u8],
        rank: Rank,
        sender: u64,
    ) -> Result<Option<Arc<dyn Mailbox>>, Error> {
        let facts: GatherFacts = read_message(facts).map_err(|_| {
            Error::rendezvous("found a record whose directory cannot be understood")
        })?;
        let name = RendezvousEntry::Gather(facts.id).to_string();
        let holds_it = |directory: &PathBuf| {
            // A name that is looked up too early may stay invisible for long.
            listing::names_if(directory, &|other| other == name)
                .is_ok_and(|names| !names.is_empty())
        };
        let Some(place) = self.places.iter().find(|place| holds_it(&place.directory)) else {
            return Ok(None);
        };
        let directory = GatherDir::open(
            &place.directory,
            facts,
            Rank::ZERO,
            place.own,
            Duration::ZERO,
            &mut |_| Ok(()),
        )?;
        let role = Role::Member { rank, sender };
        let its = MessageDir::new(directory, role, &self.owner.process, None);
        its.make_host_directories()?;
        Ok(Some(Arc::new(its)))
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::Retirement;

    use super::*;
    use crate::{check_writable, make_rendezvous, os::process::this_process};

    fn factory(places: &[&tempfile::TempDir]) -> MessageDirFactory {
        let places = places.iter().map(|place| {
            let directory = make_rendezvous(place.path()).unwrap();
            let own = check_writable(&directory).unwrap();
            BackendDirectory { directory, own }
        });
        let owner = MarkerOwner {
            process: this_process().unwrap(),
            uid: 1000,
            user: "ada".into(),
            job: Some("4711".into()),
            mode: 0o700,
        };
        MessageDirFactory::new(places.collect(), owner)
    }

    #[test]
    fn a_member_finds_rank_0s_directory_anywhere_and_is_heard() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let size = WorldSize::new(2).unwrap();
        let (facts, root) = factory(&[&there]).open(Uuid::from_u128(1), size).unwrap();
        assert!(
            root.place()
                .starts_with(&there.path().display().to_string())
        );
        // A rank that does not look there does not find it, which is no error.
        let elsewhere = factory(&[&here]).enter(&facts, Rank::new(1), 7).unwrap();
        assert!(elsewhere.is_none());
        let member = factory(&[&here, &there])
            .enter(&facts, Rank::new(1), 7)
            .unwrap()
            .unwrap();
        assert_eq!(member.place(), root.place());
        member.send(1, None, b"here I am").unwrap();
        let heard = root.receive(true).unwrap();
        assert_eq!((heard[0].from, heard[0].sender), (Rank::new(1), 7));
        assert_eq!(heard[0].body.as_deref(), Some(&b"here I am"[..]));
        member.retire(Retirement::Over);
        root.retire(Retirement::Over);
        assert!(!std::path::Path::new(&root.place()).exists());
        let gone = factory(&[&there]).enter(&facts, Rank::new(1), 7).unwrap();
        assert!(gone.is_none());
    }

    #[test]
    fn its_owner_says_whose_it_is() {
        let place = tempfile::tempdir().unwrap();
        let size = WorldSize::new(2).unwrap();
        let (_, root) = factory(&[&place]).open(Uuid::from_u128(1), size).unwrap();
        let owner =
            std::fs::read_to_string(std::path::Path::new(&root.place()).join("owner")).unwrap();
        assert!(owner.contains("ada") && owner.contains("4711"), "{owner}");
        root.retire(Retirement::Over);
    }

    #[test]
    fn without_a_place_or_with_other_words_there_is_no_directory() {
        let size = WorldSize::new(2).unwrap();
        let error = factory(&[]).open(Uuid::from_u128(1), size).err().unwrap();
        assert!(error.to_string().contains("FSGATHER_DIR"), "{error}");
        assert!(factory(&[]).enter(b"x", Rank::new(1), 7).is_err());
    }
}
