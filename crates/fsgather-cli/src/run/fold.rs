//! Saying once what several ranks say at about the same time: [`Fold`]. Pure; it is told what time it is.
//!
//! Each line waits for a moment, in the order in which lines came. The same line of another rank joins it, unless that
//! rank has said something after it already: what one rank says stays in its order.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use fsgather::{Rank, WorldSize};

use crate::colour::{Hue, Paint};

/// How long a line waits for its like.
const HOLD: Duration = Duration::from_millis(200);

/// How many bytes wait at most.
const MOST: usize = 1 << 20;

/// Lines that wait.
#[derive(Debug)]
pub(super) struct Fold {
    world: WorldSize,
    paint: Paint,
    waiting: VecDeque<Group>,
    bytes: usize,
}

#[derive(Debug)]
struct Group {
    line: Vec<u8>,
    /// Who says it, in the order of ranks; nobody where it is a line of our own.
    ranks: Vec<Rank>,
    since: Instant,
}

impl Fold {
    pub(super) const fn new(world: WorldSize, paint: Paint) -> Self {
        Self {
            world,
            paint,
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Takes a whole line of a rank, with its line break.
    pub(super) fn take(&mut self, rank: Rank, line: &[u8], now: Instant) {
        // After the last that this rank has said.
        let after = self
            .waiting
            .iter()
            .rposition(|group| group.ranks.binary_search(&rank).is_ok())
            .map_or(0, |last| last + 1);
        let mut later = self.waiting.iter_mut().skip(after);
        match later.find(|group| !group.ranks.is_empty() && group.line == line) {
            Some(group) => {
                let at = group.ranks.partition_point(|known| *known < rank);
                group.ranks.insert(at, rank);
            }
            None => self.put(vec![rank], line, now),
        }
    }

    /// Takes a line of our own, which comes after what had come before it.
    pub(super) fn take_own(&mut self, line: &[u8], now: Instant) {
        self.put(Vec::new(), line, now);
    }

    fn put(&mut self, ranks: Vec<Rank>, line: &[u8], now: Instant) {
        self.bytes += line.len();
        self.waiting.push_back(Group {
            line: line.to_owned(),
            ranks,
            since: now,
        });
    }

    /// How long until something has waited for long enough; none where nothing waits.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        let first = self.waiting.front()?;
        Some((first.since + HOLD).saturating_duration_since(now))
    }

    /// Appends to `out` what has waited for long enough, or need not wait.
    pub(super) fn release(&mut self, now: Instant, out: &mut Vec<u8>) {
        while let Some(first) = self.waiting.front()
            && (first.is_complete(self.world)
                || now.saturating_duration_since(first.since) >= HOLD
                || self.bytes > MOST)
        {
            self.pop(out);
        }
    }

    /// Appends all to `out`.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        while !self.waiting.is_empty() {
            self.pop(out);
        }
    }

    fn pop(&mut self, out: &mut Vec<u8>) {
        if let Some(group) = self.waiting.pop_front() {
            self.bytes -= group.line.len();
            if !group.ranks.is_empty() {
                let width = (self.world.get() - 1).to_string().len();
                let who = spans(&group.ranks);
                let hue = match group.ranks[..] {
                    [rank] => Hue::Of(rank),
                    _ => Hue::Quiet,
                };
                let prefix = self.paint.on(hue, &format!("[{who:>width$}]"));
                out.extend_from_slice(format!("{prefix} ").as_bytes());
            }
            out.extend_from_slice(&group.line);
        }
    }
}

impl Group {
    /// Whether nobody else can say it.
    fn is_complete(&self, world: WorldSize) -> bool {
        self.ranks.is_empty() || self.ranks.len() as u64 == u64::from(world.get())
    }
}

