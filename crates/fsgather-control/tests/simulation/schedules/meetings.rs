//! Every order of requests to join a small world: [`Gathering`].

use fsgather_testkit::explorer::Explored;

use crate::meeting::{Event, Run, Told};

/// A meeting, and how often each of these events can still happen.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    run: Run,
    left: Vec<(Event, u8)>,
}

impl Gathering {
    /// A world of `ranks` ranks, each of which asks up to `asks` times. A second process asks to be the last rank, and a
    /// process of a world of another size to be a rank, one connection ends in each way, and time passes up to `waits`
    /// times.
    pub(super) fn new(ranks: u32, asks: u8, waits: u8) -> Result<Self, String> {
        let last = ranks - 1;
        let ask = |rank, nonce| Event::Join {
            rank,
            nonce,
            told: Told::Same,
        };
        let of_another_world = Event::Join {
            rank: last,
            nonce: 1,
            told: Told::OfAnotherWorld,
        };
        let mut left: Vec<(Event, u8)> = (0..ranks).map(|rank| (ask(rank, 0), asks)).collect();
        left.extend([
            (ask(last, 1), 1),
            (of_another_world, 1),
            (Event::Closed(last), 1),
            (Event::Lost(last), 1),
            (Event::Rival(last), 1),
            (Event::Wait(4), waits),
            (Event::Wait(99), 1),
        ]);
        let run = Run::new(ranks).map_err(|broken| broken.to_string())?;
        Ok(Self { run, left })
    }
}

impl Explored for Gathering {
    type Step = Event;

    fn steps(&mut self) -> Vec<Event> {
        let left = self.left.iter().filter(|(_, left)| *left > 0);
        left.map(|(event, _)| *event).collect()
    }

    fn take(&mut self, step: Event) -> Result<(), String> {
        let left = self.left.iter_mut().find(|(event, _)| *event == step);
        if let Some((_, left)) = left {
            *left -= 1;
        }
        // After any events, the world works or reports why not.
        let taken = self
            .run
            .happen(step)
            .and_then(|()| self.run.clone().go_on());
        taken.map_err(|broken| broken.to_string())
    }

    fn end(&self) -> Result<Vec<&'static str>, String> {
        Ok(vec![self.run.ending()])
    }
}
