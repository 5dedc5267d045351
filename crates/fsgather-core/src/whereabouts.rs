//! The activity of a rank's process, seen from outside its program: [`Whereabouts`].

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Rank, duration_text,
    text::{cut_within, plain_line},
};

/// Maximum number of reported frames of a stack: the innermost ones.
pub const MOST_FRAMES: usize = 12;

/// Maximum length of each text, in bytes.
const LONGEST_TEXT: usize = 256;

/// One function that a thread is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StackFrame {
    /// Its file, as the program's language names it.
    pub file: String,
    /// The line in that file, if it is known.
    pub line: Option<u32>,
    /// The name of the function.
    pub function: String,
    /// True if it is a part of the program rather than of the language, of fsgather, or of another installed package.
    pub is_own: bool,
}

impl StackFrame {
    /// The file without its directories, unless the name alone says nothing.
    fn short_file(&self) -> &str {
        let mut slashes = self.file.rmatch_indices('/').map(|(at, _)| at + 1);
        let last = slashes.next().unwrap_or_default();
        let name = &self.file[last..];
        if name.starts_with("__") {
            &self.file[slashes.next().unwrap_or_default()..]
        } else {
            name
        }
    }
}

impl fmt::Display for StackFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short_file())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, " in {}", self.function)
    }
}

/// The state of a thread in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ThreadState {
    /// It runs, or waits for a processor.
    Running,
    /// It waits in a system call.
    Waiting {
        /// The name of the system call; unknown if another process looks.
        call: Option<String>,
        /// The file or address that the call is about, if any.
        on: Option<String>,
        /// True if not even a signal ends the wait.
        is_deaf: bool,
    },
    /// It was stopped, by a signal or by a debugger.
    Stopped,
    /// It has ended.
    Ended,
    /// Its control group was frozen, as by `docker pause` or a suspension by Slurm.
    Frozen,
}

impl fmt::Display for ThreadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Stopped => f.write_str("stopped"),
            Self::Ended => f.write_str("ended"),
            Self::Frozen => f.write_str("frozen by its control group"),
            Self::Waiting { call, on, is_deaf } => {
                f.write_str(if *is_deaf {
                    "waiting, deaf to signals"
                } else {
                    "waiting"
                })?;
                if let Some(call) = call {
                    write!(f, ", in {call}")?;
                }
                match on {
                    Some(on) => write!(f, " on {on}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// A thread that holds the lock of its interpreter, so that no other thread of the program runs there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockHolder {
    /// Minimum time for which it has held the lock.
    pub held_for: Duration,
    /// Its recent processor use, in percent.
    pub cpu_percent: u32,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held_for = duration_text(self.held_for);
        write!(f, "a thread has held the interpreter's lock for {held_for}")
    }
}

/// The activity of a rank's process: as reported by a thread of its own that needs nothing of the program, or as
/// another process of its host sees it.
///
/// It contains no values of variables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Whereabouts {
    /// True if the rank itself has reported it.
    pub is_own_word: bool,
    /// The call that the rank is in, if ranks are in different calls.
    pub call: Option<String>,
    /// The functions that its thread is in, the innermost last.
    pub frames: Vec<StackFrame>,
    /// The state in the kernel of that thread, or of the thread that holds the interpreter's lock.
    pub state: Option<ThreadState>,
    /// The thread that holds the interpreter's lock, if no functions are known because of it.
    pub lock_holder: Option<LockHolder>,
    /// True if the process continues although its main thread has ended.
    pub main_has_ended: bool,
    /// True if that thread is in a call of ours, and no other thread of the process is: then its functions are those
    /// that made the call.
    pub is_only_caller: bool,
    /// The processor time that the process has used so far, if it is known.
    pub cpu_time: Option<Duration>,
}

impl Whereabouts {
    /// The report of a rank about itself.
    #[must_use]
    pub fn own(frames: Vec<StackFrame>, state: Option<ThreadState>) -> Self {
        Self {
            is_own_word: true,
            call: None,
            frames,
            state,
            main_has_ended: false,
            lock_holder: None,
            is_only_caller: false,
            cpu_time: None,
        }
        .cut_to_size()
    }

    /// A rank that does not answer, with the state that another process sees.
    #[must_use]
    pub const fn silent(state: Option<ThreadState>) -> Self {
        Self {
            is_own_word: false,
            call: None,
            frames: Vec::new(),
            state,
            main_has_ended: false,
            lock_holder: None,
            is_only_caller: false,
            cpu_time: None,
        }
    }

