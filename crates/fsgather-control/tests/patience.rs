//! Calls with a time-out of their own, on the bare machines: all waits are in virtual time.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

mod machines;

use std::time::{Duration, Instant};

use fsgather_control::{
    coordinator::{Action, Coordinator},
    member::{Member, MemberAction},
    message::{CallRequest, EndReply, EndRequest, ToCoordinator, ToMember},
};
use fsgather_core::{
    Activity, Call, ChannelId, Contribution, Error, Leaves, Operation, Phase, Rank, Round, Site,
    StackFrame, ThreadState, Ticket, Verdict, Whereabouts,
};

/// The time-out of the world.
const WORLD: Duration = Duration::from_secs(60);

/// Time beyond the time-out that members wait for an answer.
const GRACE: Duration = Duration::from_secs(10);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn just_before(time: Duration) -> Duration {
    time.saturating_sub(Duration::from_millis(1))
}

/// The state of a rank that is in this line of its program.
fn in_line(line: u32) -> Whereabouts {
    let frame = StackFrame {
        file: "/home/me/eval.py".into(),
        line: Some(line),
        function: "load".into(),
        is_own: true,
    };
    Whereabouts::own(vec![frame], Some(ThreadState::Running))
}

/// Three ranks, whose time passes as fast as things fall due.
struct Room {
    start: Instant,
    now: Instant,
    coordinator: Coordinator,
    members: Vec<Member>,
    /// True if messages of rank 0 arrive.
    is_heard: bool,
    /// A rank that answers no question.
    is_deaf: Option<u32>,
    /// Time until which all processes use the processor.
    works_until: Duration,
    /// Warnings shown to the user.
    warnings: Vec<String>,
    /// Warnings that ranks other than rank 0 were asked to show, with their ranks.
    said_by_others: Vec<(u32, String)>,
}

impl Room {
    fn new() -> Self {
        Self::of(false, Duration::ZERO)
    }

    /// A world without a time-out of its user, whose ranks work until `works_until`.
    fn patient(works_until: Duration) -> Self {
        Self::of(true, works_until)
    }

    fn of(is_patient: bool, works_until: Duration) -> Self {
        let (mut world, now) = (machines::world(3, WORLD), Instant::now());
        world.is_patient = is_patient;
        let (coordinator, members) = machines::form(world, now);
        Self {
            start: now,
            now,
            coordinator,
            members,
            is_heard: true,
            is_deaf: None,
            works_until,
            warnings: Vec::new(),
            said_by_others: Vec::new(),
        }
    }

    /// Lets a rank call its first or next barrier.
    fn call(&mut self, rank: usize, timeout: Option<Duration>) -> Ticket {
        self.make(rank, Operation::Barrier, timeout)
    }

    fn make(&mut self, rank: usize, operation: Operation, timeout: Option<Duration>) -> Ticket {
        let call = Call {
            timeout,
            ..Call::new(operation, Site::named("here"))
        };
        let member = &mut self.members[rank];
        let ticket = member.begin(ChannelId::WORLD, call).unwrap();
        let nothing = Contribution::default();
        let now = self.now;
        member
            .contribute(&ticket, Round::VERDICT, nothing, now)
            .unwrap();
        self.pump();
        ticket
    }

    fn verdict(&mut self, rank: usize, ticket: &Ticket) -> Option<Result<Verdict, Error>> {
        self.members[rank].take_verdict(ticket.step(Round::VERDICT))
    }

