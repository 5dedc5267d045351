//! Tests that ranks with different secrets do not form a world.

use crate::common::{RENDEZVOUS, Stage, World, assert_nothing_left, everybody, place};

const SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e";
const OTHER_SECRET: &str = "8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0e8f4b2c6d1e0a9b7c5d3e1f2a4b6c8d0f";

#[test]
fn ranks_with_different_secrets_are_told_so_in_a_directory_too() {
    for control in ["tcp", "markers"] {
        for secrets in [
            [Some(SECRET), Some(OTHER_SECRET)],
            [None, Some(SECRET)],
            [Some(SECRET), None],
        ] {
            let place = place();
            let world = World::new(2, place.path())
                .with("FSGATHER_JOB", "secretive")
                .with("FSGATHER_CONTROL", control);
            let mut stage = Stage::new();
            for (rank, secret) in (0..).zip(secrets) {
                let world = match secret {
                    Some(secret) => world.clone().with("FSGATHER_SECRET", secret),
                    None => world.clone(),
                };
                stage.start(&mut world.rank(rank, "join all_gather_bytes:100 close"));
            }
            let (error, _) = stage.fail_alike(everybody(2), RENDEZVOUS);
            assert!(error.contains("FSGATHER_SECRET"), "{error}");
            assert!(error.contains("rank 1"), "{error}");
            assert_nothing_left(place.path());
        }
    }
}

#[test]
fn a_secret_that_all_ranks_have_is_mixed_in_and_disturbs_nobody() {
    for control in ["tcp", "markers"] {
        let place = place();
        let world = World::new(3, place.path())
            .with("FSGATHER_SECRET", SECRET)
            .with("FSGATHER_CONTROL", control);
        let mut stage = Stage::new();
        stage.start_all(&world, |_| "join all_gather_bytes:100000 close".into());
        stage.succeed(everybody(3));
        let ends = stage.end_all(everybody(3));
        assert!(ends.iter().all(|end| end.warnings().is_empty()), "{ends:?}");
        assert_nothing_left(place.path());
    }
}
