//! The shared directory of fsgather: names, payload files, publishing, collecting, deletion.
//!
//! The store knows files only: it opens no sockets, reads no environment variables and does not print. It
//! never decides in which order ranks come or whether a call has succeeded; it writes what it is given,
//! and hands out bytes only if they are the ones that were announced.
//!
//! # Architecture
//!
//! Rank 0 makes a [`GatherDir`]. Each rank publishes with a [`PayloadWriter`] and gets a [`Locator`],
//! which travels over the control plane; recipients collect it into a [`Payload`].
//!
//! - [`GatherDir`]: one communicator's directory; made, opened, marked, removed. [`GatherFacts`] is what
//!   rank 0 tells the others of it.
//! - [`PayloadWriter`]: writes one payload and makes it visible whole ([`PublishMode`] says how).
//! - [`check_compression`]: whether this build can compress chunks as a setting asks.
//! - [`Locator`]: name, lengths and digest of a payload, as announced.
//! - [`Payload`], [`PayloadReader`]: verified bytes, as one slice or as a stream; [`CollectPolicy`] says
//!   how patiently and into what they are read. [`WritablePayload`]: bytes of one's own to write to. [`LentBytes`]: bytes that
//!   somebody else keeps.
//! - [`FileBackend`]: rendezvous by files, one [`BackendDirectory`] for each directory.
//! - [`ProbeNonce`], [`Planted`]: the proof that a directory is one and the same on all hosts.
//! - [`MessageDirFactory`]: messages between ranks as files, where they cannot reach each other otherwise.
//! - [`Janitor`]: the thread for calls that may hang: beat, deletion.
//! - [`Surveyor`]: what lies in a directory; [`assess`]: whether it is alive; [`clean`]: what crashes have
//!   left, removed.
//! - [`OwnerRecord`], [`this_process`], [`liveness`]: whose a directory is, and whether its owner runs.
//! - [`FileSystem`]: what kind of file system a path lies on, for speed and for messages. [`Mount`],
//!   [`Capacity`], [`Access`]: where it comes from, how much room it has, whose it is, for messages alone.
//! - [`make_rendezvous`], [`default_local`], [`check_writable`]: the directories above, and [`OwnUid`],
//!   whose our files are in the server's eyes.
//! - [`slow_place`]: says that a file system is waited for, as long as it does not answer.
//! - [`layout`], [`format`](mod@format): every name and every byte, pure.
//!
//! Below them all, `layout` has every name that the store writes. Each folder needs only those before it, with one
//! exception: the janitor of `lifecycle` keeps the directories of `messages`.
//!
//! - `os`: calls of the system, each kind in one file.
//! - `directory`: the directory in which ranks meet, and gather directories.
//! - `payload`: writing, announcing and reading payloads.
//! - `rendezvous`: ranks find each other through files.
//! - `messages`: messages between ranks as files.
//! - `lifecycle`: the end of a gather directory, and what crashes leave.
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
//! DIR/all_gather_via_filesys/                    the rendezvous directory; nobody removes it
//!   rendezvous-KEY-TIME-SALT                     a record of rank 0, while its world forms
//!   calls-WORLD-rRANK                            the last calls of a rank
//!   asked-WORLD-NONCE, answer-WORLD-NONCE-SALT   for a moment: what are the ranks doing?
//!   probe-NONCE                                  for a moment: can files be written here?
//!   unreachable-KEY-TIME-SALT                    a rank cannot reach the rank 0 of a record
//!   refusal-KEY-TIME-SALT                        a meeting has failed, for ranks that come later
//!   condemned-TIME-SALT-NONCE                    somebody is about to remove that gather directory
//!   gather-TIME-SALT/                            a gather directory, mode 0700
//!     owner                                      whose it is, as text
//!     beat-COUNTER                               its owner lives; a new name every 10 s
//!     staging/                                   payloads being written
//!     payloads/payload-cCHANNEL-eEPOCH-rRANK-NONCE
//!     probes/nonce-LABEL                         while the directory is being proved to be shared
//!     finished                                   the owner is done and has left it
//!     aborted                                    a survivor has seen the owner go
//!   gather-TIME-SALT/                            the same for messages, under marker control
//!     in/host-LABEL/letter-...                   what the other ranks say to rank 0
//!     out/bulletin-...                           what rank 0 says
//!     live/host-LABEL/beat-...                   hosts show that they are alive
//! ```
//!
//! `docs/design/on-disk-format.md` has the bytes and the promises, `docs/design/crash-safety.md` what a
//! crash leaves behind.

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
    AttemptClaim, EntryKind, FileDamage, SampleDirectory, SampleFileHeader, SampleFileStream,
    SampleId, SampleIndex, SampleWriter, ScannedFile, ValuePlace, WriterProgress, encode_samples,
    receive_sample_file,
};
