//! Authentication and encryption of one connection: [`Handshake`], [`Sealed`] and its [`Records`].
//!
//! The handshake is Noise `NNpsk0`: both sides prove that they know the world's secret, and agree on fresh keys in one
//! round trip. The prologue binds version, communicator, job key, purpose and the rank that answers, so that a recorded or
//! reflected handshake fits nowhere else. A secret given by the user is mixed into that of the record, except for
//! [`ConnectionPurpose::Mismatch`], by which a process asks why it does not fit. Handshake messages change no state of the
//! world: the first message that does comes after, encrypted with keys that only this connection has.

use std::{fmt, sync::Arc};

use fsgather_core::Rank;
use snow::{Builder, HandshakeState, StatelessTransportState};
use uuid::Uuid;

use crate::{
    join::job_credentials::JobCredentials,
    wire::{ConnectionPurpose, PLAIN_LIMIT, TAG_LEN, VERSION},
};

/// docs/adr/0020-links-between-hosts-are-encrypted.md has the measurements.
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";

/// The shared knowledge of the members of a world before they connect.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The world to connect to.
    pub communicator: Uuid,
    /// Secret that only its members know.
    pub secret: [u8; 32],
    /// Key and secret of the job.
    pub job_credentials: JobCredentials,
}

impl Credentials {
    /// The secret that both sides of a connection must know.
    fn shared_key(&self, purpose: ConnectionPurpose) -> [u8; 32] {
        match purpose {
            ConnectionPurpose::Mismatch => self.secret,
            ConnectionPurpose::Control | ConnectionPurpose::Watch | ConnectionPurpose::Payload => {
                self.job_credentials.mix(&self.secret)
            }
        }
    }
}

impl fmt::Debug for Credentials {
    /// Without the secret: what is printed ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("communicator", &self.communicator)
            .finish_non_exhaustive()
    }
}

/// The other side does not know the secret, or expects another world, purpose or rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side does not know this world's secret")]
pub struct NotAuthentic;

/// A handshake half-way.
#[derive(Debug)]
pub struct Handshake {
    state: Box<HandshakeState>,
}

/// The longest handshake message, in bytes: a key and a tag.
pub const HANDSHAKE_LEN: usize = 48;

impl Handshake {
    /// Starts on the side that connected, to the rank `responder`; the bytes are for the other side.
    ///
    /// # Errors
    ///
    /// Never in practice: the parameters are fixed.
    pub fn initiate(
        credentials: &Credentials,
        purpose: ConnectionPurpose,
        responder: Rank,
    ) -> Result<(Self, Vec<u8>), NotAuthentic> {
        let prologue = prologue(credentials, purpose, responder);
        let mut state = builder(&prologue, &credentials.shared_key(purpose))?
            .build_initiator()
            .map_err(|_| NotAuthentic)?;
        let mut message = vec![0; HANDSHAKE_LEN];
        let length = state
            .write_message(&[], &mut message)
            .map_err(|_| NotAuthentic)?;
        message.truncate(length);
        let state = Box::new(state);
        Ok((Self { state }, message))
    }

    /// Ends on the side that connected, with the other side's answer.
    ///
    /// # Errors
    ///
    /// If the other side does not know the secret.
    pub fn finish(mut self, answer: &[u8]) -> Result<Sealed, NotAuthentic> {
        self.state
            .read_message(answer, &mut [])
            .map_err(|_| NotAuthentic)?;
        Sealed::new(*self.state)
    }

    /// Runs both steps on the side that was connected to, which is the rank `responder`; the bytes go back.
    ///
    /// # Errors
    ///
    /// If the other side does not know the secret, or expects another rank.
    pub fn respond(
        credentials: &Credentials,
        purpose: ConnectionPurpose,
        responder: Rank,
        first: &[u8],
    ) -> Result<(Sealed, Vec<u8>), NotAuthentic> {
        let prologue = prologue(credentials, purpose, responder);
        let mut state = builder(&prologue, &credentials.shared_key(purpose))?
            .build_responder()
            .map_err(|_| NotAuthentic)?;
        state
            .read_message(first, &mut [])
            .map_err(|_| NotAuthentic)?;
        let mut answer = vec![0; HANDSHAKE_LEN];
        let length = state
            .write_message(&[], &mut answer)
            .map_err(|_| NotAuthentic)?;
        answer.truncate(length);
        Ok((Sealed::new(state)?, answer))
    }
}

/// The keys of an established connection, for both directions.
///
/// Records are numbered in each direction, so none can be repeated, dropped or moved.
#[derive(Clone)]
pub struct Sealed {
    state: Arc<StatelessTransportState>,
}

