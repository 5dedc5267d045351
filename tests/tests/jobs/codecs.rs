//! Tests codecs in worlds of several processes.

use crate::common::{DESYNC, PEER_FAILED, Stage, World, assert_nothing_left, everybody, place};

const RANKS: u32 = 3;

fn all(script: impl Fn(u32) -> String) -> (Stage, tempfile::TempDir) {
    let place = place();
    let mut stage = Stage::new();
    stage.start_all(&World::new(RANKS, place.path()), |rank| {
        format!("join {} close", script(rank))
    });
    (stage, place)
}

#[test]
fn values_travel_in_whichever_codec_all_ranks_use() {
    for codec in ["postcard", "json", "backwards"] {
        let (mut stage, place) = all(|_| format!("speak:{codec}:100 speak:{codec}:200000*"));
        stage.succeed(everybody(RANKS));
        assert_nothing_left(place.path());
    }
}

#[test]
fn described_types_travel_in_a_codec_of_the_program() {
    let (mut stage, place) =
        all(|_| "speak:json:json speak:json:gather_json speak:json:untagged".into());
    stage.succeed(everybody(RANKS));
    assert_nothing_left(place.path());
}

#[test]
fn ranks_with_different_codecs_are_told_both() {
    let (mut stage, _place) = all(|rank| match rank {
        2 => "speak:backwards:100".into(),
        _ => "speak:json:100".into(),
    });
    let (error, _) = stage.fail_alike(everybody(RANKS), DESYNC);
    for named in ["different codecs", "in json", "in backwards", "rank 2"] {
        assert!(error.contains(named), "{named}: {error}");
    }
}

#[test]
fn an_unsupported_type_is_named_to_all_before_data_moves() {
    for what in ["json", "gather_json", "untagged"] {
        let (mut stage, place) = all(|_| format!("speak:postcard:{what}"));
        let (error, _) = stage.fail_alike(everybody(RANKS), PEER_FAILED);
        let name = if what == "untagged" {
            "Untagged"
        } else {
            "serde_json"
        };
        assert!(error.contains(name), "{error}");
        assert!(error.contains("with_codec"), "{error}");
        assert_nothing_left(place.path());
    }
}
