//! The one error type of all crates: [`Error`].

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{
    Activity, Missing, Peer, Rank, RollCall, duration_text,
    peer::list_missing,
    sys::limits,
    text::{cut_text, plain_line},
};

pub mod form;
mod kind;
mod making;

pub use kind::ErrorKind;

/// Maximum length of each text of an error, in bytes. An error travels in one message.
const LONGEST_TEXT: usize = 64 << 10;

/// The reason why a collective call, or the meeting before it, failed.
///
/// Errors travel: a rank that fails before the verdict sends its error to rank 0, and every rank that
/// can hear rank 0 returns the *same* error. Hence fields are plain data, no source is attached, and
/// the text names the rank concerned rather than the rank that prints it.
///
/// Its `Debug` is the same sentence, so that a `main` that returns it prints readable text; `{:#?}` gives
/// its [kind](Error::kind) as well.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, argument or combination of them is wrong; the text says which and what would be
    /// right. Trying again does not help.
    #[error("{message}")]
    #[non_exhaustive]
    Config {
        /// The mistake, and its remedy.
        message: String,
    },

    /// The ranks did not find each other. The text says where this rank looked and what to set.
    #[error("ranks could not meet: {message}")]
    #[non_exhaustive]
    Rendezvous {
        /// The attempts, and their outcome.
        message: String,
        /// The rank that could not be reached, if it had joined already.
        unreached: Option<Rank>,
    },

    /// Nothing moved for as long as the time-out allows. `missing` names all ranks that were waited for.
    #[error(
        "timed out after {} without progress in {during}: waiting for {}; {hint}{stacks}",
        duration_text(*.timeout),
        list_missing(.missing)
    )]
    #[non_exhaustive]
    Timeout {
        /// The call, or the stage of meeting, that timed out.
        during: String,
        /// Time for which nothing moved.
        timeout: Duration,
        /// All ranks that were waited for.
        missing: Vec<Missing>,
        /// The setting that gives more time.
        hint: String,
        /// The last known activity of those ranks.
        stacks: RollCall,
    },

    /// A rank was lost, has left, or raised an error of its own.
    #[error("{peer} {failure}{}", meanwhile(.failure, .activity))]
    #[non_exhaustive]
    PeerFailed {
        /// The rank that failed.
        peer: Peer,
        /// Its last known activity.
        activity: Activity,
        /// The kind of failure.
        failure: PeerFailure,
    },

    /// Two ranks entered different collective calls. Nothing was moved.
    #[error(
        "ranks are in different calls ({difference}) at call #{number}: {one} called {one_call}, {other} called {other_call}{stacks}"
    )]
    #[non_exhaustive]
    Desync {
        /// The number of the call; see [`Call::number`](crate::Call::number).
        number: u64,
        /// The first difference between the calls.
        difference: String,
        /// One of the two ranks.
        one: Box<Peer>,
        /// The call of that rank, and its place in the program.
        one_call: String,
        /// The other rank.
        other: Box<Peer>,
        /// The call of the other rank, and its place in the program.
        other_call: String,
        /// The stacks of these ranks and of others that wait in the call, as far as they are known.
        stacks: Box<RollCall>,
    },

    /// A file operation failed: no space, no permission, a missing file. See [`Error::is_transient`].
    #[error("cannot {operation} {}: {cause}{}", in_line(.path), by_whom(.peer.as_deref(), .activity.as_ref()))]
    #[non_exhaustive]
    Storage {
        /// The file or directory.
        path: PathBuf,
        /// The failed operation, as a verb: `write`, `make directory`.
        operation: String,
        /// The reason why it failed.
        cause: StorageCause,
        /// The rank that failed; absent before ranks have met.
        peer: Option<Box<Peer>>,
        /// The activity of that rank when the operation failed.
        activity: Option<Activity>,
    },

    /// The directory is not the same directory on all hosts.
    #[error(
        "{} is not shared between all ranks: {reason} ({}); give a directory on a shared file system with FSGATHER_DIR, or set FSGATHER_TRANSPORT=memory",
        in_line(.directory),
        plain_line(&hosts.join(", "))
    )]
    #[non_exhaustive]
    NotShared {
        /// The directory.
        directory: PathBuf,
        /// Hosts that do not see the files of the others.
        hosts: Vec<String>,
        /// The evidence.
        reason: String,
    },

    /// The data that was found differs from the announced data, and reading it again did not help.
    #[error("{} is corrupt: {reason}{}", in_line(.path), from_to(.writer.as_ref(), .reader.as_ref()))]
    #[non_exhaustive]
    Corrupt {
        /// The file, or `inline` for data that came over the control plane.
        path: PathBuf,
        /// The expected data, and the data that was found.
        reason: String,
        /// The rank that wrote the data.
        writer: Option<Peer>,
        /// The rank that read the data.
        reader: Option<Peer>,
    },

    /// A rank's payload exceeds the bound that the call set. Nothing was moved.
    #[error("the payload of {peer} needs {size} bytes, but the call allows {bound}")]
    #[non_exhaustive]
    TooLarge {
        /// The rank whose payload is too large.
        peer: Peer,
        /// Number of bytes that it needs.
        size: u64,
        /// Maximum number of bytes that the call allows.
        bound: u64,
    },

    /// Two builds of fsgather are incompatible.
    #[error(
        "{what} is of version {theirs}, this build understands {ours}; use one build of fsgather on all ranks"
    )]
    #[non_exhaustive]
    Incompatible {
        /// The thing whose version differs.
        what: String,
        /// The version that this build understands.
        ours: String,
        /// The version that was found.
        theirs: String,
    },

    /// An earlier call on this communicator failed, and it cannot be used any more.
    #[error("this communicator has failed before and cannot be used: {cause}")]
    #[non_exhaustive]
    Poisoned {
        /// The earlier failure.
        cause: Box<Error>,
    },
}

