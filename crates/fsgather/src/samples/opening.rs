//! Ranks open a directory of samples together: [`open`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, SystemTime},
};

use fsgather_core::{
    Error, ProcessId, Rank, duration_text,
    sys::{clock, random},
};
use fsgather_store::{
    AttemptClaim, Liveness, SampleDirectory, SampleFileHeader, SampleFileName, SampleId,
    SampleWriter, ScannedFile, liveness,
};
use serde::{Deserialize, Serialize};

use crate::{
    codec::Codec,
    join::this_process::process_or_unknown,
    samples::{
        JSON_LINES,
        agreement::Agreement,
        options::{SampleOptions, config_difference},
        report::results_text,
    },
};

/// Maximum time until a new file is visible to another host over a network file system.
const VISIBILITY_LIMIT: Duration = Duration::from_secs(10);
/// Time between looks for it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// An attempt whose processes cannot be seen is taken to be alive if a file of it has changed since so long.
const ACTIVE_WITHIN: Duration = Duration::from_secs(10);
/// Longest list of expected samples that the files of all ranks have, so that no damage hides which samples are missing; only
/// those of rank 0 have a longer one.
const MAX_REPEATED_EXPECTATION_BYTES: usize = 64 << 10;
/// Longest reason of a failed sample that is sent to other ranks, in characters.
const MAX_REASON_CHARS: usize = 500;

/// The outcome of opening, on one rank.
pub(crate) struct Opened {
    pub(crate) attempt: u32,
    pub(crate) missing: Vec<SampleId>,
    pub(crate) failed: Vec<(SampleId, String)>,
    pub(crate) writer: SampleWriter,
    /// Origin of this rank's files.
    pub(crate) header: SampleFileHeader,
    /// For each rank the lowest rank that sees the same directory.
    pub(crate) leaders: Vec<Rank>,
}

/// First contribution of a rank: its arguments, and the last attempt that it sees.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) last_attempt: u32,
    pub(crate) expected: Option<(u64, u128)>,
    pub(crate) header: SampleFileHeader,
}

/// Samples that a directory holds, by positions among those that are expected, or have failed if none are.
#[derive(Serialize, Deserialize)]
struct Found {
    /// A bit for each of these samples: whether it has a result.
    done: Vec<u8>,
    failed: Vec<(u32, String)>,
    /// Results of samples that are not expected.
    unexpected: u64,
}

pub(crate) fn open(
    agreement: &Agreement,
    directory: &Path,
    options: &SampleOptions,
    codec: &impl Codec,
) -> Result<Opened, Error> {
    let rank = agreement.rank();
    let header = header(agreement, options, codec);
    let hello = options.check().and_then(|()| {
        SampleDirectory::make(directory)?;
        Ok(Hello {
            last_attempt: SampleDirectory::last_attempt(directory)?,
            expected: options.digest(),
            header: header.clone(),
        })
    });
    let hellos = agreement.agree(hello)?;
    check_alike(&hellos)?;
    let last = hellos.iter().map(|hello| hello.last_attempt).max();
    let claim = (rank == Rank::ZERO)
        .then(|| AttemptClaim::take(directory, last.unwrap_or_default() + 1))
        .transpose();
    let number = claim
        .as_ref()
        .map(|claim| claim.as_ref().map(AttemptClaim::number));
    let numbers = agreement.agree(number.map_err(Error::clone))?;
    let attempt = numbers.into_iter().flatten().next().unwrap_or_default();
    let name = SampleFileName::first(attempt, rank, random::fresh());
    let expectation = options.expectation().filter(|expectation| {
        rank == Rank::ZERO || expectation.len() <= MAX_REPEATED_EXPECTATION_BYTES
    });
    let expectation = expectation.unwrap_or_default();
    let writer = SampleWriter::create(directory, name, &header, &expectation);
    let created = writer.as_ref().map(|_| name).map_err(Error::clone);
    let names = agreement.agree(created)?;
    let writer = writer?;
    if let Some(claim) = claim? {
        writer.hold(claim);
    }
    let leaders = agreement.agree(Ok(leader_of(directory, &names, rank)))?;
    let is_leader = leaders[rank.index()] == rank;
    let processes: Vec<_> = hellos.iter().map(|hello| &hello.header.process).collect();
    let read = is_leader.then(|| look_into(directory, &header, &processes));
    let read = read.transpose();
    let expected = if let Some(expected) = &options.expected {
        Cow::Borrowed(expected.as_slice())
    } else {
        // Only failed samples are known to be missing.
        let own = read.as_ref().map(|read| failed_ids(read.as_ref()));
        let failed = agreement.agree(own.map_err(Error::clone))?;
        let failed: BTreeSet<SampleId> = failed.into_iter().flatten().collect();
        Cow::Owned(failed.into_iter().collect())
    };
    // Readers must learn of other expected samples even if this attempt adds nothing.
    if let Ok(Some(read)) = &read
        && !expectation.is_empty()
        && earlier_expectation(read, &names).as_ref() != Some(&expectation)
    {
        writer.keep_file();
    }
    let found = read.and_then(|read| {
        let found = read.map(|read| Found::among(&expected, &read));
        found.transpose()
    });
    let found: Vec<Found> = agreement.agree(found)?.into_iter().flatten().collect();
    let opened = Opened {
        attempt,
        missing: missing(&expected, &found),
        failed: failed(&expected, &found),
        writer,
        header,
        leaders,
    };
    if rank == Rank::ZERO {
        report(directory, expected.len(), &opened, &found);
    }
    Ok(opened)
}

