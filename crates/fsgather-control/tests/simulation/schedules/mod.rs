//! Every schedule of small worlds: all that [`network`](crate::network) can do with two and three ranks.
//!
//! `trials` has the trials, `small` is the state of such a world, `meetings` that of one that forms. The explorer is our
//! own: `stateright` asks for `Hash` and `Eq` on all parts of a state, errors included, where a `Debug` text and `Clone`
//! are enough here, it judges single states where the ledger judges the steps between them, and its `eventually` passes
//! over cycles, while it matters most here that every rank ends. Only a queue and a set would be left for it to do.
//!
//! Only events that change no promise are left out: time passes when nothing else can happen, and up to `delays` times
//! before, each time to the next moment at which something is due or has to happen; so every timer fires as soon and as
//! late as it may, in every order with other events that are due at the same time. If a process dies, every number of its
//! frames on their way arrives in some schedule. Without `SCHEDULES` a small part runs; `scripts/prove simulate
//! --schedules` runs all, or those whose names have the given words.

#![expect(
    clippy::print_stdout,
    reason = "how many states there are is what comes of it"
)]

mod meetings;
mod small;
mod trials;

use fsgather_testkit::{
    explorer::{Counts, Explored, explore, follow},
    pace::cases,
};

use self::{
    meetings::Gathering,
    small::Trial,
    trials::{
        HARMS, STOPS, calls, delayed, groups, harmed, pairs, plain, programs, started, twisted,
    },
};
use crate::{
    network::Lie,
    script::{Harm, Line},
};

/// Explores all states that follow from a first one, and reports the way to a broken promise.
fn explore_all(name: &str, first: impl Explored) -> Result<Counts, String> {
    explore(first.clone()).map_err(|found| {
        let (told, _) = follow(first, &found.way);
        format!("{}\n{name}\n{told}  way {:?}", found.broken, found.way)
    })
}

fn try_out(trial: &Trial) -> Result<Counts, String> {
    let first = trial.begin().map_err(|broken| broken.to_string())?;
    explore_all(&trial.to_string(), first)
}

/// Tries them all, prints the counts, and fails with everything that was found.
fn try_all(name: &str, trials: Vec<Trial>) -> Counts {
    let mut counts = Counts::default();
    let mut found = Vec::new();
    let worlds = trials.len();
    for trial in trials {
        match try_out(&trial) {
            Ok(of_trial) => counts.add(&of_trial),
            Err(broken) => found.push(broken),
        }
    }
    println!("{name}: {worlds} worlds, {counts}");
    assert!(
        found.is_empty(),
        "{} of {worlds} worlds:\n{}",
        found.len(),
        found.join("\n\n")
    );
    counts
}

/// Returns true if trials of this name are run besides the small part: `SCHEDULES` is `all`, or some of the name's words.
#[expect(clippy::disallowed_methods, reason = "it is for this program alone")]
fn is_asked_for(name: &str) -> bool {
    std::env::var("SCHEDULES").is_ok_and(|asked| asked == "all" || name.contains(&asked))
}

/// Tries them all as well, in full.
fn try_in_full(counts: &mut Counts, name: &str, trials: impl FnOnce() -> Vec<Trial>) {
    if cases(false, true) {
        counts.add(&try_all(name, trials()));
    }
}

/// Tries them all as well, if that is asked for.
fn try_besides(counts: &mut Counts, name: &str, trials: impl FnOnce() -> Vec<Trial>) {
    if is_asked_for(name) {
        counts.add(&try_all(name, trials()));
    }
}

fn is_reached(counts: &Counts, ends: &[&str]) {
    for end in ends {
        assert!(counts.ends.contains_key(end), "never {end}: {counts}");
    }
}

#[test]
fn every_schedule_of_equal_programs_ends_well() {
    let mut counts = try_all("2 ranks", plain(2, programs(), &[], 0));
    counts.add(&try_all("3 ranks", plain(3, calls()[2..3].into(), &[], 0)));
    try_in_full(&mut counts, "3 ranks", || plain(3, calls(), &[], 0));
    try_besides(&mut counts, "all programs, 3 ranks", || {
        plain(3, [pairs(), started(), groups()].concat(), &[], 0)
    });
    try_besides(&mut counts, "all programs, 2 ranks, 2 delays", || {
        delayed(plain(2, programs(), &[], 0), 2)
    });
    try_besides(&mut counts, "calls, 3 ranks, a delay", || {
        delayed(plain(3, calls(), &[], 0), 1)
    });
    let ends: Vec<&str> = counts.ends.keys().copied().collect();
    assert_eq!(ends, ["good", "reclaimed", "reclaimed although abandoned"]);
}

