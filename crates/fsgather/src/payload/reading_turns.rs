//! The order in which ranks of a host read payloads for each other, and how long each is waited for: [`turns`] and [`Patience`].
//! Pure.

use std::time::{Duration, Instant};

use fsgather_arena::MOST_READ;

use crate::payload::shared_memory::SMALLEST;

/// Time for which a rank is waited for that has not begun to read what it is to read for others.
const BEGUN_WITHIN: Duration = Duration::from_millis(50);

/// Time for which nothing may come of what a rank reads for others.
const STANDS_STILL: Duration = Duration::from_secs(1);

/// Who reads a payload for all ranks of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The payload's place in the group.
    pub(crate) place: usize,
    /// The reader's place among the ranks of the host,
    pub(crate) reader: usize,
    /// and the payload's number among those that it reads.
    pub(crate) number: usize,
}

/// Who of so many ranks of a host reads what, where `lens` says how long each payload is that lies in a file; the same on all
/// of them.
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

/// How long this rank has seen nothing come of what others read.
pub(crate) struct Patience {
    /// By the ranks of the host: what was seen last, and since when.
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

    /// Notes that so many bytes of a payload have come.
    pub(crate) fn saw(&mut self, turn: &Turn, bytes: u64, now: Instant) {
        if let Some(seen) = self.seen.get_mut(turn.reader) {
            let is_news =
                seen.is_none_or(|(number, before, _)| (number, before) != (turn.number, bytes));
            if is_news {
                *seen = Some((turn.number, bytes, now));
            }
        }
    }

    /// Whether a rank has not begun in time, or has not got on since.
    pub(crate) fn is_over(&self, turn: &Turn, now: Instant) -> bool {
        let seen = self.seen.get(turn.reader).copied().flatten();
        let (since, most) = match seen {
            Some((_, _, since)) => (since, STANDS_STILL),
            // What was read before it was looked at begins with the first look.
            None if turn.number > 0 => (self.began, STANDS_STILL),
            None => (self.began, BEGUN_WITHIN),
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
        let (soon, later) = (after(BEGUN_WITHIN), after(STANDS_STILL));
        assert!(!patience.is_over(&turn, after(BEGUN_WITHIN / 2)));
        assert!(patience.is_over(&turn, soon));
        patience.saw(&turn, 0, soon);
        patience.saw(&turn, 0, later);
        assert!(!patience.is_over(&turn, later));
        assert!(patience.is_over(&turn, soon + STANDS_STILL));
        patience.saw(&turn, 1, later);
        assert!(!patience.is_over(&turn, soon + STANDS_STILL));
        let next = Turn { number: 1, ..turn };
        assert!(!patience.is_over(&next, later));
        assert!(patience.is_over(&next, later + STANDS_STILL));
    }
}
