//! The last calls of each rank: kept in a file that survives the process, read, put on one time axis, and drawn.
//!
//! | module | holds |
//! |---|---|
//! | [`recorder`] | writes a rank's calls as they go on |
//! | [`record`] | one call, as it lies in the file |
//! | [`cause`] | why a call has failed |
//! | [`black_box`] | what a rank has left, read |
//! | [`jobs`] | which of that belongs to one job |
//! | [`timeline`] | the calls of all ranks on one time axis |
//! | [`losses`] | who came last how often, and what that cost the others |
//! | [`now`] | what each rank is at, and whom it waits for |
//! | [`roll_call`] | what all ranks are doing, as it travels to who has asked |
//! | [`text`], [`chrome`], [`page`] | that as text, for Perfetto, and as a page with a picture |
//! | [`drawing`] | a file in one of these forms |
//!
//! All but the first and the third are pure.

pub mod black_box;
pub mod cause;
pub mod chrome;
pub mod drawing;
pub mod jobs;
pub mod losses;
pub mod now;
pub mod page;
pub mod record;
pub mod recorder;
pub mod roll_call;
pub mod text;
pub mod timeline;
