//! Links that no transfer uses at the moment: [`Idle`], [`Parked`].

use fsgather_core::lock;
use std::{collections::HashMap, sync::Mutex};

use fsgather_core::Rank;
use tokio::sync::{Notify, oneshot};

use super::{CallId, link::Link};

/// Links that this rank has dialled, by whom they lead to, for the next transfer.
#[derive(Default)]
pub(super) struct Idle {
    links: Mutex<HashMap<Rank, Vec<Link>>>,
}

impl Idle {
    /// Ends all links.
    pub(super) fn clear(&self) {
        let ended = std::mem::take(&mut *lock(&self.links));
        drop(ended);
    }

    /// Keeps a link for later.
    pub(super) fn put(&self, link: Link) {
        lock(&self.links).entry(link.peer).or_default().push(link);
    }

    /// A link that still works, if there is one. Those that have ended meanwhile go.
    pub(super) fn take(&self, to: Rank) -> Option<Link> {
        let mut links = lock(&self.links);
        let to_it = links.get_mut(&to)?;
        while let Some(link) = to_it.pop() {
            if link.is_fresh() {
                return Some(link);
            }
        }
        None
    }
}

struct WaitingLink {
    link: Link,
    /// Tells it from others that came for the same call.
    serial: u64,
    /// Ends with it.
    _here: oneshot::Sender<()>,
}

#[derive(Default)]
struct Arrivals {
    waiting: HashMap<(CallId, Rank), WaitingLink>,
    serial: u64,
}

/// Links on which somebody has begun a ring transfer that this rank has not come to yet.
#[derive(Default)]
pub(super) struct Parked {
    arrivals: Mutex<Arrivals>,
    arrived: Notify,
}

impl Parked {
    /// Keeps a link for the call it belongs to. A number by which it can be [expired](Self::expire), and
    /// what ends when it is taken.
    pub(super) fn put(&self, call: CallId, link: Link) -> (u64, oneshot::Receiver<()>) {
        let mut arrivals = lock(&self.arrivals);
        arrivals.serial += 1;
        let serial = arrivals.serial;
        let key = (call, link.peer);
        let (here, taken) = oneshot::channel();
        let waiting = WaitingLink {
            link,
            serial,
            _here: here,
        };
        let replaced = arrivals.waiting.insert(key, waiting);
        drop(arrivals);
        drop(replaced);
        self.arrived.notify_waiters();
        (serial, taken)
    }

    /// Ends a link that nobody has come for.
    pub(super) fn expire(&self, call: CallId, from: Rank, serial: u64) {
        let mut arrivals = lock(&self.arrivals);
        let key = (call, from);
        let is_there = arrivals
            .waiting
            .get(&key)
            .is_some_and(|waiting| waiting.serial == serial);
        let expired = if is_there {
            arrivals.waiting.remove(&key)
        } else {
            None
        };
        drop(arrivals);
        drop(expired);
    }

    /// Waits for the link of a call.
    pub(super) async fn take(&self, call: CallId, from: Rank) -> Link {
        loop {
            let arrived = self.arrived.notified();
            if let Some(waiting) = lock(&self.arrivals).waiting.remove(&(call, from)) {
                return waiting.link;
            }
            arrived.await;
        }
    }
}
