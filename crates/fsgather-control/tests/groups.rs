//! Groups on the bare machines: impossible ones, leftovers, and progress.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

mod machines;

use std::time::{Duration, Instant};

use fsgather_control::{
    coordinator::{Action, Coordinator},
    member::{Member, MemberAction},
    message::{CallReply, CallRequest, EndRequest, GroupRequest, ToCoordinator, ToMember},
};
use fsgather_core::{
    Activity, Call, ChannelId, Contribution, Epoch, Error, Leaves, Operation, Phase, Rank, Round,
    Site, Step, Ticket,
};
use fsgather_testkit::pace::cases;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// One coordinator and its members, with nothing between them.
struct Room {
    now: Instant,
    coordinator: Coordinator,
    members: Vec<Member>,
    /// Messages to members since this was last emptied.
    told: Vec<(Rank, ToMember)>,
    reclaimed: Vec<(ChannelId, Epoch, Rank)>,
}

fn rank(index: usize) -> Rank {
    Rank::new(u32::try_from(index).unwrap())
}

impl Room {
    fn new(ranks: u32) -> Self {
        let now = Instant::now();
        let (coordinator, members) = machines::formed(ranks, TIME_LIMIT, now);
        Self {
            now,
            coordinator,
            members,
            told: Vec::new(),
            reclaimed: Vec::new(),
        }
    }

