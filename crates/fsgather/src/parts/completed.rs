//! Hands a gather's root each rank's part as soon as it is handed in: [`Completed`], and all that came in time: [`Partial`].

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use fsgather_core::{Error, Missing, Rank};

use crate::{
    call::{
        blocking::step_aside,
        guard::record_read,
        open_call::OpenCall,
        open_calls::Open,
        started::{Coming, Seen, StartedCall},
    },
    payload::{ahead::fetch_ahead, part::IncomingPart},
};

use super::gathered::Take;

/// A part that cannot be read hides none of the others if that is known within this time.
const AT_ONCE: Duration = Duration::from_secs(5);

/// What [`gather_as_completed`](crate::Communicator::gather_as_completed) gives its root: every rank with its part, in the order
/// in which they have handed in. On other ranks there is nothing to iterate over.
///
/// Each part is whole and right. The iteration ends when the call is decided: with nothing more if it has succeeded, else
/// with one item that is an error, which all ranks get. What was in before a failure comes before that error, as long as it
/// can be read. Dropping it early gives the rest up, on this rank only.
#[must_use = "parts that are not iterated over are thrown away"]
pub struct Completed<T> {
    started: StartedCall<'static>,
    take: Take<T>,
    seen: Seen,
    /// What is in and has not been asked for.
    known: VecDeque<(Rank, IncomingPart)>,
    state: State,
    /// As long as there may be more.
    open: Option<OpenCall>,
    /// Why a part cannot be read, since its owner is gone or it is damaged; those of others come before that.
    unreadable: Option<Error>,
}

enum State {
    /// Ranks are still to come.
    Coming,
    /// The call has succeeded, and all is known; whether owners of parts wait to be told that they were read.
    Decided(bool),
    /// There is nothing more; the call may not have been decided here.
    Failed,
    /// All has been read.
    Over,
}

impl<T> Completed<T> {
    /// A call that has been handed in; elsewhere than on its root its verdict is waited for.
    pub(crate) fn new(mut started: StartedCall<'static>, take: Take<T>) -> Result<Self, Error> {
        let guard = started.guard();
        let is_root = guard.ticket.call.root == Some(guard.inner.exchange.rank());
        let open = is_root.then(|| OpenCall::new(&guard.inner, &guard.ticket, Open::Unread));
        if !is_root {
            started.finish(|started, _| {
                started.guard().succeed();
                Ok(())
            })?;
        }
        Ok(Self {
            started,
            take,
            seen: Seen::default(),
            known: VecDeque::new(),
            state: if is_root { State::Coming } else { State::Over },
            open,
            unreadable: None,
        })
    }

    /// Who had not handed in when the deadline of the call passed: the same on all ranks. On the root it is known once the
    /// iteration has ended. It has this rank itself if that came too late.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        self.started.missing()
    }

    /// Whether that is known.
    #[must_use]
    pub const fn is_decided(&self) -> bool {
        matches!(self.state, State::Decided(_) | State::Over)
    }

    /// The next part, or nothing once all is read.
    fn advance(&mut self) -> Result<Option<(Rank, T)>, Error> {
        while let Some((rank, part)) = self.next_part()? {
            let guard = self.started.guard();
            let began = Instant::now();
            let mut moved = |bytes| record_read(&guard.inner, &guard.ticket, bytes);
            let read = part
                .read(&guard.inner, rank, &mut moved)
                .and_then(|payload| (self.take)(&guard.inner, rank, payload));
            match read {
                Ok(value) => return Ok(Some((rank, value))),
                // What takes long, or is to end, would do so with each part.
                Err(cause)
                    if began.elapsed() < AT_ONCE
                        && guard.inner.world.interrupt.reason().is_none() =>
                {
                    self.unreadable.get_or_insert(cause);
                }
                Err(cause) => return Err(guard.fail(cause)),
            }
        }
        Ok(None)
    }

    /// The next part that is in, not read yet.
    fn next_part(&mut self) -> Result<Option<(Rank, IncomingPart)>, Error> {
        loop {
            self.look_ahead()?;
            if let Some(next) = self.known.pop_front() {
                return Ok(Some(next));
            }
            match &mut self.state {
                State::Failed | State::Over => return Ok(None),
                State::Decided(acknowledge) => {
                    if let Some(cause) = self.unreadable.take() {
                        return Err(self.started.guard().fail(cause));
                    }
                    self.started.end_early(*acknowledge);
                    self.state = State::Over;
                    self.open = None;
                    return Ok(None);
                }
                State::Coming => match self.started.next_part(&mut self.seen)? {
                    Coming::Part(rank, part) => self.known.push_back((rank, part)),
                    Coming::End { rest, acknowledge } => {
                        self.known.extend(rest);
                        self.state = State::Decided(acknowledge);
                    }
                },
            }
        }
    }

    /// Takes note of all parts that are in, and begins to fetch those of other hosts.
    fn look_ahead(&mut self) -> Result<(), Error> {
        if matches!(self.state, State::Coming) {
            while let Some(part) = self.started.part_that_is_in(&mut self.seen)? {
                self.known.push_back(part);
            }
        }
        let known = self.known.iter_mut();
        let known = known.map(|(rank, part)| (*rank, part));
        fetch_ahead(&self.started.guard().inner, known);
        Ok(())
    }

    /// Everything that has come in time, once that is decided.
    pub(crate) fn into_partial(mut self) -> Result<Partial<T>, Error> {
        let is_root = !matches!(self.state, State::Over);
        let mut parts = self.by_ref().collect::<Result<Vec<_>, _>>()?;
        parts.sort_by_key(|(rank, _)| *rank);
        Ok(Partial {
            parts: is_root.then_some(parts),
            missing: self.missing().to_vec(),
        })
    }
}

impl<T> Iterator for Completed<T> {
    type Item = Result<(Rank, T), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.state, State::Failed | State::Over) {
            return None;
        }
        let item = step_aside(|| self.advance());
        if item.is_err() {
            self.give_up();
        }
        item.transpose()
    }
}

impl<T> Completed<T> {
    /// Gives up what has not been read.
    fn give_up(&mut self) {
        self.open = None;
        self.known.clear();
        let guard = self.started.guard();
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Failed => {}
            State::Over => self.state = State::Over,
            State::Coming => self.started.give_up(),
            State::Decided(acknowledge) => {
                if acknowledge {
                    guard.inner.exchange.done(&guard.ticket);
                }
                let call_log = &guard.inner.world.call_log;
                call_log.give_up(&guard.ticket);
                guard.hand_over();
            }
        }
    }
}

impl<T> Drop for Completed<T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<T> fmt::Debug for Completed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completed")
            .field("call", &self.started.guard().ticket.to_string())
            .finish_non_exhaustive()
    }
}

/// What a [gather with a deadline](crate::Communicator::gather_partial) has come to: a value on every rank, and the same set of
/// ranks that are missing on all of them.
#[derive(Clone, Debug)]
#[must_use = "it says who is missing"]
pub struct Partial<T> {
    /// On the root, the ranks that were in time, each with its part, in rank order.
    pub parts: Option<Vec<(Rank, T)>>,
    /// The ranks that were not, by their ranks in this communicator and in that order, each with where it runs and what it was
    /// last known to be doing. A rank that finds itself here was too late: what it would have handed in goes to nobody, and it
    /// goes on with its next call.
    pub missing: Vec<Missing>,
}

impl<T> Partial<T> {
    /// Whether all ranks were in time.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}
