//! The arrivals of one exchange: [`Round`].

use std::time::{Duration, Instant};

use fsgather_core::{
    Call, Contribution, Deadline, FIRST_WARNING, Leaves, Operation, warning_after,
};

/// An exchange that is not decided yet.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// One place for each member, with the call that it has made.
    arrivals: Vec<Option<(Call, Contribution)>>,
    /// Number of members that have contributed.
    arrived: usize,
    /// Place of the member that contributed last.
    last: Option<usize>,
    pub(super) clock: Clock,
    /// Time-out for ranks that give none.
    default: Duration,
    /// The longest time-out of the members that have contributed.
    timeout: Duration,
    /// True if their time-outs differ, so that some would wait less long than the round lasts.
    is_uneven: bool,
}

/// Time since which nothing has moved, and the reports about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) last_progress: Instant,
    pub(super) last_notice: Instant,
    pub(super) next_warning: Duration,
    /// Lead time with which the members that are waited for are asked what they are doing, if they are asked.
    lead: Option<Duration>,
    /// True if they were asked for the next report.
    has_looked: bool,
    /// Time until which all missing members have worked, so that the time-out counts from there.
    signs: Option<Instant>,
}

/// An action that has become due on a [`Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing has moved for the whole time-out.
    Late,
    /// Nothing has moved for this long: the user should know which ranks are waited for.
    Warning(Duration),
    /// Waiting members should learn that rank 0 is alive: something has moved, or they expect an answer earlier than others do.
    Notice,
}

impl Clock {
    pub(super) const fn started(now: Instant, lead: Option<Duration>) -> Self {
        Self {
            last_progress: now,
            last_notice: now,
            next_warning: FIRST_WARNING,
            lead,
            has_looked: false,
            signs: None,
        }
    }

    /// Restarts the time-out because something has moved.
    pub(super) fn moved(&mut self, now: Instant) {
        self.last_progress = now;
        self.next_warning = FIRST_WARNING;
        self.has_looked = false;
    }

    /// Starts the time-out at `sign`, if that is later: all missing members have shown a sign of work.
    pub(super) fn extend(&mut self, sign: Instant) {
        self.signs = Some(sign);
        self.has_looked = false;
    }

    /// The end of the time-out.
    fn late_at(&self, timeout: Duration) -> Instant {
        let from = self
            .signs
            .map_or(self.last_progress, |sign| sign.max(self.last_progress));
        Deadline::after(from, timeout).at()
    }

    /// Returns the time until the end of the time-out, if the sign of work that is given counts as well.
    pub(super) fn left(&self, timeout: Duration, sign: Option<Instant>, now: Instant) -> Duration {
        let mut clock = *self;
        clock.signs = clock.signs.max(sign);
        clock.late_at(timeout).saturating_duration_since(now)
    }

    /// The time of the next warning, or of the end.
    fn said_at(&self, timeout: Duration) -> Instant {
        self.late_at(timeout)
            .min(self.last_progress + self.next_warning)
    }

    /// Time at which the members that are waited for are asked what they are doing, unless they were.
    fn look_at(&self, timeout: Duration) -> Option<Instant> {
        let said_at = self.said_at(timeout);
        let idle = said_at.saturating_duration_since(self.last_progress);
        let lead = self.lead.filter(|_| !self.has_looked)?;
        said_at.checked_sub(lead.min(idle / 2))
    }

    /// Returns true, once, if it is time to ask the members that are waited for what they are doing.
    pub(super) fn take_look(&mut self, timeout: Duration, now: Instant) -> bool {
        let is_due = self.look_at(timeout).is_some_and(|at| at <= now);
        self.has_looked |= is_due;
        is_due
    }

    /// Returns true if a warning about the time without progress is due.
    pub(super) fn is_idle(&self, timeout: Duration, now: Instant) -> bool {
        self.said_at(timeout) <= now
    }

    /// Restarts the time-out at `then`, if that is later than the last progress.
    pub(super) fn moved_at_last(&mut self, then: Instant) {
        if then > self.last_progress {
            self.moved(then);
        }
    }

    /// Returns the action that is due now; a warning or notice is due once. With `always`, waiting members also learn that
    /// rank 0 is alive when nothing moves.
    pub(super) fn take_due(
        &mut self,
        timeout: Duration,
        always: bool,
        now: Instant,
    ) -> Option<Due> {
        let idle = now.saturating_duration_since(self.last_progress);
        if self.late_at(timeout) <= now {
            return Some(Due::Late);
        }
        if idle >= self.next_warning {
            self.next_warning = warning_after(self.next_warning);
            self.has_looked = false;
            return Some(Due::Warning(idle));
        }
        let silence = now.saturating_duration_since(self.last_notice);
        if (always || self.last_progress > self.last_notice) && silence >= NOTICE_EVERY {
            self.last_notice = now;
            return Some(Due::Notice);
        }
        None
    }