    /// Moves messages until no machine has any more.
    fn pump(&mut self) {
        loop {
            let mut quiet = true;
            for (index, member) in self.members.iter_mut().enumerate() {
                for action in member.take_actions() {
                    quiet = false;
                    match action {
                        MemberAction::Send(message) => {
                            self.coordinator.on_message(rank(index), message, self.now);
                        }
                        MemberAction::Reclaim { channel, epoch } => {
                            self.reclaimed.push((channel, epoch, rank(index)));
                        }
                        MemberAction::Warn(_)
                        | MemberAction::Note(_)
                        | MemberAction::Look { .. } => {}
                    }
                }
            }
            for action in self.coordinator.take_actions() {
                quiet = false;
                if let Action::Send { to, message } = action {
                    for to in to {
                        self.members[to.index()].on_message(message.clone(), self.now);
                        self.told.push((to, message.clone()));
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn says(&mut self, from: u32, message: ToCoordinator) {
        self.coordinator
            .on_message(Rank::new(from), message, self.now);
        self.pump();
    }

    fn opens(&mut self, from: u32, channel: ChannelId, members: &[u32]) {
        let members = members.iter().copied().map(Rank::new).collect();
        self.says(
            from,
            ToCoordinator::Group(GroupRequest::Open { channel, members }),
        );
    }

    fn open(&mut self, member: u32, channel: ChannelId, members: &[u32]) {
        let members = members.iter().copied().map(Rank::new).collect();
        let opened = self.members[member as usize].open(channel, members, self.now);
        opened.unwrap();
        self.pump();
    }

    fn call(&mut self, member: u32, channel: ChannelId, leaves: Leaves) -> Ticket {
        let call = Call::new(Operation::AllGather, Site::named("here"));
        let now = self.now;
        let member = &mut self.members[member as usize];
        let ticket = member.begin(channel, call).unwrap();
        let part = Contribution {
            leaves,
            ..Contribution::default()
        };
        member
            .contribute(&ticket, Round::VERDICT, part, now)
            .unwrap();
        self.pump();
        ticket
    }

    /// The ranks that were sent a failure of this channel, and its text.
    fn aborts(&mut self, of: ChannelId) -> Vec<(u32, String)> {
        let told = std::mem::take(&mut self.told).into_iter();
        told.filter_map(|(to, message)| match message {
            ToMember::Call(CallReply::Abort { channel, cause }) if channel == of => {
                Some((to.get(), cause.to_string()))
            }
            _ => None,
        })
        .collect()
    }

    /// Length of the debug text of all machines, as a measure of what they keep.
    fn size(&self) -> usize {
        format!("{:?}", self.coordinator).len() + format!("{:?}", self.members).len()
    }

    fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(due) = self.coordinator.next_tick().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.coordinator.tick(self.now);
            self.pump();
        }
        self.now = end;
    }
}

#[test]
fn a_hundred_thousand_groups_leave_nothing() {
    let mut room = Room::new(4);
    let cause = Error::config("not this one");
    for number in 1..=cases(1_000, 100_000) {
        let channel = ChannelId::new(number);
        let members: &[u32] = if number % 2 == 0 {
            &[2, 0, 1]
        } else {
            &[1, 3, 2]
        };
        for member in members {
            room.open(*member, channel, members);
        }
        let tickets: Vec<Ticket> = members
            .iter()
            .map(|member| room.call(*member, channel, Leaves::ForOwner))
            .collect();
        for (member, ticket) in members.iter().zip(&tickets) {
            let now = room.now;
            let machine = &mut room.members[*member as usize];
            match (number + u64::from(*member)) % 4 {
                0 => machine.abandon(ticket, cause.clone(), now),
                1 => {}
                _ => {
                    let verdict = machine.take_verdict(ticket.step(Round::VERDICT));
                    assert!(verdict.unwrap().unwrap().table.unwrap().acknowledge);
                    machine.done(channel, ticket.epoch);
                }
            }
        }
        room.pump();
        if number % 3 == 0 {
            let doing = Activity::outside(Phase::Computing);
            room.members[1].fail(channel, cause.clone(), doing);
            room.pump();
        }
        for member in members {
            room.members[*member as usize].retire(channel, room.now);
            room.pump();
        }
        assert_eq!(room.reclaimed.len(), 3, "in group {number}");
        room.reclaimed.clear();
        room.told.clear();
    }
    assert_eq!(room.coordinator.channels(), 1);
    assert!(room.members.iter().all(|member| member.channels() == 1));
    assert!(
        room.size() < Room::new(4).size() + 1000,
        "{:?}",
        room.coordinator
    );
}

#[test]
fn groups_that_cannot_be_are_refused_to_who_asks_for_them() {
    let channel = ChannelId::new(7);
    for members in [
        &[][..],
        &[1, 1],
        &[0, 2],
        &[1, 4],
        &[1, u32::MAX],
        &[1, 2, 3, 2],
    ] {
        let mut room = Room::new(4);
        room.opens(1, channel, members);
        let aborts = room.aborts(channel);
        assert_eq!(aborts.len(), 1, "{members:?}: {aborts:?}");
        assert_eq!(aborts[0].0, 1);
        assert_eq!(room.coordinator.channels(), 1, "{members:?}");
    }
    let mut room = Room::new(4);
    room.opens(1, ChannelId::WORLD, &[1, 2]);
    assert_eq!(
        room.coordinator.failure(),
        None,
        "the world is not concerned"
    );
}

#[test]
fn a_channel_stands_for_one_list_of_members() {
    let channel = ChannelId::new(7);
    let mut room = Room::new(4);
    room.open(1, channel, &[1, 2]);
    room.open(2, channel, &[2, 1]);
    let aborts = room.aborts(channel);
    let told: Vec<u32> = aborts.iter().map(|(to, _)| *to).collect();
    assert_eq!(told, [1, 2], "{aborts:?}");
    assert!(aborts[0].1.contains("of the ranks 1 2"), "{aborts:?}");
    // A rank that does not belong to it is the only one to learn that.
    room.open(3, channel, &[3, 1]);
    let told: Vec<u32> = room.aborts(channel).iter().map(|(to, _)| *to).collect();
    assert_eq!(told, [3]);
}

#[test]
fn who_comes_late_to_a_group_that_has_failed_is_told_why() {
    let channel = ChannelId::new(7);
    let mut room = Room::new(3);
    room.open(1, channel, &[1, 2]);
    let cause = Error::config("no room");
    let doing = Activity::outside(Phase::Computing);
    room.members[1].fail(channel, cause.clone(), doing);
    room.pump();
    assert_eq!(room.aborts(channel), [(1, cause.to_string())]);
    room.open(2, channel, &[1, 2]);
    assert_eq!(room.aborts(channel), [(2, cause.to_string())]);
    assert_eq!(room.members[2].failure(channel), Some(&cause));
    assert!(room.coordinator.all_told());
}

#[test]
fn who_has_left_a_group_cannot_come_back() {
    let channel = ChannelId::new(7);
    let mut room = Room::new(3);
    room.open(1, channel, &[1, 2]);
    room.members[1].retire(channel, room.now);
    room.pump();
    room.open(1, channel, &[1, 2]);
    let aborts = room.aborts(channel);
    assert!(aborts[0].1.contains("make a new group"), "{aborts:?}");
    room.open(2, channel, &[1, 2]);
    assert!(room.members[2].failure(channel).is_some());
}

#[test]
fn a_call_in_a_group_that_a_rank_is_not_in_is_answered() {
    let channel = ChannelId::new(7);
    let mut room = Room::new(3);
    room.open(1, channel, &[1, 2]);
    for (from, channel) in [(0, channel), (2, channel), (2, ChannelId::new(8))] {
        room.says(
            from,
            ToCoordinator::Call(CallRequest::Contribute {
                step: Step::verdict(channel, Epoch::FIRST),
                call: Call::new(Operation::Barrier, Site::default()),
                contribution: Contribution::default(),
            }),
        );
        let aborts = room.aborts(channel);
        assert_eq!(aborts.len(), 1, "{from} {channel:?}");
        assert_eq!(aborts[0].0, from);
    }
    assert_eq!(room.members[1].failure(channel), None);
}

#[test]
fn a_rank_waiting_for_one_busy_in_a_group_keeps_waiting() {
    let (pair, others) = (ChannelId::new(7), ChannelId::new(8));
    let mut room = Room::new(4);
    for member in [1, 2] {
        room.open(member, pair, &[1, 2]);
    }
    for member in [2, 3] {
        room.open(member, others, &[2, 3]);
    }
    // Rank 0 waits for rank 1 and others; rank 1 waits for rank 2, which waits for rank 3, which moves bytes.
    room.call(0, ChannelId::WORLD, Leaves::Nothing);
    room.call(1, pair, Leaves::Nothing);
    room.call(2, others, Leaves::Nothing);
    let now = |room: &Room| room.now;
    let call = Call::new(Operation::AllGather, Site::named("here"));
    let ticket = room.members[3].begin(others, call).unwrap();
    for _ in 0..5 {
        room.pass(40);
        let at = now(&room);
        let doing = ticket.activity(Phase::Publishing);
        room.members[3]
            .progress(others, doing, 1000, None, at)
            .unwrap();
        room.pump();
        assert_eq!(room.coordinator.failure(), None);
        assert_eq!(room.members[1].failure(pair), None);
    }
    room.pass(59);
    assert_eq!(room.coordinator.failure(), None);
    room.pass(2);
    assert!(matches!(
        room.coordinator.failure(),
        Some(Error::Timeout { .. })
    ));
    assert!(matches!(
        room.members[1].failure(pair),
        Some(Error::Timeout { .. })
    ));
}

#[test]
fn a_group_that_is_busy_does_not_keep_others_from_timing_out() {
    let (busy, stuck) = (ChannelId::new(7), ChannelId::new(8));
    let mut room = Room::new(4);
    for member in [0, 1] {
        room.open(member, busy, &[0, 1]);
    }
    for member in [2, 3] {
        room.open(member, stuck, &[2, 3]);
    }
    room.call(2, stuck, Leaves::Nothing);
    for _ in 0..7 {
        for member in [0, 1] {
            room.call(member, busy, Leaves::Nothing);
        }
        room.pass(9);
    }
    let Some(Error::Timeout {
        during, missing, ..
    }) = room.members[2].failure(stuck)
    else {
        panic!("{:?}", room.members[2].failure(stuck));
    };
    assert_eq!(during, "all_gather #1 in the group of ranks 2 3 at here");
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].rank, Rank::new(3));
    assert_eq!(room.members[0].failure(busy), None);
}

#[test]
fn a_group_call_open_at_a_silent_rank_0_is_named_as_such() {
    let group = ChannelId::new(7);
    let mut room = Room::new(2);
    for member in [0, 1] {
        room.open(member, group, &[0, 1]);
    }
    room.call(1, group, Leaves::Nothing);
    // Only its own clock continues.
    for seconds in [25, 40] {
        room.members[1].tick(room.now + Duration::from_secs(seconds));
    }
    let said = room.members[1].take_actions();
    let warns = |action: &MemberAction| matches!(action, MemberAction::Warn(text) if text.starts_with("all_gather #1 in a group at here is still"));
    assert!(said.iter().any(warns), "{said:?}");
    room.members[1].tick(room.now + TIME_LIMIT + Duration::from_secs(10));
    let Some(Error::Timeout { during, .. }) = room.members[1].failure(group) else {
        panic!("{:?}", room.members[1].failure(group));
    };
    assert_eq!(
        during,
        "all_gather #1 in a group at here, of which the outcome is unknown"
    );
}

#[test]
fn threads_at_work_on_several_calls_do_not_flood_rank_0() {
    let now = Instant::now();
    let mut room = Room::new(2);
    let member = &mut room.members[1];
    member
        .open(ChannelId::new(7), vec![Rank::ZERO, Rank::new(1)], now)
        .unwrap();
    let mut begin = |channel| {
        let call = Call::new(Operation::AllGather, Site::named("here"));
        member.begin(channel, call).unwrap()
    };
    let tickets = [
        begin(ChannelId::WORLD),
        begin(ChannelId::WORLD),
        begin(ChannelId::new(7)),
    ];
    member.take_actions();
    for turn in 0..2000 {
        for ticket in &tickets {
            let doing = ticket.activity(Phase::Publishing);
            let at = now + Duration::from_millis(turn);
            member.progress(ticket.channel, doing, 1, None, at).unwrap();
        }
    }
    // At the start, and after one second.
    assert_eq!(member.take_actions().len(), 2 * tickets.len());
}

#[test]
fn a_group_left_by_rank_0_learns_why_rank_0_failed() {
    let channel = ChannelId::new(7);
    for of_world in [Some(Error::config("no room")), None] {
        let mut room = Room::new(4);
        room.open(1, channel, &[1, 3]);
        room.open(3, channel, &[1, 3]);
        let ticket = room.call(1, channel, Leaves::Nothing);
        if let Some(cause) = of_world.clone() {
            let doing = Activity::outside(Phase::Computing);
            room.members[2].fail(ChannelId::WORLD, cause, doing);
            room.pump();
        }
        assert_eq!(room.members[1].failure(channel), None, "groups go on");
        room.coordinator.abandon();
        room.pump();
        let verdict = room.members[1].take_verdict(ticket.step(Round::VERDICT));
        let learnt = verdict.unwrap().unwrap_err();
        let text = learnt.to_string();
        match of_world.clone() {
            Some(cause) => assert_eq!(learnt, cause),
            None => assert!(
                text.contains("rank 0 on here (pid 1) had already left"),
                "{text}"
            ),
        }
        // So does a rank that opens a group now.
        room.open(3, ChannelId::new(8), &[1, 3]);
        let failure = room.members[3].failure(ChannelId::new(8)).cloned();
        assert_eq!(
            failure.is_some_and(|failure| failure.to_string() == text),
            of_world.is_some()
        );
    }
}

#[test]
fn a_wait_for_a_leaver_of_a_failed_world_learns_its_cause() {
    for is_lost in [true, false] {
        let mut room = Room::new(4);
        let channel = ChannelId::new(7);
        room.open(1, channel, &[1, 2]);
        room.open(2, channel, &[1, 2]);
        let ticket = room.call(1, channel, Leaves::Nothing);
        if is_lost {
            room.coordinator.lost(Rank::new(3), "its connection closed");
            room.pump();
        }
        assert_eq!(room.members[1].failure(channel), None, "groups go on");
        room.says(2, ToCoordinator::End(EndRequest::Leave { cause: None }));
        let verdict = room.members[1].take_verdict(ticket.step(Round::VERDICT));
        let learnt = verdict.unwrap().unwrap_err();
        let Error::PeerFailed { peer, failure, .. } = &learnt else {
            unreachable!("{learnt}")
        };
        let left = failure.is_departure();
        assert_eq!(
            (peer.rank.get(), left),
            if is_lost { (3, false) } else { (2, true) },
            "{learnt}"
        );
    }
}

#[test]
fn a_rank_0_that_is_lost_in_a_call_of_a_group_says_so() {
    let mut room = Room::new(4);
    let channel = ChannelId::new(7);
    room.open(1, channel, &[1, 2]);
    room.open(2, channel, &[1, 2]);
    room.call(1, channel, Leaves::Nothing);
    room.call(3, ChannelId::WORLD, Leaves::Nothing);
    for (member, of, is_in_group) in [(1, channel, true), (3, ChannelId::WORLD, false)] {
        let machine = &mut room.members[member];
        machine.lost("its process has ended");
        let told = machine.failure(of).unwrap().to_string();
        assert!(told.contains("(its process has ended"), "{told}");
        assert_eq!(told.contains("in a call of a group"), is_in_group, "{told}");
    }
}
