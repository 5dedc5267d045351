//! The script of a simulation, with the calls of ranks and the faults: [`Script`].
//!
//! A script is small enough to be read when a test has failed, and determines everything: the same script always gives the same run.

use std::fmt::{self, Write};

use fsgather_core::{ChannelId, Rank};
use serde::{Deserialize, Serialize};

/// The time-out of all simulated worlds, in seconds.
pub(crate) const TIME_LIMIT: u64 = 60;

/// The rule by which ranks part into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Parting {
    /// By one bit for each rank.
    Bits(u8),
    /// Into pairs of neighbours.
    Pairs,
}

impl Parting {
    fn are_together(self, one: Rank, other: Rank) -> bool {
        let colour = |rank: Rank| match self {
            Self::Bits(bits) => u32::from(bits >> (rank.get() % 8) & 1),
            Self::Pairs => rank.get() / 2,
        };
        colour(one) == colour(other)
    }
}

/// One line of the program that all ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) verb: Verb,
    /// Index among the existing groups, in turn, of the one whose channel it uses; that of the world if there are none.
    pub(crate) on: Option<u8>,
}

impl From<Verb> for Line {
    fn from(verb: Verb) -> Self {
        Self { verb, on: None }
    }
}

/// A step of the program of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verb {
    Barrier,
    /// From this rank.
    Broadcast(u32),
    AllGather {
        /// One bit for each rank: whether it leaves a payload.
        leaves: u8,
        /// Number of further rounds of the call, because of rank 0 or the last rank.
        rounds: u8,
    },
    Gather {
        root: u32,
        leaves: u8,
        /// True if payloads are removed by their owners, otherwise by the root.
        by_owner: bool,
    },
    /// Starts an `all_gather` and continues without waiting for it.
    Start {
        leaves: u8,
        rounds: u8,
    },
    /// Ranks with a bit drop the calls that they have started and not waited for.
    Abandon(u8),
    /// All ranks part into groups.
    Split {
        by: Parting,
        backwards: bool,
    },
    /// Ends the group in good order.
    EndGroup,
    /// Leaves the group.
    DropGroup,
    /// Waits for everything that was started, the latest first.
    Settle,
    /// This many seconds outside of any call.
    Compute(u8),
    /// A gather to this rank, or to all, of payloads that are gone with their owners' processes.
    Keep {
        root: Option<u32>,
        leaves: u8,
    },
    /// The same to all, without waiting for it.
    StartKeeping {
        leaves: u8,
    },
}

impl Verb {
    /// With roots that are ranks of a communicator of this size.
    pub(crate) fn within(self, ranks: u32) -> Self {
        match self {
            Self::Broadcast(root) => Self::Broadcast(root % ranks),
            Self::Gather {
                root,
                leaves,
                by_owner,
            } => Self::Gather {
                root: root % ranks,
                leaves,
                by_owner,
            },
            Self::Keep { root, leaves } => Self::Keep {
                root: root.map(|root| root % ranks),
                leaves,
            },
            other => other,
        }
    }

    /// Maximum number of exchanges that it takes.
    fn exchanges(self) -> usize {
        match self {
            Self::AllGather { rounds, .. } | Self::Start { rounds, .. } => 1 + usize::from(rounds),
            Self::Barrier
            | Self::Broadcast(_)
            | Self::Gather { .. }
            | Self::Keep { .. }
            | Self::StartKeeping { .. }
            | Self::EndGroup => 1,
            Self::Settle
            | Self::Compute(_)
            | Self::Abandon(_)
            | Self::Split { .. }
            | Self::DropGroup => 0,
        }
    }
}

/// A line, and the line that made the group that it is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) verb: Verb,
    pub(crate) group: Option<usize>,
}

/// A group, as one of its members knows it.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) channel: ChannelId,
    pub(crate) members: Vec<Rank>,
}

/// A deviation of one rank from the shared program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// Takes this many seconds to publish; bytes move all the while, or nothing does.
    Slow { seconds: u8, moving: bool },
    /// The same with reading, before it reports that it is done.
    SlowReading { seconds: u8, moving: bool },
    /// Fails instead of contributing.
    Fail,
    /// Fails while it reads.
    FailReading,
    /// Leaves the line out.
    Skip,
    /// Calls something else.
    Differ,
    /// Closes here.
    Close,
    /// Leaves here, in good order.
    Leave,
    /// Leaves here with an error.
    Raise,
    /// Is interrupted here, and continues.
    Interrupt,
    /// Computes here for far longer than any rank waits, and continues.
    Stray,
    /// Leaves all its groups here.
    DropGroups,
}

