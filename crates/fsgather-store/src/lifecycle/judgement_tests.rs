use std::time::UNIX_EPOCH;

use proptest::prelude::*;

use super::*;

const RULES: Rules = Rules {
    older_than: Duration::from_secs(86_400),
    watch: Duration::from_secs(30),
    readers: Duration::from_secs(300),
};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn recorded(owner: Liveness, ranks: Liveness) -> OwnerEvidence {
    OwnerEvidence::Recorded {
        owner,
        ranks,
        name: "pid 42 on n7".into(),
    }
}

/// An old directory with payloads, without any evidence about its owner.
fn silence() -> Evidence {
    Evidence {
        foreign: None,
        owner: recorded(Liveness::Unknown, Liveness::Unknown),
        finished: false,
        aborted: false,
        condemned: None,
        beat: BeatEvidence::Same(Duration::ZERO),
        last_beat: None,
        changed: now() - Duration::from_secs(90_000),
        payloads: 3,
        is_bare: false,
        stranger: None,
    }
}

#[test]
fn the_table() {
    use BeatEvidence::{Changed, Same};
    use GatherState::{Finished, Live, Stale, Unknown};
    use Liveness::{Gone, Rebooted, Replaced, Running, Unknown as Unseen};
    use Removable::{No, OnceWatched as Watched, Yes};
    let (young, old) = (Duration::from_secs(3), Duration::from_secs(90_000));
    let (glance, watched) = (Same(Duration::ZERO), Same(Duration::from_secs(30)));
    // Owner, all ranks, marks (f: finished, a: aborted), beat, quiet for, payloads: state, removable.
    let rows = [
        // An owner that is seen to run is live, regardless of other evidence; a stopped process counts as running.
        (Running, Running, "", glance, old, 3, Live, No),
        (Running, Running, "a", watched, old, 0, Live, No),
        // If all ranks are proved to be gone, the directory goes at once.
        (Gone, Gone, "", glance, young, 3, Stale, Yes),
        // Other ranks may still read: only if there is nothing to read, or no rank reads any more.
        (Gone, Running, "", watched, old, 3, Stale, No),
        (Gone, Running, "", glance, young, 0, Stale, Yes),
        (Gone, Unseen, "", glance, young, 3, Stale, No),
        (Gone, Unseen, "", glance, young, 0, Stale, Yes),
        (Gone, Unseen, "", glance, old, 3, Stale, Yes),
        // If one process is seen to be gone, only a heartbeat that changes contradicts it.
        (Gone, Gone, "", Changed, young, 0, Live, No),
        (Gone, Gone, "a", Changed, old, 0, Live, No),
        // Indirect evidence against the owner counts once its heartbeat is old, or was watched without a change.
        (Rebooted, Rebooted, "", glance, young, 0, Unknown, Watched),
        (Rebooted, Rebooted, "", glance, young, 3, Unknown, No),
        (Rebooted, Rebooted, "", watched, young, 3, Stale, Yes),
        (Rebooted, Rebooted, "", glance, old, 3, Stale, Yes),
        (Rebooted, Rebooted, "", Changed, old, 0, Live, No),
        (Replaced, Replaced, "", glance, young, 0, Unknown, Watched),
        (Replaced, Gone, "", glance, old, 3, Stale, Yes),
        (Replaced, Unseen, "", Changed, old, 0, Live, No),
        // A tombstone is only a survivor's statement, and the survivor may be reading, or may have been cut off.
        (Unseen, Unseen, "a", glance, young, 3, Unknown, No),
        (Unseen, Unseen, "a", glance, young, 0, Unknown, Watched),
        (Unseen, Unseen, "a", watched, young, 0, Stale, Yes),
        (Unseen, Unseen, "a", watched, young, 3, Stale, No),
        (Unseen, Unseen, "a", glance, old, 3, Stale, Yes),
        (Unseen, Unseen, "a", Changed, old, 0, Live, No),
        // The owner's own statement counts even while it continues with other work.
        (Running, Running, "f", glance, young, 0, Finished, Yes),
        (Running, Running, "f", glance, old, 3, Finished, No),
        (Unseen, Unseen, "f", glance, young, 3, Finished, No),
        (Unseen, Unseen, "f", glance, old, 3, Finished, Yes),
        (Gone, Gone, "fa", glance, young, 3, Finished, Yes),
        // Silence: age and a watched heartbeat together.
        (Unseen, Unseen, "", Changed, old, 3, Live, No),
        (Unseen, Unseen, "", glance, young, 0, Unknown, No),
        (Unseen, Unseen, "", watched, young, 0, Unknown, No),
        (Unseen, Unseen, "", glance, old, 0, Unknown, Watched),
        (Unseen, Unseen, "", watched, old, 3, Unknown, Yes),
        // A rank that is seen to run is evidence for the owner.
        (Unseen, Running, "", watched, old, 3, Unknown, No),
    ];
    for (owner, ranks, marks, beat, quiet, payloads, state, removable) in rows {
        let evidence = Evidence {
            owner: recorded(owner, ranks),
            finished: marks.contains('f'),
            aborted: marks.contains('a'),
            beat,
            changed: now() - quiet,
            payloads,
            ..silence()
        };
        let judged = assess(&evidence, &RULES, now());
        assert_eq!(
            (judged.state, judged.removable),
            (state, removable),
            "{evidence:?}: {judged:?}"
        );
    }
}

