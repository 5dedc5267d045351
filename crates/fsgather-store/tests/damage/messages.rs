//! Messages between ranks as files: letters, bulletins, heartbeats.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use fsgather_core::{Error, InboundMessage, Mailbox, MailboxFactory, Rank, Retirement, WorldSize};
use fsgather_store::{MarkerOwner, MessageDirFactory};
use uuid::Uuid;

use crate::{
    records::{rendezvous, this},
    specimen::{Answer, Reading, Specimen},
};

/// A world of two that exchanges messages through files.
struct World {
    place: Arc<tempfile::TempDir>,
    path: PathBuf,
    root: Arc<dyn Mailbox>,
    member: Arc<dyn Mailbox>,
}

fn world() -> World {
    let (place, directory) = rendezvous();
    let owner = MarkerOwner {
        process: this(),
        uid: directory.own.0,
        user: "ada".into(),
        job: None,
        mode: 0o700,
    };
    let factory = MessageDirFactory::new(vec![directory], owner);
    let (facts, root) = factory
        .open(Uuid::from_u128(1), WorldSize::new(2).unwrap())
        .unwrap();
    let member = factory.enter(&facts, Rank::new(1), 7).unwrap().unwrap();
    World {
        path: PathBuf::from(root.place()),
        place,
        root,
        member,
    }
}

/// Returns the file below a directory whose name begins with `stem`.
fn found(directory: &Path, stem: &str) -> PathBuf {
    let below = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = below
        .flat_map(|path| {
            if path.is_dir() {
                vec![found(&path, stem)]
            } else {
                vec![path]
            }
        })
        .collect();
    all.retain(|path| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(stem)
    });
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

const WORD: &[u8] = b"here I am";

fn reading(received: Result<Vec<InboundMessage>, Error>) -> Reading {
    match received {
        Err(error) => Reading::Refused(error),
        Ok(messages) => {
            let bodies: Vec<Option<Vec<u8>>> = messages.into_iter().map(|one| one.body).collect();
            Reading::of_listed(&bodies, &Some(WORD.to_vec()))
        }
    }
}

fn letter() -> Specimen {
    let (world, other) = (world(), world());
    let path = [&world, &other].map(|world| {
        world.member.send(1, None, WORD).unwrap();
        found(&world.path.join("in"), "letter-")
    });
    let others = vec![fs::read(&path[1]).unwrap()];
    other.root.retire(Retirement::InUse);
    let place = Arc::clone(&world.place);
    let read = move || reading(world.root.receive(true));
    let [path, _] = path;
    Specimen::small("a letter", path, Answer::Nothing, &place, read).with_others(others, false)
}

fn bulletin() -> Specimen {
    let (world, other) = (world(), world());
    let path = [&world, &other].map(|world| {
        world.root.send(1, None, WORD).unwrap();
        found(&world.path.join("out"), "bulletin-")
    });
    let others = vec![fs::read(&path[1]).unwrap()];
    other.root.retire(Retirement::InUse);
    let place = Arc::clone(&world.place);
    let read = move || reading(world.member.receive(true));
    let [path, _] = path;
    Specimen::small("a bulletin", path, Answer::Nothing, &place, read).with_others(others, false)
}

fn sign_of_life() -> Specimen {
    let (world, other) = (world(), world());
    let path = [&world, &other].map(|world| {
        world.member.beat(WORD).unwrap();
        found(&world.path.join("live"), "beat-")
    });
    let others = vec![fs::read(&path[1]).unwrap()];
    other.root.retire(Retirement::InUse);
    let place = Arc::clone(&world.place);
    let read = move || {
        let beats = world.root.beats(this().host_label());
        match beats {
            Err(error) => Reading::Refused(error),
            Ok(beats) => {
                // The existence of a heartbeat is a sign in itself; its content counts only if it is complete.
                let said = beats
                    .into_iter()
                    .map(|beat| beat.body)
                    .filter(|body| !body.is_empty());
                Reading::of_listed(&said.collect::<Vec<_>>(), &WORD.to_vec())
            }
        }
    };
    let [path, _] = path;
    Specimen::small("a sign of life", path, Answer::Nothing, &place, read)
        .with_others(others, false)
}

pub(crate) fn all() -> Vec<Specimen> {
    vec![letter(), bulletin(), sign_of_life()]
}
