//! Runs tests of `promises` once more, with every rank in a job that exchanges messages through files. The conformance suite of the exchange
//! and the simulation show that all carriers keep the same promises; these tests show that real processes do so over marker files.

#[path = "../common/mod.rs"]
mod common;

#[path = "../promises/attempts.rs"]
mod attempts;
#[path = "../promises/decided.rs"]
mod decided;
#[path = "../promises/lost_ranks.rs"]
mod lost_ranks;
#[path = "../promises/meeting.rs"]
mod meeting;
#[path = "../promises/results.rs"]
mod results;
#[path = "../promises/storage.rs"]
mod storage;