/// The reason why a peer failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFailure {
    /// The process or its host is gone.
    #[error("was lost ({how})")]
    Lost {
        /// The evidence of the loss.
        how: String,
    },
    /// The rank itself reported a failure.
    #[error("failed ({message})")]
    Raised {
        /// The error that the rank reported.
        message: String,
    },
    /// The rank has left the communicator in good order.
    #[error("had already left{}", before_call(.before.as_deref()))]
    Departed {
        /// The call that it missed, and the ranks in that call, as far as they are known.
        before: Option<String>,
    },
    /// Rank 0 is gone, and it is unknown if the call succeeded elsewhere.
    #[error("was lost ({how}), so the outcome of the call is unknown")]
    OutcomeUnknown {
        /// The evidence of the loss.
        how: String,
    },
    /// The rank could not continue because its link to another rank broke. Rank 0 still reaches the other rank.
    #[error("lost its link to {other} ({how})")]
    LinkLost {
        /// The rank at the other end.
        other: Peer,
        /// The evidence of the broken link.
        how: String,
    },
}

/// The reason why a file operation failed, in a form that travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageCause {
    /// The operating system's error number, if it gave one.
    pub os_code: Option<i32>,
    /// The meaning of the error number.
    pub message: String,
}

impl PeerFailure {
    /// A rank that has left in good order, and has missed no call.
    pub const DEPARTED: Self = Self::Departed { before: None };

    /// Returns true if the rank has left in good order.
    #[must_use]
    pub const fn is_departure(&self) -> bool {
        matches!(self, Self::Departed { .. })
    }
}

impl StorageCause {
    /// A cause that is not an operating system's error.
    #[must_use]
    pub fn described(message: impl Into<String>) -> Self {
        Self {
            os_code: None,
            message: message.into(),
        }
    }
}

impl From<&io::Error> for StorageCause {
    fn from(error: &io::Error) -> Self {
        Self {
            // A file larger than this process may make is refused before the system is asked.
            os_code: error.raw_os_error().or_else(|| {
                (error.kind() == io::ErrorKind::FileTooLarge).then_some(Errno::FBIG.raw_os_error())
            }),
            message: match limits::open_files_advice(error) {
                Some(advice) => format!("{error}; {advice}"),
                None => error.to_string(),
            },
        }
    }
}

impl fmt::Display for StorageCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error {
    /// Returns the same error, with rank and activity filled in if the error has such fields and they are not known
    /// yet.
    #[doc(hidden)]
    #[must_use]
    pub fn raised_by(mut self, who: &Peer, doing: Activity) -> Self {
        match &mut self {
            Self::Storage { peer, activity, .. } => {
                peer.get_or_insert_with(|| Box::new(who.clone()));
                activity.get_or_insert(doing);
            }
            Self::Corrupt { reader, .. } => {
                reader.get_or_insert_with(|| who.clone());
            }
            Self::PeerFailed {
                failure: PeerFailure::LinkLost { .. },
                activity,
                ..
            } if activity.call.is_none() => *activity = doing,
            _ => {}
        }
        self
    }

