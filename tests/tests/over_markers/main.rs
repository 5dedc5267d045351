//! Tests over marker files what is promised over TCP: the same tests once more, with every rank in
//! a job that exchanges messages through files.
#![expect(
    clippy::duplicate_mod,
    reason = "every file of tests brings what it has in common with the others"
)]

#[path = "../agreement.rs"]
mod agreement;
#[path = "../attempts.rs"]
mod attempts;
#[path = "../awaiting.rs"]
mod awaiting;
#[path = "../completed.rs"]
mod completed;
#[path = "../decided.rs"]
mod decided;
#[path = "../lost_ranks.rs"]
mod lost_ranks;
#[path = "../meeting.rs"]
mod meeting;
#[path = "../results.rs"]
mod results;
#[path = "../storage.rs"]
mod storage;
