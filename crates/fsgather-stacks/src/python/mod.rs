//! The functions that a thread of this process's Python is in: `stack_of`, once [`register`] was called.
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

use std::{
    io, process,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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

/// How many readings of the stack of a thread that runs must begin alike, and how long it goes on between.
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
    /// `threading.main_thread().ident`. Packages such as gevent have it be a number of their own.
    pub main_thread: u64,
    /// `threading.main_thread().native_id`.
    pub main_native_id: Option<u32>,
    /// Directories in which nothing is of the program.
    pub libraries: Vec<String>,
    /// The directory of the package that asks. Where a thread is in functions of it, the one that has called them is told: which
    /// call that is, is known.
    pub package: Option<String>,
    /// The file, line and name of each function that this thread is in, the innermost last, as `sys._getframe()` and what
    /// follows from it tell them.
    pub frames: Vec<(String, Option<u32>, String)>,
}

/// An interpreter whose structures are where they are looked for.
#[derive(Debug)]
struct Interpreter {
    /// The process that it was examined in: one that is forked off may have other threads at the same places.
    process: u32,
    layout: Layout,
    types: Types,
    libraries: Vec<String>,
    package: Option<String>,
    main: Thread,
    main_thread: u64,
    /// Where the state of the main thread lies, which stays as long as the interpreter.
    main_state: u64,
    knows_lock: bool,
}

static INTERPRETER: Mutex<Option<Arc<Interpreter>>> = Mutex::new(None);

/// The interpreter of this process, if it is known.
fn interpreter() -> Option<Arc<Interpreter>> {
    let known = INTERPRETER.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.as_ref();
    known
        .filter(|known| known.process == process::id())
        .map(Arc::clone)
}

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
    if interpreter().is_some() {
        return Ok(());
    }
    let examined = Interpreter::examine(registration, &OwnMemory::open()?)?;
    // Of two threads that come at the same time either is right.
    *INTERPRETER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(examined));
    Ok(())
}

/// The main thread, as the interpreter has it: not that of the process, where a program runs Python in another one.
pub(crate) fn main_thread() -> Option<Thread> {
    interpreter().map(|interpreter| interpreter.main)
}

/// A thread of the interpreter that is not the main one, and is wanted: one that is in functions of the program, if there is one.
pub(crate) fn any_thread(is_wanted: impl Fn(&Thread) -> bool) -> Option<Thread> {
    let memory = OwnMemory::open().ok()?;
    interpreter()?.other_thread(is_wanted, &memory).ok()?
}

/// Whether a thread rests outside of all functions of the program.
pub(crate) fn is_idle(thread: Thread) -> bool {
    let Some(interpreter) = interpreter() else {
        return false;
    };
    let idle = OwnMemory::open().and_then(|memory| interpreter.is_idle(thread, &memory));
    idle.unwrap_or(false)
}

