//! Locks what threads share, whatever became of the others: [`lock`].

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The content of a lock, also after a thread has panicked while it held it.
///
/// One rank's panic must not become everybody's hang: whoever closes, cleans up or tells the others goes on with what is
/// there.
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

/// The same where all threads of a model are one of the system's, which must not wait for itself.
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
