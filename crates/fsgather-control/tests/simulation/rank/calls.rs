//! Makes the calls of a simulated rank, step by step.

use std::mem;

use bytes::Bytes;
use fsgather_core::{Activity, Call, Contribution, Error, Leaves, Operation, Phase, Rank, Round};

use super::{
    Clock, FAILURE_LIMIT, Process, REPORT_EVERY, raised, site,
    work::{Current, Doing, Work},
};
use crate::{
    program::Slot,
    promises::{Broken, Checked, Ledger},
    script::{Verb, What},
};

impl Process {
    /// Starts a call, if there is a channel for it.
    pub(super) fn begin(
        &mut self,
        verb: Verb,
        what: Option<What>,
        slot: Slot,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Result<Option<Current>, Broken> {
        let Some((channel, own, size)) = self.place(slot) else {
            return Ok(None);
        };
        let leaves = |bits: u8, left| match bits >> (self.rank.get() % 8) & 1 {
            1 => left,
            _ => Leaves::Nothing,
        };
        let call = |operation| Call::new(operation, site(self.rank));
        // Only one rank needs the further rounds; all take part in them.
        let needs_rounds = own == Rank::ZERO || own.get() + 1 == size;
        let kept = |bits| leaves(bits, Leaves::WithOwner);
        let (call, leaves, sends, rounds) = match verb.within(size) {
            Verb::Broadcast(root) => (
                call(Operation::Broadcast).with_root(Rank::new(root)),
                Leaves::Nothing,
                root == own.get(),
                0,
            ),
            Verb::AllGather {
                leaves: bits,
                rounds,
            }
            | Verb::Start {
                leaves: bits,
                rounds,
            } => {
                let leaves = leaves(bits, Leaves::ForOwner);
                (call(Operation::AllGather), leaves, true, rounds)
            }
            Verb::Gather {
                root,
                leaves: bits,
                by_owner,
            } => {
                let left = if by_owner {
                    Leaves::ForOwner
                } else {
                    Leaves::ForReader
                };
                let call = call(Operation::Gather).with_root(Rank::new(root));
                (call, leaves(bits, left), true, 0)
            }
            Verb::Keep { root, leaves } => {
                let call = match root {
                    None => call(Operation::AllGather),
                    Some(root) => call(Operation::Gather).with_root(Rank::new(root)),
                };
                (call, kept(leaves), true, 0)
            }
            Verb::StartKeeping { leaves } => (call(Operation::AllGather), kept(leaves), true, 0),
            Verb::EndGroup => (call(Operation::Close), Leaves::Nothing, false, 0),
            _ => (call(Operation::Barrier), Leaves::Nothing, false, 0),
        };
        match self.member.begin(channel, call) {
            Ok(ticket) => Ok(Some(Current {
                ticket,
                round: 0,
                further_rounds: if needs_rounds { rounds.into() } else { 0 },
                leaves,
                sends,
                what,
                acknowledge: false,
            })),
            Err(failure) => {
                self.failed(channel, None, &failure, clock, ledger)?;
                Ok(None)
            }
        }
    }

    pub(super) fn call(
        &mut self,
        verb: Verb,
        what: Option<What>,
        slot: Slot,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Checked {
        let Some(current) = self.begin(verb, what, slot, clock, ledger)? else {
            return Ok(());
        };
        match what {
            Some(What::Fail) => {
                self.report_failure(current, Phase::Publishing, false, clock);
                Ok(())
            }
            Some(What::Slow { seconds, moving }) => {
                self.doing = Doing::Publishing(current, Work::new(seconds, moving, clock));
                Ok(())
            }
            _ => self.contribute(current, clock, ledger),
        }
    }

    pub(super) fn contribute(
        &mut self,
        current: Current,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Checked {
        if self.hand_in(&current, clock, ledger)? {
            self.doing = Doing::Waiting(current);
        }
        Ok(())
    }

    /// Returns true if the contribution is on its way.
    pub(super) fn hand_in(
        &mut self,
        current: &Current,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Result<bool, Broken> {
        let first = current.round == 0;
        let text = format!(
            "{} in {} round {}",
            self.rank, current.ticket, current.round
        );
        let contribution = Contribution {
            body: if current.sends {
                Bytes::from(text)
            } else {
                Bytes::new()
            },
            leaves: if first {
                current.leaves
            } else {
                Leaves::Nothing
            },
            further_rounds: if first { current.further_rounds } else { 0 },
        };
        let handed_in = self.member.contribute(
            &current.ticket,
            Round::new(current.round),
            contribution.clone(),
            clock.instant(),
        );
        match handed_in {
            Ok(()) => {
                ledger.hands_in(
                    self.rank,
                    current.step(),
                    &current.ticket.call,
                    contribution,
                )?;
                Ok(true)
            }
            Err(failure) => {
                let channel = current.ticket.channel;
                self.failed(channel, Some(current.step()), &failure, clock, ledger)?;
                Ok(false)
            }
        }
    }

    pub(super) fn look_for_verdict(
        &mut self,
        mut current: Current,
        clock: Clock,
        ledger: &mut Ledger,
    ) -> Checked {
        match self.member.take_verdict(current.step()) {
            None => self.doing = Doing::Waiting(current),
            Some(Err(failure)) => {
                let channel = current.ticket.channel;
                self.failed(channel, Some(current.step()), &failure, clock, ledger)?;
            }
            Some(Ok(verdict)) => {
                ledger.learns(self.rank, current.step(), &verdict)?;
                current.go_on(&verdict);
                if current.round < current.further_rounds {
                    current.round += 1;
                    return self.contribute(current, clock, ledger);
                }
                match current.what {
                    Some(What::FailReading) => {
                        self.report_failure(current, Phase::Reading, true, clock);
                    }
                    Some(What::SlowReading { seconds, moving }) => {
                        self.doing = Doing::Reading(current, Work::new(seconds, moving, clock));
                    }
                    _ => self.finish_reading(&current, clock, ledger),
                }
            }
        }
        Ok(())
    }

    pub(super) fn finish_reading(&mut self, current: &Current, clock: Clock, ledger: &mut Ledger) {
        if current.acknowledge {
            self.member
                .done(current.ticket.channel, current.ticket.epoch);
        }
        if current.ticket.call.operation == Operation::Close {
            self.drop_channel(current.ticket.channel, clock, ledger);
        }
        self.doing = Doing::Idle;
    }

    pub(super) fn report_failure(
        &mut self,
        current: Current,
        phase: Phase,
        decided: bool,
        clock: Clock,
    ) {
        let cause = raised(self.rank);
        let channel = current.ticket.channel;
        if self.member.failure(channel).is_none() {
            let doing = current.ticket.activity(phase);
            self.member.fail(channel, cause.clone(), doing);
        }
        self.awake = true;
        self.doing = Doing::Failing {
            current,
            decided,
            cause,
            until: clock.now + FAILURE_LIMIT,
        };
    }

    /// Continues the work, and returns the rest of it, or the failure that makes it useless.
    pub(super) fn work(
        &mut self,
        current: &Current,
        mut work: Work,
        clock: Clock,
    ) -> Result<Option<Work>, Error> {
        if clock.now >= work.until {
            return Ok(None);
        }
        work.reports += 1;
        work.next_report = clock.now + REPORT_EVERY;
        // Without bytes, only another activity is worth a message; so it reports another one every time.
        let (phase, bytes) = match (work.moving, work.reports % 2) {
            (true, _) => (Phase::Publishing, 1 << 20),
            (false, 0) => (Phase::Publishing, 0),
            (false, _) => (Phase::Reading, 0),
        };
        let doing: Activity = current.ticket.activity(phase);
        self.member
            .progress(current.ticket.channel, doing, bytes, None, clock.instant())?;
        Ok(Some(work))
    }

    /// Drops the calls that it has started, except those in which it has more to hand over.
    pub(super) fn abandon(&mut self, clock: Clock, ledger: &mut Ledger) {
        for current in mem::take(&mut self.pending) {
            if current.further_rounds > 0 {
                self.pending.push(current);
                continue;
            }
            ledger.abandons(self.rank, &current.ticket);
            self.member
                .abandon(&current.ticket, raised(self.rank), clock.instant());
        }
    }
}
