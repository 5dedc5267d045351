//! Judges the results of the calls of `--conformance`: [`findings`].

use crate::doctor::{
    advice::SHARE,
    facts::{ConformanceFacts, RankFacts, WayFacts, WorldFacts, hosts, numbers},
    finding::{Finding, Level, Topic},
};

/// The advice for wrong results.
const WRONG: &str = "keep jobs off this directory: set FSGATHER_TRANSPORT=memory. Nothing that a job can do mends it";

/// The advice if only marker files fail.
const NO_MARKERS: &str = "keep messages off it: ranks that can connect to each other use TCP by themselves; FSGATHER_CONTROL=tcp makes \
     it sure";

/// The advice if only TCP fails.
const NO_TCP: &str = "ranks that cannot connect use marker files by themselves; FSGATHER_CONTROL=markers makes it sure";

/// The advice if the settings exclude both carriers.
const ALLOW: &str = "start it with settings that allow calls through files in this directory";

/// The finding for a single process, which cannot make calls.
pub(super) fn alone() -> Finding {
    Finding::problem(
        Topic::Settings,
        "no calls were made: they take at least two ranks, and ranks on two hosts to prove anything about a file system \
         that hosts share",
        "start it as a job is started: srun -N2 -n4 fsgather doctor --conformance DIR",
    )
}

pub(super) fn findings(ranks: &[RankFacts], world: &WorldFacts) -> Vec<Finding> {
    let Some(facts) = &world.conformance else {
        return Vec::new();
    };
    let is_right = |way: &WayFacts| way.right == way.calls && way.problem.is_none();
    let some_way_is_right = facts.ways.iter().any(is_right);
    let all = numbers(ranks);
    let mut findings: Vec<Finding> = facts
        .ways
        .iter()
        .map(|way| one_way(way, some_way_is_right))
        .collect();
    findings.extend(left(facts));
    if hosts(ranks).len() == 1 {
        findings.push(
            Finding::note(
                Topic::Directory,
                "all ranks run on one host: their calls prove nothing about what other hosts see",
            )
            .advise("start it on two hosts: srun -N2 -n4 fsgather doctor --conformance DIR"),
        );
    }
    findings
        .into_iter()
        .map(|finding| finding.of(all.iter().copied()))
        .collect()
}

fn one_way(way: &WayFacts, some_way_is_right: bool) -> Finding {
    let WayFacts { calls, right, .. } = way;
    let (over, advice) = match way.carrier.as_str() {
        "tcp" => ("messages over TCP", NO_TCP),
        _ => ("messages in marker files", NO_MARKERS),
    };
    if let (true, Some(problem)) = (way.is_refused, &way.problem) {
        let refused = Finding::error(
            Topic::Settings,
            &format!("{over}: no calls were made: {problem}"),
            ALLOW,
        );
        return if some_way_is_right {
            refused.at(Level::Warning)
        } else {
            refused
        };
    }
    if let Some(problem) = &way.problem {
        let rank = way.problem_rank.unwrap_or_default();
        let text =
            format!("{over}: {right} of {calls} calls were right, then, by rank {rank}: {problem}");
        return if some_way_is_right {
            Finding::warning(Topic::Directory, text, advice).for_table()
        } else {
            Finding::problem(Topic::Directory, text, SHARE)
        };
    }
    if right < calls {
        let text = format!(
            "{over}: {} of {calls} calls came to another result than what ranks had handed over",
            calls - right
        );
        return Finding::problem(Topic::Directory, text, WRONG).for_table();
    }
    Finding::ok(
        Topic::Directory,
        format!(
            "{over}: {calls} calls, every byte right; median {}, slowest {}, meeting {}",
            millis(way.median_seconds),
            millis(way.slowest_seconds),
            millis(way.meeting_seconds)
        ),
    )
}

fn left(facts: &ConformanceFacts) -> Option<Finding> {
    if let Some(problem) = &facts.left_problem {
        return Some(Finding::warning(
            Topic::Leftovers,
            format!("whether these calls have left something behind is not known: {problem}"),
            "see what fsgather inspect shows there",
        ));
    }
    let first = facts.left.first()?;
    let count = facts.left.len();
    Some(Finding::warning(
        Topic::Leftovers,
        format!("these calls have left something behind ({count} in all): {first}"),
        "see that no process of them still runs, then remove it with fsgather clean",
    ))
}