    /// Returns the rank that the error is about, if any: the rank that was lost or failed, could not read or write a
    /// file, or handed in too much. An error that an earlier one caused is about the same rank.
    ///
    /// ```
    /// # use fsgather_core as fsgather;
    /// use fsgather::Error;
    ///
    /// assert_eq!(Error::config("no such model").peer(), None);
    /// ```
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match self.root_cause() {
            Self::PeerFailed { peer, .. } | Self::TooLarge { peer, .. } => Some(peer),
            Self::Storage { peer, .. } => peer.as_deref(),
            Self::Corrupt { reader, .. } => reader.as_ref(),
            _ => None,
        }
    }

    /// Returns all ranks that the error is about: the rank of [`peer`](Self::peer), the ranks that were waited for in
    /// vain, or the two ranks whose calls differ.
    #[must_use]
    pub fn ranks(&self) -> Vec<Rank> {
        match self.root_cause() {
            Self::Timeout { missing, .. } => missing.iter().map(|missing| missing.rank).collect(),
            Self::Desync { one, other, .. } => vec![one.rank, other.rank],
            _ => self.peer().map(|peer| peer.rank).into_iter().collect(),
        }
    }

    /// Returns the other ranks that `teller` blames by this error: ranks that it lost, could not reach or waited for in
    /// vain. The list is empty if `teller` reports its own failure.
    ///
    /// Reports of a rank about other ranks are less reliable than the reports of those ranks about themselves.
    #[doc(hidden)]
    #[must_use]
    pub fn blamed_by(&self, teller: Rank) -> Vec<Rank> {
        let mut blamed = match self.root_cause() {
            Self::PeerFailed {
                failure: PeerFailure::LinkLost { other, .. },
                ..
            } => vec![other.rank],
            Self::PeerFailed { peer, .. } => vec![peer.rank],
            Self::Rendezvous { unreached, .. } => unreached.iter().copied().collect(),
            Self::Timeout { missing, .. } => missing.iter().map(|missing| missing.rank).collect(),
            _ => Vec::new(),
        };
        blamed.retain(|rank| *rank != teller);
        blamed
    }

    /// Returns the first failure, which caused all others: the error itself, unless it is [`Error::Poisoned`].
    #[must_use]
    pub fn root_cause(&self) -> &Self {
        match self {
            Self::Poisoned { cause } => cause.root_cause(),
            other => other,
        }
    }

    /// Returns the same error with texts that fit into a message. Longer texts are cut, and marked as cut.
    #[doc(hidden)]
    #[must_use]
    pub fn cut_to_size(mut self) -> Self {
        self.cut();
        self
    }

    fn cut(&mut self) {
        let cut = |text: &mut String| {
            if text.len() > LONGEST_TEXT {
                *text = cut_text(text, LONGEST_TEXT);
            }
        };
        let cut_path = |path: &mut PathBuf| {
            if path.as_os_str().len() > LONGEST_TEXT {
                *path = cut_text(&path.to_string_lossy(), LONGEST_TEXT).into();
            }
        };
        // Each entry of a list gets its part, but enough to be of use.
        let part = |entries: usize| (LONGEST_TEXT / entries.max(1)).max(256);
        match self {
            Self::Config { message } | Self::Rendezvous { message, .. } => cut(message),
            Self::Timeout {
                during,
                hint,
                stacks,
                ..
            } => {
                cut(during);
                cut(hint);
                stacks.cut();
            }
            Self::PeerFailed { failure, .. } => match failure {
                PeerFailure::Lost { how }
                | PeerFailure::OutcomeUnknown { how }
                | PeerFailure::LinkLost { how, .. } => cut(how),
                PeerFailure::Raised { message } => cut(message),
                PeerFailure::Departed { before } => before.iter_mut().for_each(cut),
            },
            Self::Desync {
                difference,
                one_call,
                other_call,
                stacks,
                ..
            } => {
                cut(difference);
                cut(one_call);
                cut(other_call);
                stacks.cut();
            }
            Self::Storage {
                path,
                operation,
                cause,
                ..
            } => {
                cut_path(path);
                cut(operation);
                cut(&mut cause.message);
            }
            Self::NotShared {
                directory,
                hosts,
                reason,
            } => {
                cut_path(directory);
                cut(reason);
                let most = part(hosts.len());
                for host in hosts {
                    *host = cut_text(host, most);
                }
            }
            Self::Corrupt { path, reason, .. } => {
                cut_path(path);
                cut(reason);
            }
            Self::Incompatible { what, ours, theirs } => {
                cut(what);
                cut(ours);
                cut(theirs);
            }
            Self::Poisoned { cause } => cause.cut(),
            Self::TooLarge { .. } => {}
        }
    }

    /// Returns the error of later calls: [`Error::Poisoned`] around the root cause of this error.
    #[doc(hidden)]
    #[must_use]
    pub fn poisoned(&self) -> Self {
        Self::Poisoned {
            cause: Box::new(self.root_cause().clone()),
        }
    }

    /// Returns true if the calls before the failure help to explain it: a rank was lost, did not arrive in time, or
    /// made another call.
    ///
    /// All other errors name their cause.
    #[doc(hidden)]
    #[must_use]
    pub fn needs_post_mortem(&self) -> bool {
        match self.root_cause() {
            Self::Timeout { .. } | Self::Desync { .. } => true,
            Self::PeerFailed { failure, .. } => match failure {
                PeerFailure::Lost { .. }
                | PeerFailure::OutcomeUnknown { .. }
                | PeerFailure::LinkLost { .. } => true,
                PeerFailure::Raised { .. } | PeerFailure::Departed { .. } => false,
            },
            _ => false,
        }
    }

    /// Returns true if starting the job again, unchanged, may succeed.
    ///
    /// It is true for lost peers, time-outs and failed meetings, and for storage errors if space was short. It is false
    /// for all others, such as an error that a rank of the program raised, a rank that left too early, wrong settings,
    /// ranks in different calls, incompatible builds and corrupt data.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Rendezvous { .. } | Self::Timeout { .. } => true,
            Self::PeerFailed { failure, .. } => match failure {
                PeerFailure::Lost { .. }
                | PeerFailure::OutcomeUnknown { .. }
                | PeerFailure::LinkLost { .. } => true,
                // The program would do the same again.
                PeerFailure::Raised { .. } | PeerFailure::Departed { .. } => false,
            },
            Self::Storage { cause, .. } => {
                // ENOSPC and EDQUOT: there may be free space by then.
                matches!(cause.os_code, Some(28 | 122))
            }
            Self::Poisoned { cause } => cause.is_transient(),
            _ => false,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            write!(f, "{:?}: {self}", self.kind())
        } else {
            fmt::Display::fmt(self, f)
        }
    }
}

