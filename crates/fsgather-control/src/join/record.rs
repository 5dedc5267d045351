//! The records that ranks leave for each other before they meet: [`RendezvousRecord`] and [`UnreachableReport`].

use std::{fmt, net::SocketAddr};

use fsgather_core::{
    Error, Peer, ProcessId, Start, WorldSize, error_form, plain_line, read_message,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    join::{
        addresses::Network,
        job_credentials::{JobCredentials, JobFingerprint},
    },
    tcp::noise::Credentials,
    wire::VERSION,
};

/// Addresses of a world, and the secret that opens it.
///
/// The bytes start with the version (2 bytes, little-endian), so that a record of another version is explained rather than
/// misread; the rest is postcard. The storage guards the bytes with a checksum and against other users.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RendezvousRecord {
    /// The identity of the world.
    pub communicator: Uuid,
    /// Secret that members need to join.
    pub secret: [u8; 32],
    /// All addresses on which rank 0 listens; empty if the world meets through marker files.
    pub addresses: Vec<SocketAddr>,
    /// Place of the messages if the world meets through marker files.
    pub markers: Option<MarkerPlace>,
    /// The reason why rank 0 has given up, for ranks that could not reach it.
    #[serde(with = "error_form::optional")]
    pub refusal: Option<Error>,
    /// The process that has refused, if the refusal stays for ranks that come later.
    pub refuser: Option<Refuser>,
    /// Number of ranks that the world will have.
    pub world_size: WorldSize,
    /// The name of rank 0's host, for messages.
    pub host: String,
    /// The kernel's boot id on rank 0's host: loopback addresses are of use only there.
    pub boot_id: String,
    /// The inode of rank 0's network namespace; 0 when unknown.
    pub network_namespace: u64,
    /// The job that rank 0 belongs to, and the secret that it was given.
    pub fingerprint: JobFingerprint,
}

/// A process on which a meeting has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refuser {
    /// The process.
    pub process: ProcessId,
    /// The process that started it, if its job has no id of its own.
    pub start: Option<Start>,
}

/// A process that a refusal may concern.
#[derive(Clone, Debug)]
pub(crate) struct Addressee {
    pub(crate) process: ProcessId,
    /// The process that started it, if its job has no id of its own.
    pub(crate) start: Option<Start>,
    /// True if a user has named its job.
    pub(crate) is_named: bool,
    /// Key of its job.
    pub(crate) key: u64,
}

/// The place where ranks leave messages for each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerPlace {
    /// Description of the place by rank 0's mailbox factory.
    pub facts: Vec<u8>,
    /// Rank 0's process: once it is gone, the place gives no answers.
    pub process: ProcessId,
}

/// A rank's report that it cannot reach the addresses of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachableReport {
    /// The world whose record it is.
    pub communicator: Uuid,
    /// The rank that cannot reach it.
    pub peer: Peer,
    /// The addresses that it tried, and the results.
    pub tried: String,
}

impl UnreachableReport {
    /// Encodes it for storage.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Decodes it; `None` for bytes that are no report, or one of another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk::<2>()?;
        (u16::from_le_bytes(*version) == VERSION).then(|| read_message(rest).ok())?
    }
}

fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    // Encoding plain data into a growing vector cannot fail.
    postcard::to_extend(value, VERSION.to_le_bytes().to_vec()).unwrap_or_default()
}

impl fmt::Debug for RendezvousRecord {
    /// Without the secret: what is printed ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RendezvousRecord")
            .field("communicator", &self.communicator)
            .field("addresses", &self.addresses)
            .field("markers", &self.markers)
            .field("refusal", &self.refusal)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl RendezvousRecord {
    /// Encodes it for storage.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Decodes it.
    ///
    /// # Errors
    ///
    /// [`Error::Incompatible`] for a record of another version, [`Error::Rendezvous`] for bytes that
    /// are no record.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let no_record = || Error::rendezvous("found bytes that are no rendezvous record");
        let (version, rest) = bytes.split_first_chunk::<2>().ok_or_else(no_record)?;
        let version = u16::from_le_bytes(*version);
        if version != VERSION {
            return Err(Error::incompatible(
                "a rendezvous record",
                VERSION.to_string(),
                version.to_string(),
            ));
        }
        read_message(rest).map_err(|_| no_record())
    }

