use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;

fn ids() -> impl Strategy<Value = GatherId> {
    (0..4_000_000_000_u64, any::<u32>()).prop_map(|(seconds, salt)| {
        GatherId::new(
            UNIX_EPOCH + Duration::from_secs(seconds),
            Salt::from_random(salt),
        )
    })
}

fn rendezvous_entries() -> impl Strategy<Value = RendezvousEntry> {
    prop_oneof![
        (any::<u64>(), ids())
            .prop_map(|(key, stamp)| RendezvousEntry::Record(RecordName { key, stamp })),
        (any::<u64>(), ids())
            .prop_map(|(key, stamp)| RendezvousEntry::Unreachable(RecordName { key, stamp })),
        (any::<u64>(), ids())
            .prop_map(|(key, stamp)| RendezvousEntry::Refusal(RecordName { key, stamp })),
        ids().prop_map(RendezvousEntry::Gather),
        any::<u64>().prop_map(RendezvousEntry::Probe),
        (any::<u128>(), 0..WorldSize::MAX).prop_map(|(world, rank)| RendezvousEntry::Calls {
            world: Uuid::from_u128(world),
            rank: Rank::new(rank),
        }),
        (any::<u128>(), any::<u32>()).prop_map(|(world, nonce)| RendezvousEntry::Asked {
            world: Uuid::from_u128(world),
            nonce,
        }),
        (any::<u128>(), any::<u32>(), any::<u32>()).prop_map(|(world, nonce, salt)| {
            RendezvousEntry::Answer {
                world: Uuid::from_u128(world),
                nonce,
                salt,
            }
        }),
        (ids(), any::<u32>()).prop_map(|(id, nonce)| RendezvousEntry::Condemned { id, nonce }),
    ]
}

fn gather_entries() -> impl Strategy<Value = GatherEntry> {
    prop_oneof![
        Just(GatherEntry::Owner),
        Just(GatherEntry::Staging),
        Just(GatherEntry::Payloads),
        Just(GatherEntry::Probes),
        Just(GatherEntry::Finished),
        Just(GatherEntry::Aborted),
        any::<u64>().prop_map(GatherEntry::Beat),
    ]
}

fn payload_names() -> impl Strategy<Value = PayloadName> {
    (any::<u64>(), any::<u64>(), 0..WorldSize::MAX, any::<u32>()).prop_map(
        |(channel, epoch, rank, nonce)| {
            PayloadName::new(
                ChannelId::new(channel),
                Epoch::new(epoch),
                Rank::new(rank),
                nonce,
            )
        },
    )
}

fn is_portable(name: &str) -> bool {
    name.len() <= MAX_NAME_LEN
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
}

proptest! {
    #[test]
    fn rendezvous_names_parse_both_ways(entry in rendezvous_entries()) {
        let name = entry.to_string();
        prop_assert!(is_portable(&name), "{}", name);
        prop_assert_eq!(RendezvousEntry::parse(&name), Some(entry));
    }

    #[test]
    fn gather_names_parse_both_ways(entry in gather_entries()) {
        let name = entry.to_string();
        prop_assert!(is_portable(&name), "{}", name);
        prop_assert_eq!(GatherEntry::parse(&name), Some(entry));
    }

    #[test]
    fn payload_names_parse_both_ways(payload in payload_names()) {
        let name = payload.to_string();
        prop_assert!(is_portable(&name), "{}", name);
        prop_assert_eq!(PayloadName::parse(&name), Some(payload));
    }

    #[test]
    fn names_have_one_spelling(name in "(rendezvous|gather|probe|condemned|beat|payload)?-?[a-zA-Z0-9._-]{0,70}") {
        if let Some(entry) = RendezvousEntry::parse(&name) {
            prop_assert_eq!(entry.to_string(), name.clone());
        }
        if let Some(entry) = GatherEntry::parse(&name) {
            prop_assert_eq!(entry.to_string(), name.clone());
        }
        if let Some(payload) = PayloadName::parse(&name) {
            prop_assert_eq!(payload.to_string(), name);
        }
    }

    #[test]
    fn a_damaged_payload_name_is_another_name_or_foreign(
        payload in payload_names(), position in 0_usize..63, byte in "[ -~]",
    ) {
        let mut name = payload.to_string();
        name.replace_range(position..=position, &byte);
        let spelled = PayloadName::parse(&name).map(|parsed| parsed.to_string());
        prop_assert!(spelled.is_none_or(|spelled| spelled == name));
    }
}

#[test]
fn foreign_names_are_none() {
    let foreign = [
        "",
        ".",
        "..",
        ".nfs000000000000beef00000001",
        ".fuse_hidden0000beef",
        ".snapshot",
        "data_to_gather_1_2_3.pkl",
        "gather-",
        "gather-20261121T033336Z-5f3a9c01",
        "beat-",
        "beat-1",
        "beat-99999999999999999999",
        "beat-+0000000000000000001",
        "owner.tmp",
        "Owner",
        "probe-+00000000000000f",
        "payload-c0000000000000000-e00000000000000000012-r00003-0000beef.tmp",
        "payload-c0000000000000000-e00000000000000000012-r99999-0000beef",
        "payload-c0000000000000000-e00000000000000000012-r00003-0000BEEF",
        "../payload-c0000000000000000-e00000000000000000012-r00003-0000beef",
    ];
    for name in foreign {
        assert_eq!(RendezvousEntry::parse(name), None, "{name}");
        assert_eq!(GatherEntry::parse(name), None, "{name}");
        assert_eq!(PayloadName::parse(name), None, "{name}");
    }
}