/// The functions that a thread is in; none if it is not one of a known interpreter, or cannot be read.
pub(crate) fn stack_of(thread: Thread) -> PythonStack {
    let Some(interpreter) = interpreter() else {
        return PythonStack::default();
    };
    let read = OwnMemory::open().and_then(|memory| {
        let state = interpreter.state_of_thread(thread, &memory)?;
        interpreter.read(thread, state, &memory)
    });
    let mut stack = read.unwrap_or_default();
    interpreter.leave_out_package(&mut stack.frames);
    stack
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
            process: process::id(),
            layout,
            types,
            libraries: registration.libraries.clone(),
            package: registration.package.clone(),
            main: Thread {
                id: registration.main_native_id,
                handle: None,
            },
            main_thread: 0,
            main_state: state,
            knows_lock: true,
        };
        let found = itself.describe(&chain, memory)?;
        let told = &registration.frames;
        let told = &told[told.len().saturating_sub(MOST_FRAMES)..];
        let agrees = |(found, told): (&StackFrame, &(String, Option<u32>, String))| {
            let (file, line, function) = told;
            found.file == object::shortened(file)
                && found.line == *line
                && found.function == object::shortened(function)
        };
        if found.len() != told.len() || !found.iter().zip(told).all(agrees) {
            return Err(error("its frames are not where they are in its version"));
        }
        let Thread { id: here, handle } = Thread::current();
        if Some(memory.word(state + itself.layout.thread_id)?) != handle {
            return Err(error("its threads are not where they are in its version"));
        }
        // Python may have forgotten to look again after a fork.
        if itself.native_id(state, memory)? != here {
            itself.layout.native_id = None;
        }
        itself.main_state = match itself.state_of(registration.main_thread, memory) {
            Ok(main) => main,
            // Where a package tells the language's threads apart in a way of its own, it is that of the process.
            Err(_) if here == Some(process::id()) => state,
            Err(unknown) => return Err(unknown),
        };
        itself.main_thread = memory.word(itself.main_state + itself.layout.thread_id)?;
        itself.main.handle = Some(itself.main_thread);
        if itself.main_state == state {
            itself.main.id = here;
        }
        itself.knows_lock = itself.holds_lock(state, memory).unwrap_or(false);
        Ok(itself)
    }

    /// Leaves the innermost functions out that are of the package that asks, unless there are no others.
    fn leave_out_package(&self, frames: &mut Vec<StackFrame>) {
        let Some(package) = &self.package else {
            return;
        };
        let is_of_package = |frame: &StackFrame| {
            let rest = frame.file.strip_prefix(package.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        if let Some(caller) = frames.iter().rposition(|frame| !is_of_package(frame)) {
            frames.truncate(caller + 1);
        }
    }

    /// Where the state of a thread lies.
    fn state_of_thread(&self, thread: Thread, memory: &impl Memory) -> io::Result<u64> {
        let state = self.state_of(thread.handle.unwrap_or(self.main_thread), memory)?;
        // The C library gives the names of threads that have ended to others.
        match (thread.id, self.native_id(state, memory)?) {
            (Some(expected), Some(found)) if expected != found => {
                Err(error("its name is another thread's now"))
            }
            _ => Ok(state),
        }
    }

    /// See [`is_idle`].
    fn is_idle(&self, thread: Thread, memory: &impl Memory) -> io::Result<bool> {
        let before = thread.id.and_then(rest_of);
        let state = self.state_of_thread(thread, memory)?;
        let (chain, is_all) = chain::read(memory, &self.layout, state)?;
        // Of a deeper stack the program's functions may be the outer ones.
        if !is_all || chain.is_empty() || chain.len() > MOST_FRAMES {
            return Ok(false);
        }
        let has_own = self
            .describe(&chain, memory)?
            .iter()
            .any(|frame| frame.is_own);
        Ok(!has_own && before.is_some() && before == thread.id.and_then(rest_of))
    }

    /// Where the state of a thread lies, by its name.
    fn state_of(&self, thread: u64, memory: &impl Memory) -> io::Result<u64> {
        let is_it = |state: u64| Ok(memory.word(state + self.layout.thread_id)? == thread);
        let found = self.find_state(is_it, memory)?;
        found.ok_or_else(|| error("the interpreter does not know that thread"))
    }

    /// Where the state of a thread lies that is looked for: the main one, those after it, those before it.
    fn find_state(
        &self,
        mut is_it: impl FnMut(u64) -> io::Result<bool>,
        memory: &impl Memory,
    ) -> io::Result<Option<u64>> {
        if is_it(self.main_state)? {
            return Ok(Some(self.main_state));
        }
        for link in [self.layout.next_thread, self.layout.previous_thread] {
            let mut state = memory.word(self.main_state + link)?;
            for _ in 0..MOST_THREADS {
                if state == 0 {
                    break;
                }
                if is_it(state)? {
                    return Ok(Some(state));
                }
                state = memory.word(state + link)?;
            }
        }
        Ok(None)
    }

    /// The number of a thread in the kernel, where its state has it.
    fn native_id(&self, state: u64, memory: &impl Memory) -> io::Result<Option<u32>> {
        let Some(place) = self.layout.native_id else {
            return Ok(None);
        };
        Ok(u32::try_from(memory.word(state + place)?).ok())
    }

    /// See [`any_thread`].
    fn other_thread(
        &self,
        is_wanted: impl Fn(&Thread) -> bool,
        memory: &impl Memory,
    ) -> io::Result<Option<Thread>> {
        let mut second_best = None;
        let mut best = None;
        let is_best = |state: u64| {
            let thread = Thread {
                id: self.native_id(state, memory)?,
                handle: Some(memory.word(state + self.layout.thread_id)?),
            };
            if state == self.main_state || !is_wanted(&thread) {
                return Ok(false);
            }
            // One that goes on may not be read at this moment; it is no worse for that.
            let frames = chain::read(memory, &self.layout, state)
                .and_then(|(chain, _)| self.describe(&chain, memory))
                .unwrap_or_default();
            second_best.get_or_insert(thread);
            best = Some(thread).filter(|_| frames.iter().any(|frame| frame.is_own));
            Ok(best.is_some())
        };
        self.find_state(is_best, memory)?;
        Ok(best.or(second_best))
    }

    /// Reads the stack of a thread: as it is where the thread rests meanwhile, else what of it stays.
    fn read(&self, thread: Thread, state: u64, memory: &impl Memory) -> io::Result<PythonStack> {
        for _ in 0..TRIES {
            let Some(rest) = thread.id.and_then(rest_of) else {
                break;
            };
            // It may have gone on meanwhile, and be looked at once more.
            let Ok((chain, _)) = chain::read(memory, &self.layout, state) else {
                continue;
            };
            let frames = self.describe(&chain, memory);
            let holds_lock = self.holds_lock(state, memory)?;
            if thread.id.and_then(rest_of) == Some(rest) {
                let frames = frames?;
                return Ok(PythonStack { frames, holds_lock });
            }
        }
        self.read_while_it_runs(state, memory)
    }

    /// Reads the stack of a thread that runs, several times, and tells what those readings have in common that begin alike: the
    /// functions that it does not leave.
    ///
    /// One reading may have seen a function before, and its caller after a step of the thread, or lost its way; not all of them
    /// the same.
    fn read_while_it_runs(&self, state: u64, memory: &impl Memory) -> io::Result<PythonStack> {
        let mut failure = error("the thread does not stay for a moment");
        let mut readings: Vec<Vec<ChainFrame>> = Vec::new();
        let mut holds_lock = true;
        for _ in 0..TRIES * READINGS {
            clock::sleep(PAUSE);
            holds_lock &= self.holds_lock(state, memory)?;
            let last = match chain::read(memory, &self.layout, state) {
                Ok((chain, true)) => chain,
                // It is not less deep the next time, and each look at it is long.
                Ok((_, false)) => return Err(error("the stack is too deep")),
                Err(failed) => {
                    failure = failed;
                    continue;
                }
            };
            let common = |other: &Vec<ChainFrame>| chain::common_callers(&last, other);
            let alike = readings.iter().map(common).filter(|common| *common > 0);
            let (count, common) = alike.fold((1, last.len()), |(count, least), common| {
                (count + 1, least.min(common))
            });
            if count < READINGS || common == 0 {
                readings.push(last);
                continue;
            }
            // Only where it stands still it is in machine code, and gives the lock to nobody.
            let stands = readings.iter().all(|other| *other == last);
            match self.describe(&last[last.len() - common..], memory) {
                Ok(frames) => {
                    return Ok(PythonStack {
                        frames,
                        holds_lock: holds_lock && stands,
                    });
                }
                Err(failed) => failure = failed,
            }
            readings.clear();
        }
        Err(failure)
    }

    /// The innermost functions of a chain, the innermost last.
    fn describe(&self, chain: &[ChainFrame], memory: &impl Memory) -> io::Result<Vec<StackFrame>> {
        let innermost = chain.iter().take(MOST_FRAMES).rev();
        innermost
            .map(|frame| {
                object::describe(memory, &self.layout, &self.types, &self.libraries, frame)
            })
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
