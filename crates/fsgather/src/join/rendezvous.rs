//! The ways in which ranks are introduced: [`Rendezvous`] and [`Bootstrap`].

use std::{fmt, path::PathBuf, sync::Arc, time::Instant};

use fsgather_config::settings::RendezvousSetting;
use fsgather_core::Error;

/// How the ranks of a communicator find rank 0.
#[derive(Clone)]
#[non_exhaustive]
pub enum Rendezvous {
    /// Rank 0 leaves a record in this directory, which all ranks must see. Needs no network names or
    /// ports to be known.
    File(PathBuf),
    /// Rank 0 listens at `HOST:PORT`. Needs no shared directory.
    Tcp(String),
    /// An existing channel between the ranks carries rank 0's record.
    Custom(Arc<dyn Bootstrap>),
}

impl Rendezvous {
    /// Introduces the ranks through a channel of the program's own.
    pub fn custom(bootstrap: impl Bootstrap + 'static) -> Self {
        Self::Custom(Arc::new(bootstrap))
    }

    /// The same as a setting; none for a channel of the program's own, and for an address that is none.
    #[must_use]
    pub fn setting(&self) -> Option<RendezvousSetting> {
        match self {
            Self::File(directory) => Some(RendezvousSetting::File(directory.clone())),
            Self::Tcp(address) => {
                let (host, port) = RendezvousSetting::host_and_port(address).ok()?;
                Some(RendezvousSetting::Tcp { host, port })
            }
            Self::Custom(_) => None,
        }
    }
}

impl TryFrom<&RendezvousSetting> for Rendezvous {
    type Error = Error;

    /// Fails for an engine: only a program can let one introduce its ranks.
    fn try_from(setting: &RendezvousSetting) -> Result<Self, Error> {
        match setting {
            RendezvousSetting::File(directory) => Ok(Self::File(directory.clone())),
            RendezvousSetting::Tcp { .. } => {
                let text = setting.to_string();
                let address = text.strip_prefix("tcp://").unwrap_or(&text);
                Ok(Self::Tcp(address.to_owned()))
            }
            RendezvousSetting::Engine(name) => Err(Error::config(format!(
                "FSGATHER_RENDEZVOUS={name}: has an engine introduce the ranks, which only programs in Python can let it do; name a \
                 directory or an address here: file://DIR or tcp://HOST:PORT"
            ))),
        }
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(directory) => f.debug_tuple("File").field(directory).finish(),
            Self::Tcp(address) => f.debug_tuple("Tcp").field(address).finish(),
            Self::Custom(_) => f.debug_tuple("Custom").finish_non_exhaustive(),
        }
    }
}

/// A channel that exists already and can carry a few hundred bytes from rank 0 to all others: a store,
/// a broadcast.
///
/// Each `fsgather::Builder::build` makes one call on each rank, [`publish`](Self::publish) on rank 0 and
/// [`fetch`](Self::fetch) on the others, on the thread that builds: so a collective broadcast will do, and
/// a channel that is bound to a thread. Worlds of one rank make none. From then on ranks talk to each
/// other over connections of their own.
///
/// - What is fetched has to come from this very build. A record that an earlier run has left in a store
///   leads nowhere, which is found out when the join time-out has passed: give each run, and each
///   communicator of it, a key of its own.
/// - The bytes hold the secret that opens the communicator; the channel must not show them to others.
/// - Rank 0 that fails before it has anything to publish hands over why instead, so that nobody waits in
///   vain.
///
/// The documentation of `fsgather::Builder::rendezvous` has an example.
pub trait Bootstrap: Send + Sync {
    /// Hands rank 0's record over to all other ranks.
    ///
    /// # Errors
    ///
    /// Whatever keeps the record from being handed over, as a text: `fsgather::Builder::build` fails
    /// with it as [`Error::Rendezvous`].
    fn publish(&self, record: &[u8]) -> Result<(), String>;

    /// Waits for rank 0's record, until the deadline at most.
    ///
    /// # Errors
    ///
    /// That the deadline has passed, or whatever else went wrong, as a text:
    /// `fsgather::Builder::build` fails with it as [`Error::Timeout`] after the
    /// deadline and as [`Error::Rendezvous`] before it.
    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String>;
}