#[test]
fn a_directory_without_owner_record_is_not_called_stale() {
    for owner in [
        OwnerEvidence::Missing,
        OwnerEvidence::Damaged("torn".into()),
    ] {
        let mut evidence = Evidence {
            owner,
            changed: now(),
            beat: BeatEvidence::Same(Duration::from_secs(40)),
            ..silence()
        };
        let judged = assess(&evidence, &RULES, now());
        assert_eq!(
            (judged.state, judged.removable),
            (GatherState::Unknown, Removable::No)
        );
        evidence.changed = silence().changed;
        assert_eq!(assess(&evidence, &RULES, now()).removable, Removable::Yes);
    }
}

#[test]
fn what_names_nobody_and_holds_nothing_goes_after_ten_minutes() {
    let bare = |owner, quiet| Evidence {
        owner,
        changed: now() - quiet,
        payloads: 0,
        is_bare: true,
        ..silence()
    };
    let removable = |evidence: &Evidence| assess(evidence, &RULES, now()).removable;
    let (young, old) = (Duration::from_secs(540), Duration::from_secs(660));
    assert_eq!(
        removable(&bare(OwnerEvidence::Missing, young)),
        Removable::No
    );
    assert_eq!(
        removable(&bare(OwnerEvidence::Missing, old)),
        Removable::Yes
    );
    let torn = OwnerEvidence::Damaged("torn".into());
    assert_eq!(removable(&bare(torn.clone(), old)), Removable::Yes);
    // A directory that names its owner, or holds something, may belong to a process that cannot be seen.
    let named = bare(recorded(Liveness::Unknown, Liveness::Unknown), old);
    assert_eq!(removable(&named), Removable::No);
    let held = Evidence {
        is_bare: false,
        ..bare(torn, old)
    };
    assert_eq!(removable(&held), Removable::No);
}

#[test]
fn what_cannot_be_read_or_is_not_ours_is_left() {
    let watched = BeatEvidence::Same(Duration::from_secs(40));
    let removable = Evidence {
        beat: watched,
        ..silence()
    };
    assert_eq!(assess(&removable, &RULES, now()).removable, Removable::Yes);
    let closed = OwnerEvidence::Closed("it is of version 2".into());
    let kept = [
        (
            Evidence {
                owner: closed,
                ..removable.clone()
            },
            "version 2",
        ),
        (
            Evidence {
                foreign: Some("ada".into()),
                ..removable.clone()
            },
            "owned by ada",
        ),
        (
            Evidence {
                stranger: Some("thesis.tex, which fsgather has not written".into()),
                ..removable
            },
            "thesis.tex",
        ),
    ];
    for (evidence, says) in kept {
        let judged = assess(&evidence, &RULES, now());
        assert_eq!(judged.removable, Removable::No, "{judged:?}");
        assert!(judged.reason.contains(says), "{judged:?}");
    }
}