/// Returns the activity of a rank when it failed. A rank that left had finished its last call.
fn meanwhile(failure: &PeerFailure, activity: &Activity) -> String {
    match (failure, &activity.call) {
        (PeerFailure::Departed { .. }, Some(call)) if call.operation.prepares() => {
            format!("; it made no call after {call}")
        }
        (PeerFailure::Departed { .. }, Some(call)) => format!("; its last call was {call}"),
        (PeerFailure::Departed { .. }, None) => String::new(),
        (PeerFailure::OutcomeUnknown { .. }, _) => format!(", while {activity}"),
        _ => format!(" while {activity}"),
    }
}

fn before_call(call: Option<&str>) -> String {
    call.map_or_else(String::new, |call| format!(" before {}", plain_line(call)))
}

fn by_whom(peer: Option<&Peer>, activity: Option<&Activity>) -> String {
    match (peer, activity) {
        (Some(peer), Some(activity)) => format!(" ({peer}, {activity})"),
        (Some(peer), None) => format!(" ({peer})"),
        _ => String::new(),
    }
}

fn from_to(writer: Option<&Peer>, reader: Option<&Peer>) -> String {
    let writer = writer.map(|writer| format!("; written by {writer}"));
    let reader = reader.map(|reader| format!("; read by {reader}"));
    writer.unwrap_or_default() + &reader.unwrap_or_default()
}

/// Returns a path as it appears in a sentence. Its name may contain any characters, because any user may have made the
/// file.
fn in_line(path: &Path) -> String {
    plain_line(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests;
