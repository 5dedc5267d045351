//! The description of a rank's call, for comparison across ranks before any data moves: [`Call`].

use std::{
    fmt::{self, Write},
    panic::Location,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Rank, plain_line, spelled_text, text};

/// The collective operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Operation {
    /// Ranks agree on the places of payloads, once, while a communicator is being built.
    SetUp,
    /// An exchange of nothing.
    Barrier,
    /// The value of one rank for all ranks.
    Broadcast,
    /// The values of all ranks for all ranks.
    AllGather,
    /// The values of all ranks for one rank.
    Gather,
    /// The orderly end of a communicator.
    Close,
    /// Some ranks agree on being a group.
    Group,
    /// All ranks agree on the groups into which they split.
    Split,
    /// The values of all ranks for all ranks, which request them later.
    StartAllGather,
    /// Ranks announce that they have arrived at a place where they meet.
    Meet,
}

impl Operation {
    /// The name of the function that users call.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::AllGather => "all_gather",
            Self::Gather => "gather",
            Self::Close => "close",
            Self::Group => "group",
            Self::Split => "split",
            Self::StartAllGather => "start_all_gather",
            Self::Meet => "first call",
        }
    }

    /// The name with the number of the call, for messages: `all_gather #2`.
    #[must_use]
    pub fn numbered(self, number: u64) -> String {
        match self {
            Self::SetUp | Self::Meet | Self::Group | Self::Close => self.to_string(),
            _ => format!("{self} #{number}"),
        }
    }

    /// Returns true if the operation is not a call of the program, but prepares one.
    #[must_use]
    pub const fn prepares(self) -> bool {
        matches!(self, Self::SetUp | Self::Meet | Self::Group)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The place of a call in the user's program: information for messages, never compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Site(#[serde(deserialize_with = "text::name")] Arc<str>);

impl Site {
    /// Names the caller of a `#[track_caller]` function.
    ///
    /// ```
    /// use fsgather_core::Site;
    /// use std::panic::Location;
    ///
    /// let site = Site::of(Location::caller());
    /// assert!(site.to_string().contains(':'));
    /// ```
    #[must_use]
    pub fn of(location: &Location<'_>) -> Self {
        const NUMBERS: usize = 24;
        let mut text = String::with_capacity(location.file().len() + NUMBERS);
        // Writing to a string cannot fail.
        let _ = write!(text, "{location}");
        Self(text.into())
    }

    /// Names a place that is not in Rust code, such as a command line. It travels with every call; a name of more than
    /// 4 KiB is cut.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        const MAX_BYTES: usize = 4 << 10;
        let name = name.into();
        Self(text::cut_text(&plain_line(&name), MAX_BYTES).into())
    }

    /// Returns the same place, in at most 256 bytes.
    pub(crate) fn short(&self) -> Self {
        const MAX_BYTES: usize = 256;
        if self.0.len() <= MAX_BYTES {
            return self.clone();
        }
        Self(text::cut_text(&self.0, MAX_BYTES).into())
    }

    /// Returns true if the place is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Site {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The Rust type of the values of a call, comparable only between processes of the same build, and their codec.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeTag {
    /// Identifies the executable; tags of different builds are not compared.
    pub build: u64,
    /// The name of the type as the compiler gives it.
    pub name: String,
    /// The name of the codec, compared between any builds.
    pub codec: String,
}

/// The ranks that receive the contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipients {
    /// Every rank.
    All,
    /// One rank; the others learn only that the call succeeded.
    Only(Rank),
    /// No rank: all ranks learn only that the call succeeded.
    Nobody,
}

impl Recipients {
    /// Returns true if `rank` receives.
    #[must_use]
    pub fn include(self, rank: Rank) -> bool {
        match self {
            Self::All => true,
            Self::Only(root) => root == rank,
            Self::Nobody => false,
        }
    }
}

/// The transport and directory that a rank requests for the payloads of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The transport, as it is written in settings.
    #[serde(deserialize_with = "text::name")]
    pub transport: String,
    /// Another directory than the communicator's own.
    pub directory: Option<String>,
}

impl Way {
    /// Returns the first difference between two ways, in words.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.transport != other.transport {
            return Some(
                "different transports: what FSGATHER_ROOT_ONLY, or the program for a handle, says has to be the \
                 same on all ranks",
            );
        }
        if self.directory != other.directory {
            return Some(
                "different directories: what the program says for a handle has to be the same on all ranks",
            );
        }
        None
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transport={}", self.transport)?;
        match &self.directory {
            Some(directory) => write!(f, " and directory={}", plain_line(directory)),
            None => Ok(()),
        }
    }
}

/// One rank's description of the collective call it has entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// The number of this call among the program's calls on its communicator, counted from 1 when it starts; 0 before.
    /// Exchanges that prepare a call have the number of that call. Never compared.
    pub number: u64,
    /// The root, for operations that have one.
    pub root: Option<Rank>,
    /// The largest payload allowed, for bounded operations, in bytes.
    pub bound: Option<u64>,
    /// The name that the program gives the call, beside its place: ranks that reach one line with different names get
    /// an error.
    pub tag: Option<Arc<str>>,
    /// The type of the values, if they are typed.
    pub type_tag: Option<Box<TypeTag>>,
    /// The place of the call in the program.
    pub site: Site,
    /// Time for which nothing may move before the call fails, if it is not the world's time-out. Never compared: the
    /// longest time-out of any rank counts.
    pub timeout: Option<Duration>,
    /// The transport and directory of its payloads, if it has any. The set-up of a transport has it too, so that ranks
    /// get the reason if only some of them need the set-up.
    pub way: Option<Box<Way>>,
}

