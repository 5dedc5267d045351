//! Ranks gather their samples: [`Samples::gather`].

use std::{fmt, panic::Location, time::Duration};

use bytes::Bytes;
use fsgather_core::{Error, Rank, Site, StorageCause, WorldSize, hash::Hash64, sys::clock};
use fsgather_store::{SampleDirectory, SampleFileName, SampleId, encode_samples};
use serde::{Deserialize, Serialize};

use crate::{
    Communicator,
    codec::{Codec, Postcard},
    samples::{
        SampleOptions,
        agreement::Agreement,
        handle::{Samples, encode_result},
        opening::{Hello, check_alike, check_headers, header, warn_of_files},
        report::SampleReport,
        results::{Comparison, SampleResults},
        travelling,
    },
};

/// Maximum time until the last bytes of another host's file are visible over a network file system.
const COMPLETION_LIMIT: Duration = Duration::from_secs(90);
/// Time between looks for them.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Options of a gather of samples.
#[derive(Clone, Copy, Default)]
#[must_use]
pub struct GatherOptions<'a> {
    agreed: AgreedOptions,
    are_equal: Option<&'a Comparison<'a>>,
    problem: Option<&'a str>,
}

/// Options that all ranks must give alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AgreedOptions {
    destination: Option<Rank>,
    is_partial: bool,
    refuses_conflicts: bool,
    /// Hash of the output's path.
    output: Option<u64>,
}

impl<'a> GatherOptions<'a> {
    /// Gives the results to one rank.
    pub fn to(rank: impl Into<Rank>) -> Self {
        let mut options = Self::default();
        options.agreed.destination = Some(rank.into());
        options
    }

    /// Gives the results to every rank.
    pub fn to_all() -> Self {
        Self::default()
    }

    /// Returns what there is, even if samples are missing or have failed.
    pub const fn partial(mut self) -> Self {
        self.agreed.is_partial = true;
        self
    }

    /// Fails if a sample has results that differ. Otherwise the first counts.
    pub const fn refuse_conflicts(mut self) -> Self {
        self.agreed.refuses_conflicts = true;
        self
    }

    /// Names the file that the caller writes afterwards, which all ranks must name alike. For bindings.
    #[doc(hidden)]
    pub fn output(mut self, path: Option<&str>) -> Self {
        self.agreed.output = path.map(|path| Hash64::of(path.as_bytes()));
        self
    }

    /// Has the gather fail on all ranks, because this rank's arguments are wrong. For bindings.
    #[doc(hidden)]
    pub const fn wrong(mut self, problem: Option<&'a str>) -> Self {
        self.problem = problem;
        self
    }

    fn check(&self) -> Result<AgreedOptions, Error> {
        match self.problem {
            None => Ok(self.agreed),
            Some(problem) => Err(Error::config(problem)),
        }
    }

    /// Compares encoded results whose bytes differ. For bindings.
    #[doc(hidden)]
    pub const fn compare_with(mut self, are_equal: &'a Comparison<'a>) -> Self {
        self.are_equal = Some(are_equal);
        self
    }
}

impl fmt::Debug for GatherOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.agreed.fmt(f)
    }
}

/// Reason for which samples could not be gathered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatherSamplesError<C = Postcard> {
    /// A call or a file failed.
    #[error(transparent)]
    Failed(#[from] Error),
    /// Samples are missing, have failed, or have results that differ.
    #[error("{reason}")]
    #[non_exhaustive]
    Incomplete {
        /// The samples, and the number of results that each rank has added.
        reason: String,
        /// All results that there are, on ranks that would have got them.
        results: Option<Box<SampleResults<C>>>,
    },
}

/// Contribution of a rank: the results that it has added in this attempt.
#[derive(Serialize, Deserialize)]
struct Added {
    results: u64,
    files: Vec<(SampleFileName, u64)>,
    options: AgreedOptions,
}

