//! A world in one thread: one coordinator, its members, the links between them, and time: [`World`].
//!
//! Messages wait in one queue for each direction of each link, like bytes on a TCP connection. The script that it
//! [runs](run) chooses the next of all possible events (a message arrives, a rank continues, a timer fires, time passes),
//! or `schedules` tries all in turn. Nothing that can happen waits for longer than [`LATENCY`], unless its process is
//! stopped or its link is cut.

mod checks;
mod harm;
mod lies;
mod link;
mod run;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use fsgather_control::{
    coordinator::{Action, Coordinator, World as Setting},
    member::MemberAction,
    message::{CallReply, CallRequest, Join, ToCoordinator, ToMember},
};
use fsgather_core::{Neighbour, ProcessId, Rank, ThreadState, Whereabouts, WorldSize};
use uuid::Uuid;

pub(crate) use self::lies::Lie;
use self::link::{Frame, Lane, Link};
pub(crate) use self::run::{run, run_in_turn};
use crate::{
    promises::{Broken, Checked, Ledger, promise},
    rank::{Clock, Health, Process, peer},
    script::{Script, TIME_LIMIT},
};

/// Time for which a message, or a rank that could continue, is kept waiting.
const LATENCY: Duration = Duration::from_millis(1500);

/// Time that the kernels take to notice that a link carries nothing any more.
const KEEPALIVE: Duration = Duration::from_secs(29);

/// Time for which rank 0's process lives on after its last message.
const LAST_FRAMES: Duration = Duration::from_millis(500);

/// Maximum number of ranks of worlds that are checked after every event.
const SMALL: usize = 16;

/// The part of rank 0's process that serves the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Up,
    /// All ranks have been sent a goodbye; the process ends.
    LastFrames {
        until: Duration,
    },
    Gone,
}

/// Something that can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A message arrives at rank 0.
    Up(usize),
    /// A message arrives at a member.
    Down(usize),
    /// A rank continues with its program.
    Act(usize),
    /// A timer of this rank's process fires.
    Tick(usize),
    Resume(usize),
    /// Rank 0's, or the member's, kernel gives a link up.
    NoticeCut(usize, bool),
    EndOfService,
    /// Time passes until then.
    Time(Duration),
}

/// The simulated world.
#[derive(Clone, Debug)]
pub(crate) struct World {
    clock: Clock,
    coordinator: Coordinator,
    processes: Vec<Process>,
    links: Vec<Link>,
    /// Messages of rank 0 to itself.
    loopback: VecDeque<ToMember>,
    service: Service,
    pub(crate) ledger: Ledger,
    /// The fault that this world has, to see whether it is noticed.
    pub(crate) lie: Option<Lie>,
}

fn index(rank: usize) -> Rank {
    Rank::new(u32::try_from(rank).unwrap_or(u32::MAX))
}

/// The request of a process that asks to be a rank.
pub(crate) fn join_request(rank: Rank, world_size: WorldSize, nonce: u128) -> Join {
    let peer = peer(rank);
    Join {
        rank,
        world_size,
        nonce,
        process: ProcessId {
            host: peer.host,
            pid: peer.pid,
            ..ProcessId::default()
        },
        timeout: Duration::from_secs(TIME_LIMIT),
        start: None,
        attempt: None,
        fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
    }
}

/// The input of the coordinator of a simulated world.
pub(crate) fn setting(world_size: WorldSize) -> Setting {
    Setting {
        world_size,
        communicator: Uuid::from_u128(7),
        job: "the simulation".into(),
        timeout: Duration::from_secs(TIME_LIMIT),
        join_timeout: Duration::from_secs(100),
        idle_limit: None,
        fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
        lead: Some(Duration::from_secs(2)),
        is_introduced: false,
        is_named: false,
        is_patient: false,
    }
}

impl World {
    /// A world that has formed.
    pub(crate) fn new(script: &Script) -> Result<Self, Broken> {
        let world_size = WorldSize::new(script.ranks).map_err(|error| Broken(error.to_string()))?;
        let clock = Clock {
            base: Instant::now(),
            now: Duration::ZERO,
            asleep: Duration::ZERO,
        };
        let mut coordinator = Coordinator::new(setting(world_size), clock.instant());
        for rank in world_size.ranks() {
            let nonce = rank.get().into();
            let joined = coordinator.join(join_request(rank, world_size, nonce), clock.instant());
            assert_eq!(joined, Ok(()));
        }
        // Joining has properties of its own, elsewhere.
        coordinator.take_actions();
        let mut ledger = Ledger::new(script.ranks);
        for twist in &script.twists {
            ledger.suspects(Rank::new(twist.rank));
        }
        let link = |_| Link {
            up: Lane::new(),
            down: Lane::new(),
            cut: None,
            noticed: [false; 2],
        };
        Ok(Self {
            clock,
            coordinator,
            processes: world_size
                .ranks()
                .map(|rank| Process::new(script, rank, clock))
                .collect(),
            links: world_size.ranks().map(link).collect(),
            loopback: VecDeque::new(),
            service: Service::Up,
            ledger,
            lie: None,
        })
    }

