//! The machines of the control plane in a simulated world: whatever order events come in, the promises hold.
//!
//! `script` says what ranks do and what happens to them, `network` runs it in virtual time, `rank` is one
//! rank of it, `promises` checks every step. A failing test prints the smallest script that it has found.

mod meeting;
mod network;
mod promises;
mod rank;
mod script;

use network::World;
use proptest::prelude::*;
use script::{Script, scripts};

fn run(script: &Script) -> Result<World, TestCaseError> {
    World::new(script)
        .and_then(World::run)
        .map_err(|broken| TestCaseError::fail(broken.to_string()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100_000))]

    #[test]
    fn p1_at_most_one_verdict_and_never_two_different(script in scripts(script::TROUBLED)) {
        run(&script)?;
    }

    #[test]
    fn p5_peace(script in scripts(script::PEACEFUL)) {
        let world = run(&script)?;
        prop_assert_eq!(&world.ledger.abort, &None);
    }
}