    /// Time of the next action.
    pub(super) fn next_due(&self, timeout: Duration, always: bool) -> Instant {
        let due = self.look_at(timeout);
        let due = due.unwrap_or_else(|| self.said_at(timeout));
        if always || self.last_progress > self.last_notice {
            due.min(self.last_notice + NOTICE_EVERY)
        } else {
            due
        }
    }
}

/// Minimum interval between notices to waiting members that another rank made progress.
pub(super) const NOTICE_EVERY: Duration = Duration::from_secs(2);

impl Round {
    /// A round without contributions; `timeout` applies to ranks that give none.
    pub(super) fn new(
        members: usize,
        timeout: Duration,
        lead: Option<Duration>,
        now: Instant,
    ) -> Self {
        Self {
            arrivals: vec![None; members],
            arrived: 0,
            last: None,
            clock: Clock::started(now, lead),
            default: timeout,
            timeout,
            is_uneven: false,
        }
    }

    /// Time without progress after which the round fails.
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns true if a rank has given it a time-out of its own.
    pub(super) fn has_own_timeout(&self) -> bool {
        self.timeout != self.default
    }

    /// Returns true, once, if it is time to ask the members that are waited for what they are doing.
    pub(super) fn take_look(&mut self, now: Instant) -> bool {
        self.clock.take_look(self.timeout, now)
    }

    /// Returns the action that is due now; a warning or notice is due once.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        self.clock.take_due(self.timeout, self.is_uneven, now)
    }

    /// Time of the next action.
    pub(super) fn next_due(&self) -> Instant {
        self.clock.next_due(self.timeout, self.is_uneven)
    }

    /// The first call that arrived, to which the others are compared, and the place of its member.
    pub(super) fn first(&self) -> Option<(usize, &Call)> {
        let mut arrivals = self.arrivals.iter().enumerate();
        arrivals.find_map(|(place, arrival)| Some((place, &arrival.as_ref()?.0)))
    }

    /// The call that the member at a place has made.
    pub(super) fn call_of(&self, place: usize) -> Option<&Call> {
        Some(&self.arrivals.get(place)?.as_ref()?.0)
    }

    pub(super) fn has(&self, place: usize) -> bool {
        self.arrivals.get(place).is_some_and(Option::is_some)
    }

    /// Keeps a contribution; a second one of the same member is dropped.
    pub(super) fn arrive(
        &mut self,
        place: usize,
        call: Call,
        contribution: Contribution,
        now: Instant,
    ) {
        if let Some(free @ None) = self.arrivals.get_mut(place) {
            let timeout = call.timeout.unwrap_or(self.default);
            if self.arrived == 0 {
                self.timeout = timeout;
            } else {
                self.is_uneven |= self.timeout != timeout;
                self.timeout = self.timeout.max(timeout);
            }
            *free = Some((call, contribution));
            self.arrived += 1;
            self.last = Some(place);
            self.clock.moved(now);
        }
    }

    /// Place of the member that contributed last.
    pub(super) const fn last(&self) -> Option<usize> {
        self.last
    }

    /// Number of members that have contributed.
    pub(super) const fn arrived(&self) -> usize {
        self.arrived
    }

    pub(super) fn is_complete(&self) -> bool {
        self.arrived == self.arrivals.len()
    }

    /// Places of the members that have published payloads, and their kinds.
    pub(super) fn left(&self) -> impl Iterator<Item = (usize, Leaves)> + '_ {
        let arrivals = self.arrivals.iter().enumerate();
        arrivals
            .filter_map(|(place, arrival)| Some((place, arrival.as_ref()?.1.leaves)))
            .filter(|(_, leaves)| leaves.is_published())
    }

    /// Returns true if it ends its communicator, which needs more than that all members arrive.
    pub(super) fn is_end(&self) -> bool {
        self.first()
            .is_some_and(|(_, call)| call.operation == Operation::Close)
    }

    /// Places of the members that have not contributed yet.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.arrivals.len()).filter(|place| !self.has(*place))
    }

    /// Places of the members that have contributed and wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.arrivals.len()).filter(|place| self.has(*place))
    }

    /// All contributions in the order of places.
    pub(super) fn into_arrivals(self) -> Vec<(Call, Contribution)> {
        self.arrivals.into_iter().flatten().collect()
    }
}
