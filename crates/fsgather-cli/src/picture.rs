//! Draws the progress of all ranks as one line: [`Picture`]. Pure; it is told what ranks report and what time it is.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use fsgather_core::Phase;
use fsgather_core::{bytes_text, duration_text};
use fsgather_report::progress::Report;

/// Nothing is shown of what is over sooner.
const LONG_ENOUGH: Duration = Duration::from_millis(500);

/// So many ranks are named at most.
const NAMED: usize = 8;

/// What a rank does, as far as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) stage: Stage,
    /// The call that it is in, or was in last.
    pub(crate) call: Option<ShownCall>,
}

/// How far a rank has come in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It looks for the others.
    Joining,
    /// It is in no call.
    Outside,
    /// It hands in its part.
    Publishing,
    /// It has handed it in.
    Waiting,
    /// It takes what the call brings.
    Reading,
}

/// One call of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownCall {
    pub(crate) lane: u64,
    pub(crate) number: u64,
    /// What it is called, with its number and place.
    pub(crate) name: String,
    /// How many ranks are in it.
    pub(crate) ranks: u32,
    pub(crate) moved: Moved,
}

/// How many bytes have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) done: u64,
    /// How many there will be, where that is known.
    pub(crate) total: Option<u64>,
}

impl From<Report> for Standing {
    fn from(report: Report) -> Self {
        let stage = match report.phase {
            Phase::Joining => Stage::Joining,
            Phase::Publishing => Stage::Publishing,
            Phase::Waiting => Stage::Waiting,
            Phase::Reading => Stage::Reading,
            _ => Stage::Outside,
        };
        let call = report.call.map(|call| ShownCall {
            lane: call.lane,
            number: call.number,
            name: match call.site.as_str() {
                "" => format!("{} #{}", call.operation, call.number),
                site => format!("{} #{} at {site}", call.operation, call.number),
            },
            ranks: call.ranks,
            moved: Moved {
                done: call.done,
                total: call.total,
            },
        });
        Self { stage, call }
    }
}

/// What is shown of one rank, or of all ranks of a run.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The last that is known of each rank.
    ranks: Vec<Option<Standing>>,
    /// Whether these are all ranks, so that who is waited for is known.
    is_whole: bool,
    /// How long bytes are counted for their rate.
    window: Duration,
    subject: Option<Subject>,
}

/// What the line is about.
#[derive(Debug)]
struct Subject {
    key: Key,
    since: Instant,
    /// When the phase began that most is said of.
    stage: (Stage, Instant),
    /// Of each rank what has moved in this stage, also when it is through.
    moved: Vec<Option<Moved>>,
    pace: VecDeque<(Instant, u64)>,
}

/// Tells subjects apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Meeting,
    Call { lane: u64, number: u64 },
}

/// Where a rank is, seen from one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallPosition {
    /// It has not come yet, as far as is known.
    Away,
    In(Stage),
    /// It is through with it.
    Over,
}

impl Picture {
    /// Of the ranks of a run.
    pub(crate) fn of_all(ranks: usize) -> Self {
        Self::new(ranks, true, Duration::from_secs(3))
    }

    /// Of one rank, which knows of no others.
    pub(crate) fn of_one(window: Duration) -> Self {
        Self::new(1, false, window)
    }

    fn new(ranks: usize, is_whole: bool, window: Duration) -> Self {
        Self {
            ranks: vec![None; ranks],
            is_whole,
            window,
            subject: None,
        }
    }

