//! The shared directory of fsgather: names, payload files, publishing, collecting, deletion.
//!
//! The store knows only files: it opens no sockets, reads no environment variables and does not print. It never decides the
//! order of ranks or the success of a call; it writes what it is given, and returns only bytes that match the announcement.
//!
//! # Architecture
//!
//! Rank 0 makes a [`GatherDir`]. Each rank publishes with a [`PayloadWriter`] and gets a [`Locator`],
//! which travels over the control plane; recipients collect it into a [`Payload`].
//!
//! - [`GatherDir`]: one communicator's directory; made, opened, marked, removed. [`GatherFacts`] is its description,
//!   which rank 0 sends to the others.
//! - [`PayloadWriter`]: writes one payload and makes it visible as a whole, as [`PublishMode`] says.
//! - [`check_compression`]: returns an error if this build cannot compress chunks as a setting asks.
//! - [`Locator`]: name, lengths and digest of a payload, as announced.
//! - [`Payload`], [`PayloadReader`]: verified bytes, as one slice or as a stream; [`CollectPolicy`] sets the patience and the
//!   memory for reading them. [`WritablePayload`]: bytes that the caller owns and may write to. [`LentBytes`]: bytes that
//!   another owner keeps.
//! - [`FileBackend`]: rendezvous by files, one [`BackendDirectory`] for each directory.
//! - [`ProbeNonce`], [`Planted`]: the proof that a directory is one and the same on all hosts.
//! - [`MessageDirFactory`]: messages between ranks as files, if the ranks cannot reach each other otherwise.
//! - [`Janitor`]: the thread for calls that may hang: heartbeat, deletion.
//! - [`Surveyor`]: examines the contents of a directory; [`assess`]: decides if it is alive; [`clean`]: removes leftovers of
//!   crashes.
//! - [`OwnerRecord`], [`this_process`], [`liveness`]: the owner of a directory, and evidence that it runs.
//! - [`FileSystem`]: the kind of file system of a path, for speed and for messages. [`Mount`], [`Capacity`], [`Access`]: its
//!   source, its free space and its owner, only for messages.
//! - [`make_rendezvous`], [`default_local`], [`check_writable`]: the directories above, and [`OwnUid`], the owner of our
//!   files as the server sees it.
//! - [`slow_place`]: warns while a file system does not respond.
//! - [`layout`], [`format`](mod@format): every name and every byte, pure.
//!
//! Below them all, `layout` has every name that the store writes. Each folder needs only those before it, with one
//! exception: the janitor of `lifecycle` keeps the directories of `messages`.
//!
//! - `os`: system calls, each kind in one file.
//! - `directory`: the directory in which ranks meet, and gather directories.
//! - `payload`: writing, announcing and reading payloads.
//! - `rendezvous`: ranks find each other through files.
//! - `messages`: messages between ranks as files.
//! - `lifecycle`: the end of a gather directory, and leftovers of crashes.
//!
//! # Cargo features
//!
//! - `zstd`: payloads compressed with Zstandard, by the library in C, which needs a C compiler to build.
//!
//! It is off by default. A build without it refuses to write such payloads with
//! [`Error::Config`](fsgather_core::Error::Config), and to read them with
//! [`Error::Incompatible`](fsgather_core::Error::Incompatible), naming the feature.
//!
//! # Directory format
//!
//! ```text
//! DIR/all_gather_via_filesys/                    the rendezvous directory; removed only when empty
//!   rendezvous-KEY-TIME-SALT                     a record of rank 0, while its world forms
//!   calls-WORLD-rRANK                            the last calls of a rank
//!   asked-WORLD-NONCE, answer-WORLD-NONCE-SALT   a question about the activity of ranks
//!   probe-NONCE                                  a short-lived test if files can be written here
//!   unreachable-KEY-TIME-SALT                    a rank cannot reach the rank 0 of a record
//!   refusal-KEY-TIME-SALT                        a rendezvous has failed, for ranks that arrive later
//!   condemned-TIME-SALT-NONCE                    a process is about to remove that gather directory
//!   gather-TIME-SALT/                            a gather directory, mode 0700
//!     owner                                      the owner record, as text
//!     beat-COUNTER                               heartbeat of the owner; a new name every 10 s
//!     staging/                                   payloads being written
//!     payloads/payload-cCHANNEL-eEPOCH-rRANK-NONCE
//!     probes/nonce-LABEL                         while the directory is being proved to be shared
//!     finished                                   the owner has finished with the directory
//!     aborted                                    a survivor has seen the owner go
//!   gather-TIME-SALT/                            the same for messages, under marker control
//!     in/host-LABEL/letter-...                   letters of other ranks to rank 0
//!     out/bulletin-...                           bulletins of rank 0
//!     live/host-LABEL/beat-...                   heartbeats of hosts
//! ```
//!
//! `docs/design/on-disk-format.md` has the bytes and the promises, `docs/design/crash-safety.md` the leftovers of a crash.

pub mod calls;
mod directory;
pub mod layout;
mod lifecycle;
mod messages;
mod os;
mod payload;
mod rendezvous;
mod samples;
pub mod slow_place;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use directory::gather_dir::{GatherDir, GatherFacts};
pub use directory::owner::{OwnerRecord, OwnerRecordError, draw_id};
pub use directory::owner_file::read_owner;
pub use directory::probe::{Planted, ProbeNonce, cannot_be_shared, probers};
pub use directory::rendezvous_directory::{
    check_writable, check_writing, has_rendezvous, make_directory, make_rendezvous,
    remove_empty_rendezvous,
};
pub use layout::{PayloadName, SampleFileName};
pub use lifecycle::cleaning::{Cleaning, CleaningStep, Failed, Kept, Planned, clean};
pub use lifecycle::janitor::{Care, Janitor};
pub use lifecycle::judgement::{
    BEAT_PERIOD, BeatEvidence, Evidence, GatherState, Judgement, OwnerEvidence, Removable, Rules,
    assess,
};
pub use lifecycle::leftover::{Leftover, Meeting};
pub use lifecycle::leftover_kind::LeftoverKind;
pub use lifecycle::removal::Removal;
pub use lifecycle::survey::{Survey, SurveyedGather};
pub use lifecycle::surveyor::Surveyor;
pub use lifecycle::sweeping::sweep_calls;
pub use messages::factory::{MarkerOwner, MessageDirFactory};
pub use os::directory::{Access, OwnUid, default_local};
pub use os::file::takes_no_data;
pub use os::filesystem::{Capacity, Class, FileSystem, free_bytes};
pub use os::listing::names as list_afresh;
pub use os::mount::Mount;
pub use os::process::{
    Liveness, Sighting, judge, liveness, own_user_text, this_process, user_text,
};
pub use os::reveal::PublishMode;
pub use payload::bytes::{LentBytes, Payload};
pub use payload::collect::PayloadReader;
pub use payload::collect_policy::CollectPolicy;
pub use payload::compression::check_compression;
pub use payload::file_calls::{FileCall, FileCalls};
pub use payload::format::{self, Compression, Encoding};
pub use payload::locator::Locator;
pub use payload::writable_payload::WritablePayload;
pub use payload::writer::{PayloadId, PayloadWriter};
pub use rendezvous::file_backend::{BackendDirectory, FileBackend};
pub use samples::{
    AttemptClaim, EntryKind, FileDamage, SampleDirectory, SampleFileCopy, SampleFileHeader,
    SampleFileStream, SampleId, SampleIndex, SampleWriter, ScannedFile, ValuePlace, WriterProgress,
    encode_samples, receive_sample_file,
};
