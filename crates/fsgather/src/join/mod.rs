//! The meeting of the ranks of a job: from settings to a connected world, and the proof that it shares a directory.
//!
//! | module | holds |
//! |---|---|
//! | [`meeting`] | [`meeting::join`]: meets the other ranks in the way that the settings name |
//! | [`introduction`] | a channel of the program's own, as the control plane uses it |
//! | [`rendezvous`] | the ways in which ranks find rank 0, and the trait for such a channel |
//! | [`preparation`] | checks before the meeting |
//! | [`start`] | the process that started this rank, which distinguishes jobs without an id |
//! | [`local_context`] | the directories, owner and links of one rank |
//! | [`sharing`] | the proof that ranks see one and the same directory |
//! | [`secret_file`] | the secret in a file |
//! | [`exact_path`] | paths that travel byte for byte |
//! | [`this_process`] | host, process and network namespace of this rank |

pub mod exact_path;
pub mod secret_file;

pub(crate) mod local_context;
pub(crate) mod meeting;
pub(crate) mod rendezvous;
pub(crate) mod sharing;
pub(crate) mod this_process;

mod introduction;
mod preparation;
mod start;
