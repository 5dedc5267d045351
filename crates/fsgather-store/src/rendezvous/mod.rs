//! Ranks find each other through files.
//!
//! - `file_backend`: records are left, found and kept: [`file_backend::FileBackend`].
//! - `foreign_names`: those of other users: `ForeignNames`.
//! - `left`: when a refusal was left; pure: `Left`.
//! - `record`: the bytes of one; pure: [`record::Record`].
//! - `record_file`: its file read, whoever has written it.
//! - `server_clock`: what time it is where records are: `ServerClock`.

pub(crate) mod file_backend;
mod foreign_names;
mod left;
pub(crate) mod record;
pub(crate) mod record_file;
mod server_clock;
