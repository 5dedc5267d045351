//! Calls whose results have not been taken, which `close` must not precede: [`OpenCalls`].

use std::{collections::BTreeMap, fmt, sync::Mutex};

use fsgather_core::{Error, Site, lock};

/// Part of a call's result that has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// Its verdict has not been waited for.
    Pending,
    /// Results have not been read to their end.
    Unread,
}

impl Open {
    const fn what_to_do(self) -> &'static str {
        match self {
            Self::Pending => "is still pending; wait for it or drop it",
            Self::Unread => "has results that have not been read to their end; read or drop them",
        }
    }
}

/// Open calls by the order in which they were opened.
#[derive(Default)]
pub(crate) struct OpenCalls(Mutex<NumberedCalls>);

#[derive(Default)]
struct NumberedCalls {
    opened: u64,
    calls: BTreeMap<u64, (Open, String)>,
}

impl OpenCalls {
    pub(crate) fn insert(&self, left: Open, call: &dyn fmt::Display) -> u64 {
        let mut state = lock(&self.0);
        state.opened += 1;
        let number = state.opened;
        state.calls.insert(number, (left, call.to_string()));
        number
    }

    pub(crate) fn remove(&self, number: u64) {
        lock(&self.0).calls.remove(&number);
    }

    /// Returns an error if a call is open: closing the communicator at `site` would wait for this very rank.
    pub(crate) fn check(&self, site: &Site) -> Result<(), Error> {
        let state = lock(&self.0);
        let mut calls = state.calls.values();
        let Some((left, call)) = calls.next() else {
            return Ok(());
        };
        let more = match calls.len() {
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
