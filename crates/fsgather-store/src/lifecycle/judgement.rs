//! Judges if a gather directory is alive, stale, finished or unknown, and if it may be removed: [`assess`]. Pure: evidence and
//! the time go in, a [`Judgement`] comes out.
//!
//! There are two separate questions. The *state* is about the owner: a proof that it is gone makes a directory stale, mere
//! silence never does. *Removable* is also about all other ranks: when rank 0 has died, others may still read payloads of calls
//! that were decided before, and such a survivor leaves a tombstone. So a stale or finished directory with payloads in it may
//! be removed only when all ranks are proved to be gone, or when nothing in it has changed for so long that no rank can be
//! reading. A directory without payloads holds nothing that any rank could miss.
//!
//! A sign of life outweighs all indirect evidence against the owner: that its host seems to have been booted since, that
//! another process has its pid, that a survivor has missed it. Hosts are cloned, processes are restored, survivors are cut off.
//! Only a pid that no process has is a proof by itself, and even that is outweighed by a heartbeat that changes.
//!
//! If nothing is proved, a directory must be silent in two ways: nothing has changed for the age that the user gives, by the
//! server's time, and the heartbeat has not changed while the cleaner watched it by its own monotonic clock. One alone is not
//! enough: clocks are set, and servers hang.

use std::time::{Duration, SystemTime};

use fsgather_core::duration_text;

use crate::os::process::Liveness;

/// Default interval at which the owner of a gather directory renews its heartbeat.
pub const BEAT_PERIOD: Duration = Duration::from_secs(10);

/// State of a gather directory's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherState {
    /// The owner is at work, or is stopped and may continue.
    Live,
    /// Its owner is proved to be gone.
    Stale,
    /// The owner has marked the directory as finished.
    Finished,
    /// Nothing is proved.
    Unknown,
}

impl GatherState {
    /// Returns the word for the state: `live`, `stale`, `finished` or `unknown`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Stale => "stale",
            Self::Finished => "finished",
            Self::Unknown => "unknown",
        }
    }
}

/// Permission to remove a gather directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removable {
    /// It may be removed at once.
    Yes,
    /// It may be removed if its heartbeat does not change while it is watched.
    OnceWatched,
    /// It must stay for now.
    No,
}

/// The conclusion from the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// State of the owner.
    pub state: GatherState,
    /// The reason, in plain words.
    pub reason: String,
    /// The reason without the details that differ between directories, so that directories of one reason can be counted.
    pub gist: String,
    /// Permission to remove the directory.
    pub removable: Removable,
}

/// A reason, and its gist.
#[derive(Clone, Debug)]
pub(crate) struct Why {
    pub(crate) reason: String,
    pub(crate) gist: String,
}

impl Why {
    pub(crate) fn new(reason: String, gist: impl Into<String>) -> Self {
        let gist = gist.into();
        Self { reason, gist }
    }

    /// Makes a reason that is its own gist.
    pub(crate) fn plain(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::new(reason.clone(), reason)
    }

    /// Joins both reasons and both gists, with `between` in the middle.
    fn and(self, between: &str, other: &Self) -> Self {
        Self {
            reason: self.reason + between + &other.reason,
            gist: self.gist + between + &other.gist,
        }
    }
}

/// State of the owner record, and of the process that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerEvidence {
    /// The record is there.
    Recorded {
        /// Liveness of the owner.
        owner: Liveness,
        /// `Running` if any rank runs; else the weakest evidence among all ranks.
        ranks: Liveness,
        /// Name of the owner in messages: `pid 42 on n7`.
        name: String,
    },
    /// There is no record: the directory is being made or removed, or either was cut short.
    Missing,
    /// The file is torn, or not an owner record.
    Damaged(String),
    /// The record cannot be read, or was written by another version of fsgather.
    Closed(String),
}

/// Result of watching the heartbeat so far, by the watcher's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeatEvidence {
    /// It has changed.
    Changed,
    /// It has been the same for this time; zero after the first look.
    Same(Duration),
}

