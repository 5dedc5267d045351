//! The line that `run` draws for its ranks: [`Screen`].

use std::time::{Duration, Instant};

use super::board::Board;
use crate::{
    picture::{Picture, Standing},
    progress::{Line, REDRAW},
};

/// A line on a terminal that changes as ranks get on.
#[derive(Debug)]
pub(super) struct Screen {
    board: Board,
    picture: Picture,
    line: Line,
    /// When it is drawn next.
    due: Instant,
}

impl Screen {
    pub(super) fn new(board: Board, ranks: usize, line: Line) -> Self {
        Self {
            board,
            picture: Picture::of_all(ranks),
            line,
            due: Instant::now(),
        }
    }

    /// How long until there is something to be drawn.
    pub(super) fn next(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Draws the line, if it is time.
    pub(super) fn draw(&mut self, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now + REDRAW;
        let standings = self.board.read();
        let standings = standings.map(|report| report.map(Standing::from));
        self.picture.look(now, standings);
        self.line.show(self.picture.line(now));
    }

    /// Does something that may write to the terminal, while the line is away.
    pub(super) fn aside<R>(&self, act: impl FnOnce() -> R) -> R {
        self.line.aside(act)
    }
}
