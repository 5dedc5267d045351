//! Every name the store writes, parsed both ways: [`RendezvousEntry`], [`GatherEntry`], [`PayloadName`].
//!
//! Pure: nothing here touches a file. Names consist of `[a-z0-9._-]`, are at most [`MAX_NAME_LEN`] bytes long, have one
//! spelling each, and all but the fixed ones contain something random or counted, so that no name is ever used twice. A name
//! that does not parse is not ours and is skipped.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use fsgather_core::{ChannelId, Epoch, GatherId, KeyHash, Rank, Salt, WorldSize};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Length of the longest name that the store writes, in bytes.
pub const MAX_NAME_LEN: usize = 100;

/// The name of the rendezvous directory within the directory that the user names.
pub const RENDEZVOUS_DIRECTORY: &str = "all_gather_via_filesys";

/// Name of the directory in which payloads are written before they are published.
pub const STAGING: &str = "staging";
/// Name of the directory of published payloads.
pub const PAYLOADS: &str = "payloads";
/// Name of the directory for nonces while the gather directory is being proved to be shared.
pub const PROBES: &str = "probes";
/// Name of the owner record.
pub const OWNER: &str = "owner";
/// Name of the mark of a gather directory that its owner has finished with but could not remove.
pub const FINISHED: &str = "finished";
/// Name of the tombstone that a survivor leaves in a gather directory whose owner is gone.
pub const ABORTED: &str = "aborted";
/// Name of the directory for letters to rank 0, with a subdirectory for each host.
pub const IN: &str = "in";
/// Name of the directory for bulletins of rank 0 to all ranks.
pub const OUT: &str = "out";
/// Name of the directory for heartbeats of hosts, with a subdirectory for each.
pub const LIVE: &str = "live";

/// Beginning of the names of files with a rank's last calls.
pub(crate) const CALLS_STEM: &str = "calls-";
/// Beginning of the names of questions about the activity of ranks.
pub(crate) const ASKED_STEM: &str = "asked-";
/// Beginning of the names of answers.
pub(crate) const ANSWER_STEM: &str = "answer-";

/// Reads a world in a name: 32 hexadecimal digits.
fn world_in(text: &str) -> Option<Uuid> {
    let (first, second) = text.split_at_checked(16)?;
    let halves = (hex(first, 16)?, hex(second, 16)?);
    Some(Uuid::from_u64_pair(halves.0, halves.1))
}

/// Returns the rendezvous directory within `directory`.
///
/// ```
/// use fsgather_store::layout::rendezvous_path;
/// use std::path::Path;
///
/// assert_eq!(
///     rendezvous_path(Path::new("/shared")),
///     Path::new("/shared/all_gather_via_filesys")
/// );
/// ```
#[must_use]
pub fn rendezvous_path(directory: &Path) -> PathBuf {
    directory.join(RENDEZVOUS_DIRECTORY)
}

/// The name of a record by which other ranks find rank 0: key, time and salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordName {
    key: u64,
    stamp: GatherId,
}

impl RecordName {
    /// Makes the name of a record for `key`, made unique by `stamp`.
    #[must_use]
    pub const fn new(key: KeyHash, stamp: GatherId) -> Self {
        Self {
            key: key.get(),
            stamp,
        }
    }

    /// The key of the world that the record is for.
    #[must_use]
    pub fn key(self) -> KeyHash {
        self.key.into()
    }

    /// Returns true if the record is for the world with this key.
    #[must_use]
    pub const fn is_for(self, key: KeyHash) -> bool {
        self.key == key.get()
    }

    /// Time and salt.
    #[must_use]
    pub const fn stamp(self) -> GatherId {
        self.stamp
    }

    /// Reads the part of a name after its kind.
    fn parse(text: &str) -> Option<Self> {
        let (key, stamp) = text.split_once('-')?;
        Some(Self {
            key: hex(key, 16)?,
            stamp: stamp.parse().ok()?,
        })
    }
}

