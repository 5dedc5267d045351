//! Tells the several commands of one job apart by what they are for: [`CommandPurpose`].
//!
//! Commands of one job meet one after the other, each as a world of its own. Where a rank's command has ended before it
//! met the others, its next one meets theirs, and every later one too: each would take another's data for its own.

use fsgather::{Communicator, Rank};
use fsgather_core::{Peer, sys::process::host_name};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// What one rank's command is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandPurpose {
    /// The verb and who receives.
    pub(crate) verb: String,
    /// What the user calls it.
    pub(crate) name: Option<String>,
    /// What the file or directory is called in which the user wants what is received.
    pub(crate) output: Option<String>,
}

/// The same, with who says it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Said {
    purpose: CommandPurpose,
    line: String,
    host: String,
    pid: u32,
}

impl CommandPurpose {
    /// Whether both may be of one purpose, this one that of rank `me` and the other that of `they`. Only who receives has to
    /// say where; what has a name needs no other sign.
    fn may_be(&self, me: Rank, other: &Self, they: Rank) -> bool {
        let alike = match (&self.output, &other.output) {
            (Some(mine), Some(theirs)) => are_alike((mine, me), (theirs, they)),
            _ => true,
        };
        self.verb == other.verb && self.name == other.name && (self.name.is_some() || alike)
    }

    /// Makes sure that all ranks are in the same command.
    ///
    /// # Errors
    ///
    /// On all ranks alike when two are not.
    pub(crate) fn agree(self, communicator: &Communicator, line: String) -> Result<(), Failure> {
        let said = communicator.all_gather(&Said {
            purpose: self,
            line,
            host: host_name(),
            pid: std::process::id(),
        })?;
        different(&said).map_or(Ok(()), Err)
    }
}

/// Whether two texts are the same but for numbers that are those of the ranks: shells have put them there.
fn are_alike((mine, me): (&str, Rank), (theirs, they): (&str, Rank)) -> bool {
    let (mine, theirs) = (pieces(mine), pieces(theirs));
    let is_rank = |piece: &str, rank: Rank| piece.parse() == Ok(rank.get());
    let mut pairs = mine.iter().zip(&theirs);
    mine.len() == theirs.len()
        && pairs
            .all(|(mine, theirs)| mine == theirs || (is_rank(mine, me) && is_rank(theirs, they)))
}

/// Its numbers, and what is between them.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit);
        let (piece, more) = rest.split_at(end.unwrap_or(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

/// What to say of two ranks that are in different commands: the first that differ.
fn different(said: &[Said]) -> Option<Failure> {
    let ranked = || (0..).map(Rank::new).zip(said);
    ranked().find_map(|(rank, one)| {
        let mut others = ranked().filter(|(other, _)| *other > rank);
        let (other_rank, other) = others
            .find(|(other_rank, other)| !one.purpose.may_be(rank, &other.purpose, *other_rank))?;
        let peer = |rank, said: &Said| Peer {
            rank,
            host: said.host.clone(),
            pid: said.pid,
        };
        Some(Failure::DifferentCommands {
            one: peer(rank, one),
            one_line: one.line.clone(),
            other: peer(other_rank, other),
            other_line: other.line.clone(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(verb: &str, name: Option<&str>, output: Option<&str>) -> Said {
        Said {
            purpose: CommandPurpose {
                verb: verb.into(),
                name: name.map(Into::into),
                output: output.map(Into::into),
            },
            line: format!("fsgather {verb}"),
            host: "n7".into(),
            pid: 7,
        }
    }

    #[test]
    fn commands_are_told_apart_by_what_ranks_say_of_them() {
        let a = said("gather", None, Some("A"));
        let silent = said("gather", None, None);
        let b = said("gather", None, Some("B"));
        let named = |output| said("gather", Some("x"), output);
        assert!(different(&[a.clone(), silent.clone(), a.clone()]).is_none());
        assert!(different(&[silent.clone(), silent.clone()]).is_none());
        assert!(different(&[a.clone(), b.clone()]).is_some());
        // The root says nothing, and two others differ.
        assert!(different(&[silent.clone(), a.clone(), b]).is_some());
        assert!(different(&[a, said("barrier", None, None)]).is_some());
        let numbered = |rank: u32| said("gather", None, Some(&format!("v1/got-{rank:03}.txt")));
        assert!(different(&[numbered(0), numbered(1), numbered(2)]).is_none());
        assert!(different(&[numbered(0), numbered(2)]).is_some());
        assert!(different(&[named(Some("/n1/x")), named(Some("/n2/x"))]).is_none());
        assert!(different(&[named(None), silent]).is_some());
        assert!(different(&[named(None), said("gather", Some("y"), None)]).is_some());
    }
}
