//! The bytes of messages are those that `docs/design/wire-protocol.md` documents.

use std::time::Duration;

use bytes::Bytes;
use fsgather_control::{
    message::{Join, RefusalReason, ToCoordinator, ToMember, Welcome},
    wire::encode_frame,
};
use fsgather_core::{
    Activity, Call, ChannelId, Epoch, Error, Leaves, Operation, Phase, ProcessId, Rank, Round,
    Site, Step, WorldSize,
};
use serde::Serialize;
use uuid::Uuid;

fn step() -> Step {
    Step {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(2),
        round: Round::VERDICT,
    }
}

/// A frame without its length.
fn bytes_of(message: &impl Serialize) -> Vec<u8> {
    encode_frame(message, 0)
        .map(|mut frame| frame.split_off(4))
        .unwrap_or_default()
}

#[test]
fn every_message_to_rank_0_has_its_documented_number() {
    let channel = ChannelId::WORLD;
    let doing = Activity::outside(Phase::Computing);
    let messages = [
        ToCoordinator::Join(Join {
            rank: Rank::ZERO,
            world_size: WorldSize::ONE,
            nonce: 1,
            process: ProcessId::default(),
            timeout: Duration::from_secs(1),
            start: None,
            attempt: None,
            fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
        }),
        ToCoordinator::Watch {
            rank: Rank::ZERO,
            nonce: 1,
        },
        ToCoordinator::Rival {
            other: String::new(),
        },
        ToCoordinator::Contribute {
            step: step(),
            call: Call::new(Operation::Barrier, Site::default()),
            body: Bytes::new(),
            leaves: Leaves::Nothing,
            further_rounds: 0,
        },
        ToCoordinator::Fail {
            channel,
            epoch: None,
            cause: Error::config(""),
            activity: doing.clone(),
        },
        ToCoordinator::Status {
            channel,
            activity: doing.clone(),
            bytes: 0,
        },
        ToCoordinator::Done {
            channel,
            epoch: Epoch::FIRST,
        },
        ToCoordinator::AbortSeen { channel },
        ToCoordinator::SiblingExited { rank: Rank::ZERO },
        ToCoordinator::Close {
            site: Site::default(),
        },
        ToCoordinator::Leave { cause: None },
        ToCoordinator::Open {
            channel,
            members: Vec::new(),
        },
        ToCoordinator::Retire { channel },
        ToCoordinator::Stalled {
            channel,
            activity: doing.clone(),
            waits_for: Vec::new(),
            idle: Duration::ZERO,
            timeout: Duration::ZERO,
        },
        ToCoordinator::Here,
        ToCoordinator::Stay { cause: None },
        ToCoordinator::Ask,
        ToCoordinator::Seen {
            number: 1,
            who: Rank::ZERO,
            whereabouts: None,
        },
    ];
    let numbers: Vec<u8> = messages
        .iter()
        .map(|message| bytes_of(message)[0])
        .collect();
    assert_eq!(
        numbers,
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
    );
}

#[test]
fn every_message_to_members_has_its_documented_number() {
    let channel = ChannelId::WORLD;
    let messages = [
        ToMember::Forming {
            coordinator: String::new(),
        },
        ToMember::Refused {
            reason: RefusalReason::OtherSize(String::new()),
        },
        ToMember::Welcome(Welcome {
            nonces: vec![1],
            communicator: Uuid::nil(),
            processes: Vec::new(),
            timeout: Duration::ZERO,
        }),
        ToMember::Release {
            step: step(),
            bodies: None,
            acknowledge: false,
            further_rounds: 0,
            last: None,
        },
        ToMember::Abort {
            channel,
            cause: Error::config(""),
        },
        ToMember::Reclaim {
            channel,
            epoch: Epoch::FIRST,
        },
        ToMember::KeepWaiting { channel },
        ToMember::Bye { orderly: true },
        ToMember::Moved,
        ToMember::Ask,
        ToMember::Needed { by: Vec::new() },
        ToMember::Here,
        ToMember::Look {
            number: 1,
            neighbour: None,
        },
        ToMember::Notice {
            text: String::new(),
        },
        ToMember::Warning {
            text: String::new(),
        },
    ];
    let numbers: Vec<u8> = messages
        .iter()
        .map(|message| bytes_of(message)[0])
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
}

#[test]
fn the_documented_examples_are_exact() {
    let contribution = ToCoordinator::Contribute {
        step: step(),
        call: Call::new(Operation::Gather, Site::named("a.rs:1:1")).with_root(Rank::new(300)),
        body: Bytes::from_static(b"xy"),
        leaves: Leaves::ForReader,
        further_rounds: 0,
    };
    assert_eq!(
        encode_frame(&contribution, 0).unwrap(),
        b"\x1c\0\0\0\x03\x00\x02\x00\x04\x00\x01\xac\x02\x00\x00\x00\x08a.rs:1:1\x00\x00\x02xy\x01\x00"
    );
    let release = ToMember::Release {
        step: step(),
        bodies: Some(vec![Bytes::from_static(b"xy"), Bytes::new()]),
        acknowledge: false,
        further_rounds: 0,
        last: Some(Rank::new(1)),
    };
    assert_eq!(
        encode_frame(&release, 0).unwrap(),
        b"\x0e\0\0\0\x03\x00\x02\x00\x01\x02\x02xy\x00\x00\x00\x01\x01"
    );
    let communicator = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let welcome = ToMember::Welcome(Welcome {
        nonces: vec![1, 300],
        communicator,
        processes: Vec::new(),
        timeout: Duration::from_millis(1500),
    });
    let mut expected = vec![0x02, 0x02, 0x01, 0xac, 0x02, 0x10];
    expected.extend_from_slice(communicator.as_bytes());
    expected.extend_from_slice(&[0x00, 0x01, 0x80, 0xca, 0xb5, 0xee, 0x01]);
    assert_eq!(bytes_of(&welcome), expected);
}
