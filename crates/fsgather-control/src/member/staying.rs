//! A rank that makes no more calls and stays until its payloads have been read: [`Staying`].

use std::time::{Duration, Instant};

use fsgather_core::{Peer, WaitEnd, duration_text};

/// Time after which this rank first reports for which readers it stays: a process that does not end is a riddle.
const FIRST_WARNING: Duration = Duration::from_secs(5);

/// Interval between these reports.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// Maximum number of readers that a message names.
const NAMED: usize = 8;

/// The readers for which a rank stays, and the time limit.
#[derive(Clone, Debug)]
pub(super) struct Staying {
    /// Ranks that have still to read; not known at first.
    by: Option<Vec<Peer>>,
    since: Instant,
    /// Time at which a reader last made progress, as far as is known.
    moved: Instant,
    timeout: Duration,
    next_warning: Instant,
    is_over: bool,
}

impl Staying {
    /// Stays for the readers that rank 0 is going to name, for at most `timeout` without progress.
    pub(super) fn new(timeout: Duration, now: Instant) -> Self {
        Self {
            by: None,
            since: now,
            moved: now,
            timeout,
            next_warning: now + FIRST_WARNING,
            is_over: false,
        }
    }

    /// Time since which this rank stays.
    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// Takes rank 0's list of ranks that have still to read; it sends one if that has changed or a reader made progress.
    pub(super) fn needed(&mut self, by: Vec<Peer>, now: Instant) {
        self.by = Some(by);
        self.moved = now;
    }

    /// Returns true if a rank has still to read, or that is not known yet.
    pub(super) fn is_needed(&self) -> bool {
        !self.is_over && self.by.as_ref().is_none_or(|by| !by.is_empty())
    }

    /// Lets time pass, and returns a message for the user, if one is due.
    pub(super) fn tick(&mut self, now: Instant) -> Option<String> {
        if !self.is_needed() {
            return None;
        }
        if self.end().is_some_and(|end| now >= end) {
            self.is_over = true;
            let timeout = duration_text(self.timeout);
            return Some(if self.by.is_some() {
                self.ends_although(&format!("no progress for {timeout}"))
            } else {
                self.ends_although(&format!("nothing was heard for {timeout}"))
            });
        }
        if now < self.next_warning {
            return None;
        }
        self.next_warning = now + WARN_EVERY;
        let readers = self.readers();
        let readers = readers.unwrap_or_else(|| "rank 0 has said that all have".into());
        Some(format!(
            "this process stays, for {} now, until {readers} read what was handed over{}",
            duration_text(now.saturating_duration_since(self.since)),
            self.end().map_or_else(String::new, |end| {
                let left = WaitEnd::UnlessMoved(end.saturating_duration_since(now));
                format!("; {left}")
            })
        ))
    }

    /// Ends the stay because the user wants this process to end, and returns a message for the user.
    pub(super) fn interrupt(&mut self, why: &str) -> Option<String> {
        let is_needed = self.is_needed();
        self.is_over = true;
        is_needed.then(|| self.ends_although(why))
    }

    fn ends_although(&self, why: &str) -> String {
        match self.readers() {
            Some(readers) => {
                format!("this process ends although {readers} not read what was handed over; {why}")
            }
            None => format!(
                "this process ends although rank 0 has not said who has still to read what was handed over; {why}"
            ),
        }
    }

    /// Time at which [`tick`](Self::tick) has something to do.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let due = [self.next_warning].into_iter().chain(self.end()).min();
        due.filter(|_| self.is_needed())
    }

    /// Time at which the stay ends in any case; `None` if that is out of range.
    fn end(&self) -> Option<Instant> {
        self.moved.checked_add(self.timeout)
    }

    /// The ranks that have still to read, and the verb that fits; `None` if they are not known.
    fn readers(&self) -> Option<String> {
        let by = self.by.as_deref()?;
        let named: Vec<String> = by.iter().take(NAMED).map(Peer::to_string).collect();
        let more = match by.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let verb = if by.len() == 1 { "has" } else { "have" };
        Some(format!("{}{more} {verb}", named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::Rank;

    use super::*;

    fn peer(rank: u32) -> Peer {
        Peer {
            rank: Rank::new(rank),
            host: "n7".into(),
            pid: 40 + rank,
        }
    }

    const TIME_LIMIT: Duration = Duration::from_secs(100);

    #[test]
    fn it_is_over_once_nobody_reads_or_nothing_moves_for_too_long() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut staying = Staying::new(TIME_LIMIT, start);
        assert!(staying.is_needed(), "rank 0 has not answered yet");
        staying.needed(vec![peer(1)], after(1));
        assert!(staying.is_needed());
        staying.needed(Vec::new(), after(2));
        assert!(!staying.is_needed());
        assert_eq!(staying.next_tick(), None);

        let mut staying = Staying::new(TIME_LIMIT, start);
        staying.needed(vec![peer(1), peer(2)], after(60));
        assert!(
            staying
                .tick(after(159))
                .is_some_and(|said| said.contains("stays, for 2 min 39 s"))
        );
        assert!(staying.is_needed());
        let said = staying.tick(after(160)).unwrap();
        assert_eq!(
            said,
            "this process ends although rank 1 on n7 (pid 41), rank 2 on n7 (pid 42) have not read what was \
             handed over; no progress for 1 min 40 s"
        );
        assert!(!staying.is_needed());
    }

    #[test]
    fn who_has_it_end_is_told_for_whom_it_has_stayed() {
        let start = Instant::now();
        let mut staying = Staying::new(TIME_LIMIT, start);
        staying.needed(vec![peer(1)], start);
        let said = staying.interrupt("ended by SIGTERM");
        assert_eq!(
            said.as_deref(),
            Some(
                "this process ends although rank 1 on n7 (pid 41) has not read what was handed over; ended by SIGTERM"
            )
        );
        assert!(!staying.is_needed());
        assert_eq!(staying.interrupt("again"), None);
    }

    #[test]
    fn awaited_readers_are_named_after_5_s_and_every_30_s() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut staying = Staying::new(TIME_LIMIT, start);
        staying.needed(vec![peer(1)], start);
        let mut said = Vec::new();
        let mut at = start;
        while let Some(due) = staying.next_tick().filter(|due| *due < after(70)) {
            at = at.max(due);
            said.push((at - start, staying.tick(at).unwrap()));
        }
        let times: Vec<u64> = said.iter().map(|(at, _)| at.as_secs()).collect();
        assert_eq!(times, [5, 35, 65]);
        assert_eq!(
            said[0].1,
            "this process stays, for 5 s now, until rank 1 on n7 (pid 41) has read what was handed over; times out in 1 min 35 s unless something moves"
        );
    }
}
