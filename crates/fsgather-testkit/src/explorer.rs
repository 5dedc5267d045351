//! Visits every state that can be reached from a first one: [`explore`].
//!
//! Breadth first, so that what is found is found by a shortest way. A state is known again by a hash, of 128 bits, of
//! its `Debug` text, which has to say everything that later steps depend on; derived, it does. Each state is visited
//! once, whatever ways lead to it. So what is to hold of a way, and not of a state alone, has to be noted in the
//! state; then no way that breaks a promise hides behind one that does not.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Write},
};

use fsgather_core::hash::Hash128;

/// Something that goes on in steps, of which there may be several to choose from.
pub trait Explored: Clone + fmt::Debug {
    /// One of them.
    type Step: Copy + fmt::Debug;

    /// All that can happen next; nothing at the end.
    fn steps(&mut self) -> Vec<Self::Step>;

    /// Lets one of it happen.
    ///
    /// # Errors
    ///
    /// When that breaks a promise: which, and how.
    fn take(&mut self, step: Self::Step) -> Result<(), String>;

    /// Checks what must hold at the end, and says what the end is an example of.
    ///
    /// # Errors
    ///
    /// When a promise is broken.
    fn end(&self) -> Result<Vec<&'static str>, String>;
}

/// What an exploration has come to.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Number of states.
    pub states: usize,
    /// Number of steps from one to another.
    pub transitions: usize,
    /// The longest of all shortest ways.
    pub depth: usize,
    /// How many final states are an example of what.
    pub ends: BTreeMap<&'static str, usize>,
}

impl Counts {
    /// Adds those of another exploration.
    pub fn add(&mut self, other: &Self) {
        self.states += other.states;
        self.transitions += other.transitions;
        self.depth = self.depth.max(other.depth);
        for (end, states) in &other.ends {
            *self.ends.entry(end).or_default() += states;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states,
            transitions,
            depth,
            ends,
        } = self;
        write!(
            f,
            "{states} states, {transitions} transitions, at most {depth} deep; ends:"
        )?;
        let mut ends = ends.iter();
        ends.try_for_each(|(end, states)| write!(f, " {states} {end},"))
    }
}

/// A promise that was not kept, and the choices that lead there.
#[derive(Clone, Debug)]
pub struct Found {
    /// Which promise, and how.
    pub broken: String,
    /// Which of the possible steps was taken, each time.
    pub way: Vec<usize>,
}

/// Visits every state that can be reached from `first`, and checks that none can be reached again from itself: what
/// happens has to come to an end.
///
/// # Errors
///
/// The first promise that is not kept.
pub fn explore<S: Explored>(mut first: S) -> Result<Counts, Found> {
    let mut visits = Visits::default();
    let mut counts = Counts::default();
    let steps = first.steps();
    visits.enter(&first, (0, 0));
    let mut layer = vec![(first, steps)];
    while !layer.is_empty() {
        let mut next = Vec::new();
        for (state, steps) in layer {
            let number = visits.targets.len();
            if steps.is_empty() {
                let ends = state.end();
                for end in ends.map_err(|broken| visits.found(broken, number, None))? {
                    *counts.ends.entry(end).or_default() += 1;
                }
            }
            let mut targets = Vec::with_capacity(steps.len());
            for (choice, step) in steps.into_iter().enumerate() {
                let mut after = state.clone();
                let taken = after.take(step);
                taken.map_err(|broken| visits.found(broken, number, Some(choice)))?;
                // It may note since when something is possible, which belongs to the state.
                let steps = after.steps();
                let (target, is_new) = visits.enter(&after, (number, choice));
                targets.push(target);
                if is_new {
                    next.push((after, steps));
                }
            }
            counts.transitions += targets.len();
            visits.targets.push(targets);
        }
        counts.depth += usize::from(!next.is_empty());
        layer = next;
    }
    counts.states = visits.targets.len();
    match visits.first_on_a_cycle() {
        None => Ok(counts),
        Some(number) => {
            let broken = "what happens here can happen again for ever".into();
            Err(visits.found(broken, number, None))
        }
    }
}

