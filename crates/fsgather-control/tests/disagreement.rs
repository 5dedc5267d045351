//! Ranks in different calls are asked what they were called from before all get the error, on the bare machines.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

mod machines;

use std::time::{Duration, Instant};

use fsgather_control::{
    coordinator::{Action, Coordinator},
    member::{Member, MemberAction},
    message::{Probe, ToMember},
};
use fsgather_core::{
    Call, ChannelId, Contribution, Error, Operation, Rank, Round, Site, StackFrame, ThreadState,
    Whereabouts,
};

struct Room {
    now: Instant,
    coordinator: Coordinator,
    members: Vec<Member>,
    /// Ranks that report what they were called from.
    telling: Vec<usize>,
    /// Ranks among them that have other threads in calls as well.
    threaded: Vec<usize>,
    /// Ranks that have not reported it, and the number of the question.
    owing: Vec<(usize, u64)>,
}

impl Room {
    fn new(telling: &[usize]) -> Self {
        let now = Instant::now();
        let (coordinator, members) = machines::formed(3, Duration::from_secs(60), now);
        Self {
            now,
            coordinator,
            members,
            telling: telling.to_vec(),
            threaded: Vec::new(),
            owing: Vec::new(),
        }
    }

    /// Lets a rank report what it was called from, later than others.
    fn answer(&mut self, rank: usize) {
        let owes = |(which, _): &(usize, u64)| *which == rank;
        let place = self.owing.iter().position(owes).unwrap();
        let (_, number) = self.owing.remove(place);
        self.say(rank, number);
        self.pump();
    }

    fn say(&mut self, rank: usize, number: u64) {
        let who = Rank::new(u32::try_from(rank).unwrap());
        let mut its = called_from(rank);
        its.is_only_caller = !self.threaded.contains(&rank);
        self.members[rank].seen(number, who, Some(its));
    }

    fn call(&mut self, rank: usize, operation: Operation, site: &str) {
        self.make(rank, Call::new(operation, Site::named(site)));
    }

    fn make(&mut self, rank: usize, call: Call) {
        let member = &mut self.members[rank];
        let ticket = member.begin(ChannelId::WORLD, call).unwrap();
        let part = Contribution::inline(bytes::Bytes::new());
        member
            .contribute(&ticket, Round::VERDICT, part, self.now)
            .unwrap();
        self.pump();
    }

    fn pump(&mut self) {
        loop {
            let mut is_idle = true;
            for rank in 0..self.members.len() {
                for action in self.members[rank].take_actions() {
                    is_idle = false;
                    match action {
                        MemberAction::Send(message) => {
                            let from = Rank::new(u32::try_from(rank).unwrap());
                            self.coordinator.on_message(from, message, self.now);
                        }
                        MemberAction::Look { number, .. } if self.telling.contains(&rank) => {
                            self.say(rank, number);
                        }
                        MemberAction::Look { number, .. } => self.owing.push((rank, number)),
                        _ => {}
                    }
                }
            }
            for action in self.coordinator.take_actions() {
                is_idle = false;
                if let Action::Send { to, message } = action {
                    let is_asking = matches!(message, ToMember::Probe(Probe::Look { .. }));
                    assert!(!is_asking || to.len() <= 2, "rank 2 has made no call");
                    for rank in to {
                        self.members[rank.index()].on_message(message.clone(), self.now);
                    }
                }
            }
            if is_idle {
                return;
            }
        }
    }

    /// Lets the time pass after which ranks that are in no call are not expected any more.
    fn pass_grace(&mut self) {
        self.now = self.coordinator.next_tick().unwrap();
        self.coordinator.tick(self.now);
        self.pump();
    }

    fn failure(&self, rank: usize) -> Option<&Error> {
        self.members[rank].failure(ChannelId::WORLD)
    }
}

fn called_from(rank: usize) -> Whereabouts {
    let frame = StackFrame {
        file: "job.py".into(),
        line: Some(10 + u32::try_from(rank).unwrap()),
        function: format!("branch_{rank}"),
        is_own: true,
    };
    Whereabouts::own(vec![frame], Some(ThreadState::Running))
}

#[test]
fn all_are_told_what_ranks_in_different_calls_were_called_from() {
    let mut room = Room::new(&[0, 1]);
    room.call(0, Operation::Barrier, "job.py:10");
    room.call(1, Operation::AllGather, "job.py:11");
    assert_eq!(room.failure(2), None, "rank 2 may be on its way");
    room.pass_grace();
    let text = room.failure(2).unwrap().to_string();
    let told = "\n  rank 0: barrier, from job.py:10 in branch_0\n  rank 1: all_gather, from job.py:11 in branch_1\n  rank 2: in no call yet";
    assert!(text.ends_with(told), "{text}");
    assert!((0..2).all(|rank| room.failure(rank) == room.failure(2)));
}