/// Ranks in order, in as few words as possible: `3`, `0-63`, `0-2,7`.
fn spans(ranks: &[Rank]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for rank in ranks.iter().map(|rank| rank.get()) {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => spans.push((rank, rank)),
        }
    }
    let texts: Vec<String> = spans
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fold(world: u32) -> Fold {
        Fold::new(WorldSize::new(world).unwrap(), Paint::NONE)
    }

    fn all(fold: &mut Fold) -> String {
        let mut out = Vec::new();
        fold.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_all_say_is_said_once_and_at_once() {
        let (mut fold, now) = (fold(64), Instant::now());
        for rank in (0..64).rev() {
            fold.take(Rank::new(rank), b"rank 3 was lost\n", now);
        }
        let mut out = Vec::new();
        fold.release(now, &mut out);
        assert_eq!(out, b"[0-63] rank 3 was lost\n");
        assert_eq!(fold.next(now), None);
    }

    #[test]
    fn what_some_say_waits_for_a_moment_and_no_longer() {
        let (mut fold, now) = (fold(12), Instant::now());
        for rank in [0, 1, 7] {
            fold.take(Rank::new(rank), b"x\n", now);
        }
        fold.take(Rank::new(3), b"y\n", now + HOLD / 2);
        let mut out = Vec::new();
        fold.release(now + HOLD / 2, &mut out);
        assert!(out.is_empty());
        assert_eq!(fold.next(now + HOLD / 2), Some(HOLD / 2));
        fold.release(now + HOLD, &mut out);
        assert_eq!(out, b"[0-1,7] x\n");
        assert_eq!(all(&mut fold), "[ 3] y\n");
    }

    #[test]
    fn what_one_rank_says_stays_in_its_order() {
        let (mut fold, now) = (fold(3), Instant::now());
        for (rank, line) in [
            (0, "a\n"),
            (0, "b\n"),
            (1, "b\n"),
            (1, "a\n"),
            (2, "a\n"),
            (2, "b\n"),
        ] {
            fold.take(Rank::new(rank), line.as_bytes(), now);
        }
        fold.take(Rank::new(2), b"b\n", now);
        assert_eq!(all(&mut fold), "[0,2] a\n[0-2] b\n[1] a\n[2] b\n");
    }

    #[test]
    fn our_own_lines_come_after_what_was_said_before() {
        let (mut fold, now) = (fold(2), Instant::now());
        fold.take(Rank::new(0), b"x\n", now);
        fold.take_own(b"fsgather run: rank 0 has ended\n", now);
        fold.take(Rank::new(1), b"x\n", now);
        assert_eq!(all(&mut fold), "[0-1] x\nfsgather run: rank 0 has ended\n");
    }

    proptest! {
        #[test]
        fn every_rank_says_what_it_has_said_in_its_order(
            said in proptest::collection::vec((0..4_u32, 0..3_u8, 0..300_u64), 0..60),
        ) {
            let (mut fold, start) = (fold(4), Instant::now());
            let (mut out, mut now) = (Vec::new(), start);
            for (rank, letter, later) in &said {
                now += Duration::from_millis(*later);
                fold.release(now, &mut out);
                fold.take(Rank::new(*rank), &[b'a' + letter, b'\n'], now);
            }
            fold.finish(&mut out);
            let out = String::from_utf8(out).unwrap();
            for rank in 0..4 {
                let speaks = |who: &str| who.split(',').any(|span| {
                    let (first, last) = span.split_once('-').unwrap_or((span, span));
                    (first.parse().unwrap()..=last.parse().unwrap()).contains(&rank)
                });
                let heard: Vec<u8> = out
                    .lines()
                    .filter_map(|line| {
                        let (who, line) = line.strip_prefix('[')?.split_once("] ")?;
                        speaks(who).then(|| line.as_bytes()[0])
                    })
                    .collect();
                let expected: Vec<u8> = said
                    .iter()
                    .filter(|(of, _, _)| *of == rank)
                    .map(|(_, letter, _)| b'a' + letter)
                    .collect();
                prop_assert_eq!(heard, expected);
            }
        }
    }
}
