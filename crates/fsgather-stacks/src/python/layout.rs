//! The places of what is read within the structures of each version of Python: [`Layout`].
//!
//! Offsets in bytes, on 64-bit Linux, from the headers in `Include/internal` of each version. They do not change within one, and a
//! build in which they do (with other macros, without the lock) is found out before anything is read of it.

/// Places within the structures of one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Of a thread's state: the other threads.
    pub(super) previous_thread: u64,
    pub(super) next_thread: u64,
    /// Of a thread's state: its interpreter.
    pub(super) interpreter: u64,
    /// Of a thread's state: its name in the C library.
    pub(super) thread_id: u64,
    /// Of a thread's state: its number in the kernel, where that is there.
    pub(super) native_id: Option<u64>,
    pub(super) frames: Frames,
    pub(super) code: Code,
    pub(super) text: Text,
    /// Of an interpreter, where it has a lock of its own.
    pub(super) lock: Option<Lock>,
}

/// The kinds of frames.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frames {
    /// Objects, to 3.10.
    Objects {
        /// Of a thread's state: the innermost frame.
        innermost: u64,
        back: u64,
        code: u64,
        /// The index of the last instruction, and in which unit.
        last: u64,
        unit: u32,
        /// The line, where `line_counts` says that it counts.
        line: u64,
        line_counts: LineCounts,
    },
    /// Structures on a stack of the interpreter, from 3.11.
    Structures {
        /// Of a thread's state: the innermost frame, or where that is told.
        innermost: u64,
        /// Whether it is told elsewhere, and where there.
        through: Option<u64>,
        back: u64,
        code: u64,
        /// The address of an instruction.
        instruction: u64,
        /// Who owns it: a byte.
        owner: u64,
    },
}

/// When the line of a frame object counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum LineCounts {
    /// When the function at this place is there: it is traced.
    Traced(u64),
    /// When it is not 0.
    Given,
}

/// A frame of a generator.
pub(super) const OWNED_BY_GENERATOR: u8 = 1;

/// A frame that stands between two of the interpreter's own in C, and all kinds after it, which are no functions either.
pub(super) const OWNED_BY_C: u8 = 3;

/// Of the flags of a code object: that it is a generator's, coroutine's or both.
pub(super) const GENERATES: i32 = 0x20 | 0x80 | 0x200;

/// The kinds of tables of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// `co_lnotab`, 3.9.
    Lnotab,
    /// `co_linetable` of 3.10.
    Ranges,
    /// `co_linetable` from 3.11.
    Locations,
}

/// Places within code objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    pub(super) file: u64,
    pub(super) name: u64,
    pub(super) first_line: u64,
    pub(super) table: u64,
    pub(super) lines: Lines,
    /// What kind of function it is, in bits.
    pub(super) flags: u64,
    /// Where the instructions begin, and the number of the first that counts; where frames have addresses.
    pub(super) instructions: Option<(u64, u64)>,
}

/// Where the characters of texts begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// Of those that are ASCII.
    pub(super) ascii: u64,
    /// Of others.
    pub(super) other: u64,
}

/// Places of the interpreter's lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    /// Of an interpreter: where the lock lies.
    pub(super) of_interpreter: u64,
    pub(super) last_holder: u64,
    pub(super) is_locked: u64,
}

const OLD_TEXT: Text = Text {
    ascii: 48,
    other: 72,
};

const TEXT: Text = Text {
    ascii: 40,
    other: 56,
};

const OLD_CODE: Code = Code {
    file: 104,
    name: 112,
    first_line: 40,
    table: 120,
    lines: Lines::Lnotab,
    flags: 36,
    instructions: None,
};

/// Those of 3.9, which others have a part of.
const FIRST: Layout = Layout {
    previous_thread: 0,
    next_thread: 8,
    interpreter: 16,
    thread_id: 176,
    native_id: None,
    frames: Frames::Objects {
        innermost: 24,
        back: 24,
        code: 32,
        last: 104,
        unit: 1,
        line: 108,
        line_counts: LineCounts::Traced(80),
    },
    code: OLD_CODE,
    text: OLD_TEXT,
    lock: None,
};

impl Layout {
    /// Those of a version, if it is known: `sys.hexversion`.
    pub(super) fn of(version: u32) -> Option<Self> {
        // The kernel's own layout of words is the only one that was looked at.
        if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
            return None;
        }
        let common = FIRST;
        Some(match version >> 16 {
            0x0309 => common,
            0x030a => Self {
                frames: Frames::Objects {
                    innermost: 24,
                    back: 24,
                    code: 32,
                    last: 96,
                    unit: 2,
                    line: 100,
                    line_counts: LineCounts::Given,
                },
                code: Code {
                    lines: Lines::Ranges,
                    ..OLD_CODE
                },
                ..common
            },
            0x030b => Self {
                thread_id: 152,
                native_id: Some(160),
                frames: Frames::Structures {
                    innermost: 56,
                    through: Some(8),
                    back: 48,
                    code: 32,
                    instruction: 56,
                    owner: 69,
                },
                code: Code {
                    first_line: 72,
                    ..code(184, 168)
                },
                ..common
            },
            0x030c => Self {
                thread_id: 136,
                native_id: Some(144),
                frames: Frames::Structures {
                    innermost: 56,
                    through: Some(0),
                    back: 8,
                    code: 0,
                    instruction: 56,
                    owner: 70,
                },
                code: code(192, 176),
                text: TEXT,
                lock: Some(lock(384)),
                ..common
            },
            0x030d => Self {
                thread_id: 152,
                native_id: Some(160),
                frames: Frames::Structures {
                    innermost: 72,
                    through: None,
                    back: 8,
                    code: 0,
                    instruction: 56,
                    owner: 70,
                },
                code: code(200, 184),
                text: TEXT,
                lock: Some(lock(16)),
                ..common
            },
            // As the interpreter itself tells them in `_PyRuntime`, apart from the first instruction that counts.
            0x030e => Self {
                thread_id: 152,
                native_id: Some(160),
                frames: Frames::Structures {
                    innermost: 72,
                    through: None,
                    back: 8,
                    code: 0,
                    instruction: 56,
                    owner: 74,
                },
                code: code(208, 192),
                text: TEXT,
                lock: Some(lock(16)),
                ..common
            },
            _ => return None,
        })
    }
}

const fn code(instructions: u64, first_traceable: u64) -> Code {
    Code {
        file: 112,
        name: 120,
        first_line: 68,
        table: 136,
        lines: Lines::Locations,
        flags: 48,
        instructions: Some((instructions, first_traceable)),
    }
}

const fn lock(of_interpreter: u64) -> Lock {
    Lock {
        of_interpreter,
        last_holder: 8,
        is_locked: 16,
    }
}