/// Goes one way again: each step as text, and the state that it ends in.
///
/// # Errors
///
/// What a promise on the way is broken by, and when there is no such way.
pub fn follow<S: Explored>(mut state: S, way: &[usize]) -> (String, Result<S, String>) {
    let mut told = String::new();
    for choice in way {
        let steps = state.steps();
        let Some(step) = steps.get(*choice).copied() else {
            let broken = format!("there is no step {choice} of {}", steps.len());
            return (told, Err(broken));
        };
        // Writing to a string cannot fail.
        let _ = writeln!(told, "  {step:?}");
        if let Err(broken) = state.take(step) {
            return (told, Err(broken));
        }
    }
    // As for who explores.
    let is_end = state.steps().is_empty();
    let end = if is_end { state.end() } else { Ok(Vec::new()) };
    (told, end.map(|_| state))
}

/// What is known of the states that were come to; each has a number.
#[derive(Default)]
struct Visits {
    known: HashMap<u128, usize>,
    /// From which state each was first come to, and by which of the steps there.
    origins: Vec<(usize, usize)>,
    /// Where the steps of each state lead that was visited.
    targets: Vec<Vec<usize>>,
    text: String,
}

impl Visits {
    /// The number of a state, and whether it is new.
    fn enter(&mut self, state: &impl fmt::Debug, origin: (usize, usize)) -> (usize, bool) {
        self.text.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{state:?}");
        let digest = Hash128::of(self.text.as_bytes());
        let next = self.origins.len();
        let number = *self.known.entry(digest).or_insert(next);
        if number == next {
            self.origins.push(origin);
        }
        (number, number == next)
    }

    /// What was found in a state, or by a choice there.
    fn found(&self, broken: String, mut number: usize, choice: Option<usize>) -> Found {
        let mut way: Vec<usize> = choice.into_iter().collect();
        while number > 0 {
            let (from, choice) = self.origins[number];
            way.push(choice);
            number = from;
        }
        way.reverse();
        Found { broken, way }
    }

    /// A state that can be come to again from itself, if there is one: one that is left when all to which nothing
    /// leads are taken away, again and again.
    fn first_on_a_cycle(&self) -> Option<usize> {
        let mut leading = vec![0_usize; self.targets.len()];
        for target in self.targets.iter().flatten() {
            leading[*target] += 1;
        }
        let mut free: Vec<usize> = (0..leading.len()).filter(|n| leading[*n] == 0).collect();
        while let Some(number) = free.pop() {
            for target in &self.targets[number] {
                leading[*target] -= 1;
                if leading[*target] == 0 {
                    free.push(*target);
                }
            }
        }
        leading.iter().position(|leading| *leading > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up by 1 or 2 to 5, and may go back from `back`.
    #[derive(Clone, Debug)]
    struct Counter {
        at: usize,
        forbidden: usize,
        back: usize,
    }

    impl Explored for Counter {
        type Step = usize;

        fn steps(&mut self) -> Vec<usize> {
            match self.at {
                5.. => Vec::new(),
                at if at == self.back => vec![at + 1, 0],
                at => vec![at + 1, at + 2],
            }
        }

        fn take(&mut self, step: usize) -> Result<(), String> {
            self.at = step;
            if step == self.forbidden {
                return Err("forbidden".into());
            }
            Ok(())
        }

        fn end(&self) -> Result<Vec<&'static str>, String> {
            match self.at {
                5 => Ok(vec!["five"]),
                6 => Ok(vec!["six"]),
                at => Err(format!("{at} is no end")),
            }
        }
    }

    fn counter(forbidden: usize, back: usize) -> Counter {
        Counter {
            at: 0,
            forbidden,
            back,
        }
    }

    #[test]
    fn every_state_and_every_step_is_counted_once() {
        let counts = explore(counter(9, 9)).unwrap();
        assert_eq!(
            (counts.states, counts.transitions, counts.depth),
            (7, 10, 3)
        );
        assert_eq!(counts.ends, BTreeMap::from([("five", 1), ("six", 1)]));
    }

    #[test]
    fn what_is_broken_is_found_by_a_shortest_way_that_can_be_followed() {
        let found = explore(counter(4, 9)).unwrap_err();
        assert_eq!(
            (found.broken.as_str(), found.way.as_slice()),
            ("forbidden", &[1, 1][..])
        );
        let (told, followed) = follow(counter(4, 9), &found.way);
        assert_eq!(told, "  2\n  4\n");
        assert_eq!(followed.unwrap_err(), "forbidden");
        assert_eq!(follow(counter(9, 9), &[1, 1]).1.unwrap().at, 4);
    }

    #[test]
    fn what_may_go_on_for_ever_is_found() {
        let found = explore(counter(9, 3)).unwrap_err();
        assert_eq!(found.broken, "what happens here can happen again for ever");
        assert!(found.way.is_empty(), "{:?}", found.way);
    }
}
