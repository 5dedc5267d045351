//! Files of samples that a reading rank does not see travel to it: [`bring_files`].
//!
//! Ranks that see one directory have one *leader*, which sends files for all of them. Files keep their names and contents
//! wherever they go, so a directory only gains what is true.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use fsgather_core::{Error, Rank};
use fsgather_store::{SampleDirectory, SampleFileName, SampleFileStream, receive_sample_file};

use crate::{Stream, samples::agreement::Agreement};

/// The files that a leader sees, with their lengths.
type Listing = Vec<(SampleFileName, u64)>;

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
    let own = is_leader.then(|| SampleDirectory::lengths(directory));
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

/// The files that each leader sends to a directory that has some of them: those that it lacks or has shorter.
fn senders(listings: &[Option<Listing>], has: &[(SampleFileName, u64)]) -> BTreeMap<Rank, Listing> {
    let present: BTreeMap<_, _> = has.iter().copied().collect();
    let mut longest: BTreeMap<SampleFileName, (u64, Rank)> = BTreeMap::new();
    for (listing, rank) in listings.iter().zip((0..).map(Rank::new)) {
        for (name, len) in listing.iter().flatten() {
            let best = longest.entry(*name).or_insert((*len, rank));
            if *len > best.0 {
                *best = (*len, rank);
            }
        }
    }
    let mut senders: BTreeMap<Rank, Listing> = BTreeMap::new();
    for (name, (len, rank)) in longest {
        if present.get(&name).is_none_or(|there| *there < len) {
            senders.entry(rank).or_default().push((name, len));
        }
    }
    senders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rank: u32) -> SampleFileName {
        SampleFileName::first(1, Rank::new(rank), 7)
    }

    #[test]
    fn each_missing_file_has_one_sender() {
        let first = vec![(name(0), 10), (name(1), 5)];
        let second = vec![(name(1), 8), (name(2), 3)];
        let third = vec![(name(2), 3), (name(3), 1)];
        let listings = [Some(first.clone()), None, Some(second), Some(third)];
        let senders = senders(&listings, &first);
        let expected = [
            (Rank::new(2), vec![(name(1), 8), (name(2), 3)]),
            (Rank::new(3), vec![(name(3), 1)]),
        ];
        assert_eq!(senders, BTreeMap::from(expected));
    }
}
