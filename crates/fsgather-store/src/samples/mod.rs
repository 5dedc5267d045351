//! Samples: results of an evaluation by name, on disk as they come.
//!
//! A directory of samples holds one file for each process and attempt, and further ones for processes whose file system had
//! no room for a while. Each file is written by one process, by appending, and never changed after. A directory means the
//! union of all entries that can be read: a file that is late, cut short or lost can only make results missing.
//!
//! - `sample_id.rs`: names of samples.
//! - `file_header.rs`, `entry.rs`: the bytes, pure.
//! - `sample_writer.rs`: the thread that writes the file of this process, `part_file.rs`, and `entry_queue.rs`:
//!   what waits for it.
//! - `attempt_claim.rs`: the number of an attempt.
//! - `transfer.rs`: files between processes; `file_copy.rs`: the entries that a copy has.
//! - `file_scan.rs`: the entries of one file; `sample_directory.rs`: those of all files together.
//! - `sample_index.rs`: the result that counts for each sample, pure.

mod attempt_claim;
mod entry;
mod entry_queue;
mod file_copy;
mod file_header;
mod file_scan;
mod part_file;
mod sample_directory;
mod sample_id;
mod sample_index;
mod sample_writer;
mod transfer;
mod writer_progress;

pub use attempt_claim::AttemptClaim;
pub use entry::EntryKind;
pub use file_copy::SampleFileCopy;
pub use file_header::SampleFileHeader;
pub use file_scan::{FileDamage, ScannedFile};
pub use sample_directory::SampleDirectory;
pub use sample_id::SampleId;
pub use sample_index::{SampleIndex, ValuePlace};
pub use sample_writer::SampleWriter;
pub use transfer::{SampleFileStream, encode_samples, receive_sample_file};
pub use writer_progress::WriterProgress;

#[cfg(test)]
mod tests;
