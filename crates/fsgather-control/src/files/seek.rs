//! Joins a world over marker files, as a member: [`search`].

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fsgather_core::{
    BackgroundThreads, Backoff, Error, Mailbox, MailboxFactory, Retirement, lock,
    sys::{clock, condition::Condition},
};

use super::{
    endpoint::{MemberEndpoint, sender_of},
    heartbeat::{Heartbeat, SILENCE_LIMIT},
    outbox::{Outbox, SEND_AGAIN},
    poll_interval::PollInterval,
    retry_window::RetryWindow,
};
use crate::{
    join::config::IsRunning,
    join::{event::JoinEvent, record::MarkerPlace},
    message::{
        CallReply, EndReply, EndRequest, Join, JoinReply, JoinRequest, RefusalReason,
        ToCoordinator, ToMember, Welcome,
    },
};

/// Interval between questions to a world that has formed without us.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Maximum time that a goodbye may take.
const GOODBYE_LIMIT: Duration = Duration::from_millis(500);

/// Interval between checks that rank 0 is still there.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// A place in which a world may be forming, and the rank that asks to be in it.
pub(crate) struct Search {
    pub(crate) mailboxes: Arc<dyn MailboxFactory>,
    pub(crate) place: MarkerPlace,
    pub(crate) join: Join,
    pub(crate) is_running: Arc<IsRunning>,
    pub(crate) threads: BackgroundThreads,
}

/// A world that has accepted this rank.
pub(crate) struct EnteredFiles {
    pub(crate) welcome: Welcome,
    pub(super) mailbox: Arc<dyn Mailbox>,
    pub(super) endpoint: MemberEndpoint,
    /// Messages that have still to be left.
    pub(super) outbox: Outbox,
    /// Messages of rank 0 since the welcome.
    pub(super) heard: Vec<ToMember>,
}

#[derive(Default)]
struct SearchState {
    is_over: bool,
    rivals: Vec<String>,
    /// The reason why this rank ends the search, unless only its process needs to know.
    cause: Option<Error>,
    /// True if rank 0 may expect this rank, and has not been notified otherwise.
    is_expected: bool,
}

/// A search under way; dropping it ends the search.
pub(crate) struct Searching {
    orders: Arc<Orders>,
}

impl Searching {
    /// Reports to rank 0 that another world of the same key is forming.
    pub(crate) fn report_rival(&self, other: String) {
        self.orders.lock().rivals.push(other);
        self.orders.told.wake_all();
    }

    /// Sets the reason why this rank will not come, for the end of the search.
    pub(crate) fn will_not_come(&self, cause: Error) {
        self.orders.lock().cause = Some(cause);
    }
}

impl Drop for Searching {
    /// Ends the search. If rank 0 may expect this rank, this waits until rank 0 is notified: the process may end next.
    fn drop(&mut self) {
        let mut state = self.orders.lock();
        state.is_over = true;
        self.orders.told.wake_all();
        let deadline = clock::now() + GOODBYE_LIMIT;
        while state.is_expected {
            let left = deadline.saturating_duration_since(clock::now());
            if left.is_zero() {
                return;
            }
            state = self.orders.told.wait(&self.orders.state, state, Some(left));
        }
    }
}

/// Orders for the thread.
#[derive(Default)]
struct Orders {
    state: Mutex<SearchState>,
    told: Condition,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, SearchState> {
        lock(&self.state)
    }

    /// Notes that rank 0 does not expect this rank any more, or has been notified.
    fn is_not_expected(&self) {
        self.lock().is_expected = false;
        self.told.wake_all();
    }

    /// Waits for an order, for at most `pause`; `None` when the search is over.
    fn wait(&self, pause: Duration) -> Option<Vec<String>> {
        let mut state = self.lock();
        if !state.is_over && state.rivals.is_empty() {
            state = self.told.wait(&self.state, state, Some(pause));
        }
        (!state.is_over).then(|| std::mem::take(&mut state.rivals))
    }
}

