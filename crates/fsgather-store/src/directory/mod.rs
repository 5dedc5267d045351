//! The directories: the one in which ranks meet, and the gather directories in it.
//!
//! - `rendezvous_directory`: where ranks meet: made, tried, whose files are whose in it.
//! - `gather_dir`: one communicator's directory: [`gather_dir::GatherDir`].
//! - `free_id`: it gets an id that nobody has yet.
//! - `owner`: the record of whose it is; pure: [`owner::OwnerRecord`].
//! - `owner_file`: that record as it lies in a directory.
//! - `probe`: the proof that all ranks see one and the same: [`probe::ProbeNonce`].
//! - `trial`: a small file shows what files are like there; who is whose, what time it is: [`trial::Tried`].
//! - `keep_alive`: when it is touched again for those who list it; pure: [`keep_alive::TouchSchedule`].

pub(crate) mod free_id;
pub(crate) mod gather_dir;
pub(crate) mod keep_alive;
pub(crate) mod owner;
pub(crate) mod owner_file;
pub(crate) mod probe;
pub(crate) mod rendezvous_directory;
pub(crate) mod trial;
