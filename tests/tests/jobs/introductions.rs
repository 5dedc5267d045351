//! Ranks that meet through a channel of the program's own.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
};

use crate::common::{
    CONFIG, RENDEZVOUS, Stage, TIMED_OUT, World, everybody, in_step, others, place,
    strangers::{free_port, store},
};

const RANKS: u32 = 3;

/// Ranks that search for 2 seconds.
fn impatient(directory: &Path) -> World {
    World::new(RANKS, directory).with("FSGATHER_JOIN_TIMEOUT", "2s")
}

/// A file that ranks can use to meet, beside the directory for payloads.
fn note(place: &Path) -> String {
    format!("introduce:note:{}", in_step(&place.join("note")))
}

#[test]
fn a_store_introduces_ranks_that_share_no_directory() {
    let port = store();
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        let own = place();
        let world = World::new(RANKS, own.path()).with("FSGATHER_TRANSPORT", "memory");
        let script = format!("introduce:store:{port} all_gather_bytes:200000 close");
        stage.start(&mut world.rank(rank, &script));
    }
    stage.succeed(everybody(RANKS));
}

#[test]
fn a_record_that_does_not_come_is_waited_for_until_the_deadline() {
    let place = place();
    let mut stage = Stage::new();
    for rank in [1, 2] {
        stage.start(&mut impatient(place.path()).rank(rank, &note(place.path())));
    }
    for end in stage.end_all(0..2) {
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
        assert!(end.error().contains("rank 0"), "{}", end.error());
        assert!(end.error().contains("own rendezvous"), "{}", end.error());
    }
}

#[test]
fn an_undeliverable_record_is_an_error_that_says_why() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&impatient(place.path()), |_| "introduce:broken:x".into());
    let root = stage.end(0);
    assert_eq!(root.code, RENDEZVOUS, "{}", stage.transcript());
    assert!(
        root.error().contains("the store is on fire"),
        "{}",
        root.error()
    );
    for end in stage.end_all(others(RANKS, 0)) {
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
    }
}

#[test]
fn garbage_instead_of_a_record_is_told_at_once() {
    let place = place();
    let world = World::new(RANKS, place.path());
    let mut stage = Stage::new();
    for rank in [1, 2] {
        stage.start(&mut world.rank(rank, "introduce:garbage:moved-permanently"));
    }
    for end in stage.end_all(0..2) {
        assert_eq!(end.code, RENDEZVOUS, "{}", stage.transcript());
        assert!(end.error().contains("17 bytes"), "{}", end.error());
        assert!(
            end.error().contains("no record of rank 0"),
            "{}",
            end.error()
        );
    }
}

#[test]
fn rank_0_that_fails_before_it_can_publish_tells_the_others_why() {
    let place = place();
    // Another process has taken the only port that rank 0 may use.
    let port = free_port();
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a free port");
    let world = World::new(RANKS, place.path()).with("FSGATHER_PORT", &port.to_string());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| note(place.path()));
    let (error, _) = stage.fail_alike(everybody(RANKS), RENDEZVOUS);
    assert!(error.contains(&format!("port {port}")), "{error}");
    drop(taken);
}

#[test]
fn marker_files_without_a_directory_are_refused_on_all_ranks() {
    let place = place();
    let world = World::new(RANKS, place.path()).with("FSGATHER_CONTROL", "markers");
    let mut stage = Stage::new();
    for rank in 0..RANKS {
        let mut rank = world.rank(rank, &note(place.path()));
        stage.start(rank.env_remove("FSGATHER_DIR"));
    }
    let (error, _) = stage.fail_alike(everybody(RANKS), CONFIG);
    assert!(error.contains("FSGATHER_DIR"), "{error}");
}

#[test]
fn a_record_of_an_earlier_run_leads_nowhere_and_says_so() {
    let place = place();
    let mut stage = Stage::new();
    let world = World::new(2, place.path());
    for rank in 0..2 {
        let script = format!("{} close", note(place.path()));
        stage.start(&mut world.rank(rank, &script));
    }
    stage.succeed(everybody(2));
    // The note is still there.
    let late = world.with("FSGATHER_JOIN_TIMEOUT", "2s");
    let late = stage.start(&mut late.rank(1, &note(place.path())));
    let end = stage.end(late);
    assert_eq!(end.code, RENDEZVOUS, "{}", stage.transcript());
    assert!(end.error().contains("own rendezvous"), "{}", end.error());
    assert!(end.error().contains("tried"), "{}", end.error());
}
