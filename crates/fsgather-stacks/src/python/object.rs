//! Code objects and texts: [`describe`].

use std::io;

use fsgather_core::StackFrame;

use super::{
    chain::{ChainFrame, Place},
    error,
    layout::{Layout, Lines},
    lines,
};
use crate::memory::Memory;

/// Of every object: its type.
const TYPE: u64 = 8;

/// Of objects of several lengths: the length.
const LENGTH: u64 = 16;

/// Of texts: what kind they are of.
const STATE: u64 = 32;

/// Of bytes: the first.
const BYTES: u64 = 32;

/// Texts of functions and files, and tables of lines, are no longer than this.
const LONGEST_TEXT: u64 = 4096;
const LONGEST_TABLE: u64 = 4 << 20;

/// Where the types lie of which objects must be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Types {
    code: u64,
    text: u64,
    bytes: u64,
}

impl Types {
    /// Those of a code object that is known to be one, and of what it has.
    pub(super) fn of(memory: &impl Memory, layout: &Layout, code: u64) -> io::Result<Self> {
        let type_of = |place: u64| memory.word(memory.word(code + place)? + TYPE);
        Ok(Self {
            code: memory.word(code + TYPE)?,
            text: type_of(layout.code.file)?,
            bytes: type_of(layout.code.table)?,
        })
    }
}

/// The function of a frame.
pub(super) fn describe(
    memory: &impl Memory,
    layout: &Layout,
    types: &Types,
    frame: &ChainFrame,
) -> io::Result<StackFrame> {
    let code = frame.code;
    expect_type(memory, code, types.code)?;
    let text = |place: u64| text_at(memory, layout, types, memory.word(code + place)?);
    let file = text(layout.code.file)?;
    let function = text(layout.code.name)?;
    let first = i32::from_ne_bytes(memory.bytes(code + layout.code.first_line)?);
    let line = match frame.place {
        Place::Line(line) => Some(line),
        Place::Offset(offset) if offset < 0 => Some(first),
        Place::Offset(offset) => {
            let table = memory.word(code + layout.code.table)?;
            let table = bytes_at(memory, types, table)?;
            match layout.code.lines {
                Lines::Lnotab => lines::of_lnotab(&table, first, offset),
                Lines::Ranges => lines::of_ranges(&table, first, offset),
                Lines::Locations => lines::of_locations(&table, first, offset),
            }
        }
    };
    Ok(StackFrame {
        file,
        line: line.and_then(|line| u32::try_from(line).ok()),
        function,
    })
}

fn expect_type(memory: &impl Memory, object: u64, expected: u64) -> io::Result<()> {
    if memory.word(object + TYPE)? == expected {
        Ok(())
    } else {
        Err(error("an object is of another type"))
    }
}

fn length(memory: &impl Memory, object: u64, most: u64) -> io::Result<usize> {
    let length = memory.word(object + LENGTH)?;
    let length = Some(length).filter(|length| *length <= most);
    let length = length.and_then(|length| usize::try_from(length).ok());
    length.ok_or_else(|| error("an object is too long"))
}

fn bytes_at(memory: &impl Memory, types: &Types, object: u64) -> io::Result<Vec<u8>> {
    expect_type(memory, object, types.bytes)?;
    let mut bytes = vec![0; length(memory, object, LONGEST_TABLE)?];
    memory.read(object + BYTES, &mut bytes)?;
    Ok(bytes)
}

fn text_at(
    memory: &impl Memory,
    layout: &Layout,
    types: &Types,
    object: u64,
) -> io::Result<String> {
    expect_type(memory, object, types.text)?;
    let length = length(memory, object, LONGEST_TEXT)?;
    let state = u32::from_ne_bytes(memory.bytes(object + STATE)?);
    let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact {
        return Err(error("a text is not in one piece"));
    }
    let start = object
        + if is_ascii {
            layout.text.ascii
        } else {
            layout.text.other
        };
    let width = match kind {
        1 => 1,
        2 => 2,
        4 => 4,
        _ => return Err(error("a text is of no known kind")),
    };
    let mut bytes = vec![0; length * width];
    memory.read(start, &mut bytes)?;
    let characters = bytes.chunks_exact(width).map(|character| {
        let mut word = [0; 4];
        word[..width].copy_from_slice(character);
        // Bytes of names that are no text stand as characters that are none.
        char::from_u32(u32::from_le_bytes(word)).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    Ok(characters.collect())
}
