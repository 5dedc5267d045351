//! The order in which ranks of a host read payloads for each other, and the time-outs for each: [`turns`] and
//! [`Patience`]. Pure.

use std::time::{Duration, Instant};

use fsgather_arena::MOST_READ;

use crate::payload::shared_memory::SMALLEST;

/// Time-out for a rank that has not begun to read its share for others.
const START_TIMEOUT: Duration = Duration::from_millis(50);

/// Time-out for a rank whose reading for others makes no progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The rank that reads a payload for all ranks of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The payload's place in the group.
    pub(crate) place: usize,
    /// The reader's place among the ranks of the host.
    pub(crate) reader: usize,
    /// The payload's number among those that the reader reads.
    pub(crate) number: usize,
}

/// Assigns payloads to `readers` ranks of a host; `lens` has the length of each payload that is in a file. All of these
/// ranks get the same result.
pub(crate) fn turns(lens: &[Option<u64>], readers: usize) -> Vec<Turn> {
    let worth_it = |(place, len): (usize, &Option<u64>)| {
        len.is_some_and(|len| len >= SMALLEST).then_some(place)
    };
    let places = lens.iter().enumerate().filter_map(worth_it);
    let turns = places.enumerate().map(|(index, place)| Turn {
        place,
        reader: index % readers.max(1),
        number: index / readers.max(1),
    });
    turns.take_while(|turn| turn.number < MOST_READ).collect()
}

/// The time for which this rank has seen no progress of others' reading.
pub(crate) struct Patience {
    /// By the ranks of the host: the last progress, and its time.
    seen: Vec<Option<(usize, u64, Instant)>>,
    began: Instant,
}

impl Patience {
    pub(crate) fn new(readers: usize, now: Instant) -> Self {
        Self {
            seen: vec![None; readers],
            began: now,
        }
    }

    /// Records that this many bytes of a payload have arrived.
    pub(crate) fn saw(&mut self, turn: &Turn, bytes: u64, now: Instant) {
        if let Some(seen) = self.seen.get_mut(turn.reader) {
            let is_news =
                seen.is_none_or(|(number, before, _)| (number, before) != (turn.number, bytes));
            if is_news {
                *seen = Some((turn.number, bytes, now));
            }
        }
    }

    /// Returns true if a rank has not begun in time, or has made no progress since.
    pub(crate) fn is_over(&self, turn: &Turn, now: Instant) -> bool {
        let seen = self.seen.get(turn.reader).copied().flatten();
        let (since, most) = match seen {
            Some((_, _, since)) => (since, STALL_TIMEOUT),
            // For payloads read before the first look, the time counts from that look.
            None if turn.number > 0 => (self.began, STALL_TIMEOUT),
            None => (self.began, START_TIMEOUT),
        };
        now.duration_since(since) >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_payload_in_a_file_is_read_by_one_and_all_read_as_many() {
        let long = Some(SMALLEST);
        let lens = [long, None, long, Some(SMALLEST - 1), long, long, long];
        let turn = |place, reader, number| Turn {
            place,
            reader,
            number,
        };
        let expected = [
            turn(0, 0, 0),
            turn(2, 1, 0),
            turn(4, 0, 1),
            turn(5, 1, 1),
            turn(6, 0, 2),
        ];
        assert_eq!(turns(&lens, 2), expected);
        assert_eq!(turns(&vec![long; 1000], 3).len(), 3 * MOST_READ);
        assert_eq!(turns(&lens, 0).len(), 5);
    }

    #[test]
    fn who_does_not_begin_is_waited_for_shorter_than_who_gets_on() {
        let mut patience = Patience::new(2, Instant::now());
        let turn = Turn {
            place: 3,
            reader: 1,
            number: 0,
        };
        let after = |time| patience.began + time;
        let (soon, later) = (after(START_TIMEOUT), after(STALL_TIMEOUT));
        assert!(!patience.is_over(&turn, after(START_TIMEOUT / 2)));
        assert!(patience.is_over(&turn, soon));
        patience.saw(&turn, 0, soon);
        patience.saw(&turn, 0, later);
        assert!(!patience.is_over(&turn, later));
        assert!(patience.is_over(&turn, soon + STALL_TIMEOUT));
        patience.saw(&turn, 1, later);
        assert!(!patience.is_over(&turn, soon + STALL_TIMEOUT));
        let next = Turn { number: 1, ..turn };
        assert!(!patience.is_over(&next, later));
        assert!(patience.is_over(&next, later + STALL_TIMEOUT));
    }
}
