//! Tells jobs apart before their ranks have met: [`JobKey`].

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::WorldSize;

/// All that ranks of one world know alike before they have talked to each other.
///
/// Two worlds with equal keys in one directory at one time are not supported, only detected as well as
/// can be. Giving each its own job name (`FSGATHER_JOB`) keeps them apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobKey {
    /// The user.
    pub uid: u32,
    /// The launcher family by which ranks found out who they are.
    pub family: String,
    /// What the job is called: by its user, else by its launcher, if either does.
    pub job: Option<String>,
    /// The launcher's id of the job, if it gives one that no other job has at the same time. It counts beside a name that a user has
    /// given: who exports one name for two jobs has two jobs all the same.
    pub launch: Option<String>,
    /// Which attempt at the job this is, if the launcher counts them.
    pub attempt: Option<String>,
    /// How many ranks.
    pub world_size: WorldSize,
    /// The number of the communicator within its process, from 0.
    pub number: u32,
    /// Master address and port under launchers that set them for each job.
    pub master: Option<String>,
}

impl JobKey {
    /// The key as a name of fixed width: half of it stands for the job whatever its size, half for all of the key.
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        let of_any_size = self.of_any_size().digest(b"fsgather key 2");
        let whole = self.digest(b"fsgather key 2");
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&of_any_size[..4]);
        bytes[4..].copy_from_slice(&whole[..4]);
        KeyHash(u64::from_be_bytes(bytes))
    }

    /// The key of the job as one that all of its ranks have whatever size each was told.
    #[must_use]
    pub fn of_any_size(&self) -> Self {
        Self {
            world_size: WorldSize::ONE,
            ..self.clone()
        }
    }

    /// A secret that all ranks can derive, and so can everybody who knows the key: it keeps jobs
    /// apart and authenticates nobody.
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

    /// Whether both are of keys that differ in nothing but the world size.
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
