//! Gathered results by name: [`SampleResults`].

use std::{fmt, path::Path};

use fsgather_core::Error;
use fsgather_store::{SampleDirectory, SampleId, ScannedFile, ValuePlace};
use serde::de::DeserializeOwned;

use crate::{
    codec::{Codec, Postcard},
    samples::{
        opening::{check_headers, warn_of_files},
        options::{SampleOptions, read_expectation},
        report::SampleReport,
    },
};

/// Whether two encoded results hold equal values.
pub(crate) type Comparison<'a> = dyn Fn(&[u8], &[u8]) -> bool + 'a;

/// The results of an evaluation in the order in which they were expected.
///
/// They stay on disk and are read and decoded when they are asked for, so that this holds no more than where they are.
pub struct SampleResults<C = Postcard> {
    directory: SampleDirectory,
    codec: C,
    places: Vec<(SampleId, ValuePlace)>,
    /// Positions of `places`, sorted by id.
    by_id: Vec<u32>,
    pub(crate) report: SampleReport,
}

impl<C: Codec> SampleResults<C> {
    /// Reads a directory of samples without a job. The samples count that its last attempt expected.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it has no samples, or some of different configurations or encodings; [`Error::Storage`] if it
    /// cannot be read; [`Error::Incompatible`] if another version of fsgather wrote it.
    pub fn read(directory: &Path, codec: C) -> Result<Self, Error> {
        let options = SampleOptions::default().encoded_in(codec.name());
        Self::read_with(directory, codec, options, None)
    }
}

impl<C> SampleResults<C> {
    /// The same for results of any encoding, unless `options` has one, and for the samples that it expects. For bindings.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    #[doc(hidden)]
    pub fn read_with(
        directory: &Path,
        codec: C,
        options: SampleOptions,
        are_equal: Option<&Comparison<'_>>,
    ) -> Result<Self, Error> {
        let read = SampleDirectory::read(&SampleDirectory::resolve(directory.to_owned()))?;
        warn_of_files(&read);
        let last = read
            .files()
            .iter()
            .rev()
            .find_map(|file| file.header.clone());
        let Some(mut header) = last else {
            let directory = directory.display();
            return Err(Error::config(match read.files().len() {
                0 => format!("{directory} has no samples"),
                1 => format!("{directory} has no samples that can be read: 1 file is damaged"),
                files => format!(
                    "{directory} has no samples that can be read: {files} files are damaged"
                ),
            }));
        };
        if let Some(encoding) = options.encoding {
            encoding.clone_into(&mut header.encoding);
        }
        check_headers(&read, &header)?;
        let expected = match (options.expected, read.index().expectation()) {
            (Some(expected), _) => Some(expected),
            (None, Some(place)) => Some(read_expectation(&read.value(place)?)?),
            (None, None) => None,
        };
        Self::collect(read, codec, expected.as_deref(), are_equal)
    }