/// All observations of one gather directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The other user who owns it, if any: a name, or `uid 1001`.
    pub foreign: Option<String>,
    /// Evidence about its owner.
    pub owner: OwnerEvidence,
    /// True if the owner has marked it `finished`.
    pub finished: bool,
    /// True if a survivor has marked it `aborted`.
    pub aborted: bool,
    /// The process that has condemned it, if any.
    pub condemned: Option<String>,
    /// Evidence about its heartbeat.
    pub beat: BeatEvidence,
    /// The last change of its heartbeat, by server time.
    pub last_beat: Option<SystemTime>,
    /// The last change in the directory, by server time.
    pub changed: SystemTime,
    /// Number of payloads that may have been announced to a rank, or may still be written.
    pub payloads: u64,
    /// True if it holds nothing except perhaps an owner record and empty directories.
    pub is_bare: bool,
    /// An entry that is not ours, or cannot be examined.
    pub stranger: Option<String>,
}

impl Evidence {
    /// Returns true if it holds nothing and its owner cannot be determined. An unreadable directory may hold anything.
    pub(crate) const fn is_nameless(&self) -> bool {
        let is_ownerless = matches!(
            self.owner,
            OwnerEvidence::Missing | OwnerEvidence::Damaged(_)
        );
        self.is_bare && is_ownerless
    }

    /// Returns true if there is evidence against the owner that a sign of life could outweigh.
    pub(crate) const fn is_suspected(&self) -> bool {
        let has_gone = matches!(
            self.owner,
            OwnerEvidence::Recorded {
                owner: Liveness::Replaced | Liveness::Rebooted,
                ..
            }
        );
        self.aborted || has_gone
    }
}

/// Required durations of silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Time without any change after which a directory is old, if its owner cannot be judged.
    pub older_than: Duration,
    /// Time for which the heartbeat of such a directory must be watched.
    pub watch: Duration,
    /// Time without any change after which payloads count as no longer being read.
    pub readers: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            older_than: Duration::from_secs(86_400),
            watch: BEAT_PERIOD * 3,
            readers: Duration::from_secs(300),
        }
    }
}

/// Maximum error of time stamps of one server: some keep whole seconds only, some even seconds only.
const SLACK: Duration = Duration::from_secs(2);

/// Time without any change after which an empty item without an owner is old: a file that was made for a moment, or a directory
/// without an owner record. No process takes this long for its next step.
const NAMELESS: Duration = Duration::from_secs(600);

impl Rules {
    /// Returns the rules for items that hold nothing and whose owner can never be determined.
    pub(crate) fn for_nameless(self) -> Self {
        Self {
            older_than: self.older_than.min(NAMELESS),
            ..self
        }
    }

    /// Returns true if nothing has changed for long enough, with the reason for either answer.
    pub(crate) fn silence(&self, quiet: Duration) -> (bool, Why) {
        let age = duration_text(self.older_than);
        if quiet > self.older_than.saturating_add(SLACK) {
            let quiet = duration_text(quiet);
            let why = Why::new(
                format!("nothing has changed for {quiet}"),
                format!("nothing has changed for more than {age}"),
            );
            return (true, why);
        }
        // The option does not apply to nameless items.
        let option = if self.older_than == NAMELESS {
            ""
        } else {
            " (--older-than)"
        };
        let why = Why::plain(format!("kept: changed less than {age} ago{option}"));
        (false, why)
    }
}

