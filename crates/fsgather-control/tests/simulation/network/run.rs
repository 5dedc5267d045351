//! Runs of a world as its script determines: [`run`] tries one order of events, [`run_in_turn`] one that suits large worlds.

use std::collections::VecDeque;

use super::{Event, World};
use crate::{
    promises::{Broken, Checked, promise},
    script::{Fault, Script},
};

/// Maximum number of events: a run that reaches it never ends.
const MOST_EVENTS: usize = 50_000;

/// Runs a script until nothing can happen any more.
pub(crate) fn run(script: &Script) -> Result<World, Broken> {
    let mut run = Run::new(script)?;
    loop {
        for fault in std::mem::take(&mut run.faults) {
            if fault.event == run.events {
                run.inflict(fault)?;
            } else {
                run.faults.push(fault);
            }
        }
        let mut events = run.world.possible();
        events.extend(run.world.time_may_pass(&events));
        let Some(event) = run.choose(&events) else {
            break;
        };
        match event {
            Event::Time(_) => run.pass_time()?,
            event => run.world.happen(event)?,
        }
        run.events += 1;
        promise!(run.events < MOST_EVENTS, "P6: the world does not end");
    }
    run.world.finish()?;
    Ok(run.world)
}

/// Runs large worlds: everything that can happen happens in turn, and time passes last. Returns the number of events, too.
pub(crate) fn run_in_turn(script: &Script) -> Result<(World, usize), Broken> {
    let mut run = Run::new(script)?;
    loop {
        let events = run.world.possible();
        if events.is_empty() {
            match run.world.time_may_pass(&events) {
                Some(_) => run.pass_time()?,
                None => break,
            }
        }
        for event in events {
            // An event may have made another one impossible.
            run.world.happen(event)?;
            run.events += 1;
        }
        run.world.check_rest()?;
        while let Some(position) = run.faults.iter().position(|f| f.event <= run.events) {
            let fault = run.faults.swap_remove(position);
            run.inflict(fault)?;
        }
    }
    run.world.finish()?;
    Ok((run.world, run.events))
}

/// A world, and the order of events in its script.
struct Run {
    world: World,
    faults: Vec<Fault>,
    order: VecDeque<u8>,
    turns: usize,
    events: usize,
}

impl Run {
    fn new(script: &Script) -> Result<Self, Broken> {
        Ok(Self {
            world: World::new(script)?,
            faults: script.faults.clone(),
            order: script.order.iter().copied().collect(),
            turns: 0,
            events: 0,
        })
    }

    fn choose(&mut self, events: &[Event]) -> Option<Event> {
        if events.len() < 2 {
            return events.first().copied();
        }
        self.turns += 1;
        let choice = self.order.pop_front().map_or(self.turns, usize::from);
        events.get(choice % events.len()).copied()
    }

    fn pass_time(&mut self) -> Checked {
        let now = self.world.clock.now;
        let events = self.world.possible();
        let until = self.world.next_moment(&events).unwrap_or(now);
        // Not always as far as it may: in between, things happen at odd times.
        self.turns += 1;
        let until = if events.is_empty() || self.turns.is_multiple_of(2) {
            until
        } else {
            now + until.saturating_sub(now) / 3
        };
        self.world.happen(Event::Time(until))
    }

    fn inflict(&mut self, fault: Fault) -> Checked {
        let rank = fault.rank as usize;
        if self.world.may_come_to_harm(rank) {
            self.turns += 1;
            let turns = self.turns;
            let keep = |frames: usize| turns % (frames + 1);
            self.world.inflict(rank, fault.harm, keep)?;
        }
        Ok(())
    }
}
