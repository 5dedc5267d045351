//! The rank and call of a payload, and their verification: [`PayloadOrigin`].

use std::path::PathBuf;

use bytes::Bytes;
use fsgather_core::{
    ChannelId, Epoch, Error, Rank, Ticket,
    hash::{Hash64, Hash128},
};
use fsgather_store::PayloadName;
use uuid::Uuid;

use crate::{group_state::GroupState, world_state::WorldState};

/// The world, rank and call of a payload.
///
/// Seals and digests cover it, so that bytes of another rank, call or group are never taken for these. The two sides
/// get it from different sources: the sender from the number by which it has joined the world, the reader from the list
/// of members of its group. So numbers that are wrong in the same way on all ranks are noticed as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadOrigin {
    communicator: Uuid,
    channel: ChannelId,
    epoch: Epoch,
    rank: Rank,
}

impl PayloadOrigin {
    /// Returns the origin of this rank's payload.
    pub(crate) fn own(world: &WorldState, ticket: &Ticket) -> Self {
        Self {
            communicator: world.communicator,
            channel: ticket.channel,
            epoch: ticket.epoch,
            rank: world.rank,
        }
    }

    /// Returns the expected origin of the payload of a member of a group, by its place in it.
    pub(crate) fn of(inner: &GroupState, ticket: &Ticket, place: Rank) -> Self {
        Self {
            rank: inner.in_world(place),
            ..Self::own(&inner.world, ticket)
        }
    }

    /// Returns the prefix of a payload of this length in seal and digest.
    fn head(&self, len: u64) -> [u8; 44] {
        let mut head = [0; 44];
        head[..16].copy_from_slice(self.communicator.as_bytes());
        head[16..24].copy_from_slice(&self.channel.get().to_le_bytes());
        head[24..32].copy_from_slice(&self.epoch.get().to_le_bytes());
        head[32..36].copy_from_slice(&self.rank.get().to_le_bytes());
        head[36..].copy_from_slice(&len.to_le_bytes());
        head
    }

    /// Returns the seal of a payload that travels inside of its announcement. For bytes that do not leave their process
    /// only the length counts.
    pub(crate) fn seal(&self, inner: &GroupState, pieces: &[Bytes]) -> u64 {
        let mut seal = Hash64::new();
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        seal.write(&self.head(len));
        if inner.exchange.body_limit() != usize::MAX {
            for piece in pieces {
                seal.write(piece);
            }
        }
        seal.finish()
    }

    /// Returns the digest of a payload that travels through rank 0 in pieces.
    pub(crate) fn digest(&self, payload: &[u8]) -> u128 {
        let mut digest = Hash128::new();
        digest.write(&self.head(payload.len() as u64));
        digest.write(payload);
        digest.finish()
    }

    /// Returns true if a payload file of this name has this origin.
    pub(crate) fn is_of(&self, name: &PayloadName) -> bool {
        (name.channel(), name.epoch(), name.rank()) == (self.channel, self.epoch, self.rank)
    }

