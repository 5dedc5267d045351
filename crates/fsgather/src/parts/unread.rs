//! The parts of a gather that have not been read yet, and the end of its reading: [`UnreadParts`].

use std::{sync::Arc, vec};

use fsgather_core::{CallEvent, Error, Phase, Rank, Ticket};

use crate::{
    call::{guard::record_read, open_call::OpenCall, open_calls::Open},
    group_state::GroupState,
    payload::{ahead::fetch_ahead, header::FileHeader, part::IncomingPart},
};

/// The parts of a gather that have not been read yet.
pub(crate) struct UnreadParts {
    inner: Arc<GroupState>,
    ticket: Ticket,
    parts: vec::IntoIter<(Rank, IncomingPart, Option<FileHeader>)>,
    /// True if the owners of payloads wait for the message that all has been read.
    acknowledge: bool,
    failed: bool,
    _open: OpenCall,
}

impl UnreadParts {
    pub(crate) fn new(
        inner: Arc<GroupState>,
        ticket: Ticket,
        incoming: Vec<IncomingPart>,
        acknowledge: bool,
    ) -> Self {
        let open = OpenCall::new(&inner, &ticket, Open::Unread);
        let parts: Vec<_> = (0..)
            .map(Rank::new)
            .zip(incoming)
            .map(|(rank, part)| {
                if !acknowledge {
                    part.is_to_be_removed(&inner);
                }
                let file = part.file().cloned();
                (rank, part, file)
            })
            .collect();
        Self {
            inner,
            ticket,
            parts: parts.into_iter(),
            acknowledge,
            failed: false,
            _open: open,
        }
    }

    pub(crate) fn next(&mut self) -> Option<(Rank, IncomingPart, Option<FileHeader>)> {
        if self.failed {
            return None;
        }
        let next = self.parts.as_mut_slice().iter_mut();
        fetch_ahead(&self.inner, next.map(|(rank, part, _)| (*rank, part)));
        self.parts.next()
    }

    /// Removes a payload that has been read, unless its owner does so after the message.
    pub(crate) fn remove(&self, file: Option<&FileHeader>) {
        if !self.acknowledge {
            IncomingPart::remove(&self.inner, file);
        }
    }

    pub(crate) const fn inner(&self) -> &Arc<GroupState> {
        &self.inner
    }

    /// Returns the number of parts; 0 after an error.
    pub(crate) fn len(&self) -> usize {
        if self.failed { 0 } else { self.parts.len() }
    }

    /// Returns the number of parts in files.
    pub(crate) fn files(&self) -> usize {
        let parts = self.parts.as_slice().iter();
        parts.filter(|(_, _, file)| file.is_some()).count()
    }

    /// Returns the call, for messages.
    pub(crate) fn call(&self) -> String {
        self.ticket.to_string()
    }

    /// Returns the total length of the parts, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let parts = self.parts.as_slice().iter();
        parts.map(|(_, part, _)| part.len()).sum()
    }

    /// Returns a function that records read bytes.
    pub(crate) fn moved(&self) -> impl FnMut(u64) -> Result<(), Error> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        let ticket = self.ticket.clone();
        move |bytes| record_read(&inner, &ticket, bytes)
    }

    /// Ends the reading with a failure, which the other ranks get at their next call.
    pub(crate) fn fail(&mut self, cause: Error) -> Error {
        self.failed = true;
        let exchange = &self.inner.exchange;
        let failure = exchange.fail(&self.ticket, Phase::Reading, cause);
        self.inner.world.record_failure(&failure);
        self.inner
            .world
            .observe(&self.ticket, CallEvent::Failed(&failure));
        failure
    }
}

impl Drop for UnreadParts {
    fn drop(&mut self) {
        for (_, _, file) in std::mem::take(&mut self.parts) {
            self.remove(file.as_ref());
        }
        if self.acknowledge {
            self.inner.exchange.done(&self.ticket);
        }
        if !self.failed {
            self.inner.world.observe(&self.ticket, CallEvent::Done);
        }
    }
}
