//! Numbers letters and bulletins, and remembers which have been read: [`MemberEndpoint`], [`CoordinatorEndpoint`]. Pure.
//!
//! All messages of a member are in its letters, in order; all messages of rank 0 are in the bulletins, in order, each part
//! addressed to ranks or, as long as a process is not admitted, to that process. Both sides mention how far they have read,
//! so that the other side can remove files that are not needed any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fsgather_core::{InboundMessage, Rank, read_message};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::reorder_buffer::ReorderBuffer;
use crate::{
    message::{CallRequest, EndRequest, GroupRequest, JoinReply, ToCoordinator, ToMember},
    wire::VERSION,
};

/// Messages are joined into one file up to this size, in bytes.
const JOIN_UP_TO: usize = 1 << 20;

/// A message for one rank that is larger than this gets a file of its own, which the others need not
/// read.
const WORTH_A_FILE: usize = 4 << 10;

/// Maximum number of bulletins that are kept as answers to processes that are not members.
const ANSWERS: usize = 16;

/// Number of messages read from the other side after which that is mentioned without waiting for something to send.
const MENTION_AFTER: u64 = 32;

/// Contents of one file of a member.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LetterBody {
    /// The process that has written it.
    pub(super) nonce: u128,
    /// The last bulletin that it has read.
    seen: u64,
    pub(super) messages: Vec<ToCoordinator>,
}

/// The receiver of a part of a bulletin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum To {
    /// Members.
    Ranks(Vec<Rank>),
    /// A process that has asked to be a member.
    Process(u128),
}

/// A message in a bulletin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum BulletinItem {
    /// The process is the rank that it asked to be: messages to that rank are for it from here on.
    Admitted,
    /// From the coordinator.
    Message(ToMember),
}

/// Contents of one file of rank 0.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct BulletinBody {
    /// Number of the last letter read, for each process with letters read since the last bulletin.
    seen: Vec<(u128, u64)>,
    items: Vec<(To, BulletinItem)>,
}

/// A file that is ready to be left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutgoingFile {
    pub(super) number: u64,
    pub(super) to: Option<Rank>,
    pub(super) body: Vec<u8>,
}

/// The name of a process in the names of files.
pub(super) fn sender_of(nonce: u128) -> u64 {
    // The nonce is random; half of it is as good a name.
    u64::try_from(nonce >> 64).unwrap_or_default()
}

fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    // Encoding plain data into a growing vector cannot fail.
    postcard::to_extend(body, VERSION.to_le_bytes().to_vec()).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (version, rest) = bytes.split_first_chunk::<2>()?;
    (u16::from_le_bytes(*version) == VERSION).then(|| read_message(rest).ok())?
}

/// Reads any bytes as each of the bodies, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(super) fn try_reading(bytes: &[u8]) {
    if let Some(letter) = decode::<LetterBody>(bytes) {
        assert_eq!(decode(&encode(&letter)), Some(letter));
    }
    let bulletin = decode_bulletin(bytes);
    assert_eq!(decode(&encode(&bulletin)), Some(bulletin));
}

fn decode_bulletin(bytes: &[u8]) -> BulletinBody {
    decode(bytes).unwrap_or_else(|| {
        fsgather_core::warn!("a message of rank 0 cannot be understood; rank 0 probably runs another version of fsgather");
        BulletinBody::default()
    })
}

/// Approximate length of an encoded message.
fn weight_up(message: &ToCoordinator) -> usize {
    match message {
        ToCoordinator::Call(CallRequest::Contribute { contribution, .. }) => {
            contribution.body.len() + 256
        }
        ToCoordinator::Group(GroupRequest::Open { members, .. }) => members.len() * 5 + 256,
        _ => 256,
    }
}

fn weight_down(item: &BulletinItem) -> usize {
    match item {
        BulletinItem::Message(ToMember::Call(reply)) if !reply.bodies().is_empty() => {
            let bodies = reply.bodies().iter();
            bodies.map(|body| body.len() + 8).sum::<usize>() + 64
        }
        BulletinItem::Message(ToMember::Join(JoinReply::Welcome(welcome))) => {
            welcome.processes.len() * 160
        }
        _ => 256,
    }
}

/// A member's side: the letters that it sends, and the bulletins that it reads.
#[derive(Clone, Debug)]
pub(super) struct MemberEndpoint {
    rank: Rank,
    nonce: u128,
    admitted: bool,
    unsent: Vec<ToCoordinator>,
    sent: u64,
    bulletins: ReorderBuffer<Option<Vec<u8>>>,
    /// Bulletins that were read out of their turn, before the admission.
    read_early: BTreeSet<u64>,
    /// Number of the last bulletin that this side has mentioned to rank 0 as read.
    mentioned: u64,
    /// Number of our last letter that rank 0 has read.
    acknowledged: u64,
}

