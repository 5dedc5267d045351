//! Ranks find each other through files.
//!
//! - `file_backend`: posts, finds and tends records: [`file_backend::FileBackend`].
//! - `foreign_names`: names of other users' files: `ForeignNames`.
//! - `left`: the time of a refusal; pure: `Left`.
//! - `record`: the bytes of a record; pure: [`record::Record`].
//! - `record_file`: reads the file of a record.
//! - `server_clock`: the time of the servers on which records are: `ServerClock`.

pub(crate) mod file_backend;
mod foreign_names;
mod left;
pub(crate) mod record;
pub(crate) mod record_file;
mod server_clock;
