//! Collects what a search for rank 0 has found, for the message at its end: [`SearchFailures`]. Pure.

use std::{collections::HashMap, time::Duration};

use fsgather_core::{Activity, Error, Missing, Phase, Rank, RollCall, plain_line};

/// What was found, none of which led into a world.
#[derive(Debug, Default)]
pub(crate) struct SearchFailures {
    /// What became of candidates, by name.
    pub(crate) by_world: HashMap<String, String>,
    /// A world that has formed without this rank.
    pub(crate) formed: Option<String>,
    /// Why a world of this key is not ours.
    pub(crate) elsewhere: Option<String>,
    /// What an earlier meeting has come to.
    pub(crate) earlier: Option<String>,
    /// Of another build, where rank 0 should be.
    pub(crate) foreign: Option<Error>,
}

/// A search that is out of time.
#[derive(Debug)]
pub(crate) struct ExpiredSearch<'a> {
    pub(crate) rank: Rank,
    pub(crate) timeout: Duration,
    /// Where this rank has looked.
    pub(crate) place: &'a str,
    /// Whether that is an address, not a rendezvous backend.
    pub(crate) is_address: bool,
    /// Rank 0 of a world that has accepted this rank, and has not formed.
    pub(crate) coordinator: Option<&'a str>,
    /// Who was told which world size, where a world of this job has another one.
    pub(crate) other_size: Option<&'a str>,
}

impl SearchFailures {
    /// The error of a search that is out of time.
    pub(crate) fn out_of_time(&self, search: &ExpiredSearch<'_>) -> Error {
        let ExpiredSearch { rank, place, .. } = *search;
        if let Some(running) = &self.formed {
            return Error::rendezvous(format!(
                "rank {rank} looked in {place} and found only a world that has formed without it: \
                 {running}. Set FSGATHER_JOB to a different name for each job"
            ));
        }
        if search.coordinator.is_some() {
            return search.timeout("to say that all ranks have joined", None);
        }
        if let Some(why) = &self.elsewhere {
            return Error::rendezvous(format!(
                "rank {rank} looked in {place} and found no rank 0 that belongs to it: {why}. If they belong together, \
                 set FSGATHER_JOB to the same name on all ranks"
            ));
        }
        if search.other_size.is_some() {
            return search.timeout("of a world of this size to appear", None);
        }
        if let (Some(foreign), 1) = (&self.foreign, self.by_world.len()) {
            return foreign.clone();
        }
        if search.is_address {
            return match self.by_world.values().next() {
                Some(last) => search.timeout(&format!("to appear; last try: {last}"), None),
                None => search.timeout("to appear", None),
            };
        }
        if self.by_world.is_empty() {
            return search.timeout("to appear", self.earlier.as_deref());
        }
        let mut failures: Vec<String> = self
            .by_world
            .iter()
            .map(|(name, failure)| format!("{name}: {failure}"))
            .collect();
        failures.sort();
        // A rank that was started beside the end of a meeting may have found rank 0 as it left.
        failures.extend(self.earlier.clone());
        Error::rendezvous(format!(
            "rank {rank} found no rank 0 of its world in {place} within {}; tried {}. See whether rank 0 \
             is running; set FSGATHER_INTERFACE to the network that all hosts share, or \
             FSGATHER_JOIN_TIMEOUT to wait longer",
            fsgather_core::duration_text(search.timeout),
            failures.join("; ")
        ))
    }
}

impl ExpiredSearch<'_> {
    fn timeout(&self, what: &str, earlier: Option<&str>) -> Error {
        let earlier = earlier.map_or_else(String::new, |earlier| format!("; {earlier}"));
        let process = self
            .coordinator
            .and_then(|name| name.split_once(", pid "))
            .map(|(host, pid)| (host.to_owned(), pid.parse().unwrap_or(0)));
        Error::Timeout {
            during: format!("meeting (looked in {} for rank 0 {what})", self.place),
            timeout: self.timeout,
            missing: vec![Missing {
                rank: Rank::ZERO,
                last_seen: process
                    .is_some()
                    .then_some((Activity::outside(Phase::Joining), self.timeout)),
                process,
            }],
            stacks: RollCall::default(),
            hint: match self.other_size {
                Some(told) => format!(
                    "{told}; give all ranks the same world size, or FSGATHER_JOB a different name for each job"
                ),
                None => format!(
                    "see whether rank 0 was started and looks in the same place, or set FSGATHER_JOIN_TIMEOUT to wait \
                     longer{earlier}"
                ),
            },
        }
    }
}

/// The error of a rank that nothing may be told to in plain text.
pub(crate) fn in_plain_text(host: &str) -> Error {
    Error::rendezvous(format!(
        "rank 0 on {} has its messages go through files in plain text, which FSGATHER_ENCRYPT=1 does not allow on \
         this rank; set it alike on all ranks",
        plain_line(host)
    ))
}

/// The error of a rank that was taken in by one that must have refused it.
pub(crate) fn another_secret(rank: Rank, coordinator: &str) -> Error {
    Error::rendezvous(format!(
        "rank 0 ({coordinator}) was given another FSGATHER_SECRET than rank {rank}; set FSGATHER_SECRET or \
         FSGATHER_SECRET_FILE alike on all ranks"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_beside_the_end_of_another_meeting_says_what_that_came_to() {
        let failures = SearchFailures {
            by_world: HashMap::from([("vm".into(), "its connection closed".into())]),
            earlier: Some("a meeting had failed: rank 2 was lost".into()),
            ..SearchFailures::default()
        };
        let search = ExpiredSearch {
            rank: Rank::new(3),
            timeout: Duration::from_secs(15),
            place: "/shared",
            is_address: false,
            coordinator: None,
            other_size: None,
        };
        let said = failures.out_of_time(&search).to_string();
        let wanted = "tried vm: its connection closed; a meeting had failed: rank 2 was lost.";
        assert!(said.contains(wanted), "{said}");
    }
}
