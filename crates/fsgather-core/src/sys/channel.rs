//! Orders for another thread: [`channel`], as in the standard library.

#[cfg(not(feature = "model"))]
pub use std::sync::mpsc::{Receiver, Sender, channel};

#[cfg(feature = "model")]
pub use over_conditions::{Receiver, Sender, channel};

/// A channel that waits by a [`Condition`](crate::sys::condition::Condition), and so also works on a model.
#[cfg(feature = "model")]
mod over_conditions {
    use std::{
        collections::VecDeque,
        sync::{
            Arc, Mutex, MutexGuard,
            mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError},
        },
        time::Duration,
    };

    use crate::sys::{clock, condition::Condition};

    struct Shared<T> {
        state: Mutex<State<T>>,
        told: Condition,
    }

    struct State<T> {
        queue: VecDeque<T>,
        senders: usize,
        is_heard: bool,
    }

    impl<T> Shared<T> {
        fn lock(&self) -> MutexGuard<'_, State<T>> {
            crate::sys::lock(&self.state)
        }
    }

    /// The end that gives orders.
    pub struct Sender<T>(Arc<Shared<T>>);

    /// The end that takes orders.
    pub struct Receiver<T>(Arc<Shared<T>>);

    /// Returns a new channel.
    #[must_use]
    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                senders: 1,
                is_heard: true,
            }),
            told: Condition::default(),
        });
        (Sender(Arc::clone(&shared)), Receiver(shared))
    }

    impl<T> Sender<T> {
        /// Gives an order.
        ///
        /// # Errors
        ///
        /// If no thread takes orders any more.
        pub fn send(&self, order: T) -> Result<(), SendError<T>> {
            let mut state = self.0.lock();
            if !state.is_heard {
                return Err(SendError(order));
            }
            state.queue.push_back(order);
            drop(state);
            self.0.told.wake_one();
            Ok(())
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            self.0.lock().senders += 1;
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.lock().senders -= 1;
            self.0.told.wake_all();
        }
    }

    impl<T> Receiver<T> {
        /// Takes an order, without waiting.
        ///
        /// # Errors
        ///
        /// If there is no order, or will be none.
        pub fn try_recv(&self) -> Result<T, TryRecvError> {
            let mut state = self.0.lock();
            match state.queue.pop_front() {
                Some(order) => Ok(order),
                None if state.senders == 0 => Err(TryRecvError::Disconnected),
                None => Err(TryRecvError::Empty),
            }
        }

        /// Waits for an order.
        ///
        /// # Errors
        ///
        /// If there will be no more orders.
        pub fn recv(&self) -> Result<T, RecvError> {
            self.take(None).map_err(|_| RecvError)
        }

        /// Like [`recv`](Self::recv), for `limit` at most.
        ///
        /// # Errors
        ///
        /// If there was no order by then, or will be none.
        pub fn recv_timeout(&self, limit: Duration) -> Result<T, RecvTimeoutError> {
            self.take(Some(limit))
        }

        fn take(&self, limit: Option<Duration>) -> Result<T, RecvTimeoutError> {
            let due = limit.and_then(|limit| clock::now().checked_add(limit));
            let mut state = self.0.lock();
            loop {
                if let Some(order) = state.queue.pop_front() {
                    return Ok(order);
                }
                if state.senders == 0 {
                    return Err(RecvTimeoutError::Disconnected);
                }
                let left = due.map(|due| due.saturating_duration_since(clock::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(RecvTimeoutError::Timeout);
                }
                state = self.0.told.wait(&self.0.state, state, left);
            }
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            let mut state = self.0.lock();
            state.is_heard = false;
            let unheard = std::mem::take(&mut state.queue);
            drop(state);
            drop(unheard);
        }
    }
}
