//! The names of functions, by the tables of symbols in files: [`Symbols`].

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
};

use object::{
    LittleEndian, ReadCache,
    elf::{self, FileHeader64, Sym64},
    read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable},
};

use super::{maps::Mapping, module::Module};

/// How long a table may be, in bytes. That of PyTorch has 30 MB.
const LONGEST_TABLE: u64 = 128 << 20;

/// How many names one function may have, and how long each may be, in bytes.
const MOST_NAMES: usize = 32;
const LONGEST_NAME: usize = 16 << 10;

/// Of notes: name and number of that which tells builds apart.
const BUILD: [u8; 8] = *b"\x03\0\0\0GNU\0";

/// Files as they are read: parts of them, which are kept.
type Parts<'file> = &'file ReadCache<File>;

/// A file that is the one in memory.
#[derive(Debug)]
pub(super) struct Symbols(ReadCache<File>);

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
        Ok(Self(ReadCache::new(file)))
    }

    /// All names of the functions in which addresses of the file lie.
    pub(super) fn names_at(&self, addresses: &[u64]) -> object::Result<Vec<Vec<String>>> {
        let mut names = vec![Vec::new(); addresses.len()];
        let parts = &self.0;
        let header = FileHeader64::<LittleEndian>::parse(parts)?;
        // Where there are more sections than a small number can say their own table has to be believed.
        if header.e_shnum.get(LittleEndian) == 0 {
            return Ok(names);
        }
        let sections = header.sections(LittleEndian, parts)?;
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            if let Some(table) = table_of(&sections, parts, kind)? {
                let found = names_in(&table, addresses);
                for (names, found) in names.iter_mut().zip(found) {
                    if names.is_empty() {
                        *names = found;
                    }
                }
            }
            // The other table has a part of this one.
            if names.iter().all(|names| !names.is_empty()) {
                break;
            }
        }
        Ok(names)
    }
}

type Table<'file> = SymbolTable<'file, FileHeader64<LittleEndian>, Parts<'file>>;

fn table_of<'file>(
    sections: &SectionTable<'file, FileHeader64<LittleEndian>, Parts<'file>>,
    parts: Parts<'file>,
    kind: elf::SectionType,
) -> object::Result<Option<Table<'file>>> {
    let found = sections
        .enumerate()
        .find(|(_, section)| section.sh_type(LittleEndian) == kind);
    let Some((index, section)) = found else {
        return Ok(None);
    };
    if section.sh_size(LittleEndian) > LONGEST_TABLE {
        return Ok(None);
    }
    SymbolTable::parse(LittleEndian, parts, sections, index, section).map(Some)
}

/// The names of the function, for each address, that begins last of those in which it lies.
fn names_in(table: &Table<'_>, addresses: &[u64]) -> Vec<Vec<String>> {
    let mut found = vec![(0, Vec::new()); addresses.len()];
    for symbol in table.iter() {
        let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC)
            && !symbol.is_undefined(LittleEndian);
        if !is_function {
            continue;
        }
        let start = symbol.st_value.get(LittleEndian);
        let length = symbol.st_size.get(LittleEndian);
        for (address, (last, symbols)) in addresses.iter().zip(&mut found) {
            let is_within = address.checked_sub(start).is_some_and(|at| at < length);
            if !is_within || start < *last {
                continue;
            }
            if start > *last {
                *last = start;
                symbols.clear();
            }
            if symbols.len() < MOST_NAMES {
                symbols.push(symbol);
            }
        }
    }
    let name = |symbol: &Sym64<LittleEndian>| {
        let name = table.symbol_name(LittleEndian, symbol).ok()?;
        (name.len() <= LONGEST_NAME).then(|| String::from_utf8_lossy(name).into_owned())
    };
    let names = |(_, symbols): (u64, Vec<&Sym64<LittleEndian>>)| {
        symbols.into_iter().filter_map(name).collect()
    };
    found.into_iter().map(names).collect()
}

#[cfg(test)]
#[path = "symbols_tests.rs"]
mod tests;
