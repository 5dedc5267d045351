//! Payloads that others may fetch: [`Offers`].

use fsgather_core::{CallId, lock};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    fs::File,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use tokio::sync::Notify;

/// Number of withdrawn calls that are remembered, so that a rank that asks late gets an error rather than waits.
const REMEMBERED: usize = 1024;

/// Source of the bytes of an offered payload.
#[derive(Clone)]
pub enum Source {
    /// In memory.
    Memory(Bytes),
    /// In a file, from its beginning on. It must not change as long as it is offered.
    File {
        /// The file, open for reading.
        file: Arc<File>,
        /// Number of its bytes that are the payload.
        len: u64,
    },
}

impl Source {
    /// The length of the payload, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    /// Returns true if the payload is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Memory(_) => "Memory",
            Self::File { .. } => "File",
        };
        f.debug_struct(kind).field("len", &self.len()).finish()
    }
}

#[derive(Default)]
struct OffersState {
    /// The offered payloads, each with true if it has checksums.
    offered: HashMap<CallId, (Source, bool)>,
    withdrawn: VecDeque<CallId>,
}

/// The payloads that this rank offers, by call.
#[derive(Default)]
pub(super) struct Offers {
    state: Mutex<OffersState>,
    changed: Notify,
}

impl Offers {
    /// Lets others fetch a payload from now on, with checksums or without.
    pub(super) fn offer(&self, call: CallId, source: Source, has_checksums: bool) {
        self.lock().offered.insert(call, (source, has_checksums));
        let _ = crate::tcp::tasks::wake(|| self.changed.notify_waiters());
    }

    /// Ends the offer; ranks that ask from now on get an error. A fetch that has begun continues.
    pub(super) fn withdraw(&self, call: CallId) {
        let mut state = self.lock();
        state.offered.remove(&call);
        if !state.withdrawn.contains(&call) {
            if state.withdrawn.len() == REMEMBERED {
                state.withdrawn.pop_front();
            }
            state.withdrawn.push_back(call);
        }
        drop(state);
        let _ = crate::tcp::tasks::wake(|| self.changed.notify_waiters());
    }

    /// Waits until a payload is offered; `None` if it has been withdrawn.
    pub(super) async fn wait_for(&self, call: CallId) -> Option<(Source, bool)> {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.lock();
                if let Some(offered) = state.offered.get(&call) {
                    return Some(offered.clone());
                }
                if state.withdrawn.contains(&call) {
                    return None;
                }
            }
            // Changes after the first line of the loop wake this.
            changed.await;
        }
    }

    /// Returns true if nothing is offered.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().offered.is_empty()
    }

    /// Waits until nothing is offered any more.
    pub(super) async fn all_withdrawn(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_empty() {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, OffersState> {
        lock(&self.state)
    }
}