impl MemberEndpoint {
    pub(super) const fn new(rank: Rank, nonce: u128) -> Self {
        Self {
            rank,
            nonce,
            admitted: false,
            unsent: Vec::new(),
            sent: 0,
            bulletins: ReorderBuffer::new(),
            read_early: BTreeSet::new(),
            mentioned: 0,
            acknowledged: 0,
        }
    }

    pub(super) fn send(&mut self, message: ToCoordinator) {
        self.unsent.push(message);
    }

    /// Files to leave now. With `finally`, one that mentions how far this side has read, if that is news.
    pub(super) fn take_outgoing(&mut self, finally: bool) -> Vec<OutgoingFile> {
        let unmentioned = self.bulletins.taken() - self.mentioned;
        if self.unsent.is_empty() && unmentioned < MENTION_AFTER && !(finally && unmentioned > 0) {
            return Vec::new();
        }
        let mut outgoing = Vec::new();
        let mut unsent = std::mem::take(&mut self.unsent).into_iter().peekable();
        loop {
            let mut messages: Vec<ToCoordinator> = unsent.next().into_iter().collect();
            let mut weight: usize = messages.iter().map(weight_up).sum();
            while let Some(next) = unsent.peek()
                && weight + weight_up(next) <= JOIN_UP_TO
            {
                weight += weight_up(next);
                messages.extend(unsent.next());
            }
            self.sent += 1;
            self.mentioned = self.bulletins.taken();
            let body = LetterBody {
                nonce: self.nonce,
                seen: self.mentioned,
                messages,
            };
            outgoing.push(OutgoingFile {
                number: self.sent,
                to: None,
                body: encode(&body),
            });
            if unsent.peek().is_none() {
                return outgoing;
            }
        }
    }

    /// Receives bulletins, and returns their messages for this rank, in order.
    ///
    /// A process that is not admitted looks for parts addressed to it in every bulletin: earlier ones may be gone. From its
    /// admission on it reads each in its turn.
    pub(super) fn receive(&mut self, found: Vec<InboundMessage>) -> Vec<ToMember> {
        let mut received = Vec::new();
        for message in found {
            if self.admitted {
                self.bulletins.offer(message.number, message.body);
                continue;
            }
            if self.read_early.contains(&message.number) {
                continue;
            }
            let bulletin = message.body.as_deref().map(decode_bulletin);
            let is_for_us = |(to, _): &(To, BulletinItem)| *to == To::Process(self.nonce);
            match bulletin {
                Some(bulletin) if bulletin.items.iter().any(is_for_us) => {
                    self.read(bulletin, &mut received);
                    self.read_early.insert(message.number);
                    if self.admitted {
                        self.read_early.clear();
                        self.bulletins.skip_to(message.number);
                    }
                }
                _ => self.bulletins.offer(message.number, message.body),
            }
        }
        while self.admitted
            && let Some(bulletin) = self.bulletins.take()
        {
            // A bulletin for another rank is not read.
            if let Some(bytes) = bulletin {
                self.read(decode_bulletin(&bytes), &mut received);
            }
        }
        received
    }

    fn read(&mut self, bulletin: BulletinBody, received: &mut Vec<ToMember>) {
        let own = bulletin
            .seen
            .iter()
            .filter(|(nonce, _)| *nonce == self.nonce);
        for (_, number) in own {
            self.acknowledged = self.acknowledged.max(*number);
        }
        for (to, item) in bulletin.items {
            let is_for_us = match to {
                To::Process(nonce) => nonce == self.nonce,
                To::Ranks(ranks) => self.admitted && ranks.contains(&self.rank),
            };
            match item {
                _ if !is_for_us => {}
                BulletinItem::Admitted => self.admitted = true,
                BulletinItem::Message(message) => received.push(message),
            }
        }
    }

    /// Number of our last letter that rank 0 has read; all up to it can go.
    pub(super) const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns true if rank 0 has read everything that was sent.
    pub(super) const fn is_answered(&self) -> bool {
        self.acknowledged == self.sent
    }

    /// Returns true if all messages have been handed out for sending.
    pub(super) const fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }
}

/// One process that writes to rank 0.
#[derive(Clone, Debug, Default)]
struct Correspondent {
    /// Known once a letter of it was read.
    nonce: Option<u128>,
    letters: ReorderBuffer<Vec<u8>>,
    /// Number of its last letter that rank 0 has mentioned as read.
    mentioned: u64,
    /// The last bulletin that it has read.
    seen: u64,
    /// True if it has reported that it will not read any more.
    has_left: bool,
}

/// Rank 0's side: the bulletins that it sends, and the letters that it reads.
#[derive(Clone, Debug, Default)]
pub(super) struct CoordinatorEndpoint {
    unsent: Vec<(To, BulletinItem)>,
    sent: u64,
    /// By rank and process; a process may claim a rank that it is not.
    correspondents: BTreeMap<(Rank, u64), Correspondent>,
    /// The latest bulletins that answer processes which are not, or not yet, members.
    answers: VecDeque<u64>,
    /// Processes that were sent another answer than their admission, and have not left since.
    uninformed: BTreeSet<u128>,
}

