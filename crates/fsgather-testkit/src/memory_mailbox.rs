//! Messages without files: [`MemoryMailbox`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use fsgather_core::{
    Beat, Error, InboundMessage, Mailbox, MailboxFactory, ProcessId, Rank, Retirement,
    StorageCause, WorldSize, lock,
};
use uuid::Uuid;

/// ENOSPC: the store treats it as temporary.
const NO_SPACE: i32 = 28;

/// ENOENT.
const NOT_THERE: i32 = 2;

/// A touch of a directory within this time after a change is not noticed.
const TICK: Duration = Duration::from_millis(4);

/// The shortest and the longest interval at which boxes look for messages.
const PACE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// A mailbox in memory, for ranks that are threads of one process.
///
/// It keeps the promises of [`Mailbox`] and, with a seed, no more than those: messages become visible late, and to each reader in another
/// order; one in six stays invisible to a reader until its writer tends it; a listing misses messages that an earlier one has shown, which
/// are then returned twice; one `send` in ten fails, half of them although the message was written.
#[derive(Debug, Default)]
pub struct MemoryMailbox {
    seed: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    places: Vec<Place>,
    boxes: u64,
    /// Processes that have been killed.
    dead: Vec<ProcessId>,
    /// Processes that see no message for now.
    blind: Vec<ProcessId>,
    /// Processes that cannot send: each with the error number and the number of failures.
    mute: Vec<(ProcessId, i32, u32)>,
}

/// The place for the messages of one world.
#[derive(Debug, Default)]
struct Place {
    /// Messages in the order in which they were sent; no number is used twice.
    messages: BTreeMap<u64, Message>,
    left: u64,
    /// The last sign of each box.
    signs: BTreeMap<u64, Sign>,
    is_gone: bool,
}

#[derive(Debug)]
struct Message {
    by: u64,
    host: u64,
    is_for_rank_0: bool,
    to: Option<Rank>,
    letter: InboundMessage,
    at: Instant,
    is_tended: bool,
}

#[derive(Debug)]
struct Sign {
    host: u64,
    at: Instant,
    beat: Beat,
}

