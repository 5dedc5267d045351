//! The life of a payload: written chunk by chunk, made visible as a whole, announced, and read with every byte checked.
//!
//! - `writer`: publishing a payload: [`writer::PayloadWriter`].
//! - `locator`: the announcement of a payload: [`locator::Locator`].
//! - `collect`: reading an announced payload: [`collect::PayloadReader`].
//! - `collect_policy`: patience and memory for that: [`collect_policy::CollectPolicy`].
//! - `file_calls`: warns of file-system calls that do not return: [`file_calls::FileCalls`].
//! - `source`: the file of a payload, opened again on errors: [`source::Source`].
//! - `bytes`: the bytes that were read: [`bytes::Payload`].
//! - `writable_payload`: bytes that may be written to: [`writable_payload::WritablePayload`].
//! - `format`: every byte of the file; pure.
//! - `chunk_table`: the place of each chunk in the file; pure: [`chunk_table::ChunkTable`].
//! - `compression`: compresses chunks on request: [`compression::CompressionSetting`].
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