    /// The reason why there will be no world, if this record refuses such a process. Two jobs without an id may share a
    /// key; a refusal of another key was moved.
    pub(crate) fn refusal_to(&self, addressee: &Addressee) -> Option<&Error> {
        let Addressee {
            process,
            start,
            is_named,
            key,
        } = addressee;
        let refuser = self.refuser.as_ref()?;
        let is_foreign = start.zip(refuser.start).is_some_and(|(own, its)| {
            let kinship = own.kinship(process, &its, &refuser.process);
            kinship.is_of_another_job(*is_named)
        });
        let is_for_it = !is_foreign && self.fingerprint.key == *key;
        self.refusal.as_ref().filter(|_| is_for_it)
    }

    /// Name of its world in messages.
    pub(crate) fn world_name(&self) -> String {
        let communicator = self.communicator.simple().to_string();
        format!("{} ({})", plain_line(&self.host), &communicator[..8])
    }

    /// The network in which its addresses were published.
    pub(crate) fn network(&self) -> Network<'_> {
        Network {
            boot_id: &self.boot_id,
            namespace: self.network_namespace,
        }
    }

    /// The credentials for a handshake by a process with these job credentials.
    #[must_use]
    pub fn credentials(&self, job_credentials: &JobCredentials) -> Credentials {
        Credentials {
            communicator: self.communicator,
            secret: self.secret,
            job_credentials: job_credentials.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::Starter;
    use proptest::prelude::*;

    use super::*;

    fn record(secret: [u8; 32], port: u16) -> RendezvousRecord {
        RendezvousRecord {
            communicator: Uuid::from_u128(1),
            secret,
            addresses: vec![
                SocketAddr::from(([10, 0, 0, 1], port)),
                SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)),
            ],
            markers: None,
            refusal: None,
            refuser: None,
            world_size: WorldSize::ONE,
            host: "n1".into(),
            boot_id: "b".into(),
            network_namespace: 3,
            fingerprint: JobFingerprint::default(),
        }
    }

    proptest! {
        #[test]
        fn records_convert_both_ways(secret: [u8; 32], port: u16) {
            let record = record(secret, port);
            prop_assert_eq!(RendezvousRecord::from_bytes(&record.to_bytes()), Ok(record));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RendezvousRecord::from_bytes(&bytes);
        }
    }

    #[test]
    fn a_refusal_of_another_start_or_another_key_is_none_of_ours() {
        let process = ProcessId {
            boot_id: "b".into(),
            pid_namespace: 1,
            ..ProcessId::default()
        };
        let by = |pid| Start {
            starter: Some(Starter { pid, start_time: 7 }),
            session: 3,
            is_whole: false,
        };
        let cause = Error::rendezvous("no world");
        let record = RendezvousRecord {
            refusal: Some(cause.clone()),
            refuser: Some(Refuser {
                process: process.clone(),
                start: Some(by(10)),
            }),
            ..record([0; 32], 1)
        };
        let addressee = |start, key| Addressee {
            process: process.clone(),
            start,
            is_named: false,
            key,
        };
        assert_eq!(record.refusal_to(&addressee(Some(by(10)), 0)), Some(&cause));
        assert_eq!(record.refusal_to(&addressee(None, 0)), Some(&cause));
        assert_eq!(record.refusal_to(&addressee(Some(by(11)), 0)), None);
        // A name may belong to several starts.
        let named = Addressee {
            is_named: true,
            ..addressee(Some(by(11)), 0)
        };
        assert_eq!(record.refusal_to(&named), Some(&cause));
        // The record has been moved to another job.
        assert_eq!(record.refusal_to(&addressee(Some(by(10)), 1)), None);
    }

    #[test]
    fn a_refusal_in_a_refusal_and_so_on_is_no_record() {
        let record = RendezvousRecord {
            refusal: Some(Error::config("no world, and this is why").poisoned()),
            ..record([0; 32], 1)
        };
        let mut bytes = record.to_bytes();
        assert_eq!(RendezvousRecord::from_bytes(&bytes), Ok(record));
        let text = bytes.windows(2).position(|two| two == b"no").unwrap();
        // The text is preceded by its length, that by the error, and that by the one around it.
        let around = text - 3;
        bytes.splice(around..around, vec![bytes[around]; 5000]);
        let error = RendezvousRecord::from_bytes(&bytes).unwrap_err();
        assert!(matches!(error, Error::Rendezvous { .. }), "{error}");
    }

    #[test]
    fn another_version_is_explained() {
        let mut bytes = record([0; 32], 1).to_bytes();
        bytes[0] = bytes[0].wrapping_add(1);
        let error = RendezvousRecord::from_bytes(&bytes).unwrap_err();
        assert!(matches!(error, Error::Incompatible { .. }), "{error}");
    }
}
