//! The mappings of this process, as the kernel lists them: [`Maps`].

use std::{
    fs::File,
    io::{self, Read},
};

/// How much of the list is read, in bytes: some hundred thousand mappings.
const MOST: u64 = 16 << 20;

/// A piece of memory, and what lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) is_executable: bool,
    /// Where in the file it begins.
    pub(super) offset: u64,
    /// Major and minor number.
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
    /// The file, or a name in brackets, or nothing.
    pub(super) path: String,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (rights, rest) = rest.split_once(' ')?;
        let (offset, rest) = rest.split_once(' ')?;
        let (device, rest) = rest.split_once(' ')?;
        let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
        let (start, end) = range.split_once('-')?;
        let (major, minor) = device.split_once(':')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let half = |text: &str| u32::from_str_radix(text, 16).ok();
        Some(Self {
            start: number(start)?,
            end: number(end)?,
            is_executable: rights.as_bytes().get(2) == Some(&b'x'),
            offset: number(offset)?,
            device: (half(major)?, half(minor)?),
            inode: inode.parse().ok()?,
            path: path.trim_start().to_owned(),
        })
    }

    /// Whether it is a part of a file.
    pub(super) fn is_of_file(&self) -> bool {
        self.path.starts_with('/')
    }

    /// Whether another one is a part of the same file.
    pub(super) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode) && self.path == other.path
    }
}

/// All of them, by their addresses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Maps(Vec<Mapping>);

impl Maps {
    /// Reads the list.
    pub(super) fn read() -> io::Result<Self> {
        let mut bytes = Vec::new();
        // That of the process is its main thread's, and gone where that has ended.
        let file = File::open("/proc/thread-self/maps")?;
        file.take(MOST).read_to_end(&mut bytes)?;
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(Mapping::parse).collect())
    }

    /// What lies at an address.
    pub(super) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.0.partition_point(|mapping| mapping.start <= address);
        let mapping = self.0.get(after.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }

    /// Where the file begins of which a mapping is a part.
    pub(super) fn start_of(&self, part: &Mapping) -> Option<&Mapping> {
        let after = self.0.partition_point(|other| other.start <= part.start);
        let mut before = self.0[..after].iter().rev();
        before.find(|other| other.offset == 0 && other.is_of_same_file(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
00400000-00402000 r--p 00000000 fd:01 17                                 /opt/a b/job
00402000-00500000 r-xp 00002000 fd:01 17                                 /opt/a b/job
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
nonsense
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn mappings_are_found_by_what_lies_in_them() {
        let maps = Maps::parse(TEXT);
        let code = maps.at(0x0040_2000).unwrap();
        assert!(code.is_executable && code.is_of_file());
        assert_eq!((code.path.as_str(), code.inode), ("/opt/a b/job", 17));
        assert_eq!(code.device, (0xfd, 1));
        assert_eq!(maps.start_of(code).unwrap().start, 0x0040_0000);
        assert!(!maps.at(0x7f00_0000_0fff).unwrap().is_of_file());
        assert!(!maps.at(0x7ffd_0000_0000).unwrap().is_of_file());
        for nowhere in [0, 0x0050_0000, 0x7f00_0000_1000, u64::MAX] {
            assert_eq!(maps.at(nowhere), None);
        }
        assert_eq!(Maps::parse("").at(0), None);
    }

    #[test]
    fn the_list_of_this_process_has_its_own_code() {
        let maps = Maps::read().unwrap();
        let here = std::env::current_exe().unwrap();
        let code = Maps::read as fn() -> io::Result<Maps>;
        let mapping = maps.at((code as *const ()).addr() as u64).unwrap();
        assert!(mapping.is_executable);
        assert_eq!(mapping.path, here.to_str().unwrap());
    }
}
