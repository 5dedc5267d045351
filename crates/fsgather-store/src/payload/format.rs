//! The bytes of a payload file: [`Header`], [`ChunkEntry`], [`Footer`]. Pure.
//!
//! A file is the header, the chunks of the payload one after the other, and a trailer of chunk table and footer. Each chunk of
//! a compressed payload is compressed alone, or stored as it is if that is not longer; without compression the payload's bytes
//! are contiguous. All numbers are little-endian and of fixed width; bytes marked *zero* must be zero.
//!
//! Header, [`HEADER_LEN`] bytes at offset 0:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `89 46 53 47 0d 0a 1a 0a` |
//! | 8 | 2 | version, 1 |
//! | 10 | 1 | encoding of the payload, a number that the caller gives |
//! | 11 | 1 | compression: 0 none, 2 Zstandard (frames) |
//! | 12 | 4 | rank of the writer |
//! | 16 | 16 | communicator |
//! | 32 | 4 | world size |
//! | 36 | 4 | nonce of the attempt, as in the file's name |
//! | 40 | 8 | channel |
//! | 48 | 8 | epoch |
//! | 56 | 4 | raw bytes in a chunk, 1048576 |
//! | 60 | 1 | checksums of chunks: 0 there, 1 left out, which no compressed payload does |
//! | 61 | 59 | zero |
//! | 120 | 8 | xxh3-64 of bytes 0 to 119 |
//!
//! One [`ChunkEntry`] of 16 bytes for each chunk, after the payload:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 4 | stored length of the chunk |
//! | 4 | 4 | flags: 1 a chunk of a compressed payload that is stored as it is, else zero |
//! | 8 | 8 | xxh3-64 of the chunk's stored bytes; 0 where checksums are left out |
//!
//! Footer, the last [`FOOTER_LEN`] bytes:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | raw length of the payload |
//! | 8 | 8 | stored length of the payload |
//! | 16 | 8 | number of chunks |
//! | 24 | 16 | xxh3-128 of header, chunk table and bytes 0 to 23 of the footer |
//! | 40 | 8 | end magic `47 53 46 89 0a 1a 0a 0d` |
//!
//! Every byte is covered: the header by its checksum and the digest, the payload by the chunk table, the table and the lengths
//! by the digest, and the digest by the locator that arrived over the control plane. If checksums are left out, everything is
//! covered except the payload's own bytes.

use std::fmt;

use fsgather_core::{
    ChannelId, Epoch, Rank, WorldSize,
    hash::{Hash64, Hash128},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::layout::PayloadName;

/// The version of the format that this build writes, and the only one it reads.
pub const VERSION: u16 = 1;
/// The length of the header, and the offset of the payload.
pub const HEADER_LEN: usize = 128;
/// The length of one entry of the chunk table.
pub const ENTRY_LEN: usize = 16;
/// The length of the footer.
pub const FOOTER_LEN: usize = 48;
/// Number of raw bytes that a chunk holds; the last one of a payload may hold fewer.
pub const CHUNK_LEN: usize = 1 << 20;

const MAGIC: [u8; 8] = *b"\x89FSG\r\n\x1a\n";
const END_MAGIC: [u8; 8] = *b"GSF\x89\n\x1a\n\r";

/// The meaning of the payload's bytes: a number that only the caller interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Encoding(pub u8);

/// Compression of the payload's chunks, each alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Compression(pub u8);

impl Compression {
    /// Chunks are stored as they are.
    pub const NONE: Self = Self(0);
    /// Chunks are frames of Zstandard.
    pub const ZSTD: Self = Self(2);
}

/// Identity and form of a payload: its writer, its call, its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Encoding of the payload.
    pub encoding: Encoding,
    /// Compression of the payload.
    pub compression: Compression,
    /// True if its chunks have checksums; those of a compressed payload always have.
    pub has_checksums: bool,
    /// The communicator's identity, drawn by rank 0.
    pub communicator: Uuid,
    /// Number of ranks.
    pub world_size: WorldSize,
    /// Channel, epoch, rank and nonce.
    pub name: PayloadName,
}

