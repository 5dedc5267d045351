//! Tests of the findings of one rank during set-up.

use fsgather_core::{Peer, Site};
use uuid::Uuid;

use super::*;
use crate::{join::local_context::LocalContext, world_state::WorldState};

/// Returns a rank with this context.
fn rank(context: LocalContext) -> Arc<GroupState> {
    let me = Peer {
        rank: Rank::ZERO,
        host: "here".into(),
        pid: 7,
    };
    let (processes, request) = (vec![ProcessId::default()], plain());
    let world = WorldState::new(Uuid::nil(), Rank::ZERO, processes, 0, request, context);
    GroupState::of_world(fsgather_control::solo(me), world)
}

fn plain() -> PathRequest {
    PathRequest {
        transport: Transport::Auto,
        directory: None,
    }
}

fn call() -> Call {
    Call::new(Operation::SetUp, Site::named("a test"))
}

/// A process that sees these mounts.
fn seeing(mount_namespace: u64) -> ProcessId {
    ProcessId {
        boot_id: "a boot".into(),
        mount_namespace,
        ..ProcessId::default()
    }
}

#[test]
fn introduced_ranks_on_different_mounts_need_a_named_place() {
    let named = Some(PathBuf::from("/shared"));
    for (is_introduced, of_world, of_call, mounts, is_at_large) in [
        (true, None, None, [1, 2], true),
        (true, None, None, [1, 1], false),
        (true, named.clone(), None, [1, 2], false),
        (true, None, named, [1, 2], false),
        (false, None, None, [1, 2], false),
    ] {
        let inner = rank(LocalContext {
            is_introduced,
            named: of_world,
            ..LocalContext::nowhere()
        });
        let request = PathRequest {
            directory: of_call,
            ..plain()
        };
        let set_up = SetUp {
            inner: &inner,
            request: &request,
            call: &call(),
            processes: mounts.map(seeing).into(),
        };
        assert_eq!(set_up.is_at_large(), is_at_large, "{request:?} {mounts:?}");
    }
}

#[test]
fn who_waits_for_others_in_a_set_up_heeds_that_it_is_to_stop() {
    let inner = rank(LocalContext::nowhere());
    let set_up = SetUp {
        inner: &inner,
        request: &plain(),
        call: &call(),
        processes: inner.processes(),
    };
    set_up.heed().unwrap();
    inner.world.interrupt.raise("enough for today");
    let text = set_up.heed().unwrap_err().to_string();
    assert!(text.contains("enough for today"), "{text}");
}
