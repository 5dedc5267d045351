//! Locates each chunk of a payload in its file: [`ChunkTable`]. Pure.

use crate::payload::{
    format::{ChunkEntry, Compression, Damage, ENTRY_LEN, HEADER_LEN, chunk_len, same},
    locator::Locator,
};

/// The chunk table of a payload, checked against its locator.
///
/// Chunks follow each other from the end of the header, and none takes more bytes than it holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChunkTable(Vec<Chunk>);

/// One chunk in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Offset of its stored bytes in the file.
    pub(crate) offset: u64,
    /// Number of its stored bytes; at most that of its raw bytes.
    pub(crate) stored_len: usize,
    /// True if the stored bytes are compressed.
    pub(crate) is_compressed: bool,
    /// Checksum of the stored bytes.
    pub(crate) checksum: u64,
}

impl ChunkTable {
    /// Parses the table of the payload that `locator` announces.
    pub(crate) fn from_bytes(bytes: &[u8], locator: &Locator) -> Result<Self, Damage> {
        let (entries, rest) = bytes.as_chunks::<ENTRY_LEN>();
        same("chunk count", &locator.chunk_count, &(entries.len() as u64))?;
        same("rest of a chunk table", &0, &rest.len())?;
        let mut offset = HEADER_LEN as u64;
        let chunks = (0..)
            .zip(entries)
            .map(|(index, entry)| {
                let chunk = Chunk::of(ChunkEntry::from_bytes(entry)?, offset, index, locator)?;
                offset += chunk.stored_len as u64;
                Ok(chunk)
            })
            .collect::<Result<_, Damage>>()?;
        same(
            "stored length",
            &locator.stored_len,
            &(offset - HEADER_LEN as u64),
        )?;
        Ok(Self(chunks))
    }

    /// Returns the chunk of this number; `None` past the end.
    pub(crate) fn get(&self, index: u64) -> Option<Chunk> {
        self.0.get(usize::try_from(index).ok()?).copied()
    }
}

impl Chunk {
    fn of(entry: ChunkEntry, offset: u64, index: u64, locator: &Locator) -> Result<Self, Damage> {
        let raw_len = chunk_len(locator.raw_len, index) as u64;
        let found = u64::from(entry.stored_len);
        let may_be_raw = locator.compression != Compression::NONE;
        if entry.is_raw && !may_be_raw {
            return Err(Damage::Field {
                field: "chunk flags",
                value: 1,
            });
        }
        let is_compressed = may_be_raw && !entry.is_raw;
        let is_right = if is_compressed {
            (1..raw_len).contains(&found)
        } else {
            found == raw_len
        };
        match usize::try_from(found) {
            Ok(stored_len) if is_right => Ok(Self {
                offset,
                stored_len,
                is_compressed,
                checksum: entry.checksum,
            }),
            _ => Err(Damage::ChunkLength {
                index,
                count: locator.chunk_count,
                raw_len,
                found,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{ChannelId, Epoch, Rank};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        layout::PayloadName,
        payload::format::{CHUNK_LEN, Encoding, chunk_count},
    };

    fn locator(compression: Compression, raw_len: u64, stored_len: u64) -> Locator {
        Locator {
            name: PayloadName::new(ChannelId::WORLD, Epoch::new(1), Rank::new(2), 3),
            encoding: Encoding(4),
            compression,
            raw_len,
            stored_len,
            chunk_count: chunk_count(raw_len),
            digest: 0,
        }
    }

    /// Lengths and flags of all chunks but the last, which are likely to be right.
    fn entries() -> impl Strategy<Value = Vec<(u32, bool)>> {
        let len = prop_oneof![Just(1_u32 << 20), 1_u32..1 << 20, any::<u32>()];
        prop::collection::vec((len, any::<bool>()), 1..6)
    }

    proptest! {
        #[test]
        fn a_table_that_is_accepted_covers_the_stored_bytes_exactly(
            entries in entries(), compression in 0_u8..3, last in 1..=CHUNK_LEN, off in -1_i64..2,
        ) {
            let raw_len = (entries.len() as u64 - 1) * CHUNK_LEN as u64 + last as u64;
            let sum: u64 = entries.iter().map(|(len, _)| u64::from(*len)).sum();
            let stored_len = sum.saturating_add_signed(off);
            let locator = locator(Compression(compression), raw_len, stored_len);
            let table: Vec<u8> = entries
                .iter()
                .flat_map(|&(stored_len, is_raw)| {
                    ChunkEntry { stored_len, is_raw, checksum: 7 }.to_bytes()
                })
                .collect();
            let read = ChunkTable::from_bytes(&table, &locator);
            prop_assert!(off == 0 || read.is_err());
            if let Ok(table) = read {
                let mut end = HEADER_LEN as u64;
                for index in 0..locator.chunk_count {
                    let chunk = table.get(index).unwrap();
                    prop_assert_eq!(chunk.offset, end);
                    let raw_len = chunk_len(locator.raw_len, index);
                    prop_assert!(chunk.stored_len <= raw_len);
                    prop_assert_eq!(chunk.is_compressed, chunk.stored_len < raw_len);
                    end += chunk.stored_len as u64;
                }
                prop_assert_eq!(end - HEADER_LEN as u64, stored_len);
                prop_assert_eq!(table.get(locator.chunk_count), None);
            }
        }

        #[test]
        fn tables_of_another_length_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let locator = locator(Compression::NONE, 2 * CHUNK_LEN as u64, 2 * CHUNK_LEN as u64);
            prop_assert!(bytes.len() == 32 || ChunkTable::from_bytes(&bytes, &locator).is_err());
        }
    }

    #[test]
    fn chunks_may_take_what_they_hold_or_less_if_that_is_compressed() {
        let chunk = 1 << 20;
        for (compression, stored_len, is_raw, is_right) in [
            (0, chunk, false, true),
            (0, chunk, true, false),
            (0, chunk - 1, false, false),
            (1, chunk, true, true),
            (1, chunk, false, false),
            (1, chunk - 1, true, false),
            (1, chunk - 1, false, true),
            (2, 1, false, true),
            (2, 0, false, false),
        ] {
            let entry = ChunkEntry {
                stored_len,
                is_raw,
                checksum: 7,
            };
            let locator = locator(Compression(compression), chunk.into(), stored_len.into());
            let read = ChunkTable::from_bytes(&entry.to_bytes(), &locator);
            assert_eq!(read.is_ok(), is_right, "{compression} {entry:?}");
        }
    }
}
