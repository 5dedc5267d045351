//! Processes that were told another number of ranks than rank 0: [`Misfits`].

use std::collections::BTreeMap;

use fsgather_core::{Rank, WorldSize};

/// So many are named at most: messages are read by people.
const MOST: usize = 4;

/// A process that asked to be a rank, and what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Host and pid.
    pub(super) process: String,
    pub(super) world_size: WorldSize,
}

/// Which processes were told what.
#[derive(Clone, Debug, Default)]
pub(super) struct Misfits(BTreeMap<Rank, Misfit>);

impl Misfits {
    /// Notes one; whether it is news, and the first.
    pub(super) fn note(&mut self, rank: Rank, misfit: Misfit) -> (bool, bool) {
        let is_first = self.0.is_empty();
        (self.0.insert(rank, misfit).is_none(), is_first)
    }

    /// Who was told what, rank 0 included, of those ranks that are meant; nothing where there are none.
    pub(super) fn told(&self, is_meant: impl Fn(Rank) -> bool, zero: &Misfit) -> Option<String> {
        let meant = self.0.iter().filter(|(rank, _)| is_meant(**rank));
        let meant: Vec<_> = meant.collect();
        let ((first, its), others) = meant.split_first()?;
        Some(sizes(**first, its, others, zero))
    }
}

/// Who was told what, of one process and rank 0.
pub(super) fn told(rank: Rank, misfit: &Misfit, zero: &Misfit) -> String {
    sizes(rank, misfit, &[], zero)
}

fn sizes(first: Rank, its: &Misfit, others: &[(&Rank, &Misfit)], zero: &Misfit) -> String {
    let mut texts = vec![format!(
        "rank {first} ({}) was told that there are {} ranks",
        its.process, its.world_size
    )];
    let named = others.len().min(MOST - 1);
    let more = others.len() - named;
    for (rank, other) in &others[..named] {
        texts.push(text(**rank, other));
    }
    if more > 0 {
        texts.push(format!("{more} more other numbers"));
    }
    texts.push(text(Rank::ZERO, zero));
    texts.join(", ")
}

fn text(rank: Rank, misfit: &Misfit) -> String {
    format!(
        "rank {rank} ({}) that there are {}",
        misfit.process, misfit.world_size
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misfit(process: &str, ranks: u32) -> Misfit {
        Misfit {
            process: process.into(),
            world_size: WorldSize::new(ranks).unwrap(),
        }
    }

    #[test]
    fn those_who_are_meant_are_named_up_to_four() {
        let mut misfits = Misfits::default();
        let zero = misfit("n0, pid 1", 3);
        assert_eq!(misfits.told(|_| true, &zero), None);
        let noted = |misfits: &mut Misfits, rank| {
            misfits.note(
                Rank::new(rank),
                misfit(&format!("n{rank}, pid 7"), rank + 3),
            )
        };
        assert_eq!(noted(&mut misfits, 2), (true, true));
        assert_eq!(noted(&mut misfits, 2), (false, false));
        assert_eq!(noted(&mut misfits, 1), (true, false));
        let told = |misfits: &Misfits| misfits.told(|rank| rank != Rank::new(2), &zero).unwrap();
        assert_eq!(
            told(&misfits),
            "rank 1 (n1, pid 7) was told that there are 4 ranks, rank 0 (n0, pid 1) that there are 3"
        );
        for rank in 3..8 {
            noted(&mut misfits, rank);
        }
        assert_eq!(
            told(&misfits),
            "rank 1 (n1, pid 7) was told that there are 4 ranks, rank 3 (n3, pid 7) that there are 6, \
             rank 4 (n4, pid 7) that there are 7, rank 5 (n5, pid 7) that there are 8, 2 more other numbers, \
             rank 0 (n0, pid 1) that there are 3"
        );
    }
}
