//! Measures one operation on one rank: [`Measurement`].

use std::time::{Duration, Instant};

use fsgather::Communicator;
use serde::{Deserialize, Serialize};

use super::{library::Library, operation::Operation, resources};
use crate::failure::Failure;

/// Time for which an operation is measured if the number of iterations is not given.
const MEASURING_TIME: Duration = Duration::from_secs(2);

/// The minimum and the maximum number of iterations in that case.
const ITERATIONS: (u32, u32) = (10, 1000);

/// Number of barriers in a row.
const BARRIERS_IN_A_ROW: u32 = 10;

/// The measurements of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Series {
    /// Duration of each iteration, in nanoseconds.
    pub(super) nanoseconds: Vec<u64>,
    /// Peak memory meanwhile, in bytes.
    pub(super) peak: u64,
}

/// One operation, and the world that performs it.
pub(super) struct Measurement<'a> {
    pub(super) world: &'a Communicator,
    pub(super) operation: Operation,
    /// True if payloads are too large to travel inline.
    pub(super) is_large: bool,
}

impl Measurement<'_> {
    /// Measures `iterations`, or as many as time allows.
    ///
    /// # Errors
    ///
    /// Returns the errors of the calls.
    pub(super) fn run(
        &self,
        library: &Library<'_>,
        iterations: Option<u32>,
    ) -> Result<Series, Failure> {
        let warm_ups = if self.is_large {
            2
        } else {
            2 * BARRIERS_IN_A_ROW
        };
        let started = Instant::now();
        self.rows(library, warm_ups)?;
        let iterations = match iterations {
            Some(iterations) => iterations,
            // Rank 0 measures the time.
            None => self
                .world
                .broadcast(&affordable(started.elapsed() / warm_ups), 0)?,
        };
        self.rows(library, iterations)
    }

    fn rows(&self, library: &Library<'_>, iterations: u32) -> Result<Series, Failure> {
        let mut series = Series::default();
        let row = if self.operation.has_payload() {
            1
        } else {
            BARRIERS_IN_A_ROW
        };
        let mut left = iterations;
        while left > 0 {
            let count = left.min(row);
            self.row(library, count, &mut series)?;
            left -= count;
        }
        Ok(series)
    }

    fn row(&self, library: &Library<'_>, count: u32, series: &mut Series) -> Result<(), Failure> {
        resources::forget_peak();
        self.line_up()?;
        if !self.operation.has_payload() {
            // The first call in a row waits for ranks that are still in the previous call.
            library.perform(self.operation)?;
        }
        for _ in 0..count {
            let started = Instant::now();
            library.perform(self.operation)?;
            let took = started.elapsed().as_nanos();
            series
                .nanoseconds
                .push(u64::try_from(took).unwrap_or(u64::MAX));
        }
        series.peak = series.peak.max(resources::peak()?);
        Ok(())
    }

    /// Waits until all ranks are here and have finished their earlier work.
    fn line_up(&self) -> Result<(), Failure> {
        if self.is_large {
            self.world.barrier()?;
            // Files are removed in the background.
            resources::come_to_rest();
        }
        Ok(self.world.barrier()?)
    }
}

/// Number of iterations that time allows, if one takes this long.
fn affordable(one: Duration) -> u32 {
    let (least, most) = ITERATIONS;
    let count = MEASURING_TIME.as_nanos() / one.as_nanos().max(1);
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
        assert_eq!(affordable(Duration::from_secs(60)), 10);
    }
}
