//! Tests of the texts of errors, of the ranks that they blame, and of cutting them.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use super::*;
use crate::{
    CallName, Epoch, Operation, Phase, Site, error_form::SentError, sys::limits::open_files,
};

fn peer() -> Peer {
    Peer {
        rank: Rank::new(3),
        host: "n7".into(),
        pid: 4242,
    }
}

fn call() -> CallName {
    CallName {
        operation: Operation::AllGather,
        number: 2,
        epoch: Epoch::new(3),
        tag: None,
        site: Site::named("eval.py:42"),
    }
}

#[test]
fn a_lost_rank_is_named_with_host_pid_and_phase() {
    let error = Error::peer_failed(
        peer(),
        Activity::within(Phase::Publishing, call()),
        PeerFailure::Lost {
            how: "its connection closed".into(),
        },
    );
    assert_eq!(
        error.to_string(),
        "rank 3 on n7 (pid 4242) was lost (its connection closed) while publishing its payload \
         in all_gather #2 at eval.py:42"
    );
}

#[test]
fn storage_errors_carry_who_and_when_once() {
    let doing = Activity::outside(Phase::Closing);
    let full = io::Error::from_raw_os_error(28);
    let error = Error::storage("write", "/x/y", &full).raised_by(&peer(), doing.clone());
    assert!(error.is_transient());
    let text = error.to_string();
    assert!(
        text.starts_with("cannot write /x/y: No space left"),
        "{text}"
    );
    assert!(
        text.ends_with("(rank 3 on n7 (pid 4242), closing)"),
        "{text}"
    );
    let other = Peer {
        rank: Rank::ZERO,
        ..peer()
    };
    assert_eq!(error.clone().raised_by(&other, doing), error);
}

#[test]
fn errors_travel_even_with_paths_that_are_not_text() {
    let path = OsStr::from_bytes(b"/x/\xff");
    let error = Error::storage("open", path, StorageCause::described("gone"));
    let text = error.to_string();
    let bytes = postcard::to_stdvec(&SentError(error)).unwrap();
    let SentError(back) = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(back.to_string(), text);
}

#[test]
fn lack_of_descriptors_is_reported_with_the_limit() {
    let lack = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
    let text = Error::storage("list", "/x", &lack).to_string();
    let allowed = open_files().soft;
    let allowed = allowed.map_or_else(String::new, |allowed| format!(" (now {allowed})"));
    assert!(
        text.ends_with(&format!(
            "; raise the limit of open files with `ulimit -n`{allowed} before the job starts"
        )),
        "{text}"
    );
}

#[test]
fn a_rank_that_speaks_for_itself_blames_nobody() {
    let (own, other) = (Rank::new(3), Rank::new(5));
    let failed = |failure| Error::PeerFailed {
        peer: peer(),
        activity: Activity::outside(Phase::Publishing),
        failure,
    };
    let link = failed(PeerFailure::LinkLost {
        other: Peer {
            rank: other,
            ..peer()
        },
        how: "its connection closed".into(),
    });
    assert_eq!(link.blamed_by(own), [other]);
    assert_eq!(link.poisoned().blamed_by(own), [other]);
    assert_eq!(
        failed(PeerFailure::DEPARTED).blamed_by(own),
        Vec::<Rank>::new()
    );
    assert_eq!(failed(PeerFailure::DEPARTED).blamed_by(other), [own]);
    assert_eq!(Error::config("wrong").blamed_by(own), Vec::<Rank>::new());
    let doing = Activity::within(Phase::Reading, call());
    assert_eq!(
        link.raised_by(&peer(), doing).to_string(),
        "rank 3 on n7 (pid 4242) lost its link to rank 3 on n7 (pid 4242) (its connection closed) while reading \
         payloads in all_gather #2 at eval.py:42"
            .replace("to rank 3", "to rank 5")
    );
}