    /// Takes what ranks report now; of those that say nothing what they have said before holds.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        standings: impl IntoIterator<Item = Option<Standing>>,
    ) {
        for (known, standing) in self.ranks.iter_mut().zip(standings) {
            if standing.is_some() {
                *known = standing;
            }
        }
        let Some(key) = self.key() else {
            self.subject = None;
            return;
        };
        let stage = self.stage(key);
        let subject = match self.subject.take() {
            Some(subject) if subject.key == key => subject,
            _ => Subject::new(key, stage, self.ranks.len(), now),
        };
        let subject = self.subject.insert(subject);
        subject.enter(stage, now);
        for (moved, rank) in subject.moved.iter_mut().zip(&self.ranks) {
            let call = rank
                .as_ref()
                .and_then(|rank| Some((rank.stage, rank.call.as_ref()?)));
            match (place(rank.as_ref(), key), call) {
                (CallPosition::In(of), Some((_, call))) if of == stage => *moved = Some(call.moved),
                // It has moved all that it had to.
                (CallPosition::In(of), _) if of > stage => complete(moved),
                (CallPosition::Over, _) => complete(moved),
                _ => {}
            }
        }
        subject.keep_pace(self.window, now);
    }

    /// The call in which most ranks move something, else in which most are, the first of several; else the meeting, if
    /// ranks are in it.
    fn key(&self) -> Option<Key> {
        let mut calls: BTreeMap<Key, (usize, usize)> = BTreeMap::new();
        for rank in self.ranks.iter().flatten() {
            let Some(key) = key_of(rank) else { continue };
            let (moving, all) = calls.entry(key).or_default();
            *moving += usize::from(matches!(rank.stage, Stage::Publishing | Stage::Reading));
            *all += 1;
        }
        let largest = calls
            .iter()
            .rev()
            .max_by_key(|(key, counts)| (**key != Key::Meeting, **counts));
        largest.map(|(key, _)| *key)
    }

    /// What is said of a call: what those do who have come furthest.
    fn stage(&self, key: Key) -> Stage {
        let stages = self
            .ranks
            .iter()
            .filter_map(|rank| match place(rank.as_ref(), key) {
                CallPosition::In(stage) => Some(stage),
                _ => None,
            });
        let stages: Vec<Stage> = stages.collect();
        [Stage::Reading, Stage::Publishing]
            .into_iter()
            .find(|stage| stages.contains(stage))
            .unwrap_or(if key == Key::Meeting {
                Stage::Joining
            } else {
                Stage::Waiting
            })
    }

    /// Whether ranks still look for each other.
    pub(crate) fn is_of_meeting(&self) -> bool {
        let subject = self.subject.as_ref();
        subject.is_some_and(|subject| subject.key == Key::Meeting)
    }

    /// The line; none where nothing lasts long enough to be shown.
    pub(crate) fn line(&self, now: Instant) -> Option<String> {
        let subject = self.subject.as_ref()?;
        if now.saturating_duration_since(subject.since) < LONG_ENOUGH {
            return None;
        }
        let name = self.ranks.iter().flatten().find_map(|rank| {
            let call = rank.call.as_ref()?;
            (key_of(rank) == Some(subject.key)).then(|| format!("{}: ", call.name))
        });
        let mut text = name.filter(|_| self.is_whole).unwrap_or_default();
        let (stage, began) = subject.stage;
        let mut said = match stage {
            Stage::Reading => vec![format!("received {}", subject.figures(now))],
            Stage::Publishing => vec![format!("publishing {}", subject.figures(now))],
            Stage::Joining => vec!["meeting".to_owned()],
            _ if self.is_whole => Vec::new(),
            _ => vec!["handed in".to_owned()],
        };
        said.extend(self.company(subject, stage));
        let is_still = matches!(stage, Stage::Joining | Stage::Waiting);
        if is_still && !self.is_whole {
            said.push("waiting for the others".to_owned());
        }
        text.push_str(&said.join(", "));
        let lasts = now.saturating_duration_since(began).as_secs();
        if is_still && lasts > 0 {
            let lasts = duration_text(Duration::from_secs(lasts));
            text = format!("{text} ({lasts})");
        }
        Some(text)
    }

    /// How many ranks have come how far, and who is behind; nothing where others are not known.
    fn company(&self, subject: &Subject, stage: Stage) -> Vec<String> {
        if !self.is_whole {
            return Vec::new();
        }
        let places: Vec<CallPosition> = self
            .ranks
            .iter()
            .map(|rank| place(rank.as_ref(), subject.key))
            .collect();
        let in_call = self.ranks.iter().flatten().find_map(|rank| {
            let ranks = rank.call.as_ref()?.ranks;
            (key_of(rank) == Some(subject.key)).then_some(ranks as usize)
        });
        let all = in_call.unwrap_or(self.ranks.len());
        let away: Vec<usize> = numbers(&places, |place| place == CallPosition::Away);
        // Who belongs to a group is not known here.
        let away = if all == self.ranks.len() {
            away
        } else {
            Vec::new()
        };
        let mut said = Vec::new();
        match stage {
            Stage::Reading => {
                let done = numbers(&places, |place| place == CallPosition::Over).len();
                let reading = numbers(&places, |place| place == CallPosition::In(Stage::Reading));
                match reading.as_slice() {
                    [only] => return vec![format!("rank {only}")],
                    _ if done > 0 => said.push(count(done, all, "done")),
                    _ => {}
                }
            }
            Stage::Joining => {
                let here = self.ranks.len() - away.len();
                said.push(count(here, all, "here"));
            }
            _ => {
                let is_in =
                    |place| matches!(place, CallPosition::Over | CallPosition::In(Stage::Waiting));
                said.push(count(numbers(&places, is_in).len(), all, "in"));
            }
        }
        let mut awaited = away;
        if let Some((rank, percent)) = subject.slowest(&places, stage) {
            said.push(format!("slowest rank {rank} ({percent} %)"));
        } else if stage == Stage::Publishing && all == self.ranks.len() {
            // How much is left of what they hand in is not known.
            awaited.extend(numbers(&places, |place| place == CallPosition::In(stage)));
            awaited.sort_unstable();
        }
        if !awaited.is_empty() && awaited.len() < all && stage != Stage::Reading {
            said.push(format!("waiting for {}", ranks_text(&awaited)));
        }
        said
    }
}

