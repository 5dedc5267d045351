//! Judges whether a gather directory is alive, stale, finished or unknown, and whether it may be removed:
//! [`assess`]. Pure: evidence and the time go in, a [`Judgement`] comes out.
//!
//! Two questions are kept apart. *State* is about the owner: a proof that it is gone makes a directory
//! stale, mere silence never does. *Removable* is also about everybody else: when rank 0 has died, others
//! may still read payloads of calls that were decided before, and a tombstone is left by such a survivor.
//! So a stale or finished directory with payloads in it may be removed only when all ranks are proved to
//! be gone, or when nothing in it has changed for so long that nobody can be reading. One without payloads
//! holds nothing that anybody could miss.
//!
//! A sign of life comes before whatever only speaks against the owner: that its host seems to have been
//! booted since, that another process has its pid, that a survivor has missed it. Hosts are cloned,
//! processes are restored, survivors are cut off. Only a pid that nothing has is a proof by itself, and even
//! then a beat that changes says otherwise.
//!
//! Where nothing is proved, two kinds of silence have to come together: nothing has changed for the age
//! that the user gives, by the server's time, and the beat has not changed while the cleaner watched it by
//! its own monotonic clock. Neither alone convinces: clocks are set, and servers hang.

use std::time::{Duration, SystemTime};

use fsgather_core::duration_text;

use crate::os::process::Liveness;

/// Interval at which the owner of a gather directory renews its beat, unless told otherwise.
pub const BEAT_PERIOD: Duration = Duration::from_secs(10);

/// What is known of a gather directory's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherState {
    /// Its owner is at work, or stopped and may go on.
    Live,
    /// Its owner is proved to be gone.
    Stale,
    /// Its owner has said that it is done with it.
    Finished,
    /// Nothing is proved.
    Unknown,
}

impl GatherState {
    /// The word for it: `live`, `stale`, `finished` or `unknown`.
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

/// Whether a gather directory may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removable {
    /// At once.
    Yes,
    /// If its beat does not change while it is watched.
    OnceWatched,
    /// Not now.
    No,
}

/// What the evidence comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What is known of the owner.
    pub state: GatherState,
    /// Why, in plain words.
    pub reason: String,
    /// The same without what differs from one directory to the next, so that those that are alike can be counted.
    pub gist: String,
    /// Whether the directory may be removed.
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

    /// A reason that is its own gist.
    pub(crate) fn plain(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::new(reason.clone(), reason)
    }

    /// Both, with this between them.
    fn and(self, between: &str, other: &Self) -> Self {
        Self {
            reason: self.reason + between + &other.reason,
            gist: self.gist + between + &other.gist,
        }
    }
}

/// What a look at the owner record, and at the process that it names, has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerEvidence {
    /// The record is there.
    Recorded {
        /// Whether the owner runs.
        owner: Liveness,
        /// Whether any rank runs; else the weakest that can be said of all.
        ranks: Liveness,
        /// How messages name the owner: `pid 42 on n7`.
        name: String,
    },
    /// There is none: the directory is being made or removed, or either was cut short.
    Missing,
    /// It is torn, or no owner record.
    Damaged(String),
    /// It cannot be read, or another version of fsgather has written it.
    Closed(String),
}

/// What watching the beat has shown so far, by the watcher's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeatEvidence {
    /// It has changed.
    Changed,
    /// It has been the same for this long; zero at the first look.
    Same(Duration),
}

/// All that was observed of one gather directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The other user whom it belongs to, if it does: a name, or `uid 1001`.
    pub foreign: Option<String>,
    /// Its owner.
    pub owner: OwnerEvidence,
    /// Whether the owner has marked it `finished`.
    pub finished: bool,
    /// Whether a survivor has marked it `aborted`.
    pub aborted: bool,
    /// Who has condemned it, if somebody has.
    pub condemned: Option<String>,
    /// Its beat.
    pub beat: BeatEvidence,
    /// The last change of its beat, by server time.
    pub last_beat: Option<SystemTime>,
    /// The last change of anything in it, by server time.
    pub changed: SystemTime,
    /// Number of payloads that somebody may have been told of, or may still be writing.
    pub payloads: u64,
    /// Whether it holds nothing, but perhaps an owner record and empty directories.
    pub is_bare: bool,
    /// Something in it that is not ours, or cannot be looked at.
    pub stranger: Option<String>,
}

impl Evidence {
    /// Whether it holds nothing and nobody can tell whose it is. What cannot be read may hold anything.
    pub(crate) const fn is_nameless(&self) -> bool {
        let is_ownerless = matches!(
            self.owner,
            OwnerEvidence::Missing | OwnerEvidence::Damaged(_)
        );
        self.is_bare && is_ownerless
    }

    /// Whether something speaks against the owner that a sign of life may outweigh.
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

/// How long silence has to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Time for which nothing may have changed in a directory whose owner cannot be judged.
    pub older_than: Duration,
    /// Time for which the beat of such a directory has to be watched.
    pub watch: Duration,
    /// Time for which nothing may have changed before payloads count as read by nobody.
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

/// By how much time stamps of one server may be off: some keep whole, some even seconds only.
const SLACK: Duration = Duration::from_secs(2);

/// Time for which nothing may have changed in what can never tell whose it is, and holds nothing: a file that
/// was to live for a moment, a directory without an owner record. Nobody takes so long over the next step.
const NAMELESS: Duration = Duration::from_secs(600);

impl Rules {
    /// The same for what can never tell whose it is, and holds nothing that anybody could miss.
    pub(crate) fn for_nameless(self) -> Self {
        Self {
            older_than: self.older_than.min(NAMELESS),
            ..self
        }
    }

    /// Whether nothing has changed for long enough, and how to say so.
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
        // What is nameless does not wait for that.
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

/// What is known of the owner, and why. The order is the promise: see `docs/design/crash-safety.md`.
fn state(evidence: &Evidence, rules: &Rules, now: SystemTime) -> (GatherState, Why) {
    // The owner's own word, whether it still runs or not.
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
        // Nothing but a beat that changes can speak against this.
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

/// A sign of life that is too young to be passed over, in words; none once the beat has been watched in
/// vain. Where there is no beat yet, anything that has changed is a sign.
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

/// Whether a directory whose owner is gone or done may be removed.
fn over(
    evidence: &Evidence,
    rules: &Rules,
    quiet: Duration,
    now: SystemTime,
) -> (Removable, Option<Why>) {
    let ranks = ranks(evidence);
    let are_gone = match ranks {
        Liveness::Gone => true,
        // Nothing shows life in the whole directory.
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

/// Whether a directory of which nothing is proved may be removed.
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
