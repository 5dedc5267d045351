//! The ways in which ranks are introduced: [`Rendezvous`] and [`Bootstrap`].

use std::{fmt, path::PathBuf, sync::Arc, time::Instant};

use fsgather_config::settings::RendezvousSetting;
use fsgather_core::Error;

/// The way in which the ranks of a communicator find rank 0.
#[derive(Clone)]
#[non_exhaustive]
pub enum Rendezvous {
    /// Rank 0 leaves a record in this directory, which all ranks must see. Needs no known network names or ports.
    File(PathBuf),
    /// Rank 0 listens at `HOST:PORT`. Needs no shared directory.
    Tcp(String),
    /// An existing channel between the ranks carries rank 0's record.
    Custom(Arc<dyn Bootstrap>),
}

impl Rendezvous {
    /// Returns a rendezvous through a channel of the program's own.
    pub fn custom(bootstrap: impl Bootstrap + 'static) -> Self {
        Self::Custom(Arc::new(bootstrap))
    }

    /// Returns the rendezvous as a setting; `None` for a channel of the program's own, and for an address that is not
    /// valid.
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

    /// Fails for an engine: only a program can use one to introduce its ranks.
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

/// An existing channel that can carry a few hundred bytes from rank 0 to all other ranks: a store, a broadcast.
///
/// Each `fsgather::Builder::build` makes one call on each rank, [`publish`](Self::publish) on rank 0 and
/// [`fetch`](Self::fetch) on the others, on the thread that builds. So a collective broadcast is sufficient, and so is
/// a channel that is bound to a thread. Worlds of one rank make no call. After that the ranks use connections of their
/// own.
///
/// - The fetched record must come from this very build. A record of an earlier run in a store leads nowhere, which
///   shows only after the join time-out: give each run, and each of its communicators, a key of its own.
/// - The bytes contain the secret that opens the communicator; the channel must not show them to others.
/// - If rank 0 fails before it has a record, it publishes the reason instead, so that no rank waits in vain.
///
/// The documentation of `fsgather::Builder::rendezvous` has an example.
pub trait Bootstrap: Send + Sync {
    /// Sends rank 0's record to all other ranks.
    ///
    /// # Errors
    ///
    /// The reason why the record could not be sent, as a text: `fsgather::Builder::build` fails with it as
    /// [`Error::Rendezvous`].
    fn publish(&self, record: &[u8]) -> Result<(), String>;

    /// Waits for rank 0's record, until the deadline at most.
    ///
    /// # Errors
    ///
    /// That the deadline has passed, or any other failure, as a text: `fsgather::Builder::build` fails with it as
    /// [`Error::Timeout`] after the deadline and as [`Error::Rendezvous`] before it.
    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String>;
}
