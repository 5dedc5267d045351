//! The exchange over marker files, with places in memory that keep no more promises than they must.
//!
//! Messages arrive late, in another order for each reader and twice; some are seen only after their writer has tended them;
//! sends fail, with and without effect. Faults are drawn from seeds, which failures name.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a check reports by panicking"
)]

mod bed;
mod calls;
mod departures;
mod joining;
mod losses;
mod onlooking;
