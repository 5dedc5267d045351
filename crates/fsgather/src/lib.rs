//! Gathers results of many processes through a shared directory: correct under failure, fast, without set-up.
//!
//! Use this if a job runs as several processes (*ranks*), perhaps on several hosts, each of which has a part of the
//! results at the end, and one or all of them need everything.
//!
//! ```
//! use fsgather::Communicator;
//!
//! let communicator = Communicator::from_env()?;
//! let predictions = vec![(communicator.rank().get(), 0.97_f32)];
//! if let Some(parts) = communicator.gather(&predictions, 0)? {
//!     for part in parts {
//!         let (rank, predictions) = part?; // one rank at a time
//!         assert_eq!(predictions, [(rank.get(), 0.97)]);
//!     }
//! }
//! communicator.close()?;
//! # Ok::<(), fsgather::Error>(())
//! ```
//!
//! # Before you rely on it
//!
//! - A call is collective: all ranks make the same calls in the same order. Ranks that make different calls get
//!   an error with both places in the program, instead of hanging.
//! - A rank killed at any moment leaves no wrong or partial data, but may leave files; their names let later runs and
//!   administrators recognise them.
//! - Checksums detect accidents, not forgery: processes that can write to the directory as the same user are trusted.
//!
//! # Cargo features
//!
//! All are off by default.
//!
//! | feature | adds | needs |
//! |---|---|---|
//! | `observe` | a record of the last calls of each rank, for `fsgather ps`, `fsgather trace`, the log and the progress line of `fsgather run` | |
//! | `zstd` | payload files compressed with Zstandard, by [`Builder::compression`] or `FSGATHER_COMPRESS`. A build without it refuses to write or read such payloads | a C compiler |
//!
//! # Further reading
//!
//! `docs/guide/rust.md` starts from scratch, and `examples/` has a program for each kind of use.
//! `docs/README.md` in the repository lists all guides, reference pages, formats and guarantees.

mod agreed_groups;
mod builder;
mod communicator;
mod input;
mod main_function;
mod options;
mod pending;
mod pieces;

mod groups;
mod verbs;

#[doc(hidden)]
pub mod bindings;
pub mod codec;
pub mod compat;
pub mod error;
pub mod parts;
pub mod samples;

mod build_identity;
mod call;
mod calls_place;
mod group_state;
mod join;
#[cfg(not(feature = "observe"))]
#[path = "no_observer.rs"]
mod observer;
#[cfg(feature = "observe")]
mod observer;
mod payload;
mod setup;
mod speaking;
mod world_state;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
mod heard;

pub use builder::Builder;
pub use communicator::Communicator;
pub use fsgather_config::settings::{CompressionSetting, Control, Transport, Verify};
pub use fsgather_core::{Error, ErrorKind, Interrupt, Rank, WorldSize};
pub use fsgather_store::{Payload, WritablePayload};
pub use input::{Input, Stream};
pub use join::rendezvous::{Bootstrap, Rendezvous};
pub use main_function::main;
pub use options::Options;
pub use pending::Pending;
pub use pieces::Pieces;

/// Compiles and runs the examples of the guides with the documentation tests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guide/groups.md")]
    struct Groups;

    #[doc = include_str!("../../../docs/guide/rust.md")]
    struct Rust;

    #[doc = include_str!("../../../docs/guide/shell.md")]
    struct Shell;

    #[doc = include_str!("../../../docs/guide/switching.md")]
    struct Switching;
}
