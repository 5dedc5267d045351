//! The stack of a thread that waits, taken at one moment: [`Capture`].

use std::{fs, io};

use super::maps::Maps;
use crate::{
    memory::Memory,
    thread::{directory_of, rest_of},
};

/// How much of a stack is taken, in bytes, its innermost part.
const MOST: u64 = 512 << 10;

/// What is known of a thread that waits in a system call.
#[derive(Debug)]
pub(super) struct Capture {
    /// Where it goes on afterwards.
    pub(super) instruction: u64,
    /// Where its stack ends; its older part is above.
    pub(super) top: u64,
    stack: Vec<u8>,
}

impl Capture {
    /// Takes it, if the thread waits, and has not run since it rested so (see [`rest_of`]).
    ///
    /// The kernel tells registers only of a thread that is off its processor. It is so both times that they are read, and had it been
    /// on one in between then it would have left that as well, and the count of that would be another one.
    pub(super) fn take(
        thread: u32,
        rest: u64,
        maps: &Maps,
        memory: &impl Memory,
    ) -> io::Result<Option<Self>> {
        let file = directory_of(thread).map(|directory| format!("{directory}/syscall"));
        let Some(file) = file else {
            return Ok(None);
        };
        let rests = || rest_of(thread) == Some(rest);
        if !rests() {
            return Ok(None);
        }
        let call = fs::read_to_string(&file)?;
        let Some((top, instruction)) = registers(&call) else {
            return Ok(None);
        };
        let Some(mapping) = maps.at(top) else {
            return Ok(None);
        };
        let length = usize::try_from((mapping.end - top).min(MOST)).unwrap_or_default();
        let mut stack = vec![0; length];
        memory.read(top, &mut stack)?;
        let has_stayed = fs::read_to_string(&file)? == call && rests();
        Ok(has_stayed.then_some(Self {
            instruction,
            top,
            stack,
        }))
    }

    /// The word at an address of the stack.
    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let from = usize::try_from(at.checked_sub(self.top)?).ok()?;
        let bytes = self.stack.get(from..)?.first_chunk::<8>()?;
        Some(u64::from_ne_bytes(*bytes))
    }
}

/// The stack pointer and the address in a `syscall` of `/proc`, of a thread that is in a system call.
fn registers(text: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    // Of a thread that waits elsewhere there are three.
    let [_, _, _, _, _, _, _, top, instruction] = fields[..] else {
        return None;
    };
    let number = |field: &str| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok();
    Some((number(top)?, number(instruction)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_of_threads_in_system_calls() {
        let text = "0 0x3 0x7f00 0x1 0x0 0x0 0x0 0x7ffd 0x7f\n";
        assert_eq!(registers(text), Some((0x7ffd, 0x7f)));
        for text in ["", "running", "-1 0x7ffd 0x7f", "0 1 2 3 4 5 6 7 8"] {
            assert_eq!(registers(text), None, "{text}");
        }
    }
}
