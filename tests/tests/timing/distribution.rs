//! Samples of one measurement: [`Distribution`].

use std::{fmt, time::Duration};

/// Sorted samples.
pub(crate) struct Distribution(Vec<Duration>);

impl Distribution {
    pub(crate) fn new(mut samples: Vec<Duration>) -> Self {
        assert!(!samples.is_empty(), "no samples");
        samples.sort();
        Self(samples)
    }

    /// The smallest sample that at least `percent` of all samples do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0[rank - 1]
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}", self.0.len())?;
        for percent in [50, 90, 99, 100] {
            write!(f, " {:>7.3}", self.percentile(percent).as_secs_f64())?;
        }
        Ok(())
    }
}