impl<C: Codec> Samples<C> {
    /// Gathers the results of all attempts, together with all ranks. Ranks that get none return `None`.
    ///
    /// May be called again, after more results have been added.
    ///
    /// # Errors
    ///
    /// On all ranks: [`GatherSamplesError::Incomplete`], which carries the results on the ranks that would have got
    /// them, and [`GatherSamplesError::Failed`] for everything else. Added results stay on disk in any case.
    #[track_caller]
    pub fn gather(
        &self,
        options: GatherOptions<'_>,
    ) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
        self.gather_at(options, self.communicator.place(Location::caller()))
    }

    /// The same, where messages name another place in the program. For bindings.
    #[doc(hidden)]
    pub fn gather_at(
        &self,
        options: GatherOptions<'_>,
        site: Site,
    ) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
        let agreement = Agreement::new(&self.communicator, site, "gathering samples");
        let own = options.check().and_then(|options| {
            self.flush()?;
            Ok(Added {
                results: self.writer().progress().results,
                files: self.writer().files(),
                options,
            })
        });
        let added = agreement.agree(own)?;
        let destination = destination_of(&added, self.communicator.world_size())?;
        let leaders = &self.opened.leaders;
        travelling::bring_files(&agreement, &self.directory, leaders, destination)?;
        let read = || {
            let directory = self.read_complete(&added)?;
            check_headers(&directory, &self.opened.header)?;
            warn_of_files(&directory);
            Ok(directory)
        };
        let codec = &self.communicator.codec;
        options.conclude(&agreement, codec, &self.options, &added, read)
    }

    /// Reads the directory once everything that ranks have added is seen in it.
    fn read_complete(&self, added: &[Added]) -> Result<SampleDirectory, Error> {
        let is_local = SampleDirectory::is_local(&self.directory);
        let began = clock::now();
        loop {
            let read = SampleDirectory::read(&self.directory)?;
            let Some(error) = late_file(&read, added) else {
                return Ok(read);
            };
            if is_local || clock::since(began) >= COMPLETION_LIMIT {
                if self.options.expected.is_none() {
                    return Err(error);
                }
                // Its samples are counted as missing.
                fsgather_core::warn!("{error}");
                return Ok(read);
            }
            self.heed()?;
            clock::sleep(LOOK_INTERVAL);
        }
    }
}

/// Returns the rank that gets the results, if it is one; all ranks must gather in the same way.
fn destination_of(added: &[Added], world_size: WorldSize) -> Result<Option<Rank>, Error> {
    let Some(first) = added.first().map(|added| added.options) else {
        return Ok(None);
    };
    for (rank, Added { options, .. }) in added.iter().enumerate() {
        let to = |options: &AgreedOptions| match options.destination {
            None => "to all ranks".to_owned(),
            Some(rank) => format!("to rank {rank}"),
        };
        let what = if *options == first {
            continue;
        } else if options.destination != first.destination {
            format!("rank 0 gathers {}, rank {rank} {}", to(&first), to(options))
        } else if options.output != first.output {
            format!("rank 0 and rank {rank} name different output files")
        } else {
            format!("rank 0 and rank {rank} treat missing or differing samples in different ways")
        };
        return Err(Error::config(format!("{what}; give the same to all ranks")));
    }
    let destination = first.destination;
    destination
        .map(|destination| world_size.rank(destination.get()))
        .transpose()
}

impl GatherOptions<'_> {
    /// Has the ranks that get results read them, and all ranks return alike what these have found.
    fn conclude<C: Codec>(
        &self,
        agreement: &Agreement,
        codec: &C,
        options: &SampleOptions,
        added: &[Added],
        read: impl FnOnce() -> Result<SampleDirectory, Error>,
    ) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
        let destination = self.agreed.destination;
        let reads = destination.is_none_or(|destination| destination == agreement.rank());
        let collect = || -> Result<_, Error> {
            let expected = options.expected.as_deref();
            let mut results =
                SampleResults::collect(read()?, codec.clone(), expected, self.are_equal)?;
            results.report.added = added.iter().map(|added| added.results).collect();
            Ok(results)
        };
        let results = reads.then(collect).transpose();
        let refusal = match &results {
            Ok(Some(results)) => Ok(self.refusal(&results.report)),
            Ok(None) => Ok(None),
            Err(error) => Err(error.clone()),
        };
        let refused = agreement.agree(refusal)?.into_iter().flatten().next();
        let results = results?;
        if let Some(SampleResults { report, .. }) = &results {
            tracing::info!("gathered {report}");
            if !report.conflicts.is_empty() && !self.agreed.refuses_conflicts {
                fsgather_core::warn!("{}; the first of each counts", report.conflicts_text());
            }
        }
        match refused {
            None => Ok(results),
            Some(reason) => Err(GatherSamplesError::Incomplete {
                reason,
                results: results.map(Box::new),
            }),
        }
    }

    /// The reason for which results are an error, if they are one.
    fn refusal(&self, report: &SampleReport) -> Option<String> {
        if self.agreed.refuses_conflicts && !report.conflicts.is_empty() {
            return Some(report.conflicts_text());
        }
        let is_enough = self.agreed.is_partial || report.is_complete();
        (!is_enough).then(|| report.incomplete_text())
    }
}

