//! Ranks gather their samples: [`Samples::gather`].

use std::{fmt, panic::Location, path::Path, time::Duration};

use bytes::Bytes;
use fsgather_core::{Error, Rank, Site, StorageCause, hash::Hash64, sys::clock};
use fsgather_store::{SampleDirectory, SampleFileName, SampleId, encode_samples};
use serde::{Deserialize, Serialize};

use crate::{
    Communicator,
    codec::{Codec, Postcard},
    samples::{
        SampleOptions,
        agreement::Agreement,
        handle::{Samples, encode_result},
        opening::{Hello, check_alike, check_headers, header},
        report::SampleReport,
        results::{Comparison, SampleResults},
        travelling::{self, Reader},
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
    destination: Option<Rank>,
    is_partial: bool,
    refuses_conflicts: bool,
    are_equal: Option<&'a Comparison<'a>>,
    output: Option<&'a str>,
}

impl<'a> GatherOptions<'a> {
    /// Gives the results to one rank.
    pub fn to(rank: impl Into<Rank>) -> Self {
        Self {
            destination: Some(rank.into()),
            ..Self::default()
        }
    }

    /// Gives the results to every rank.
    pub fn to_all() -> Self {
        Self::default()
    }

    /// Returns what there is, even if samples are missing or have failed.
    pub const fn partial(mut self) -> Self {
        self.is_partial = true;
        self
    }

    /// Fails if a sample has results that differ. Otherwise the first counts.
    pub const fn refuse_conflicts(mut self) -> Self {
        self.refuses_conflicts = true;
        self
    }

    /// Names the file that the caller writes afterwards, which all ranks must name alike. For bindings.
    #[doc(hidden)]
    pub const fn output(mut self, path: Option<&'a str>) -> Self {
        self.output = path;
        self
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
        f.debug_struct("GatherOptions")
            .field("destination", &self.destination)
            .field("is_partial", &self.is_partial)
            .field("refuses_conflicts", &self.refuses_conflicts)
            .finish_non_exhaustive()
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
    wanted: Wanted,
}

/// Options that all ranks must give alike.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Wanted {
    destination: Option<Rank>,
    is_partial: bool,
    refuses_conflicts: bool,
    /// Hash of the output's path.
    output: Option<u64>,
}

/// Judgement of a rank that has read the results.
#[derive(Serialize, Deserialize)]
enum Verdict {
    Complete,
    Refused(String),
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
        self.gather_from(options, self.communicator.place(Location::caller()))
    }

    /// The same, where messages name another place in the program. For bindings.
    ///
    /// # Errors
    ///
    /// Those of [`gather`](Self::gather).
    #[doc(hidden)]
    pub fn gather_at(
        &self,
        options: GatherOptions<'_>,
        site: impl Into<String>,
    ) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
        self.gather_from(options, Site::named(site))
    }

    fn gather_from(
        &self,
        options: GatherOptions<'_>,
        site: Site,
    ) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
        let agreement = Agreement::new(&self.communicator, site, "gathering samples");
        let rank = agreement.rank();
        let destination = options
            .destination
            .map(|destination| self.communicator.world_size().rank(destination.get()));
        let destination = destination.transpose()?;
        let added = self.flush().map(|()| Added {
            results: self.writer().progress().results,
            files: self.writer().files(),
            wanted: options.wanted(),
        });
        let added = agreement.agree(added)?;
        check_wanted(added.iter().map(|added| added.wanted))?;
        let reader = Reader {
            directory: &self.directory,
            leaders: &self.opened.leaders,
            destination,
        };
        travelling::bring_files(&agreement, &reader)?;
        let read = if reader.reads(rank) {
            self.read(&added, &options).map(Some)
        } else {
            Ok(None)
        };
        options.conclude(&agreement, read)
    }

    /// Reads the directory once everything that ranks have added is seen in it.
    fn read(
        &self,
        added: &[Added],
        options: &GatherOptions<'_>,
    ) -> Result<SampleResults<C>, Error> {
        let directory = self.read_complete(added)?;
        check_headers(&directory, &self.opened.header)?;
        let codec = self.communicator.codec.clone();
        let expected = self.options.expected.as_deref();
        let mut results = SampleResults::collect(directory, codec, expected, options.are_equal)?;
        results.report_mut().added = added.iter().map(|added| added.results).collect();
        Ok(results)
    }

    fn read_complete(&self, added: &[Added]) -> Result<SampleDirectory, Error> {
        let is_local = SampleDirectory::is_local(&self.directory);
        let began = clock::now();
        loop {
            let read = SampleDirectory::read(&self.directory)?;
            let Some(late) = late_file(&read, added) else {
                return Ok(read);
            };
            if is_local || clock::since(began) >= COMPLETION_LIMIT {
                let error = late.error(&self.directory);
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

/// Checks that all ranks gather in the same way.
fn check_wanted(wanted: impl Iterator<Item = Wanted>) -> Result<(), Error> {
    let mut first = None;
    for (rank, wanted) in wanted.enumerate() {
        let first = *first.get_or_insert(wanted);
        if wanted == first {
            continue;
        }
        let to = |wanted: Wanted| match wanted.destination {
            None => "to all ranks".to_owned(),
            Some(rank) => format!("to rank {rank}"),
        };
        let what = if wanted.destination != first.destination {
            format!("rank 0 gathers {}, rank {rank} {}", to(first), to(wanted))
        } else if wanted.output != first.output {
            format!("rank 0 and rank {rank} name different output files")
        } else {
            format!("rank 0 and rank {rank} treat missing or differing samples in different ways")
        };
        return Err(Error::config(format!("{what}; give the same to all ranks")));
    }
    Ok(())
}

impl GatherOptions<'_> {
    fn wanted(&self) -> Wanted {
        Wanted {
            destination: self.destination,
            is_partial: self.is_partial,
            refuses_conflicts: self.refuses_conflicts,
            output: self.output.map(|path| Hash64::of(path.as_bytes())),
        }
    }

    /// Has all ranks return alike what the reading ranks have found.
    fn conclude<C>(
        &self,
        agreement: &Agreement,
        read: Result<Option<SampleResults<C>>, Error>,
    ) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
        let (results, verdict) = match read {
            Ok(Some(results)) => {
                let verdict = self.judge(results.report());
                (Some(results), Ok(Some(verdict)))
            }
            Ok(None) => (None, Ok(None)),
            Err(error) => (None, Err(error)),
        };
        let verdicts = agreement.agree(verdict)?;
        let refused = verdicts
            .into_iter()
            .flatten()
            .find_map(|verdict| match verdict {
                Verdict::Complete => None,
                Verdict::Refused(reason) => Some(reason),
            });
        if let Some(results) = &results {
            let report = results.report();
            tracing::info!("gathered {report}");
            if !report.conflicts.is_empty() && !self.refuses_conflicts {
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

    fn judge(&self, report: &SampleReport) -> Verdict {
        if self.refuses_conflicts && !report.conflicts.is_empty() {
            return Verdict::Refused(report.conflicts_text());
        }
        if self.is_partial || report.is_complete() {
            return Verdict::Complete;
        }
        Verdict::Refused(report.incomplete_text())
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
    let name = codec.name().to_owned();
    gather_encoded(communicator, encoded, options, gathering, name)
}

/// The same for results that are encoded already. For bindings.
#[doc(hidden)]
#[track_caller]
pub fn gather_encoded<C: Codec>(
    communicator: &Communicator<C>,
    results: Result<Vec<(SampleId, Vec<u8>)>, Error>,
    options: SampleOptions,
    gathering: GatherOptions<'_>,
    encoding: String,
) -> Result<Option<SampleResults<C>>, GatherSamplesError<C>> {
    let agreement = Agreement::new(
        communicator,
        communicator.place(Location::caller()),
        "gathering samples",
    );
    let rank = agreement.rank();
    let header = header(&agreement, &options, encoding);
    // Entries are those of the file that has the same nonce in its name.
    let name = |rank: Rank| SampleFileName {
        attempt: 1,
        rank,
        nonce: rank.get().into(),
        part: 0,
    };
    let nonce = name(rank).nonce;
    let hello = options.check().and(results).and_then(|results| {
        let entries = results.iter().map(|(id, value)| (id, value.as_slice()));
        let contents = encode_samples(&header, nonce, entries)?;
        let hello = Hello::new(0, &options, &header);
        Ok((
            contents,
            (hello, (results.len() as u64, gathering.wanted())),
        ))
    });
    let (contents, hello) = match hello {
        Ok((contents, hello)) => (contents, Ok(hello)),
        Err(error) => (Vec::new(), Err(error)),
    };
    let (hellos, added): (Vec<_>, Vec<_>) = agreement.agree(hello)?.into_iter().unzip();
    check_alike(&hellos)?;
    let (added, wanted): (Vec<u64>, Vec<Wanted>) = added.into_iter().unzip();
    check_wanted(wanted.into_iter())?;
    let contents = Bytes::from(contents);
    let mut files = Vec::new();
    if let Some(destination) = gathering.destination {
        let destination = communicator.world_size().rank(destination.get())?;
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
    let reads = gathering
        .destination
        .is_none_or(|destination| destination == rank);
    let collect = || {
        let directory = SampleDirectory::from_memory(files)?;
        let (codec, expected) = (communicator.codec.clone(), options.expected);
        let are_equal = gathering.are_equal;
        let mut results = SampleResults::collect(directory, codec, expected.as_deref(), are_equal)?;
        results.report_mut().added = added;
        Ok(results)
    };
    let read = reads.then(collect).transpose();
    gathering.conclude(&agreement, read)
}

/// A file of which less is seen than its rank has written.
struct LateFile {
    name: SampleFileName,
    written: u64,
    seen: u64,
}

impl LateFile {
    fn error(&self, directory: &Path) -> Error {
        let Self {
            name,
            written,
            seen,
        } = self;
        let cause = StorageCause::described(format!(
            "rank {} has written {written} bytes to it, of which {seen} can be read",
            name.rank
        ));
        Error::storage("read samples from", directory.join(name.to_string()), cause)
    }
}

/// A file that has not been seen as long as its rank has made it. Files whose entries were never synced do not count.
fn late_file(read: &SampleDirectory, added: &[Added]) -> Option<LateFile> {
    for (name, written) in added.iter().flat_map(|added| &added.files) {
        let files = read.files();
        let found = files.binary_search_by_key(name, |file| file.name);
        let seen = found.map_or(0, |at| files[at].len - files[at].damage.tail_bytes);
        if seen < *written {
            return Some(LateFile {
                name: *name,
                written: *written,
                seen,
            });
        }
    }
    None
}

impl Reader<'_> {
    /// Whether this rank reads the results.
    fn reads(&self, rank: Rank) -> bool {
        self.destination
            .is_none_or(|destination| destination == rank)
    }
}
