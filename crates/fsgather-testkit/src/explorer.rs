//! Visits every state that is reachable from an initial one: [`explore`].
//!
//! The search is breadth first, so that a counterexample is a shortest one. States are recognized by a 128-bit hash of their `Debug` text,
//! which must include everything that later steps depend on; derived, it does. Each state is visited once, no matter how many paths lead to
//! it. A promise about a path, not about a state alone, must therefore be recorded in the state; then a path that breaks it cannot hide
//! behind one that does not.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{self, Write},
};

use fsgather_core::hash::Hash128;

/// A process that advances in steps, possibly with several to choose from.
pub trait Explored: Clone + fmt::Debug {
    /// A step.
    type Step: Copy + fmt::Debug;

    /// All steps that can happen next; none at the end.
    fn steps(&mut self) -> Vec<Self::Step>;

    /// Takes one of these steps.
    ///
    /// # Errors
    ///
    /// Returns the promise that the step breaks, and how.
    fn take(&mut self, step: Self::Step) -> Result<(), String>;

    /// Checks the promises that must hold at the end, and returns the labels of this end.
    ///
    /// # Errors
    ///
    /// Returns an error if a promise is broken.
    fn end(&self) -> Result<Vec<&'static str>, String>;
}

/// The statistics of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Number of states.
    pub states: usize,
    /// Number of transitions between states.
    pub transitions: usize,
    /// The length of the longest of all shortest paths.
    pub depth: usize,
    /// Number of final states with each label.
    pub ends: BTreeMap<&'static str, usize>,
}

impl Counts {
    /// Adds the counts of another exploration.
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

/// A broken promise, and the choices that lead to it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The broken promise, and how it is broken.
    pub broken: String,
    /// The index of the chosen step, each time.
    pub way: Vec<usize>,
}

/// Visits every state that is reachable from `first`, and checks that no state is reachable from itself: every run must end.
///
/// # Errors
///
/// Returns the first promise that is broken.
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
                // Computing the steps may record since when a step is possible, which is part of the state.
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

/// Replays one path: returns each step as text, and the final state.
///
/// # Errors
///
/// Returns the promise that the path breaks, or that there is no such path.
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
    // As in `explore`: computing the steps may change the state.
    let is_end = state.steps().is_empty();
    let end = if is_end { state.end() } else { Ok(Vec::new()) };
    (told, end.map(|_| state))
}

/// The states that were reached, by number.
#[derive(Default)]
struct Visits {
    known: HashMap<u128, usize>,
    /// The previous state of each, and the index of the step that first led to it.
    origins: Vec<(usize, usize)>,
    /// The numbers of the states that the steps of each visited state lead to.
    targets: Vec<Vec<usize>>,
    text: String,
}

impl Visits {
    /// Returns the number of a state, and whether it is new.
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

    /// A broken promise in a state, or in a step from there.
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

    /// Returns a state that is reachable from itself, if there is one: one that remains after states without a predecessor are removed
    /// until there is none.
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
    fn a_violation_is_found_by_a_shortest_followable_path() {
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
