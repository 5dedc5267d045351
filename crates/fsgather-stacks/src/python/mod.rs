//! The functions that a thread of this process's Python is in: [`stack_of`], once [`register`] was called.
//!
//! Python's own functions for this need its lock, or crash where a thread goes on meanwhile. Here its structures are read as
//! memory, at the places that they have in each version (`layout`). Whether they have them in this build is tried once, under the
//! lock, with a stack that Python itself has told; what does not agree is never read.
//!
//! - `chain`: the frames of a thread, read until they agree; `lines`: the line of an instruction; `object`: texts and code.

mod chain;
mod layout;
mod lines;
mod object;

use std::{io, sync::OnceLock};

use fsgather_core::{MOST_FRAMES, StackFrame};

use crate::{
    caller::Thread,
    memory::{Memory, OwnMemory},
};

use self::{chain::ChainFrame, layout::Layout, object::Types};

/// How often a stack is read until it has stayed the same while it was.
const TRIES: usize = 8;

/// How many threads an interpreter may have.
const MOST_THREADS: usize = 100_000;

/// What an interpreter says of itself to the thread that holds its lock.
#[derive(Clone, Debug)]
pub struct Registration {
    /// `sys.hexversion`.
    pub version: u32,
    /// Where the state of this thread lies: `PyThreadState_Get`.
    pub thread_state: u64,
    /// `threading.get_ident()`.
    pub thread: u64,
    /// `threading.main_thread().ident`.
    pub main_thread: u64,
    /// The functions that this thread is in, the innermost last, as `sys._getframe()` and what follows from it tell them.
    pub frames: Vec<StackFrame>,
}

/// An interpreter whose structures are where they are looked for.
#[derive(Debug)]
struct Interpreter {
    layout: Layout,
    types: Types,
    main_thread: u64,
    /// Where the state of the main thread lies, which stays as long as the interpreter.
    main_state: u64,
    knows_lock: bool,
}

static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();

/// What is known of a thread.
#[derive(Debug, Default)]
pub(crate) struct PythonStack {
    /// The innermost last.
    pub(crate) frames: Vec<StackFrame>,
    /// Whether it holds the interpreter's lock.
    pub(crate) holds_lock: bool,
}

/// Takes an interpreter whose lock this thread holds, if its structures agree with what it says itself.
///
/// # Errors
///
/// Why its stacks cannot be read.
pub fn register(registration: &Registration) -> io::Result<()> {
    if INTERPRETER.get().is_some() {
        return Ok(());
    }
    let interpreter = Interpreter::examine(registration, &OwnMemory::open()?)?;
    // Of two threads that come at the same time either is right.
    let _ = INTERPRETER.set(interpreter);
    Ok(())
}

/// The functions that a thread is in; none if it is not one of a known interpreter, or cannot be read.
pub(crate) fn stack_of(thread: Thread) -> PythonStack {
    let Some(interpreter) = INTERPRETER.get() else {
        return PythonStack::default();
    };
    let read = OwnMemory::open().and_then(|memory| {
        let state = interpreter.state_of(thread.handle, &memory)?;
        interpreter.read(state, &memory)
    });
    read.unwrap_or_default()
}

fn error(what: &'static str) -> io::Error {
    io::Error::other(what)
}

impl Interpreter {
    /// Compares what is read with what the interpreter says.
    fn examine(registration: &Registration, memory: &impl Memory) -> io::Result<Self> {
        let layout = Layout::of(registration.version);
        let layout = layout.ok_or_else(|| error("its version is not known"))?;
        let state = registration.thread_state;
        let (chain, _) = chain::read(memory, &layout, state)?;
        let innermost = chain.first().ok_or_else(|| error("no frame was found"))?;
        let types = Types::of(memory, &layout, innermost.code)?;
        let mut itself = Self {
            layout,
            types,
            main_thread: registration.main_thread,
            main_state: state,
            knows_lock: false,
        };
        let found = itself.describe(&chain, memory)?;
        let told = &registration.frames;
        let told = &told[told.len().saturating_sub(MOST_FRAMES)..];
        if found != told {
            return Err(error("its frames are not where they are in its version"));
        }
        if memory.word(state + itself.layout.thread_id)? != registration.thread {
            return Err(error("its threads are not where they are in its version"));
        }
        itself.main_state = itself.state_of(None, memory)?;
        itself.knows_lock = itself.holds_lock(state, memory).unwrap_or(false);
        Ok(itself)
    }

