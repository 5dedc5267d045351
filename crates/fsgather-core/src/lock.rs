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
/// use fsgather_core::lock;
///
/// let shared = Mutex::new(1);
/// *lock(&shared) += 1;
/// assert_eq!(*lock(&shared), 2);
/// ```
pub fn lock<T: ?Sized>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}
