//! The bytes of messages are those that `docs/design/wire-protocol.md` documents.

use std::time::Duration;

use bytes::Bytes;
use fsgather_control::{
    message::{
        CallReply, CallRequest, EndReply, EndRequest, GroupRequest, Join, JoinReply, JoinRequest,
        Probe, RefusalReason, StallReport, ToCoordinator, ToMember, Welcome,
    },
    wire::encode_frame,
};
use fsgather_core::{
    Activity, Call, ChannelId, Contribution, Epoch, Error, Leaves, Operation, Phase, ProcessId,
    Rank, Round, Site, Step, Table, Verdict, WorldSize,
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

/// The numbers of a message's family and of the message in it.
fn numbers_of<M: Serialize>(messages: &[M]) -> Vec<[u8; 2]> {
    let numbers = messages.iter().map(|message| bytes_of(message));
    numbers.map(|bytes| [bytes[0], bytes[1]]).collect()
}

/// Returns the numbers of families with these numbers of messages.
fn documented(families: &[u8]) -> Vec<[u8; 2]> {
    let families = (0..).zip(families);
    families
        .flat_map(|(family, messages)| (0..*messages).map(move |number| [family, number]))
        .collect()
}

#[test]
fn every_message_to_rank_0_has_its_documented_number() {
    let channel = ChannelId::WORLD;
    let activity = Activity::outside(Phase::Computing);
    let messages: [ToCoordinator; 19] = [
        JoinRequest::Join(Join {
            rank: Rank::ZERO,
            world_size: WorldSize::ONE,
            nonce: 1,
            process: ProcessId::default(),
            timeout: Duration::from_secs(1),
            start: None,
            attempt: None,
            fingerprint: fsgather_control::job_credentials::JobFingerprint::default(),
        })
        .into(),
        JoinRequest::Watch {
            rank: Rank::ZERO,
            nonce: 1,
        }
        .into(),
        JoinRequest::Rival {
            other: String::new(),
        }
        .into(),
        CallRequest::Contribute {
            step: step(),
            call: Call::new(Operation::Barrier, Site::default()),
            contribution: Contribution::default(),
        }
        .into(),
        CallRequest::Status {
            channel,
            activity: activity.clone(),
            bytes: 0,
        }
        .into(),
        CallRequest::Stalled {
            channel,
            activity: activity.clone(),
            wait: StallReport {
                waits_for: Vec::new(),
                idle: Duration::ZERO,
                timeout: Duration::ZERO,
            },
        }
        .into(),
        CallRequest::Done {
            channel,
            epoch: Epoch::FIRST,
        }
        .into(),
        CallRequest::Fail {
            channel,
            cause: Error::config(""),
            activity,
        }
        .into(),
        CallRequest::AbortSeen { channel }.into(),
        GroupRequest::Open {
            channel,
            members: Vec::new(),
        }
        .into(),
        GroupRequest::Retire { channel }.into(),
        Probe::Ask.into(),
        Probe::Here.into(),
        Probe::Look {
            number: 1,
            neighbour: None,
        }
        .into(),
        Probe::Seen {
            number: 1,
            who: Rank::ZERO,
            whereabouts: None,
        }
        .into(),
        EndRequest::Close {
            site: Site::default(),
        }
        .into(),
        EndRequest::Stay { cause: None }.into(),
        EndRequest::Leave { cause: None }.into(),
        EndRequest::SiblingExited { rank: Rank::ZERO }.into(),
    ];
    assert_eq!(numbers_of(&messages), documented(&[3, 6, 2, 4, 4]));
}

#[test]
fn every_message_to_members_has_its_documented_number() {
    let channel = ChannelId::WORLD;
    let messages: [ToMember; 14] = [
        JoinReply::Forming {
            coordinator: String::new(),
        }
        .into(),
        JoinReply::Refused {
            reason: RefusalReason::OtherSize(String::new()),
        }
        .into(),
        JoinReply::Welcome(Welcome {
            nonces: vec![1],
            communicator: Uuid::nil(),
            processes: Vec::new(),
            timeout: Duration::ZERO,
        })
        .into(),
        JoinReply::Moved.into(),
        CallReply::Release {
            step: step(),
            verdict: Verdict {
                table: None,
                further_rounds: 0,
                last: None,
            },
        }
        .into(),
        CallReply::Abort {
            channel,
            cause: Error::config(""),
        }
        .into(),
        CallReply::Reclaim {
            channel,
            epoch: Epoch::FIRST,
        }
        .into(),
        CallReply::KeepWaiting { channel }.into(),
        CallReply::Notice {
            text: String::new(),
        }
        .into(),
        CallReply::Warning {
            text: String::new(),
        }
        .into(),
        Probe::Ask.into(),
        Probe::Here.into(),
        EndReply::Needed { by: Vec::new() }.into(),
        EndReply::Bye { orderly: true }.into(),
    ];
    assert_eq!(numbers_of(&messages), documented(&[4, 6, 2, 2]));
}

#[test]
fn the_documented_examples_are_exact() {
    let contribution = ToCoordinator::Call(CallRequest::Contribute {
        step: step(),
        call: Call::new(Operation::Gather, Site::named("a.rs:1:1")).with_root(Rank::new(300)),
        contribution: Contribution {
            body: Bytes::from_static(b"xy"),
            leaves: Leaves::ForReader,
            further_rounds: 0,
        },
    });
    assert_eq!(
        encode_frame(&contribution, 0).unwrap(),
        b"\x1d\0\0\0\x01\x00\x00\x02\x00\x04\x00\x01\xac\x02\x00\x00\x00\x08a.rs:1:1\x00\x00\x02xy\x01\x00"
    );
    let release = ToMember::Call(CallReply::Release {
        step: step(),
        verdict: Verdict {
            table: Some(Table {
                bodies: vec![Bytes::from_static(b"xy"), Bytes::new()],
                acknowledge: false,
            }),
            further_rounds: 0,
            last: Some(Rank::new(1)),
        },
    });
    assert_eq!(
        encode_frame(&release, 0).unwrap(),
        b"\x0f\0\0\0\x01\x00\x00\x02\x00\x01\x02\x02xy\x00\x00\x00\x01\x01"
    );
    let communicator = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let welcome = ToMember::Join(JoinReply::Welcome(Welcome {
        nonces: vec![1, 300],
        communicator,
        processes: Vec::new(),
        timeout: Duration::from_millis(1500),
    }));
    let mut expected = vec![0x00, 0x02, 0x02, 0x01, 0xac, 0x02, 0x10];
    expected.extend_from_slice(communicator.as_bytes());
    expected.extend_from_slice(&[0x00, 0x01, 0x80, 0xca, 0xb5, 0xee, 0x01]);
    assert_eq!(bytes_of(&welcome), expected);
}