    /// Where the state of a thread lies, by its name; of the main thread without one.
    fn state_of(&self, thread: Option<u64>, memory: &impl Memory) -> io::Result<u64> {
        let thread = thread.unwrap_or(self.main_thread);
        let is_it =
            |state: u64| Ok::<_, io::Error>(memory.word(state + self.layout.thread_id)? == thread);
        if is_it(self.main_state)? {
            return Ok(self.main_state);
        }
        for link in [self.layout.next_thread, self.layout.previous_thread] {
            let mut state = memory.word(self.main_state + link)?;
            for _ in 0..MOST_THREADS {
                if state == 0 {
                    break;
                }
                if is_it(state)? {
                    return Ok(state);
                }
                state = memory.word(state + link)?;
            }
        }
        Err(error("the interpreter does not know that thread"))
    }

    /// Reads the stack of a thread that goes on meanwhile.
    ///
    /// What both of two readings have is told. Where a function calls others all the time it is told without them.
    fn read(&self, state: u64, memory: &impl Memory) -> io::Result<PythonStack> {
        let mut last = Err(error("the thread does not stay for a moment"));
        for _ in 0..TRIES {
            match self.read_once(state, memory) {
                Ok((stack, true)) => return Ok(stack),
                Ok((stack, false)) if !stack.frames.is_empty() => last = Ok(stack),
                Err(failure) if last.is_err() => last = Err(failure),
                _ => {}
            }
        }
        last
    }

    /// One try, and whether the whole stack stayed the same.
    fn read_once(&self, state: u64, memory: &impl Memory) -> io::Result<(PythonStack, bool)> {
        let thread = memory.word(state + self.layout.thread_id)?;
        let (before, is_whole) = chain::read(memory, &self.layout, state)?;
        let described = self.describe_all(&before, memory);
        let holds_lock = self.knows_lock && self.holds_lock(state, memory)?;
        let (after, is_whole_after) = chain::read(memory, &self.layout, state)?;
        if memory.word(state + self.layout.thread_id)? != thread {
            return Err(error("the thread has ended"));
        }
        let is_same = chain::are_alike(&before, &after);
        let common = if is_same {
            before.len()
        } else if is_whole && is_whole_after {
            chain::common_callers(&before, &after)
        } else {
            0
        };
        let stable = before.len() - common;
        let frames: io::Result<Vec<StackFrame>> = described
            .into_iter()
            .skip(stable)
            .take(MOST_FRAMES)
            .collect();
        let mut frames = frames?;
        frames.reverse();
        let stack = PythonStack { frames, holds_lock };
        Ok((stack, is_same))
    }

    /// The innermost functions of a chain, the innermost last.
    fn describe(&self, chain: &[ChainFrame], memory: &impl Memory) -> io::Result<Vec<StackFrame>> {
        let innermost = chain.iter().take(MOST_FRAMES).rev();
        innermost
            .map(|frame| object::describe(memory, &self.layout, &self.types, frame))
            .collect()
    }

    /// All functions of a chain in its order, each if it can be read.
    fn describe_all(
        &self,
        chain: &[ChainFrame],
        memory: &impl Memory,
    ) -> Vec<io::Result<StackFrame>> {
        let all = chain.iter();
        all.map(|frame| object::describe(memory, &self.layout, &self.types, frame))
            .collect()
    }

    /// Whether a thread holds the interpreter's lock.
    fn holds_lock(&self, state: u64, memory: &impl Memory) -> io::Result<bool> {
        let Some(lock) = &self.layout.lock else {
            return Ok(false);
        };
        let interpreter = memory.word(state + self.layout.interpreter)?;
        let lock_at = memory.word(interpreter + lock.of_interpreter)?;
        let holder = memory.word(lock_at + lock.last_holder)?;
        let is_locked = i32::from_ne_bytes(memory.bytes(lock_at + lock.is_locked)?);
        Ok(holder == state && is_locked == 1)
    }
}
