//! Every message arrives once and in order, for any sets of files that are seen in any order and any number of times.

use std::collections::BTreeMap;

use fsgather_core::{ChannelId, Epoch};
use fsgather_testkit::pace::cases;
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::message::CallReply;

/// The processes: ranks 1 and 2, and one that also claims to be rank 1 and is turned away.
const PROCESSES: [(u32, u128); 3] = [(1, 1 << 64), (2, 2 << 64), (1, 3 << 64)];

pub(super) const TURNED_AWAY: usize = 2;

/// An event of a test.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A process sends a message.
    Say(usize),
    /// Rank 0 sends a message to these ranks.
    Tell(Vec<Rank>),
    /// Rank 0 answers a process: admits it, or turns it away.
    Answer(usize),
    /// Messages of a process, or of rank 0, are left as files.
    Leave(usize),
    LeaveAtRank0,
    /// A reader, 3 for rank 0, sees some of the files in some order.
    Look(usize, Vec<prop::sample::Index>),
    /// Files that are not needed any more are removed.
    TakeBack,
}

fn step() -> impl Strategy<Value = Step> {
    let ranks = prop_oneof![
        Just(vec![Rank::new(1)]),
        Just(vec![Rank::new(2)]),
        Just(vec![Rank::new(1), Rank::new(2)]),
    ];
    let seen = || vec(any::<prop::sample::Index>(), 0..8);
    prop_oneof![
        3 => (0..3_usize).prop_map(Step::Say),
        3 => ranks.prop_map(Step::Tell),
        1 => (0..3_usize).prop_map(Step::Answer),
        4 => (0..3_usize).prop_map(Step::Leave),
        3 => Just(Step::LeaveAtRank0),
        6 => (0..4_usize, seen()).prop_map(|(reader, seen)| Step::Look(reader, seen)),
        2 => Just(Step::TakeBack),
    ]
}

/// A message with a number that tells it from others.
fn message(number: u64) -> ToMember {
    ToMember::Call(CallReply::KeepWaiting {
        channel: ChannelId::new(number),
    })
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    rank: Rank,
    pub(super) nonce: u128,
    pub(super) member: MemberEndpoint,
    pub(super) files: Vec<InboundMessage>,
    pub(super) is_answered: bool,
    pub(super) said: Vec<ToCoordinator>,
    /// Messages of rank 0 to it.
    pub(super) meant: Vec<ToMember>,
    pub(super) heard: Vec<ToMember>,
}

#[derive(Clone, Debug)]
pub(super) struct Mailing {
    pub(super) processes: Vec<Process>,
    pub(super) root: CoordinatorEndpoint,
    pub(super) files: Vec<(Option<Rank>, InboundMessage)>,
    pub(super) heard: BTreeMap<u128, Vec<ToCoordinator>>,
    pub(super) number: u64,
}

impl Mailing {
    pub(super) fn new() -> Self {
        let process = |(rank, nonce)| Process {
            rank: Rank::new(rank),
            nonce,
            member: MemberEndpoint::new(Rank::new(rank), nonce),
            files: Vec::new(),
            is_answered: false,
            said: Vec::new(),
            meant: Vec::new(),
            heard: Vec::new(),
        };
        Self {
            processes: PROCESSES.map(process).into(),
            root: CoordinatorEndpoint::default(),
            files: Vec::new(),
            heard: BTreeMap::new(),
            number: 0,
        }
    }

    pub(super) fn take(&mut self, step: Step) {
        self.number += 1;
        let number = self.number;
        match step {
            Step::Say(index) => {
                let message = ToCoordinator::Call(CallRequest::Done {
                    channel: ChannelId::WORLD,
                    epoch: Epoch::new(number),
                });
                let process = &mut self.processes[index];
                process.said.push(message.clone());
                process.member.send(message);
            }
            Step::Tell(ranks) => {
                for process in &mut self.processes[..TURNED_AWAY] {
                    if process.is_answered && ranks.contains(&process.rank) {
                        process.meant.push(message(number));
                    }
                }
                let message = BulletinItem::Message(message(number));
                self.root.send(To::Ranks(ranks), message);
            }
            Step::Answer(index) => self.answer(index),
            Step::Leave(index) => self.leave(index),
            Step::LeaveAtRank0 => self.leave_at_rank_0(),
            Step::Look(3, seen) => {
                let files = self.processes.iter().flat_map(|process| &process.files);
                let files: Vec<InboundMessage> = files.cloned().collect();
                self.look_at_rank_0(pick(&files, &seen));
            }
            Step::Look(index, seen) => {
                let files = self.as_seen_by(index);
                self.look(index, pick(&files, &seen));
            }
            Step::TakeBack => self.take_back(),
        }
    }

