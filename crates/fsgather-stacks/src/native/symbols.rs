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

    /// All names of the function in which an address of the file lies.
    pub(super) fn names_at(&self, address: u64) -> object::Result<Vec<String>> {
        let parts = &self.0;
        let header = FileHeader64::<LittleEndian>::parse(parts)?;
        // Where there are more sections than a small number can say their own table has to be believed.
        if header.e_shnum.get(LittleEndian) == 0 {
            return Ok(Vec::new());
        }
        let sections = header.sections(LittleEndian, parts)?;
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            if let Some(table) = table_of(&sections, parts, kind)? {
                let names = names_in(&table, address);
                if !names.is_empty() {
                    return Ok(names);
                }
            }
        }
        Ok(Vec::new())
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

/// The names of the function that begins last of those in which an address lies.
fn names_in(table: &Table<'_>, address: u64) -> Vec<String> {
    let start_of = |symbol: &Sym64<LittleEndian>| {
        let start = symbol.st_value.get(LittleEndian);
        let offset = address.checked_sub(start)?;
        let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC)
            && !symbol.is_undefined(LittleEndian);
        (is_function && offset < symbol.st_size.get(LittleEndian)).then_some(start)
    };
    let mut last = None;
    let mut found = Vec::new();
    for symbol in table.iter() {
        let Some(start) = start_of(symbol) else {
            continue;
        };
        if last.is_none_or(|last| last < start) {
            last = Some(start);
            found.clear();
        }
        if last == Some(start) && found.len() < MOST_NAMES {
            found.push(symbol);
        }
    }
    let name = |symbol: &Sym64<LittleEndian>| {
        let name = table.symbol_name(LittleEndian, symbol).ok()?;
        (name.len() <= LONGEST_NAME).then(|| String::from_utf8_lossy(name).into_owned())
    };
    found.into_iter().filter_map(name).collect()
}
