//! What rank 0 leaves for the others to find: [`Record`].

use std::{fmt, net::SocketAddr};

use fsgather_core::{Error, WorldSize};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{noise::Credentials, wire::VERSION};

/// How to reach a world, and the secret that opens it.
///
/// The bytes start with the version (2 bytes, little-endian), so that a record of another version is
/// explained rather than misread; the rest is postcard. Whoever stores the bytes guards them with a
/// checksum and against other users.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The identity of the world.
    pub communicator: Uuid,
    /// What members must know to join.
    pub secret: [u8; 32],
    /// Where rank 0 listens: all of its addresses.
    pub addresses: Vec<SocketAddr>,
    /// How many ranks the world will have.
    pub world_size: WorldSize,
    /// The name of rank 0's host, for messages.
    pub host: String,
    /// The kernel's boot id on rank 0's host: loopback addresses are of use only there.
    pub boot_id: String,
    /// The inode of rank 0's network namespace; 0 when unknown.
    pub network_namespace: u64,
}

impl fmt::Debug for Record {
    /// Without the secret: what is printed ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("communicator", &self.communicator)
            .field("addresses", &self.addresses)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl Record {
    /// As it is left behind.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Encoding plain data into a growing vector cannot fail.
        postcard::to_extend(self, VERSION.to_le_bytes().to_vec()).unwrap_or_default()
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
            return Err(Error::Incompatible {
                what: "a rendezvous record".into(),
                ours: VERSION.to_string(),
                theirs: version.to_string(),
            });
        }
        postcard::from_bytes(rest).map_err(|_| no_record())
    }

    /// What it takes to shake hands.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        Credentials {
            communicator: self.communicator,
            secret: self.secret,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(secret: [u8; 32], port: u16) -> Record {
        Record {
            communicator: Uuid::from_u128(1),
            secret,
            addresses: vec![
                SocketAddr::from(([10, 0, 0, 1], port)),
                SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)),
            ],
            world_size: WorldSize::ONE,
            host: "n1".into(),
            boot_id: "b".into(),
            network_namespace: 3,
        }
    }

    proptest! {
        #[test]
        fn records_convert_both_ways(secret: [u8; 32], port: u16) {
            let record = record(secret, port);
            prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Record::from_bytes(&bytes);
        }
    }

    #[test]
    fn another_version_is_explained() {
        let mut bytes = record([0; 32], 1).to_bytes();
        bytes[0] = 9;
        let error = Record::from_bytes(&bytes).unwrap_err();
        assert!(matches!(error, Error::Incompatible { .. }), "{error}");
    }
}
