//! The frames of a thread: [`read`].

use std::io;

use super::{
    error,
    layout::{Frames, GENERATES, Layout, LineCounts, OWNED_BY_C, OWNED_BY_GENERATOR},
};
use crate::memory::{Memory, Pages};

/// How many frames are read: more than programs have that raise the limit of Python's recursion. A deeper stack is told from its
/// innermost ones alone, if it stays the same meanwhile.
const MOST: usize = 16_384;

/// A frame, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainFrame {
    /// Where it lies.
    at: u64,
    /// Where its code object lies.
    pub(super) code: u64,
    pub(super) place: Place,
}

/// Where in its code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At this line, which is known.
    Line(i32),
    /// At the instruction with this offset, in bytes.
    Offset(i64),
}

/// The frames of a thread, the innermost first, and whether these are all.
pub(super) fn read(
    memory: &impl Memory,
    layout: &Layout,
    state: u64,
) -> io::Result<(Vec<ChainFrame>, bool)> {
    let mut chain = Vec::new();
    // Frames lie close together, and a function that calls itself has one code.
    let memory = &Pages::of(memory);
    let mut at = match layout.frames {
        Frames::Objects { innermost, .. } => memory.word(state + innermost)?,
        Frames::Structures {
            innermost, through, ..
        } => {
            let top = memory.word(state + innermost)?;
            match through {
                Some(place) if top != 0 => memory.word(top + place)?,
                _ => top,
            }
        }
    };
    for _ in 0..MOST {
        if at == 0 {
            return Ok((chain, true));
        }
        if !at.is_multiple_of(8) {
            return Err(error("a frame does not lie where frames do"));
        }
        let (frame, back) = one(memory, layout, at)?;
        if let Some(frame) = frame.filter(|_| back == 0) {
            let flags = i32::from_ne_bytes(memory.bytes(frame.code + layout.code.flags)?);
            // A generator that runs has a caller: this one was left, or not entered yet, when it was read, and where the thread is has
            // not been seen.
            if flags & GENERATES != 0 {
                return Err(error("a generator was left meanwhile"));
            }
        }
        chain.extend(frame);
        at = back;
    }
    Ok((chain, false))
}

/// A frame, unless it stands for no function, and where its caller lies.
fn one(memory: &impl Memory, layout: &Layout, at: u64) -> io::Result<(Option<ChainFrame>, u64)> {
    // All that is of interest lies within these; one look at it.
    let bytes: [u8; 120] = match layout.frames {
        Frames::Objects { .. } => memory.bytes(at)?,
        Frames::Structures { .. } => {
            let mut bytes = [0; 120];
            memory.read(at, &mut bytes[..80])?;
            bytes
        }
    };
    let word = |place: u64| {
        let from = usize::try_from(place).unwrap_or(usize::MAX);
        let bytes = bytes.get(from..).and_then(<[u8]>::first_chunk::<8>);
        bytes.copied().map_or(0, u64::from_ne_bytes)
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the other half is the next field"
    )]
    let half = |place: u64| (word(place) as u32).cast_signed();
    match layout.frames {
        Frames::Objects {
            back,
            code,
            last,
            unit,
            line,
            line_counts,
            ..
        } => {
            // A line that counts is not half of a word that ends with the structure.
            let own_line = i32::from_ne_bytes(memory.bytes(at + line)?);
            let counts = match line_counts {
                LineCounts::Traced(place) => word(place) != 0,
                LineCounts::Given => own_line != 0,
            };
            let place = if counts {
                Place::Line(own_line)
            } else {
                Place::Offset(i64::from(half(last)) * i64::from(unit))
            };
            let code = word(code);
            Ok((Some(ChainFrame { at, code, place }), word(back)))
        }
        Frames::Structures {
            back,
            code,
            instruction,
            owner,
            ..
        } => {
            let owner = bytes.get(usize::try_from(owner).unwrap_or(usize::MAX));
            let owner = owner.copied().unwrap_or(OWNED_BY_C);
            // From 3.14 on the lowest bits of a reference tell how it counts.
            let (code, back) = (word(code) & !7, word(back));
            if owner >= OWNED_BY_C {
                return Ok((None, back));
            }
            let (start, first) = layout.code.instructions.unwrap_or_default();
            let offset = word(instruction).wrapping_sub(code + start).cast_signed();
            let first = i32::from_ne_bytes(memory.bytes(code + first)?);
            // A function that has only just been called, and is not shown by Python either.
            if owner != OWNED_BY_GENERATOR && offset < i64::from(first) * 2 {
                return Ok((None, back));
            }
            let place = Place::Offset(offset);
            Ok((Some(ChainFrame { at, code, place }), back))
        }
    }
}

/// How many of the outermost functions two readings of a whole stack share.
pub(super) fn common_callers(one: &[ChainFrame], other: &[ChainFrame]) -> usize {
    let pairs = || one.iter().rev().zip(other.iter().rev());
    let same = pairs().take_while(|(one, other)| one == other).count();
    // The innermost of them is between two of its instructions.
    let next = pairs().nth(same);
    let goes_on = next.is_some_and(|(one, other)| one.at == other.at && one.code == other.code);
    same + usize::from(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(frames: &[(u64, i64)]) -> Vec<ChainFrame> {
        let frame = |(at, offset): &(u64, i64)| ChainFrame {
            at: *at,
            code: at + 1,
            place: Place::Offset(*offset),
        };
        frames.iter().map(frame).collect()
    }

    #[test]
    fn what_two_readings_share_begins_at_the_outermost_function() {
        let whole = chain(&[(3, 7), (2, 5), (1, 4)]);
        let common = |other: &[(u64, i64)]| common_callers(&whole, &chain(other));
        assert_eq!(common(&[(3, 7), (2, 5), (1, 4)]), 3);
        assert_eq!(common(&[(3, 9), (2, 5), (1, 4)]), 3, "it goes on");
        assert_eq!(common(&[(9, 9), (2, 5), (1, 4)]), 2);
        assert_eq!(common(&[(3, 7), (2, 6), (1, 4)]), 2, "another call of it");
        assert_eq!(common(&[(1, 4)]), 1);
        assert_eq!(common(&[(3, 7), (2, 5)]), 0, "an end that is none");
        assert_eq!(common(&[]), 0);
    }
}