    /// The files that were read. For bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn files(&self) -> &[ScannedFile] {
        self.directory.files()
    }

    /// Name of the encoding of the results. For bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn encoding(&self) -> &str {
        let mut headers = self
            .files()
            .iter()
            .rev()
            .filter_map(|file| file.header.as_ref());
        headers.next().map_or("", |header| &header.encoding)
    }

    /// Takes the results that count out of what was read.
    pub(crate) fn collect(
        mut directory: SampleDirectory,
        codec: C,
        expected: Option<&[SampleId]>,
        are_equal: Option<&Comparison<'_>>,
    ) -> Result<Self, Error> {
        let index = directory.take_index();
        let count = |is_one: fn(&ScannedFile) -> bool| {
            let files = directory.files().iter();
            files.filter(|file| is_one(file)).count() as u64
        };
        let mut report = SampleReport {
            damaged_files: count(ScannedFile::is_damaged),
            cut_files: count(ScannedFile::is_cut),
            lost: directory.lost(),
            ..SampleReport::default()
        };
        let mut places: Vec<(SampleId, ValuePlace)> = Vec::new();
        let reason_of = |place| match directory.value(place) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => error.to_string(),
        };
        let mut note_failure = |id: &SampleId| {
            let reason = index.failure(id).map(reason_of)?;
            report.failed.push((id.clone(), reason));
            Some(())
        };
        if let Some(expected) = expected {
            for id in expected {
                match index.result(id) {
                    Some(place) => places.push((id.clone(), place)),
                    None if note_failure(id).is_some() => {}
                    None => report.missing.push(id.clone()),
                }
            }
            report.expected = Some(expected.len() as u64);
            report.unexpected = (index.len() - places.len()) as u64;
            report.other_spelling = report.missing.iter().find_map(|missing| {
                let other = missing.other_spelling()?;
                index.result(&other)?;
                Some((other, missing.clone()))
            });
        } else {
            let ids = index.ids().into_iter();
            places.extend(ids.filter_map(|id| Some((id.clone(), index.result(id)?))));
            for id in index.failed() {
                note_failure(id);
            }
        }
        report.gathered = places.len() as u64;
        let repeats = places.iter().map(|(id, _)| u64::from(index.repeats(id)));
        report.repeated = repeats.sum();
        let mut by_id: Vec<u32> = (0..).take(places.len()).collect();
        by_id.sort_unstable_by(|one, other| {
            let id = |position: &u32| &places[*position as usize].0;
            id(one).cmp(id(other))
        });
        let mut results = Self {
            directory,
            codec,
            places,
            by_id,
            report,
        };
        results.compare(index.different(), are_equal)?;
        Ok(results)
    }

    /// Number of results.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no result.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The samples that have a result, in order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &SampleId> {
        self.places.iter().map(|(id, _)| id)
    }

    /// Counts, missing samples, and failed ones.
    #[must_use]
    pub const fn report(&self) -> &SampleReport {
        &self.report
    }

    /// Compares results that came again with other bytes, and counts them.
    fn compare(
        &mut self,
        different: &[(SampleId, ValuePlace, ValuePlace)],
        are_equal: Option<&Comparison<'_>>,
    ) -> Result<(), Error> {
        let mut conflicts = Vec::new();
        let mut repeated = 0;
        for (id, first, other) in different {
            if self.position(id).is_none() {
                continue;
            }
            let is_equal = match are_equal {
                None => false,
                Some(are_equal) => are_equal(
                    &self.directory.value(*first)?,
                    &self.directory.value(*other)?,
                ),
            };
            if is_equal {
                repeated += 1;
            } else {
                conflicts.push(id.clone());
            }
        }
        conflicts.sort_unstable();
        conflicts.dedup();
        self.report.repeated += repeated;
        self.report.conflicts = conflicts;
        Ok(())
    }

    /// Position of a sample in the order.
    #[must_use]
    pub fn position(&self, id: &SampleId) -> Option<usize> {
        let found = self
            .by_id
            .binary_search_by(|position| self.places[*position as usize].0.cmp(id));
        Some(self.by_id[found.ok()?] as usize)
    }

    /// The sample at a position.
    #[must_use]
    pub fn id_at(&self, position: usize) -> Option<&SampleId> {
        self.places.get(position).map(|(id, _)| id)
    }

    /// Reads the encoded result at a position.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] if its file cannot be read, and [`Error::Corrupt`] if it has changed since it was gathered.
    pub fn encoded_at(&self, position: usize) -> Result<Option<Vec<u8>>, Error> {
        let place = self.places.get(position).map(|(_, place)| *place);
        place.map(|place| self.directory.value(place)).transpose()
    }
}

impl<C: Codec> SampleResults<C> {
    /// Reads the result of a sample; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Those of [`encoded_at`](Self::encoded_at), and [`Error::Config`] if it is of another type.
    pub fn get<T: DeserializeOwned>(&self, id: &SampleId) -> Result<Option<T>, Error> {
        let Some(position) = self.position(id) else {
            return Ok(None);
        };
        let encoded = self.encoded_at(position)?;
        encoded.map(|bytes| self.decode(id, &bytes)).transpose()
    }

    /// Reads all results in order.
    pub fn iter<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<(&SampleId, T), Error>> {
        self.places.iter().map(|(id, place)| {
            let bytes = self.directory.value(*place)?;
            Ok((id, self.decode(id, &bytes)?))
        })
    }

    fn decode<T: DeserializeOwned>(&self, id: &SampleId, bytes: &[u8]) -> Result<T, Error> {
        self.codec.decode(bytes).map_err(|reason| {
            Error::config(format!(
                "the result of sample {id} is no {}: {reason}",
                std::any::type_name::<T>()
            ))
        })
    }
}

impl<C> fmt::Debug for SampleResults<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleResults")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
