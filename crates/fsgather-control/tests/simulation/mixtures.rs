//! The mixtures of events that random scripts are made of: [`Mixture`], and [`scripts`] of one.

use proptest::{collection::vec, prelude::*, sample::select};

use crate::script::{Fault, Harm, Line, Parting, Script, Twist, Verb, What};

/// The contents of scripts that a strategy draws.
#[derive(Clone, Copy)]
pub(crate) struct Mixture {
    /// True if most lines leave payloads.
    pub(crate) payloads: bool,
    pub(crate) twists: Option<fn() -> BoxedStrategy<What>>,
    pub(crate) harms: Option<fn() -> BoxedStrategy<Harm>>,
    /// True if rank 0 may be harmed.
    pub(crate) harm_rank_0: bool,
}

/// Nothing goes wrong, though ranks are of different speed.
pub(crate) const PEACEFUL: Mixture = Mixture {
    payloads: false,
    twists: Some(delays),
    harms: None,
    harm_rank_0: false,
};

/// Everything may happen.
pub(crate) const TROUBLED: Mixture = Mixture {
    payloads: false,
    twists: Some(any_twist),
    harms: Some(any_harm),
    harm_rank_0: true,
};

/// Everything may happen, but rank 0 keeps running.
pub(crate) const STEADY: Mixture = Mixture {
    harms: Some(losses),
    harm_rank_0: false,
    ..TROUBLED
};

/// Ranks and links fall silent, rank 0 as well.
pub(crate) const SILENT: Mixture = Mixture {
    payloads: false,
    twists: Some(lateness),
    harms: Some(silences),
    harm_rank_0: true,
};

/// Ranks fail, leave and die while others read.
pub(crate) const READING: Mixture = Mixture {
    payloads: true,
    twists: Some(reading_twists),
    harms: Some(losses),
    harm_rank_0: false,
};

/// Ranks are slow, or do not come at all.
pub(crate) const LATE_RANKS: Mixture = Mixture {
    payloads: false,
    twists: Some(lateness),
    harms: None,
    harm_rank_0: false,
};

/// Ranks are slow, but something always moves.
pub(crate) const SLOW: Mixture = Mixture {
    twists: Some(slowness),
    ..LATE_RANKS
};

/// Ranks may leave or fail, but no rank is harmed.
pub(crate) const FINISHING: Mixture = Mixture {
    twists: Some(any_twist),
    harms: None,
    ..READING
};

fn delays() -> BoxedStrategy<What> {
    let slow = (1..=3_u8, any::<bool>());
    prop_oneof![
        slow.clone()
            .prop_map(|(seconds, moving)| What::Slow { seconds, moving }),
        slow.prop_map(|(seconds, moving)| What::SlowReading { seconds, moving }),
    ]
    .boxed()
}

fn slowness() -> BoxedStrategy<What> {
    let slow = |seconds| What::Slow {
        seconds,
        moving: true,
    };
    let slow_reading = |seconds| What::SlowReading {
        seconds,
        moving: true,
    };
    prop_oneof![
        (1..=200_u8).prop_map(slow),
        (1..=200_u8).prop_map(slow_reading)
    ]
    .boxed()
}

fn lateness() -> BoxedStrategy<What> {
    let slow = (20..=150_u8, any::<bool>());
    prop_oneof![
        4 => slow.clone().prop_map(|(seconds, moving)| What::Slow { seconds, moving }),
        2 => slow.prop_map(|(seconds, moving)| What::SlowReading { seconds, moving }),
        2 => Just(What::Stray),
    ]
    .boxed()
}

fn any_twist() -> BoxedStrategy<What> {
    let others = vec![
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
    ];
    prop_oneof![1 => delays(), 1 => lateness(), 6 => select(others)].boxed()
}

fn reading_twists() -> BoxedStrategy<What> {
    let others = vec![
        What::FailReading,
        What::Fail,
        What::Leave,
        What::Raise,
        What::Close,
        What::DropGroups,
    ];
    prop_oneof![1 => delays(), 2 => lateness(), 3 => select(others)].boxed()
}

