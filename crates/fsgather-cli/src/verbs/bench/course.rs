//! The course of a measurement: [`Measurement`], what one rank does to measure one operation.

use std::time::{Duration, Instant};

use fsgather::Communicator;
use serde::{Deserialize, Serialize};

use super::{
    floor::Star,
    operation::{Operation, Subject},
    resources,
};
use crate::failure::Failure;

/// How long an operation is measured when nobody says how often.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// How often then at least and at most.
const OFTEN_ENOUGH: (u32, u32) = (10, 1000);

/// How many barriers come in a row before the other subject has its turn.
const ROW: u32 = 10;

/// What one rank has measured of one subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Series {
    /// How long each iteration took, in nanoseconds.
    pub(super) nanoseconds: Vec<u64>,
    /// The most memory that was held meanwhile, in bytes.
    pub(super) peak: u64,
}

/// What is measured, and where the ranks line up for it.
pub(super) struct Measurement<'a> {
    pub(super) world: &'a Communicator,
    /// Where ranks start together; not the library's barrier, which could favour one of the subjects.
    pub(super) star: &'a Star,
    pub(super) operation: Operation,
    /// Whether payloads are too large to travel inline.
    pub(super) is_large: bool,
}

impl Measurement<'_> {
    /// Measures subjects that take turns; `iterations` of each, or as many as there is time for.
    ///
    /// # Errors
    ///
    /// When one of them fails.
    pub(super) fn run(
        &self,
        subjects: &mut [&mut dyn Subject],
        iterations: Option<u32>,
    ) -> Result<Vec<Series>, Failure> {
        let warm_ups = if self.is_large { 2 } else { 2 * ROW };
        let started = Instant::now();
        self.turns(subjects, warm_ups)?;
        let iterations = match iterations {
            Some(iterations) => iterations,
            // Rank 0's clock counts.
            None => self
                .world
                .broadcast(&affordable(started.elapsed() / warm_ups), 0)?,
        };
        self.turns(subjects, iterations)
    }

    fn turns(
        &self,
        subjects: &mut [&mut dyn Subject],
        iterations: u32,
    ) -> Result<Vec<Series>, Failure> {
        let mut measured = vec![Series::default(); subjects.len()];
        let at_once = if self.operation.has_payload() { 1 } else { ROW };
        let mut left = iterations;
        while left > 0 {
            let count = left.min(at_once);
            for (subject, series) in subjects.iter_mut().zip(&mut measured) {
                self.turn(*subject, count, series)?;
            }
            left -= count;
        }
        Ok(measured)
    }

    fn turn(
        &self,
        subject: &mut dyn Subject,
        count: u32,
        series: &mut Series,
    ) -> Result<(), Failure> {
        resources::forget_peak();
        self.line_up()?;
        if !self.operation.has_payload() {
            // The first in a row waits for ranks that have not left what was before.
            subject.perform(self.operation)?;
        }
        for _ in 0..count {
            let started = Instant::now();
            subject.perform(self.operation)?;
            let took = started.elapsed().as_nanos();
            series
                .nanoseconds
                .push(u64::try_from(took).unwrap_or(u64::MAX));
            if self.operation.has_payload() {
                subject.tidy_up()?;
            }
        }
        series.peak = series.peak.max(resources::peak()?);
        Ok(())
    }

    /// Waits until all ranks are here, and nothing is left to be done from what was before.
    fn line_up(&self) -> Result<(), Failure> {
        // Lets the library do what is left, and fails if a rank was lost in the other subject's turn.
        self.world.barrier()?;
        if self.is_large {
            // Files of what was before are removed in the background.
            resources::come_to_rest();
        }
        self.star
            .barrier()
            .map_err(Failure::system("line up with the other ranks"))
    }
}

/// How many iterations there is time for, if one takes this long.
fn affordable(one: Duration) -> u32 {
    let (least, most) = OFTEN_ENOUGH;
    let count = LONG_ENOUGH.as_nanos() / one.as_nanos().max(1);
    u32::try_from(count).unwrap_or(most).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_iterations_as_there_is_time_for() {
        assert_eq!(affordable(Duration::ZERO), 1000);
        assert_eq!(affordable(Duration::from_micros(100)), 1000);
        assert_eq!(affordable(Duration::from_millis(100)), 20);
        assert_eq!(affordable(Duration::from_mins(1)), 10);
    }
}
