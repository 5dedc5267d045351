//! Collects the progress that ranks report themselves: [`Board`], the place where they leave it.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
};

use fsgather::WorldSize;
use fsgather_report::progress::{self, Report};
use rustix::fs::{MemfdFlags, memfd_create};

use super::variables::Variable;

/// The name of the variable that says where it is.
const VARIABLE: &str = "FSGATHER_PROGRESS_FILE";

/// A file without a name, of one size for ever, which goes with this process and its ranks. Each rank writes over its own
/// part of it.
#[derive(Debug)]
pub(super) struct Board {
    file: File,
    world: WorldSize,
    bytes: Vec<u8>,
}

impl Board {
    pub(super) fn place(world: WorldSize) -> io::Result<Self> {
        let file = File::from(memfd_create(progress::FILE_NAME, MemfdFlags::CLOEXEC)?);
        let bytes = vec![0; world.count() * Report::SIZE];
        file.write_all_at(&bytes, 0)?;
        Ok(Self { file, world, bytes })
    }

    /// What tells ranks where it is. A rank that cannot see this process leaves nothing.
    pub(super) fn variable(&self) -> Variable {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        (VARIABLE, Some(OsString::from(path)))
    }

    /// What keeps ranks from leaving anything on the board of another run, in which this one is a rank.
    pub(super) const fn none() -> Variable {
        (VARIABLE, None)
    }

    /// What each rank has left last, where that is whole.
    pub(super) fn read(&mut self) -> impl Iterator<Item = Option<Report>> + '_ {
        let is_read = self.file.read_exact_at(&mut self.bytes, 0).is_ok();
        let parts = self.bytes.chunks(Report::SIZE);
        parts
            .take(self.world.count())
            .map(move |part| Report::from_bytes(part).filter(|_| is_read))
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::Phase;

    use super::*;

    #[test]
    fn what_is_left_by_way_of_the_variable_is_read() {
        let mut board = Board::place(WorldSize::new(3).unwrap()).unwrap();
        assert!(board.read().eq([None, None, None]));
        let (_, path) = board.variable();
        let file = File::options().write(true).open(path.unwrap()).unwrap();
        let line = "00000001\treading\t0\t2\tgather\t3\t10\t40\teval.py:3\t00000001\n";
        file.write_all_at(line.as_bytes(), Report::SIZE as u64)
            .unwrap();
        let read: Vec<_> = board.read().collect();
        assert_eq!((&read[0], &read[2]), (&None, &None));
        assert_eq!(read[1].as_ref().unwrap().phase, Phase::Reading);
    }
}