fn losses() -> BoxedStrategy<Harm> {
    select(vec![
        Harm::Crash,
        Harm::HiddenCrash,
        Harm::Vanish,
        Harm::Sever,
    ])
    .boxed()
}

fn silences() -> BoxedStrategy<Harm> {
    prop_oneof![
        4 => (1..=200_u16).prop_map(Harm::Stop),
        1 => select(vec![Harm::Sever, Harm::Crash, Harm::Vanish]),
    ]
    .boxed()
}

fn any_harm() -> BoxedStrategy<Harm> {
    prop_oneof![3 => losses(), 1 => (1..=150_u16).prop_map(Harm::Stop)].boxed()
}

fn verb(payloads: bool) -> BoxedStrategy<Verb> {
    let gathers = prop_oneof![
        3 => (any::<u8>(), 0..=2_u8).prop_map(|(leaves, rounds)| Verb::AllGather { leaves, rounds }),
        3 => (any::<u8>(), 0..=1_u8).prop_map(|(leaves, rounds)| Verb::Start { leaves, rounds }),
        2 => (any::<Option<u32>>(), any::<u8>()).prop_map(|(root, leaves)| Verb::Keep { root, leaves }),
        1 => any::<u8>().prop_map(|leaves| Verb::StartKeeping { leaves }),
    ];
    let gather = |(root, leaves, by_owner)| Verb::Gather {
        root,
        leaves,
        by_owner,
    };
    let others = prop_oneof![
        2 => Just(Verb::Barrier),
        1 => any::<u32>().prop_map(Verb::Broadcast),
        2 => (any::<u32>(), any::<u8>(), any::<bool>()).prop_map(gather),
        1 => Just(Verb::Settle),
        2 => any::<u8>().prop_map(Verb::Abandon),
        1 => (1..=3_u8).prop_map(Verb::Compute),
        1 => Just(Verb::EndGroup),
        1 => Just(Verb::DropGroup),
    ];
    let split = (any::<u8>(), any::<bool>()).prop_map(|(bits, backwards)| Verb::Split {
        by: Parting::Bits(bits),
        backwards,
    });
    let weight = if payloads { 6 } else { 2 };
    prop_oneof![weight => gathers, 4 => others, 1 => split].boxed()
}

fn line(payloads: bool) -> impl Strategy<Value = Line> {
    let on = prop_oneof![1 => Just(None), 2 => any::<u8>().prop_map(Some)];
    (verb(payloads), on).prop_map(|(verb, on)| Line { verb, on })
}

/// The program of ranks, half of the time with groups from the start.
fn program(payloads: bool) -> impl Strategy<Value = Vec<Line>> {
    let groups = (any::<u8>(), any::<bool>(), any::<bool>());
    (groups, vec(line(payloads), 0..7)).prop_map(|((bits, backwards, with_groups), mut lines)| {
        if with_groups {
            let by = Parting::Bits(bits);
            lines.insert(0, Verb::Split { by, backwards }.into());
        }
        lines
    })
}

/// Scripts of one mixture, for worlds of 1 to 5 ranks.
pub(crate) fn scripts(mixture: Mixture) -> impl Strategy<Value = Script> {
    let twists = match mixture.twists {
        None => Just(Vec::new()).boxed(),
        Some(what) => vec((any::<u32>(), 0..7_usize, what()), 0..4).boxed(),
    };
    let faults = match mixture.harms {
        None => Just(Vec::new()).boxed(),
        Some(harm) => vec((0..80_usize, any::<u32>(), harm()), 0..3).boxed(),
    };
    (
        1..=5_u32,
        program(mixture.payloads),
        twists,
        faults,
        vec(any::<u8>(), 0..150),
    )
        .prop_map(move |(ranks, program, twists, faults, order)| Script {
            ranks,
            program,
            twists: twists
                .into_iter()
                .map(|(rank, line, what)| Twist {
                    rank: rank % ranks,
                    line,
                    what,
                })
                .collect(),
            faults: faults
                .into_iter()
                .filter_map(|(event, rank, harm)| {
                    let first = u32::from(!mixture.harm_rank_0);
                    let rank = first + rank % (ranks - first).max(1);
                    (rank < ranks).then_some(Fault { event, rank, harm })
                })
                .collect(),
            order,
        })
}
