//! Observes the calls of a rank, for `fsgather run`, `ps` and `trace`.
//!
//! | module | contents |
//! |---|---|
//! | [`recording`] | records the calls of this rank, and keeps the last of them for other processes |
//! | [`progress`] | the progress of a rank with its calls, which it overwrites ten times a second |
//! | [`trace`] | the last calls of each rank: kept in a file, read, put on one time axis, and drawn |

pub mod progress;
pub mod recording;
pub mod trace;
