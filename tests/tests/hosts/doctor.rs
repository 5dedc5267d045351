//! `fsgather doctor` finds ranks that cannot reach rank 0.

use crate::common::{
    RENDEZVOUS, Stage, World, assert_nothing_left,
    doctor::{USABLE, document, findings, ranks, stage},
    mounts::need_root,
    place,
};

/// Starts two ranks, of which the second has no network at all.
fn cut_off(control: &str) -> (Stage, tempfile::TempDir) {
    need_root();
    let alone = ["unshare".to_owned(), "--net".to_owned()];
    let place = place();
    let world = World::new(2, place.path()).with("FSGATHER_CONTROL", control);
    let mut stage = stage();
    stage.start(&mut world.tool(0, &["doctor", "--json"]));
    stage.start(&mut world.tool_behind(&alone, 1, &["doctor", "--json"]));
    (stage, place)
}

#[test]
fn with_tcp_only_an_unreachable_rank_0_fails_the_meeting() {
    let (mut stage, place) = cut_off("tcp");
    for end in ranks(&mut stage, RENDEZVOUS) {
        let document = document(&end);
        assert_eq!(
            (&document["met"], &document["conclusion"]),
            (&false.into(), &"no-meeting".into())
        );
        let problems = findings(&document, "problem");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("rank 1 on ") && problems[0].contains("over TCP"),
            "{problems:?}"
        );
    }
    assert_nothing_left(place.path());
}

#[test]
fn an_unreachable_rank_0_means_marker_files_and_a_warning() {
    let (mut stage, place) = cut_off("auto");
    let ends = ranks(&mut stage, USABLE);
    let document = document(&ends[0]);
    assert_eq!(document["met"], true);
    let said = ends[0].stderr.join("\n");
    assert!(
        said.contains("messages of this job go through files instead"),
        "{said}"
    );
    assert_nothing_left(place.path());
}
