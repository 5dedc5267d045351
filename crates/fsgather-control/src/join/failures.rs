//! The findings of a search for rank 0, for the message at its end: [`SearchFailures`]. Pure.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use fsgather_core::{Activity, Error, Missing, Phase, Rank, RollCall, duration_text, plain_line};

use super::search_warnings::unanswered_text;
use crate::coordinator::way_out_of_starts;

/// Findings of a search, none of which led into a world.
#[derive(Debug, Default)]
pub(crate) struct SearchFailures {
    /// Results of candidates, by name.
    pub(crate) by_world: HashMap<String, String>,
    /// A world that has formed without this rank.
    pub(crate) formed: Option<FormedWorld>,
    /// The reason why a world of this key is not ours.
    pub(crate) elsewhere: Option<String>,
    /// The world sizes of ranks of this job, if a world has another one.
    pub(crate) other_size: Option<String>,
    /// The result of an earlier meeting.
    pub(crate) earlier: Option<String>,
    /// The error about a process of another build in the place of rank 0.
    pub(crate) foreign: Option<Error>,
}

/// A world that has formed with another process as this rank.
#[derive(Debug)]
pub(crate) struct FormedWorld {
    /// The job and that process.
    pub(crate) running: String,
    /// The time since which every answer says that it is running.
    pub(crate) live_since: Option<Instant>,
}

impl FormedWorld {
    /// The error of a process that claims to be `rank` as well, and has looked in `place`.
    pub(crate) fn error(&self, rank: Rank, place: &str) -> Error {
        let running = &self.running;
        Error::rendezvous(format!(
            "rank {rank} looked in {place} and found only a world that has formed without it: \
             {running}. Set FSGATHER_JOB to a different name for each job"
        ))
    }
}

/// A search that is out of time.
#[derive(Debug)]
pub(crate) struct ExpiredSearch<'a> {
    pub(crate) rank: Rank,
    /// True if a user has named its job.
    pub(crate) is_named: bool,
    pub(crate) timeout: Duration,
    /// The place where this rank has looked.
    pub(crate) place: &'a str,
    /// True if that is an address, not a rendezvous backend.
    pub(crate) is_address: bool,
    /// Rank 0 of a world that has accepted this rank and has not formed.
    pub(crate) coordinator: Option<&'a str>,
    /// Time for which the last look there has not been answered, if that is long.
    pub(crate) unanswered: Option<Duration>,
}

impl SearchFailures {
    /// The error of a search that is out of time.
    pub(crate) fn out_of_time(&self, search: &ExpiredSearch<'_>) -> Error {
        let ExpiredSearch { rank, place, .. } = *search;
        if let Some(formed) = &self.formed {
            return formed.error(rank, place);
        }
        if search.coordinator.is_some() {
            let hint = match &self.other_size {
                Some(sizes) => give_one_size(sizes),
                None => search.hint("is stopped or its host unreachable", None),
            };
            return search.timeout("to say that all ranks have joined", hint);
        }
        if let Some(why) = &self.elsewhere {
            return Error::rendezvous(format!(
                "rank {rank} looked in {place} and found no rank 0 that belongs to it: {why}; {}",
                way_out_of_starts(search.is_named)
            ));
        }
        if let Some(sizes) = &self.other_size {
            return search.timeout("of a world of this size to appear", give_one_size(sizes));
        }
        if let (Some(foreign), 1) = (&self.foreign, self.by_world.len()) {
            return foreign.clone();
        }
        if search.is_address || self.by_world.is_empty() {
            let last = self.by_world.values().next();
            let last = last.map_or_else(String::new, |last| format!("; last try: {last}"));
            let hint = search.hint(
                "was started and looks in the same place",
                self.earlier.as_deref(),
            );
            return search.timeout(&format!("to appear{last}"), hint);
        }
        let mut failures = self.tried();
        failures.extend(search.unanswered());
        // A rank that was started near the end of a meeting may have found rank 0 as it left.
        failures.extend(self.earlier.clone());
        Error::rendezvous(format!(
            "rank {rank} found no rank 0 of its world in {place} within {}; tried {}. See whether rank 0 \
             is running; set FSGATHER_INTERFACE to the network that all hosts share, or \
             FSGATHER_JOIN_TIMEOUT to wait longer",
            duration_text(search.timeout),
            failures.join("; ")
        ))
    }

    /// Text of a warning during a search, for its duration and for the time for which a look has not been answered.
    pub(crate) fn so_far(
        &self,
        place: String,
        is_address: bool,
    ) -> impl Fn(Duration, Option<Duration>) -> String + use<> {
        let tried = match self.by_world.values().next() {
            None => "see whether rank 0 was started and looks in the same place".to_owned(),
            // It has the address in it.
            Some(last) if is_address => format!("last try: {last}"),
            Some(_) => format!("tried {}", self.tried().join("; ")),
        };
        move |lasts, unanswered| {
            let lasts = duration_text(lasts);
            let what = match unanswered {
                Some(unanswered) => unanswered_text(&place, is_address, unanswered),
                None => tried.clone(),
            };
            format!("still waiting for rank 0 to appear in {place}, for {lasts} now; {what}")
        }
    }

