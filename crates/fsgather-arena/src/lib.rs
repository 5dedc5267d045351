//! Memory that the ranks of one host share, so that payloads are read where they lie.
//!
//! What a payload costs on one host is not copying it but making and mapping the pages that it comes in. So each rank makes
//! one *arena*, which all ranks of its host map once and keep. Handing a payload over is one copy into a *slot* of the own
//! arena; the others read it in place. A slot is used again once all its readers have let go of it.
//!
//! - `arena`: this process's arena, in which payloads are placed; `slots` records where, `ranges` which parts are free.
//! - `filling`: payloads that arrive piece by piece and are read meanwhile.
//! - `foreign`: the arenas of other ranks, from which payloads are leased.
//! - `forks`: payloads that forked children may read as well.
//! - `ledger`: the words with which readers release a slot; `versioned`: words that are overwritten.
//! - `reading_for_others`: payloads that one rank reads for the others of its host; `shelf`: the words by which they find them.
//! - `meeting`: the exchange of mappings; a descriptor that has arrived proves that two ranks share a kernel.
//! - `memory`: the one owner of mappings.
//! - `room`: how much memory is free.
//!
//! Nothing of all that has a name in a file system, so nothing stays when processes are killed. [`Words`] of a named file are
//! for what is to stay.

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
