//! The name of a call in messages: [`CallName`].

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Call, Epoch, Operation, Site};

/// A rank's call as messages name it: `all_gather #2 at eval.py:42`.
///
/// A place of more than 256 bytes is cut, since a message may name thousands of calls.
///
/// ```
/// use fsgather_core::{Call, CallName, Epoch, Operation, Site};
///
/// let call = Call { number: 2, ..Call::new(Operation::AllGather, Site::named("eval.py:42")) };
/// let name = CallName::of(&call, Epoch::new(3));
/// assert_eq!(name.to_string(), "all_gather #2 at eval.py:42");
/// assert_eq!(name.short(), "all_gather #2");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallName {
    /// The operation.
    pub operation: Operation,
    /// The number of this call among the program's calls on its communicator; see [`Call::number`].
    pub number: u64,
    /// Its number among all exchanges of its communicator.
    pub epoch: Epoch,
    /// The name that the program gives the call; see [`Call::tag`].
    pub tag: Option<Arc<str>>,
    /// The place of the call in the program.
    pub site: Site,
}

impl CallName {
    /// The name of a call.
    #[must_use]
    pub fn of(call: &Call, epoch: Epoch) -> Self {
        Self {
            operation: call.operation,
            number: call.number,
            epoch,
            tag: call.tag.clone(),
            site: call.site.short(),
        }
    }

    /// The name without the place.
    #[must_use]
    pub fn short(&self) -> String {
        let name = self.operation.numbered(self.number);
        match &self.tag {
            Some(tag) => format!("{name} {tag:?}"),
            None => name,
        }
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())?;
        if self.site.is_known() {
            write!(f, " at {}", self.site)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_operation_number_and_place_and_cuts_long_places() {
        let name = |site: &str| {
            let call = Call {
                number: 2,
                ..Call::new(Operation::AllGather, Site::named(site))
            };
            CallName::of(&call, Epoch::new(3))
        };
        let known = name("eval.py:42");
        assert_eq!(known.to_string(), "all_gather #2 at eval.py:42");
        assert_eq!((known.epoch, known.number), (Epoch::new(3), 2));
        assert_eq!(name("").to_string(), "all_gather #2");
        let tagged = Call::new(Operation::Barrier, Site::default()).tagged("bleu");
        let tagged = CallName::of(&tagged, Epoch::new(3));
        assert_eq!(tagged.to_string(), "barrier #0 \"bleu\"");
        let longest = "x".repeat(256);
        assert_eq!(name(&longest).site.to_string(), longest);
        let long = name(&"x".repeat(5000)).to_string();
        assert!(long.len() < 330 && long.contains("(cut; "), "{long}");
    }
}
