//! The last calls of each rank: kept in a file that survives the process, read, put on one time axis, and drawn.
//!
//! | module | contents |
//! |---|---|
//! | [`recorder`] | records the calls of a rank |
//! | [`record_file`] | the file that it writes |
//! | `log_line` | a call in one line of the log |
//! | [`record`] | one call in the file |
//! | [`cause`] | the reason for which a call has failed |
//! | [`black_box`] | the calls that one rank has left |
//! | [`world`] | the calls that the ranks of one world have left |
//! | [`jobs`] | the worlds of each job |
//! | [`timeline`] | the calls of all ranks on one time axis |
//! | [`status`] | the state of each rank, and the ranks that it waits for |
//! | [`losses`] | the ranks that came last, and the cost of that for the others |
//! | [`roll_call`] | the activities of all ranks as text, for the process that has asked |
//! | [`text`], [`chrome`], [`page`] | a trace as text, for Perfetto, and as a page with a picture |
//! | [`drawing`] | a file in one of these formats |
//!
//! All but [`recorder`], [`record_file`], [`world`] and [`black_box`] are pure.

pub mod black_box;
pub mod cause;
pub mod chrome;
pub mod drawing;
pub mod jobs;
mod log_line;
pub mod losses;
pub mod page;
pub mod record;
pub mod record_file;
pub mod recorder;
pub mod roll_call;
pub mod status;
pub mod text;
pub mod timeline;
pub mod world;
