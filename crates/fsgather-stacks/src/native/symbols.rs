//! The names of functions, by the tables of symbols in files: [`Symbols`].

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
};

use object::{
    LittleEndian, ReadCache, ReadRef,
    elf::{self, FileHeader64, Sym64},
    pod,
    read::elf::{FileHeader, SectionHeader, SectionTable, Sym},
};

use super::{maps::Mapping, module::Module};

/// How long a table may be, in bytes. That of PyTorch has 30 MB.
const LONGEST_TABLE: u64 = 128 << 20;

/// How many symbols are in memory at a time.
const AT_ONCE: usize = 2048;

/// How many names one function may have, and how long each may be, in bytes.
const MOST_NAMES: usize = 32;
const LONGEST_NAME: u64 = 16 << 10;

/// Of notes: name and number of that which tells builds apart.
const BUILD: [u8; 8] = *b"\x03\0\0\0GNU\0";

/// A file that is the one in memory.
#[derive(Debug)]
pub(super) struct Symbols(File);

impl Symbols {
    /// Opens that of a module.
    pub(super) fn open(mapping: &Mapping, module: &Module) -> io::Result<Self> {
        // What lies there by now may be anything.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(&mapping.path)?;
        let status = file.metadata()?;
        let differs = || io::Error::other("the file is another one");
        if !status.is_file() {
            return Err(differs());
        }
        let device = (
            rustix::fs::major(status.dev()),
            rustix::fs::minor(status.dev()),
        );
        let is_same = (device, status.ino()) == (mapping.device, mapping.inode);
        let tells_build = |note: &[u8]| note.windows(BUILD.len()).any(|part| part == BUILD);
        if !is_same && !module.notes.iter().any(|(_, note)| tells_build(note)) {
            return Err(differs());
        }
        let head = (0, module.head.clone());
        for (place, expected) in module.notes.iter().chain([&head]) {
            let mut found = vec![0; expected.len()];
            file.read_exact_at(&mut found, *place)?;
            if found != *expected {
                return Err(differs());
            }
        }
        Ok(Self(file))
    }

    /// All names of the functions in which addresses of the file lie.
    pub(super) fn names_at(&self, addresses: &[u64]) -> io::Result<Vec<Vec<String>>> {
        let mut names = vec![Vec::new(); addresses.len()];
        for table in self.tables().map_err(io::Error::other)? {
            // The other table has a part of this one.
            if names.iter().all(|names| !names.is_empty()) {
                break;
            }
            let found = table.symbols_at(&self.0, addresses)?;
            for (names, found) in names.iter_mut().zip(found) {
                if names.is_empty() {
                    let of_table = found.iter().filter_map(|at| table.name(&self.0, *at));
                    *names = of_table.collect();
                }
            }
        }
        Ok(names)
    }

    /// The tables that there are, the one with all names first.
    fn tables(&self) -> object::Result<Vec<Table>> {
        let parts = &ReadCache::new(&self.0);
        let header = FileHeader64::<LittleEndian>::parse(parts)?;
        // Where there are more sections than a small number can say their own table has to be believed.
        if header.e_shnum.get(LittleEndian) == 0 {
            return Ok(Vec::new());
        }
        let sections = header.sections(LittleEndian, parts)?;
        let of = |kind| Table::find(&sections, kind);
        let kinds = [elf::SHT_SYMTAB, elf::SHT_DYNSYM];
        Ok(kinds.into_iter().filter_map(of).collect())
    }
}

/// Where a table of symbols lies in a file, and its names. It is read in parts: those of large libraries are larger than what a job
/// may have left of its memory.
#[derive(Debug)]
struct Table {
    start: u64,
    count: u64,
    /// Where its names lie, from and to.
    names: (u64, u64),
}

impl Table {
    fn find<'file, Parts: ReadRef<'file>>(
        sections: &SectionTable<'file, FileHeader64<LittleEndian>, Parts>,
        kind: elf::SectionType,
    ) -> Option<Self> {
        let mut all = sections.iter();
        let table = all.find(|section| section.sh_type(LittleEndian) == kind)?;
        let (start, length) = table.file_range(LittleEndian)?;
        let names = sections.section(table.link(LittleEndian)).ok()?;
        let (first, size) = names.file_range(LittleEndian)?;
        (length <= LONGEST_TABLE).then_some(Self {
            start,
            count: length / size_of::<Sym64<LittleEndian>>() as u64,
            names: (first, first.checked_add(size)?),
        })
    }

    /// Where the names lie of the function, for each address, that begins last of those in which it lies.
    fn symbols_at(&self, file: &File, addresses: &[u64]) -> io::Result<Vec<Vec<u32>>> {
        const LENGTH: usize = size_of::<Sym64<LittleEndian>>();
        let mut found = vec![(0, Vec::new()); addresses.len()];
        let mut sorted: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        let mut bytes = vec![0; AT_ONCE * LENGTH];
        let mut place = self.start;
        let mut left = self.count;
        while left > 0 {
            let count = usize::try_from(left).map_or(AT_ONCE, |left| left.min(AT_ONCE));
            let part = &mut bytes[..count * LENGTH];
            file.read_exact_at(part, place)?;
            let (symbols, _) = pod::slice_from_bytes::<Sym64<LittleEndian>>(part, count)
                .map_err(|()| io::Error::other("symbols are cut off"))?;
            for symbol in symbols {
                note(symbol, &sorted, &mut found);
            }
            place = place.saturating_add(part.len() as u64);
            left -= count as u64;
        }
        Ok(found.into_iter().map(|(_, names)| names).collect())
    }

    /// A name; nothing if it is no short one.
    fn name(&self, file: &File, at: u32) -> Option<String> {
        let (first, end) = self.names;
        let at = first.checked_add(at.into())?;
        let most = end.checked_sub(at)?.min(LONGEST_NAME);
        let mut name = vec![0; usize::try_from(most).ok()?];
        file.read_exact_at(&mut name, at).ok()?;
        let end = name.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }
}

/// Notes a symbol for all addresses that lie in its function, of which nothing is known that begins later.
fn note(symbol: &Sym64<LittleEndian>, sorted: &[(u64, usize)], found: &mut [(u64, Vec<u32>)]) {
    let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC)
        && !symbol.is_undefined(LittleEndian);
    if !is_function {
        return;
    }
    let start = symbol.st_value.get(LittleEndian);
    let length = symbol.st_size.get(LittleEndian);
    let first = sorted.partition_point(|(address, _)| *address < start);
    let within = sorted[first..]
        .iter()
        .take_while(|(address, _)| address - start < length);
    for (_, which) in within {
        let (last, names) = &mut found[*which];
        if start > *last {
            *last = start;
            names.clear();
        }
        if start == *last && names.len() < MOST_NAMES {
            names.push(symbol.st_name.get(LittleEndian));
        }
    }
}

#[cfg(test)]
#[path = "symbols_tests.rs"]
mod tests;
