//! Memory that the ranks of one host share, so that payloads are read where they lie.
//!
//! What a payload costs on one host is not copying it but making and mapping the pages that it comes in. So each rank makes
//! one *arena*, which all ranks of its host map once and keep. Handing a payload over is one copy into a *slot* of the own
//! arena; the others read it in place. A slot is used again once all its readers have let go of it.
//!
//! - [`arena`]: the own arena, in which payloads are placed; [`slots`] says where, [`ranges`] what of it is free.
//! - [`lent`]: what of it the program writes to itself.
//! - [`filling`]: payloads that come to it bit by bit, and are read along.
//! - [`foreign`]: the arenas of others, from which payloads are leased.
//! - [`forks`]: which of them forked children may read as well.
//! - [`ledger`]: the words by which readers say that they have let go; [`versioned`] those that are written over.
//! - [`shelf`]: what a rank reads for others of its host.
//! - [`meeting`]: how ranks get to map each other's arenas; a descriptor that has arrived proves that they share a kernel.
//! - [`memory`]: the one owner of mappings, but of those that forked children have in place of their parent's.
//! - [`room`]: how much memory there is to spare.
//!
//! Nothing of all that has a name in a file system, so nothing stays when processes are killed. [`Words`] of a named file are
//! for what is to stay.

mod arena;
mod filling;
mod foreign;
mod forks;
mod ledger;
mod lent;
mod location;
mod meeting;
mod memory;
mod ranges;
mod room;
mod shelf;
mod slots;
mod versioned;

pub use arena::{Arena, Placement};
pub use filling::{Filling, Following};
pub use foreign::{Arenas, Leased, PrivatePayload};
pub use lent::{FrozenMemory, LentMemory};
pub use location::Location;
pub use meeting::{Heed, Host, MOST_RANKS, MeetingPoint, Visitor};
pub use memory::Words;
pub use room::budget;
pub use shelf::{MOST_READ, ReadSoFar, ReadingForOthers};