/// Judges a gather directory. `now` is the server's time.
///
/// ```
/// use fsgather_store::{
///     BeatEvidence, Evidence, GatherState, Liveness, OwnerEvidence, Removable, Rules, assess,
/// };
/// use std::time::{Duration, SystemTime};
///
/// let now = SystemTime::now();
/// let evidence = Evidence {
///     foreign: None,
///     owner: OwnerEvidence::Recorded {
///         owner: Liveness::Gone,
///         ranks: Liveness::Gone,
///         name: "pid 42 on n7".into(),
///     },
///     finished: false,
///     aborted: false,
///     condemned: None,
///     beat: BeatEvidence::Same(Duration::ZERO),
///     last_beat: None,
///     changed: now,
///     payloads: 3,
///     is_bare: false,
///     stranger: None,
/// };
/// let judgement = assess(&evidence, &Rules::default(), now);
/// assert_eq!(judgement.state, GatherState::Stale);
/// assert_eq!(judgement.reason, "its owner, pid 42 on n7, has ended");
/// assert_eq!(judgement.removable, Removable::Yes);
/// ```
#[must_use]
pub fn assess(evidence: &Evidence, rules: &Rules, now: SystemTime) -> Judgement {
    let (state, mut why) = state(evidence, rules, now);
    let quiet = now.duration_since(evidence.changed).unwrap_or_default();
    let (mut removable, hint) = match state {
        GatherState::Live => (Removable::No, None),
        GatherState::Stale | GatherState::Finished => over(evidence, rules, quiet, now),
        GatherState::Unknown if evidence.is_suspected() => {
            match over(evidence, rules, quiet, now) {
                (Removable::No, hint) => (Removable::No, hint),
                _ => (
                    Removable::OnceWatched,
                    Some(Why::plain("its heartbeat is to be watched")),
                ),
            }
        }
        GatherState::Unknown => silent(evidence, rules, quiet),
    };
    if let Some(hint) = hint {
        why = why.and("; ", &hint);
    }
    if let Some(stranger) = &evidence.stranger {
        removable = Removable::No;
        let what = format!("it holds {stranger}");
        why = why.and("; ", &Why::new(what, "it holds what is not of fsgather"));
    }
    if let Some(user) = &evidence.foreign {
        removable = Removable::No;
        why = Why::plain(format!("owned by {user}")).and("; ", &why);
    }
    let Why { mut reason, gist } = why;
    if let Some(by) = &evidence.condemned {
        reason = format!("{reason}; condemned by {by}");
    }
    Judgement {
        state,
        reason,
        gist,
        removable,
    }
}

/// Returns the state of the owner, with the reason. The order is documented in `docs/design/crash-safety.md`.
fn state(evidence: &Evidence, rules: &Rules, now: SystemTime) -> (GatherState, Why) {
    // The owner's own statement counts, even if it still runs.
    if evidence.finished {
        let why = "its owner is done with it, and has left it for a rank that did not come to its end, or could not remove it";
        return (GatherState::Finished, Why::plain(why));
    }
    let (owner, name) = match &evidence.owner {
        OwnerEvidence::Recorded { owner, name, .. } => (*owner, name.as_str()),
        _ => (Liveness::Unknown, ""),
    };
    let of_owner = |what: &str| {
        let reason = format!("its owner, {name}, {what}");
        Why::new(reason, format!("its owner {what}"))
    };
    if owner == Liveness::Running {
        return (GatherState::Live, of_owner("runs"));
    }
    if evidence.beat == BeatEvidence::Changed {
        return (GatherState::Live, Why::plain("its heartbeat changes"));
    }
    let against = match owner {
        // Only a heartbeat that changes can contradict this.
        Liveness::Gone => return (GatherState::Stale, of_owner("has ended")),
        Liveness::Replaced => Some(of_owner("has ended")),
        Liveness::Rebooted => Some(Why::new(
            format!("the host of its owner, {name}, has been booted since"),
            "the host of its owner has been booted since",
        )),
        _ if evidence.aborted => {
            let why = "a rank that survived has seen its owner go";
            Some(Why::plain(why))
        }
        Liveness::Running | Liveness::Unknown => None,
    };
    match (against, fresh_sign(evidence, rules, now)) {
        (Some(against), None) => return (GatherState::Stale, against),
        (Some(against), Some(sign)) => {
            return (GatherState::Unknown, against.and(", but ", &sign));
        }
        (None, _) => {}
    }
    let why = match &evidence.owner {
        OwnerEvidence::Recorded { .. } => {
            let unseen = of_owner("cannot be seen from here");
            let beat = match evidence.last_beat {
                None => "it has left no heartbeat".to_owned(),
                Some(beat) => {
                    format!("its last heartbeat was {} ago", age_text(beat, now))
                }
            };
            Why::new(format!("{}; {beat}", unseen.reason), unseen.gist)
        }
        OwnerEvidence::Missing => {
            Why::plain("it has no owner record: it is being made or removed, or that was cut short")
        }
        OwnerEvidence::Damaged(why) => Why::new(
            format!("its owner record is damaged: {why}"),
            "its owner record is damaged",
        ),
        OwnerEvidence::Closed(why) => Why::new(
            format!("its owner record cannot be read: {why}"),
            "its owner record cannot be read",
        ),
    };
    (GatherState::Unknown, why)
}