impl CoordinatorEndpoint {
    pub(super) fn send(&mut self, to: To, item: BulletinItem) {
        if let (To::Process(nonce), BulletinItem::Message(_)) = (&to, &item) {
            self.uninformed.insert(*nonce);
        }
        self.unsent.push((to, item));
    }

    /// Files to leave now.
    pub(super) fn take_outgoing(&mut self) -> Vec<OutgoingFile> {
        let is_pressing = self
            .correspondents
            .values()
            .any(|writer| writer.letters.taken() - writer.mentioned >= MENTION_AFTER);
        if self.unsent.is_empty() && !is_pressing {
            return Vec::new();
        }
        let mut outgoing = Vec::new();
        let mut joined = BulletinBody::default();
        for writer in self.correspondents.values_mut() {
            if let Some(nonce) = writer.nonce
                && writer.mentioned < writer.letters.taken()
            {
                writer.mentioned = writer.letters.taken();
                joined.seen.push((nonce, writer.mentioned));
            }
        }
        let mut weight = 0;
        for (to, item) in std::mem::take(&mut self.unsent) {
            let added = weight_down(&item);
            let only = match &to {
                To::Ranks(ranks) if added > WORTH_A_FILE => match ranks[..] {
                    [rank] => Some(rank),
                    _ => None,
                },
                _ => None,
            };
            if only.is_some() || weight + added > JOIN_UP_TO {
                self.close(&mut joined, &mut outgoing, None);
                weight = 0;
            }
            joined.items.push((to, item));
            weight += added;
            if only.is_some() {
                self.close(&mut joined, &mut outgoing, only);
                weight = 0;
            }
        }
        self.close(&mut joined, &mut outgoing, None);
        outgoing
    }

    fn close(
        &mut self,
        body: &mut BulletinBody,
        outgoing: &mut Vec<OutgoingFile>,
        to: Option<Rank>,
    ) {
        let body = std::mem::take(body);
        if body != BulletinBody::default() {
            self.sent += 1;
            let is_answer = |(to, _): &(To, BulletinItem)| matches!(to, To::Process(_));
            if body.items.iter().any(is_answer) {
                self.answers.push_back(self.sent);
                if self.answers.len() > ANSWERS {
                    self.answers.pop_front();
                }
            }
            outgoing.push(OutgoingFile {
                number: self.sent,
                to,
                body: encode(&body),
            });
        }
    }

    /// Receives letters, and returns their messages, each with the rank and the process that sent it, in order for each process.
    pub(super) fn receive(
        &mut self,
        found: Vec<InboundMessage>,
    ) -> Vec<(Rank, u128, ToCoordinator)> {
        let mut received = Vec::new();
        for message in found {
            let Some(bytes) = message.body else { continue };
            let key = (message.from, message.sender);
            let writer = self.correspondents.entry(key).or_default();
            writer.letters.offer(message.number, bytes);
            while let Some(bytes) = writer.letters.take() {
                let Some(body) = decode::<LetterBody>(&bytes)
                    .filter(|body| sender_of(body.nonce) == message.sender)
                else {
                    fsgather_core::warn!(
                        "a message of rank {} cannot be understood; it probably runs another version of fsgather",
                        message.from
                    );
                    continue;
                };
                writer.seen = writer.seen.max(body.seen);
                let is_leave =
                    |message: &_| matches!(message, ToCoordinator::End(EndRequest::Leave { .. }));
                if body.messages.iter().any(is_leave) {
                    writer.has_left = true;
                    self.uninformed.remove(&body.nonce);
                }
                writer.nonce = Some(body.nonce);
                let messages = body.messages.into_iter();
                received.extend(messages.map(|sent| (message.from, body.nonce, sent)));
            }
        }
        received
    }

    /// The last bulletin that all these processes have read, or will never read; later ones are still
    /// needed.
    pub(super) fn read_by(&self, processes: impl Iterator<Item = (Rank, u128)>) -> u64 {
        processes
            .map(
                |(rank, nonce)| match self.correspondents.get(&(rank, sender_of(nonce))) {
                    Some(writer) if writer.has_left => self.sent,
                    writer => writer.map_or(0, |writer| writer.seen),
                },
            )
            .min()
            .unwrap_or(self.sent)
    }

    /// Bulletins to keep although all members have read them: processes that are not members may still look for their answer.
    pub(super) fn answers(&self) -> Vec<u64> {
        self.answers.iter().copied().collect()
    }

    /// Returns true if every process that was turned away has confirmed it.
    pub(super) fn all_informed(&self) -> bool {
        self.uninformed.is_empty()
    }

    /// The number of the last bulletin.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns true if all messages have been handed out for sending.
    pub(super) const fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "endpoint_properties.rs"]
mod properties;

#[cfg(test)]
#[path = "endpoint_schedules.rs"]
mod schedules;
