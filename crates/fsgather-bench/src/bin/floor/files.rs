//! Payloads through files: [`Files`].

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use fsgather::Payload;

use super::{BUFFER_BYTES, star::Star, touch};

/// Number of bytes of one write. For much larger writes the system searches for long stretches of free memory, which takes long if there
/// are few.
const WRITE_BYTES: usize = 256 << 10;

/// A new file for each operation, on each rank that has data to send.
pub(super) struct Files {
    directory: PathBuf,
    rank: usize,
    ranks: usize,
    /// Number of operations so far; it is the same on all ranks.
    count: u64,
    /// The file that this rank has written and not removed yet.
    written: Option<PathBuf>,
    buffer: Vec<u8>,
}

impl Files {
    pub(super) fn new(directory: &Path, rank: usize, ranks: usize) -> Self {
        Self {
            directory: directory.to_owned(),
            rank,
            ranks,
            count: 0,
            written: None,
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Each rank writes, waits for the others, and reads their files.
    pub(super) fn all_gather(&mut self, star: &Star, source: &[u8]) -> io::Result<()> {
        self.count += 1;
        self.write(source)?;
        star.barrier()?;
        (1..self.ranks).try_for_each(|step| self.read((self.rank + step) % self.ranks))
    }

    /// All ranks except rank 0 write; then rank 0 reads.
    pub(super) fn gather(&mut self, star: &Star, source: &[u8]) -> io::Result<()> {
        self.count += 1;
        if star.is_root() {
            star.barrier()?;
            (1..self.ranks).try_for_each(|rank| self.read(rank))
        } else {
            self.write(source)?;
            star.barrier()
        }
    }

    /// Rank 0 writes; then the others read.
    pub(super) fn broadcast(&mut self, star: &Star, source: &[u8]) -> io::Result<()> {
        self.count += 1;
        if star.is_root() {
            self.write(source)?;
            star.barrier()
        } else {
            star.barrier()?;
            self.read(0)
        }
    }

    /// Removes the files once all ranks have read.
    pub(super) fn remove(&mut self, star: &Star) -> io::Result<()> {
        star.barrier()?;
        self.written.take().map_or(Ok(()), fs::remove_file)
    }

    fn path_of(&self, rank: usize) -> PathBuf {
        self.directory.join(format!("floor-{}-{rank}", self.count))
    }

    fn write(&mut self, source: &[u8]) -> io::Result<()> {
        let path = self.path_of(self.rank);
        let mut file = File::create_new(&path)?;
        self.written = Some(path);
        let mut pieces = source.chunks(WRITE_BYTES);
        pieces.try_for_each(|piece| file.write_all(piece))
    }

    /// Maps a file, or reads it if that is not safe, as the library does.
    fn read(&mut self, rank: usize) -> io::Result<()> {
        let mut file = File::open(self.path_of(rank))?;
        if let Some(mapped) = Payload::map_file(&file)? {
            touch(&mapped);
            return Ok(());
        }
        loop {
            match file.read(&mut self.buffer)? {
                0 => return Ok(()),
                count => touch(&self.buffer[..count]),
            }
        }
    }
}
