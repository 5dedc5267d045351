//! The end of a gather directory, by its owner or after a crash: examined, judged, removed.
//!
//! - `janitor`: the thread that renews heartbeats and removes payloads while the owner works: [`janitor::Janitor`].
//! - `removal`: removes a gather directory: [`removal::Removal`].
//! - `inventory`: our names in it; pure.
//! - `contents`: its contents, counted: [`contents::Contents`].
//! - `surveyor`: examines a directory and changes nothing: [`surveyor::Surveyor`]; `files_beside` does so for
//!   entries beside gather directories.
//! - `survey`: the result: [`survey::Survey`]; `leftover`: entries beside gather directories: [`leftover::Leftover`].
//! - `view`: user and time of the look: [`view::View`].
//! - `leftover_kind`: kinds of leftovers, also of other programs; pure: [`leftover_kind::LeftoverKind`].
//! - `entries_by_gather`: entries that belong to a gather directory: [`entries_by_gather::EntriesByGather`].
//! - `judgement`: decides if a gather directory is alive, and if it may be removed; pure: [`judgement::assess`].
//! - `abandoned`: removes directories that no rank needs, several at a time.
//! - `removal_mark`: the mark from which their owner learns of the removal: [`removal_mark::Mark`].
//! - `cleaning`: removes leftovers of crashes, when a user asks: [`cleaning::clean`].
//! - `place_for_tests`: a directory to clean, with leftovers in it.
//! - `sweeping`: removes leftovers of earlier attempts at a job: [`sweeping::Sweep`].

pub(crate) mod abandoned;
pub(crate) mod cleaning;
pub(crate) mod contents;
pub(crate) mod entries_by_gather;
mod files_beside;
pub(crate) mod inventory;
pub(crate) mod janitor;
pub(crate) mod judgement;
pub(crate) mod leftover;
pub(crate) mod leftover_kind;
#[cfg(test)]
pub(crate) mod place_for_tests;
pub(crate) mod removal;
pub(crate) mod removal_mark;
pub(crate) mod survey;
pub(crate) mod surveyor;
pub(crate) mod sweeping;
pub(crate) mod view;
