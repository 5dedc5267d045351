//! The thread that carries messages and looks for new ones: [`Poller`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{
    BackgroundThreads, Error, Mailbox, Peer, ProcessId, Rank, StorageCause, sys::clock,
};

use super::{
    heartbeat::{self, Heartbeat, SILENCE_LIMIT, Turn},
    node::FileNode,
    outbox::{Outbox, SEND_AGAIN},
    poll_interval::PollInterval,
    retry_window::RetryWindow,
};
use crate::join::config::IsRunning;

/// Interval between searches for signs of life, and the number of such turns in which every host is checked.
const LISTEN_EVERY: Duration = Duration::from_secs(1);
const TURNS: usize = 5;

/// Interval at which rank 0 looks for processes from hosts that have never written.
const NEWCOMERS_EVERY: Duration = Duration::from_secs(1);

/// Carries the messages of one rank; owns all calls that may hang.
pub(super) struct Poller {
    node: Arc<FileNode>,
    mailbox: Arc<dyn Mailbox>,
    /// This rank and its process.
    me: Peer,
    is_running: Arc<IsRunning>,
    hosts: Option<Hosts>,
    /// Turn of rank 0 while the world forms: no other rank is known then.
    forming_turn: Turn,
    pace: PollInterval,
    outbox: Outbox,
    receiving: RetryWindow,
    /// True if last messages of other ranks are waited for.
    has_suspects: bool,
    newcomers_at: Instant,
    listen_at: Instant,
}

/// The processes of all ranks by host, and the heartbeats of their hosts.
struct Hosts {
    processes: Vec<ProcessId>,
    own_host: u64,
    heartbeat: Heartbeat,
    turn: Turn,
}

impl Hosts {
    fn new(rank: Rank, processes: Vec<ProcessId>, now: Instant) -> Self {
        let own_host = processes.get(rank.index()).map_or(0, ProcessId::host_label);
        let before_us = processes
            .iter()
            .take(rank.index())
            .filter(|process| process.host_label() == own_host)
            .count();
        let mut heartbeat = Heartbeat::default();
        heartbeat.listen_to(own_host, now);
        // Rank 0 listens to all ranks, the others only to rank 0.
        let heard = if rank == Rank::ZERO {
            processes.len()
        } else {
            1
        };
        for process in processes.iter().take(heard) {
            heartbeat.listen_to(process.host_label(), now);
        }
        Self {
            own_host,
            heartbeat,
            turn: Turn::new(before_us),
            processes,
        }
    }

    fn on(&self, host: u64) -> impl Iterator<Item = (Rank, &ProcessId)> {
        (0..)
            .map(Rank::new)
            .zip(&self.processes)
            .filter(move |(_, process)| process.host_label() == host)
    }
}

impl Poller {
    /// A poller for this rank; `processes` are known to members from the start, and `outbox` has the messages that they
    /// have still to leave.
    pub(super) fn new(
        node: Arc<FileNode>,
        (mailbox, outbox): (Arc<dyn Mailbox>, Outbox),
        me: Peer,
        processes: Option<Vec<ProcessId>>,
        is_running: Arc<IsRunning>,
    ) -> Self {
        let now = clock::now();
        let (shortest, longest) = mailbox.pace();
        Self {
            node,
            mailbox,
            hosts: processes.map(|processes| Hosts::new(me.rank, processes, now)),
            me,
            is_running,
            forming_turn: Turn::new(0),
            pace: PollInterval::new(shortest, longest, now),
            outbox,
            receiving: RetryWindow::default(),
            has_suspects: false,
            newcomers_at: now,
            listen_at: now,
        }
    }

    /// Works until the node stops it. After a panic the poller continues once, since no other thread can carry the report
    /// to the other ranks.
    pub(super) fn run(mut self, threads: &BackgroundThreads, name: &str) {
        let mut work = || threads.guard(name, || self.carry());
        if work().or_else(work).is_none() {
            self.node.cut_off();
        }
        self.node.stopped();
    }

    fn carry(&mut self) {
        let how = loop {
            let round = self.node.start_round();
            if !round.outgoing.is_empty() {
                self.pace.moved(clock::now());
                self.outbox.put(round.outgoing);
            }
            self.send();
            let has_suspects = self.node.has_suspects();
            if has_suspects && !self.has_suspects {
                self.pace.moved(clock::now());
            }
            self.has_suspects = has_suspects;
            if has_suspects || round.coordinator_ended || !round.ended.is_empty() {
                self.mailbox.look_around();
            }
            self.receive();
            // Messages that they have left before are read now, or soon: the poller looks often meanwhile.
            for rank in &round.ended {
                self.report(*rank, true);
                self.pace.moved(clock::now());
            }
            if round.coordinator_ended {
                self.announce_the_end_of_rank_0();
                // Messages that it has left before are read now.
                self.node
                    .act(|member, _| member.lost("its process has ended"));
            }
            self.listen();
            if let Some(how) = round.stopping
                && self.outbox.may_be_left(clock::now())
            {
                break how;
            }
            let pause = self.pace.pause(clock::now());
            let pause = if self.outbox.is_failing() {
                pause.max(SEND_AGAIN)
            } else {
                pause
            };
            self.node.wait_to_carry(pause, round.stopping.is_some());
        };
        self.mailbox.retire(how);
    }

    /// Leaves the messages of the outbox.
    fn send(&mut self) {
        if let Err(error) = self.outbox.send(&*self.mailbox, clock::now()) {
            // The others learn the cause, unless the failure never passes. Here at least it is clear.
            self.fail(&error);
        }
        if self.outbox.is_empty() {
            self.node.landed();
        }
    }

