//! Memory that the ranks of one host share, so that payloads are read in place.
//!
//! On one host the cost of a payload is not its copy, but making and mapping the pages that hold it. So each rank makes one
//! *arena*, which all ranks of its host map once and keep. Handing a payload over is one copy into a *slot* of the own arena;
//! the others read it in place. A slot is reused once all its readers have let go of it.
//!
//! - `arena`: this process's arena, in which payloads are placed; `slots` records where, `ranges` which parts are free.
//! - `filling`: payloads that arrive piece by piece and are read meanwhile.
//! - `foreign`: the arenas of other ranks, from which payloads are leased.
//! - `forks`: payloads that forked children may read as well.
//! - `ledger`: the words with which readers release a slot; `versioned`: words that are overwritten.
//! - `reading_for_others`: payloads that one rank reads for the others of its host; `shelf`: the words that announce them.
//! - `meeting`: the exchange of mappings; a descriptor that has arrived proves that two ranks share a kernel.
//! - `memory`: the one owner of mappings.
//! - `room`: how much memory is free.
//!
//! None of this has a name in a file system, so nothing is left behind when processes are killed. [`Words`] of a named file
//! hold data that must stay.

mod arena;
mod filling;
mod foreign;
mod forks;
mod ledger;
mod location;
mod meeting;
mod memory;
mod ranges;
mod reading_for_others;
mod room;
mod shelf;
mod slots;
mod versioned;

pub use arena::{Arena, Placement};
pub use filling::Filling;
pub use foreign::{Arenas, Following, Leased, PrivatePayload};
pub use location::Location;
pub use meeting::{Heed, Host, MOST_RANKS, MeetingPoint, Visitor};
pub use memory::Words;
pub use reading_for_others::ReadingForOthers;
pub use room::budget;
pub use shelf::{MOST_READ, ReadSoFar};
