//! The parts of all ranks as the root of a gather reads them: one rank at a time, or as streams.
//!
//! They come from [`gather`](crate::Communicator::gather) and the calls like it, and need a name only where a program keeps
//! them.

mod gathered;
mod reader;
mod unread;

pub use gathered::Parts;
pub use reader::{PartReader, PartReaders};

pub(crate) use gathered::Take;
