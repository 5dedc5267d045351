//! Ranks that meet at an address, which needs no shared directory; and foreign connections to it.

use std::{net::TcpListener, path::Path};

use crate::common::{
    CONFIG, Stage, TIMED_OUT, World, assert_nothing_left, everybody, place, strangers,
};

/// Two ranks that meet at a port of this host, and a secret.
fn by_address(port: u16) -> World {
    World::new(2, Path::new("/nonexistent"))
        .with("FSGATHER_RENDEZVOUS", &format!("tcp://127.0.0.1:{port}"))
        .with("FSGATHER_TRANSPORT", "memory")
}

const SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e";

#[test]
fn ranks_meet_at_an_address_with_a_secret() {
    let world = by_address(strangers::free_port()).with("FSGATHER_SECRET", SECRET);
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join all_gather_bytes:1000000 close".into());
    stage.succeed(everybody(2));
    assert_eq!(stage.end(0).warnings(), [""; 0]);
}

#[test]
fn an_address_without_a_secret_is_warned_of_once() {
    let world = by_address(strangers::free_port());
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join barrier close".into());
    stage.succeed(everybody(2));
    let warnings = stage.end(0).warnings().join("\n");
    assert!(warnings.contains("no FSGATHER_SECRET"), "{warnings}");
    assert_eq!(stage.end(1).warnings(), [""; 0]);
}

#[test]
fn a_wrong_secret_does_not_get_in() {
    let port = strangers::free_port();
    let world = by_address(port).with("FSGATHER_JOIN_TIMEOUT", "1s");
    let mut stage = Stage::new();
    let own = world.clone().with("FSGATHER_SECRET", SECRET);
    stage.start(&mut own.rank(0, "join close"));
    let wrong = SECRET.replace('8', "9");
    let own = world.with("FSGATHER_SECRET", &wrong);
    stage.start(&mut own.rank(1, "join close"));
    let ends = stage.end_all(everybody(2));
    assert_eq!(ends[0].code, TIMED_OUT, "{}", stage.transcript());
    assert!(
        ends[0].error().contains("rank 1 (never joined)"),
        "{ends:?}"
    );
    assert_ne!(ends[1].code, 0, "{}", stage.transcript());
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let world = by_address(port).with("FSGATHER_SECRET", SECRET);
    let mut stage = Stage::new();
    stage.start(&mut world.rank(0, "join close"));
    let end = stage.end(0);
    assert_ne!(end.code, 0);
    assert!(end.error().contains(&port.to_string()), "{end:?}");
    assert!(end.error().contains("in use"), "{end:?}");
}

#[test]
fn strangers_at_the_port_do_not_disturb_a_running_job() {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(4, place.path()), |_| {
        "join barriers all_gather_bytes:100000 close".into()
    });
    stage.wait_at([0], "barriers");
    let mut silent = Vec::new();
    for port in strangers::ports_of(stage.pid(0)) {
        strangers::say_nonsense(port);
        silent.extend(strangers::stay_silent(port, 50));
        strangers::come_and_go(port, 1000);
    }
    assert!(everybody(4).all(|rank| stage.runs(rank)));
    // The calls continue despite the silent connections.
    stage.go(0);
    stage.succeed(everybody(4));
    drop(silent);
    assert_nothing_left(place.path());
}

#[test]
fn strangers_at_the_port_do_not_keep_a_world_from_forming() {
    let place = place();
    let world = World::new(3, place.path());
    let mut stage = Stage::new();
    for rank in [0, 1] {
        stage.start(&mut world.rank(rank, "join barrier close"));
    }
    stage.wait_until_taken_in(1);
    let ports = strangers::ports_of(stage.pid(0));
    let silent: Vec<_> = ports
        .iter()
        .map(|port| strangers::stay_silent(*port, 100))
        .collect();
    stage.start(&mut world.rank(2, "join barrier close"));
    stage.succeed(everybody(3));
    drop(silent);
}

#[test]
fn markers_without_a_meeting_directory_fail_on_all_ranks() {
    let place = place();
    let address = format!("tcp://127.0.0.1:{}", strangers::free_port());
    let world = World::new(2, place.path())
        .with("FSGATHER_CONTROL", "markers")
        .with("FSGATHER_RENDEZVOUS", &address);
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join close".into());
    let (error, _) = stage.fail_alike(everybody(2), CONFIG);
    assert!(
        error.contains(&address) && error.contains("FSGATHER_DIR"),
        "{error}"
    );
}