#[test]
fn texts_of_any_length_fit_into_a_message() {
    let long = || "ü".repeat(9 << 20);
    let failed = |failure| Error::PeerFailed {
        peer: peer(),
        activity: Activity::outside(Phase::Publishing),
        failure,
    };
    let errors = [
        Error::config(long()),
        Error::rendezvous(long()),
        Error::Timeout {
            during: long(),
            timeout: Duration::MAX,
            missing: Vec::new(),
            stacks: RollCall::default(),
            hint: long(),
        },
        failed(PeerFailure::Raised { message: long() }),
        failed(PeerFailure::Lost { how: long() }),
        Error::Desync {
            number: 1,
            difference: long(),
            one: peer().into(),
            one_call: long(),
            other: peer().into(),
            other_call: long(),
            stacks: Box::default(),
        },
        Error::storage(long(), long(), StorageCause::described(long())),
        Error::NotShared {
            directory: long().into(),
            hosts: vec![long(); 2],
            reason: long(),
        },
        Error::Corrupt {
            path: long().into(),
            reason: long(),
            writer: None,
            reader: None,
        },
        Error::Incompatible {
            what: long(),
            ours: long(),
            theirs: long(),
        },
        Error::config(long()).poisoned(),
    ];
    for error in errors {
        let cut = error.cut_to_size();
        let bytes = postcard::to_stdvec(&SentError(cut.clone())).unwrap();
        assert!(bytes.len() <= 4 * LONGEST_TEXT, "{} bytes", bytes.len());
        assert!(cut.to_string().contains("(cut; 18.0 MiB in all)"));
        assert_eq!(cut.clone().cut_to_size(), cut);
    }
    let short = Error::config("short");
    assert_eq!(short.clone().cut_to_size(), short);
}

#[test]
fn poison_does_not_pile_up() {
    let first = Error::config("first");
    let twice = first.poisoned().poisoned();
    assert_eq!(twice, first.poisoned());
    assert_eq!(twice.root_cause(), &first);
}

#[test]
fn timeouts_list_everybody() {
    let error = Error::Timeout {
        during: "barrier #1".into(),
        timeout: Duration::from_secs(3),
        missing: vec![Missing {
            rank: Rank::new(1),
            process: None,
            last_seen: None,
        }],
        stacks: RollCall::default(),
        hint: "set FSGATHER_TIMEOUT to wait longer".into(),
    };
    assert_eq!(
        error.to_string(),
        "timed out after 3 s without progress in barrier #1: waiting for rank 1 (never joined); \
         set FSGATHER_TIMEOUT to wait longer"
    );
}

#[test]
fn a_programs_own_mistakes_are_there_the_next_time_as_well() {
    let lost = || "its connection closed".to_owned();
    for (failure, is_transient) in [
        (PeerFailure::Lost { how: lost() }, true),
        (PeerFailure::OutcomeUnknown { how: lost() }, true),
        (
            PeerFailure::LinkLost {
                other: peer(),
                how: lost(),
            },
            true,
        ),
        (
            PeerFailure::Raised {
                message: "KeyError: 3".into(),
            },
            false,
        ),
        (PeerFailure::DEPARTED, false),
    ] {
        let error = Error::peer_failed(peer(), Activity::outside(Phase::Computing), failure);
        assert_eq!(error.is_transient(), is_transient, "{error}");
        assert_eq!(error.poisoned().is_transient(), is_transient);
    }
}

#[test]
fn who_is_blamed_is_who_was_not_reached_or_did_not_come() {
    let own = Rank::new(3);
    let missing = |rank| Missing {
        rank: Rank::new(rank),
        process: None,
        last_seen: None,
    };
    let timeout = Error::Timeout {
        during: "barrier #1".into(),
        timeout: Duration::from_secs(3),
        missing: vec![missing(1), missing(3), missing(4)],
        stacks: RollCall::default(),
        hint: String::new(),
    };
    assert_eq!(timeout.blamed_by(own), [Rank::new(1), Rank::new(4)]);
    let unreached = Error::Rendezvous {
        message: "rank 0 does not answer".into(),
        unreached: Some(Rank::ZERO),
    };
    assert_eq!(unreached.blamed_by(own), [Rank::ZERO]);
    for error in [timeout, unreached] {
        assert!(
            error.is_transient() && error.poisoned().is_transient(),
            "{error}"
        );
    }
    for error in [
        Error::config("wrong"),
        Error::storage("open", "/x", StorageCause::described("denied")),
    ] {
        assert!(!error.is_transient(), "{error}");
    }
}