/// One departure from the shared program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Twist {
    pub(crate) rank: u32,
    pub(crate) line: usize,
    pub(crate) what: What,
}

/// A fault of a process or host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Harm {
    /// The process dies and its connections close.
    Crash,
    /// The process dies, but something holds its connections open; another rank of its host notices.
    HiddenCrash,
    /// The host stops answering; the kernels notice after a while.
    Vanish,
    /// The link between the rank and rank 0 carries nothing any more.
    Sever,
    /// The process is stopped for this many seconds.
    Stop(u16),
    /// The connection between the rank and rank 0 breaks, and both live.
    Reset,
}

/// One misfortune, just before the event of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) event: usize,
    pub(crate) rank: u32,
    pub(crate) harm: Harm,
}

/// Everything that decides a run.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) ranks: u32,
    pub(crate) program: Vec<Line>,
    pub(crate) twists: Vec<Twist>,
    pub(crate) faults: Vec<Fault>,
    /// The choice among the possible events, each time there are several; in turn after the end.
    pub(crate) order: Vec<u8>,
}

impl Script {
    /// All of it in one word, so that it can be kept and run again.
    pub(crate) fn word(&self) -> String {
        // Encoding plain data into a growing vector cannot fail.
        let bytes = postcard::to_stdvec(self).unwrap_or_default();
        bytes.iter().fold(String::new(), |mut word, byte| {
            // Writing to a string cannot fail.
            let _ = write!(word, "{byte:02x}");
            word
        })
    }

    /// The script that such a word stands for.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let digits = word.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        postcard::from_bytes(&bytes?).ok()
    }

    /// Number of exchanges of its program, if all ranks follow it.
    pub(crate) fn exchanges(&self) -> usize {
        let placed = self.placed().into_iter();
        placed
            .map(|line| {
                let channels = line.group.map_or(1, |made| self.groups(made).len());
                channels * line.verb.exchanges()
            })
            .sum()
    }

    fn ranks(&self) -> impl DoubleEndedIterator<Item = Rank> + use<> {
        (0..self.ranks).map(Rank::new)
    }

    /// All lines, each with the line that made its group. Nothing is done on a group that has ended.
    pub(crate) fn placed(&self) -> Vec<Placed> {
        let mut live: Vec<usize> = Vec::new();
        let place = |(number, line): (usize, &Line)| {
            let chosen = line.on.map(usize::from).filter(|_| !live.is_empty());
            let chosen = chosen.map(|on| on % live.len());
            let group = chosen.and_then(|index| live.get(index)).copied();
            let verb = match (line.verb, chosen) {
                (Verb::EndGroup | Verb::DropGroup, None) => Verb::Settle,
                (Verb::EndGroup | Verb::DropGroup, Some(index)) => {
                    live.remove(index);
                    line.verb
                }
                (verb, _) => verb,
            };
            if let Verb::Split { .. } = verb {
                live.push(number);
                return Placed { verb, group: None };
            }
            Placed { verb, group }
        };
        self.program.iter().enumerate().map(place).collect()
    }

    /// The group that a line makes for this rank.
    pub(crate) fn group(&self, line: usize, rank: Rank) -> Option<Group> {
        let Verb::Split { by, backwards } = self.program.get(line)?.verb else {
            return None;
        };
        let mut members: Vec<Rank> = self
            .ranks()
            .filter(|other| by.are_together(*other, rank))
            .collect();
        if backwards {
            members.reverse();
        }
        Some(Group {
            channel: ChannelId::of_group(ChannelId::WORLD, &members, line as u64),
            members,
        })
    }

    /// All groups that a line makes.
    pub(crate) fn groups(&self, line: usize) -> Vec<Group> {
        let mut groups: Vec<Group> = self
            .ranks()
            .filter_map(|rank| self.group(line, rank))
            .collect();
        groups.sort_by_key(|group| group.channel);
        groups.dedup_by_key(|group| group.channel);
        groups
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ranks, time-out {TIME_LIMIT} s; all do", self.ranks)?;
        for (number, line) in self.placed().iter().enumerate() {
            match line.group {
                None => writeln!(f, "  {number}: {:?}", line.verb)?,
                Some(made) => {
                    writeln!(f, "  {number}: {:?} in the group of line {made}", line.verb)?;
                }
            }
        }
        writeln!(f, "  and close")?;
        for Twist { rank, line, what } in &self.twists {
            writeln!(f, "  but rank {rank} at line {line}: {what:?}")?;
        }
        for Fault { event, rank, harm } in &self.faults {
            writeln!(f, "  before event {event}, rank {rank}: {harm:?}")?;
        }
        writeln!(f, "  order {:?}", self.order)?;
        write!(f, "  replay {}", self.word())
    }
}
