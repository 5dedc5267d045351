//! The results of one rank by name: [`Samples`].

use std::{fmt, fmt::Display, panic::Location, path::PathBuf, time::Instant};

use fsgather_config::working_directory;
use fsgather_core::{Error, Interrupt};
use fsgather_store::{EntryKind, SampleDirectory, SampleId, SampleWriter};
use serde::Serialize;

use crate::{
    Communicator,
    codec::{Codec, Postcard},
    samples::{
        agreement::Agreement,
        opening::{self, Opened},
        options::SampleOptions,
    },
};

/// Results of an evaluation by name: on disk within about a second, and gathered at the end.
///
/// Each process appends its results to a file of its own in a directory that all attempts share. Results of a killed
/// attempt count for the next one, whatever its number of ranks. So the results of all attempts together are those of one
/// undisturbed process.
///
/// ```
/// use fsgather::{Communicator, samples::{GatherOptions, SampleOptions, Samples}};
///
/// # let place = tempfile::tempdir()?;
/// # let directory = place.path().join("runs/mmlu");
/// let communicator = Communicator::from_env()?;
/// let options = SampleOptions::default().expect_count(100).config("model", "tiny");
/// let samples = Samples::open(&communicator, &directory, options)?;
/// for id in samples.share() {
///     samples.add(id.clone(), &format!("answer {id}"))?;
/// }
/// if let Some(results) = samples.gather(GatherOptions::to(0))? {
///     assert_eq!(results.len(), 100);
///     assert_eq!(results.get::<String>(&7.into())?, Some("answer 7".into()));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Samples<C = Postcard> {
    pub(crate) communicator: Communicator<C>,
    pub(crate) directory: PathBuf,
    pub(crate) options: SampleOptions,
    pub(crate) opened: Opened,
    /// Ends waits for a file system, besides the communicator's.
    interrupt: Option<Interrupt>,
}

impl<C: Codec> Samples<C> {
    /// Opens a directory of samples, together with all ranks, and makes it if it is not there.
    ///
    /// Ranks need not see one directory: results on local disks are counted wherever they are.
    ///
    /// # Errors
    ///
    /// On all ranks: [`Error::Config`] if a sample is expected twice, ranks expect different samples, or the
    /// configuration is not that of earlier attempts; [`Error::Storage`] if the directory cannot be read or written;
    /// [`Error::Incompatible`] if another version of fsgather wrote it; and those of every collective call.
    #[track_caller]
    pub fn open(
        communicator: &Communicator<C>,
        directory: impl Into<PathBuf>,
        options: SampleOptions,
    ) -> Result<Self, Error> {
        let site = communicator.place(Location::caller());
        let agreement = Agreement::new(communicator, site, "opening samples");
        let directory = SampleDirectory::resolve(working_directory::absolute(directory.into()));
        let opened = opening::open(&agreement, &directory, &options, &communicator.codec)?;
        Ok(Self {
            communicator: communicator.with_codec(communicator.codec.clone()),
            directory,
            options,
            opened,
            interrupt: None,
        })
    }

    /// Has this end waits for a file system as well. For bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn interrupted_by(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Adds a result, which is on disk about a second later.
    ///
    /// Waits while 64 MiB wait to be written. A sample may be added by several ranks: the first result counts.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a result that the codec cannot encode and in a forked child, and [`Error::Storage`] if
    /// results could not be written for ten minutes or this one is larger than a file may be.
    pub fn add<T: Serialize + ?Sized>(
        &self,
        id: impl Into<SampleId>,
        result: &T,
    ) -> Result<(), Error> {
        let id = id.into();
        let bytes = encode_result(&self.communicator.codec, &id, result)?;
        self.add_encoded(&id, &[&bytes])
    }

    /// Records that a sample has failed. It stays missing, and the next attempt does it again.
    ///
    /// # Errors
    ///
    /// Those of [`add`](Self::add).
    pub fn add_error(&self, id: impl Into<SampleId>, reason: impl Display) -> Result<(), Error> {
        let reason = reason.to_string();
        let mut check = || self.heed();
        self.writer().add(
            EntryKind::Failure,
            &id.into(),
            &[reason.as_bytes()],
            &mut check,
        )
    }

    /// Waits until everything that this rank has added is on disk.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if results could not be written for ten minutes.
    pub fn flush(&self) -> Result<(), Error> {
        self.writer().flush(&mut || self.heed())
    }

    /// Flushes, and ends the thread that writes. Not collective.
    ///
    /// # Errors
    ///
    /// Those of [`flush`](Self::flush).
    pub fn close(&self) -> Result<(), Error> {
        self.writer().close(&mut || self.heed())
    }
}

impl<C> Samples<C> {
    /// Samples that had no result when the directory was opened, in the order in which they are expected; the same on every rank.
    #[must_use]
    pub fn missing(&self) -> &[SampleId] {
        &self.opened.missing
    }

    /// This rank's part of [`missing`](Self::missing): every `world_size`-th sample, from the `rank`-th on.
    pub fn share(&self) -> impl Iterator<Item = &SampleId> {
        let ranks = self.communicator.world_size().count();
        let first = self.communicator.rank().index();
        self.opened.missing.iter().skip(first).step_by(ranks)
    }

    /// Missing samples that failed in earlier attempts, with the reasons.
    #[must_use]
    pub fn failed(&self) -> &[(SampleId, String)] {
        &self.opened.failed
    }

    /// Number of this attempt, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.opened.attempt
    }

    /// Path of the directory.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// The thread that writes the file of this rank. For bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn writer(&self) -> &SampleWriter {
        &self.opened.writer
    }

    /// Adds an encoded result. For bindings.
    ///
    /// # Errors
    ///
    /// Those of [`add`](Self::add).
    #[doc(hidden)]
    pub fn add_encoded(&self, id: &SampleId, pieces: &[&[u8]]) -> Result<(), Error> {
        let mut check = || self.heed();
        self.writer().add(EntryKind::Result, id, pieces, &mut check)
    }

    /// Returns an error once this process is to stop.
    pub(crate) fn heed(&self) -> Result<(), Error> {
        if let Some(interrupt) = &self.interrupt {
            interrupt.poll_if_due(Instant::now());
            if let Some(reason) = interrupt.reason() {
                return Err(Error::config(format!("interrupted: {reason}")));
            }
        }
        self.communicator.inner.heed()
    }
}

/// Encodes the result of a sample.
pub(crate) fn encode_result<C: Codec, T: Serialize + ?Sized>(
    codec: &C,
    id: &SampleId,
    result: &T,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    codec.encode(result, &mut bytes).map_err(|reason| {
        let codec = codec.name();
        Error::config(format!(
            "the result of sample {id} cannot be encoded in {codec}: {reason}"
        ))
    })?;
    Ok(bytes)
}

impl<C> fmt::Debug for Samples<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples")
            .field("directory", &self.directory)
            .field("attempt", &self.opened.attempt)
            .field("missing", &self.opened.missing.len())
            .finish_non_exhaustive()
    }
}
