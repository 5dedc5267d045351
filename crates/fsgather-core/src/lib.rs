//! The vocabulary of all crates of fsgather, without I/O, except [`sys`], [`process_state`], [`stacks`], [`last_error`], [`ended_rank`]
//! and [`run_file`].
//!
//! # Words
//!
//! - **rank**: one process of a job, numbered from 0; see [`Rank`].
//! - **world size**: the number of ranks; see [`WorldSize`].
//! - **communicator**: one rank's membership of one group of ranks.
//! - **root**: the rank that sends in a broadcast, or receives in a gather.
//! - **payload**: the bytes that one rank hands over in one call.
//! - **epoch**: the number of a collective call within its channel; see [`Epoch`].
//! - **rendezvous**: the way in which ranks find each other before they can exchange messages; see
//!   [`RendezvousBackend`].
//! - **exchange**: the one primitive of the control plane; see [`Exchange`].
//!
//! `docs/glossary.md` has the long form. Time is always passed as an argument, and nothing else in this crate reads the
//! environment, the clock, files or sockets.

mod awake;
mod background_threads;
mod deadline;
mod epoch;
mod id;
mod private_mode;
mod rank;
mod text;
mod warning;

mod activity;
mod call;
mod call_event;
mod call_id;
mod call_name;
mod compression_setting;
mod control;
mod error;
mod peer;
mod rank_names;
mod whereabouts;
mod work_signs;

mod interrupt;
mod key;
mod mailbox;
mod received;
mod received_bytes;
mod rendezvous_backend;
mod room;
mod start;

mod exchange;

pub mod ended_rank;
pub mod hash;
pub mod last_error;
pub mod process_state;
pub mod run_file;
pub mod stacks;
pub mod sys;

#[cfg(any(test, fuzzing))]
pub mod fuzzing;

pub use activity::{Activity, Phase};
pub use awake::AwakeClock;
pub use background_threads::{BackgroundThread, BackgroundThreads, panic_text};
pub use call::{Call, Operation, Recipients, Site, TypeTag, Way};
pub use call_event::{CallEvent, Received, Route};
pub use call_id::CallId;
pub use call_name::CallName;
pub use compression_setting::CompressionSetting;
pub use control::Control;
pub use deadline::{Backoff, Deadline};
pub use epoch::{ChannelId, Epoch, Round, Step};
pub use error::{Error, ErrorKind, PeerFailure, StorageCause, form as error_form};
pub use exchange::{
    Contribution, Departure, Exchange, Leaves, Onlooker, Progress, ReclaimSink, Table, Ticket,
    Verdict,
};
pub use id::{GatherId, ParseGatherIdError, Salt};
pub use interrupt::Interrupt;
pub use key::{JobKey, KeyHash};
pub use mailbox::{Beat, InboundMessage, Mailbox, MailboxFactory, Retirement};
pub use peer::{Missing, Peer, ProcessId};
pub use private_mode::ANY_MODE;
pub use rank::{Rank, WorldSize};
pub use rank_names::RankNames;
pub use received::{DEEPEST_VALUE, Unreadable, read_message, read_value};
pub use received_bytes::read_message_in_place;
pub use rendezvous_backend::RendezvousBackend;
pub use room::room_for;
pub use start::{Kinship, Start, Starter};
pub use sys::{StandardError, lock, warning::speak_as};
pub use text::{
    bytes_text, ceil_boundary, duration_text, floor_boundary, plain_line, plain_text, rank_ranges,
    spelled_text, steers, typed_duration_text,
};
pub use warning::{FIRST_WARNING, WaitEnd, warning_after};
pub use whereabouts::{
    LockHolder, Look, MOST_FRAMES, Neighbour, RollCall, StackFrame, ThreadState, Whereabouts,
};
pub use work_signs::WorkSigns;
