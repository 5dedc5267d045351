//! The small worlds whose schedules are all tried: programs that have each kind of call, and the deviations in each.

use super::small::Trial;
use crate::script::{Harm, Line, Parting, Twist, Verb, What};

/// Faults that may happen to a rank while it lives.
pub(super) const HARMS: &[Harm] = &[
    Harm::Crash,
    Harm::HiddenCrash,
    Harm::Vanish,
    Harm::Sever,
    Harm::Reset,
];

/// A process that is stopped for less long than any rank waits, and for longer.
pub(super) const STOPS: &[Harm] = &[Harm::Stop(20), Harm::Stop(100)];

/// All deviations of one rank.
const TWISTS: [What; 12] = [
    What::Fail,
    What::FailReading,
    What::Skip,
    What::Differ,
    What::Close,
    What::Leave,
    What::Raise,
    What::Interrupt,
    What::Stray,
    What::DropGroups,
    What::Slow {
        seconds: 70,
        moving: false,
    },
    What::SlowReading {
        seconds: 70,
        moving: false,
    },
];

const ALL: u8 = 255;

const fn gather(root: u32, leaves: u8, by_owner: bool) -> Verb {
    Verb::Gather {
        root,
        leaves,
        by_owner,
    }
}

/// Programs of one call, one of each kind.
pub(super) fn calls() -> Vec<Vec<Line>> {
    let all_gather = |leaves, rounds| Verb::AllGather { leaves, rounds };
    let verbs = [
        Verb::Barrier,
        all_gather(0, 0),
        all_gather(ALL, 0),
        all_gather(1, 1),
        gather(0, ALL, true),
        gather(1, ALL, false),
        Verb::Broadcast(0),
        Verb::Broadcast(1),
        Verb::Keep {
            root: None,
            leaves: ALL,
        },
        Verb::Keep {
            root: Some(1),
            leaves: ALL,
        },
    ];
    verbs.map(|verb| vec![verb.into()]).into()
}

/// Programs of two calls, of which the second begins before all have read the first.
pub(super) fn pairs() -> Vec<Vec<Line>> {
    let all_gather = Verb::AllGather {
        leaves: ALL,
        rounds: 0,
    };
    vec![
        vec![all_gather.into(), Verb::Barrier.into()],
        vec![gather(0, ALL, true).into(), gather(1, ALL, false).into()],
    ]
}

/// Programs with calls that are not waited for at once, or never.
pub(super) fn started() -> Vec<Vec<Line>> {
    let start = Verb::Start {
        leaves: ALL,
        rounds: 0,
    };
    vec![
        vec![start.into(), Verb::Barrier.into()],
        vec![start.into(), Verb::Abandon(2).into()],
    ]
}

/// Programs with groups: rank 0 apart from the others, all in one, and one that is ended or left.
pub(super) fn groups() -> Vec<Vec<Line>> {
    let split = |bits| Verb::Split {
        by: Parting::Bits(bits),
        backwards: true,
    };
    let on = |verb| Line { verb, on: Some(0) };
    vec![
        vec![
            split(0).into(),
            on(gather(0, ALL, true)),
            on(Verb::EndGroup),
        ],
        vec![split(0b110).into(), on(Verb::Barrier), Verb::Barrier.into()],
        vec![
            split(0).into(),
            on(Verb::AllGather {
                leaves: ALL,
                rounds: 0,
            }),
            on(Verb::DropGroup),
        ],
    ]
}

/// All programs.
pub(super) fn programs() -> Vec<Vec<Line>> {
    [calls(), pairs(), started(), groups()].concat()
}

/// The same program with each deviation of one of its ranks, in each place.
pub(super) fn twisted(ranks: u32, program: &[Line]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for rank in 0..ranks {
        for line in 0..=program.len() {
            for what in TWISTS {
                trials.push(Trial {
                    ranks,
                    program: program.to_vec(),
                    twists: vec![Twist { rank, line, what }],
                    ..Trial::default()
                });
            }
        }
    }
    trials
}

/// Programs without faults, or with up to `misfortunes` of them.
pub(super) fn plain(
    ranks: u32,
    programs: Vec<Vec<Line>>,
    harms: &'static [Harm],
    misfortunes: u8,
) -> Vec<Trial> {
    let trial = |program| Trial {
        ranks,
        program,
        harms,
        misfortunes,
        ..Trial::default()
    };
    programs.into_iter().map(trial).collect()
}

/// The same world, in which a fault happens to a rank.
pub(super) fn harmed(trial: Trial) -> Trial {
    Trial {
        harms: HARMS,
        misfortunes: 1,
        ..trial
    }
}

/// The same worlds, in which time may pass up to `delays` times before it has to.
pub(super) fn delayed(trials: Vec<Trial>, delays: u8) -> Vec<Trial> {
    let delayed = |trial| Trial { delays, ..trial };
    trials.into_iter().map(delayed).collect()
}
