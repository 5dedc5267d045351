//! A payload's way: written chunk by chunk, made visible whole, announced, and read with every byte checked.
//!
//! - `writer`: publishing a payload: [`writer::PayloadWriter`].
//! - `locator`: what is announced of it: [`locator::Locator`].
//! - `collect`: reading what was announced: [`collect::PayloadReader`].
//! - `collect_policy`: how: [`collect_policy::CollectPolicy`].
//! - `file_calls`: warns of calls of the file system that do not come back: [`file_calls::FileCalls`].
//! - `source`: its file, opened again as often as it takes: [`source::Source`].
//! - `bytes`: what was read: [`bytes::Payload`].
//! - `writable_payload`: the same, to write to: [`writable_payload::WritablePayload`].
//! - `format`: every byte of the file; pure.
//! - `chunk_table`: where each chunk lies in it; pure: [`chunk_table::ChunkTable`].
//! - `compression`: chunks made smaller, where that is asked for: [`compression::CompressionSetting`].
//! - `map`: files and memory mapped; the one owner of `mmap`: [`map::Mapping`].
//! - `parallel`: several threads for the chunks of one payload.

pub(crate) mod bytes;
pub(crate) mod chunk_table;
pub(crate) mod collect;
pub(crate) mod collect_policy;
pub(crate) mod compression;
pub(crate) mod file_calls;
pub mod format;
pub(crate) mod locator;
pub(crate) mod map;
pub(crate) mod parallel;
pub(crate) mod source;
pub(crate) mod writable_payload;
pub(crate) mod writer;
