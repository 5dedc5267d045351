//! The machines of the control plane in a simulated world: the promises hold for any order of events.
//!
//! `script` has the calls of ranks and the faults, `mixtures` the parts of random scripts, `program` the tasks of one rank,
//! `rank` carries them out, `network` runs all in virtual time, `promises` checks every step, `meeting` is about joining,
//! `schedules` tries everything that can happen in small worlds. A failing test of scripts prints the smallest one that it
//! has found. Every run checks everything that `promises` knows; the tests differ in the contents of their scripts and in
//! the questions at the end.

mod kept;
mod meeting;
mod mixtures;
mod network;
mod program;
mod promises;
mod rank;
mod schedules;
mod script;

use fsgather_core::{Error, PeerFailure, Rank};
use fsgather_testkit::pace::cases;
use mixtures::scripts;
use network::{run as run_script, run_in_turn};
use promises::{Broken, Ledger};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use script::{Fault, Harm, Line, Parting, Script, Twist, Verb, What};

/// Number of scripts that each property is tried with, unless `SIMULATION_SCRIPTS` is set; tens of thousands take a minute each.
const SCRIPTS: u32 = 800;

/// The same for quick tests.
const FEW_SCRIPTS: u32 = 60;

/// The number of scripts that was asked for.
#[expect(clippy::disallowed_methods, reason = "it is for this program alone")]
fn config() -> ProptestConfig {
    let asked = std::env::var("SIMULATION_SCRIPTS");
    let asked = asked.ok().and_then(|scripts| scripts.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(cases(FEW_SCRIPTS, SCRIPTS)))
}

fn run(script: &Script) -> Result<Ledger, TestCaseError> {
    run_script(script)
        .map(|world| world.ledger)
        .map_err(|broken| TestCaseError::fail(broken.to_string()))
}

fn all_ranks(script: &Script) -> Vec<Rank> {
    (0..script.ranks).map(Rank::new).collect()
}

/// Everything has succeeded.
fn is_peaceful(script: &Script, ledger: &Ledger) -> Result<(), TestCaseError> {
    prop_assert_eq!(ledger.abort(), None);
    prop_assert!(ledger.failures.is_empty(), "{:?}", ledger.failures);
    let closed: Vec<Rank> = ledger.closed.iter().copied().collect();
    prop_assert_eq!(closed, all_ranks(script));
    prop_assert_eq!(ledger.goodbyes(), (script.ranks as usize, true));
    prop_assert!(
        ledger.kept_payloads().is_empty(),
        "P4: payloads stay: {:?}",
        ledger.kept_payloads()
    );
    prop_assert_eq!(ledger.releases, script.exchanges());
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn p1_each_step_has_at_most_one_verdict_for_all_ranks(
        script in scripts(mixtures::TROUBLED)
    ) {
        run(&script)?;
    }

    #[test]
    fn p2_a_release_has_n_agreeing_contributions_in_order(
        script in scripts(mixtures::STEADY)
    ) {
        run(&script)?;
    }

    #[test]
    fn p3_a_failure_releases_nothing_and_all_get_one_error(
        script in scripts(mixtures::STEADY)
    ) {
        let ledger = run(&script)?;
        if ledger.abort().is_some() {
            prop_assert!(ledger.closed.is_empty(), "{:?} closed in good order", ledger.closed);
        }
    }

    #[test]
    fn p4_payloads_stay_while_they_are_read_and_go_after_that(script in scripts(mixtures::READING)) {
        run(&script)?;
    }

    #[test]
    fn p5_equal_programs_succeed_in_any_order_of_events(script in scripts(mixtures::PEACEFUL)) {
        let ledger = run(&script)?;
        is_peaceful(&script, &ledger)?;
    }

    #[test]
    fn p6_everybody_who_waits_gets_an_answer_in_time(script in scripts(mixtures::SILENT)) {
        run(&script)?;
    }

    #[test]
    fn p7_time_outs_come_when_due_and_name_exactly_the_missing(script in scripts(mixtures::LATE_RANKS)) {
        run(&script)?;
    }

    #[test]
    fn p7_moving_bytes_postpone_time_outs(script in scripts(mixtures::SLOW)) {
        let ledger = run(&script)?;
        is_peaceful(&script, &ledger)?;
    }

    #[test]
    fn p7_being_alive_postpones_nothing(
        ranks in 2..=5_u32,
        late in 0..5_u32,
        seconds in 65..=250_u8,
        order in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let late = late % ranks;
        let script = Script {
            ranks,
            program: vec![
                Verb::Barrier.into(),
                Verb::AllGather { leaves: 255, rounds: 0 }.into(),
            ],
            twists: vec![Twist { rank: late, line: 1, what: What::Slow { seconds, moving: false } }],
            faults: Vec::new(),
            order,
        };
        let ledger = run(&script)?;
        let Some(Error::Timeout { during, missing, .. }) = ledger.abort() else {
            return Err(TestCaseError::fail(format!("{:?}", ledger.abort())));
        };
        prop_assert!(during.starts_with("all_gather #2 at program.rs:"), "{}", during);
        let named: Vec<Rank> = missing.iter().map(|missing| missing.rank).collect();
        prop_assert_eq!(named, vec![Rank::new(late)]);
        prop_assert_eq!(ledger.failures.len(), ranks as usize);
    }

    #[test]
    fn p8_a_world_opens_when_all_ranks_have_joined_and_only_then(meeting in meeting::meetings()) {
        meeting.run().map_err(|broken| TestCaseError::fail(broken.to_string()))?;
    }

    #[test]
    fn p9_nothing_is_kept_once_all_is_decided_and_done(script in scripts(mixtures::FINISHING)) {
        run(&script)?;
    }
}