    /// Returns the same, within the size limits of messages, and with names that stay within their line.
    #[must_use]
    pub fn cut_to_size(mut self) -> Self {
        let cut = |text: &mut String| *text = cut_within(&plain_line(text), LONGEST_TEXT);
        let more = self.frames.len().saturating_sub(MOST_FRAMES);
        self.frames.drain(..more);
        self.call.iter_mut().for_each(cut);
        for frame in &mut self.frames {
            cut(&mut frame.file);
            cut(&mut frame.function);
        }
        if let Some(ThreadState::Waiting { call, on, .. }) = &mut self.state {
            call.iter_mut().chain(on).for_each(cut);
        }
        self
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_own_word {
            f.write_str("does not answer")?;
            return match &self.state {
                Some(state) => write!(f, "; its process is {state}"),
                None => Ok(()),
            };
        }
        if let Some(call) = &self.call {
            f.write_str(call)?;
            if self.frames.is_empty() {
                return Ok(());
            }
            f.write_str(", from ")?;
        }
        let mut frames = self.frames.iter().rev();
        let innermost = frames.next();
        if let Some(holder) = &self.lock_holder {
            holder.fmt(f)?;
        } else if let Some(innermost) = innermost {
            innermost.fmt(f)?;
            if !innermost.is_own
                && let Some(own) = frames.find(|frame| frame.is_own)
            {
                write!(f, ", called from {own}")?;
            }
        }
        let is_empty = self.lock_holder.is_none() && innermost.is_none();
        match (&self.state, &self.lock_holder) {
            (None, _) if is_empty && self.main_has_ended => {
                return f.write_str("its main thread has ended");
            }
            (None, _) if is_empty => f.write_str("nothing can be seen of it")?,
            (None, _) => {}
            (Some(state), Some(holder)) => {
                write!(f, " ({state}, {} % of a CPU)", holder.cpu_percent)?;
            }
            (Some(state), None) if is_empty => state.fmt(f)?,
            (Some(state), None) => write!(f, " ({state})")?,
        }
        if self.main_has_ended {
            f.write_str("; its main thread has ended")?;
        }
        Ok(())
    }
}

/// Another process of the host of the process that is asked to look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The rank of that process.
    pub rank: Rank,
    /// Its pid, in the namespace of the process that is asked.
    pub pid: u32,
    /// Its start time, in the clock ticks of the kernel.
    pub start_time: u64,
}

/// Looks at the own process, or at that of a neighbour. Returns `None` if the activity is unknown, or must not be
/// shown.
pub type Look = dyn Fn(Option<&Neighbour>) -> Option<Whereabouts> + Send + Sync;

/// The activities of many ranks: ranks with the same activity share an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollCall {
    /// Ranks in ascending order, and their activity; in the order of their first ranks.
    pub groups: Vec<(Vec<Rank>, Arc<Whereabouts>)>,
    /// The number of other ranks, for whose activities there was no room.
    pub left_out: u32,
}

impl RollCall {
    /// Maximum number of different activities in a report, each of which is a line. They cover a thousand ranks.
    const MOST_GROUPS: usize = 32;

    /// Groups the known activities of ranks. If too many differ, the last ones are left out, and counted.
    #[must_use]
    pub fn of(ranks: impl IntoIterator<Item = (Rank, Arc<Whereabouts>)>) -> Self {
        let mut groups: Vec<(Vec<Rank>, Arc<Whereabouts>)> = Vec::new();
        let mut left_out = 0_u32;
        for (rank, whereabouts) in ranks {
            let has_room = groups.len() < Self::MOST_GROUPS;
            match groups.iter_mut().find(|(_, its)| *its == whereabouts) {
                Some((alike, _)) => alike.push(rank),
                None if has_room => groups.push((vec![rank], whereabouts)),
                None => left_out = left_out.saturating_add(1),
            }
        }
        Self { groups, left_out }
    }

    /// Leaves the last group out.
    pub fn leave_out(&mut self) {
        let ranks = self.groups.pop().map_or(0, |(ranks, _)| ranks.len());
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        self.left_out = self.left_out.saturating_add(ranks);
    }

    /// Returns true if nothing is known of any rank.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.left_out == 0
    }

    /// Cuts it to the size limits of messages.
    pub(crate) fn cut(&mut self) {
        while self.groups.len() > Self::MOST_GROUPS {
            self.leave_out();
        }
        for (_, whereabouts) in &mut self.groups {
            *whereabouts = Arc::new(Whereabouts::clone(whereabouts).cut_to_size());
        }
    }
}

/// One line for each group, each preceded by a line break: it follows a sentence.
impl fmt::Display for RollCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ranks, whereabouts) in &self.groups {
            let ranks: Vec<u32> = ranks.iter().map(|rank| rank.get()).collect();
            let s = if ranks.len() == 1 { "" } else { "s" };
            let ranks = crate::rank_ranges(&ranks);
            write!(f, "\n  rank{s} {ranks}: {whereabouts}")?;
        }
        match self.left_out {
            0 => Ok(()),
            1 => f.write_str("\n  1 more rank does something else"),
            more => write!(f, "\n  {more} more ranks do something else"),
        }
    }
}

#[cfg(test)]
#[path = "whereabouts_tests.rs"]
mod tests;
