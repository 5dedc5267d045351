//! System calls: each kind has one file, its one owner.
//!
//! - `file`: open, write, sync, close.
//! - `directory`: `mkdir`, modes, touching.
//! - `listing`: `statx`, `readdir`, handles of directories.
//! - `reveal`: `rename`, `link`: [`reveal::PublishMode`].
//! - `remove`: `unlink`, `rmdir`.
//! - `filesystem`: `statfs`: kind and space of a file system: [`filesystem::FileSystem`].
//! - `mount`: the mount of a path: [`mount::Mount`].
//! - `process`: `/proc`: evidence that a process still runs: [`process::liveness`].
//! - `retry_budget`: sleeping, with a bound: [`retry_budget::RetryBudget`].

pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod filesystem;
pub(crate) mod listing;
pub(crate) mod mount;
pub(crate) mod process;
pub(crate) mod remove;
pub(crate) mod retry_budget;
pub(crate) mod reveal;