/// Asks rank 0 in one place to accept this rank, on a thread of its own; `tell` receives the events.
pub(crate) fn search(
    search: Search,
    tell: impl Fn(JoinEvent) + Send + 'static,
) -> io::Result<Searching> {
    let orders = Arc::new(Orders::default());
    let its = Arc::clone(&orders);
    let name = format!("fsgather-{}-join", search.join.rank);
    search.threads.clone().start(name, move || {
        let event = run(search, &its, &tell);
        its.is_not_expected();
        if let Some(event) = event {
            tell(event);
        }
    })?;
    Ok(Searching { orders })
}

/// The last event of a search; `None` when it was ended from outside.
fn run(search: Search, orders: &Orders, tell: &dyn Fn(JoinEvent)) -> Option<JoinEvent> {
    let rank = search.join.rank;
    let sender = sender_of(search.join.nonce);
    let mut pauses = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut entering = RetryWindow::default();
    let mailbox = loop {
        match search.mailboxes.enter(&search.place.facts, rank, sender) {
            Ok(Some(mailbox)) => break mailbox,
            Ok(None) if has_ended(&search) => return Some(ended(false, "its process has ended")),
            Ok(None) => drop(orders.wait(pauses.next_pause())?),
            Err(error) if entering.tolerates(&error, clock::now()) => {
                drop(orders.wait(pauses.next_pause())?);
            }
            Err(error) => return Some(JoinEvent::Failed(error.to_string())),
        }
    };
    let asking = Asking {
        search,
        mailbox,
        orders,
        tell,
    };
    let event = asking.run();
    match event {
        Some(JoinEvent::WelcomeOverFiles(_)) => {}
        // Rank 0 still has to read our goodbye, and removes everything then.
        Some(JoinEvent::Refused(_) | JoinEvent::Unable(_)) | None => {
            asking.mailbox.retire(Retirement::Over);
        }
        Some(JoinEvent::Lost(_)) if has_ended(&asking.search) => {
            asking.mailbox.retire(Retirement::Deserted);
        }
        // Files of another world are left to cleaning and sweeping.
        _ => asking.mailbox.retire(Retirement::Withdrawn),
    }
    event
}

fn has_ended(search: &Search) -> bool {
    !(search.is_running)(&search.place.process)
}

/// The event of rank 0's end, which a rank that it has accepted may have to report.
fn ended(is_in: bool, how: &str) -> JoinEvent {
    let event = if is_in {
        JoinEvent::Lost
    } else {
        JoinEvent::Failed
    };
    event(how.into())
}

fn silent() -> JoinEvent {
    let limit = fsgather_core::duration_text(SILENCE_LIMIT);
    JoinEvent::Lost(format!("its host has shown no sign of life for {limit}"))
}

struct Asking<'a> {
    search: Search,
    mailbox: Arc<dyn Mailbox>,
    orders: &'a Orders,
    tell: &'a dyn Fn(JoinEvent),
}

