//! Tests over marker files what is promised over TCP: the same tests once more, with every rank in
//! a job that exchanges messages through files.

#[path = "../common/mod.rs"]
mod common;

#[path = "../jobs/agreement.rs"]
mod agreement;
#[path = "../jobs/attempts.rs"]
mod attempts;
#[path = "../jobs/awaiting.rs"]
mod awaiting;
#[path = "../jobs/completed.rs"]
mod completed;
#[path = "../jobs/decided.rs"]
mod decided;
#[path = "../jobs/lost_ranks.rs"]
mod lost_ranks;
#[path = "../jobs/meeting.rs"]
mod meeting;
#[path = "../jobs/results.rs"]
mod results;
#[path = "../jobs/storage.rs"]
mod storage;
#[path = "../jobs/world_sizes.rs"]
mod world_sizes;
