//! Code of the program that runs inside a call: [`inside_a_call`].

use std::cell::Cell;

use fsgather_core::Error;

thread_local! {
    /// True while this thread runs such code.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of the program inside a call, such as code that encodes, reads or decodes its data, or a signal handler.
///
/// A call in it is refused: if only this rank makes it, the other ranks get the data of another call.
pub fn inside_a_call<R>(work: impl FnOnce() -> R) -> R {
    /// Restores the state, even after a panic.
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            IS_INSIDE.set(self.0);
        }
    }

    let _restore = Restore(IS_INSIDE.replace(true));
    work()
}

/// Returns an error if this thread runs code inside another call.
pub(crate) fn check() -> Result<(), Error> {
    if IS_INSIDE.get() {
        return Err(Error::config(
            "this call was made inside another call of this rank, by code that encodes, reads or decodes its data or by a signal \
             handler; make it before that call or after it",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Communicator;

    #[test]
    fn a_call_inside_another_one_is_refused() {
        let communicator = Communicator::solo();
        let nested = inside_a_call(|| communicator.barrier());
        assert!(matches!(nested, Err(Error::Config { .. })), "{nested:?}");
        assert_eq!(communicator.barrier(), Ok(()));
    }
}