    /// The results of all candidates.
    fn tried(&self) -> Vec<String> {
        let tried = self.by_world.iter();
        let mut tried: Vec<String> = tried
            .map(|(name, failure)| format!("{name}: {failure}"))
            .collect();
        tried.sort();
        tried
    }
}

impl ExpiredSearch<'_> {
    fn unanswered(&self) -> Option<String> {
        let lasts = self.unanswered?;
        Some(unanswered_text(self.place, self.is_address, lasts))
    }

    /// Advice for a rank 0 that is not as it should be.
    fn hint(&self, rank_0: &str, earlier: Option<&str>) -> String {
        let unanswered = self.unanswered();
        let unanswered = unanswered.map_or_else(String::new, |text| format!("{text}; "));
        let earlier = earlier.map_or_else(String::new, |earlier| format!("; {earlier}"));
        format!(
            "{unanswered}see whether rank 0 {rank_0}, or set FSGATHER_JOIN_TIMEOUT to wait longer{earlier}"
        )
    }

    fn timeout(&self, what: &str, hint: String) -> Error {
        let process = self
            .coordinator
            .and_then(|name| name.split_once(", pid "))
            .map(|(host, pid)| (host.to_owned(), pid.parse().unwrap_or(0)));
        Error::timed_out(
            format!("meeting (looked in {} for rank 0 {what})", self.place),
            self.timeout,
            vec![Missing {
                rank: Rank::ZERO,
                last_seen: process
                    .is_some()
                    .then_some((Activity::outside(Phase::Joining), self.timeout)),
                process,
            }],
            RollCall::default(),
            hint,
        )
    }
}

fn give_one_size(sizes: &str) -> String {
    format!(
        "{sizes}; give all ranks the same world size, or FSGATHER_JOB a different name for each job"
    )
}

/// The error of a rank that may not receive messages in plain text.
pub(crate) fn in_plain_text(host: &str) -> Error {
    Error::rendezvous(format!(
        "rank 0 on {} has its messages go through files in plain text, which FSGATHER_ENCRYPT=1 does not allow on \
         this rank; set it alike on all ranks",
        plain_line(host)
    ))
}

/// The error of a rank that was accepted by a rank 0 that must have refused it.
pub(crate) fn another_secret(rank: Rank, coordinator: &str) -> Error {
    Error::rendezvous(format!(
        "rank 0 ({coordinator}) was given another FSGATHER_SECRET than rank {rank}; set FSGATHER_SECRET or \
         FSGATHER_SECRET_FILE alike on all ranks"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search in a directory, whose last look was not answered for `unanswered`.
    fn search(unanswered: Option<Duration>) -> ExpiredSearch<'static> {
        ExpiredSearch {
            rank: Rank::new(3),
            is_named: false,
            timeout: Duration::from_secs(15),
            place: "/shared",
            is_address: false,
            coordinator: None,
            unanswered,
        }
    }

    #[test]
    fn a_search_beside_an_ended_meeting_reports_its_failure() {
        let failures = SearchFailures {
            by_world: HashMap::from([("vm".into(), "its connection closed".into())]),
            earlier: Some("a meeting had failed: rank 2 was lost".into()),
            ..SearchFailures::default()
        };
        let said = failures.out_of_time(&search(None)).to_string();
        let wanted = "tried vm: its connection closed; a meeting had failed: rank 2 was lost.";
        assert!(said.contains(wanted), "{said}");
    }

    #[test]
    fn a_search_that_hangs_in_its_file_system_says_so_at_its_end() {
        let search_that_hangs = search(Some(Duration::from_secs(12)));
        let hangs = "the file system of /shared has not answered for 12 s";
        let mut failures = SearchFailures::default();
        let said = failures.out_of_time(&search_that_hangs).to_string();
        assert!(
            said.contains(&format!("; {hangs}; see whether rank 0 was")),
            "{said}"
        );
        failures.by_world.insert("vm".into(), "refused".into());
        let said = failures.out_of_time(&search_that_hangs).to_string();
        assert!(
            said.contains(&format!("tried vm: refused; {hangs}.")),
            "{said}"
        );
        let said = failures.out_of_time(&search(None)).to_string();
        assert!(!said.contains("answered"), "{said}");
    }

    #[test]
    fn a_continuing_search_names_its_target_and_its_tries() {
        let mut failures = SearchFailures::default();
        let so_far = |failures: &SearchFailures, unanswered| {
            let so_far = failures.so_far("/shared".into(), false);
            so_far(Duration::from_secs(60), unanswered)
        };
        let at_an_address = |failures: &SearchFailures| {
            let so_far = failures.so_far("tcp://vm:1".into(), true);
            so_far(Duration::from_secs(60), None)
        };
        let said = so_far(&failures, None);
        let start = "still waiting for rank 0 to appear in /shared, for 1 min now; ";
        assert_eq!(
            said,
            format!("{start}see whether rank 0 was started and looks in the same place")
        );
        failures.by_world.insert("vm".into(), "refused".into());
        assert_eq!(so_far(&failures, None), format!("{start}tried vm: refused"));
        let said = at_an_address(&failures);
        assert!(
            said.ends_with("in tcp://vm:1, for 1 min now; last try: refused"),
            "{said}"
        );
        let hangs = "the file system of /shared has not answered for 40 s";
        let said = so_far(&failures, Some(Duration::from_secs(40)));
        assert_eq!(said, format!("{start}{hangs}"));
    }
}