impl Sealed {
    fn new(state: HandshakeState) -> Result<Self, NotAuthentic> {
        let state = state
            .into_stateless_transport_mode()
            .map_err(|_| NotAuthentic)?;
        Ok(Self {
            state: Arc::new(state),
        })
    }

    /// Encrypts a stream as records, numbered from `*number` on, and appends them to `records`.
    ///
    /// # Errors
    ///
    /// Never in practice: 2^64 records are not reached.
    pub fn seal(
        &self,
        plain: &[u8],
        number: &mut u64,
        records: &mut Records,
    ) -> Result<(), NotAuthentic> {
        for piece in plain.chunks(PLAIN_LIMIT) {
            let length = piece.len() + TAG_LEN;
            // PLAIN_LIMIT keeps the length below 2^16.
            let prefix = u16::try_from(length).map_err(|_| NotAuthentic)?;
            let (place, record) = records.append(length).split_at_mut(2);
            place.copy_from_slice(&prefix.to_le_bytes());
            self.state
                .write_message(*number, piece, record)
                .map_err(|_| NotAuthentic)?;
            *number += 1;
        }
        Ok(())
    }

    /// Decrypts one record, numbered `*number`, into `plain`, and returns its number of bytes.
    ///
    /// # Errors
    ///
    /// If the record was not made by the other side, or has another number.
    pub fn open(
        &self,
        record: &[u8],
        number: &mut u64,
        plain: &mut [u8],
    ) -> Result<usize, NotAuthentic> {
        let length = self
            .state
            .read_message(*number, record, plain)
            .map_err(|_| NotAuthentic)?;
        *number += 1;
        Ok(length)
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").finish_non_exhaustive()
    }
}

/// Encrypted records on their way to a socket. Its memory is used again without being cleared.
#[derive(Debug, Default)]
pub struct Records {
    memory: Vec<u8>,
    len: usize,
}

impl Records {
    /// The bytes to send.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Forgets all of them.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Makes room for a record of `length` bytes, with a length field before it.
    fn append(&mut self, length: usize) -> &mut [u8] {
        let start = self.len;
        self.len += 2 + length;
        if self.memory.len() < self.len {
            self.memory.resize(self.len, 0);
        }
        &mut self.memory[start..self.len]
    }
}

/// The data that both sides must agree on.
fn prologue(credentials: &Credentials, purpose: ConnectionPurpose, responder: Rank) -> Vec<u8> {
    let mut prologue = b"fsgather".to_vec();
    prologue.extend_from_slice(&VERSION.to_le_bytes());
    prologue.extend_from_slice(credentials.communicator.as_bytes());
    prologue.extend_from_slice(&credentials.job_credentials.key.to_le_bytes());
    prologue.push(purpose.code());
    prologue.extend_from_slice(&responder.get().to_le_bytes());
    prologue
}

