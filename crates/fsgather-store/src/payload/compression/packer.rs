//! From chunks to what is stored of them: [`Packer`].

use std::convert::Infallible;

use fsgather_core::Error;

use super::{CompressionSetting, Compressor, compressor};
use crate::payload::{
    format::{CHUNK_LEN, ChunkEntry},
    parallel,
};

/// How many chunks are compressed at the same time, and so how many are in memory.
const WINDOW: usize = 4;

/// Compresses the chunks of one payload, several at the same time.
#[derive(Default)]
pub(crate) struct Packer {
    /// One for each thread; empty if nothing is compressed.
    workers: Vec<Box<dyn Compressor>>,
    /// Where the chunks of a window are compressed to.
    rooms: [Vec<u8>; WINDOW],
    /// How many windows in a row it was in vain to compress, as far as that was tried.
    in_vain: u32,
    /// How many windows are to be stored as they are before compressing is tried again.
    to_pass: u32,
    /// Whether chunks get no checksums; never where they are compressed.
    leaves_checksums_out: bool,
}

/// So that bytes that cannot be compressed cost little: after the first windows one in so many is tried.
const MOST_PASSED: u32 = 15;

/// A chunk as it goes into the file.
pub(crate) struct Stored<'a> {
    pub(crate) entry: ChunkEntry,
    pub(crate) bytes: &'a [u8],
}

impl Packer {
    /// One that compresses as the setting says.
    pub(crate) fn new(setting: CompressionSetting) -> Result<Self, Error> {
        let mut workers: Vec<_> = compressor(setting)?.into_iter().collect();
        if !workers.is_empty() {
            for _ in 1..parallel::size() {
                workers.extend(compressor(setting)?);
            }
        }
        Ok(Self {
            workers,
            ..Self::default()
        })
    }

    /// Leaves the checksums of chunks out, unless they are compressed; whether it does.
    pub(crate) fn leave_checksums_out(&mut self) -> bool {
        self.leaves_checksums_out = self.workers.is_empty();
        self.leaves_checksums_out
    }

    /// Whether chunks are stored as they are given, without a look at them.
    pub(crate) const fn passes_on(&self) -> bool {
        self.leaves_checksums_out
    }

    /// How many bytes are best packed at a time; whole chunks, and never more than can be.
    pub(crate) fn window(&self) -> usize {
        if self.workers.is_empty() {
            CHUNK_LEN
        } else {
            WINDOW * CHUNK_LEN
        }
    }

    /// Cuts at most a window into chunks and compresses those that get shorter by it.
    pub(crate) fn pack<'a>(&'a mut self, raw: &'a [u8]) -> Vec<Stored<'a>> {
        let is_compressing = !self.workers.is_empty();
        if self.leaves_checksums_out {
            let as_it_is = |bytes| Stored {
                entry: ChunkEntry::without_checksum(bytes),
                bytes,
            };
            return raw.chunks(CHUNK_LEN).map(as_it_is).collect();
        }
        if !is_compressing || self.to_pass > 0 {
            self.to_pass = self.to_pass.saturating_sub(1);
            let as_it_is = |bytes| Stored {
                entry: ChunkEntry::of(bytes, is_compressing),
                bytes,
            };
            return raw.chunks(CHUNK_LEN).map(as_it_is).collect();
        }
        let mut parts: Vec<ChunkToPack<'_>> = raw
            .chunks(CHUNK_LEN)
            .zip(&mut self.rooms)
            .map(|(raw, room)| ChunkToPack {
                raw,
                room,
                entry: None,
            })
            .collect();
        let Ok(()) = parallel::share::<_, _, _, Infallible>(
            &mut self.workers,
            parts.iter_mut(),
            |compressor, part| {
                part.pack(compressor.as_mut());
                Ok(())
            },
            Ok,
        );
        let stored: Vec<Stored<'_>> = parts.into_iter().map(ChunkToPack::stored).collect();
        if stored.iter().all(|chunk| chunk.entry.is_raw) {
            self.to_pass = MOST_PASSED.min((1 << self.in_vain) - 1);
            self.in_vain = (self.in_vain + 1).min(MOST_PASSED);
        } else {
            self.in_vain = 0;
        }
        stored
    }
}

/// One chunk that is being packed.
struct ChunkToPack<'a> {
    raw: &'a [u8],
    room: &'a mut Vec<u8>,
    /// What it has been compressed to.
    entry: Option<ChunkEntry>,
}