/// An entry of a rendezvous directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RendezvousEntry {
    /// `rendezvous-<key>-<time>-<salt>`: a record of rank 0.
    Record(RecordName),
    /// `unreachable-<key>-<time>-<salt>`: a rank cannot reach the rank 0 of a record.
    Unreachable(RecordName),
    /// `refusal-<key>-<time>-<salt>`: a rendezvous has failed, for ranks that arrive later.
    Refusal(RecordName),
    /// `gather-<id>`: a gather directory.
    Gather(GatherId),
    /// `probe-<nonce>`: a short-lived file that tests if files can be written.
    Probe(u64),
    /// `calls-<world>-r<rank>`: the last calls of a rank.
    Calls {
        /// The world, by its communicator.
        world: Uuid,
        /// The rank.
        rank: Rank,
    },
    /// `asked-<world>-<nonce>`: a question to a world about the activity of its ranks.
    Asked {
        /// The world, by its communicator.
        world: Uuid,
        /// Number of the question.
        nonce: u32,
    },
    /// `answer-<world>-<nonce>-<salt>`: the answer to such a question.
    Answer {
        /// The world, by its communicator.
        world: Uuid,
        /// Number of the question.
        nonce: u32,
        /// A random number, so that no other user can take the name first.
        salt: u32,
    },
    /// `condemned-<id>-<nonce>`: a process is about to remove that gather directory.
    Condemned {
        /// The gather directory.
        id: GatherId,
        /// Random number of the mark.
        nonce: u32,
    },
}

impl fmt::Display for RendezvousEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(RecordName { key, stamp }) => write!(f, "rendezvous-{key:016x}-{stamp}"),
            Self::Unreachable(RecordName { key, stamp }) => {
                write!(f, "unreachable-{key:016x}-{stamp}")
            }
            Self::Refusal(RecordName { key, stamp }) => write!(f, "refusal-{key:016x}-{stamp}"),
            Self::Gather(id) => write!(f, "gather-{id}"),
            Self::Probe(nonce) => write!(f, "probe-{nonce:016x}"),
            Self::Calls { world, rank } => {
                write!(f, "{CALLS_STEM}{}-r{:05}", world.simple(), rank.get())
            }
            Self::Asked { world, nonce } => {
                write!(f, "{ASKED_STEM}{}-{nonce:08x}", world.simple())
            }
            Self::Answer { world, nonce, salt } => {
                write!(f, "{ANSWER_STEM}{}-{nonce:08x}-{salt:08x}", world.simple())
            }
            Self::Condemned { id, nonce } => write!(f, "condemned-{id}-{nonce:08x}"),
        }
    }
}

impl RendezvousEntry {
    /// Parses a name; `None` for names that are not ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("rendezvous-") {
            return Some(Self::Record(RecordName::parse(rest)?));
        }
        if let Some(rest) = name.strip_prefix("unreachable-") {
            return Some(Self::Unreachable(RecordName::parse(rest)?));
        }
        if let Some(rest) = name.strip_prefix("refusal-") {
            return Some(Self::Refusal(RecordName::parse(rest)?));
        }
        if let Some(id) = name.strip_prefix("gather-") {
            return Some(Self::Gather(id.parse().ok()?));
        }
        if let Some(nonce) = name.strip_prefix("probe-") {
            return Some(Self::Probe(hex(nonce, 16)?));
        }
        if let Some(rest) = name.strip_prefix(CALLS_STEM) {
            let (world, rank) = rest.split_once("-r")?;
            let rank = decimal(rank, 5).filter(|rank| *rank < u64::from(WorldSize::MAX))?;
            return Some(Self::Calls {
                world: world_in(world)?,
                rank: Rank::new(u32::try_from(rank).ok()?),
            });
        }
        let number = |digits: &str| u32::try_from(hex(digits, 8)?).ok();
        if let Some(rest) = name.strip_prefix(ASKED_STEM) {
            let (world, nonce) = rest.split_once('-')?;
            return Some(Self::Asked {
                world: world_in(world)?,
                nonce: number(nonce)?,
            });
        }
        if let Some(rest) = name.strip_prefix(ANSWER_STEM) {
            let (world, rest) = rest.split_once('-')?;
            let (nonce, salt) = rest.split_once('-')?;
            return Some(Self::Answer {
                world: world_in(world)?,
                nonce: number(nonce)?,
                salt: number(salt)?,
            });
        }
        let (id, nonce) = name.strip_prefix("condemned-")?.rsplit_once('-')?;
        Some(Self::Condemned {
            id: id.parse().ok()?,
            nonce: number(nonce)?,
        })
    }
}

