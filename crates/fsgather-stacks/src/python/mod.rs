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

use std::{io, sync::OnceLock, time::Duration};

use fsgather_core::{MOST_FRAMES, StackFrame};
use fsgather_system::clock;

use crate::{
    caller::Thread,
    memory::{Memory, OwnMemory},
    thread::rest_of,
};

use self::{chain::ChainFrame, layout::Layout, object::Types};

/// How often it is tried to read a stack.
const TRIES: usize = 8;

/// How often the stack of a thread that runs is read, and how long it goes on between.
const READINGS: usize = 5;
const PAUSE: Duration = Duration::from_millis(2);

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
        interpreter.read(thread, state, &memory)
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
            knows_lock: true,
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

    /// Reads the stack of a thread: as it is where the thread rests meanwhile, else what of it stays.
    fn read(&self, thread: Thread, state: u64, memory: &impl Memory) -> io::Result<PythonStack> {
        for _ in 0..TRIES {
            let Some(rest) = rest_of(thread.id) else {
                break;
            };
            let (chain, _) = chain::read(memory, &self.layout, state)?;
            let frames = self.describe(&chain, memory);
            let holds_lock = self.holds_lock(state, memory)?;
            if rest_of(thread.id) == Some(rest) {
                let frames = frames?;
                return Ok(PythonStack { frames, holds_lock });
            }
        }
        self.read_while_it_runs(state, memory)
    }

    /// Reads the stack of a thread that runs, several times, and tells what all readings have: the functions that it does not leave.
    ///
    /// One reading may have seen a function before, and its caller after a step of the thread; not all of them the same.
    fn read_while_it_runs(&self, state: u64, memory: &impl Memory) -> io::Result<PythonStack> {
        let mut failure = error("the thread does not stay for a moment");
        for _ in 0..TRIES {
            let mut readings = Vec::new();
            let mut holds_lock = true;
            for _ in 0..READINGS {
                clock::sleep(PAUSE);
                match chain::read(memory, &self.layout, state) {
                    Ok((chain, true)) => readings.push(chain),
                    Ok((_, false)) => failure = error("the stack is too deep"),
                    Err(failed) => failure = failed,
                }
                holds_lock &= self.holds_lock(state, memory)?;
            }
            let Some((last, others)) = readings.split_last() else {
                continue;
            };
            let common = others
                .iter()
                .map(|other| chain::common_callers(last, other));
            let common = common.min().filter(|_| readings.len() == READINGS);
            let common = common.unwrap_or_default();
            if common == 0 {
                continue;
            }
            let stable = &last[last.len() - common..];
            match self.describe(stable, memory) {
                // Only where it stands still it is in machine code, and gives the lock to nobody.
                Ok(frames) => {
                    let stands = others.iter().all(|other| other == last);
                    let holds_lock = holds_lock && stands;
                    return Ok(PythonStack { frames, holds_lock });
                }
                Err(failed) => failure = failed,
            }
        }
        Err(failure)
    }

    /// The innermost functions of a chain, the innermost last.
    fn describe(&self, chain: &[ChainFrame], memory: &impl Memory) -> io::Result<Vec<StackFrame>> {
        let innermost = chain.iter().take(MOST_FRAMES).rev();
        innermost
            .map(|frame| object::describe(memory, &self.layout, &self.types, frame))
            .collect()
    }

    /// Whether a thread holds the interpreter's lock.
    fn holds_lock(&self, state: u64, memory: &impl Memory) -> io::Result<bool> {
        let Some(lock) = self.layout.lock.as_ref().filter(|_| self.knows_lock) else {
            return Ok(false);
        };
        let interpreter = memory.word(state + self.layout.interpreter)?;
        let lock_at = memory.word(interpreter + lock.of_interpreter)?;
        let holder = memory.word(lock_at + lock.last_holder)?;
        let is_locked = i32::from_ne_bytes(memory.bytes(lock_at + lock.is_locked)?);
        Ok(holder == state && is_locked == 1)
    }
}