#[test]
fn every_schedule_with_a_loss_at_any_point_keeps_all_promises() {
    let crashed = [pairs(), groups()].concat();
    let crashed = plain(2, crashed, &[Harm::Crash], 1);
    let mut counts = try_all("2 ranks, a crash", crashed);
    try_in_full(&mut counts, "2 ranks, a loss", || {
        plain(2, pairs(), HARMS, 1)
    });
    let two = || plain(2, programs(), HARMS, 1);
    try_besides(&mut counts, "all programs, 2 ranks, a loss", two);
    try_besides(&mut counts, "all programs, 2 ranks, a stop", || {
        plain(2, programs(), STOPS, 1)
    });
    try_besides(&mut counts, "calls, 3 ranks, a loss", || {
        plain(3, calls(), HARMS, 1)
    });
    let few = || [pairs(), groups()].concat();
    try_besides(&mut counts, "pairs and groups, 3 ranks, a crash", || {
        plain(3, few(), &[Harm::Crash], 1)
    });
    try_besides(
        &mut counts,
        "all programs, 2 ranks, a loss, a delay",
        || delayed(two(), 1),
    );
    try_besides(&mut counts, "pairs and groups, 2 ranks, 2 losses", || {
        plain(2, few(), HARMS, 2)
    });
    try_besides(&mut counts, "calls, 3 ranks, 2 crashes", || {
        plain(3, calls(), &[Harm::Crash], 2)
    });
    let ends = [
        "good",
        "lost",
        "unknown outcome",
        "reclaimed",
        "gone before its payload was",
        "a group went on after the world had failed",
    ];
    is_reached(&counts, &ends);
}

/// Each program with each deviation of a rank.
fn all_twisted(ranks: u32, programs: &[Vec<Line>]) -> Vec<Trial> {
    let trials = programs.iter().flat_map(|program| twisted(ranks, program));
    trials.collect()
}

#[test]
fn every_schedule_with_a_diverging_rank_keeps_promises() {
    let few = [
        calls().pop(),
        pairs().into_iter().next(),
        started().pop(),
        groups().into_iter().next(),
    ];
    let few: Vec<Vec<Line>> = few.into_iter().flatten().collect();
    // Only some programs with groups, whose worlds have by far the most states.
    let some = all_twisted(2, &few[..3])
        .into_iter()
        .step_by(cases(5, 1))
        .chain(all_twisted(2, &few[3..]).into_iter().step_by(cases(13, 5)));
    let mut counts = try_all("2 ranks, a twist", some.collect());
    try_besides(&mut counts, "all programs, 2 ranks, a twist", || {
        all_twisted(2, &programs())
    });
    try_besides(
        &mut counts,
        "few programs, 2 ranks, a twist, a delay",
        || delayed(all_twisted(2, &few), 1),
    );
    try_besides(
        &mut counts,
        "few programs, 2 ranks, a twist, a loss",
        || all_twisted(2, &few).into_iter().map(harmed).collect(),
    );
    try_besides(&mut counts, "all programs, 3 ranks, a twist", || {
        all_twisted(3, &programs())
    });
    let ends = [
        "good",
        "desync",
        "time-out",
        "departed",
        "raised",
        "abandoned",
        "stayed until all had read",
        "went although others had not read",
        "a group failed alone",
    ];
    is_reached(&counts, &ends);
}

#[test]
fn every_order_of_a_meeting_opens_the_world_or_says_why_not() {
    let mut counts = Counts::default();
    let mut sizes = vec![(2, cases(1, 2), 1)];
    if is_asked_for("meetings") {
        sizes.extend([(2, 2, 2), (3, 2, 2), (3, 1, 3)]);
    }
    for (ranks, asks, waits) in sizes {
        let name = format!("a meeting of {ranks}");
        let first = Gathering::new(ranks, asks, waits).unwrap();
        match explore_all(&name, first) {
            Ok(of_meeting) => counts.add(&of_meeting),
            Err(found) => panic!("{found}"),
        }
    }
    println!("meetings: {counts}");
    is_reached(
        &counts,
        &[
            "open",
            "late",
            "lost after it had opened",
            "lost while it formed",
            "told of a double",
        ],
    );
}

/// Without this test, an explorer that sees nothing would find nothing.
#[test]
fn every_lie_is_found() {
    let twists = || twisted(2, &pairs()[0]);
    let plain = || plain(3, pairs(), &[], 0);
    let lies = [
        (Lie::SaysVerdictsTwice, "P1", plain()),
        (Lie::LosesVerdicts, "P1", plain()),
        (Lie::SwapsParts, "P2", plain()),
        (Lie::DoublesParts, "P2", plain()),
        (Lie::HearsAnother, "P2", plain()),
        (Lie::LosesFailures, "P3", twists()),
        (Lie::HearsThatAllIsRead, "P4", plain()),
        (Lie::ForgetsTimers, "what happens here", twists()),
    ];
    for (lie, promise, trials) in lies {
        let found = trials.into_iter().find_map(|trial| {
            let trial = Trial {
                lie: Some(lie),
                ..trial
            };
            try_out(&trial).err()
        });
        let found = found.unwrap_or_else(|| panic!("{lie:?} was not found"));
        assert!(found.starts_with(promise), "{lie:?} was found as {found}");
        println!("{lie:?}: {}", found.lines().next().unwrap_or_default());
    }
}