fn millis(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".into(), |seconds| format!("{:.0} ms", seconds * 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(carrier: &str) -> WayFacts {
        WayFacts {
            carrier: carrier.into(),
            meeting_seconds: Some(0.05),
            calls: 50,
            right: 50,
            median_seconds: Some(0.0874),
            slowest_seconds: Some(0.336),
            problem: None,
            problem_rank: None,
            is_refused: false,
        }
    }

    /// The facts of a rank on a host of its own.
    fn rank(rank: u32) -> RankFacts {
        RankFacts {
            rank,
            host: format!("n{rank}"),
            ..RankFacts::default()
        }
    }

    fn judged(ways: Vec<WayFacts>, left: Vec<String>) -> Vec<(Level, String)> {
        let world = WorldFacts {
            conformance: Some(ConformanceFacts {
                payload_bytes: [1, 2],
                ways,
                left,
                left_problem: None,
            }),
            ..WorldFacts::default()
        };
        let found = findings(&[rank(0), rank(1)], &world);
        assert!(found.iter().all(|finding| finding.ranks == [0, 1]));
        let found = found.into_iter();
        found.map(|finding| (finding.level, finding.text)).collect()
    }

    #[test]
    fn what_is_right_is_told_with_its_times() {
        let found = judged(vec![way("tcp"), way("markers")], Vec::new());
        let text = "messages over TCP: 50 calls, every byte right; median 87 ms, slowest 336 ms, meeting 50 ms";
        assert_eq!(found[0], (Level::Ok, text.into()));
        assert_eq!(found[1].0, Level::Ok);
        assert!(findings(&[], &WorldFacts::default()).is_empty());
    }

    #[test]
    fn a_wrong_result_is_a_problem_whatever_else_is_right() {
        let wrong = WayFacts {
            right: 49,
            ..way("tcp")
        };
        let found = judged(vec![wrong, way("markers")], Vec::new());
        assert_eq!(found[0].0, Level::Problem);
        assert!(found[0].1.contains("1 of 50 calls"), "{found:?}");
    }

    #[test]
    fn a_way_that_fails_is_a_warning_while_there_is_another() {
        let failed = |carrier| WayFacts {
            right: 3,
            problem: Some("no room".into()),
            problem_rank: Some(1),
            ..way(carrier)
        };
        let found = judged(vec![way("tcp"), failed("markers")], Vec::new());
        let text = "messages in marker files: 3 of 50 calls were right, then, by rank 1: no room";
        assert_eq!(found[1], (Level::Warning, text.into()));
        let found = judged(vec![failed("tcp"), failed("markers")], Vec::new());
        assert!(found.iter().all(|(level, _)| *level == Level::Problem));
    }

    #[test]
    fn settings_that_forbid_a_way_say_nothing_of_the_file_system() {
        let refused = |carrier| WayFacts {
            right: 0,
            problem: Some("the port is taken; let it have another one".into()),
            is_refused: true,
            ..way(carrier)
        };
        let world = |ways| WorldFacts {
            conformance: Some(ConformanceFacts {
                ways,
                ..ConformanceFacts::default()
            }),
            ..WorldFacts::default()
        };
        let found = findings(&[], &world(vec![refused("tcp"), way("markers")]));
        let [refusal, _] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            (refusal.level, refusal.topic, refusal.is_for_table),
            (Level::Warning, Topic::Settings, false)
        );
        assert_eq!(
            (refusal.text.as_str(), refusal.advice.as_deref()),
            (
                "messages over TCP: no calls were made: the port is taken",
                Some("let it have another one")
            )
        );
        let found = findings(&[], &world(vec![refused("tcp"), refused("markers")]));
        assert!(found.iter().all(|finding| finding.level == Level::Problem));
    }

    #[test]
    fn calls_on_one_host_prove_nothing_about_others() {
        let world = WorldFacts {
            conformance: Some(ConformanceFacts::default()),
            ..WorldFacts::default()
        };
        assert!(findings(&[rank(0), rank(1)], &world).is_empty());
        let found = findings(&[rank(0), rank(0)], &world);
        assert!(
            found.len() == 1 && found[0].level == Level::Note && !found[0].is_for_table,
            "{found:?}"
        );
    }

    #[test]
    fn a_directory_that_cannot_be_looked_through_is_told_as_such() {
        let world = WorldFacts {
            conformance: Some(ConformanceFacts {
                left_problem: Some("it is gone".into()),
                ..ConformanceFacts::default()
            }),
            ..WorldFacts::default()
        };
        let found = findings(&[], &world);
        assert_eq!(
            found[0].text,
            "whether these calls have left something behind is not known: it is gone"
        );
    }

    #[test]
    fn what_is_left_is_told() {
        let found = judged(
            vec![way("tcp")],
            vec!["/shared/a".into(), "/shared/b".into()],
        );
        assert_eq!(found[1].0, Level::Warning);
        assert!(found[1].1.contains("2 in all): /shared/a"), "{found:?}");
    }
}