/// Origin of the files of this process.
pub(crate) fn header(
    agreement: &Agreement,
    options: &SampleOptions,
    codec: &impl Codec,
) -> SampleFileHeader {
    let began = clock::wall().duration_since(SystemTime::UNIX_EPOCH);
    SampleFileHeader {
        encoding: options.encoding.unwrap_or(codec.name()).to_owned(),
        config: options.config.clone(),
        world_size: agreement.calls().world_size().get(),
        process: process_or_unknown(),
        job: agreement.calls().inner.world.context.job.clone(),
        began: began.unwrap_or_default().as_secs(),
    }
}

/// Checks that all ranks were asked for the same.
pub(crate) fn check_alike(hellos: &[Hello]) -> Result<(), Error> {
    let Some(first) = hellos.first() else {
        return Ok(());
    };
    for (rank, hello) in hellos.iter().enumerate() {
        let what = if hello.expected != first.expected {
            let text = |expected: Option<(u64, u128)>| match expected {
                None => "any samples".to_owned(),
                Some((count, _)) => format!("{count} samples"),
            };
            let (one, other) = (text(first.expected), text(hello.expected));
            let note = if one == other {
                ", but others or in another order"
            } else {
                ""
            };
            format!("rank 0 expects {one}, rank {rank} {other}{note}")
        } else if let Some(difference) = difference(&first.header, &hello.header) {
            format!("rank {rank} has {difference} than rank 0")
        } else {
            continue;
        };
        return Err(Error::config(format!(
            "ranks open different samples: {what}; give the same to all"
        )));
    }
    Ok(())
}

/// The lowest rank whose file this rank sees: the one that reads the directory for both.
fn leader_of(directory: &Path, names: &[SampleFileName], rank: Rank) -> Rank {
    let is_visible = |name: &SampleFileName| SampleDirectory::sees(directory, *name);
    let is_local = SampleDirectory::is_local(directory);
    let began = clock::now();
    while let Some(first) = names.first() {
        if is_visible(first) {
            return Rank::ZERO;
        }
        if is_local || clock::since(began) >= VISIBILITY_LIMIT {
            break;
        }
        clock::sleep(LOOK_INTERVAL);
    }
    let before = names.iter().take(rank.index());
    let visible = before.zip(0..).find(|(name, _)| is_visible(name));
    visible.map_or(rank, |(_, lower)| Rank::new(lower))
}

