//! Every error that `docs/reference/errors.md` describes, provoked from the library and from the command-line
//! tool where that can meet it: the text on the page is what ranks say.
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
mod meeting;
mod storage;
