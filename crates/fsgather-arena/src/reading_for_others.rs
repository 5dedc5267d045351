//! Payloads that a rank reads for the others of its host: [`ReadingForOthers`].

use std::sync::Arc;

use fsgather_core::{CallId, lock};

use crate::{arena::Arena, shelf::ReadSoFar};

/// A call whose payloads this rank reads for others, until this is dropped: [`Arena::read_for_others`].
#[derive(Debug)]
pub struct ReadingForOthers {
    arena: Arc<Arena>,
    call: CallId,
    /// Index of the shelf.
    index: usize,
}

impl Arena {
    /// Begins to read payloads of a call for others. Returns `None` if this rank already reads for others in the maximum number
    /// of calls.
    #[must_use]
    pub fn read_for_others(self: &Arc<Self>, call: CallId) -> Option<ReadingForOthers> {
        let index = lock(&self.idle_shelves).0.pop_front()?;
        Some(ReadingForOthers {
            arena: Arc::clone(self),
            call,
            index,
        })
    }
}

impl ReadingForOthers {
    /// Announces how far this rank is with the payload of this number in its share.
    pub fn say(&mut self, number: usize, so_far: ReadSoFar) {
        let ledger = &self.arena.ledger;
        ledger.shelf(self.index).say(self.call, number, so_far);
    }
}

impl Drop for ReadingForOthers {
    fn drop(&mut self) {
        lock(&self.arena.idle_shelves).0.push_back(self.index);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use fsgather_core::Rank;

    use super::*;
    use crate::{
        Arenas,
        location::Location,
        meeting::tests::met,
        shelf::tests::{call, location},
    };

    /// Returns the second rank's view of a payload that the first one reads for it.
    fn look(all: &[Arc<Arenas>], call: CallId, number: usize) -> Option<ReadSoFar> {
        all[1].look_for(Rank::ZERO, call, number)
    }

    /// The slowest rank of a group looks for a payload while the fastest already reads those of other groups.
    #[test]
    fn what_is_said_of_a_call_stays_while_later_ones_are_read() {
        let all = met(2);
        let read = |channel, slot| {
            let mut reading = all[0].own().read_for_others(call(channel, 1)).unwrap();
            reading.say(0, ReadSoFar::Whole(location(slot)));
            reading
        };
        drop(read(1, 1));
        let at_once: Vec<_> = (2..9).map(|channel| read(channel, 2)).collect();
        assert_eq!(
            look(&all, call(1, 1), 0),
            Some(ReadSoFar::Whole(location(1)))
        );
        let last = read(9, 3);
        assert_eq!(look(&all, call(1, 1), 0), None);
        let in_vain = all[0].own().read_for_others(call(10, 1));
        assert!(in_vain.is_none(), "all of them are being read");
        for channel in 2..9 {
            let found = look(&all, call(channel, 1), 0);
            assert_eq!(found, Some(ReadSoFar::Whole(location(2))));
        }
        drop((at_once, last));
        drop(read(10, 4));
        assert_eq!(
            look(&all, call(10, 1), 0),
            Some(ReadSoFar::Whole(location(4)))
        );
    }

    /// Only these words say where in the arena a payload begins.
    #[test]
    fn calls_that_are_read_at_once_are_told_apart() {
        const CALLS: u64 = 20_000;
        let all = met(2);
        let place = |channel: u64, epoch: u64| Location {
            slot: u32::try_from(channel).unwrap(),
            generation: epoch,
            start: channel << 40 | epoch,
            len: 3,
        };
        let read = |channel| {
            for epoch in (1..4).cycle().take(usize::try_from(CALLS).unwrap()) {
                let mut reading = all[0].own().read_for_others(call(channel, epoch)).unwrap();
                reading.say(0, ReadSoFar::Comes(1));
                reading.say(0, ReadSoFar::Whole(place(channel, epoch)));
            }
        };
        thread::scope(|scope| {
            let readers = [5, 6].map(|channel| scope.spawn(move || read(channel)));
            while !readers.iter().all(thread::ScopedJoinHandle::is_finished) {
                for (channel, epoch) in [5, 6]
                    .into_iter()
                    .flat_map(|channel| (1..4).map(move |epoch| (channel, epoch)))
                {
                    let found = look(&all, call(channel, epoch), 0);
                    let right = [ReadSoFar::Comes(1), ReadSoFar::Whole(place(channel, epoch))];
                    assert!(
                        found.is_none_or(|found| right.contains(&found)),
                        "{found:?}"
                    );
                }
            }
        });
    }
}
