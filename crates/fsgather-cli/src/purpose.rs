//! Distinguishes the commands of one job by their purpose: [`CommandPurpose`].
//!
//! Commands of one job meet one after the other, each as a world of its own. If a rank's command ends before it has met the others, the
//! rank's next command meets their current one, and so on: each rank would take the data of the wrong command.

use fsgather::{Communicator, Rank};
use fsgather_core::{Peer, sys::process::host_name};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The purpose of one rank's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandPurpose {
    /// The verb and the ranks that receive.
    pub(crate) verb: String,
    /// The name that the user gives it.
    pub(crate) name: Option<String>,
    /// The name of the output file or directory.
    pub(crate) output: Option<String>,
}

/// The purpose, and the process that states it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Said {
    purpose: CommandPurpose,
    line: String,
    host: String,
    pid: u32,
}

impl CommandPurpose {
    /// Returns true if both commands may have the same purpose, this one on rank `me`, the other on rank `they`. Only ranks that receive
    /// need an output; the outputs of commands with a name are not compared.
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
    /// Returns the same error on all ranks if two commands differ.
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

/// Returns true if two texts are equal except for the numbers of the ranks, which shells have inserted.
fn are_alike((mine, me): (&str, Rank), (theirs, they): (&str, Rank)) -> bool {
    let (mine, theirs) = (pieces(mine), pieces(theirs));
    let is_rank = |piece: &str, rank: Rank| piece.parse() == Ok(rank.get());
    let mut pairs = mine.iter().zip(&theirs);
    mine.len() == theirs.len()
        && pairs
            .all(|(mine, theirs)| mine == theirs || (is_rank(mine, me) && is_rank(theirs, they)))
}

/// The numbers of a text, and the pieces between them.
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

/// The failure for the first two ranks whose commands differ.
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