impl MemoryMailbox {
    /// A mailbox in which every message is visible at once.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A mailbox with all faults that boxes may have, drawn from a seed.
    #[must_use]
    pub fn with_faults(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            seed: Some(seed),
            state: Mutex::default(),
        })
    }

    /// The factory of one process.
    #[must_use]
    pub fn factory(self: &Arc<Self>, process: &ProcessId) -> Arc<dyn MailboxFactory> {
        Arc::new(MemoryMailboxFactory {
            post: Arc::clone(self),
            process: process.clone(),
        })
    }

    /// Kills a process: from now on its calls do nothing and never return.
    pub fn kill(&self, process: &ProcessId) {
        self.lock().dead.push(process.clone());
    }

    /// Returns true if a process was not killed.
    pub fn is_running(&self, process: &ProcessId) -> bool {
        !self.lock().dead.contains(process)
    }

    /// Hides all messages from a process, or shows them again.
    pub fn set_blind(&self, process: &ProcessId, is_blind: bool) {
        let mut state = self.lock();
        state.blind.retain(|other| other != process);
        if is_blind {
            state.blind.push(process.clone());
        }
    }

    /// Makes the next sends of a process fail.
    pub fn refuse_sends(&self, process: &ProcessId, os_code: i32, times: u32) {
        self.lock().mute.push((process.clone(), os_code, times));
    }

    /// Number of messages in all places that still exist.
    pub fn held(&self) -> usize {
        let state = self.lock();
        let places = state.places.iter().filter(|place| !place.is_gone);
        places.map(|place| place.messages.len()).sum()
    }

    /// Number of places that still exist.
    pub fn places(&self) -> usize {
        let state = self.lock();
        state.places.iter().filter(|place| !place.is_gone).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A number that depends on the seed and on `parts`; `None` without faults.
    fn draw(&self, parts: &[u64]) -> Option<u64> {
        let mix = |before: u64, part: &u64| {
            // One step of splitmix64.
            let mut mixed = (before ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        Some(parts.iter().fold(self.seed?, mix))
    }

    fn is_one_in(&self, count: u64, parts: &[u64]) -> bool {
        self.draw(parts).is_some_and(|drawn| drawn % count == 0)
    }

    /// The delay after which a reader sees something: often none, now and then a very long one.
    fn delay(&self, parts: &[u64]) -> Duration {
        let Some(drawn) = self.draw(parts) else {
            return Duration::ZERO;
        };
        Duration::from_micros(match drawn % 16 {
            0 => 40_000,
            1..8 => (drawn >> 8) % 8_000,
            _ => 0,
        })
    }

    fn is_visible(&self, number: u64, message: &Message, reader: u64, now: Instant) -> bool {
        let is_stuck = !message.is_tended && self.is_one_in(6, &[1, number, reader]);
        !is_stuck && now >= message.at + self.delay(&[2, number, reader])
    }

    fn make_box(
        self: &Arc<Self>,
        process: &ProcessId,
        place: usize,
        role: Option<(Rank, u64)>,
    ) -> Arc<dyn Mailbox> {
        let mut state = self.lock();
        state.boxes += 1;
        Arc::new(MemoryBox {
            post: Arc::clone(self),
            process: process.clone(),
            place,
            role,
            key: state.boxes,
            own: Mutex::default(),
        })
    }
}

#[derive(Debug)]
struct MemoryMailboxFactory {
    post: Arc<MemoryMailbox>,
    process: ProcessId,
}

impl MailboxFactory for MemoryMailboxFactory {
    fn open(&self, _: Uuid, _: WorldSize) -> Result<(Vec<u8>, Arc<dyn Mailbox>), Error> {
        let place = {
            let places = &mut self.post.lock().places;
            places.push(Place::default());
            places.len() - 1
        };
        let its = self.post.make_box(&self.process, place, None);
        Ok((place.to_le_bytes().to_vec(), its))
    }

    fn enter(
        &self,
        facts: &[u8],
        rank: Rank,
        sender: u64,
    ) -> Result<Option<Arc<dyn Mailbox>>, Error> {
        let place = facts.try_into().map(usize::from_le_bytes).unwrap();
        let is_there = {
            let state = self.post.lock();
            state.places.get(place).is_some_and(|place| !place.is_gone)
        };
        let role = Some((rank, sender));
        Ok(is_there.then(|| self.post.make_box(&self.process, place, role)))
    }
}

/// One process's access to a place.
#[derive(Debug)]
struct MemoryBox {
    post: Arc<MemoryMailbox>,
    process: ProcessId,
    place: usize,
    /// Rank and sender; none on rank 0.
    role: Option<(Rank, u64)>,
    key: u64,
    own: Mutex<Own>,
}

#[derive(Debug, Default)]
struct Own {
    looks: u64,
    sends: u64,
    beats: u64,
    /// The messages of the last listing.
    read: BTreeSet<u64>,
    /// Hosts that are known to write.
    hosts: BTreeSet<u64>,
}

impl MemoryBox {
    fn own(&self) -> MutexGuard<'_, Own> {
        lock(&self.own)
    }

    /// Locks all places, for processes that were not killed.
    fn enter(&self) -> MutexGuard<'_, State> {
        let state = self.post.lock();
        if !state.dead.contains(&self.process) {
            return state;
        }
        drop(state);
        loop {
            thread::park();
        }
    }

    fn failed<T>(operation: &str, os_code: i32, message: &str) -> Result<T, Error> {
        let cause = StorageCause {
            os_code: Some(os_code),
            message: message.into(),
        };
        Err(Error::storage(operation, "memory", cause))
    }

    fn leave(&self, place: &mut Place, number: u64, to: Option<Rank>, body: &[u8]) {
        let (from, sender) = self.role.unwrap_or((Rank::ZERO, 0));
        place.left += 1;
        let message = Message {
            by: self.key,
            host: self.process.host_label(),
            is_for_rank_0: self.role.is_some(),
            to,
            letter: InboundMessage {
                from,
                sender,
                number,
                body: Some(body.to_vec()),
            },
            at: Instant::now(),
            is_tended: false,
        };
        place.messages.insert(place.left, message);
    }

    fn take_back(&self, place: &mut Place, is_needed: impl Fn(&InboundMessage) -> bool) {
        place
            .messages
            .retain(|_, message| message.by != self.key || is_needed(&message.letter));
    }

    fn touch(&self, place: &mut Place, now: Instant) {
        for message in place.messages.values_mut() {
            message.is_tended |= message.by == self.key && now >= message.at + TICK;
        }
    }
}

