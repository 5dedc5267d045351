//! The end of a gather directory, by its owner or after a crash: looked at, judged, removed.
//!
//! - `janitor`: the thread that beats and removes while its owner works: [`janitor::Janitor`].
//! - `removal`: a gather directory is taken away: [`removal::Removal`].
//! - `inventory`: the names in it that are ours; pure.
//! - `contents`: what it holds, counted: [`contents::Contents`].
//! - `surveyor`: looks at a directory and changes nothing: [`surveyor::Surveyor`]; at what lies beside gather directories in `files_beside`.
//! - `survey`: what it has found: [`survey::Survey`]; `leftover`: what lies beside gather directories: [`leftover::Leftover`].
//! - `view`: for which user and when: [`view::View`].
//! - `leftover_kind`: its names, those of other programs too; pure: [`leftover_kind::LeftoverKind`].
//! - `entries_by_gather`: which of it belongs to a gather directory: [`entries_by_gather::EntriesByGather`].
//! - `judgement`: whether a gather directory is alive, and may go; pure: [`judgement::assess`].
//! - `abandoned`: those that nobody needs are removed, several at a time.
//! - `removal_mark`: the mark by which their owner learns who removed them: [`removal_mark::Mark`].
//! - `cleaning`: what crashes have left is removed, when a user asks: [`cleaning::clean`].
//! - `place_for_tests`: a directory to clean, and what others have left in it.
//! - `sweeping`: what earlier attempts of the job have left is removed: [`sweeping::Sweep`].

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
