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

/// Of a longer text, in characters, both ends are told.
const LONGEST_TEXT: usize = 4096;

/// Tables of lines are no longer than this, nor any text.
const LONGEST_TABLE: u64 = 4 << 20;
const LONGEST_OF_ALL: u64 = 1 << 40;

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
    libraries: &[String],
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
        is_own: is_own(&file, libraries),
        file,
        line: line.and_then(|line| u32::try_from(line).ok()),
        function,
    })
}

/// Whether a file is one of the program, as far as its name tells, and not of the language or something that was installed.
fn is_own(file: &str, libraries: &[String]) -> bool {
    let of_others = [
        "/lib/python",
        "/lib64/python",
        "/site-packages/",
        "/dist-packages/",
    ];
    let is_within = |directory: &String| {
        let rest = file.strip_prefix(directory.as_str());
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    !file.starts_with('<')
        && !of_others.iter().any(|part| file.contains(part))
        && !libraries.iter().any(is_within)
}

/// A text as it is told, if it is a long one.
pub(super) fn shortened(text: &str) -> String {
    let length = text.chars().count();
    if length <= LONGEST_TEXT {
        return text.to_owned();
    }
    let (start, end) = (LONGEST_TEXT / 2, length - LONGEST_TEXT / 2);
    let start = text.chars().take(start);
    start.chain(['…']).chain(text.chars().skip(end)).collect()
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
    let length = length(memory, object, LONGEST_OF_ALL)?;
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
    let part = |first: usize, count: usize| {
        let mut bytes = vec![0; count * width];
        memory.read(start + (first * width) as u64, &mut bytes)?;
        let characters = bytes.chunks_exact(width).map(|character| {
            let mut word = [0; 4];
            word[..width].copy_from_slice(character);
            // Bytes of names that are no text stand as characters that are none.
            char::from_u32(u32::from_le_bytes(word)).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        Ok::<_, io::Error>(characters.collect::<String>())
    };
    if length <= LONGEST_TEXT {
        return part(0, length);
    }
    // As `shortened` does it.
    let half = LONGEST_TEXT / 2;
    Ok(format!("{}…{}", part(0, half)?, part(length - half, half)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_language_of_packages_and_of_this_one_are_not_the_programs() {
        let libraries = ["/home/me/checkout/fsgather".to_owned()];
        let own = [
            "/home/me/eval.py",
            "eval.py",
            "/home/me/fsgather/eval.py",
            "/home/me/checkout/fsgather.py",
        ];
        for file in own {
            assert!(is_own(file, &libraries), "{file}");
        }
        let of_others = [
            "<frozen importlib._bootstrap>",
            "/usr/lib/python3.11/threading.py",
            "/v/site-packages/h5/__init__.py",
            "/home/me/checkout/fsgather/_communicator.py",
        ];
        for file in of_others {
            assert!(!is_own(file, &libraries), "{file}");
        }
    }

    #[test]
    fn of_long_texts_both_ends_are_told() {
        assert_eq!(shortened("ä.py"), "ä.py");
        let long = format!("/x/{}/job.py", "ä".repeat(5000));
        let told = shortened(&long);
        assert_eq!(told.chars().count(), LONGEST_TEXT + 1);
        assert!(told.starts_with("/x/ää") && told.ends_with("ä/job.py"));
    }
}
