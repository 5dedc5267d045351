//! Locks state that threads share, even after a panic of another thread: [`lock`].

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the content of a lock, also after a thread has panicked while it held it.
///
/// The panic of one rank must not make all ranks hang: threads that close, clean up or notify the others continue with
/// the state as it is.
///
/// ```
/// use std::sync::Mutex;
///
/// use fsgather_core::sys::lock;
///
/// let shared = Mutex::new(1);
/// *lock(&shared) += 1;
/// assert_eq!(*lock(&shared), 2);
/// ```
pub fn lock<T: ?Sized>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(feature = "model")]
    if let Some(model) = crate::sys::model::current() {
        return lock_on(model, guarded);
    }
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`lock`], if all threads of a model are one thread of the system, which must not wait for itself.
#[cfg(feature = "model")]
fn lock_on<'a, T: ?Sized>(
    model: &dyn crate::sys::model::System,
    guarded: &'a Mutex<T>,
) -> MutexGuard<'a, T> {
    use std::sync::TryLockError;

    model.before_lock(false);
    loop {
        match guarded.try_lock() {
            Ok(content) => return content,
            Err(TryLockError::Poisoned(content)) => return content.into_inner(),
            Err(TryLockError::WouldBlock) => model.before_lock(true),
        }
    }
}
