//! Describes a rank's call, for comparison across ranks before any data moves: [`Call`].

use std::{
    fmt::{self, Write},
    panic::Location,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Rank, plain_line, text};

/// Which collective operation a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Operation {
    /// Ranks agree on where payloads go, once, while a communicator is being built.
    SetUp,
    /// An exchange of nothing.
    Barrier,
    /// One rank's value for everybody.
    Broadcast,
    /// Everybody's values for everybody.
    AllGather,
    /// Everybody's values for one rank.
    Gather,
    /// The orderly end of a communicator.
    Close,
    /// Some ranks agree on being a group.
    Group,
    /// All ranks agree on groups into which they part.
    Split,
    /// Everybody's values for everybody, who will ask for them later.
    StartAllGather,
    /// Ranks compare the arrays that they are about to join.
    GatherArray,
    /// Ranks say that they have come to a place where they meet.
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
            Self::GatherArray => "gather_array",
            Self::Meet => "first call",
        }
    }

    /// The name with the number of the call, for messages: `all_gather #2`.
    #[must_use]
    pub fn numbered(self, number: u64) -> String {
        match self {
            Self::SetUp => format!("{self} of call #{number}"),
            Self::Meet | Self::Group | Self::Close => self.to_string(),
            _ => format!("{self} #{number}"),
        }
    }

    /// Whether it is no call of the program's own, but comes before one.
    const fn prepares(self) -> bool {
        matches!(
            self,
            Self::SetUp | Self::Meet | Self::Group | Self::GatherArray
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where in the user's program a call was made: information for messages, never compared.
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

    /// Names a place that is not in Rust code, such as a command line. It travels with every call, so that
    /// what is longer than 4 KiB is cut.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        const LONGEST: usize = 4 << 10;
        let name = name.into();
        Self(text::cut_text(&plain_line(&name), LONGEST).into())
    }

    /// The same, in at most 256 bytes.
    pub(crate) fn short(&self) -> Self {
        const LONGEST: usize = 256;
        if self.0.len() <= LONGEST {
            return self.clone();
        }
        Self(text::cut_text(&self.0, LONGEST).into())
    }

    /// Whether it says anything.
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

/// The Rust type of the values of a call, comparable only between processes of the same build, and how
/// they become bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeTag {
    /// Identifies the executable; tags of different builds are not compared.
    pub build: u64,
    /// The name of the type as the compiler gives it.
    pub name: String,
    /// The name of the codec, compared between any builds.
    pub codec: String,
}

/// Who receives what the ranks contribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipients {
    /// Every rank.
    All,
    /// One rank; the others learn only that the call succeeded.
    Only(Rank),
    /// Nobody: all learn only that the call succeeded.
    Nobody,
}

impl Recipients {
    /// Whether `rank` receives.
    #[must_use]
    pub fn include(self, rank: Rank) -> bool {
        match self {
            Self::All => true,
            Self::Only(root) => root == rank,
            Self::Nobody => false,
        }
    }
}

/// Which way a rank would have the payloads of a call go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The transport, as it is written in settings.
    #[serde(deserialize_with = "text::name")]
    pub transport: String,
    /// Another directory than the communicator's own.
    pub directory: Option<String>,
}