    /// Returns the error if the payload differs from the one that this rank has handed in to this call.
    pub(crate) fn broken(
        &self,
        inner: &GroupState,
        ticket: &Ticket,
        place: Rank,
        path: impl Into<PathBuf>,
    ) -> Error {
        Error::corrupt(
            path.into(),
            format!(
                "it is not what rank {} has handed in to {ticket}",
                self.rank
            ),
            inner.peer(place).cloned(),
            Some(inner.me()),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use fsgather_core::{Call, Operation, ProcessId, Site};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        communicator::Communicator,
        payload::{
            header::{FileHeader, PayloadHeader, RelayHeader},
            part::Announced,
            path::PayloadPath,
        },
    };

    fn origin(communicator: u128, channel: u64, epoch: u64, rank: u32) -> PayloadOrigin {
        PayloadOrigin {
            communicator: Uuid::from_u128(communicator),
            channel: ChannelId::new(channel),
            epoch: Epoch::new(epoch),
            rank: Rank::new(rank),
        }
    }

    fn any_origin() -> impl Strategy<Value = PayloadOrigin> {
        // Few of each, so that two often differ in one thing alone.
        (0..2_u128, 0..3_u64, 0..3_u64, 0..3_u32).prop_map(
            |(communicator, channel, epoch, rank)| origin(communicator, channel, epoch, rank),
        )
    }

    proptest! {
        #[test]
        fn equal_digests_mean_equal_bytes_rank_and_call(
            one in any_origin(), other in any_origin(),
            bytes in prop::collection::vec(0..2_u8, 0..4), others in prop::collection::vec(0..2_u8, 0..4),
        ) {
            let is_same = (one, &bytes) == (other, &others);
            prop_assert_eq!(one.digest(&bytes) == other.digest(&others), is_same);
        }

        #[test]
        fn a_file_is_of_one_rank_and_one_call(one in any_origin(), other in any_origin()) {
            let name = PayloadName::new(other.channel, other.epoch, other.rank, 7);
            let is_same = PayloadOrigin { communicator: other.communicator, ..one } == other;
            prop_assert_eq!(one.is_of(&name), is_same);
        }
    }

    /// Returns the membership of the first of three ranks that are threads, in a group that has them in another order.
    fn reordered() -> Communicator {
        let mut groups: Vec<Communicator> = thread::scope(|scope| {
            let made: Vec<_> = Communicator::threads(3)
                .unwrap()
                .into_iter()
                .map(|rank| scope.spawn(move || rank.group(&[2, 0, 1]).unwrap()))
                .collect();
            made.into_iter()
                .map(|group| group.join().unwrap())
                .collect()
        });
        groups.swap_remove(0)
    }

    fn ticket(inner: &GroupState, epoch: u64) -> Ticket {
        Ticket {
            channel: inner.exchange.channel(),
            epoch: Epoch::new(epoch),
            call: Arc::new(Call {
                number: epoch,
                ..Call::new(Operation::AllGather, Site::named("a test"))
            }),
        }
    }

    /// Returns the announcement for a rank of the world in a call.
    type Announce = fn(&GroupState, PayloadOrigin, &Bytes) -> PayloadHeader;

    /// A payload that comes with its announcement, through rank 0, and in a file.
    const WAYS: [(&str, Announce); 3] = [
        (
            "a payload sent with the control messages",
            |inner, origin, payload| PayloadHeader::Inline {
                seal: origin.seal(inner, std::slice::from_ref(payload)),
                payload: payload.clone(),
            },
        ),
        ("a payload sent through rank 0", |_, origin, payload| {
            PayloadHeader::Relayed(RelayHeader {
                len: payload.len() as u64,
                digest: origin.digest(payload),
                instead: None,
            })
        }),
        ("payload-c", |_, origin, payload| {
            let len = payload.len() as u64;
            PayloadHeader::File(FileHeader {
                directory: "20261121t033336z-5f3a9c01".parse().unwrap(),
                locator: fsgather_store::Locator {
                    name: PayloadName::new(origin.channel, origin.epoch, origin.rank, 7),
                    encoding: fsgather_store::Encoding(0),
                    compression: fsgather_store::Compression(0),
                    raw_len: len,
                    stored_len: len,
                    chunk_count: 1,
                    digest: 0,
                },
            })
        }),
    ];

    #[test]
    fn a_payload_of_another_rank_call_or_world_is_refused() {
        let group = reordered();
        let inner = &group.inner;
        let now = ticket(inner, 5);
        let payloads: Vec<Bytes> = (0..3_u8).map(|rank| vec![rank; 9].into()).collect();
        let right = |rank: u32| PayloadOrigin {
            rank: Rank::new(rank),
            ..PayloadOrigin::own(&inner.world, &now)
        };
        let sort = |announce: Announce, origins: [PayloadOrigin; 3]| {
            let announced = origins.iter().map(|origin| {
                let payload = &payloads[origin.rank.index()];
                (announce(inner, *origin, payload), payload.to_vec())
            });
            let (bodies, relayed): (Vec<_>, Vec<_>) = announced
                .map(|(announced, payload)| (announced.into_body().unwrap(), payload))
                .unzip();
            let announced = Announced {
                inner,
                payload_path: &PayloadPath::Relay,
                share: None,
                keeps: false,
                ticket: &now,
            };
            announced.parts(&bodies, relayed).map(drop)
        };
        for (what, announce) in WAYS {
            // By place: rank 2, rank 0, rank 1 of the world.
            assert_eq!(sort(announce, [2, 0, 1].map(right)), Ok(()), "{what}");
            let wrong = [
                [0, 1, 2].map(right),
                [2, 0, 0].map(right),
                [2, 0, 1].map(|rank| PayloadOrigin {
                    epoch: Epoch::new(4),
                    ..right(rank)
                }),
                [2, 0, 1].map(|rank| PayloadOrigin {
                    channel: ChannelId::WORLD,
                    ..right(rank)
                }),
            ];
            for origins in wrong {
                let error = sort(announce, origins).unwrap_err();
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains(what), "{text}");
                assert!(text.contains("has handed in to all_gather #5"), "{text}");
            }
        }
    }

    #[test]
    fn within_a_process_only_the_payload_length_is_sealed() {
        let group = reordered();
        let own = PayloadOrigin::own(&group.inner.world, &ticket(&group.inner, 0));
        let seal = |bytes: &'static [u8]| own.seal(&group.inner, &[Bytes::from_static(bytes)]);
        assert_eq!(seal(b"these"), seal(b"those"));
        assert_ne!(seal(b"these"), seal(b"this"));
    }

    #[test]
    fn a_rank_seals_by_its_number_in_the_world() {
        let group = reordered();
        let now = ticket(&group.inner, 0);
        assert_eq!(group.rank(), Rank::new(1));
        let own = PayloadOrigin::own(&group.inner.world, &now);
        assert_eq!(own.rank, Rank::ZERO);
        assert_eq!(own, PayloadOrigin::of(&group.inner, &now, group.rank()));
        let world = WorldState::new(
            Uuid::nil(),
            Rank::new(1),
            vec![ProcessId::default(); 2],
            0,
            group.inner.default_request().clone(),
            crate::join::local_context::LocalContext::nowhere(),
        );
        assert_ne!(own, PayloadOrigin::own(&world, &now));
    }
}
