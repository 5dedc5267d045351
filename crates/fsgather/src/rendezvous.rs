//! The ways in which ranks are introduced: [`Rendezvous`] and [`Bootstrap`].

use std::{fmt, path::PathBuf, sync::Arc, time::Instant};

use fsgather_config::settings::RendezvousSetting;

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
/// Each [`build`](crate::Builder::build) makes one call on each rank, [`publish`](Self::publish) on rank 0 and
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
/// # Examples
///
/// A file as the channel, for ranks that all see `path`:
///
/// ```
/// use std::{fs, path::PathBuf, thread, time::{Duration, Instant}};
///
/// use fsgather::{Bootstrap, Communicator, Rendezvous};
///
/// struct Note {
///     path: PathBuf,
/// }
///
/// impl Bootstrap for Note {
///     fn publish(&self, record: &[u8]) -> Result<(), String> {
///         // Whole or not at all: nobody must read half of it.
///         let draft = self.path.with_extension("draft");
///         fs::write(&draft, record)
///             .and_then(|()| fs::rename(&draft, &self.path))
///             .map_err(|error| error.to_string())
///     }
///
///     fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
///         loop {
///             match fs::read(&self.path) {
///                 Ok(record) => return Ok(record),
///                 Err(error) if Instant::now() > deadline => return Err(error.to_string()),
///                 Err(_) => thread::sleep(Duration::from_millis(10)),
///             }
///         }
///     }
/// }
///
/// # let directory = std::env::temp_dir().join(format!("fsgather-doc-{}", std::process::id()));
/// # fs::create_dir_all(&directory).expect("a directory");
/// # let path = directory.join("note");
/// let join = |rank| {
///     Communicator::builder()
///         .rank(rank)
///         .world_size(2)
///         .rendezvous(Rendezvous::custom(Note { path: path.clone() }))
/// #       .directory(&directory)
///         .build()
/// };
/// thread::scope(|scope| {
///     let other = scope.spawn(|| join(1)?.all_gather(&"one".to_owned()));
///     assert_eq!(join(0)?.all_gather(&"zero".to_owned())?, ["zero", "one"]);
///     other.join().expect("it does not panic").map(drop)
/// })?;
/// # fs::remove_dir_all(&directory).expect("our own");
/// # Ok::<(), fsgather::Error>(())
/// ```
pub trait Bootstrap: Send + Sync {
    /// Hands rank 0's record over to all other ranks.
    ///
    /// # Errors
    ///
    /// Whatever keeps the record from being handed over, as a text: [`build`](crate::Builder::build) fails
    /// with it as [`Error::Rendezvous`](crate::Error::Rendezvous).
    fn publish(&self, record: &[u8]) -> Result<(), String>;

    /// Waits for rank 0's record, until the deadline at most.
    ///
    /// # Errors
    ///
    /// That the deadline has passed, or whatever else went wrong, as a text:
    /// [`build`](crate::Builder::build) fails with it as [`Error::Timeout`](crate::Error::Timeout) after the
    /// deadline and as [`Error::Rendezvous`](crate::Error::Rendezvous) before it.
    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String>;
}