/// Reads a directory, checks that its results may be taken, and warns of other attempts than that of `processes`.
fn look_into(
    directory: &Path,
    header: &SampleFileHeader,
    processes: &[&ProcessId],
) -> Result<SampleDirectory, Error> {
    let read = SampleDirectory::read(directory)?;
    check_headers(&read, header)?;
    warn_of_files(&read);
    if let Some(other) = other_attempt(&read, header, processes) {
        fsgather_core::warn!("{other}");
    }
    Ok(read)
}

/// Returns the samples of a directory that have failed and have no result.
fn failed_ids(read: Option<&SampleDirectory>) -> Vec<SampleId> {
    let failed = read.map(|read| read.index().failed());
    failed.into_iter().flatten().cloned().collect()
}

/// The samples that the attempt before this one expects.
fn earlier_expectation(read: &SampleDirectory, names: &[SampleFileName]) -> Option<Vec<u8>> {
    let is_own = |file: &ScannedFile| names.iter().any(|name| name.nonce == file.name.nonce);
    read.expectation_of(read.files().iter().filter(|file| !is_own(file)))
}

/// Checks that all files of a directory hold results that may be taken together with those of this attempt.
pub(crate) fn check_headers(read: &SampleDirectory, own: &SampleFileHeader) -> Result<(), Error> {
    for file in read.files() {
        let Some(header) = &file.header else {
            continue;
        };
        if let Some(difference) = difference(header, own) {
            let readers = if header.encoding == JSON_LINES && own.encoding != JSON_LINES {
                "shell jobs have added them: `fsgather samples` and fsgather.read_samples read them; "
            } else {
                ""
            };
            return Err(Error::config(format!(
                "{} has results of attempt {} on {} with {difference}; {readers}name another directory for these results",
                read.path().display(),
                file.name.attempt,
                header.process.host,
            )));
        }
    }
    Ok(())
}

/// Names the difference for which results of two origins may not be taken together.
fn difference(earlier: &SampleFileHeader, now: &SampleFileHeader) -> Option<String> {
    if earlier.config != now.config {
        let difference = config_difference(earlier.config.as_ref(), now.config.as_ref());
        return Some(format!("another configuration ({difference})"));
    }
    (earlier.encoding != now.encoding).then(|| {
        format!(
            "another encoding ({} -> {})",
            earlier.encoding, now.encoding
        )
    })
}

/// Warns of files that are damaged, cut or left out.
pub(crate) fn warn_of_files(read: &SampleDirectory) {
    for (path, uid) in read.foreign() {
        fsgather_core::warn!(
            "{} is left out: uid {uid} owns it, and all users may write into this directory; take that permission away \
             with `chmod o-w`",
            path.display()
        );
    }
    for file in read.files() {
        if file.is_damaged() {
            fsgather_core::warn!(
                "{} is damaged: {}; results that cannot be read count as missing",
                file.path.display(),
                file.damage_text()
            );
        }
    }
    let mut cut = read.files().iter().filter(|file| file.is_cut());
    if let Some(first) = cut.next() {
        let others = match cut.count() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        fsgather_core::warn!(
            "{}{others}: the last bytes are not a whole result, as after an interrupted write; results that were cut off \
             count as missing",
            first.path.display()
        );
    }
    if read.lost() > 0 {
        fsgather_core::warn!(
            "{}: at least {} that were added before others cannot be read",
            read.path().display(),
            results_text(read.lost())
        );
    }
}

/// Describes another attempt that still runs, in other processes than those of this one.
fn other_attempt(
    read: &SampleDirectory,
    own: &SampleFileHeader,
    processes: &[&ProcessId],
) -> Option<String> {
    // Processes of a shell job add at the same time, each by itself.
    if own.encoding == JSON_LINES {
        return None;
    }
    let files = read.files().iter();
    let (file, header) = files
        .filter_map(|file| Some((file, file.header.as_ref()?)))
        .filter(|(_, header)| !processes.contains(&&header.process))
        .rfind(|(file, header)| is_active(file, header, own))?;
    let job = header.job.as_ref().map(|job| format!(", job {job}"));
    Some(format!(
        "attempt {} also adds samples to {}: process {} on {}{}, last {} ago; both count",
        file.name.attempt,
        read.path().display(),
        header.process.pid,
        header.process.host,
        job.unwrap_or_default(),
        duration_text(age_of(file)),
    ))
}