    fn serves(&self) -> bool {
        self.service != Service::Gone && self.processes[0].is_running()
    }

    /// The time of a process.
    fn clock_of(&self, rank: usize) -> Clock {
        Clock {
            asleep: self.processes[rank].asleep,
            ..self.clock
        }
    }

    /// Time at which the timer of a process fires.
    fn fires(&self, rank: usize, at: Option<Instant>) -> Option<Duration> {
        let at = self.clock_of(rank).moment(at?);
        Some(at.max(self.processes[rank].hears_until))
    }

    /// Time at which rank 0's process has to check what is due.
    fn fires_on_rank_0(&self) -> Option<Duration> {
        let zero = &self.processes[0];
        let own = zero.member.next_tick().filter(|_| !zero.has_ended());
        self.fires(0, own.into_iter().chain(self.coordinator.next_tick()).min())
    }

    /// Everything that can happen now, except the passing of time.
    pub(crate) fn possible(&mut self) -> Vec<Event> {
        let now = self.clock.now;
        let serves = self.serves();
        let mut events = Vec::new();
        if serves && self.fires_on_rank_0().is_some_and(|at| at <= now) {
            events.push(Event::Tick(0));
        }
        if let Service::LastFrames { until } = self.service
            && until <= now
        {
            events.push(Event::EndOfService);
        }
        for rank in 0..self.processes.len() {
            let fires = self.fires(rank, self.processes[rank].member.next_tick());
            let ticks = rank > 0 && fires.is_some_and(|at| at <= now);
            let process = &mut self.processes[rank];
            let departed = rank == 0 && process.is_departing() && self.coordinator.is_gone();
            if process.is_running() {
                let ready = process.is_ready(now) || departed;
                if ready {
                    process.ready_since.get_or_insert(now);
                    events.push(Event::Act(rank));
                }
                if ticks && !process.has_ended() {
                    events.push(Event::Tick(rank));
                }
            }
            if matches!(process.health, Health::Stopped { until, .. } if until <= now) {
                events.push(Event::Resume(rank));
            }
            let hears = process.is_running();
            let link = &self.links[rank];
            match link.cut {
                None => {
                    if serves && !link.up.frames.is_empty() {
                        events.push(Event::Up(rank));
                    }
                    if hears && !link.down.frames.is_empty() {
                        events.push(Event::Down(rank));
                    }
                }
                Some(since) if since + KEEPALIVE <= now => {
                    for (side, hears) in [(0, serves), (1, hears)] {
                        if hears && !link.noticed[side] {
                            events.push(Event::NoticeCut(rank, side == 0));
                        }
                    }
                }
                Some(_) => {}
            }
        }
        events
    }

    /// The passing of time, if no possible event has to happen before and an event is to come.
    pub(crate) fn time_may_pass(&self, events: &[Event]) -> Option<Event> {
        let until = self.next_moment(events)?;
        (until > self.clock.now).then_some(Event::Time(until))
    }

    /// The latest moment to which time may pass.
    fn next_moment(&self, events: &[Event]) -> Option<Duration> {
        let limits = events.iter().map(|event| match event {
            Event::Up(rank) => self.links[*rank].up.frames.front().map(|frame| frame.0),
            Event::Down(rank) => self.links[*rank].down.frames.front().map(|frame| frame.0),
            Event::Act(rank) => self.processes[*rank].ready_since,
            _ => None,
        });
        // An event without a time stamp is a timer, and must not be late.
        let limits = limits.map(|since| since.map_or(self.clock.now, |since| since + LATENCY));
        let mut timers = Vec::new();
        if self.serves() {
            timers.extend(self.fires_on_rank_0());
        }
        if let Service::LastFrames { until } = self.service {
            timers.push(until);
        }
        for (rank, (process, link)) in self.processes.iter().zip(&self.links).enumerate() {
            match process.health {
                Health::Running => {
                    timers.extend(process.next_due());
                    if rank > 0 && !process.has_ended() {
                        timers.extend(self.fires(rank, process.member.next_tick()));
                    }
                }
                Health::Stopped { until, .. } => timers.push(until),
                Health::Dead => {}
            }
            if let Some(since) = link.cut {
                let waits = [
                    (self.serves(), link.noticed[0]),
                    (process.is_running(), link.noticed[1]),
                ];
                if waits.contains(&(true, false)) {
                    timers.push(since + KEEPALIVE);
                }
            }
        }
        let next = timers.into_iter().filter(|at| *at > self.clock.now).min();
        limits.chain(next).min()
    }

