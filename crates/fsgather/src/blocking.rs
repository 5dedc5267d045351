//! Waiting inside of somebody else's runtime: [`step_aside`].

use fsgather_core::Error;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs a call that blocks, so that it neither panics nor starves a tokio runtime it is made in.
///
/// On a multi-thread runtime other tasks move to another thread meanwhile. On a current-thread one
/// nothing else could run, perhaps not even what we wait for, so the call is refused.
pub(crate) fn step_aside<R>(call: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Err(_) => call(),
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(call),
        Ok(_) => Err(Error::config(
            "this call blocks, and the current-thread tokio runtime it was made in would stand still; \
             wrap it in tokio::task::spawn_blocking",
        )),
    }
}

/// Runs the end of a communicator wherever it is dropped, also where waiting is not allowed.
pub(crate) fn wherever(end: impl FnOnce() + Send) {
    if Handle::try_current().is_err() {
        return end();
    }
    std::thread::scope(|scope| {
        let ended = std::thread::Builder::new().spawn_scoped(scope, end);
        if let Err(error) = ended {
            tracing::debug!("a communicator was not left in good order: {error}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_inside_runtimes_neither_panic_nor_starve() {
        assert_eq!(step_aside(|| Ok(1)), Ok(1));
        let multi = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        assert_eq!(multi.block_on(async { step_aside(|| Ok(2)) }), Ok(2));
        let single = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let refused = single.block_on(async { step_aside(|| Ok(3)) });
        assert!(matches!(refused, Err(Error::Config { .. })));
    }
}
