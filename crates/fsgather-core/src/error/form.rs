//! The form of errors in messages: `#[serde(with = "fsgather_core::error_form")]`.
//!
//! [`Error`] itself has no such form, so that programs do not depend on it.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    Activity, Error, Missing, Peer, PeerFailure, Rank, RollCall, StorageCause, text::name,
};

#[derive(Serialize, Deserialize)]
#[serde(remote = "Error")]
enum ErrorForm {
    Config {
        message: String,
    },
    Rendezvous {
        message: String,
        unreached: Option<Rank>,
    },
    Timeout {
        #[serde(deserialize_with = "name")]
        during: String,
        timeout: Duration,
        missing: Vec<Missing>,
        hint: String,
        stacks: RollCall,
    },
    PeerFailed {
        peer: Peer,
        activity: Activity,
        failure: PeerFailure,
    },
    Desync {
        number: u64,
        difference: String,
        one: Box<Peer>,
        #[serde(deserialize_with = "name")]
        one_call: String,
        other: Box<Peer>,
        #[serde(deserialize_with = "name")]
        other_call: String,
        stacks: Box<RollCall>,
    },
    Storage {
        #[serde(with = "lossy_path")]
        path: PathBuf,
        #[serde(deserialize_with = "name")]
        operation: String,
        cause: StorageCause,
        peer: Option<Box<Peer>>,
        activity: Option<Activity>,
    },
    NotShared {
        #[serde(with = "lossy_path")]
        directory: PathBuf,
        hosts: Vec<String>,
        reason: String,
    },
    Corrupt {
        #[serde(with = "lossy_path")]
        path: PathBuf,
        reason: String,
        writer: Option<Peer>,
        reader: Option<Peer>,
    },
    TooLarge {
        peer: Peer,
        size: u64,
        bound: u64,
    },
    Incompatible {
        what: String,
        ours: String,
        theirs: String,
    },
    Poisoned {
        #[serde(with = "boxed")]
        cause: Box<Error>,
    },
}

/// Writes an error.
///
/// # Errors
///
/// Those of the serializer.
pub fn serialize<S: Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
    ErrorForm::serialize(error, serializer)
}

/// Reads an error.
///
/// # Errors
///
/// If the input is not an error.
pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Error, D::Error> {
    ErrorForm::deserialize(source)
}

/// The form of an optional error.
pub mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::SentError;
    use crate::Error;

    /// Writes an optional error.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        error: &Option<Error>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        error.clone().map(SentError).serialize(serializer)
    }

    /// Reads an optional error.
    ///
    /// # Errors
    ///
    /// If the input is neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Error>, D::Error> {
        let sent = Option::<SentError>::deserialize(source)?;
        Ok(sent.map(|SentError(error)| error))
    }
}

/// An error in this form, as a part of another message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentError(#[serde(with = "self")] pub Error);

/// Paths travel as text: a name that is not UTF-8 must not prevent an error from being reported.
mod lossy_path {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&path.to_string_lossy())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<PathBuf, D::Error> {
        String::deserialize(source).map(PathBuf::from)
    }
}

/// The form of the earlier error inside an [`Error::Poisoned`].
mod boxed {
    use serde::{Deserializer, Serializer};

    use crate::Error;

    pub(super) fn serialize<S: Serializer>(
        error: &Error,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        super::serialize(error, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        source: D,
    ) -> Result<Box<Error>, D::Error> {
        super::deserialize(source).map(Box::new)
    }
}
