use proptest::prelude::*;

use super::*;

fn headers() -> impl Strategy<Value = Header> {
    (
        any::<(u8, u8, u128, u64, u64, u32)>(),
        any::<bool>(),
        1..=WorldSize::MAX,
        any::<prop::sample::Index>(),
    )
        .prop_map(
            |((encoding, compression, uuid, channel, epoch, nonce), is_hashed, size, rank)| {
                Header {
                    encoding: Encoding(encoding),
                    compression: Compression(if is_hashed { compression } else { 0 }),
                    has_checksums: is_hashed,
                    communicator: Uuid::from_u128(uuid),
                    world_size: WorldSize::new(size).unwrap(),
                    name: PayloadName::new(
                        ChannelId::new(channel),
                        Epoch::new(epoch),
                        Rank::new(u32::try_from(rank.index(size as usize)).unwrap()),
                        nonce,
                    ),
                }
            },
        )
}

proptest! {
    #[test]
    fn headers_convert_both_ways(header in headers()) {
        prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn no_damaged_header_is_accepted(header in headers(), at in 0..HEADER_LEN, bit in 0..8) {
        let mut bytes = header.to_bytes();
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Header::from_bytes(&bytes).is_err());
    }

    #[test]
    fn entries_convert_both_ways(stored_len: u32, is_raw: bool, checksum: u64) {
        let entry = ChunkEntry { stored_len, is_raw, checksum };
        prop_assert_eq!(ChunkEntry::from_bytes(&entry.to_bytes()), Ok(entry));
    }

    #[test]
    fn unknown_flags_are_refused(flags in prop_oneof![0_u32..4, any::<u32>()], checksum: u64) {
        let mut bytes = ChunkEntry { stored_len: 7, is_raw: false, checksum }.to_bytes();
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        let read = ChunkEntry::from_bytes(&bytes);
        prop_assert_eq!(read.as_ref().is_ok_and(|entry| entry.is_raw), flags == 1);
        prop_assert_eq!(read.is_ok(), flags <= 1);
    }

    #[test]
    fn footers_convert_both_ways(raw_len: u64, stored_len: u64, chunk_count: u64, digest: u128) {
        let footer = Footer { raw_len, stored_len, chunk_count, digest };
        prop_assert_eq!(Footer::from_bytes(&footer.to_bytes()), Ok(footer));
    }

    #[test]
    fn a_digest_notices_any_changed_bit(
        header in headers(), table in prop::collection::vec(any::<u8>(), 0..64), raw_len: u64,
        at: prop::sample::Index, bit in 0..8,
    ) {
        let header = header.to_bytes();
        let footer = Footer::seal(&header, &table, raw_len, raw_len);
        let mut bytes = [&header[..], &table[..], &footer.to_bytes()[..24]].concat();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let (changed_header, rest) = bytes.split_at(HEADER_LEN);
        let (changed_table, lengths) = rest.split_at(table.len());
        let changed = Footer {
            raw_len: u64_at(lengths, 0),
            stored_len: u64_at(lengths, 8),
            chunk_count: u64_at(lengths, 16),
            digest: footer.digest,
        };
        prop_assert_ne!(changed.digest_over(&array(changed_header), changed_table), footer.digest);
    }

    #[test]
    fn chunks_cover_the_payload_exactly(raw_len in prop_oneof![0_u64..5_000_000, any::<u64>()]) {
        let count = chunk_count(raw_len);
        prop_assert_eq!(chunk_len(raw_len, count), 0);
        if count > 0 {
            let last = chunk_len(raw_len, count - 1) as u64;
            prop_assert!((1..=CHUNK_LEN as u64).contains(&last));
            prop_assert_eq!((count - 1) * CHUNK_LEN as u64 + last, raw_len);
        }
    }
}

#[test]
fn lengths_above_four_gib_do_not_wrap() {
    let raw_len = (5_u64 << 30) + 7;
    assert_eq!(chunk_count(raw_len), 5 * 1024 + 1);
    assert_eq!(chunk_len(raw_len, 5 * 1024), 7);
    assert_eq!(
        file_len(raw_len, chunk_count(raw_len)),
        Some(128 + raw_len + 16 * (5 * 1024 + 1) + 48)
    );
    let footer = Footer::seal(&[0; HEADER_LEN], &[], raw_len, raw_len);
    assert_eq!(Footer::from_bytes(&footer.to_bytes()), Ok(footer));
}

#[test]
fn impossible_lengths_are_refused() {
    assert_eq!(file_len(u64::MAX, 1), None);
    assert_eq!(file_len(0, u64::MAX / 8), None);
    assert_eq!(file_len(u64::MAX / 2, 0), None);
}

#[test]
fn another_version_is_told_as_such() {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = 2;
    assert_eq!(
        Header::from_bytes(&bytes),
        Err(Damage::Version { found: 2 })
    );
}

#[test]
fn the_layout_is_the_documented_one() {
    let header = Header {
        encoding: Encoding(7),
        compression: Compression::NONE,
        has_checksums: true,
        communicator: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        world_size: WorldSize::new(4).unwrap(),
        name: PayloadName::new(ChannelId::new(0x11), Epoch::new(0x22), Rank::new(3), 0x33),
    };
    let bytes = header.to_bytes();
    assert_eq!(&bytes[..12], b"\x89FSG\r\n\x1a\n\x01\x00\x07\x00");
    assert_eq!(&bytes[12..16], &[3, 0, 0, 0]);
    assert_eq!(bytes[16], 1);
    assert_eq!(bytes[31], 16);
    assert_eq!(&bytes[32..40], &[4, 0, 0, 0, 0x33, 0, 0, 0]);
    assert_eq!((bytes[40], bytes[48]), (0x11, 0x22));
    assert_eq!(&bytes[56..60], &[0, 0, 0x10, 0]);
}
