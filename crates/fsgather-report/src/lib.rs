//! Tells whoever has started a rank how far it has come, and with what it has failed.
//!
//! `fsgather run` gives its ranks two files without a name; ranks write to those and to no others, and `run` reads them.
//! The library writes, the command and the Python package read and write too, so that all three share this crate.
//!
//! | module | holds |
//! |---|---|
//! | [`call_log`] | the calls under way, for reports and for the log |
//! | [`progress`] | how far a rank has come with its calls, written over ten times a second |
//! | [`last_error`] | the last error of a rank, appended |

pub mod call_log;
pub mod last_error;
pub mod progress;

mod file_of_run;
