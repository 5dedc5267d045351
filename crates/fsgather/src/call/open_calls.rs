//! Calls of which something is still to be had, which is what `close` must not come before: [`OpenCalls`].

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Condvar, Mutex, PoisonError},
};

use fsgather_core::{Error, Site, lock};

/// What is still to be had of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// Nobody has waited for its verdict.
    Pending,
    /// Results have not been read to their end.
    Unread,
    /// Nobody wants it any more; a thread of ours is about to find out, or reads what it has begun.
    #[cfg(feature = "async")]
    GivenUp,
}

impl Open {
    /// Whether it ends without the user.
    const fn ends_itself(self) -> bool {
        match self {
            Self::Pending | Self::Unread => false,
            #[cfg(feature = "async")]
            Self::GivenUp => true,
        }
    }

    const fn what_to_do(self) -> &'static str {
        match self {
            #[cfg(feature = "async")]
            Self::GivenUp => "is still being given up; wait for that",
            Self::Pending => "is still pending; wait for it or drop it",
            Self::Unread => "has results that have not been read to their end; read or drop them",
        }
    }
}

/// Open calls by the order in which they were opened.
#[derive(Default)]
pub(crate) struct OpenCalls {
    state: Mutex<NumberedCalls>,
    /// Told when a call is no longer open.
    ended: Condvar,
}

#[derive(Default)]
struct NumberedCalls {
    opened: u64,
    calls: BTreeMap<u64, (Open, String)>,
}

impl OpenCalls {
    pub(crate) fn insert(&self, left: Open, call: &dyn fmt::Display) -> u64 {
        let mut state = lock(&self.state);
        state.opened += 1;
        let number = state.opened;
        state.calls.insert(number, (left, call.to_string()));
        number
    }

    pub(crate) fn remove(&self, number: u64) {
        lock(&self.state).calls.remove(&number);
        self.ended.notify_all();
    }

    /// Notes that nobody wants a call any more, if it is open.
    #[cfg(feature = "async")]
    pub(crate) fn give_up(&self, number: u64) {
        if let Some((left, _)) = lock(&self.state).calls.get_mut(&number) {
            *left = Open::GivenUp;
        }
    }

    /// Nothing if no call is open, else why the communicator cannot be closed at `site`.
    ///
    /// Closing it all the same would wait for this very rank. Calls that have been given up end by themselves.
    pub(crate) fn check(&self, site: &Site) -> Result<(), Error> {
        let mut state = lock(&self.state);
        while !state.calls.is_empty() && state.calls.values().all(|(left, _)| left.ends_itself()) {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let mut calls = state.calls.values();
        let Some((left, call)) = calls.find(|(left, _)| !left.ends_itself()) else {
            return Ok(());
        };
        let more = match calls.filter(|(left, _)| !left.ends_itself()).count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Err(Error::config(format!(
            "close at {site} comes too early: {call}{more} {} before",
            left.what_to_do()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_places_are_named() {
        let calls = OpenCalls::default();
        let end = Site::named("a.py:9");
        assert_eq!(calls.check(&end), Ok(()));
        let first = calls.insert(Open::Pending, &"all_gather at a.py:3");
        let second = calls.insert(Open::Unread, &"gather to rank 0 at a.py:5");
        let told = calls.check(&end).unwrap_err().to_string();
        assert_eq!(
            told,
            "close at a.py:9 comes too early: all_gather at a.py:3 (and 1 more) is still pending; wait for it \
             or drop it before"
        );
        calls.remove(first);
        let told = calls.check(&end).unwrap_err().to_string();
        assert_eq!(
            told,
            "close at a.py:9 comes too early: gather to rank 0 at a.py:5 has results that have not been read to \
             their end; read or drop them before"
        );
        calls.remove(second);
        assert_eq!(calls.check(&end), Ok(()));
    }
}
