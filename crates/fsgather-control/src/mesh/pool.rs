//! Links that no transfer uses at the moment: [`Idle`], [`Parked`].

use std::{collections::HashMap, sync::Mutex};

use fsgather_core::{CallId, ChannelId, Rank, lock};
use tokio::sync::{Notify, oneshot};

use super::link::Link;

/// Links that this rank has dialled, by their peer, for the next transfer.
#[derive(Default)]
pub(super) struct Idle {
    links: Mutex<HashMap<Rank, Vec<Link>>>,
}

impl Idle {
    /// Takes all links.
    pub(super) fn take_all(&self) -> Vec<Link> {
        let links = std::mem::take(&mut *lock(&self.links));
        links.into_values().flatten().collect()
    }

    /// Keeps a link for later.
    pub(super) fn put(&self, link: Link) {
        lock(&self.links).entry(link.peer).or_default().push(link);
    }

    /// A link that still works, if there is one, and over which a transfer of this channel can begin [at
    /// once](Link::is_open_to). Links that have ended meanwhile are dropped.
    pub(super) fn take(&self, to: Rank, channel: Option<ChannelId>) -> Option<Link> {
        self.take_where(to, |link| link.is_open_to(channel))
    }

    /// A link that still works, if there is one.
    pub(super) fn take_any(&self, to: Rank) -> Option<Link> {
        self.take_where(to, |_| true)
    }

    fn take_where(&self, to: Rank, fits: impl Fn(&Link) -> bool) -> Option<Link> {
        let mut links = lock(&self.links);
        let to_it = links.get_mut(&to)?;
        to_it.retain(Link::is_fresh);
        let fitting = to_it.iter().rposition(fits)?;
        Some(to_it.remove(fitting))
    }
}

struct WaitingLink {
    link: Link,
    /// Number that tells it from other links for the same call.
    serial: u64,
    /// Ends with it.
    _here: oneshot::Sender<()>,
}

#[derive(Default)]
struct Arrivals {
    waiting: HashMap<(CallId, Rank), WaitingLink>,
    serial: u64,
}

/// Links on which another rank has begun a ring transfer that this rank has not reached yet.
#[derive(Default)]
pub(super) struct Parked {
    arrivals: Mutex<Arrivals>,
    arrived: Notify,
}

impl Parked {
    /// Keeps a link for the call it belongs to. Returns a number by which it can be [expired](Self::expire), and a receiver
    /// that ends when the link is taken.
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
        let _ = crate::tcp::tasks::wake(|| self.arrived.notify_waiters());
        (serial, taken)
    }

    /// Drops a link that has not been taken, once its other end [has ended it](Link::has_ended), and returns true if it is gone.
    ///
    /// The other rank continues the transfer as soon as all have reached the call, at any time: if the link were ended here
    /// just then, that rank could not notice, and would have sent in vain the data that this rank waits for.
    pub(super) fn expire(&self, call: CallId, from: Rank, serial: u64) -> bool {
        let mut arrivals = lock(&self.arrivals);
        let key = (call, from);
        let waiting = arrivals.waiting.get(&key);
        let Some(waiting) = waiting.filter(|waiting| waiting.serial == serial) else {
            return true;
        };
        if !waiting.link.has_ended() {
            return false;
        }
        let expired = arrivals.waiting.remove(&key);
        drop(arrivals);
        drop(expired);
        true
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
