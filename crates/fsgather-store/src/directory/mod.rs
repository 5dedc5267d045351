//! The directories: the one in which ranks meet, and the gather directories in it.
//!
//! - `rendezvous_directory`: the directory in which ranks meet: made and checked.
//! - `gather_dir`: one communicator's directory: [`gather_dir::GatherDir`].
//! - `free_id`: gather directories get an id that is still free.
//! - `owner`: the owner record; pure: [`owner::OwnerRecord`].
//! - `owner_file`: reads the file of that record.
//! - `probe`: the proof that all ranks see the same directory: [`probe::ProbeNonce`].
//! - `trial`: a small file shows owner, mode and time of new files in a directory: [`trial::Tried`].
//! - `keep_alive`: schedule of touches that make a directory's changes visible; pure: [`keep_alive::TouchSchedule`].

pub(crate) mod free_id;
pub(crate) mod gather_dir;
pub(crate) mod keep_alive;
pub(crate) mod owner;
pub(crate) mod owner_file;
pub(crate) mod probe;
pub(crate) mod rendezvous_directory;
pub(crate) mod trial;