#[test]
fn reasons_are_plain() {
    let reason = |evidence: &Evidence| assess(evidence, &RULES, now()).reason;
    let mut evidence = Evidence {
        last_beat: Some(now() - Duration::from_secs(7)),
        changed: now() - Duration::from_secs(7),
        ..silence()
    };
    assert_eq!(
        reason(&evidence),
        "its owner, pid 42 on n7, cannot be seen from here; its last heartbeat was 7 s ago; kept: changed \
         less than 1 d ago (--older-than)"
    );
    assert_eq!(
        assess(&evidence, &RULES, now()).gist,
        "its owner cannot be seen from here; kept: changed less than 1 d ago (--older-than)"
    );
    evidence.condemned = Some("fsgather clean on n3 (pid 8)".into());
    assert!(
        reason(&evidence).ends_with("condemned by fsgather clean on n3 (pid 8)"),
        "{}",
        reason(&evidence)
    );
    evidence.owner = recorded(Liveness::Rebooted, Liveness::Rebooted);
    let text = reason(&evidence);
    assert!(
        text.starts_with(
            "the host of its owner, pid 42 on n7, has been booted since, but its last heartbeat was 7 s ago"
        ),
        "{text}"
    );
}

fn liveness() -> impl Strategy<Value = Liveness> {
    prop_oneof![
        Just(Liveness::Running),
        Just(Liveness::Gone),
        Just(Liveness::Replaced),
        Just(Liveness::Rebooted),
        Just(Liveness::Unknown)
    ]
}

fn any_evidence() -> impl Strategy<Value = Evidence> {
    let owner = prop_oneof![
        4 => (liveness(), liveness()).prop_map(|(owner, ranks)| recorded(owner, ranks)),
        1 => Just(OwnerEvidence::Missing),
        1 => Just(OwnerEvidence::Damaged("torn".into())),
        1 => Just(OwnerEvidence::Closed("closed".into())),
    ];
    let beat = prop_oneof![
        Just(BeatEvidence::Changed),
        (0..60_u64).prop_map(|seconds| BeatEvidence::Same(Duration::from_secs(seconds))),
    ];
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let beaten = prop::option::of(0..100_u64);
    // Time stamps of the future are ages of zero.
    let quiet = -1000..200_000_i64;
    (owner, beat, flags, quiet, beaten, 0..3_u64).prop_map(
        |(owner, beat, flags, quiet, beaten, payloads)| {
            let (finished, aborted, foreign, strange, is_bare) = flags;
            let seconds = Duration::from_secs(quiet.unsigned_abs());
            Evidence {
                foreign: foreign.then(|| "uid 1001".into()),
                owner,
                finished,
                aborted,
                beat,
                // A heartbeat is a change.
                last_beat: beaten
                    .filter(|_| quiet >= 0)
                    .map(|more| now() - seconds - Duration::from_secs(more)),
                changed: if quiet < 0 {
                    now() + seconds
                } else {
                    now() - seconds
                },
                payloads: if is_bare { 0 } else { payloads },
                is_bare,
                stranger: strange.then(|| "a stranger".into()),
                ..silence()
            }
        },
    )
}

fn owner_of(evidence: &Evidence) -> Liveness {
    match evidence.owner {
        OwnerEvidence::Recorded { owner, .. } => owner,
        _ => Liveness::Unknown,
    }
}

