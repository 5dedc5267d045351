//! Observes the calls of a rank, for people and for ranks that wait for it. `fsgather run`, `ps` and `trace` show it.
//!
//! | module | holds |
//! |---|---|
//! | [`call_log`] | the calls under way, for reports and for the log |
//! | [`progress`] | the progress of a rank with its calls, which it overwrites ten times a second |
//! | [`stacks`] | the functions and system call of a thread of this process, for ranks that wait for it |
//! | [`trace`] | the last calls of each rank: kept in a file, read, put on one time axis, and drawn |

pub mod call_log;
pub mod progress;
pub mod stacks;
pub mod trace;
