//! Joining, in any order: the coordinator against a model of a meeting.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    time::{Duration, Instant},
};

use fsgather_control::{
    coordinator::{Action, Coordinator},
    message::{
        CallReply, CallRequest, JoinReply, JoinRequest, RefusalReason, ToCoordinator, ToMember,
    },
};
use fsgather_core::{
    Call, ChannelId, Contribution, Epoch, Error, Operation, Rank, Site, Step, WorldSize,
};
use proptest::{collection::vec, prelude::*};

use crate::{
    network::{join_request, setting},
    promises::{Broken, Checked, promise},
};

/// Maximum time that a process whose connection has closed may take to ask again.
const RETRY_TIME: Duration = Duration::from_secs(5);

/// The world size that a process was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The same as rank 0.
    Same,
    /// Another one, with the address of rank 0.
    Another,
    /// Another one, by which it looks for another world; it asks this one because it does not find that.
    OfAnotherWorld,
}

/// Something that happens while a world forms, or after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A process asks to be a rank; its nonce tells it from others that ask for the same.
    Join { rank: u32, nonce: u8, told: Told },
    /// The host of a rank is gone.
    Lost(u32),
    /// A connection closes; the process may ask again.
    Closed(u32),
    /// A member has met another world of the same key.
    Rival(u32),
    /// This many seconds pass.
    Wait(u8),
}

/// A meeting.
#[derive(Clone)]
pub(crate) struct Meeting {
    ranks: u32,
    events: Vec<Event>,
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranks: {:?}", self.ranks, self.events)
    }
}

/// Meetings of 1 to 4 ranks in which most processes ask once or twice.
pub(crate) fn meetings() -> impl Strategy<Value = Meeting> {
    let join = |told| {
        (0..4_u32, prop_oneof![5 => Just(0_u8), 1 => Just(1)])
            .prop_map(move |(rank, nonce)| Event::Join { rank, nonce, told })
    };
    let event = prop_oneof![
        24 => join(Told::Same),
        1 => join(Told::Another),
        1 => join(Told::OfAnotherWorld),
        1 => (0..4_u32).prop_map(Event::Lost),
        2 => (0..4_u32).prop_map(Event::Closed),
        1 => (0..4_u32).prop_map(Event::Rival),
        2 => (1..60_u8).prop_map(Event::Wait),
        2 => (1..6_u8).prop_map(Event::Wait),
    ];
    (1..=4_u32, vec(event, 0..24)).prop_map(|(ranks, events)| Meeting { ranks, events })
}

/// The expected state of the world.
#[derive(Clone, Debug, Default)]
struct Model {
    joined: BTreeMap<u32, u8>,
    gone: BTreeSet<u32>,
    /// Ranks that have sent a message after they had joined.
    settled: BTreeSet<u32>,
    /// Times until which these may ask again.
    missed: BTreeMap<u32, Duration>,
    noted: BTreeSet<u32>,
    open: bool,
    failure: Option<Error>,
}

/// A world that forms, and the model beside it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    ranks: u32,
    world_size: WorldSize,
    base: Instant,
    now: Duration,
    coordinator: Coordinator,
    model: Model,
}

/// Messages by recipient, in order.
type Said = BTreeMap<u32, Vec<ToMember>>;

fn nonce_of(rank: u32, nonce: u8) -> u128 {
    u128::from(rank) * 10 + u128::from(nonce)
}

fn pid_of(rank: u32, nonce: u8) -> u32 {
    1000 + rank + 100 * u32::from(nonce)
}

impl Meeting {
    /// Runs the meeting, and returns true if the world has opened.
    pub(crate) fn run(&self) -> Result<bool, Broken> {
        let mut run = Run::new(self.ranks)?;
        for event in &self.events {
            run.happen(*event)?;
        }
        run.go_on()?;
        Ok(run.model.open)
    }
}

impl Run {
    /// A world that no process has asked to join.
    pub(crate) fn new(ranks: u32) -> Result<Self, Broken> {
        let world_size = WorldSize::new(ranks).map_err(|error| Broken(error.to_string()))?;
        let base = Instant::now();
        Ok(Self {
            ranks,
            world_size,
            base,
            now: Duration::ZERO,
            coordinator: Coordinator::new(setting(world_size), base),
            model: Model::default(),
        })
    }

