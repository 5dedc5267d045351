//! Ranks that share no directory, and ranks without a network. Both need namespaces, which only root can make.

use std::fs;

use crate::common::{
    RENDEZVOUS, STORAGE, Stage, World, assert_nothing_left, everybody,
    mounts::{Mounted, need_root},
    place, strangers,
};

/// Two ranks that see different file systems at one path, and meet over their network.
fn apart(transport: &str) -> (Stage, tempfile::TempDir, Mounted) {
    let place = place();
    let mounted = Mounted::over(place.path(), "mode=0700", "true");
    let world = World::new(2, place.path())
        .with("FSGATHER_TRANSPORT", transport)
        .with(
            "FSGATHER_RENDEZVOUS",
            &format!("tcp://127.0.0.1:{}", strangers::free_port()),
        )
        .with("FSGATHER_SECRET", &"5c".repeat(32));
    let steps = "join all_gather_bytes:1000000 close";
    let mut stage = Stage::new();
    stage.start(&mut world.rank(0, steps));
    stage.start(&mut mounted.rank(&world, 1, steps));
    (stage, place, mounted)
}

#[test]
fn ranks_that_share_no_directory_use_memory_with_one_warning() {
    let (mut stage, place, mounted) = apart("auto");
    stage.succeed(everybody(2));
    let ends = stage.end_all(everybody(2));
    let warnings: Vec<&str> = ends.iter().flat_map(crate::common::End::warnings).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("is not shared"), "{warnings:?}");
    assert_nothing_left(place.path());
    assert_nothing_left(&mounted.directory());
}

#[test]
fn ranks_that_share_no_directory_but_must_use_files_are_told() {
    let (mut stage, place, mounted) = apart("filesys");
    let (error, _) = stage.fail_alike(everybody(2), STORAGE);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    assert!(
        error.contains(host.trim()) && error.contains("is not shared"),
        "{error}"
    );
    assert!(error.contains("FSGATHER_TRANSPORT=memory"), "{error}");
    assert_nothing_left(place.path());
    assert_nothing_left(&mounted.directory());
}

/// Three ranks, of which those listed have no network at all, not even a loopback.
fn cut_off(control: &str, without: &[u32]) -> (Stage, tempfile::TempDir) {
    need_root();
    let alone = ["unshare".to_owned(), "--net".to_owned()];
    let place = place();
    let world = World::new(3, place.path()).with("FSGATHER_CONTROL", control);
    let steps = "join barrier all_gather_bytes:300000 close";
    let mut stage = Stage::new();
    for rank in 0..3 {
        stage.start(&mut if without.contains(&rank) {
            world.rank_behind(&alone, rank, steps)
        } else {
            world.rank(rank, steps)
        });
    }
    (stage, place)
}

fn goes_through_files(without: &[u32], warning: &str) {
    let (mut stage, place) = cut_off("auto", without);
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    let warnings: Vec<&str> = ends.iter().flat_map(crate::common::End::warnings).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(warning), "{warnings:?}");
    assert_nothing_left(place.path());
}

#[test]
fn a_rank_without_network_moves_all_to_files_warning_once() {
    goes_through_files(&[1], "cannot reach rank 0 over TCP");
}

#[test]
fn rank_0_without_a_network_goes_through_files_with_one_warning() {
    goes_through_files(&[0, 1, 2], "where rank 0 is, has no network address");
}

#[test]
fn with_tcp_only_a_missing_network_is_an_error_on_all() {
    for without in [&[1, 2][..], &[0, 1, 2]] {
        let (mut stage, place) = cut_off("tcp", without);
        let (error, _) = stage.fail_alike(everybody(3), RENDEZVOUS);
        assert!(error.contains("FSGATHER_CONTROL=auto"), "{error}");
        assert_nothing_left(place.path());
    }
}

#[test]
fn marker_files_need_no_network() {
    let (mut stage, place) = cut_off("markers", &[0, 1, 2]);
    stage.succeed(everybody(3));
    assert_nothing_left(place.path());
}
