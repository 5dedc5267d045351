//! Links that no transfer uses at the moment: [`Idle`], [`Parked`].

use std::{collections::HashMap, sync::Mutex};

use fsgather_core::{CallId, ChannelId, Rank, lock};
use tokio::sync::{Notify, oneshot};

use super::link::Link;

/// Links that this rank has dialled, by whom they lead to, for the next transfer.
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

    /// A link that still works, if there is one, and over which a transfer of this channel can begin
    /// [at once](Link::is_open_to). Those that have ended meanwhile go.
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
        let _ = crate::tcp::tasks::wake(|| self.arrived.notify_waiters());
        (serial, taken)
    }

    /// Lets a link go that nobody has come for, once its other end [has been ended](Link::has_ended); whether it is gone.
    ///
    /// Whoever began that transfer goes on with it as soon as all have come to the call, at any time: were it ended here
    /// just then, that one could not tell, and would have sent in vain what this rank waits for.
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