/// Gathers results by name that are in memory, together with all ranks: the short form of [`Samples`], without a directory.
///
/// ```
/// use fsgather::{Communicator, samples::{GatherOptions, SampleOptions, gather_samples}};
///
/// let communicator = Communicator::solo();
/// let options = SampleOptions::default().expect_ids(["a", "b"]);
/// let results = gather_samples(&communicator, [("b", 2), ("a", 1)], options, GatherOptions::to(0))?;
/// let results = results.expect("this is rank 0");
/// assert_eq!(results.get::<i32>(&"a".into())?, Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of [`Samples::gather`].
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "as in `Samples::open`")]
pub fn gather_samples<C: Codec, I: Into<SampleId>, T: Serialize>(
    communicator: &Communicator<C>,
    results: impl IntoIterator<Item = (I, T)>,
    options: SampleOptions,
    gathering: GatherOptions<'_>,
) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
    let codec = &communicator.codec;
    let encode = |(id, result): (I, T)| {
        let id = id.into();
        let bytes = encode_result(codec, &id, &result)?;
        Ok((id, bytes))
    };
    let encoded = results.into_iter().map(encode).collect();
    gather_encoded(communicator, encoded, &options, gathering)
}

/// The same for results that are encoded already. For bindings.
#[doc(hidden)]
#[track_caller]
pub fn gather_encoded<C: Codec>(
    communicator: &Communicator<C>,
    results: Result<Vec<(SampleId, Vec<u8>)>, Error>,
    options: &SampleOptions,
    gathering: GatherOptions<'_>,
) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
    let site = communicator.place(Location::caller());
    let agreement = Agreement::new(communicator, site, "gathering samples");
    let header = header(&agreement, options, &communicator.codec);
    let name = |rank: Rank| SampleFileName::first(1, rank, rank.get().into());
    let own_name = name(agreement.rank());
    let mut contents = Vec::new();
    let own = options.check().and(results).and_then(|results| {
        let entries = results.iter().map(|(id, value)| (id, value.as_slice()));
        contents = encode_samples(&header, own_name, entries)?;
        let added = Added {
            results: results.len() as u64,
            files: Vec::new(),
            options: gathering.check()?,
        };
        let hello = Hello {
            last_attempt: 0,
            expected: options.digest(),
            header,
        };
        Ok((hello, added))
    });
    let (hellos, added): (Vec<_>, Vec<_>) = agreement.agree(own)?.into_iter().unzip();
    check_alike(&hellos)?;
    let contents = Bytes::from(contents);
    let mut files = Vec::new();
    if let Some(destination) = destination_of(&added, communicator.world_size())? {
        let parts = agreement.calls().gather(contents, destination)?;
        for part in parts.into_iter().flatten() {
            let (rank, payload) = part?;
            files.push((name(rank), Bytes::from_owner(payload)));
        }
    } else {
        let parts = agreement.calls().all_gather(contents)?;
        let named = (0..).map(|rank| name(Rank::new(rank)));
        files.extend(named.zip(parts.into_iter().map(Bytes::from_owner)));
    }
    let read = || SampleDirectory::from_memory(files);
    gathering.conclude(&agreement, &communicator.codec, options, &added, read)
}

/// Returns the error for a file that is not seen as long as its rank has made it. Files whose entries were never synced do not count.
fn late_file(read: &SampleDirectory, added: &[Added]) -> Option<Error> {
    let files = read.files();
    let mut written = added.iter().flat_map(|added| &added.files);
    written.find_map(|(name, written)| {
        let found = files.binary_search_by_key(name, |file| file.name);
        let seen = found.map_or(0, |at| files[at].len - files[at].damage.tail_bytes);
        let error = || {
            let cause = StorageCause::described(format!(
                "rank {} has written {written} bytes to it, of which {seen} can be read",
                name.rank
            ));
            let path = read.path().join(name.to_string());
            Error::storage("read samples from", path, cause)
        };
        (seen < *written).then(error)
    })
}
