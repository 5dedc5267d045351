//! Files of samples that a reading rank does not see travel to it: [`bring_files`].
//!
//! Ranks that see one directory have one *leader*, which sends files for all of them. Files keep their names and contents
//! wherever they go, so a directory only gains what is true. A directory lacks a file if it lacks an entry of it: a damaged copy
//! is sent again.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use fsgather_core::{Error, Rank};
use fsgather_store::{
    SampleDirectory, SampleFileCopy, SampleFileName, SampleFileStream, receive_sample_file,
};

use crate::{Stream, samples::agreement::Agreement};

/// The files that a leader can read.
type Listing = Vec<SampleFileCopy>;
/// The files that each rank sends, with their lengths.
type Senders = BTreeMap<Rank, Vec<(SampleFileName, u64)>>;

/// Sends files to directories of reading ranks that lack them: to that of `destination`, or to all.
///
/// `leaders` has for each rank the lowest one that sees the same directory.
pub(crate) fn bring_files(
    agreement: &Agreement,
    directory: &Path,
    leaders: &[Rank],
    destination: Option<Rank>,
) -> Result<(), Error> {
    if leaders.iter().all(|leader| *leader == Rank::ZERO) {
        return Ok(());
    }
    let rank = agreement.rank();
    let is_leader = leaders[rank.index()] == rank;
    let own = is_leader.then(|| SampleDirectory::copies(directory));
    let own = own.transpose();
    let listings = agreement.agree(own)?;
    // One after the other, so that no rank needs room for more than one copy.
    for receiver in receivers(leaders, destination) {
        let has = listings[leaders[receiver.index()].index()].as_deref();
        let senders = senders(&listings, has.unwrap_or_default());
        let files = senders.get(&rank).cloned().unwrap_or_default();
        let mut source = SampleFileStream::new(directory, files);
        let parts = agreement
            .calls()
            .gather(Stream::new(&mut source), receiver)?;
        let mut received = Ok(());
        for part in parts
            .into_iter()
            .flat_map(crate::parts::Parts::into_readers)
        {
            let mut part = part?;
            for (name, len) in senders.get(&part.rank()).into_iter().flatten() {
                let bytes = (&mut part).take(*len);
                let stored = receive_sample_file(directory, *name, *len, bytes);
                received = received.and(stored);
            }
            io::copy(&mut part, &mut io::sink())
                .map_err(|error| Error::storage("receive samples into", directory, &error))?;
        }
        agreement.agree(received)?;
    }
    Ok(())
}

/// Ranks that receive files: one for each directory that is read.
fn receivers(leaders: &[Rank], destination: Option<Rank>) -> Vec<Rank> {
    if let Some(destination) = destination {
        return vec![destination];
    }
    let mut leaders = leaders.to_vec();
    leaders.sort_unstable();
    leaders.dedup();
    leaders
}

/// The files that each leader sends to a directory that has some of them: those that have an entry that it lacks.
fn senders(listings: &[Option<Listing>], has: &[SampleFileCopy]) -> Senders {
    let present: BTreeMap<_, _> = has.iter().map(|copy| (copy.name, copy)).collect();
    let mut best: BTreeMap<SampleFileName, (&SampleFileCopy, Rank)> = BTreeMap::new();
    for (listing, rank) in listings.iter().zip((0..).map(Rank::new)) {
        for copy in listing.iter().flatten() {
            let adds_to = |there: &SampleFileCopy| copy.adds_to(there);
            if present.get(&copy.name).is_none_or(|there| adds_to(there))
                && best.get(&copy.name).is_none_or(|(there, _)| adds_to(there))
            {
                best.insert(copy.name, (copy, rank));
            }
        }
    }
    let mut senders = Senders::new();
    for (name, (copy, rank)) in best {
        senders.entry(rank).or_default().push((name, copy.len));
    }
    senders
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of the file of a rank that has these entries.
    fn copy(rank: u32, entries: impl IntoIterator<Item = u64>) -> SampleFileCopy {
        SampleFileCopy::new(SampleFileName::first(1, Rank::new(rank), 7), 100, entries)
    }

    #[test]
    fn each_missing_file_has_one_sender() {
        let first = vec![copy(0, 0..10), copy(1, 0..5)];
        let second = vec![copy(1, 0..8), copy(2, 0..3)];
        let third = vec![copy(2, 0..3), copy(3, 0..1)];
        let listings = [Some(first.clone()), None, Some(second), Some(third)];
        let senders = senders(&listings, &first);
        let sent = |rank: u32| (copy(rank, []).name, 100);
        let expected = [
            (Rank::new(2), vec![sent(1), sent(2)]),
            (Rank::new(3), vec![sent(3)]),
        ];
        assert_eq!(senders, BTreeMap::from(expected));
    }

    #[test]
    fn copies_that_lack_an_entry_are_sent_again() {
        let sent = |there: SampleFileCopy, other: SampleFileCopy| {
            let listings = [Some(vec![there.clone()]), Some(vec![other])];
            senders(&listings, &[there]).contains_key(&Rank::new(1))
        };
        assert!(sent(copy(0, [0, 1, 3]), copy(0, 0..4)));
        assert!(sent(copy(0, [0, 1, 3, 4, 5]), copy(0, 0..3)));
        assert!(!sent(copy(0, 0..4), copy(0, [0, 1, 3])));
        assert!(!sent(copy(0, 0..4), copy(0, 0..4)));
    }
}