impl Subject {
    fn new(key: Key, stage: Stage, ranks: usize, now: Instant) -> Self {
        Self {
            key,
            since: now,
            stage: (stage, now),
            moved: vec![None; ranks],
            pace: VecDeque::new(),
        }
    }

    fn enter(&mut self, stage: Stage, now: Instant) {
        if self.stage.0 != stage {
            self.stage = (stage, now);
            self.moved.fill(None);
            self.pace.clear();
        }
    }

    fn done(&self) -> u64 {
        self.moved.iter().flatten().map(|moved| moved.done).sum()
    }

    /// How much there is in all, if all have said so.
    fn total(&self) -> Option<u64> {
        self.moved.iter().flatten().map(|moved| moved.total).sum()
    }

    fn keep_pace(&mut self, window: Duration, now: Instant) {
        let done = self.done();
        self.pace.push_back((now, done));
        let is_old = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) > window;
        // One that is older than the window begins it.
        while self.pace.get(1).is_some_and(is_old) {
            self.pace.pop_front();
        }
    }

    /// Bytes in a second, once that can be told.
    fn rate(&self, now: Instant) -> Option<u64> {
        let (from, before) = self.pace.front()?;
        let millis = now.saturating_duration_since(*from).as_millis();
        let bytes = u128::from(self.done().saturating_sub(*before));
        (millis >= LONG_ENOUGH.as_millis())
            .then(|| u64::try_from(bytes * 1000 / millis).unwrap_or(u64::MAX))
    }

    /// How much has moved, of how much, how fast, and how long it goes on so.
    fn figures(&self, now: Instant) -> String {
        let (done, total) = (self.done(), self.total().filter(|total| *total > 0));
        let mut text = bytes_text(done);
        if let Some(total) = total {
            let percent = percent(done, total);
            text = format!("{}, {percent} %", share_text(done, total));
        }
        let Some(rate) = self.rate(now) else {
            return text;
        };
        text = format!("{text}, {}/s", bytes_text(rate));
        // Nobody knows for how long nothing comes.
        let left = total.filter(|_| rate > 0);
        let left = left.map(|total| total.saturating_sub(done).div_ceil(rate));
        match left {
            Some(seconds) => {
                let left = duration_text(Duration::from_secs(seconds));
                format!("{text}, {left} left")
            }
            None => text,
        }
    }

    /// Who of several has moved least of what it has to, and how much of a hundred.
    fn slowest(&self, places: &[CallPosition], stage: Stage) -> Option<(usize, u64)> {
        let moving = self.moved.iter().zip(places).enumerate();
        let moving = moving.filter(|(_, (_, place))| **place == CallPosition::In(stage));
        let shares: Vec<(u64, usize)> = moving
            .filter_map(|(rank, (moved, _))| {
                let moved = moved.as_ref()?;
                let total = moved.total.filter(|total| *total > 0)?;
                Some((percent(moved.done, total), rank))
            })
            .collect();
        let others = places
            .iter()
            .filter(|place| **place != CallPosition::Away)
            .count();
        let (share, rank) = shares.into_iter().min()?;
        (others > 1).then_some((rank, share))
    }
}