    /// Lets something happen.
    pub(crate) fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::Join { rank, nonce, told } => self.join(rank, nonce, told)?,
            Event::Lost(rank) => self.lose(rank)?,
            Event::Closed(rank) => self.close(rank)?,
            Event::Rival(rank) => self.meet_rival(rank)?,
            Event::Wait(seconds) => self.wait(seconds)?,
        }
        let (open, failure) = (self.model.open, &self.model.failure);
        promise!(
            self.coordinator.is_open() == open && self.coordinator.failure() == *failure,
            "P8: after {event:?} the world should be open: {open}, failed: {failure:?}; it is open: {}, \
             failed: {:?}",
            self.coordinator.is_open(),
            self.coordinator.failure()
        );
        Ok(())
    }

    /// The state of the world at the end.
    pub(crate) fn ending(&self) -> &'static str {
        match (&self.model.failure, self.model.open) {
            (None, true) => "open",
            (None, false) => "forming",
            (Some(Error::Timeout { .. }), _) => "late",
            (Some(Error::PeerFailed { .. }), true) => "lost after it had opened",
            (Some(Error::PeerFailed { .. }), false) => "lost while it formed",
            (Some(_), _) => "told of a double",
        }
    }

    fn instant(&self) -> Instant {
        self.base + self.now
    }

    /// The messages since the last call, and the number of notes.
    fn take(&mut self) -> (Said, usize) {
        let (mut said, mut notes) = (Said::new(), 0);
        for action in self.coordinator.take_actions() {
            match action {
                Action::Send { to, message } => {
                    for rank in to {
                        said.entry(rank.get()).or_default().push(message.clone());
                    }
                }
                Action::Note(_) => notes += 1,
                _ => {}
            }
        }
        (said, notes)
    }

    fn connected(&self) -> Vec<u32> {
        let joined = self.model.joined.keys().copied();
        joined
            .filter(|rank| !self.model.gone.contains(rank))
            .collect()
    }

    fn join(&mut self, rank: u32, nonce: u8, told: Told) -> Checked {
        let size = if told == Told::Same {
            self.world_size
        } else {
            WorldSize::new(self.ranks + 1).map_err(|error| Broken(error.to_string()))?
        };
        let mut request = join_request(Rank::new(rank), size, nonce_of(rank, nonce));
        request.process.pid = pid_of(rank, nonce);
        // Keys that differ in the world size begin alike.
        request.fingerprint.key = u64::from(told == Told::OfAnotherWorld);
        let before = self.coordinator.failure();
        let answer = self.coordinator.join(request, self.instant());
        let (said, notes) = self.take();
        if told == Told::OfAnotherWorld || told == Told::Another && self.model.open {
            let is_told = matches!(&answer, Err(RefusalReason::OtherSize(why))
                if why.contains(&format!("there are {} ranks", self.ranks + 1)));
            promise!(
                is_told && said.is_empty() && self.coordinator.failure() == before,
                "P8: rank {rank} of a world of another size gets {answer:?}, others {said:?}"
            );
            return Ok(());
        }
        if told == Told::Another && self.model.failure.is_none() {
            let cause = self.coordinator.failure();
            let text = cause.as_ref().map(ToString::to_string).unwrap_or_default();
            promise!(
                text.contains(&format!("there are {} ranks", self.ranks + 1))
                    && is_abort(&answer, cause.as_ref()),
                "P8: rank {rank} was told another world size, gets {answer:?}, and the world fails with {text}"
            );
            return self.fails(cause, &said);
        }
        if told == Told::Another || rank >= self.ranks {
            promise!(
                said.is_empty() && is_abort(&answer, None),
                "P8: rank {rank} of another world gets {answer:?}, others {said:?}"
            );
            return Ok(());
        }
        match (self.model.joined.get(&rank).copied(), &self.model.failure) {
            (Some(before), _) if before != nonce && self.model.open => {
                promise!(
                    said.is_empty()
                        && matches!(&answer, Err(RefusalReason::AlreadyFormed { running, .. })
                            if running.contains(&pid_of(rank, before).to_string())),
                    "P8: a latecomer as rank {rank} gets {answer:?}, others {said:?}"
                );
                let expected = usize::from(self.model.noted.insert(rank));
                promise!(notes == expected, "P8: {notes} notes of a latecomer");
                Ok(())
            }
            (_, Some(kept)) => {
                promise!(
                    said.is_empty() && is_abort(&answer, Some(kept)),
                    "P8: a failed world answers {answer:?} instead of {kept}"
                );
                Ok(())
            }
            (Some(before), None) if before != nonce => {
                self.double(rank, nonce, before, &answer, &said)
            }
            (known, None) => {
                self.model.joined.insert(rank, nonce);
                self.model.missed.remove(&rank);
                let opens = known.is_none() && self.model.joined.len() == self.ranks as usize;
                self.model.open |= opens;
                self.expect_welcomes(rank, opens, &answer, said)
            }
        }
    }

    /// Checks that the asker learns that the world is forming, or has formed, and the others only the latter.
    fn expect_welcomes(
        &self,
        asker: u32,
        opens: bool,
        answer: &Result<(), RefusalReason>,
        mut said: Said,
    ) -> Checked {
        promise!(answer.is_ok(), "P8: rank {asker} gets {answer:?}");
        let heard = said.entry(asker).or_default();
        promise!(
            matches!(
                heard.first(),
                Some(ToMember::Join(JoinReply::Forming { .. }))
            ),
            "P8: rank {asker} is not answered first of all: {heard:?}"
        );
        heard.remove(0);
        for (rank, nonce) in &self.model.joined {
            let heard = said.remove(rank).unwrap_or_default();
            let expected = opens || (self.model.open && *rank == asker);
            let welcomed = match heard.as_slice() {
                [] => false,
                [ToMember::Join(JoinReply::Welcome(welcome))] => {
                    welcome.nonces.get(*rank as usize) == Some(&nonce_of(*rank, *nonce))
                        && welcome.processes.len() == self.ranks as usize
                }
                _ => return Err(Broken(format!("P8: rank {rank} hears {heard:?}"))),
            };
            promise!(
                welcomed == expected,
                "P8: rank {rank} hears {heard:?} when rank {asker} joins; all have joined: {opens}"
            );
        }
        Ok(())
    }

    fn double(
        &mut self,
        rank: u32,
        nonce: u8,
        before: u8,
        answer: &Result<(), RefusalReason>,
        said: &Said,
    ) -> Checked {
        let cause = self.coordinator.failure();
        let text = cause.as_ref().map(ToString::to_string).unwrap_or_default();
        let both = [pid_of(rank, before), pid_of(rank, nonce)];
        promise!(
            matches!(cause, Some(Error::Rendezvous { .. }))
                && both.iter().all(|pid| text.contains(&pid.to_string())),
            "P8: rank {rank} twice, processes {both:?}, fails the world with {text}"
        );
        promise!(
            is_abort(answer, cause.as_ref()),
            "P8: the second rank {rank} gets {answer:?}"
        );
        self.fails(cause, said)
    }

    /// Checks that all connected ranks learn of a failure that has just happened.
    fn fails(&mut self, cause: Option<Error>, said: &Said) -> Checked {
        let told: Vec<u32> = said.keys().copied().collect();
        let Some(cause) = cause else {
            return Err(Broken("P8: the world should have failed".into()));
        };
        let abort = ToMember::Call(CallReply::Abort {
            channel: ChannelId::WORLD,
            cause: cause.clone(),
        });
        promise!(
            told == self.connected() && said.values().all(|heard| *heard == [abort.clone()]),
            "P8: the world fails with \"{cause}\", and says {said:?}"
        );
        self.model.failure = Some(cause);
        Ok(())
    }

    fn close(&mut self, rank: u32) -> Checked {
        let known = rank > 0 && self.connected().contains(&rank);
        if known && (self.model.settled.contains(&rank) || self.model.failure.is_some()) {
            return self.lose(rank);
        }
        let how = "its connection closed";
        self.coordinator
            .disconnected(Rank::new(rank), how, self.instant());
        let (said, _) = self.take();
        promise!(
            said.is_empty(),
            "P8: rank {rank} may ask again, but {said:?} is said"
        );
        if known {
            let until = self.now + RETRY_TIME;
            self.model.missed.entry(rank).or_insert(until);
        }
        Ok(())
    }

    fn lose(&mut self, rank: u32) -> Checked {
        // Rank 0 is there, even if its loss is reported.
        let known = rank > 0 && self.connected().contains(&rank);
        self.coordinator
            .lost(Rank::new(rank), "its connection closed");
        let (said, _) = self.take();
        self.is_lost(rank, known, &said)
    }

    fn is_lost(&mut self, rank: u32, known: bool, said: &Said) -> Checked {
        if known {
            self.model.gone.insert(rank);
            self.model.missed.remove(&rank);
        }
        if !known || self.model.failure.is_some() {
            promise!(said.is_empty(), "P8: nobody is lost, but {said:?} is said");
            return Ok(());
        }
        let cause = self.coordinator.failure();
        promise!(
            matches!(&cause, Some(Error::PeerFailed { peer, .. }) if peer.rank.get() == rank),
            "P8: the loss of rank {rank} makes the world fail with {cause:?}"
        );
        self.fails(cause, said)
    }

    fn meet_rival(&mut self, rank: u32) -> Checked {
        let known = self.connected().contains(&rank);
        let other = "n9, pid 9".to_owned();
        self.coordinator.on_message(
            Rank::new(rank),
            ToCoordinator::Join(JoinRequest::Rival { other }),
            self.instant(),
        );
        let (said, _) = self.take();
        if known {
            self.model.settled.insert(rank);
        }
        if !known || self.model.open || self.model.failure.is_some() {
            promise!(said.is_empty(), "P8: a rival matters: {said:?}");
            return Ok(());
        }
        let cause = self.coordinator.failure();
        let text = cause.as_ref().map(ToString::to_string).unwrap_or_default();
        promise!(
            text.contains("n9, pid 9"),
            "P8: a rival is not named: {text}"
        );
        self.fails(cause, &said)
    }

    fn wait(&mut self, seconds: u8) -> Checked {
        self.now += Duration::from_secs(seconds.into());
        self.coordinator.tick(self.instant());
        let (said, _) = self.take();
        let missed = self.model.missed.iter();
        let away = missed.filter(|(_, until)| **until <= self.now);
        let mut away: VecDeque<u32> = away.map(|(rank, _)| *rank).collect();
        if let Some(first) = away.pop_front() {
            self.is_lost(first, true, &said)?;
            for rank in away {
                self.is_lost(rank, true, &Said::new())?;
            }
            return Ok(());
        }
        let late = self.now >= setting(self.world_size).join_timeout;
        if self.model.open || self.model.failure.is_some() || !late {
            promise!(said.is_empty(), "P8: time passes, and {said:?} is said");
            return Ok(());
        }
        let cause = self.coordinator.failure();
        let absent: Vec<u32> = (0..self.ranks)
            .filter(|rank| !self.model.joined.contains_key(rank))
            .collect();
        let Some(Error::Timeout { missing, .. }) = &cause else {
            return Err(Broken(format!("P8: the deadline ends with {cause:?}")));
        };
        let named: Vec<u32> = missing.iter().map(|missing| missing.rank.get()).collect();
        promise!(
            named == absent,
            "P8: {named:?} are named, absent are {absent:?}"
        );
        self.fails(cause, &said)
    }

    /// Checks that a world that is open and has not failed works, whichever other processes have asked.
    pub(crate) fn go_on(&mut self) -> Checked {
        if !self.model.open || self.model.failure.is_some() {
            return Ok(());
        }
        let step = Step::verdict(ChannelId::WORLD, Epoch::FIRST);
        for rank in self.world_size.ranks() {
            let contribution = ToCoordinator::Call(CallRequest::Contribute {
                step,
                call: Call::new(Operation::Barrier, Site::default()),
                contribution: Contribution::default(),
            });
            self.coordinator
                .on_message(rank, contribution, self.instant());
        }
        let (said, _) = self.take();
        let released = said.values().all(
            |heard| matches!(heard.as_slice(), [ToMember::Call(CallReply::Release { step: of, .. })] if *of == step),
        );
        promise!(
            released && said.len() == self.ranks as usize,
            "P8: the world does not go on: {said:?}"
        );
        Ok(())
    }
}

/// Returns true if the answer is a refusal with this cause, or with any.
fn is_abort(answer: &Result<(), RefusalReason>, expected: Option<&Error>) -> bool {
    matches!(answer, Err(RefusalReason::Failed(cause))
        if expected.is_none_or(|expected| expected == cause))
}
