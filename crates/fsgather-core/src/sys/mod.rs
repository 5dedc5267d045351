//! System calls for waiting, threads, time, random numbers and files in shared directories, which a model can answer in tests.
//!
//! Each function is one call of the system or the standard library, without decisions. With the feature `model` a thread may be given a
//! model of the system (`model::run_on`), which then answers all of its calls: the project's own code runs in virtual time over a file
//! system that lies. Without the feature no code of this is compiled.
//!
//! - [`clock`]: the time, and sleeping.
//! - [`lock()`]: locks of state that threads share.
//! - [`condition`]: waiting for another thread; [`channel`]: orders for another thread.
//! - [`thread`]: starting threads; [`process`]: the start times of processes of a model.
//! - [`random`]: random numbers; [`explain_denial`]: errors of calls that a sandbox denies.
//! - [`files`]: calls about files and directories, whose answers are [`Status`] and [`Room`]; [`limits`]: limits of the process.
//! - [`warning`]: warnings, on standard error if a program has no log; [`StandardError`]: standard error with bounded waiting;
//!   [`keep_standard_streams`]: numbers that nothing else may take.

pub mod channel;
pub mod clock;
pub mod condition;
mod denial;
pub mod files;
pub mod limits;
mod lock;
#[cfg(feature = "model")]
pub mod model;
pub mod process;
pub mod random;
mod standard_error;
mod standard_streams;
mod status;
pub mod thread;
pub mod warning;

pub use denial::{explain_denial, is_denied};
pub use lock::lock;
pub use standard_error::StandardError;
pub use standard_streams::keep_standard_streams;
pub use status::{Room, Status};

/// Makes the model of this thread, if it has one, answer a call.
macro_rules! ask_model {
    ($model:ident => $answer:expr) => {
        #[cfg(feature = "model")]
        if let Some($model) = crate::sys::model::current() {
            return $answer;
        }
    };
}
use ask_model;
