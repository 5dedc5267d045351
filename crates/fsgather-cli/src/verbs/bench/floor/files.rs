//! Payloads through files: [`Files`].

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use fsgather::Payload;

use super::{BUFFER, star::Star};
use crate::verbs::bench::operation::touch;

/// One new file of each rank for each operation.
pub(super) struct Files<'a> {
    directory: &'a Path,
    rank: usize,
    ranks: usize,
    /// How many operations there were; all ranks count alike.
    count: u64,
    buffer: Vec<u8>,
}

impl<'a> Files<'a> {
    pub(super) fn new(directory: &'a Path, rank: usize, ranks: usize) -> Self {
        Self {
            directory,
            rank,
            ranks,
            count: 0,
            buffer: vec![0; BUFFER],
        }
    }

    /// Everybody writes, waits, reads, waits, and removes.
    pub(super) fn all_gather(&mut self, star: &Star, source: &[u8]) -> io::Result<()> {
        self.count += 1;
        self.write(source)?;
        star.barrier()?;
        for step in 1..self.ranks {
            self.read((self.rank + step) % self.ranks)?;
        }
        star.barrier()?;
        fs::remove_file(self.path_of(self.rank))
    }

    /// Everybody but rank 0 writes; once all have, rank 0 reads and removes.
    pub(super) fn gather(&mut self, star: &Star, source: &[u8]) -> io::Result<()> {
        self.count += 1;
        if !star.is_root() {
            self.write(source)?;
        }
        star.barrier()?;
        if star.is_root() {
            for rank in 1..self.ranks {
                self.read(rank)?;
                fs::remove_file(self.path_of(rank))?;
            }
        }
        Ok(())
    }

    /// Rank 0 writes, and removes when all have read.
    pub(super) fn broadcast(&mut self, star: &Star, source: &[u8]) -> io::Result<()> {
        self.count += 1;
        if star.is_root() {
            self.write(source)?;
        }
        star.barrier()?;
        if !star.is_root() {
            self.read(0)?;
        }
        star.barrier()?;
        if star.is_root() {
            fs::remove_file(self.path_of(0))?;
        }
        Ok(())
    }

    fn path_of(&self, rank: usize) -> PathBuf {
        self.directory.join(format!("floor-{}-{rank}", self.count))
    }

    fn write(&self, source: &[u8]) -> io::Result<()> {
        File::create_new(self.path_of(self.rank))?.write_all(source)
    }

    /// Maps a file, or reads it where that is not safe: the library does the same.
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
