//! The system beneath fsgather, as far as waiting, threads and files in shared directories go: calls as they are, which a test can
//! have answered by a model.
//!
//! Nothing is decided here. Each function is one call of the system or the standard library. With the feature `model` a thread may
//! be given a model (`model::run_on`) of the system; then all of its calls go there: so the project's own code, and no copy of it,
//! runs in virtual time over a file system that lies. Without the feature nothing of that is compiled.
//!
//! - [`clock`]: what time it is, and sleeping.
//! - [`lock()`]: locks of what threads share.
//! - [`condition`]: waiting for what another thread does; [`channel`]: orders for another thread.
//! - [`thread`]: starting threads; [`process`]: whether one of a model runs.
//! - [`random`]: random numbers.
//! - [`files`]: calls about files and directories.
//! - [`warning`]: what people are to hear, on standard error where a program listens to no log; [`StandardError`]: standard error, for
//!   which nobody waits long.

pub mod channel;
pub mod clock;
pub mod condition;
pub mod files;
mod lock;
#[cfg(feature = "model")]
pub mod model;
pub mod process;
pub mod random;
mod standard_error;
pub mod thread;
pub mod warning;

pub use lock::lock;
pub use standard_error::StandardError;

/// Has the model of this thread, if it has one, answer a call.
macro_rules! ask_model {
    ($model:ident => $answer:expr) => {
        #[cfg(feature = "model")]
        if let Some($model) = crate::model::current() {
            return $answer;
        }
    };
}
use ask_model;
