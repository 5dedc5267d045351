//! Messages to leave, in order: [`Outbox`].

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use fsgather_core::{Error, Mailbox};

use super::{endpoint::OutgoingFile, retry_window::may_pass};

/// Interval between tries to leave a message.
pub(super) const SEND_AGAIN: Duration = Duration::from_millis(100);

/// Time for which leaving a message may fail before this rank gives up.
const SEND_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Time for which a rank that leaves tries to leave its last messages.
const LAST_TRIES: Duration = Duration::from_secs(2);

/// Leaves messages one after the other, and retries those that cannot be left for now.
///
/// No message is ever skipped: a reader that misses one waits for it and does not read those after it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    unsent: VecDeque<OutgoingFile>,
    failing: Option<Failing>,
    /// Number of the last message that was left by an alternate path.
    detoured: u64,
}

/// A message that cannot be left, for now.
#[derive(Debug)]
struct Failing {
    since: Instant,
    again_at: Instant,
    is_hopeless: bool,
}

impl Outbox {
    /// Adds messages to leave after all others.
    pub(super) fn put(&mut self, outgoing: Vec<OutgoingFile>) {
        self.unsent.extend(outgoing);
    }

    /// Leaves the messages that can be left now.
    ///
    /// # Errors
    ///
    /// If it has failed for too long, or for a reason that does not pass by itself. It is still retried: the others have to
    /// learn of this failure, if they can.
    pub(super) fn send(&mut self, mailbox: &dyn Mailbox, now: Instant) -> Result<(), Error> {
        if let Some(failing) = &self.failing
            && now < failing.again_at
        {
            return Ok(());
        }
        while let Some(next) = self.unsent.front() {
            if let Err(error) = mailbox.send(next.number, next.to, &next.body) {
                for message in &self.unsent {
                    if message.number > self.detoured {
                        self.detoured = message.number;
                        mailbox.detour(message.number, message.to, &message.body);
                    }
                }
                return self.record(error, now);
            }
            self.failing = None;
            self.unsent.pop_front();
        }
        Ok(())
    }

    fn record(&mut self, error: Error, now: Instant) -> Result<(), Error> {
        let failing = self.failing.get_or_insert_with(|| {
            tracing::debug!("cannot leave a message yet: {error}");
            Failing {
                since: now,
                again_at: now,
                is_hopeless: false,
            }
        });
        failing.again_at = now + SEND_AGAIN;
        failing.is_hopeless =
            !may_pass(&error) || now.saturating_duration_since(failing.since) >= SEND_TIME_LIMIT;
        if failing.is_hopeless {
            Err(error)
        } else {
            Ok(())
        }
    }

    /// Returns true if everything has been left.
    pub(super) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Returns true if there is a message that cannot be left.
    pub(super) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Returns true if a rank that leaves need not wait any longer.
    pub(super) fn may_be_left(&self, now: Instant) -> bool {
        self.unsent.is_empty()
            || self.failing.as_ref().is_some_and(|failing| {
                failing.is_hopeless || now.saturating_duration_since(failing.since) >= LAST_TRIES
            })
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{ProcessId, WorldSize};
    use fsgather_testkit::MemoryMailbox;
    use uuid::Uuid;

    use super::*;

    const NO_SPACE: i32 = 28;
    const READ_ONLY: i32 = 30;

    /// Leaves two messages while sends fail like this, and returns how each try at these seconds ended, and the number of
    /// messages left in the end.
    fn leave(os_code: i32, times: u32, at: &[u64]) -> (Vec<bool>, usize) {
        let post = MemoryMailbox::new();
        let process = ProcessId::default();
        let factory = post.factory(&process);
        let opened = factory.open(Uuid::nil(), WorldSize::new(2).unwrap());
        let (_, mailbox) = opened.unwrap();
        post.refuse_sends(&process, os_code, times);
        let mut outbox = Outbox::default();
        let message = |number| OutgoingFile {
            number,
            to: None,
            body: Vec::new(),
        };
        outbox.put(vec![message(1), message(2)]);
        let start = Instant::now();
        let tries = at
            .iter()
            .map(|at| {
                let now = start + Duration::from_secs(*at);
                outbox.send(&*mailbox, now).is_ok()
            })
            .collect();
        assert_eq!(outbox.is_empty(), !outbox.is_failing());
        (tries, post.held())
    }

    #[test]
    fn what_fails_for_a_while_is_left_later() {
        assert_eq!(leave(NO_SPACE, 2, &[0, 1, 2]), (vec![true; 3], 2));
    }

    #[test]
    fn what_fails_for_long_is_told_and_still_tried() {
        let outcome = leave(NO_SPACE, 3, &[0, 9, 11, 12]);
        assert_eq!(outcome, (vec![true, true, false, true], 2));
    }

    #[test]
    fn what_does_not_pass_is_told_at_once_and_still_tried() {
        assert_eq!(leave(READ_ONLY, 1, &[0, 1]), (vec![false, true], 2));
    }

    #[test]
    fn who_goes_leaves_its_last_messages_or_tries_for_two_seconds() {
        let (_, mailbox) = MemoryMailbox::new()
            .factory(&ProcessId::default())
            .open(Uuid::nil(), WorldSize::new(2).unwrap())
            .unwrap();
        let start = Instant::now();
        let message = || OutgoingFile {
            number: 1,
            to: None,
            body: Vec::new(),
        };
        let mut outbox = Outbox::default();
        assert!(outbox.may_be_left(start));
        outbox.put(vec![message()]);
        assert!(!outbox.may_be_left(start));
        outbox.send(&*mailbox, start).unwrap();
        assert!(outbox.may_be_left(start));

        let post = MemoryMailbox::new();
        let process = ProcessId::default();
        let factory = post.factory(&process);
        let (_, mailbox) = factory
            .open(Uuid::nil(), WorldSize::new(2).unwrap())
            .unwrap();
        post.refuse_sends(&process, NO_SPACE, u32::MAX);
        let mut outbox = Outbox::default();
        outbox.put(vec![message()]);
        outbox.send(&*mailbox, start).unwrap();
        assert!(!outbox.may_be_left(start + Duration::from_secs(1)));
        assert!(outbox.may_be_left(start + LAST_TRIES));
    }

    #[test]
    fn nothing_is_tried_again_in_haste() {
        assert_eq!(leave(NO_SPACE, 1, &[0, 0]), (vec![true; 2], 0));
    }
}