impl Call {
    /// A call of `operation` without root, bound or type.
    #[must_use]
    pub const fn new(operation: Operation, site: Site) -> Self {
        Self {
            operation,
            number: 0,
            root: None,
            bound: None,
            tag: None,
            type_tag: None,
            site,
            timeout: None,
            way: None,
        }
    }

    /// Returns the same call with its number, after `before` calls of the program have started. Counts it if it is a
    /// call of the program.
    #[must_use]
    pub const fn counted(mut self, before: &mut u64) -> Self {
        self.number = *before + 1;
        if !self.operation.prepares() {
            *before = self.number;
        }
        self
    }

    /// Returns the same call with a root.
    #[must_use]
    pub const fn with_root(mut self, root: Rank) -> Self {
        self.root = Some(root);
        self
    }

    /// Returns the same call with a bound on each rank's payload, in bytes.
    #[must_use]
    pub const fn with_bound(mut self, bound: u64) -> Self {
        self.bound = Some(bound);
        self
    }

    /// Returns the same call with a name of the program's own, [as messages spell it](spelled_text).
    #[must_use]
    pub fn tagged(mut self, tag: &str) -> Self {
        self.tag = Some(spelled_text(tag).into());
        self
    }

    /// Returns the same call with a time-out of its own.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns the same call with typed values.
    #[must_use]
    pub fn with_type(mut self, tag: TypeTag) -> Self {
        self.type_tag = Some(Box::new(tag));
        self
    }

    /// Returns the ranks that receive.
    #[must_use]
    pub fn recipients(&self) -> Recipients {
        match (self.operation, self.root) {
            (Operation::Gather, Some(root)) => Recipients::Only(root),
            (Operation::Barrier, _) => Recipients::Nobody,
            _ => Recipients::All,
        }
    }

    /// Returns the first difference, in words, that keeps two calls from being the same collective call.
    ///
    /// Call sites and time-outs are not compared, and type tags only between equal builds.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        // It may be why the operations differ: one rank must set up a transport that another already has.
        if let Some(difference) = self.difference_of_ways(other) {
            return Some(difference);
        }
        if self.operation != other.operation {
            return Some(if self.is_switched(other) {
                "different operations at one place: ranks take different branches there, or FSGATHER_ROOT_ONLY differs between them"
            } else {
                "different operations"
            });
        }
        if self.tag != other.tag {
            return Some("different tags");
        }
        if self.root != other.root {
            return Some("different roots");
        }
        if self.bound != other.bound {
            return Some("different bounds");
        }
        match (&self.type_tag, &other.type_tag) {
            (Some(ours), Some(theirs)) if ours.codec != theirs.codec => Some("different codecs"),
            (Some(ours), Some(theirs))
                if ours.build == theirs.build && ours.name != theirs.name =>
            {
                Some("different types")
            }
            (Some(_), None) | (None, Some(_)) => Some("typed values and bytes"),
            _ => None,
        }
    }

    /// Returns the text of this call in an error about another from which it differs: with its way only if the ways
    /// differ.
    #[must_use]
    pub fn beside(&self, other: &Self) -> String {
        match (&self.way, self.difference_of_ways(other)) {
            (Some(way), Some(_)) => format!("{self} with {way}"),
            _ => self.to_string(),
        }
    }

    /// Returns the description of the call without its place.
    #[must_use]
    pub fn without_site(&self) -> String {
        let text = self.to_string();
        let site = format!(" at {}", self.site);
        text.strip_suffix(&site).unwrap_or(&text).to_owned()
    }

    /// Returns true if one line of a program can make both calls, by a switch that turns an all-gather into one for
    /// rank 0 alone.
    fn is_switched(&self, other: &Self) -> bool {
        let switched = |one: &Self, two: &Self| {
            one.operation == Operation::AllGather
                && (two.operation, two.root) == (Operation::Gather, Some(Rank::ZERO))
        };
        self.site == other.site && (switched(self, other) || switched(other, self))
    }

    fn difference_of_ways(&self, other: &Self) -> Option<&'static str> {
        let is_set_up = [self.operation, other.operation].contains(&Operation::SetUp);
        if self.operation != other.operation && !is_set_up {
            return None;
        }
        self.way.as_ref()?.difference(other.way.as_ref()?)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation.name())?;
        if let Some(tag) = &self.type_tag {
            write!(f, "::<{}> in {}", tag.name, tag.codec)?;
        }
        if let Some(tag) = &self.tag {
            write!(f, " {tag:?}")?;
        }
        match (self.operation, self.root) {
            (Operation::Broadcast, Some(root)) => write!(f, " from rank {root}")?,
            (_, Some(root)) => write!(f, " to rank {root}")?,
            (_, None) => {}
        }
        if let Some(bound) = self.bound {
            write!(f, " of at most {bound} bytes")?;
        }
        write!(f, " at {}", self.site)
    }
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
