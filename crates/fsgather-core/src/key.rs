//! The key that distinguishes jobs before their ranks have met: [`JobKey`].

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::WorldSize;

/// All facts that the ranks of one world share before they have exchanged messages.
///
/// Two worlds with equal keys in one directory at one time are not supported, and are detected only as far as possible.
/// A job name for each (`FSGATHER_JOB`) keeps them apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobKey {
    /// The user.
    pub uid: u32,
    /// The launcher family from which ranks got their numbers.
    pub family: String,
    /// The name of the job: from its user, else from its launcher, if either gives one.
    pub job: Option<String>,
    /// The launcher's id of the job, if it gives one that no other job has at the same time. It counts even if the user
    /// gave a name: two jobs for which a user exports one name are still two jobs.
    pub launch: Option<String>,
    /// The attempt at the job, if the launcher counts attempts.
    pub attempt: Option<String>,
    /// The number of ranks.
    pub world_size: WorldSize,
    /// The number of the communicator within its process, from 0.
    pub number: u32,
    /// Master address and port under launchers that set them for each job.
    pub master: Option<String>,
}

impl JobKey {
    /// Returns the key as a name of fixed width: half of it identifies the job without its size, half the whole key.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        let of_any_size = self.of_any_size().digest(b"fsgather key 2");
        let whole = self.digest(b"fsgather key 2");
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&of_any_size[..4]);
        bytes[4..].copy_from_slice(&whole[..4]);
        KeyHash(u64::from_be_bytes(bytes))
    }

    /// Returns the key of the job without its size: all of its ranks have it, even if their sizes differ.
    #[must_use]
    pub fn of_any_size(&self) -> Self {
        Self {
            world_size: WorldSize::ONE,
            ..self.clone()
        }
    }

    /// Returns a secret that all ranks can derive, and so can any process that knows the key: it keeps jobs apart, but
    /// does not authenticate.
    #[must_use]
    pub fn derived_secret(&self) -> [u8; 32] {
        self.digest(b"fsgather secret 2")
    }

    /// Hashes all fields, each preceded by its length, so that no two keys read alike.
    fn digest(&self, purpose: &[u8]) -> [u8; 32] {
        let numbers = [self.uid, self.world_size.get(), self.number].map(u32::to_le_bytes);
        let texts = [
            Some(self.family.as_str()),
            self.job.as_deref(),
            self.launch.as_deref(),
            self.attempt.as_deref(),
            self.master.as_deref(),
        ];
        let mut hasher = Sha256::new();
        hasher.update(purpose);
        for number in numbers {
            hasher.update(number);
        }
        for text in texts {
            match text {
                None => hasher.update(u64::MAX.to_le_bytes()),
                Some(text) => {
                    hasher.update((text.len() as u64).to_le_bytes());
                    hasher.update(text);
                }
            }
        }
        hasher.finalize().into()
    }
}

/// A [`JobKey`] in 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns true if both are of keys that differ only in the world size.
    #[must_use]
    pub const fn differs_in_size(self, other: Self) -> bool {
        self.0 >> 32 == other.0 >> 32 && self.0 != other.0
    }
}

impl From<u64> for KeyHash {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> JobKey {
        JobKey {
            uid: 1000,
            family: "slurm".into(),
            job: Some("42".into()),
            launch: None,
            attempt: None,
            world_size: WorldSize::ONE,
            number: 0,
            master: None,
        }
    }

    #[test]
    fn every_field_changes_the_key() {
        let variants = [
            key(),
            JobKey { uid: 1001, ..key() },
            JobKey {
                family: "torchrun".into(),
                ..key()
            },
            JobKey { job: None, ..key() },
            JobKey {
                job: Some(String::new()),
                ..key()
            },
            JobKey {
                launch: Some("42".into()),
                job: None,
                ..key()
            },
            JobKey {
                launch: Some("42".into()),
                ..key()
            },
            JobKey {
                attempt: Some("42".into()),
                job: None,
                ..key()
            },
            JobKey {
                world_size: WorldSize::new(2).unwrap(),
                ..key()
            },
            JobKey { number: 1, ..key() },
            JobKey {
                master: Some("n1:29500".into()),
                ..key()
            },
        ];
        for (i, one) in variants.iter().enumerate() {
            for other in &variants[i + 1..] {
                assert_ne!(one.hash(), other.hash(), "{one:?} {other:?}");
                assert_ne!(one.derived_secret(), other.derived_secret());
            }
        }
        assert_eq!(key().hash().to_string().len(), 16);
    }

    #[test]
    fn hashes_tell_whether_keys_differ_in_the_world_size_alone() {
        let sized = |size| JobKey {
            world_size: WorldSize::new(size).unwrap(),
            ..key()
        };
        let (two, three) = (sized(2).hash(), sized(3).hash());
        assert!(two.differs_in_size(three));
        assert!(three.differs_in_size(key().hash()));
        assert!(!two.differs_in_size(two));
        let other = JobKey {
            number: 1,
            ..sized(3)
        };
        assert!(!two.differs_in_size(other.hash()));
        assert_eq!(sized(2).of_any_size(), sized(3).of_any_size());
    }

    #[test]
    fn a_hash_is_written_as_its_number() {
        let hash = key().hash();
        assert_eq!(hash.to_string(), format!("{:016x}", hash.get()));
    }
}