#[test]
fn a_rank_with_several_calling_threads_names_no_caller() {
    let mut room = Room::new(&[0, 1]);
    room.threaded.push(0);
    room.call(0, Operation::Barrier, "job.py:10");
    room.call(1, Operation::AllGather, "job.py:11");
    room.pass_grace();
    let text = room.failure(2).unwrap().to_string();
    let (_, told) = text.split_once('\n').unwrap();
    assert!(
        told.starts_with(
            "  rank 0: barrier at job.py:10\n  rank 1: all_gather, from job.py:11 in branch_1\n"
        ),
        "{told}"
    );
}

#[test]
fn a_silent_rank_is_awaited_shortly_before_any_decision() {
    let mut room = Room::new(&[1]);
    room.call(0, Operation::Barrier, "job.py:10");
    room.call(1, Operation::AllGather, "job.py:11");
    assert!(room.coordinator.is_about_to_fail() && !room.coordinator.all_told());
    room.call(2, Operation::Barrier, "job.py:12");
    assert_eq!(room.failure(2), None);
    let due = room.coordinator.next_tick().unwrap();
    assert!(due <= room.now + machines::LEAD, "nobody looks in time");
    room.now = due;
    room.coordinator.tick(due);
    room.pump();
    let text = room.failure(2).unwrap().to_string();
    assert!(
        text.ends_with(
            "\n  rank 1: all_gather, from job.py:11 in branch_1\n  rank 2: barrier at job.py:12"
        ),
        "{text}"
    );
    assert!(room.coordinator.all_told());
}

/// Both ranks in different calls have still to report what they were called from.
fn asked() -> Room {
    let mut room = Room::new(&[]);
    room.call(0, Operation::Barrier, "job.py:10");
    room.call(1, Operation::AllGather, "job.py:11");
    room
}

#[test]
fn events_while_ranks_are_asked_replace_no_error_or_answer() {
    type Event = fn(&mut Room);
    let events: [(&str, Event); 3] = [
        ("lost", |room| {
            room.coordinator.lost(Rank::new(2), "its process has ended");
        }),
        ("left", |room| room.members[2].leave(None)),
        ("failed", |room| {
            let cause = Error::config("no such file");
            room.members[2].leave(Some(cause));
        }),
    ];
    for (what, event) in events {
        let mut room = asked();
        event(&mut room);
        room.pump();
        assert_eq!(room.failure(1), None, "{what}");
        room.answer(1);
        assert_eq!(room.failure(1), None, "{what}");
        room.answer(0);
        let text = room.failure(1).unwrap().to_string();
        let told = "\n  rank 0: barrier, from job.py:10 in branch_0\n  rank 1: all_gather, from job.py:11 in branch_1";
        assert!(text.ends_with(told), "{what}: {text}");
    }
}

#[test]
fn who_is_gone_is_not_waited_for() {
    let mut room = asked();
    room.answer(0);
    room.coordinator.lost(Rank::new(1), "its process has ended");
    room.pump();
    let text = room.failure(2).unwrap().to_string();
    assert!(matches!(room.failure(2), Some(Error::Desync { .. })));
    assert!(
        text.contains("\n  rank 0: barrier, from job.py:10 in branch_0\n"),
        "{text}"
    );
}

#[test]
fn a_world_that_rank_0_gives_up_is_told_before() {
    let mut room = asked();
    room.coordinator.abandon();
    room.pump();
    let error = room.failure(2).unwrap();
    assert!(matches!(error, Error::Desync { .. }), "{error}");
}

#[test]
fn each_rank_is_in_one_line_with_its_call() {
    let mut room = Room::new(&[]);
    for (rank, root) in [(0, 0), (1, 1), (2, 0)] {
        let gather = Call::new(Operation::Gather, Site::named("dd.py:5"));
        room.make(rank, gather.with_root(Rank::new(root)));
    }
    room.pass_grace();
    let text = room.failure(2).unwrap().to_string();
    let told = "\n  ranks 0 2: gather to rank 0 at dd.py:5\n  rank 1: gather to rank 1 at dd.py:5";
    assert!(text.ends_with(told), "{text}");
}

#[test]
fn departure_names_the_awaited_call_and_its_ranks() {
    let mut room = Room::new(&[]);
    room.members[1].leave(None);
    room.pump();
    room.call(0, Operation::Barrier, "job.py:10");
    let text = room.failure(2).unwrap().to_string();
    let expected = "had already left before barrier #1 at job.py:10, in which rank 0 is";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn departure_during_a_call_names_all_ranks_in_it() {
    let mut room = Room::new(&[]);
    room.call(0, Operation::Barrier, "job.py:10");
    room.call(2, Operation::Barrier, "job.py:10");
    room.members[1].leave(None);
    room.pump();
    let text = room.failure(2).unwrap().to_string();
    assert!(text.contains(", in which ranks 0 2 are"), "{text}");
}
