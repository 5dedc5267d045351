//! The knowledge that processes of one job share before they have met, [`JobCredentials`], and the part of it that they
//! show, [`JobFingerprint`].

use std::fmt;

use fsgather_core::KeyHash;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Knowledge that processes of one job share before they have met.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct JobCredentials {
    /// Stands for the job's key; 0 if a channel of the program's own introduces ranks, whose keys may differ.
    pub key: u64,
    /// The secret that the user has given, if one was given and ranks meet by a record.
    pub secret: Option<[u8; 32]>,
}

/// The part of [`JobCredentials`] that a record, or a process that asks to join, shows: it tells which part differs, and
/// proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFingerprint {
    /// Key of the credentials.
    pub key: u64,
    /// The beginning of a hash of the secret that was given. Secrets are random, so it does not help to guess one.
    pub secret: Option<[u8; 16]>,
}

impl JobFingerprint {
    /// Returns true if both are of one job whose ranks were given different world sizes.
    #[must_use]
    pub fn differs_in_size(&self, other: &Self) -> bool {
        KeyHash::from(self.key).differs_in_size(other.key.into())
    }
}

impl JobCredentials {
    /// The part that may be shown to others.
    #[must_use]
    pub fn fingerprint(&self) -> JobFingerprint {
        let shown = |secret: &[u8; 32]| {
            let digest: [u8; 32] = digest(b"fsgather shown 1", &[secret]);
            let mut beginning = [0; 16];
            beginning.copy_from_slice(&digest[..16]);
            beginning
        };
        JobFingerprint {
            key: self.key,
            secret: self.secret.as_ref().map(shown),
        }
    }

    /// A record's secret mixed with the given one: knowing only one of them does not help.
    pub(crate) fn mix(&self, secret: &[u8; 32]) -> [u8; 32] {
        match &self.secret {
            None => *secret,
            Some(given) => digest(b"fsgather mixed 1", &[secret, given]),
        }
    }
}

/// All parts have one length.
fn digest(purpose: &[u8; 16], parts: &[&[u8; 32]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(purpose);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

impl fmt::Debug for JobCredentials {
    /// Without the secret: what is printed ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobCredentials")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job_credentials(secret: Option<u8>) -> JobCredentials {
        JobCredentials {
            key: 7,
            secret: secret.map(|byte| [byte; 32]),
        }
    }

    #[test]
    fn what_is_shown_tells_secrets_apart_and_does_not_hold_them() {
        let shown = [None, Some(1), Some(2)].map(|secret| job_credentials(secret).fingerprint());
        assert!(shown[0] != shown[1] && shown[1] != shown[2] && shown[0] != shown[2]);
        assert_eq!(shown[1], job_credentials(Some(1)).fingerprint());
        assert_ne!(shown[1].secret, Some([1; 16]));
        assert!(!format!("{:?}", job_credentials(Some(77))).contains("77"));
    }

    #[test]
    fn both_secrets_are_needed() {
        let mixed = |given, secret| job_credentials(given).mix(&[secret; 32]);
        assert_eq!(mixed(None, 3), [3; 32]);
        assert_ne!(mixed(Some(1), 3), mixed(Some(2), 3));
        assert_ne!(mixed(Some(1), 3), mixed(Some(1), 4));
        assert_ne!(mixed(Some(1), 3), mixed(Some(3), 1));
    }
}