    fn receive(&mut self) {
        let now = clock::now();
        let forming = self.me.rank == Rank::ZERO && self.hosts.is_none();
        let newcomers = forming || (self.me.rank == Rank::ZERO && now >= self.newcomers_at);
        if newcomers {
            self.newcomers_at = now + NEWCOMERS_EVERY;
        }
        match self.mailbox.receive(newcomers) {
            Ok(found) => {
                self.receiving.well();
                if !found.is_empty() {
                    self.pace.moved(clock::now());
                }
                let discard = self.node.receive(found);
                self.mailbox.discard(discard.up_to, &discard.keep);
                if !discard.is_answered {
                    self.mailbox.tend();
                }
            }
            Err(error) if self.receiving.tolerates(&error, now) => {
                tracing::debug!("cannot look for messages yet: {error}");
            }
            Err(error) => self.fail(&error),
        }
        if forming && let Some(processes) = self.node.formed() {
            self.hosts = Some(Hosts::new(self.me.rank, processes, now));
        }
    }

    /// Looks for signs of life of others, and shows one if it is this rank's turn.
    fn listen(&mut self) {
        let now = clock::now();
        if now < self.listen_at {
            return;
        }
        self.listen_at = now + LISTEN_EVERY;
        let Some(hosts) = &mut self.hosts else {
            self.look_after_the_joined();
            // Joining ranks look for signs of rank 0.
            if self.forming_turn.is_due(Duration::ZERO, now) {
                self.show(&[]);
            }
            return;
        };
        let mut silent_here = hosts.heartbeat.silence_of(hosts.own_host);
        let mut news = Vec::new();
        for host in hosts.heartbeat.next_hosts(TURNS) {
            let beats = self.mailbox.beats(host).unwrap_or_else(|error| {
                tracing::debug!("cannot look for signs of life: {error}");
                Vec::new()
            });
            let silent_for = hosts.heartbeat.record(host, &beats, now);
            if host == hosts.own_host {
                silent_here = silent_for;
            }
            let gone: Vec<Rank> = beats
                .iter()
                .flat_map(|beat| heartbeat::decode(&beat.body))
                .collect();
            let is_lost = silent_for >= SILENCE_LIMIT && host != hosts.own_host;
            for (rank, _) in hosts.on(host) {
                if is_lost {
                    news.push((rank, false));
                } else if gone.contains(&rank) {
                    news.push((rank, true));
                }
            }
        }
        let is_turn = hosts.turn.is_due(silent_here, now);
        // A rank without a turn only has to watch rank 0.
        let is_asked = |rank: Rank| is_turn || self.me.rank == Rank::ZERO || rank == Rank::ZERO;
        let gone: Vec<Rank> = hosts
            .on(hosts.own_host)
            .filter(|(rank, process)| is_asked(*rank) && !(self.is_running)(process))
            .map(|(rank, _)| rank)
            .collect();
        if is_turn {
            self.show(&gone);
        }
        news.extend(gone.into_iter().map(|rank| (rank, true)));
        if self.me.rank == Rank::ZERO && !news.is_empty() {
            // Last messages may have been left since.
            self.mailbox.look_around();
            self.receive();
            self.pace.moved(clock::now());
        }
        for (rank, has_ended) in news {
            self.report(rank, has_ended);
        }
    }

    /// While the world forms, rank 0 sees for itself which ranks of its host have ended. It learns of ranks of other hosts
    /// once all have joined.
    fn look_after_the_joined(&self) {
        let joined = self.node.joined();
        for (rank, _) in joined
            .into_iter()
            .filter(|(_, process)| !(self.is_running)(process))
        {
            self.report(rank, true);
        }
    }

    /// Announces to members on other hosts that rank 0's process, on this host, has ended: if this rank ends next, there
    /// are no more signs of life.
    fn announce_the_end_of_rank_0(&self) {
        let is_here = self.hosts.as_ref().is_some_and(|hosts| {
            let mut here = hosts.on(hosts.own_host);
            here.any(|(rank, _)| rank == Rank::ZERO)
        });
        if is_here && self.me.rank != Rank::ZERO {
            self.show(&[Rank::ZERO]);
        }
    }

    /// Reports a rank that has ended, or whose host shows no sign of life.
    fn report(&self, rank: Rank, has_ended: bool) {
        let silent = || {
            format!(
                "its host has shown no sign of life for {}",
                fsgather_core::duration_text(SILENCE_LIMIT)
            )
        };
        if self.me.rank == Rank::ZERO {
            self.node.coordinate(|coordinator, now| {
                if has_ended {
                    coordinator.suspect(rank, now);
                } else {
                    coordinator.lost(rank, &silent());
                }
            });
        } else if rank == Rank::ZERO {
            if has_ended {
                self.node.coordinator_ended();
            } else {
                self.node.act(|member, _| member.lost(&silent()));
            }
        }
    }

    fn show(&self, gone: &[Rank]) {
        if let Err(error) = self.mailbox.beat(&heartbeat::encode(gone)) {
            tracing::debug!("cannot show a sign of life: {error}");
        }
    }

    /// Ends everything on this rank, and if possible on all: messages cannot be moved.
    fn fail(&self, error: &Error) {
        let cause = match error {
            Error::Storage { .. } => error.clone(),
            other => Error::storage(
                "exchange messages through",
                self.mailbox.place(),
                StorageCause::described(other.to_string()),
            ),
        };
        let doing = self.node.act(|member, _| member.doing());
        let cause = cause.raised_by(&self.me, doing);
        self.node.cut_off();
        self.node.coordinate(|coordinator, _| {
            if !coordinator.is_open() {
                coordinator.give_up(&cause);
            }
        });
        self.node.act(|member, _| member.interrupt(&cause));
    }
}