/// An entry of a gather directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GatherEntry {
    /// `owner`: the owner record.
    Owner,
    /// `beat-<counter>`: the owner's heartbeat, a new name each time.
    Beat(u64),
    /// `staging`: payloads being written.
    Staging,
    /// `payloads`: published payloads.
    Payloads,
    /// `probes`: nonces, only while the directory is being proved to be shared.
    Probes,
    /// `finished`: the owner has finished with the directory.
    Finished,
    /// `aborted`: a survivor has seen the owner go.
    Aborted,
    /// `in`: letters of other ranks to rank 0.
    In,
    /// `out`: bulletins of rank 0.
    Out,
    /// `live`: heartbeats of hosts.
    Live,
}

impl fmt::Display for GatherEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beat(counter) => write!(f, "beat-{counter:020}"),
            Self::Owner => f.write_str(OWNER),
            Self::Staging => f.write_str(STAGING),
            Self::Payloads => f.write_str(PAYLOADS),
            Self::Probes => f.write_str(PROBES),
            Self::Finished => f.write_str(FINISHED),
            Self::Aborted => f.write_str(ABORTED),
            Self::In => f.write_str(IN),
            Self::Out => f.write_str(OUT),
            Self::Live => f.write_str(LIVE),
        }
    }
}

impl GatherEntry {
    /// Parses a name; `None` for names that are not ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            OWNER => Self::Owner,
            STAGING => Self::Staging,
            PAYLOADS => Self::Payloads,
            PROBES => Self::Probes,
            FINISHED => Self::Finished,
            ABORTED => Self::Aborted,
            IN => Self::In,
            OUT => Self::Out,
            LIVE => Self::Live,
            _ => Self::Beat(decimal(name.strip_prefix("beat-")?, 20)?),
        })
    }
}

/// The name of one payload file, the same while staged and once published.
///
/// Channel, epoch and rank identify the payload; the nonce makes the name of every attempt new.
///
/// ```
/// use fsgather_core::{ChannelId, Epoch, Rank};
/// use fsgather_store::PayloadName;
///
/// let name = PayloadName::new(ChannelId::WORLD, Epoch::new(12), Rank::new(3), 0xbeef);
/// assert_eq!(
///     name.to_string(),
///     "payload-c0000000000000000-e00000000000000000012-r00003-0000beef"
/// );
/// assert_eq!(name.to_string().parse(), Ok(name));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadName {
    channel: ChannelId,
    epoch: Epoch,
    rank: Rank,
    nonce: u32,
}

impl PayloadName {
    /// Makes a name. Ranks of more than five digits cannot occur in a valid world; their names do not parse.
    #[must_use]
    pub const fn new(channel: ChannelId, epoch: Epoch, rank: Rank, nonce: u32) -> Self {
        Self {
            channel,
            epoch,
            rank,
            nonce,
        }
    }

    /// Channel of the communicator that the payload belongs to.
    #[must_use]
    pub const fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Epoch of the call that the payload belongs to.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Rank that wrote the payload.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// Random number of the attempt that wrote it.
    #[must_use]
    pub const fn nonce(&self) -> u32 {
        self.nonce
    }

    /// Parses a name; `None` for names that are not ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("payload-c")?.split('-');
        let channel = hex(parts.next()?, 16)?;
        let epoch = decimal(parts.next()?.strip_prefix('e')?, 20)?;
        let rank = decimal(parts.next()?.strip_prefix('r')?, 5)?;
        let nonce = hex(parts.next()?, 8)?;
        if parts.next().is_some() || rank >= u64::from(WorldSize::MAX) {
            return None;
        }
        Some(Self {
            channel: ChannelId::new(channel),
            epoch: Epoch::new(epoch),
            rank: Rank::new(u32::try_from(rank).ok()?),
            nonce: u32::try_from(nonce).ok()?,
        })
    }
}

impl fmt::Display for PayloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "payload-c{:016x}-e{:020}-r{:05}-{:08x}",
            self.channel.get(),
            self.epoch.get(),
            self.rank.get(),
            self.nonce
        )
    }
}

/// The reason why a text is not a [`PayloadName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a payload file")]
pub struct ParsePayloadNameError(String);

impl FromStr for PayloadName {
    type Err = ParsePayloadNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name).ok_or_else(|| ParsePayloadNameError(name.to_owned()))
    }
}

