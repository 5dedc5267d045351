//! A file of machine code as it lies in memory: [`Module`].
//!
//! All of it is read from memory rather than from the file, which may have been replaced meanwhile, and only what is needed: the
//! tables of large libraries are as large as all else.

use std::io;

use object::{
    LittleEndian,
    elf::{self, FileHeader64, ProgramHeader64},
    pod,
};

use super::maps::{Mapping, Maps};
use crate::memory::Memory;

/// How many segments there may be.
const MOST_SEGMENTS: u16 = 64;

/// How long notes may be, in bytes.
const LONGEST_NOTES: u64 = 4096;

/// How a table of functions begins that is in the one form that linkers make: version, and encodings of the three that follow.
const TABLE_FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// Of such a table: where its entries begin, and how long each is.
const ENTRIES: u64 = 12;
const ENTRY: u64 = 8;

/// A program or library.
#[derive(Debug)]
pub(super) struct Module {
    /// The difference between addresses in memory and in the file.
    bias: u64,
    /// The table of functions: where it lies, and its length.
    table: Option<(u64, u64)>,
    /// The beginning of the file, with all segments.
    pub(super) head: Vec<u8>,
    /// The notes, which tell builds apart, and where they are in the file.
    pub(super) notes: Vec<(u64, Vec<u8>)>,
}

impl Module {
    /// That in which an address of code lies.
    pub(super) fn of(
        memory: &impl Memory,
        maps: &Maps,
        mapping: &Mapping,
        at: u64,
    ) -> io::Result<Self> {
        let first = maps
            .start_of(mapping)
            .ok_or_else(|| error("its beginning is not in memory"))?;
        let header: [u8; 64] = memory.bytes(first.start)?;
        let (parsed, _) = pod::from_bytes::<FileHeader64<LittleEndian>>(&header)
            .map_err(|()| error("it has no header"))?;
        let (count, offset) = (
            parsed.e_phnum.get(LittleEndian),
            parsed.e_phoff.get(LittleEndian),
        );
        let is_known = parsed.e_ident.magic == elf::ELFMAG
            && parsed.e_ident.class == elf::ELFCLASS64
            && parsed.e_ident.data == elf::ELFDATA2LSB
            && parsed.e_machine.get(LittleEndian) == elf::EM_X86_64
            && usize::from(parsed.e_phentsize.get(LittleEndian))
                == size_of::<ProgramHeader64<LittleEndian>>();
        if !is_known || count > MOST_SEGMENTS || offset > LONGEST_NOTES {
            return Err(error("it is of no known kind"));
        }
        let end = offset + u64::from(count) * size_of::<ProgramHeader64<LittleEndian>>() as u64;
        let mut head = vec![0; usize::try_from(end).unwrap_or_default().max(64)];
        memory.read(first.start, &mut head)?;
        let from = usize::try_from(offset).unwrap_or_default();
        let (segments, _) =
            pod::slice_from_bytes::<ProgramHeader64<LittleEndian>>(&head[from..], count.into())
                .map_err(|()| error("its segments are cut off"))?;
        let within = (at - mapping.start).checked_add(mapping.offset);
        let within = within.ok_or_else(|| error("its code is nowhere in the file"))?;
        let bias = segments.iter().find_map(|segment| {
            let start = segment.p_offset.get(LittleEndian);
            let offset = within.checked_sub(start)?;
            let holds_it = segment.p_type.get(LittleEndian) == elf::PT_LOAD
                && segment.p_flags.get(LittleEndian).0 & elf::PF_X.0 != 0
                && offset < segment.p_filesz.get(LittleEndian);
            let address = segment.p_vaddr.get(LittleEndian).wrapping_add(offset);
            holds_it.then(|| at.wrapping_sub(address))
        });
        let bias = bias.ok_or_else(|| error("its code is in none of its segments"))?;
        let mut module = Self {
            bias,
            table: None,
            head: Vec::new(),
            notes: Vec::new(),
        };
        for segment in segments {
            let place = segment.p_vaddr.get(LittleEndian).wrapping_add(bias);
            let length = segment.p_memsz.get(LittleEndian);
            match segment.p_type.get(LittleEndian) {
                elf::PT_GNU_EH_FRAME => module.table = Some((place, length)),
                elf::PT_NOTE if length <= LONGEST_NOTES => {
                    let mut note = vec![0; usize::try_from(length).unwrap_or_default()];
                    memory.read(place, &mut note)?;
                    module
                        .notes
                        .push((segment.p_offset.get(LittleEndian), note));
                }
                _ => {}
            }
        }
        module.head = head;
        Ok(module)
    }

    /// The address in the file of one in memory.
    pub(super) const fn in_file(&self, at: u64) -> u64 {
        at.wrapping_sub(self.bias)
    }

    /// Where the rules lie of the last function that begins no later than at an address; it need not be in it.
    pub(super) fn rules_of(&self, memory: &impl Memory, at: u64) -> io::Result<u64> {
        let (table, length) = self.table.ok_or_else(|| error("it has no table"))?;
        if memory.bytes::<4>(table)? != TABLE_FORM {
            return Err(error("its table is of no known form"));
        }
        let count = u64::from(u32::from_le_bytes(memory.bytes(table.wrapping_add(8))?));
        if count * ENTRY + ENTRIES > length {
            return Err(error("its table is cut off"));
        }
        let half = |place: u64| {
            let step = i32::from_le_bytes(memory.bytes(table.wrapping_add(place))?);
            Ok::<_, io::Error>(table.wrapping_add_signed(step.into()))
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if half(ENTRIES + middle * ENTRY)? <= at {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let last = low
            .checked_sub(1)
            .ok_or_else(|| error("its table begins later"))?;
        half(ENTRIES + last * ENTRY + 4)
    }
}

fn error(what: &'static str) -> io::Error {
    io::Error::other(what)
}