    /// Lets one of the possible events happen.
    pub(crate) fn happen(&mut self, event: Event) -> Checked {
        let now = self.clock.now;
        match event {
            Event::Time(until) => {
                self.clock.now = until;
                self.check_timeout()
            }
            Event::Up(rank) => {
                if let Some((_, frame)) = self.links[rank].up.frames.pop_front() {
                    match frame {
                        Frame::Said(message) => self.coordinator_hears(index(rank), message)?,
                        Frame::End => self.lose(index(rank), "its connection closed"),
                    }
                }
                self.serve()
            }
            Event::Down(rank) => self.member_hears(rank),
            Event::Act(0) if self.processes[0].is_departing() => {
                self.processes[0].end();
                self.end_service()
            }
            Event::Act(rank) => {
                let clock = self.clock_of(rank);
                self.processes[rank].act(clock, &mut self.ledger)?;
                self.speak(rank)?;
                if self.processes[rank].has_ended() {
                    if rank == 0 {
                        return self.end_service();
                    }
                    let link = &mut self.links[rank];
                    let frames = link.up.frames.len();
                    link.up.end(now, frames);
                    link.down.clear();
                }
                Ok(())
            }
            Event::Tick(_) if self.lie == Some(Lie::ForgetsTimers) => Ok(()),
            Event::Tick(rank) => {
                let now = self.clock_of(rank).instant();
                if rank == 0 {
                    self.coordinator.tick(now);
                }
                let process = &mut self.processes[rank];
                process.member.tick(now);
                process.wake();
                self.speak(rank)
            }
            Event::Resume(rank) => {
                self.processes[rank].resume(now);
                // It was stopped and did not wait.
                let blocked = &mut self.processes[rank].blocked_since;
                *blocked = blocked.map(|_| now);
                if rank == 0 {
                    self.ledger.rank_0_goes_on(now);
                    self.coordinator.wake(self.clock_of(0).instant());
                    if self.serves() {
                        return self.serve();
                    }
                }
                Ok(())
            }
            Event::NoticeCut(rank, by_rank_0) => {
                let how = "its host does not answer any more";
                let link = &mut self.links[rank];
                link.noticed[usize::from(!by_rank_0)] = true;
                if by_rank_0 {
                    link.down.clear();
                    self.lose(index(rank), how);
                    self.serve()
                } else {
                    link.up.clear();
                    self.processes[rank].member.lost(how);
                    self.processes[rank].wake();
                    self.speak(rank)
                }
            }
            Event::EndOfService => {
                self.service = Service::Gone;
                for link in &mut self.links {
                    let frames = link.down.frames.len();
                    link.down.end(now, frames);
                    link.up.clear();
                }
                Ok(())
            }
        }
    }

    fn member_hears(&mut self, rank: usize) -> Checked {
        let now = self.clock_of(rank).instant();
        let process = &mut self.processes[rank];
        let Some((_, frame)) = self.links[rank].down.frames.pop_front() else {
            return Ok(());
        };
        let mut is_abort = false;
        match frame {
            Frame::Said(message) => {
                is_abort = matches!(message, ToMember::Call(CallReply::Abort { .. }));
                process.member.on_message(message, now);
            }
            Frame::End => process.member.lost("its connection closed"),
        }
        if is_abort && process.blocked_since.is_some() {
            // The calls that it still waits for may have had to wait for this one.
            process.blocked_since = Some(self.clock.now);
        }
        process.wake();
        self.speak(rank)?;
        let up = &self.links[rank].up;
        let answer = up.frames.back().map(|(_, frame)| frame);
        promise!(
            !is_abort
                || !up.open
                || matches!(
                    answer,
                    Some(Frame::Said(ToCoordinator::Call(
                        CallRequest::AbortSeen { .. }
                    )))
                ),
            "P3: rank {rank} does not say that it knows of the failure"
        );
        Ok(())
    }

    /// Lets rank 0's process say goodbye; it is about to end.
    fn end_service(&mut self) -> Checked {
        if !self.coordinator.is_gone() {
            self.ledger.abandoned = true;
        }
        self.coordinator.abandon();
        self.service = Service::LastFrames {
            until: self.clock.now + LAST_FRAMES,
        };
        self.serve()
    }

