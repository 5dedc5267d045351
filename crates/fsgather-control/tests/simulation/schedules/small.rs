//! A small world whose schedules are all tried: [`Small`].

use std::fmt;

use fsgather_testkit::explorer::Explored;

use crate::{
    network::{Event, Lie, World},
    promises::Broken,
    script::{Harm, Line, Script, Twist},
};

/// A trial: a program, the deviations of its ranks, and the possible faults.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    pub(super) ranks: u32,
    pub(super) program: Vec<Line>,
    pub(super) twists: Vec<Twist>,
    /// Faults that may happen to a rank, at any moment.
    pub(super) harms: &'static [Harm],
    /// Maximum number of faults.
    pub(super) misfortunes: u8,
    /// Maximum number of times that time passes although another event could happen before.
    pub(super) delays: u8,
    pub(super) lie: Option<Lie>,
}

impl Trial {
    fn script(&self) -> Script {
        Script {
            ranks: self.ranks,
            program: self.program.clone(),
            twists: self.twists.clone(),
            faults: Vec::new(),
            order: Vec::new(),
        }
    }

    pub(super) fn begin(&self) -> Result<Small, Broken> {
        let mut world = World::new(&self.script())?;
        world.lie = self.lie;
        Ok(Small {
            world,
            harms: self.harms,
            misfortunes: self.misfortunes,
            delays: self.delays,
            // Without both no rank may fail.
            is_peaceful: self.twists.is_empty() && self.misfortunes == 0,
        })
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            harms,
            misfortunes,
            delays,
            ..
        } = self;
        let script = format!("{:?}", self.script());
        let program = script.lines().take_while(|line| !line.contains("order"));
        let program: Vec<&str> = program.map(str::trim).collect();
        write!(
            f,
            "{}; {misfortunes} of {harms:?}, {delays} delays",
            program.join("; ")
        )
    }
}

/// Its state.
#[derive(Clone, Debug)]
pub(super) struct Small {
    pub(super) world: World,
    harms: &'static [Harm],
    misfortunes: u8,
    delays: u8,
    is_peaceful: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Happens(Event),
    /// Time passes although another event could happen.
    Delay(Event),
    /// `kept` is the number of frames on their way that arrive.
    Harm {
        rank: usize,
        harm: Harm,
        kept: usize,
    },
}

impl Explored for Small {
    type Step = Step;

    fn steps(&mut self) -> Vec<Step> {
        let events = self.world.possible();
        let time = self.world.time_may_pass(&events);
        let mut steps: Vec<Step> = events.iter().copied().map(Step::Happens).collect();
        match time {
            Some(time) if events.is_empty() => steps.push(Step::Happens(time)),
            Some(time) if self.delays > 0 => steps.push(Step::Delay(time)),
            _ => {}
        }
        let harms = if self.misfortunes > 0 {
            self.harms
        } else {
            &[]
        };
        for rank in (0..self.world.ranks()).filter(|rank| self.world.may_come_to_harm(*rank)) {
            for harm in harms.iter().copied() {
                let ways = self.world.ways_to_harm(rank, harm);
                steps.extend((0..ways).map(|kept| Step::Harm { rank, harm, kept }));
            }
        }
        steps
    }

    fn take(&mut self, step: Step) -> Result<(), String> {
        let world = &mut self.world;
        let taken = match step {
            Step::Happens(event) => world.happen(event),
            Step::Delay(event) => {
                self.delays -= 1;
                world.happen(event)
            }
            Step::Harm {
                rank,
                harm,
                mut kept,
            } => {
                self.misfortunes -= 1;
                // A number in which each lane has a digit.
                let keep = |frames| {
                    let digit = kept % (frames + 1);
                    kept /= frames + 1;
                    digit
                };
                world.inflict(rank, harm, keep)
            }
        };
        let checked = taken.and_then(|()| self.world.is_in_bounds());
        checked.map_err(|broken| broken.to_string())
    }

    fn end(&self) -> Result<Vec<&'static str>, String> {
        self.world.finish().map_err(|broken| broken.to_string())?;
        let ledger = &self.world.ledger;
        let ends = ledger.endings();
        if self.is_peaceful && !ends.contains(&"good") {
            return Err(format!(
                "P5: nothing has happened to anybody, and the end is {ends:?}: {:?}",
                ledger.abort()
            ));
        }
        Ok(ends)
    }
}
