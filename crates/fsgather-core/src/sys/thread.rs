//! Starting threads: [`start`].

use std::{io, thread};

/// A thread that was started. Dropping this does not end it.
#[derive(Debug)]
pub struct Started(Kind);

#[derive(Debug)]
enum Kind {
    Real(thread::JoinHandle<()>),
    #[cfg(feature = "model")]
    Modelled(u64),
}

/// Returns the reason why there is no thread, from the error of starting one.
#[must_use]
pub fn explain_failure(error: &io::Error) -> String {
    super::explain_denial(
        error,
        "clone3 (or clone), mmap or mprotect; allow them, or let clone3 fail with ENOSYS",
    )
}

/// Starts a thread of this name.
///
/// # Errors
///
/// If the system cannot start one.
pub fn start(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<Started> {
    crate::sys::ask_model!(model => Ok(Started(Kind::Modelled(model.start(&name, Box::new(work))))));
    let started = thread::Builder::new().name(name).spawn(work)?;
    Ok(Started(Kind::Real(started)))
}

impl Started {
    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// The panic of the thread.
    pub fn join(self) -> thread::Result<()> {
        match self.0 {
            Kind::Real(started) => started.join(),
            #[cfg(feature = "model")]
            Kind::Modelled(thread) => {
                crate::sys::ask_model!(model => { model.join(thread); Ok(()) });
                Ok(())
            }
        }
    }
}

/// Number of threads that can work at the same time.
#[must_use]
pub fn cores() -> usize {
    crate::sys::ask_model!(_model => 1);
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_names_every_call_that_starts_a_thread() {
        let text = explain_failure(&io::Error::from_raw_os_error(1));
        for call in ["clone3", "mmap", "mprotect"] {
            assert!(text.contains(call), "{text}");
        }
    }
}