    /// Sends the messages of a member.
    fn speak(&mut self, rank: usize) -> Checked {
        if rank == 0 {
            return self.serve();
        }
        loop {
            let said = self.processes[rank].member.take_actions();
            if said.is_empty() {
                return Ok(());
            }
            for action in said {
                match action {
                    MemberAction::Send(message) => {
                        let link = &mut self.links[rank];
                        link.up.push(self.clock.now, Frame::Said(message));
                    }
                    MemberAction::Reclaim { channel, epoch } => {
                        self.ledger.removes(index(rank), (channel, epoch))?;
                    }
                    MemberAction::Look { number, neighbour } => {
                        self.look(rank, number, neighbour);
                    }
                    MemberAction::Warn(_) | MemberAction::Note(_) => {}
                }
            }
        }
    }

    /// Lets a member look at a process, and report the result.
    fn look(&mut self, rank: usize, number: u64, neighbour: Option<Neighbour>) {
        let who = neighbour.map_or(index(rank), |neighbour| neighbour.rank);
        let seen = Whereabouts::own(Vec::new(), Some(ThreadState::Running));
        self.processes[rank].member.seen(number, who, Some(seen));
    }

    fn lose(&mut self, rank: Rank, how: &str) {
        let coordinator = &self.coordinator;
        if !coordinator.is_gone() {
            let connected = |rank| coordinator.is_connected(rank);
            self.ledger.loses(rank, &connected);
        }
        self.coordinator.lost(rank, how);
    }

    fn coordinator_hears(&mut self, from: Rank, message: ToCoordinator) -> Checked {
        if self.coordinator.is_connected(from) && !self.coordinator.is_gone() {
            let coordinator = &self.coordinator;
            let connected = |rank| coordinator.is_connected(rank);
            self.ledger
                .coordinator_hears(from, &message, self.clock.now, &connected)?;
        }
        let now = self.clock_of(0).instant();
        let heard = match self.lie {
            None => vec![(from, message)],
            Some(lie) => lie.hears(from, message, self.processes.len()),
        };
        for (from, message) in heard {
            self.coordinator.on_message(from, message, now);
        }
        Ok(())
    }

    /// Carries out the actions of coordinator and member of rank 0, until there are no more.
    fn serve(&mut self) -> Checked {
        loop {
            self.carry_out()?;
            if let Some(message) = self.loopback.pop_front() {
                let now = self.clock_of(0).instant();
                let zero = &mut self.processes[0];
                zero.member.on_message(message, now);
                zero.wake();
                continue;
            }
            let said = self.processes[0].member.take_actions();
            if said.is_empty() {
                break;
            }
            for action in said {
                match action {
                    MemberAction::Send(message) => {
                        self.coordinator_hears(Rank::ZERO, message)?;
                        self.carry_out()?;
                    }
                    MemberAction::Reclaim { channel, epoch } => {
                        self.ledger.removes(Rank::ZERO, (channel, epoch))?;
                    }
                    MemberAction::Look { number, neighbour } => self.look(0, number, neighbour),
                    MemberAction::Warn(_) | MemberAction::Note(_) => {}
                }
            }
        }
        // In large worlds that takes long; `run_in_turn` checks it now and then.
        if self.processes.len() <= SMALL {
            self.check_rest()?;
        }
        Ok(())
    }

    /// Carries out what the coordinator has ordered.
    fn carry_out(&mut self) -> Checked {
        let now = self.clock.now;
        let mut ordered = self.coordinator.take_actions();
        if let Some(lie) = self.lie {
            ordered = lie.carries_out(ordered);
        }
        let coordinator = &self.coordinator;
        let connected = |rank| coordinator.is_connected(rank);
        for action in ordered {
            match action {
                Action::Send { to, message } => {
                    self.ledger
                        .coordinator_says(&to, &message, now, &connected)?;
                    let carried = self
                        .lie
                        .map_or(Some(message.clone()), |lie| lie.carries(message));
                    let Some(message) = carried else {
                        continue;
                    };
                    for rank in to {
                        if rank == Rank::ZERO {
                            self.loopback.push_back(message.clone());
                        } else if let Some(link) = self.links.get_mut(rank.index()) {
                            link.down.push(now, Frame::Said(message.clone()));
                        }
                    }
                }
                Action::ReclaimFor {
                    channel,
                    epoch,
                    owner,
                } => {
                    let call = (channel, epoch);
                    self.ledger.reclaims_for(call, owner, &connected)?;
                }
                Action::Warn(_) | Action::Note(_) => {}
            }
        }
        Ok(())
    }
}
