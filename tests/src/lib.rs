//! Shared by the multi-process tests and their rank program: the bytes that a rank sends.
//!
//! The tests themselves are in `tests/`, the rank program is `examples/rank.rs`.

use std::{
    io::{self, Read},
    sync::atomic::{AtomicU64, Ordering},
};

/// Length of the payload of `rank` for a `spec` in a script; `None` for an invalid one.
///
/// `1000` is the same for all. `1000*` differs from rank to rank, and is empty on ranks 0 and 4. `1000-` is empty on rank 0.
///
/// ```
/// use fsgather_tests::length;
///
/// assert_eq!(length("1000", 3), Some(1000));
/// assert_eq!(length("1000*", 3), Some(3003));
/// assert_eq!([length("1000*", 4), length("1000-", 0)], [Some(0), Some(0)]);
/// ```
#[must_use]
pub fn length(spec: &str, rank: u32) -> Option<usize> {
    if let Some(base) = spec.strip_suffix('*') {
        let base: usize = base.parse().ok()?;
        let times = usize::try_from(rank % 4).ok()?;
        let more = usize::try_from(rank).ok()?;
        return Some(if times == 0 { 0 } else { base * times + more });
    }
    match spec.strip_suffix('-') {
        Some(_) if rank == 0 => Some(0),
        Some(base) => base.parse().ok(),
        None => spec.parse().ok(),
    }
}

/// The job whose bytes this process generates.
static JOB: AtomicU64 = AtomicU64::new(0);

/// Makes all [`Generated`] from now on belong to a job, or to a group of one: no two of them generate the same bytes. 0 is the initial
/// value. Returns the previous value.
pub fn generate_for(job: u64) -> u64 {
    JOB.swap(job, Ordering::SeqCst)
}

/// The argument of [`generate_for`] for a group of a job, from the names of its members; 0 without a job.
///
/// ```
/// use fsgather_tests::group_of;
///
/// assert_ne!(group_of(7, "0,2"), group_of(7, "2,0"));
/// assert_ne!(group_of(7, "0,2"), group_of(8, "0,2"));
/// assert_eq!(group_of(0, "0,2"), 0);
/// ```
#[must_use]
pub fn group_of(job: u64, members: &str) -> u64 {
    if job == 0 {
        return 0;
    }
    let letters = members.bytes();
    letters.fold(mixed(job), |group, letter| mixed(group ^ u64::from(letter)))
}

/// Mixes a number, so that similar numbers give very different results; 0 stays 0.
fn mixed(number: u64) -> u64 {
    let mut word = number;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The bytes of one rank: those of any two ranks differ, and so do any two parts of a payload.
///
/// ```
/// use fsgather_tests::Generated;
///
/// let bytes = Generated::new(3, 1001).bytes();
/// assert_eq!(bytes.len(), 1001);
/// assert!(Generated::new(3, 1001).matches(&bytes));
/// assert!(!Generated::new(2, 1001).matches(&bytes));
/// assert!(!Generated::new(3, 1001).matches(&bytes[1..]));
/// ```
#[derive(Clone, Debug)]
pub struct Generated {
    state: u64,
    left: usize,
    /// The last word, of which the first `used` bytes are used.
    word: [u8; 8],
    used: usize,
}

impl Generated {
    /// `len` bytes of `rank`.
    #[must_use]
    pub fn new(rank: u32, len: usize) -> Self {
        Self {
            state: ((u64::from(rank) + 1) << 32) ^ mixed(JOB.load(Ordering::SeqCst)),
            left: len,
            word: [0; 8],
            used: 8,
        }
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.left];
        self.fill(&mut bytes);
        bytes
    }

    /// Returns true if `bytes` are exactly these, without copying them.
    #[must_use]
    pub fn matches(mut self, bytes: &[u8]) -> bool {
        let mut chunk = [0; 4096];
        bytes.len() == self.left
            && bytes.chunks(chunk.len()).all(|part| {
                let filled = self.fill(&mut chunk);
                part == &chunk[..filled]
            })
    }

    /// Fills `buffer` with the next bytes, as many as there are; returns their number.
    fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let wanted = buffer.len().min(self.left);
        let (rest_of_word, rest) =
            buffer[..wanted].split_at_mut(wanted.min(self.word.len() - self.used));
        self.fill_from_word(rest_of_word);
        // Word by word: debug builds fill and compare gigabytes.
        let (words, rest) = rest.as_chunks_mut();
        for word in words {
            *word = self.next_word().to_le_bytes();
        }
        if !rest.is_empty() {
            self.word = self.next_word().to_le_bytes();
            self.used = 0;
            self.fill_from_word(rest);
        }
        self.left -= wanted;
        wanted
    }

    /// Takes bytes from the rest of the last word.
    fn fill_from_word(&mut self, buffer: &mut [u8]) {
        let end = self.used + buffer.len();
        buffer.copy_from_slice(&self.word[self.used..end]);
        self.used = end;
    }

    /// The generator `SplitMix64`.
    fn next_word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.state)
    }
}

impl Read for Generated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.fill(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_in_whatever_pieces_they_are_read() {
        let all = Generated::new(3, 1001).bytes();
        for piece in 1..40 {
            let (mut source, mut read) = (Generated::new(3, 1001), Vec::new());
            let mut buffer = vec![0; piece];
            loop {
                match source.fill(&mut buffer) {
                    0 => break,
                    filled => read.extend_from_slice(&buffer[..filled]),
                }
            }
            assert_eq!(read, all, "{piece}");
        }
    }
}
