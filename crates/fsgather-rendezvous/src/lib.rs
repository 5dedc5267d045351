//! Brings the ranks of a job together: from settings to a connected world, and the proof that it shares a directory.
//!
//! `fsgather` uses it, and the command for its diagnosis.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@join`] | [`join::join`]: meets the others, by whatever way the settings say |
//! | [`rendezvous`] | the ways in which ranks find rank 0, and the trait for a channel of the program's own |
//! | [`local_context`] | what one rank knows and brings along: directories, owner, links |
//! | [`sharing`] | the proof that ranks see one and the same directory |
//! | [`secret_file`] | the secret that a file holds |
//! | [`exact_path`] | paths that travel byte for byte |
//! | [`this_process`] | host, process and network namespace of this rank |

pub mod exact_path;
pub mod join;
pub mod local_context;
pub mod rendezvous;
pub mod secret_file;
pub mod sharing;
pub mod this_process;

mod introduction;
mod preparation;
mod start;