impl Way {
    /// What keeps payloads from going both ways: the first difference, in words.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        if self.transport != other.transport {
            return Some(
                "different transports: what FSGATHER_ROOT_ONLY, or the program for one call, says has to be the \
                 same on all ranks",
            );
        }
        if self.directory != other.directory {
            return Some(
                "different directories: what the program says for one call has to be the same on all ranks",
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
    /// Which of the program's calls on its communicator it is, counted from 1 when it starts; 0 before. What the
    /// ranks exchange to prepare a call bears the number of that call. Never compared.
    pub number: u64,
    /// The root, for operations that have one.
    pub root: Option<Rank>,
    /// The largest payload allowed, for bounded operations, in bytes.
    pub bound: Option<u64>,
    /// What the program calls it, beside the place: ranks that come to one line with different meanings are told.
    pub tag: Option<Arc<str>>,
    /// The type of the values, if they are typed.
    pub type_tag: Option<TypeTag>,
    /// Where the call was made.
    pub site: Site,
    /// How long nothing may move before the call fails, if not the world's time-out. Never compared: the
    /// longest that a rank says counts.
    pub timeout: Option<Duration>,
    /// Which way its payloads go, if it has any; also said by the set-up of that way, so that ranks of which only
    /// some need one are told the reason.
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

    /// The same call with its number, where `before` calls of the program have started; counts it if it is one.
    #[must_use]
    pub const fn counted(mut self, before: &mut u64) -> Self {
        self.number = *before + 1;
        if !self.operation.prepares() {
            *before = self.number;
        }
        self
    }

    /// The same call with a root.
    #[must_use]
    pub const fn with_root(mut self, root: Rank) -> Self {
        self.root = Some(root);
        self
    }

    /// The same call with a bound on each rank's payload, in bytes.
    #[must_use]
    pub const fn with_bound(mut self, bound: u64) -> Self {
        self.bound = Some(bound);
        self
    }

    /// The same call with a name of the program's own.
    #[must_use]
    pub fn tagged(mut self, tag: impl Into<Arc<str>>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// The same call with a time-out of its own.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same call with typed values.
    #[must_use]
    pub fn with_type(mut self, tag: TypeTag) -> Self {
        self.type_tag = Some(tag);
        self
    }

    /// Who receives.
    #[must_use]
    pub fn recipients(&self) -> Recipients {
        match (self.operation, self.root) {
            (Operation::Gather, Some(root)) => Recipients::Only(root),
            (Operation::Barrier, _) => Recipients::Nobody,
            _ => Recipients::All,
        }
    }

    /// What keeps two calls from being the same collective call: the first difference, in words.
    ///
    /// Call sites and time-outs are not compared, and type tags only between equal builds.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        // It may be why an operation is another: one rank has to set up what another has already.
        if let Some(difference) = self.difference_of_ways(other) {
            return Some(difference);
        }
        if self.operation != other.operation {
            return Some(if self.is_switched(other) {
                "different operations at one place: what FSGATHER_ROOT_ONLY says has to be the same on all ranks"
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

    /// This call as it is told beside another from which it differs: with its way only if that is why.
    #[must_use]
    pub fn beside(&self, other: &Self) -> String {
        match (&self.way, self.difference_of_ways(other)) {
            (Some(way), Some(_)) => format!("{self} with {way}"),
            _ => self.to_string(),
        }
    }

    /// Whether these are what one line of a program does, by a switch that makes an all-gather one for rank 0 alone.
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
        self.operation.fmt(f)?;
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
mod tests {
    use super::*;

    fn gather() -> Call {
        Call::new(Operation::Gather, Site::named("a.rs:1:1")).with_root(Rank::ZERO)
    }

    #[test]
    fn calls_of_the_program_are_counted_from_1_and_what_prepares_one_bears_its_number() {
        let mut before = 0;
        let mut name = |operation| {
            let call = Call::new(operation, Site::default()).counted(&mut before);
            operation.numbered(call.number)
        };
        let names = [
            Operation::Meet,
            Operation::SetUp,
            Operation::AllGather,
            Operation::SetUp,
            Operation::GatherArray,
            Operation::Gather,
            Operation::Barrier,
            Operation::Close,
        ]
        .map(&mut name);
        let expected = [
            "first call",
            "set-up of call #1",
            "all_gather #1",
            "set-up of call #2",
            "gather_array #2",
            "gather #2",
            "barrier #3",
            "close",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn call_sites_and_time_outs_are_not_compared() {
        let elsewhere = Call {
            site: Site::named("b.rs:2:2"),
            ..gather()
        };
        assert_eq!(gather().difference(&elsewhere), None);
        let patient = gather().with_timeout(Duration::from_secs(9));
        assert_eq!(gather().difference(&patient), None);
    }

    fn by(transport: &str, directory: Option<&str>, operation: Operation) -> Call {
        Call {
            way: Some(Box::new(Way {
                transport: transport.into(),
                directory: directory.map(Into::into),
            })),
            ..Call::new(operation, Site::named("a.rs:1:1"))
        }
    }

    #[test]
    fn ways_are_compared_before_operations_and_told_where_they_differ() {
        let memory = by("memory", None, Operation::AllGather);
        let files = by("filesys", None, Operation::SetUp);
        let difference = memory.difference(&files).unwrap();
        assert!(
            difference.starts_with("different transports"),
            "{difference}"
        );
        assert_eq!(
            memory.beside(&files),
            "all_gather at a.rs:1:1 with transport=memory"
        );
        let there = by("filesys", Some("/there"), Operation::SetUp);
        let difference = files.difference(&there).unwrap();
        assert!(
            difference.starts_with("different directories"),
            "{difference}"
        );
        assert_eq!(
            there.beside(&files),
            "set-up at a.rs:1:1 with transport=filesys and directory=/there"
        );
        // Calls that move nothing say nothing of it.
        let barrier = Call::new(Operation::Barrier, Site::named("a.rs:1:1"));
        assert_eq!(memory.difference(&barrier), Some("different operations"));
        assert_eq!(memory.beside(&barrier), "all_gather at a.rs:1:1");
        // Two calls of the program are what they are, whatever way they would go.
        let gather = by("filesys", None, Operation::Gather).with_root(Rank::new(1));
        assert_eq!(memory.difference(&gather), Some("different operations"));
    }

    #[test]
    fn a_switch_that_differs_is_named() {
        let all = by("auto", None, Operation::AllGather);
        let one = by("filesys", None, Operation::Gather).with_root(Rank::ZERO);
        for difference in [all.difference(&one), one.difference(&all)] {
            assert!(difference.unwrap().contains("FSGATHER_ROOT_ONLY"));
        }
        let elsewhere = Call {
            site: Site::named("b.rs:2:2"),
            ..one
        };
        assert_eq!(all.difference(&elsewhere), Some("different operations"));
    }

    #[test]
    fn operation_root_and_bound_are_compared() {
        let barrier = Call::new(Operation::Barrier, Site::default());
        assert_eq!(gather().difference(&barrier), Some("different operations"));
        let other_root = gather().with_root(Rank::new(1));
        assert_eq!(gather().difference(&other_root), Some("different roots"));
        let bounded = gather().with_bound(7);
        assert_eq!(gather().difference(&bounded), Some("different bounds"));
    }

    #[test]
    fn tags_are_compared_and_told() {
        let (bleu, rouge) = (gather().tagged("bleu"), gather().tagged("rou\nge"));
        assert_eq!(bleu.difference(&bleu), None);
        assert_eq!(bleu.difference(&gather()), Some("different tags"));
        assert_eq!(bleu.difference(&rouge), Some("different tags"));
        assert_eq!(bleu.beside(&rouge), "gather \"bleu\" to rank 0 at a.rs:1:1");
        assert_eq!(
            rouge.to_string(),
            "gather \"rou\\nge\" to rank 0 at a.rs:1:1"
        );
        // What ranks do is more than what they call it.
        let barrier = Call::new(Operation::Barrier, Site::default()).tagged("bleu");
        assert_eq!(barrier.difference(&rouge), Some("different operations"));
    }

    fn typed(build: u64, name: &str, codec: &str) -> Call {
        gather().with_type(TypeTag {
            build,
            name: name.into(),
            codec: codec.into(),
        })
    }

    #[test]
    fn codecs_are_compared_between_any_builds() {
        let (one, other) = (typed(1, "u8", "postcard"), typed(2, "u8", "json"));
        assert_eq!(one.difference(&other), Some("different codecs"));
        assert_eq!(
            other.to_string(),
            "gather::<u8> in json to rank 0 at a.rs:1:1"
        );
    }

    #[test]
    fn types_are_compared_between_equal_builds_only() {
        let typed = |build, name: &str| typed(build, name, "postcard");
        assert_eq!(
            typed(1, "u8").difference(&typed(1, "u16")),
            Some("different types")
        );
        assert_eq!(typed(1, "u8").difference(&typed(2, "u16")), None);
        assert_eq!(
            typed(1, "u8").difference(&gather()),
            Some("typed values and bytes")
        );
    }

    #[test]
    fn a_call_reads_like_what_the_user_wrote() {
        assert_eq!(gather().to_string(), "gather to rank 0 at a.rs:1:1");
    }

    #[test]
    fn a_place_is_told_as_it_is_and_cut_above_four_kibibytes() {
        let here = Location::caller();
        assert_eq!(Site::of(here).to_string(), here.to_string());
        let longest = "x".repeat(4096);
        assert_eq!(Site::named(&longest).to_string(), longest);
        let cut = Site::named("x".repeat(9 << 20)).to_string();
        assert!(
            cut.len() <= 4096 + 64 && cut.contains("(cut; "),
            "{}",
            cut.len()
        );
    }

    #[test]
    fn the_root_of_a_gather_alone_receives() {
        let to = |operation| {
            let call = Call::new(operation, Site::default()).with_root(Rank::new(1));
            [0, 1, 2].map(|rank| call.recipients().include(Rank::new(rank)))
        };
        assert_eq!(to(Operation::Gather), [false, true, false]);
        assert_eq!(to(Operation::Broadcast), [true; 3]);
    }
}