/// Returns a recent sign of life, in words, or `None` once the heartbeat was watched without a change. If there is no heartbeat
/// yet, any change is a sign.
fn fresh_sign(evidence: &Evidence, rules: &Rules, now: SystemTime) -> Option<Why> {
    if matches!(evidence.beat, BeatEvidence::Same(watched) if watched >= rules.watch) {
        return None;
    }
    let at = evidence.last_beat.unwrap_or(evidence.changed);
    let is_fresh = now.duration_since(at).unwrap_or_default() <= rules.watch.saturating_add(SLACK);
    let what = if evidence.last_beat.is_some() {
        "its last heartbeat was"
    } else {
        "something in it changed"
    };
    is_fresh.then(|| {
        let ago = age_text(at, now);
        Why::new(format!("{what} {ago} ago"), format!("{what} a moment ago"))
    })
}

fn age_text(at: SystemTime, now: SystemTime) -> String {
    let age = now.duration_since(at).unwrap_or_default();
    duration_text(Duration::from_secs(age.as_secs()))
}

/// Returns the permission to remove a directory whose owner is gone or has finished.
fn over(
    evidence: &Evidence,
    rules: &Rules,
    quiet: Duration,
    now: SystemTime,
) -> (Removable, Option<Why>) {
    let ranks = ranks(evidence);
    let are_gone = match ranks {
        Liveness::Gone => true,
        // Only if there is no sign of life in the whole directory.
        Liveness::Replaced | Liveness::Rebooted => fresh_sign(evidence, rules, now).is_none(),
        Liveness::Running | Liveness::Unknown => false,
    };
    if evidence.payloads == 0 || are_gone {
        return (Removable::Yes, None);
    }
    let payloads = match evidence.payloads {
        1 => "a payload".to_owned(),
        count => format!("{count} payloads"),
    };
    let hint = |reason: String, gist: &str| (Removable::No, Some(Why::new(reason, gist)));
    if ranks == Liveness::Running {
        let reason = format!("a rank of it still runs and may read {payloads}");
        return hint(reason, "a rank of it still runs and may read from it");
    }
    if quiet > rules.readers.saturating_add(SLACK) {
        return (Removable::Yes, None);
    }
    let ago = duration_text(rules.readers);
    let (who, kept) = (
        "ranks that cannot be seen from here may still read",
        format!("kept: changed less than {ago} ago"),
    );
    let gist = format!("{who} from it; {kept}");
    hint(format!("{who} {payloads}; {kept}"), &gist)
}

/// Returns the permission to remove a directory about which nothing is proved.
fn silent(evidence: &Evidence, rules: &Rules, quiet: Duration) -> (Removable, Option<Why>) {
    if matches!(evidence.owner, OwnerEvidence::Closed(_)) {
        return (Removable::No, None);
    }
    if ranks(evidence) == Liveness::Running {
        return (Removable::No, Some(Why::plain("a rank of it runs here")));
    }
    let is_nameless = evidence.is_nameless();
    let rules = if is_nameless {
        &rules.for_nameless()
    } else {
        rules
    };
    let (is_long, quiet) = rules.silence(quiet);
    if !is_long {
        return (Removable::No, Some(quiet));
    }
    if is_nameless {
        return (Removable::Yes, Some(quiet));
    }
    match evidence.beat {
        BeatEvidence::Same(watched) if watched >= rules.watch => {
            let watched = Why::new(
                format!("its heartbeat was watched for {}", duration_text(watched)),
                "its heartbeat was watched",
            );
            (Removable::Yes, Some(quiet.and(", ", &watched)))
        }
        _ => (Removable::OnceWatched, Some(quiet)),
    }
}

fn ranks(evidence: &Evidence) -> Liveness {
    match evidence.owner {
        OwnerEvidence::Recorded { ranks, .. } => ranks,
        _ => Liveness::Unknown,
    }
}

#[cfg(test)]
#[path = "judgement_tests.rs"]
mod tests;
