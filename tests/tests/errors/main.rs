//! Every error that `docs/reference/errors.md` describes, provoked from the library and, where possible, from the command-line tool: the
//! text on the page is that of the ranks. Module `errors` of the program `hosts` has those that only root can provoke.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "functions that tests share fail them in the same way"
)]

#[path = "../common/mod.rs"]
mod common;

mod page;
mod said;

mod calls;
mod coverage;
mod meeting;
mod storage;
