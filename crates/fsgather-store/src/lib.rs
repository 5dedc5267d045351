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
//! - [`CompressionSetting`]: how its chunks are compressed, if at all.
//! - [`Locator`]: name, lengths and digest of a payload, as announced.
//! - [`Payload`], [`PayloadReader`]: verified bytes, as one slice or as a stream; [`CollectPolicy`] says
//!   how patiently and into what they are read. [`WritablePayload`]: bytes of one's own to write to.
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
//! - [`layout`], [`format`](mod@format): every name and every byte, pure.
//!
//! Pure modules (`layout`, `format`, `chunk_table`, `inventory`, `judgement`, `leftovers`, `locator`,
//! `owner`, `record`, `touching`) touch nothing. Each kind of system call has one owner: `file` (open,
//! write, sync, close), `listing` (statx, readdir, directories that are held), `directory` (mkdir, modes, touching), `reveal` (rename,
//! link), `remove` (unlink, rmdir), `filesystem` (statfs), `map` (mmap), `retry_budget` (sleeping), `process`
//! (`/proc`), `mount` (its table of mounts), `caretaker` (the thread that stays), `crew` (threads that end
//! with the call).
//!
//! # Cargo features
//!
//! - `lz4`: payloads compressed with LZ4, by a library in safe Rust.
//! - `zstd`: payloads compressed with Zstandard, by the library in C, which needs a C compiler to build.
//!
//! Both are off by default. A build without one refuses to write such payloads with
//! [`Error::Config`](fsgather_core::Error::Config), and to read them with
//! [`Error::Incompatible`](fsgather_core::Error::Incompatible), naming the feature.
//!
//! # Directory format
//!
//! ```text
//! DIR/all_gather_via_filesys/                    the rendezvous directory; nobody removes it
//!   rendezvous-KEY-TIME-SALT                     a record of rank 0, while its world forms
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
//!     finished                                   the owner is done but could not remove it
//!     aborted                                    a survivor has seen the owner go
//!   gather-TIME-SALT/                            the same for messages, under marker control
//!     in/host-LABEL/letter-...                   what the other ranks say to rank 0
//!     out/bulletin-...                           what rank 0 says
//!     live/host-LABEL/beat-...                   hosts show that they are alive
//! ```
//!
//! `docs/design/on-disk-format.md` has the bytes and the promises, `docs/design/crash-safety.md` what a
//! crash leaves behind.

pub mod format;
pub mod layout;

mod chunk_table;
mod compression;
mod detours;
mod directory;
mod file;
mod filesystem;
mod free_id;
mod inventory;
mod judgement;
mod keep_alive;
mod leftovers;
mod listing;
mod locator;
mod map;
mod marker_names;
mod message_file;
mod mount;
mod neighbours;
mod owner;
mod payload;
mod process;
mod random;
mod record;
mod record_file;
mod remove;
mod rendezvous_directory;
mod reserves;
mod retry_budget;
mod reveal;
mod sealed;
mod writable;

mod cleaning;
mod collect;
mod contents;
mod file_backend;
mod gather_dir;
mod janitor;
mod leftover;
mod message_dir;
mod message_dir_factory;
mod parallel;
mod payload_writer;
mod probe;
mod removal;
mod removal_mark;
mod removing;
mod source;
mod survey;
mod sweeping;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use cleaning::{Cleaning, CleaningStep, Failed, Kept, Planned, clean};
pub use collect::{CollectPolicy, PayloadReader};
pub use compression::CompressionSetting;
pub use directory::{Access, OwnUid, default_local};
pub use file::takes_no_data;
pub use file_backend::{BackendDirectory, FileBackend};
pub use filesystem::{Capacity, Class, FileSystem, free_bytes};
pub use format::{Compression, Encoding};
pub use gather_dir::{GatherDir, GatherFacts, read_owner};
pub use janitor::{Care, Janitor};
pub use judgement::{
    BEAT_PERIOD, BeatEvidence, Evidence, GatherState, Judgement, OwnerEvidence, Removable, Rules,
    assess,
};
pub use layout::PayloadName;
pub use leftover::{Leftover, Meeting};
pub use leftovers::LeftoverKind;
pub use locator::Locator;
pub use message_dir_factory::{MarkerOwner, MessageDirFactory};
pub use mount::Mount;
pub use owner::{OwnerRecord, OwnerRecordError, draw_id};
pub use payload::Payload;
pub use payload_writer::{PayloadId, PayloadWriter};
pub use probe::{Planted, ProbeNonce, cannot_be_shared, probers};
pub use process::{Liveness, Sighting, judge, liveness, own_user_text, this_process};
pub use removal::Removal;
pub use rendezvous_directory::{
    ANY_MODE, check_writable, check_writing, has_rendezvous, make_rendezvous,
    remove_empty_rendezvous,
};
pub use retry_budget::Progress;
pub use reveal::PublishMode;
pub use survey::{Survey, SurveyedGather, Surveyor};
pub use writable::WritablePayload;