impl<'a> ChunkToPack<'a> {
    fn pack(&mut self, compressor: &mut dyn Compressor) {
        match compressor.compress(self.raw, self.room) {
            Ok(len) if len < self.raw.len() => {
                self.entry = Some(ChunkEntry::of(&self.room[..len], false));
            }
            Ok(_) => self.entry = Some(ChunkEntry::of(self.raw, true)),
            Err(error) => tracing::debug!(error, "a chunk is stored as it is"),
        }
    }

    fn stored(self) -> Stored<'a> {
        match self.entry {
            Some(entry) if !entry.is_raw => Stored {
                entry,
                bytes: &self.room[..entry.stored_len as usize],
            },
            entry => Stored {
                entry: entry.unwrap_or_else(|| ChunkEntry::of(self.raw, true)),
                bytes: self.raw,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// Makes a chunk of zeros shorter and no other, and counts how often it is asked to.
    struct Zeros(Arc<AtomicUsize>);

    impl Compressor for Zeros {
        fn compress(&mut self, raw: &[u8], room: &mut Vec<u8>) -> Result<usize, String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            room.resize(1, 0);
            match raw.first() {
                Some(0) => Ok(1),
                Some(1) => Ok(raw.len()),
                _ => Err("it has no wish to".into()),
            }
        }
    }

    fn packer() -> (Packer, Arc<AtomicUsize>) {
        let tried = Arc::new(AtomicUsize::new(0));
        let zeros = || Box::new(Zeros(Arc::clone(&tried))) as Box<dyn Compressor>;
        let packer = Packer {
            workers: vec![zeros(), zeros()],
            ..Packer::default()
        };
        (packer, tried)
    }

    /// Packs a window of this byte; how many of its chunks got shorter.
    fn shortened(packer: &mut Packer, byte: u8) -> usize {
        let raw = vec![byte; packer.window()];
        let stored = packer.pack(&raw);
        assert_eq!(stored.len(), WINDOW);
        for chunk in &stored {
            let len = if chunk.entry.is_raw { CHUNK_LEN } else { 1 };
            assert_eq!(
                (chunk.bytes.len(), chunk.entry.stored_len as usize),
                (len, len)
            );
            assert!(chunk.bytes[0] == byte);
        }
        stored.iter().filter(|chunk| !chunk.entry.is_raw).count()
    }

    #[test]
    fn what_cannot_be_compressed_is_soon_hardly_tried_and_what_follows_it_is_again() {
        for incompressible in [1, 2] {
            let (mut packer, asked) = packer();
            for _ in 0..64 {
                assert_eq!(shortened(&mut packer, incompressible), 0);
            }
            let tries = asked.load(Ordering::Relaxed);
            assert!(tries <= 64 * WINDOW / 8, "{tries}");
            let windows: Vec<usize> = (0..40).map(|_| shortened(&mut packer, 0)).collect();
            let passed = windows.iter().take_while(|shorter| **shorter == 0).count();
            assert!(passed <= 15, "{passed}");
            assert!(windows[passed..].iter().all(|shorter| *shorter == WINDOW));
            // What has been is forgotten: two windows are tried in vain again before one is passed.
            assert_eq!(shortened(&mut packer, incompressible), 0);
            assert_eq!(shortened(&mut packer, 0), WINDOW);
        }
    }

    #[test]
    fn one_chunk_in_a_window_is_enough_to_go_on() {
        let (mut packer, asked) = packer();
        let mut raw = vec![1; packer.window()];
        raw[2 * CHUNK_LEN] = 0;
        for _ in 0..20 {
            let stored = packer.pack(&raw);
            let shorter: Vec<bool> = stored.iter().map(|chunk| !chunk.entry.is_raw).collect();
            assert_eq!(shorter, [false, false, true, false]);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 20 * WINDOW);
    }

    #[test]
    fn without_compression_chunks_are_as_they_are_and_do_not_say_so() {
        let mut packer = Packer::new(CompressionSetting::None).unwrap();
        assert_eq!(packer.window(), CHUNK_LEN);
        let raw = vec![0; 9];
        let stored = packer.pack(&raw);
        assert_eq!(stored.len(), 1);
        assert_eq!(stored[0].entry, ChunkEntry::of(&raw, false));
        assert!(packer.pack(&[]).is_empty());
    }
}