/// An error in bytes that should be part of a payload file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file is not a payload file at all, or its beginning is damaged.
    #[error("it does not begin like a payload file")]
    Magic,
    /// The file was written by a build with another format.
    #[error("it is of format version {found}, this build reads {VERSION}")]
    Version {
        /// The version found.
        found: u16,
    },
    /// The header does not match its checksum.
    #[error("its header has checksum {found:016x}, expected {expected:016x}")]
    HeaderChecksum {
        /// The checksum in the header.
        expected: u64,
        /// The computed checksum.
        found: u64,
    },
    /// A field holds a value that no writer writes.
    #[error("its {field} is {value}, which no writer writes")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// A field does not hold what was announced.
    #[error("its {field} is {found}, expected {expected}")]
    Differs {
        /// Name of the field.
        field: &'static str,
        /// The announced value.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// The file does not end as it should.
    #[error("it does not end like a payload file")]
    EndMagic,
    /// Header, table and lengths do not match their digest.
    #[error("its digest is {found:032x}, expected {expected:032x}")]
    Digest {
        /// The expected digest.
        expected: u128,
        /// The computed digest.
        found: u128,
    },
    /// A chunk does not match its checksum.
    #[error(
        "chunk {index} of {count} (at byte {offset}) has checksum {found:016x}, expected {expected:016x}"
    )]
    Chunk {
        /// Index of the chunk, from 0.
        index: u64,
        /// Number of chunks.
        count: u64,
        /// Offset of the chunk in the payload.
        offset: u64,
        /// The checksum in the chunk table.
        expected: u64,
        /// The computed checksum.
        found: u64,
    },
    /// The stored length of a chunk is one that no writer produces.
    #[error(
        "chunk {index} of {count} is stored in {found} bytes, which no writer does with {raw_len}"
    )]
    ChunkLength {
        /// Index of the chunk, from 0.
        index: u64,
        /// Number of chunks.
        count: u64,
        /// Number of bytes that it holds.
        raw_len: u64,
        /// Number of bytes that it takes in the file, as the table says.
        found: u64,
    },
    /// A chunk has the right checksum, but does not decompress to the announced number of bytes.
    #[error(
        "chunk {index} of {count} (at byte {offset}) does not decompress to {expected} bytes: {found}"
    )]
    Decompression {
        /// Index of the chunk, from 0.
        index: u64,
        /// Number of chunks.
        count: u64,
        /// Offset of the chunk in the payload.
        offset: u64,
        /// Number of bytes that it must hold.
        expected: u64,
        /// Result of the decompression.
        found: String,
    },
}

/// Compares a field with its announced value.
pub(crate) fn same<T: PartialEq + fmt::Display>(
    field: &'static str,
    expected: &T,
    found: &T,
) -> Result<(), Damage> {
    if expected == found {
        Ok(())
    } else {
        Err(Damage::Differs {
            field,
            expected: expected.to_string(),
            found: found.to_string(),
        })
    }
}

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = self.encoding.0;
        bytes[11] = self.compression.0;
        bytes[12..16].copy_from_slice(&self.name.rank().get().to_le_bytes());
        bytes[16..32].copy_from_slice(self.communicator.as_bytes());
        bytes[32..36].copy_from_slice(&self.world_size.get().to_le_bytes());
        bytes[36..40].copy_from_slice(&self.name.nonce().to_le_bytes());
        bytes[40..48].copy_from_slice(&self.name.channel().get().to_le_bytes());
        bytes[48..56].copy_from_slice(&self.name.epoch().get().to_le_bytes());
        bytes[56..60].copy_from_slice(&(1_u32 << 20).to_le_bytes());
        bytes[60] = u8::from(!self.has_checksums);
        let checksum = Hash64::of(&bytes[..120]);
        bytes[120..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    ///
    /// The first [`Damage`] found; the version is checked before anything that depends on it.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Result<Self, Damage> {
        if bytes[..8] != MAGIC {
            return Err(Damage::Magic);
        }
        let version = u16::from_le_bytes(array(&bytes[8..10]));
        if version != VERSION {
            return Err(Damage::Version { found: version });
        }
        let (expected, found) = (u64_at(bytes, 120), Hash64::of(&bytes[..120]));
        if expected != found {
            return Err(Damage::HeaderChecksum { expected, found });
        }
        let field = |field, value: u32| Damage::Field {
            field,
            value: value.into(),
        };
        let ranks = u32_at(bytes, 32);
        let world_size = WorldSize::new(ranks).map_err(|_| field("world size", ranks))?;
        let rank = Rank::new(u32_at(bytes, 12));
        if !world_size.contains(rank) {
            return Err(field("rank", rank.get()));
        }
        if u32_at(bytes, 56) != 1 << 20 {
            return Err(field("chunk length", u32_at(bytes, 56)));
        }
        let compression = Compression(bytes[11]);
        // Only verified data is decompressed.
        let has_checksums = match (bytes[60], compression) {
            (0, _) => true,
            (1, Compression::NONE) => false,
            (other, _) => return Err(field("byte for checksums", other.into())),
        };
        if bytes[61..120].iter().any(|&byte| byte != 0) {
            return Err(field("reserved part", 1));
        }
        Ok(Self {
            encoding: Encoding(bytes[10]),
            compression,
            has_checksums,
            communicator: Uuid::from_bytes(array(&bytes[16..32])),
            world_size,
            name: PayloadName::new(
                ChannelId::new(u64_at(bytes, 40)),
                Epoch::new(u64_at(bytes, 48)),
                rank,
                u32_at(bytes, 36),
            ),
        })
    }
}

/// Length, form and checksum of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Number of bytes that the chunk takes in the file.
    pub stored_len: u32,
    /// True if this chunk of a compressed payload is stored as it is, because compression saves nothing. In a payload without
    /// compression it is false for all chunks.
    pub is_raw: bool,
    /// xxh3-64 of the bytes in the file, or 0 if checksums are left out.
    pub checksum: u64,
}