/// Runs a world in turn, and checks that at most `events_per_rank` events happen for each rank.
fn run_large(script: &Script, events_per_rank: usize) -> Result<Ledger, Broken> {
    let (world, events) = run_in_turn(script)?;
    let events = events / script.ranks as usize;
    assert!(events <= events_per_rank, "{events} for each rank");
    Ok(world.ledger)
}

#[test]
fn p10_large_world_needs_few_events_per_rank() {
    let ranks = cases(256, 1024);
    let script = Script {
        ranks,
        program: vec![
            Verb::Barrier.into(),
            Verb::AllGather {
                leaves: 1,
                rounds: 0,
            }
            .into(),
            Verb::Barrier.into(),
        ],
        twists: Vec::new(),
        faults: vec![Fault {
            event: 9 * ranks as usize,
            rank: 200,
            harm: Harm::Crash,
        }],
        order: Vec::new(),
    };
    let ledger = run_large(&script, 20).unwrap();
    let Some(Error::PeerFailed { peer, failure, .. }) = ledger.abort() else {
        panic!("{:?}", ledger.abort());
    };
    assert_eq!(peer.rank, Rank::new(200));
    assert!(matches!(failure, PeerFailure::Lost { .. }), "{failure}");
    assert_eq!(ledger.failures.len(), ranks as usize - 1);
    assert!(ledger.releases >= 2, "{}", ledger.releases);
}

#[test]
fn p10_many_groups_need_few_events_per_rank() {
    let ranks = cases(256, 1024);
    let on_pairs = |verb| Line { verb, on: Some(0) };
    let gather = Verb::AllGather {
        leaves: 255,
        rounds: 0,
    };
    let pairs = Verb::Split {
        by: Parting::Pairs,
        backwards: true,
    };
    let script = Script {
        ranks,
        program: vec![
            pairs.into(),
            on_pairs(Verb::Barrier),
            on_pairs(gather),
            on_pairs(Verb::EndGroup),
            Verb::Barrier.into(),
        ],
        twists: Vec::new(),
        faults: Vec::new(),
        order: Vec::new(),
    };
    let ledger = run_large(&script, 30).unwrap();
    assert_eq!(ledger.releases, 3 * ranks as usize / 2 + 1);
    assert_eq!(ledger.goodbyes(), (ranks as usize, true));
}

/// Runs scripts that once failed, and those of the file that `SIMULATION_REPLAY` names: a failing script is printed with
/// the word that stands for it.
#[expect(clippy::disallowed_methods, reason = "it is for this program alone")]
#[test]
fn scripts_that_once_failed_keep_all_promises() {
    let mut scripts = kept::scripts();
    let kept = kept::WORDS.map(|(name, word)| (name, Script::from_word(word).unwrap()));
    scripts.extend(kept);
    if let Ok(file) = std::env::var("SIMULATION_REPLAY") {
        let lines = std::fs::read_to_string(&file).unwrap();
        let words = lines
            .lines()
            .filter_map(|line| line.trim().strip_prefix("replay "));
        scripts.extend(words.map(|word| ("a replay", Script::from_word(word).unwrap())));
    }
    let mut failures = Vec::new();
    for (name, script) in scripts {
        let again = Script::from_word(&script.word());
        assert_eq!(format!("{:?}", again.unwrap()), format!("{script:?}"));
        if let Err(broken) = run(&script) {
            failures.push(format!("{name}: {broken}\n{script:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Without this test, a simulation in which little happens would keep every promise.
#[test]
fn simulated_worlds_end_in_every_possible_way() {
    let mut runner = TestRunner::deterministic();
    let strategy = scripts(mixtures::TROUBLED);
    let mut endings = std::collections::BTreeMap::new();
    for _ in 0..800 {
        let script = strategy.new_tree(&mut runner).unwrap().current();
        let ledger = run(&script).unwrap_or_else(|broken| panic!("{broken}\n{script:?}"));
        for ending in ledger.endings() {
            *endings.entry(ending).or_insert(0) += 1;
        }
    }
    for ending in [
        "good",
        "desync",
        "time-out",
        "lost",
        "departed",
        "raised",
        "unknown outcome",
        "abandoned",
        "stayed until all had read",
        "went although others had not read",
        "reclaimed",
        "gone before its payload was",
        "a group failed alone",
        "a group went on after the world had failed",
        "reclaimed although abandoned",
    ] {
        let runs = endings.get(ending).copied().unwrap_or(0);
        assert!(runs >= 4, "{ending}: only {runs} of 800 runs; {endings:?}");
    }
}
