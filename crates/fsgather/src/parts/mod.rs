//! The parts of all ranks as the root of a gather reads them: one rank at a time, or as streams.
//!
//! They come from [`gather`](crate::Communicator::gather) and similar calls. A program needs their names only if it
//! keeps them.

mod gathered;
mod reader;
mod unread;

pub use gathered::Parts;
pub use reader::{PartReader, PartReaders};

pub(crate) use gathered::Take;