    fn answer(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if std::mem::replace(&mut process.is_answered, true) {
            return;
        }
        let answer = if index == TURNED_AWAY {
            process.meant.push(message(self.number));
            BulletinItem::Message(message(self.number))
        } else {
            BulletinItem::Admitted
        };
        self.root.send(To::Process(process.nonce), answer);
    }

    pub(super) fn leave(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let outgoing = process.member.take_outgoing(false).into_iter();
        process
            .files
            .extend(outgoing.map(|outgoing| InboundMessage {
                from: process.rank,
                sender: sender_of(process.nonce),
                number: outgoing.number,
                body: Some(outgoing.body),
            }));
    }

    pub(super) fn leave_at_rank_0(&mut self) {
        let outgoing = self.root.take_outgoing().into_iter();
        self.files.extend(outgoing.map(|outgoing| {
            let letter = InboundMessage {
                from: Rank::ZERO,
                sender: 0,
                number: outgoing.number,
                body: Some(outgoing.body),
            };
            (outgoing.to, letter)
        }));
    }

    pub(super) fn as_seen_by(&self, index: usize) -> Vec<InboundMessage> {
        let rank = self.processes[index].rank;
        let files = self.files.iter();
        files
            .map(|(to, letter)| InboundMessage {
                body: letter
                    .body
                    .clone()
                    .filter(|_| to.is_none_or(|to| to == rank)),
                ..letter.clone()
            })
            .collect()
    }

    pub(super) fn look(&mut self, index: usize, found: Vec<InboundMessage>) {
        let process = &mut self.processes[index];
        process.heard.extend(process.member.receive(found));
    }

    pub(super) fn look_at_rank_0(&mut self, found: Vec<InboundMessage>) {
        for (_, nonce, message) in self.root.receive(found) {
            self.heard.entry(nonce).or_default().push(message);
        }
    }

    pub(super) fn take_back(&mut self) {
        for process in &mut self.processes {
            let up_to = process.member.acknowledged();
            process.files.retain(|letter| letter.number > up_to);
        }
        let members = &self.processes[..TURNED_AWAY];
        if members.iter().all(|process| process.is_answered) {
            let readers = members.iter().map(|process| (process.rank, process.nonce));
            let up_to = self.root.read_by(readers);
            let keep = self.root.answers();
            self.files
                .retain(|(_, letter)| letter.number > up_to || keep.contains(&letter.number));
        }
    }

    /// All processes send the rest, and all files are seen.
    pub(super) fn finish(&mut self) {
        for index in 0..self.processes.len() {
            self.answer(index);
            self.leave(index);
        }
        self.leave_at_rank_0();
        for index in 0..self.processes.len() {
            self.look(index, self.as_seen_by(index));
        }
        let files = self.processes.iter().flat_map(|process| &process.files);
        self.look_at_rank_0(files.cloned().collect());
    }
}

fn pick(files: &[InboundMessage], seen: &[prop::sample::Index]) -> Vec<InboundMessage> {
    let seen = seen.iter().filter(|_| !files.is_empty());
    seen.map(|index| index.get(files).clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64, 512)))]

    #[test]
    fn every_message_is_heard_once_and_in_order(steps in vec(step(), 0..150)) {
        let mut mailing = Mailing::new();
        for step in steps {
            mailing.take(step);
        }
        mailing.finish();
        for process in &mailing.processes {
            prop_assert_eq!(&process.heard, &process.meant);
            let heard = mailing.heard.remove(&process.nonce).unwrap_or_default();
            prop_assert_eq!(&heard, &process.said);
        }
    }

    #[test]
    fn a_sequence_gives_each_item_once_in_order(
        offers in vec(1..40_u64, 0..200),
        skip_to in 0..40_u64,
        skip_at in 0..200_usize,
    ) {
        let mut sequence = ReorderBuffer::new();
        let mut taken = Vec::new();
        for (index, number) in offers.into_iter().chain(1..40).enumerate() {
            if index == skip_at {
                sequence.skip_to(skip_to);
            }
            sequence.offer(number, number);
            let before = sequence.taken();
            taken.extend(std::iter::from_fn(|| sequence.take()));
            prop_assert!(sequence.taken() >= before);
        }
        prop_assert!(taken.is_sorted_by(|one, next| one < next), "{taken:?}");
        prop_assert_eq!(sequence.taken(), 39);
        let skipped: Vec<u64> = (1..40).filter(|number| !taken.contains(number)).collect();
        prop_assert!(skipped.iter().all(|number| *number <= skip_to), "{skipped:?}");
    }
}
