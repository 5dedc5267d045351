//! Observes the calls of a rank. `fsgather run`, `ps` and `trace` show what it has seen.
//!
//! | module | contents |
//! |---|---|
//! | [`recording`] | records the calls of this rank, and keeps the last of them where others find them |
//! | [`progress`] | the progress of a rank with its calls, which it overwrites ten times a second |
//! | [`trace`] | the last calls of each rank: kept in a file, read, put on one time axis, and drawn |

pub mod progress;
pub mod recording;
pub mod trace;
