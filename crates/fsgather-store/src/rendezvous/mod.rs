//! Ranks find each other through files.
//!
//! - `file_backend`: records are left, found and kept: [`file_backend::FileBackend`].
//! - `record`: the bytes of one; pure: [`record::Record`].
//! - `record_file`: its file read, whoever has written it.
//! - `server_clock`: what time it is where records are: `ServerClock`.

pub(crate) mod file_backend;
pub(crate) mod record;
pub(crate) mod record_file;
mod server_clock;