#[test]
fn only_lost_late_and_differing_ranks_need_a_post_mortem() {
    let failed = |failure| Error::peer_failed(peer(), Activity::outside(Phase::Waiting), failure);
    let how = || "its process has ended".to_owned();
    let message = || "no room".to_owned();
    let timeout = Error::Timeout {
        during: "barrier #1".into(),
        timeout: Duration::from_secs(3),
        missing: Vec::new(),
        stacks: RollCall::default(),
        hint: String::new(),
    };
    let too_large = Error::TooLarge {
        peer: peer(),
        size: 2,
        bound: 1,
    };
    for (error, needs_it) in [
        (timeout, true),
        (failed(PeerFailure::Lost { how: how() }), true),
        (failed(PeerFailure::OutcomeUnknown { how: how() }), true),
        (failed(PeerFailure::Raised { message: message() }), false),
        (failed(PeerFailure::DEPARTED), false),
        (too_large, false),
        (Error::config("wrong"), false),
        (
            Error::storage("open", "/x", StorageCause::described("denied")),
            false,
        ),
    ] {
        assert_eq!(error.needs_post_mortem(), needs_it, "{error}");
        assert_eq!(error.poisoned().needs_post_mortem(), needs_it, "{error}");
    }
}

#[test]
fn who_has_read_damage_is_told_once() {
    let other = Peer {
        rank: Rank::ZERO,
        ..peer()
    };
    let damage = Error::Corrupt {
        path: "/x/y".into(),
        reason: "its checksum differs".into(),
        writer: Some(other.clone()),
        reader: None,
    };
    let doing = Activity::outside(Phase::Reading);
    let told = damage.raised_by(&peer(), doing.clone());
    let text = told.to_string();
    assert!(
        text.ends_with("; written by rank 0 on n7 (pid 4242); read by rank 3 on n7 (pid 4242)"),
        "{text}"
    );
    assert_eq!(told.clone().raised_by(&other, doing), told);
}

#[test]
fn a_rank_that_left_or_raised_is_told_with_its_last_call() {
    let left = |activity| Error::peer_failed(peer(), activity, PeerFailure::DEPARTED).to_string();
    let early = left(Activity::outside(Phase::Computing));
    assert!(
        !early.contains("computing") && !early.contains("after"),
        "{early}"
    );
    let later = left(Activity::within(Phase::Computing, call()));
    assert!(
        later.ends_with("had already left; its last call was all_gather #2 at eval.py:42"),
        "{later}"
    );
    let raised = Error::raised(
        peer(),
        Activity::within(Phase::Publishing, call()),
        "KeyError: 3",
    );
    let text = raised.to_string();
    assert!(
        text.contains("rank 3 on n7 (pid 4242)") && text.contains("KeyError: 3"),
        "{text}"
    );
    assert!(
        text.contains("while publishing its payload in all_gather #2"),
        "{text}"
    );
    let storage = Error::Storage {
        path: "/x".into(),
        operation: "open".into(),
        cause: StorageCause::described("gone"),
        peer: Some(Box::new(peer())),
        activity: None,
    };
    assert!(
        storage.to_string().ends_with("(rank 3 on n7 (pid 4242))"),
        "{storage}"
    );
}

#[test]
fn file_and_host_names_cannot_break_an_error_line() {
    let forged = "x\nWARNING: rank 0 is to blame";
    let plain = "x?WARNING: rank 0 is to blame";
    let error = Error::storage("read", forged, &io::Error::from_raw_os_error(5));
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot read {plain}: ")),
        "{error}"
    );
    let shared = Error::NotShared {
        directory: forged.into(),
        hosts: vec![forged.into()],
        reason: "r".into(),
    };
    let corrupt = Error::Corrupt {
        path: forged.into(),
        reason: "r".into(),
        writer: None,
        reader: None,
    };
    for error in [shared, corrupt] {
        let text = error.to_string();
        assert!(text.starts_with(plain) && !text.contains('\n'), "{text}");
    }
    let missing = Missing {
        rank: Rank::new(1),
        process: Some((forged.into(), 7)),
        last_seen: None,
    };
    assert_eq!(missing.to_string(), format!("rank 1 on {plain} (pid 7)"));
}

#[test]
fn an_error_names_the_ranks_that_it_is_about() {
    let lost = PeerFailure::Lost { how: "gone".into() };
    let lost = Error::peer_failed(peer(), Activity::outside(Phase::Computing), lost);
    for error in [&lost, &lost.poisoned()] {
        assert_eq!(error.peer(), Some(&peer()));
        assert_eq!(error.ranks(), [peer().rank]);
    }
    let missing = [1, 2].map(|rank| Missing {
        rank: Rank::new(rank),
        process: None,
        last_seen: None,
    });
    let missing = missing.to_vec();
    let late = Error::timed_out(
        "close",
        Duration::from_secs(1),
        missing,
        RollCall::default(),
        "wait",
    );
    assert_eq!(
        (late.peer(), late.ranks()),
        (None, [1, 2].map(Rank::new).to_vec())
    );
    assert!(Error::config("wrong").ranks().is_empty());
}