fn is_active(file: &ScannedFile, header: &SampleFileHeader, own: &SampleFileHeader) -> bool {
    match liveness(&header.process, &own.process) {
        Liveness::Running => true,
        Liveness::Unknown => age_of(file) < ACTIVE_WITHIN,
        _ => false,
    }
}

fn age_of(file: &ScannedFile) -> Duration {
    clock::wall()
        .duration_since(file.changed)
        .unwrap_or_default()
}

impl Found {
    /// Looks for each of `ids` in a directory.
    fn among(ids: &[SampleId], read: &SampleDirectory) -> Result<Self, Error> {
        let mut done = vec![0; ids.len().div_ceil(8)];
        let mut known = 0;
        let mut failed = Vec::new();
        for (id, position) in ids.iter().zip(0..) {
            if read.index().result(id).is_some() {
                done[position as usize / 8] |= 1 << (position % 8);
                known += 1;
            } else if let Some(reason) = read.index().failure(id) {
                let reason = String::from_utf8_lossy(&read.value(reason)?)
                    .chars()
                    .take(MAX_REASON_CHARS)
                    .collect();
                failed.push((position, reason));
            }
        }
        Ok(Self {
            done,
            failed,
            unexpected: (read.index().len() - known) as u64,
        })
    }

    fn is_done(&self, position: usize) -> bool {
        let byte = self.done.get(position / 8).copied();
        byte.unwrap_or_default() & 1 << (position % 8) != 0
    }
}

fn missing(expected: &[SampleId], found: &[Found]) -> Vec<SampleId> {
    let is_done = |position| found.iter().any(|found| found.is_done(position));
    let numbered = expected.iter().enumerate();
    numbered
        .filter(|(position, _)| !is_done(*position))
        .map(|(_, id)| id.clone())
        .collect()
}

fn failed(expected: &[SampleId], found: &[Found]) -> Vec<(SampleId, String)> {
    let mut reasons = BTreeMap::new();
    for (position, reason) in found.iter().flat_map(|found| &found.failed) {
        let position = *position as usize;
        if let Some(id) = expected.get(position)
            && !found.iter().any(|found| found.is_done(position))
        {
            reasons.insert(position, (id.clone(), reason.clone()));
        }
    }
    reasons.into_values().collect()
}

fn report(directory: &Path, expected: usize, opened: &Opened, found: &[Found]) {
    let unexpected: u64 = found.iter().map(|found| found.unexpected).sum();
    tracing::info!(
        attempt = opened.attempt,
        done = expected - opened.missing.len(),
        expected,
        failed = opened.failed.len(),
        unexpected,
        "samples in {}",
        directory.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::PLAIN_DATA;

    #[test]
    fn processes_of_a_shell_job_do_not_warn_of_each_other() {
        let place = tempfile::tempdir().unwrap();
        let header = |encoding: &str| SampleFileHeader {
            encoding: encoding.into(),
            ..SampleFileHeader::default()
        };
        let name = SampleFileName::first(1, Rank::ZERO, 5);
        let open = SampleWriter::create(place.path(), name, &header(PLAIN_DATA), b"").unwrap();
        let read = SampleDirectory::read(place.path()).unwrap();
        let process = ProcessId::default();
        let other = |encoding, own: &[_]| other_attempt(&read, &header(encoding), own);
        let warning = other(PLAIN_DATA, &[]).unwrap();
        assert!(warning.contains("attempt 1 also adds"), "{warning}");
        assert_eq!(other(PLAIN_DATA, &[&process]), None);
        assert_eq!(other(JSON_LINES, &[]), None);
        drop(open);
    }
}