impl Asking<'_> {
    fn run(&self) -> Option<JoinEvent> {
        let now = clock::now();
        let (shortest, longest) = self.mailbox.pace();
        let mut pace = PollInterval::new(shortest, longest, now);
        let mut endpoint = MemberEndpoint::new(self.search.join.rank, self.search.join.nonce);
        let join = ToCoordinator::Join(JoinRequest::Join(self.search.join.clone()));
        endpoint.send(join.clone());
        // It may have been read long before the answer is seen.
        self.orders.lock().is_expected = true;
        let mut outbox = Outbox::default();
        let host = self.search.place.process.host_label();
        let mut heartbeat = Heartbeat::default();
        heartbeat.listen_to(host, now);
        let mut receiving = RetryWindow::default();
        let (mut ask_again, mut check_at) = (None, now);
        let mut is_in = false;
        loop {
            let now = clock::now();
            outbox.put(endpoint.take_outgoing(false));
            match outbox.send(&*self.mailbox, now) {
                Ok(()) => {}
                Err(error) if is_in => return Some(JoinEvent::Unable(error)),
                Err(error) => return Some(JoinEvent::Failed(error.to_string())),
            }
            let has_ended = now >= check_at && has_ended(&self.search);
            let found = match self.mailbox.receive(false) {
                Ok(found) => {
                    receiving.well();
                    found
                }
                Err(error) if receiving.tolerates(&error, now) => Vec::new(),
                Err(error) if is_in => return Some(JoinEvent::Lost(error.to_string())),
                Err(error) => return Some(JoinEvent::Failed(error.to_string())),
            };
            if !found.is_empty() {
                pace.moved(now);
            }
            let mut heard = endpoint.receive(found).into_iter();
            while let Some(message) = heard.next() {
                match message {
                    ToMember::Join(JoinReply::Forming { coordinator }) if !is_in => {
                        is_in = true;
                        (self.tell)(JoinEvent::Forming {
                            coordinator,
                            connection: None,
                        });
                    }
                    ToMember::Join(JoinReply::Refused { reason }) if !reason.is_final() => {
                        let has_formed = matches!(reason, RefusalReason::AlreadyFormed { .. });
                        ask_again = has_formed.then_some(now + ASK_AGAIN).or(ask_again);
                        (self.tell)(JoinEvent::Refused(reason));
                    }
                    ToMember::Join(JoinReply::Refused { reason }) => {
                        self.say_goodbye(endpoint, outbox, None);
                        return Some(JoinEvent::Refused(reason));
                    }
                    ToMember::Call(CallReply::Abort { cause, .. }) => {
                        self.say_goodbye(endpoint, outbox, None);
                        return Some(JoinEvent::Refused(cause.into()));
                    }
                    ToMember::End(EndReply::Bye { .. }) => return Some(ended(is_in, "it left")),
                    ToMember::Join(JoinReply::Welcome(welcome)) if self.is_meant(&welcome) => {
                        return Some(JoinEvent::WelcomeOverFiles(Box::new(EnteredFiles {
                            welcome,
                            mailbox: Arc::clone(&self.mailbox),
                            endpoint,
                            outbox,
                            heard: heard.collect(),
                        })));
                    }
                    _ => {}
                }
            }
            // Messages that rank 0 left before its end count, so they are read first.
            if has_ended {
                return Some(ended(is_in, "its process has ended"));
            }
            if now >= check_at {
                check_at = now + CHECK_EVERY;
                let beats = self.mailbox.beats(host).unwrap_or_default();
                if heartbeat.record(host, &beats, now) >= SILENCE_LIMIT && is_in {
                    return Some(silent());
                }
                self.mailbox.tend();
            }
            if ask_again.is_some_and(|due| now >= due) {
                ask_again = None;
                endpoint.send(join.clone());
            }
            let Some(rivals) = self.orders.wait(pace.pause(clock::now())) else {
                let cause = self.orders.lock().cause.take();
                // Not the reason of all ranks: rank 0 adds which rank it is of.
                let stopped = || Error::config("it does not wait for the others any longer");
                self.say_goodbye(endpoint, outbox, Some(cause.unwrap_or_else(stopped)));
                return None;
            };
            for other in rivals {
                endpoint.send(ToCoordinator::Join(JoinRequest::Rival { other }));
            }
        }
    }

    /// Notifies rank 0 that it need not wait for us.
    fn say_goodbye(&self, mut endpoint: MemberEndpoint, mut outbox: Outbox, cause: Option<Error>) {
        endpoint.send(ToCoordinator::End(EndRequest::Leave { cause }));
        outbox.put(endpoint.take_outgoing(true));
        let deadline = clock::now() + GOODBYE_LIMIT;
        loop {
            let now = clock::now();
            if let Err(error) = outbox.send(&*self.mailbox, now) {
                tracing::debug!("rank 0 is not told that we leave: {error}");
            }
            if outbox.may_be_left(now) || now >= deadline {
                break;
            }
            // New orders do not end this.
            clock::sleep(SEND_AGAIN);
        }
        self.orders.is_not_expected();
    }

    fn is_meant(&self, welcome: &Welcome) -> bool {
        let join = &self.search.join;
        welcome.nonces.get(join.rank.index()) == Some(&join.nonce)
    }
}

#[cfg(test)]
#[path = "seek_tests.rs"]
mod tests;