fn builder<'a>(prologue: &'a [u8], secret: &'a [u8; 32]) -> Result<Builder<'a>, NotAuthentic> {
    let parameters = PATTERN.parse().map_err(|_| NotAuthentic)?;
    Builder::new(parameters)
        .prologue(prologue)
        .and_then(|builder| builder.psk(0, secret))
        .map_err(|_| NotAuthentic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(secret: u8) -> Credentials {
        Credentials {
            communicator: Uuid::from_u128(7),
            secret: [secret; 32],
            job_credentials: JobCredentials::default(),
        }
    }

    fn connect(
        client: &Credentials,
        server: &Credentials,
    ) -> Result<(Sealed, Sealed), NotAuthentic> {
        let (handshake, first) =
            Handshake::initiate(client, ConnectionPurpose::Control, Rank::ZERO)?;
        let (server, answer) =
            Handshake::respond(server, ConnectionPurpose::Control, Rank::ZERO, &first)?;
        Ok((handshake.finish(&answer)?, server))
    }

    #[test]
    fn both_sides_read_what_the_other_wrote() {
        let (client, server) = connect(&credentials(1), &credentials(1)).unwrap();
        let message = vec![42; 3 * PLAIN_LIMIT + 5];
        let (mut records, mut sent) = (Records::default(), 0);
        client.seal(b"before", &mut 99, &mut records).unwrap();
        records.clear();
        client.seal(&message, &mut sent, &mut records).unwrap();
        let wire = records.as_slice();
        let (mut read, mut received, mut rest) = (Vec::new(), 0, wire);
        let mut plain = vec![0; PLAIN_LIMIT];
        while let Some((prefix, tail)) = rest.split_first_chunk::<2>() {
            let (record, tail) = tail.split_at(u16::from_le_bytes(*prefix).into());
            let length = server.open(record, &mut received, &mut plain).unwrap();
            read.extend_from_slice(&plain[..length]);
            rest = tail;
        }
        assert_eq!(read, message);
        assert_eq!(sent, 4);
        assert!(!wire.windows(16).any(|window| window == [42; 16]));
    }

    #[test]
    fn a_wrong_secret_world_or_purpose_is_refused() {
        assert!(connect(&credentials(1), &credentials(2)).is_err());
        let other = Credentials {
            communicator: Uuid::from_u128(8),
            ..credentials(1)
        };
        assert!(connect(&credentials(1), &other).is_err());
        let (_, first) =
            Handshake::initiate(&credentials(1), ConnectionPurpose::Watch, Rank::ZERO).unwrap();
        assert!(
            Handshake::respond(
                &credentials(1),
                ConnectionPurpose::Control,
                Rank::ZERO,
                &first
            )
            .is_err()
        );
    }

    #[test]
    fn another_key_or_another_secret_that_was_given_is_refused() {
        let bound = |key, given: Option<u8>| Credentials {
            job_credentials: JobCredentials {
                key,
                secret: given.map(|byte| [byte; 32]),
            },
            ..credentials(1)
        };
        assert!(connect(&bound(5, Some(1)), &bound(5, Some(1))).is_ok());
        for other in [bound(6, Some(1)), bound(5, Some(2)), bound(5, None)] {
            assert!(connect(&bound(5, Some(1)), &other).is_err());
            assert!(connect(&other, &bound(5, Some(1))).is_err());
        }
        // A process with another secret can still learn of the mismatch, and only that.
        let (ours, other) = (bound(5, Some(1)), bound(5, Some(2)));
        let (_, first) =
            Handshake::initiate(&other, ConnectionPurpose::Mismatch, Rank::ZERO).unwrap();
        assert!(Handshake::respond(&ours, ConnectionPurpose::Mismatch, Rank::ZERO, &first).is_ok());
        assert!(Handshake::respond(&ours, ConnectionPurpose::Control, Rank::ZERO, &first).is_err());
    }

    #[test]
    fn another_rank_than_the_one_meant_does_not_answer() {
        let meant = Rank::new(3);
        let (_, first) =
            Handshake::initiate(&credentials(1), ConnectionPurpose::Payload, meant).unwrap();
        let respond =
            |rank| Handshake::respond(&credentials(1), ConnectionPurpose::Payload, rank, &first);
        assert!(respond(Rank::new(4)).is_err());
        assert!(respond(meant).is_ok());
    }

    #[test]
    fn secrets_are_not_printed() {
        assert!(!format!("{:?}", credentials(77)).contains("77"));
    }

    #[test]
    fn records_cannot_be_repeated_or_changed() {
        let (client, server) = connect(&credentials(1), &credentials(1)).unwrap();
        let mut records = Records::default();
        client.seal(b"once", &mut 0, &mut records).unwrap();
        let mut wire = records.as_slice().to_vec();
        let mut plain = vec![0; PLAIN_LIMIT];
        let mut received = 0;
        assert!(server.open(&wire[2..], &mut received, &mut plain).is_ok());
        assert!(server.open(&wire[2..], &mut received, &mut plain).is_err());
        wire[5] ^= 1;
        assert!(server.open(&wire[2..], &mut 0, &mut plain).is_err());
    }

    #[test]
    fn a_recorded_handshake_opens_nothing_later() {
        let (client, first) =
            Handshake::initiate(&credentials(1), ConnectionPurpose::Control, Rank::ZERO).unwrap();
        let (old, answer) = Handshake::respond(
            &credentials(1),
            ConnectionPurpose::Control,
            Rank::ZERO,
            &first,
        )
        .unwrap();
        let client = client.finish(&answer).unwrap();
        let (mut records, mut plain) = (Records::default(), vec![0; PLAIN_LIMIT]);
        client.seal(b"join", &mut 0, &mut records).unwrap();
        let wire = records.as_slice();
        assert!(old.open(&wire[2..], &mut 0, &mut plain).is_ok());
        // The same first message and the same record, replayed to a new responder.
        let (again, _) = Handshake::respond(
            &credentials(1),
            ConnectionPurpose::Control,
            Rank::ZERO,
            &first,
        )
        .unwrap();
        assert!(again.open(&wire[2..], &mut 0, &mut plain).is_err());
    }
}
