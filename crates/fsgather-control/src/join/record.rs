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

/// How to reach a world, and the secret that opens it.
///
/// The bytes start with the version (2 bytes, little-endian), so that a record of another version is
/// explained rather than misread; the rest is postcard. Whoever stores the bytes guards them with a
/// checksum and against other users.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RendezvousRecord {
    /// The identity of the world.
    pub communicator: Uuid,
    /// What members must know to join.
    pub secret: [u8; 32],
    /// Where rank 0 listens: all of its addresses; none when the world meets through marker files.
    pub addresses: Vec<SocketAddr>,
    /// Where messages are left when the world meets through marker files.
    pub markers: Option<MarkerPlace>,
    /// The reason why rank 0 has given up, for those that could not reach it.
    #[serde(with = "error_form::optional")]
    pub refusal: Option<Error>,
    /// Who has refused, where the refusal stays for those who come later.
    pub refuser: Option<Refuser>,
    /// How many ranks the world will have.
    pub world_size: WorldSize,
    /// The name of rank 0's host, for messages.
    pub host: String,
    /// The kernel's boot id on rank 0's host: loopback addresses are of use only there.
    pub boot_id: String,
    /// The inode of rank 0's network namespace; 0 when unknown.
    pub network_namespace: u64,
    /// Which job rank 0 belongs to, and which secret it was given.
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

/// Whom a refusal may concern.
#[derive(Clone, Debug)]
pub(crate) struct Addressee {
    pub(crate) process: ProcessId,
    /// The process that started it, if its job has no id of its own.
    pub(crate) start: Option<Start>,
    /// True if a user has named its job.
    pub(crate) is_named: bool,
    /// That of its job.
    pub(crate) key: u64,
}

/// Where ranks leave messages for each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerPlace {
    /// What rank 0's mailbox factory says of it.
    pub facts: Vec<u8>,
    /// Rank 0's process: once it is gone, nobody answers there.
    pub process: ProcessId,
}

/// What a rank leaves beside a record whose addresses it cannot reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachableReport {
    /// The world whose record it is.
    pub communicator: Uuid,
    /// Who cannot reach it.
    pub peer: Peer,
    /// What was tried, and what came of it.
    pub tried: String,
}

impl UnreachableReport {
    /// As it is left behind.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Reads one; `None` for bytes that are none, or of another version.
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
    /// As it is left behind.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Reads one.
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

    /// The reason why there will be no world, if this says so to such a process. Two jobs without an id may share a key; a refusal of
    /// another key was moved.
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

    /// How messages name its world.
    pub(crate) fn world_name(&self) -> String {
        let communicator = self.communicator.simple().to_string();
        format!("{} ({})", plain_line(&self.host), &communicator[..8])
    }

    /// Where its addresses were published.
    pub(crate) fn network(&self) -> Network<'_> {
        Network {
            boot_id: &self.boot_id,
            namespace: self.network_namespace,
        }
    }

    /// What it takes to shake hands, for a process that knows this besides.
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
        // Somebody has moved it.
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
        // Before the text its length, and before that the error, and the one around it.
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