impl Mailbox for MemoryBox {
    fn send(&self, number: u64, to: Option<Rank>, body: &[u8]) -> Result<(), Error> {
        let sends = {
            let mut own = self.own();
            own.sends += 1;
            own.sends
        };
        let mut state = self.enter();
        let refusal = state
            .mute
            .iter_mut()
            .find(|(process, _, times)| *process == self.process && *times > 0);
        if let Some((_, os_code, times)) = refusal {
            *times -= 1;
            return Self::failed("write", *os_code, "a test wants it so");
        }
        let place = &mut state.places[self.place];
        if place.is_gone {
            return Self::failed("write", NOT_THERE, "it is gone");
        }
        let drawn = [3, self.key, sends];
        if !self.post.is_one_in(20, &drawn) {
            self.leave(place, number, to, body);
        }
        if self.post.is_one_in(10, &drawn) {
            return Self::failed("write", NO_SPACE, "no space, for now");
        }
        Ok(())
    }

    fn receive(&self, newcomers: bool) -> Result<Vec<InboundMessage>, Error> {
        let mut own = self.own();
        own.looks += 1;
        let state = self.enter();
        if state.blind.contains(&self.process) {
            return Ok(Vec::new());
        }
        let place = &state.places[self.place];
        if place.is_gone {
            return Self::failed("read messages in", NOT_THERE, "it is gone");
        }
        let now = Instant::now();
        let mut found = Vec::new();
        let mut shown = BTreeSet::new();
        for (number, message) in &place.messages {
            if newcomers {
                own.hosts.insert(message.host);
            }
            let is_missed = self.post.is_one_in(12, &[4, *number, self.key, own.looks]);
            if message.is_for_rank_0 != self.role.is_none()
                || (message.is_for_rank_0 && !own.hosts.contains(&message.host))
                || is_missed
                || !self.post.is_visible(*number, message, self.key, now)
            {
                continue;
            }
            shown.insert(*number);
            if own.read.contains(number) {
                continue;
            }
            let mut letter = message.letter.clone();
            let own_rank = self.role.map(|(rank, _)| rank);
            if message.to.is_some() && message.to != own_rank {
                letter.body = None;
            }
            found.push((self.post.draw(&[5, *number, self.key]), letter));
        }
        own.read = shown;
        found.sort_by_key(|(order, _)| *order);
        Ok(found.into_iter().map(|(_, letter)| letter).collect())
    }

    fn tend(&self) {
        let mut state = self.enter();
        self.touch(&mut state.places[self.place], Instant::now());
    }

    fn discard(&self, up_to: u64, keep: &[u64]) {
        let mut state = self.enter();
        let is_needed =
            |letter: &InboundMessage| letter.number > up_to || keep.contains(&letter.number);
        self.take_back(&mut state.places[self.place], is_needed);
    }

    fn beat(&self, body: &[u8]) -> Result<(), Error> {
        let number = {
            let mut own = self.own();
            own.beats += 1;
            own.beats
        };
        let sign = Sign {
            host: self.process.host_label(),
            at: Instant::now(),
            beat: Beat {
                from: self.role.map_or(Rank::ZERO, |(rank, _)| rank),
                number,
                body: body.to_vec(),
            },
        };
        let mut state = self.enter();
        state.places[self.place].signs.insert(self.key, sign);
        Ok(())
    }

    fn beats(&self, host: u64) -> Result<Vec<Beat>, Error> {
        let now = Instant::now();
        let state = self.enter();
        let signs = state.places[self.place].signs.iter();
        let seen = signs.filter(|(by, sign)| {
            let delay = self.post.delay(&[6, **by, sign.beat.number, self.key]);
            sign.host == host && now >= sign.at + delay
        });
        Ok(seen.map(|(_, sign)| sign.beat.clone()).collect())
    }

    fn retire(&self, how: Retirement) {
        let mut state = self.enter();
        let place = &mut state.places[self.place];
        match how {
            Retirement::Over if self.role.is_none() => place.is_gone = true,
            // A rank that leaves in good order stays until its last message is visible.
            Retirement::Over => self.touch(place, Instant::now() + TICK),
            Retirement::InUse => {}
            Retirement::Deserted | Retirement::Withdrawn => {
                self.take_back(place, |_| false);
                let mut left = place.messages.values();
                place.is_gone |=
                    how == Retirement::Deserted && !left.any(|left| left.is_for_rank_0);
            }
        }
    }

    fn pace(&self) -> (Duration, Duration) {
        PACE
    }

    fn place(&self) -> String {
        "memory".into()
    }
}