/// Notes that all has moved.
fn complete(moved: &mut Option<Moved>) {
    if let Some(moved) = moved {
        moved.done = moved.total.unwrap_or(moved.done);
    }
}

fn key_of(standing: &Standing) -> Option<Key> {
    match (standing.stage, &standing.call) {
        (Stage::Joining, _) => Some(Key::Meeting),
        (Stage::Outside, _) | (_, None) => None,
        (_, Some(call)) => Some(Key::Call {
            lane: call.lane,
            number: call.number,
        }),
    }
}

fn place(standing: Option<&Standing>, key: Key) -> CallPosition {
    let Some(standing) = standing else {
        return CallPosition::Away;
    };
    match (key, &standing.call) {
        // Whoever has got on from the meeting has been there.
        (Key::Meeting, _) => CallPosition::In(Stage::Joining),
        (Key::Call { lane, number }, Some(call)) if call.lane == lane => {
            match (call.number.cmp(&number), standing.stage) {
                (Ordering::Less, _) => CallPosition::Away,
                (Ordering::Greater, _) | (_, Stage::Outside | Stage::Joining) => CallPosition::Over,
                (Ordering::Equal, stage) => CallPosition::In(stage),
            }
        }
        _ => CallPosition::Away,
    }
}

fn numbers(places: &[CallPosition], is_one: impl Fn(CallPosition) -> bool) -> Vec<usize> {
    let places = places.iter().enumerate();
    places
        .filter(|(_, place)| is_one(**place))
        .map(|(rank, _)| rank)
        .collect()
}

/// A part of some bytes in the unit of the whole: `118/256 MiB`, `1.10/2.00 GiB`.
fn share_text(done: u64, total: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (total.max(1).ilog2() / 10).min(5);
    let unit = UNITS.get(power as usize).copied().unwrap_or_default();
    // Cut: what is not there is not shown.
    let text = |bytes: u64| {
        let hundredths = (u128::from(bytes) * 100) >> (10 * power);
        match power {
            0..=2 => (hundredths / 100).to_string(),
            _ => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        }
    };
    format!("{}/{} {unit}", text(done), text(total))
}

fn percent(done: u64, total: u64) -> u64 {
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    u64::try_from(percent).unwrap_or(100).min(100)
}

fn count(some: usize, all: usize, what: &str) -> String {
    format!("{some} of {all} ranks {what}")
}

fn ranks_text(ranks: &[usize]) -> String {
    let named: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match ranks.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}{more}", named.join(" "))
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