    fn pump(&mut self) {
        loop {
            let mut is_quiet = true;
            let mut looks = Vec::new();
            for (rank, member) in (0..).map(Rank::new).zip(&mut self.members) {
                for action in member.take_actions() {
                    is_quiet = false;
                    match action {
                        MemberAction::Send(message) => {
                            self.coordinator.on_message(rank, message, self.now);
                        }
                        MemberAction::Look { number, neighbour } => {
                            looks.push((rank, number, neighbour));
                        }
                        MemberAction::Warn(text) => {
                            self.said_by_others.push((rank.get(), text));
                        }
                        _ => {}
                    }
                }
            }
            looks.retain(|(rank, ..)| self.is_deaf != Some(rank.get()));
            for (rank, number, neighbour) in looks {
                let who = neighbour.map_or(rank, |neighbour| neighbour.rank);
                let seen = neighbour.is_none().then(|| {
                    let mut seen = in_line(40 + rank.get());
                    seen.cpu_time = Some((self.now - self.start).min(self.works_until));
                    seen
                });
                self.members[rank.index()].seen(number, who, seen);
            }
            for action in self.coordinator.take_actions() {
                is_quiet = false;
                if let Action::Warn(text) = &action {
                    self.warnings.push(text.clone());
                }
                if let (Action::Send { to, message }, true) = (action, self.is_heard) {
                    assert!(!matches!(message, ToMember::End(EndReply::Bye { .. })));
                    for to in to {
                        self.members[to.index()].on_message(message.clone(), self.now);
                    }
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Lets time pass until `until` after the start.
    fn pass(&mut self, until: Duration) {
        let until = self.start + until;
        loop {
            let due = self.members.iter().filter_map(Member::next_tick);
            let due = due.chain(self.coordinator.next_tick()).min();
            let Some(due) = due.filter(|due| *due <= until) else {
                break;
            };
            self.now = due.max(self.now);
            self.coordinator.tick(self.now);
            for member in &mut self.members {
                member.tick(self.now);
            }
            self.pump();
        }
        self.now = until;
    }

    fn is_pending(&mut self, rank: usize, ticket: &Ticket) -> bool {
        self.verdict(rank, ticket).is_none()
    }

    /// The time without movement, the missing ranks and the text of a time-out.
    fn time_out(&mut self, rank: usize, ticket: &Ticket) -> (Duration, Vec<u32>, String) {
        match self.verdict(rank, ticket) {
            Some(Err(Error::Timeout {
                timeout,
                missing,
                hint,
                ..
            })) => {
                let missing = missing.iter().map(|missing| missing.rank.get());
                (timeout, missing.collect(), hint)
            }
            other => unreachable!("{other:?}"),
        }
    }
}

#[test]
fn the_first_warning_shows_count_missing_rank_and_stack() {
    let mut room = Room::new();
    let ticket = room.call(0, None);
    room.call(1, None);
    room.pass(just_before(seconds(30)));
    assert_eq!(room.warnings, [""; 0]);
    room.pass(seconds(30));
    let warning = &room.warnings[0];
    assert!(
        warning.starts_with(
            "barrier #1 at here (2 of 3 ranks are in) is still waiting for rank 2 on "
        ),
        "{warning}"
    );
    let stacks = warning.split_once('\n').map(|(_, stacks)| stacks);
    assert_eq!(stacks, Some("  rank 2: eval.py:42 in load (running)"));
    room.pass(WORLD);
    match room.verdict(0, &ticket) {
        Some(Err(Error::Timeout { during, .. })) => assert_eq!(during, "barrier #1 at here"),
        other => unreachable!("{other:?}"),
    }
}

/// A program that never returns to a call shows nothing of rank 0's knowledge.
#[test]
fn where_rank_0_is_missing_the_first_of_those_who_wait_says_so() {
    for (operation, waited_for) in [
        (
            Operation::Barrier,
            "barrier #1 at here (2 of 3 ranks are in) is still waiting for rank 0 on ",
        ),
        (
            Operation::Meet,
            "first call at here (2 of 3 ranks are in) is still waiting for rank 0 on ",
        ),
    ] {
        let mut room = Room::new();
        room.make(2, operation, None);
        room.make(1, operation, None);
        room.pass(just_before(seconds(30)));
        assert_eq!(room.said_by_others, []);
        room.pass(seconds(30));
        let [(1, said)] = room.said_by_others.as_slice() else {
            unreachable!("{:?}", room.said_by_others);
        };
        assert!(said.starts_with(waited_for), "{said}");
        assert!(
            said.ends_with("\n  rank 0: eval.py:40 in load (running)"),
            "{said}"
        );
        assert_eq!(room.warnings.as_slice(), std::slice::from_ref(said));
    }
}

#[test]
fn all_learn_who_has_come_last() {
    let mut room = Room::new();
    let tickets = [2, 0, 1].map(|rank| (rank, room.call(rank, None)));
    for (rank, ticket) in tickets {
        let verdict = room.verdict(rank, &ticket).unwrap().unwrap();
        assert_eq!(verdict.last, Some(Rank::new(1)));
    }
}

#[test]
fn a_call_fails_when_its_own_time_out_is_over() {
    let mut room = Room::new();
    let (one, other) = (
        room.call(0, Some(seconds(5))),
        room.call(1, Some(seconds(5))),
    );
    room.pass(just_before(seconds(5)));
    assert!(room.is_pending(0, &one) && room.is_pending(1, &other));
    room.pass(seconds(5));
    for (rank, ticket) in [(0, one), (1, other)] {
        let (timeout, missing, hint) = room.time_out(rank, &ticket);
        assert_eq!((timeout, missing), (seconds(5), vec![2]));
        assert!(hint.contains("this call"), "{hint}");
    }
}

#[test]
fn occasional_bytes_are_progress_for_any_time_out() {
    let mut room = Room::new();
    let timeout = seconds(1);
    let one = room.call(0, Some(timeout));
    room.call(1, Some(timeout));
    let call = Call::new(Operation::Barrier, Site::named("here"));
    let late = room.members[2].begin(ChannelId::WORLD, call).unwrap();
    for moment in 1..100 {
        room.pass(moment * Duration::from_millis(50));
        assert!(room.is_pending(0, &one), "after {moment} moments");
        let doing = late.activity(Phase::Publishing);
        let (member, now) = (&mut room.members[2], room.now);
        member
            .progress(ChannelId::WORLD, doing, 1, Some(timeout), now)
            .unwrap();
        room.pump();
    }
    // The last movement may not have been reported.
    room.pass(seconds(5) + timeout);
    let (limit, missing, _) = room.time_out(0, &one);
    assert_eq!((limit, missing), (timeout, vec![2]));
}

#[test]
fn a_call_without_one_has_that_of_the_world() {
    let mut room = Room::new();
    let ticket = room.call(0, None);
    room.pass(just_before(WORLD));
    assert!(room.is_pending(0, &ticket));
    room.pass(WORLD);
    let (timeout, missing, hint) = room.time_out(0, &ticket);
    assert_eq!((timeout, missing), (WORLD, vec![1, 2]));
    assert!(hint.contains("FSGATHER_TIMEOUT"), "{hint}");
}

/// The end of the wait, as a warning names it.
fn end_in(warning: &str) -> &str {
    warning.lines().next().unwrap().rsplit("; ").next().unwrap()
}

#[test]
fn warnings_say_when_the_time_out_of_a_user_ends_the_call() {
    let mut room = Room::new();
    let _tickets = [0, 1].map(|rank| room.call(rank, Some(seconds(90))));
    room.pass(seconds(60));
    let ends: Vec<&str> = room.warnings.iter().map(|text| end_in(text)).collect();
    let expected =
        ["1 min", "30 s"].map(|left| format!("times out in {left} unless something moves"));
    assert_eq!(ends, expected);
}

#[test]
fn ranks_that_work_are_late_only_by_a_time_out_of_their_user() {
    let works = seconds(1000);
    let mut room = Room::patient(works);
    let tickets = [0, 1].map(|rank| room.call(rank, None));
    room.pass(works);
    for (rank, ticket) in tickets.iter().enumerate() {
        assert!(room.is_pending(rank, ticket), "{rank}");
    }
    let ends: Vec<&str> = room.warnings.iter().map(|text| end_in(text)).collect();
    // Signs take two looks.
    let (first, later) = ends.split_first().unwrap();
    assert_eq!(*first, "times out in 30 s unless there are signs of work");
    assert!(later.contains(&"does not time out while there are signs of work"));
    assert!(later.iter().all(|end| end == &later[0]), "{ends:?}");
    // Each interval is longer than the one before.
    assert!(
        (4..=7).contains(&room.warnings.len()),
        "{:?}",
        room.warnings
    );
    // The last look that shows work comes at most a time-out later.
    room.pass(works + WORLD + WORLD);
    let (timeout, missing, _) = room.time_out(0, &tickets[0]);
    assert_eq!((timeout, missing), (WORLD, vec![2]));
    // Time-outs that the call or the world has from its user count.
    let mut room = Room::patient(works);
    let ticket = room.call(0, Some(seconds(90)));
    room.pass(seconds(90));
    assert_eq!(room.time_out(0, &ticket).1, [1, 2]);
    let mut room = Room::new();
    room.works_until = works;
    let ticket = room.call(0, None);
    room.pass(WORLD);
    assert_eq!(room.time_out(0, &ticket).1, [1, 2]);
}

#[test]
fn a_rank_without_signs_of_work_is_late_although_others_work() {
    let mut room = Room::patient(seconds(1000));
    let ticket = room.call(0, None);
    // A stopped process answers nothing.
    room.is_deaf = Some(2);
    room.pass(WORLD + seconds(1));
    assert_eq!(room.time_out(0, &ticket).1, [1, 2]);
}

#[test]
fn the_longest_time_out_of_those_who_have_come_counts() {
    // The last of them comes after 3 s.
    for (first, second, until) in [
        (Some(seconds(5)), Some(seconds(20)), seconds(23)),
        (Some(seconds(20)), Some(seconds(5)), seconds(23)),
        (Some(seconds(5)), None, seconds(63)),
        (None, Some(seconds(5)), seconds(63)),
        (Some(seconds(100)), None, seconds(103)),
    ] {
        let mut room = Room::new();
        let one = room.call(0, first);
        room.pass(seconds(3));
        let other = room.call(1, second);
        room.pass(just_before(until));
        assert!(room.is_pending(0, &one) && room.is_pending(1, &other));
        room.pass(until);
        for (rank, ticket) in [(0, one), (1, other)] {
            let (timeout, missing, _) = room.time_out(rank, &ticket);
            assert_eq!((timeout + seconds(3), missing), (until, vec![2]));
        }
    }
}

#[test]
fn a_call_may_be_more_patient_than_its_world() {
    let mut room = Room::new();
    let hour = Some(seconds(3600));
    let tickets = [room.call(0, hour), room.call(1, hour)];
    room.pass(seconds(3599));
    assert!(room.is_pending(1, &tickets[1]));
    let last = room.call(2, hour);
    for (rank, ticket) in tickets.iter().chain([&last]).enumerate() {
        assert!(matches!(room.verdict(rank, ticket), Some(Ok(_))));
    }
    // The next one is like any other.
    let next = room.call(1, None);
    room.pass(seconds(3599) + WORLD);
    assert_eq!(room.time_out(1, &next).0, WORLD);
}

#[test]
fn nobody_gives_rank_0_up_while_somebody_else_is_more_patient() {
    let mut room = Room::new();
    let impatient = room.call(1, Some(seconds(5)));
    room.call(2, Some(seconds(3000)));
    room.pass(seconds(2999));
    assert!(room.is_pending(1, &impatient));
    room.pass(seconds(3000));
    assert_eq!(room.time_out(1, &impatient).1, [0]);
}

#[test]
fn who_says_that_rank_0_is_gone_takes_nothing_from_it() {
    let mut room = Room::new();
    let ticket = room.call(0, None);
    let report = ToCoordinator::End(EndRequest::SiblingExited { rank: Rank::ZERO });
    room.coordinator.on_message(Rank::new(1), report, room.now);
    room.pass(just_before(WORLD));
    assert!(room.is_pending(0, &ticket));
    room.pass(WORLD);
    assert_eq!(room.time_out(0, &ticket).1, [1, 2]);
    // Nor does a rank that takes its connection for closed.
    let mut room = Room::new();
    let tickets = [0, 1].map(|rank| room.call(rank, None));
    room.coordinator.lost(Rank::ZERO, "its connection closed");
    room.call(2, None);
    for (rank, ticket) in tickets.iter().enumerate() {
        assert!(matches!(room.verdict(rank, ticket), Some(Ok(_))));
    }
}

#[test]
fn a_resumed_rank_0_announces_itself_to_waiting_ranks() {
    let mut room = Room::new();
    let ticket = room.call(1, None);
    // By its own clock rank 0 has waited for a second, by that of the others for longer than a time-out.
    let late = WORLD + seconds(9);
    room.now = room.start + late;
    let resumed = room.start + seconds(1);
    room.coordinator.wake(resumed);
    room.pump();
    room.members[1].tick(room.start + WORLD + GRACE);
    assert!(room.is_pending(1, &ticket));
    // It does not wait forever all the same.
    room.members[1].tick(room.now + WORLD + GRACE);
    assert_eq!(room.time_out(1, &ticket).1, [0]);
}

#[test]
fn rank_0_waits_no_longer_than_others_if_nothing_answers_it() {
    let mut room = Room::new();
    let ticket = room.call(0, None);
    room.is_heard = false;
    room.pass(just_before(WORLD + GRACE));
    assert!(room.is_pending(0, &ticket));
    room.pass(WORLD + GRACE);
    assert_eq!(room.time_out(0, &ticket).1, [0]);
}

#[test]
fn a_silent_rank_0_is_given_up_as_soon_as_a_call_allows() {
    let mut room = Room::new();
    let long = room.call(1, None);
    room.pass(seconds(7));
    let short = room.call(1, Some(seconds(5)));
    room.is_heard = false;
    let due = seconds(7 + 5) + GRACE;
    room.pass(just_before(due));
    assert!(room.is_pending(1, &short) && room.is_pending(1, &long));
    room.pass(due);
    let (timeout, missing, _) = room.time_out(1, &short);
    assert_eq!((timeout, missing), (seconds(5) + GRACE, vec![0]));
}

#[test]
fn an_ended_process_has_half_a_second_for_last_messages() {
    let start = Instant::now();
    let (mut coordinator, _members) = machines::formed(3, WORLD, start);
    coordinator.suspect(Rank::new(2), start);
    let due = start + Duration::from_millis(500);
    assert_eq!(coordinator.next_tick(), Some(due));
    coordinator.tick(start + just_before(Duration::from_millis(500)));
    assert_eq!(coordinator.failure(), None);
    coordinator.tick(due);
    let failure = coordinator.failure().unwrap().to_string();
    assert!(failure.contains("rank 2"), "{failure}");
}

/// Rank 1, which stays from the start on because the others read its payloads.
fn staying() -> Room {
    let mut room = Room::new();
    let start = room.start;
    for (rank, leaves) in [
        (0, Leaves::Nothing),
        (1, Leaves::WithOwner),
        (2, Leaves::Nothing),
    ] {
        let call = Call::new(Operation::AllGather, Site::named("here"));
        let member = &mut room.members[rank];
        let ticket = member.begin(ChannelId::WORLD, call).unwrap();
        let own = Contribution {
            leaves,
            ..Contribution::default()
        };
        member
            .contribute(&ticket, Round::VERDICT, own, start)
            .unwrap();
    }
    room.pump();
    let stay = ToCoordinator::End(EndRequest::Stay { cause: None });
    room.coordinator.on_message(Rank::new(1), stay, start);
    assert_eq!(needed(&mut room.coordinator), Some(vec![0, 2]));
    room
}

/// The readers for which a rank is asked to stay, if it is.
fn needed(coordinator: &mut Coordinator) -> Option<Vec<u32>> {
    let actions = coordinator.take_actions();
    actions.into_iter().find_map(|action| match action {
        Action::Send {
            message: ToMember::End(EndReply::Needed { by }),
            ..
        } => Some(by.iter().map(|peer| peer.rank.get()).collect()),
        _ => None,
    })
}

#[test]
fn a_lingering_rank_leaves_once_its_readers_time_out() {
    let mut room = staying();
    let end = room.start + WORLD;
    let due = room.coordinator.next_tick();
    assert!(due.is_some_and(|due| due <= end), "{due:?}");
    room.coordinator.tick(room.start + just_before(WORLD));
    assert_eq!(needed(&mut room.coordinator), None);
    room.coordinator.tick(end);
    assert_eq!(needed(&mut room.coordinator), Some(Vec::new()));
}

#[test]
fn a_rank_that_is_to_end_while_others_need_it_says_so() {
    let mut room = Room::new();
    let member = &mut room.members[1];
    member.stay(None, true, room.start);
    assert!(member.is_needed());
    member.take_actions();
    member.interrupt(&Error::config("it is to end"));
    assert!(!member.is_needed());
    let warned = member.take_actions().into_iter().any(|action| {
        matches!(action, MemberAction::Warn(text) if text.contains("ends although") && text.contains("it is to end"))
    });
    assert!(warned);
}

#[test]
fn a_rank_that_stays_hears_soon_that_its_readers_get_on() {
    let mut room = staying();
    let moved = room.start + seconds(1);
    let status = ToCoordinator::Call(CallRequest::Status {
        channel: ChannelId::WORLD,
        activity: Activity::outside(Phase::Reading),
        bytes: 1000,
    });
    room.coordinator.on_message(Rank::new(2), status, moved);
    room.coordinator.tick(moved);
    assert_eq!(needed(&mut room.coordinator), None);
    let told = loop {
        let due = room.coordinator.next_tick().unwrap();
        assert!(due <= moved + seconds(2), "{:?}", due - moved);
        room.coordinator.tick(due);
        if let Some(told) = needed(&mut room.coordinator) {
            break told;
        }
    };
    assert_eq!(told, [0, 2]);
}