impl TryFrom<String> for PayloadName {
    type Error = ParsePayloadNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<PayloadName> for String {
    fn from(name: PayloadName) -> Self {
        name.to_string()
    }
}

/// The name of one file of samples: `samples-a<attempt>-r<rank>-<nonce>-p<part>`.
///
/// A process writes one part after the other, each once; the nonce makes the names of every process new.
/// Names sort as their results count: by attempt, rank, process and part.
///
/// ```
/// use fsgather_core::Rank;
/// use fsgather_store::SampleFileName;
///
/// let name = SampleFileName::first(2, Rank::new(3), 0xbeef);
/// assert_eq!(name.to_string(), "samples-a000002-r00003-000000000000beef-p00000");
/// assert_eq!(SampleFileName::parse(&name.to_string()), Some(name));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SampleFileName {
    /// Number of the attempt, above those that the opening ranks saw.
    pub attempt: u32,
    /// Rank of the process that wrote the file.
    pub rank: Rank,
    /// Random number of that process.
    pub nonce: u64,
    /// Number of the file among those of the process.
    pub part: u32,
}

impl SampleFileName {
    /// Highest number of an attempt.
    pub const MAX_ATTEMPT: u32 = 999_999;
    /// Highest number of a part.
    pub const MAX_PART: u32 = 99_999;

    /// Names the first file of a process.
    #[must_use]
    pub const fn first(attempt: u32, rank: Rank, nonce: u64) -> Self {
        Self {
            attempt,
            rank,
            nonce,
            part: 0,
        }
    }

    /// Parses a name; `None` for names of other files.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut fields = name.strip_prefix("samples-a")?.split('-');
        let attempt = decimal(fields.next()?, 6)?;
        let rank = decimal(fields.next()?.strip_prefix('r')?, 5)?;
        let nonce = hex(fields.next()?, 16)?;
        let part = decimal(fields.next()?.strip_prefix('p')?, 5)?;
        if fields.next().is_some() || rank >= u64::from(WorldSize::MAX) {
            return None;
        }
        Some(Self {
            attempt: u32::try_from(attempt).ok()?,
            rank: Rank::new(u32::try_from(rank).ok()?),
            nonce,
            part: u32::try_from(part).ok()?,
        })
    }
}

impl fmt::Display for SampleFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            attempt,
            rank,
            nonce,
            part,
        } = self;
        let rank = rank.get();
        write!(
            f,
            "samples-a{attempt:06}-r{rank:05}-{nonce:016x}-p{part:05}"
        )
    }
}

/// Returns the name of a short-lived file in `staging/` or `payloads/`, which tests how files can be published while the
/// directory is being made.
pub(crate) fn capability_name(nonce: u32) -> String {
    format!("capability-{nonce:08x}")
}

/// Returns true if `name` is a [`capability_name`].
pub(crate) fn is_capability_name(name: &str) -> bool {
    name.strip_prefix("capability-")
        .is_some_and(|nonce| hex(nonce, 8).is_some())
}

/// Returns the name of a nonce file in `probes/`.
pub(crate) fn nonce_name(label: u64) -> String {
    format!("nonce-{label:016x}")
}

/// Reads a [`nonce_name`].
pub(crate) fn parse_nonce_name(name: &str) -> Option<u64> {
    hex(name.strip_prefix("nonce-")?, 16)
}

/// Returns the beginning of the names of all marks beside a gather directory.
pub(crate) fn condemned_stem(id: GatherId) -> String {
    format!("condemned-{id}-")
}

/// Returns the salt of a gather id at the beginning of `text`, by its digits alone: the rest of the id is not validated.
pub(crate) fn salt_in(text: &str) -> Option<Salt> {
    let id = text.get(..GatherId::TEXT_LEN)?;
    let salt = hex(id.rsplit_once('-')?.1, 8)?;
    u32::try_from(salt).ok().map(Salt::from_random)
}

/// Reads a number of exactly `width` lower-case hexadecimal digits.
pub(crate) fn hex(text: &str, width: usize) -> Option<u64> {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (digits && text.len() == width)
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}

/// Reads a number of exactly `width` decimal digits.
pub(crate) fn decimal(text: &str, width: usize) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    (digits && text.len() == width)
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