impl ChunkEntry {
    /// The flag of a chunk that is stored as it is, in a compressed payload.
    const RAW: u32 = 1;

    /// Describes a chunk, which must not be longer than [`CHUNK_LEN`].
    #[must_use]
    pub fn of(stored: &[u8], is_raw: bool) -> Self {
        Self {
            stored_len: u32::try_from(stored.len()).unwrap_or(u32::MAX),
            is_raw,
            checksum: Hash64::of(stored),
        }
    }

    /// Describes a chunk of a payload without checksums.
    #[must_use]
    pub fn without_checksum(stored: &[u8]) -> Self {
        Self {
            stored_len: u32::try_from(stored.len()).unwrap_or(u32::MAX),
            is_raw: false,
            checksum: 0,
        }
    }

    /// Encodes the entry.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        let flags = if self.is_raw { Self::RAW } else { 0 };
        bytes[..4].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes an entry.
    ///
    /// # Errors
    ///
    /// [`Damage::Field`] if flags are set that this version does not know.
    pub fn from_bytes(bytes: &[u8; ENTRY_LEN]) -> Result<Self, Damage> {
        let flags = u32_at(bytes, 4);
        if flags & !Self::RAW != 0 {
            return Err(Damage::Field {
                field: "chunk flags",
                value: flags.into(),
            });
        }
        Ok(Self {
            stored_len: u32_at(bytes, 0),
            is_raw: flags == Self::RAW,
            checksum: u64_at(bytes, 8),
        })
    }
}

/// The lengths of a payload, and the digest that ties header, chunk table and lengths together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Length of the payload.
    pub raw_len: u64,
    /// Length of the payload in the file.
    pub stored_len: u64,
    /// Number of chunks.
    pub chunk_count: u64,
    /// xxh3-128 of header, chunk table and lengths.
    pub digest: u128,
}

impl Footer {
    /// Makes the footer for a header, a chunk table in bytes, and the payload's lengths.
    #[must_use]
    pub fn seal(header: &[u8; HEADER_LEN], table: &[u8], raw_len: u64, stored_len: u64) -> Self {
        let unsealed = Self {
            raw_len,
            stored_len,
            chunk_count: (table.len() / ENTRY_LEN) as u64,
            digest: 0,
        };
        Self {
            digest: unsealed.digest_over(header, table),
            ..unsealed
        }
    }

    /// Computes the digest over this header, this table and these lengths.
    #[must_use]
    pub fn digest_over(&self, header: &[u8; HEADER_LEN], table: &[u8]) -> u128 {
        let mut hasher = Hash128::new();
        hasher.write(header);
        hasher.write(table);
        hasher.write(&self.to_bytes()[..24]);
        hasher.finish()
    }

    /// Encodes the footer.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FOOTER_LEN] {
        let mut bytes = [0; FOOTER_LEN];
        bytes[..8].copy_from_slice(&self.raw_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stored_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chunk_count.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.digest.to_le_bytes());
        bytes[40..].copy_from_slice(&END_MAGIC);
        bytes
    }

    /// Decodes a footer.
    ///
    /// # Errors
    ///
    /// [`Damage::EndMagic`] if these are not the last bytes of a payload file.
    pub fn from_bytes(bytes: &[u8; FOOTER_LEN]) -> Result<Self, Damage> {
        if bytes[40..] != END_MAGIC {
            return Err(Damage::EndMagic);
        }
        Ok(Self {
            raw_len: u64_at(bytes, 0),
            stored_len: u64_at(bytes, 8),
            chunk_count: u64_at(bytes, 16),
            digest: u128::from_le_bytes(array(&bytes[24..40])),
        })
    }
}

/// Number of chunks that a payload of `raw_len` bytes has.
#[must_use]
pub const fn chunk_count(raw_len: u64) -> u64 {
    raw_len.div_ceil(CHUNK_LEN as u64)
}

/// Number of raw bytes that chunk `index` of a payload of `raw_len` bytes has; 0 past the end.
#[must_use]
pub const fn chunk_len(raw_len: u64, index: u64) -> usize {
    let start = index.saturating_mul(CHUNK_LEN as u64);
    let left = raw_len.saturating_sub(start);
    if left < CHUNK_LEN as u64 {
        #[expect(clippy::cast_possible_truncation, reason = "less than a chunk")]
        {
            left as usize
        }
    } else {
        CHUNK_LEN
    }
}

/// Length of a file that holds `stored_len` bytes in `chunk_count` chunks; `None` if it exceeds the maximum length of a file.
#[must_use]
pub fn file_len(stored_len: u64, chunk_count: u64) -> Option<u64> {
    let table = chunk_count.checked_mul(ENTRY_LEN as u64)?;
    (HEADER_LEN as u64 + FOOTER_LEN as u64)
        .checked_add(table)?
        .checked_add(stored_len)
        .filter(|&len| i64::try_from(len).is_ok())
}

/// Copies a slice whose length is known at compile time.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array(&bytes[offset..offset + 4]))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array(&bytes[offset..offset + 8]))
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
