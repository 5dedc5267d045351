//! How ranks are introduced: [`Rendezvous`] and [`Bootstrap`].

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Error, Noticeboard};

use crate::settings::RendezvousSetting;

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
    pub(crate) fn setting(&self) -> Option<RendezvousSetting> {
        match self {
            Self::File(directory) => Some(RendezvousSetting::File(directory.clone())),
            Self::Tcp(address) => RendezvousSetting::parse(&format!("tcp://{address}")),
            Self::Custom(_) => None,
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
/// The bytes hold the secret that opens the communicator; the channel must not show them to others.
/// Methods may block.
pub trait Bootstrap: Send + Sync {
    /// Hands rank 0's record over; called once, on rank 0.
    ///
    /// # Errors
    ///
    /// Whatever keeps the record from being handed over, as a text.
    fn publish(&self, record: &[u8]) -> Result<(), String>;

    /// Waits for rank 0's record until the deadline; called on the other ranks.
    ///
    /// # Errors
    ///
    /// That the deadline has passed, or whatever else went wrong, as a text.
    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String>;
}

/// A [`Bootstrap`] as the control plane sees it.
pub(crate) struct BootstrapBoard {
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
}

/// How long one call of `fetch` may take before the join time-out is looked at again.
const FETCH_FOR: Duration = Duration::from_secs(10);

impl Noticeboard for BootstrapBoard {
    fn post(&self, record: &[u8]) -> Result<(), Error> {
        self.bootstrap
            .publish(record)
            .map_err(|why| Error::rendezvous(format!("rank 0's record was not handed over: {why}")))
    }

    fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
        match self.bootstrap.fetch(Instant::now() + FETCH_FOR) {
            Ok(record) => Ok(vec![record]),
            Err(why) => {
                tracing::debug!("no record from rank 0 yet: {why}");
                Ok(Vec::new())
            }
        }
    }

    fn place(&self) -> String {
        "the program's own rendezvous".into()
    }
}
