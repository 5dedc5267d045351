//! The connection of one member with rank 0: [`Link`].

use std::{collections::VecDeque, time::Duration};

use fsgather_control::message::{ToCoordinator, ToMember};

/// A message or the end of a link.
#[derive(Clone, Debug)]
pub(super) enum Frame<M> {
    Said(M),
    /// The other side's connection has ended.
    End,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(super) struct Lane<M> {
    pub(super) frames: VecDeque<(Duration, Frame<M>)>,
    pub(super) open: bool,
}

impl<M> Lane<M> {
    pub(super) fn new() -> Self {
        Self {
            frames: VecDeque::new(),
            open: true,
        }
    }

    pub(super) fn push(&mut self, now: Duration, frame: Frame<M>) {
        if self.open {
            self.frames.push_back((now, frame));
        }
    }

    /// Ends the lane: nothing follows the frames on their way, of which only the first `keep` arrive.
    pub(super) fn end(&mut self, now: Duration, keep: usize) {
        self.frames.truncate(keep);
        self.push(now, Frame::End);
        self.open = false;
    }

    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.open = false;
    }
}

/// The connection of one member with rank 0.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) up: Lane<ToCoordinator>,
    pub(super) down: Lane<ToMember>,
    /// Time since which it carries nothing.
    pub(super) cut: Option<Duration>,
    /// The sides that have noticed that: rank 0, the member.
    pub(super) noticed: [bool; 2],
}