proptest! {
    #[test]
    fn nothing_that_shows_life_is_ever_removable(evidence in any_evidence()) {
        let judged = assess(&evidence, &RULES, now());
        if !evidence.finished {
            let shows_life = owner_of(&evidence) == Liveness::Running
                || evidence.beat == BeatEvidence::Changed;
            prop_assert_eq!(shows_life, judged.state == GatherState::Live);
        }
        if judged.state == GatherState::Live {
            prop_assert_eq!(judged.removable, Removable::No);
        }
    }

    /// Restates every path to a removal: the evidence for it, and the required silence.
    #[test]
    fn nothing_but_a_proof_and_silence_leads_to_removal(evidence in any_evidence()) {
        let judged = assess(&evidence, &RULES, now());
        if judged.removable != Removable::Yes {
            return Ok(());
        }
        let quiet = |at| now().duration_since(at).unwrap_or_default();
        let watched = match evidence.beat {
            BeatEvidence::Changed => Duration::ZERO,
            BeatEvidence::Same(watched) => watched,
        };
        let last_sign = evidence.last_beat.unwrap_or(evidence.changed);
        let is_still = watched >= RULES.watch || quiet(last_sign) > RULES.watch;
        let is_done = evidence.finished;
        let is_unowned = matches!(
            evidence.owner,
            OwnerEvidence::Missing | OwnerEvidence::Damaged(_)
        );
        let ways = [
            is_done,
            owner_of(&evidence) == Liveness::Gone && evidence.beat != BeatEvidence::Changed,
            is_still && matches!(owner_of(&evidence), Liveness::Replaced | Liveness::Rebooted),
            is_still && evidence.aborted,
            watched >= RULES.watch && quiet(evidence.changed) > RULES.older_than,
            evidence.is_bare && is_unowned && quiet(evidence.changed) > Duration::from_secs(600),
        ];
        prop_assert!(ways.contains(&true), "{judged:?}");
        prop_assert!(is_done || owner_of(&evidence) != Liveness::Running);
        prop_assert!(is_done || evidence.beat != BeatEvidence::Changed);
    }

    #[test]
    fn no_payload_is_taken_from_a_rank_that_runs(evidence in any_evidence()) {
        if evidence.payloads > 0 && ranks(&evidence) == Liveness::Running {
            prop_assert_eq!(assess(&evidence, &RULES, now()).removable, Removable::No);
        }
    }

    #[test]
    fn silence_convinces_only_by_age_and_watching_together(evidence in any_evidence()) {
        let judged = assess(&evidence, &RULES, now());
        let is_proved = judged.state != GatherState::Unknown || evidence.is_nameless();
        if judged.removable == Removable::Yes && !is_proved {
            prop_assert!(now().duration_since(evidence.changed).unwrap() > RULES.older_than);
            let BeatEvidence::Same(watched) = evidence.beat else { panic!("it beats") };
            prop_assert!(watched >= RULES.watch);
        }
    }

    #[test]
    fn strangers_and_other_users_are_never_removable(evidence in any_evidence()) {
        if evidence.foreign.is_some() || evidence.stranger.is_some() {
            prop_assert_eq!(assess(&evidence, &RULES, now()).removable, Removable::No);
        }
    }

    #[test]
    fn stale_means_proved(evidence in any_evidence()) {
        if assess(&evidence, &RULES, now()).state == GatherState::Stale {
            let owner = owner_of(&evidence);
            let is_gone = matches!(owner, Liveness::Gone | Liveness::Replaced | Liveness::Rebooted);
            prop_assert!(evidence.aborted || is_gone);
        }
    }

    #[test]
    fn waiting_longer_never_makes_less_removable(evidence in any_evidence(), more in 0..100_000_u64) {
        let later = now() + Duration::from_secs(more);
        let rank = |removable| match removable {
            Removable::No => 0,
            Removable::OnceWatched => 1,
            Removable::Yes => 2,
        };
        let before = rank(assess(&evidence, &RULES, now()).removable);
        prop_assert!(rank(assess(&evidence, &RULES, later).removable) >= before);
    }
}
