//! Knows which hosts still show signs of life: [`Heartbeat`]. Pure.

use std::{
    collections::BTreeMap,
    ops::Bound,
    time::{Duration, Instant},
};

use fsgather_core::{Beat, Rank, read_message};

/// Interval at which a host shows that it is alive.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(5);

/// Time without anything new after which a host counts as lost.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Maximum part of the time between two looks that counts as silence: an observer that was stopped itself has not listened meanwhile.
const ATTENTION: Duration = Duration::from_secs(10);

/// Signs of life of one host.
#[derive(Clone, Debug)]
struct Host {
    /// The highest number that each of its ranks has shown.
    known: BTreeMap<Rank, u64>,
    looked: Instant,
    silent_for: Duration,
}

/// Minimum number of hosts that are checked in one turn.
const HOSTS_A_TURN: usize = 8;

/// Judges by the observer's own clock how long hosts have been silent.
#[derive(Clone, Debug, Default)]
pub(super) struct Heartbeat {
    hosts: BTreeMap<u64, Host>,
    /// The host that was looked at last.
    last: Option<u64>,
}

impl Heartbeat {
    /// Starts to listen to a host.
    pub(super) fn listen_to(&mut self, host: u64, now: Instant) {
        self.hosts.entry(host).or_insert_with(|| Host {
            known: BTreeMap::new(),
            looked: now,
            silent_for: Duration::ZERO,
        });
    }

    /// The hosts to check in this turn. Each is checked once within `turns`: a check costs several calls to the file server
    /// for each host.
    pub(super) fn next_hosts(&mut self, turns: usize) -> Vec<u64> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let hosts = self.hosts.range((after, Bound::Unbounded));
        let count = self.hosts.len().div_ceil(turns).max(HOSTS_A_TURN);
        let hosts: Vec<u64> = hosts
            .chain(&self.hosts)
            .take(count.min(self.hosts.len()))
            .map(|(host, _)| *host)
            .collect();
        self.last = hosts.last().copied();
        hosts
    }

    /// Time for which a host was silent when it was last checked.
    pub(super) fn silence_of(&self, host: u64) -> Duration {
        self.hosts
            .get(&host)
            .map_or(Duration::ZERO, |state| state.silent_for)
    }

    /// Records a host's signs of life, and returns for how long it has been silent now.
    pub(super) fn record(&mut self, host: u64, beats: &[Beat], now: Instant) -> Duration {
        let Some(state) = self.hosts.get_mut(&host) else {
            return Duration::ZERO;
        };
        let mut is_new = false;
        for beat in beats {
            let known = state.known.entry(beat.from).or_insert(0);
            is_new |= beat.number > *known;
            *known = beat.number.max(*known);
        }
        // Only a new sign proves something; a sign that has gone does not.
        if is_new {
            state.silent_for = Duration::ZERO;
        } else {
            let passed = now.saturating_duration_since(state.looked);
            state.silent_for += passed.min(ATTENTION);
        }
        state.looked = now;
        state.silent_for
    }
}

/// The turn of a rank to show that its host is alive: each rank waits a little longer than the one before it in the order
/// of the ranks of its host.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    timeout: Duration,
    shown: Option<Instant>,
}

impl Turn {
    /// The turn of the rank at `place` (from 0) among the ranks of its host.
    pub(super) fn new(place: usize) -> Self {
        let place = u32::try_from(place).unwrap_or(u32::MAX).min(16);
        let timeout = if place == 0 {
            BEAT_EVERY
        } else {
            BEAT_EVERY * 2 + Duration::from_secs(1) * place
        };
        Self {
            timeout,
            shown: None,
        }
    }

    /// Returns true if it is time to show a sign, when the host has been silent for `silent_for`.
    pub(super) fn is_due(&mut self, silent_for: Duration, now: Instant) -> bool {
        let own = self
            .shown
            .map_or(Duration::MAX, |shown| now.saturating_duration_since(shown));
        // A rank that has begun continues in its own rhythm; the others need not show signs then.
        let is_due = match self.shown {
            None if self.timeout == BEAT_EVERY => true,
            None => silent_for >= self.timeout,
            Some(_) => own >= BEAT_EVERY,
        };
        if is_due {
            self.shown = Some(now);
        }
        is_due
    }
}

/// Encodes a sign of life: the ranks of this host whose processes have ended.
pub(super) fn encode(gone: &[Rank]) -> Vec<u8> {
    // Encoding plain data into a growing vector cannot fail.
    postcard::to_stdvec(gone).unwrap_or_default()
}

/// Decodes a sign of life; unreadable bytes count as empty.
pub(super) fn decode(body: &[u8]) -> Vec<Rank> {
    read_message(body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(number: u64) -> Beat {
        Beat {
            from: Rank::new(4),
            number,
            body: Vec::new(),
        }
    }

    #[test]
    fn silence_is_counted_from_the_last_new_sign() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut heartbeat = Heartbeat::default();
        heartbeat.listen_to(7, start);
        assert_eq!(heartbeat.record(7, &[], at(5)), Duration::from_secs(5));
        assert_eq!(heartbeat.record(7, &[beat(1)], at(10)), Duration::ZERO);
        assert_eq!(
            heartbeat.record(7, &[beat(1)], at(15)),
            Duration::from_secs(5)
        );
        // An old sign that has gone, or comes back out of a cache, is nothing new.
        assert_eq!(heartbeat.record(7, &[], at(20)), Duration::from_secs(10));
        assert_eq!(
            heartbeat.record(7, &[beat(1)], at(25)),
            Duration::from_secs(15)
        );
        assert_eq!(
            heartbeat.record(7, &[beat(1), beat(2)], at(30)),
            Duration::ZERO
        );
    }

    #[test]
    fn every_host_has_its_turn_and_few_have_it_always() {
        let mut heartbeat = Heartbeat::default();
        for host in 0..100 {
            heartbeat.listen_to(host, Instant::now());
        }
        let mut seen: Vec<u64> = (0..5).flat_map(|_| heartbeat.next_hosts(5)).collect();
        assert_eq!(seen.len(), 100);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
        let mut few = Heartbeat::default();
        for host in 0..3 {
            few.listen_to(host, Instant::now());
        }
        for _ in 0..4 {
            let mut turn = few.next_hosts(5);
            turn.sort_unstable();
            assert_eq!(turn, [0, 1, 2]);
        }
    }

    #[test]
    fn an_observer_that_was_stopped_blames_nobody() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::default();
        heartbeat.listen_to(7, start);
        let woken = start + Duration::from_secs(1800);
        assert!(heartbeat.record(7, &[], woken) < SILENCE_LIMIT);
    }

    #[test]
    fn the_first_rank_of_a_host_shows_signs_and_others_take_over() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut first = Turn::new(0);
        assert!(first.is_due(Duration::ZERO, start));
        assert!(!first.is_due(Duration::ZERO, at(4)));
        assert!(first.is_due(Duration::ZERO, at(5)));
        let mut second = Turn::new(1);
        assert!(!second.is_due(Duration::from_secs(6), at(6)));
        assert!(second.is_due(Duration::from_secs(11), at(20)));
        assert!(!second.is_due(Duration::ZERO, at(21)));
        assert!(second.is_due(Duration::ZERO, at(25)));
    }

    #[test]
    fn those_who_are_gone_are_listed() {
        let gone = [Rank::new(3), Rank::new(9)];
        assert_eq!(decode(&encode(&gone)), gone);
        assert!(decode(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_empty());
    }
}
