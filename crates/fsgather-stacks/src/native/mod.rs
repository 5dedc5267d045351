//! The functions of machine code that a waiting thread is in: [`frames_of`].
//!
//! - `maps`, `module`: what lies where; `capture`: the stack as it is at one moment; `walk`, `depth`: who has called whom.
//! - `symbols`, `names`: what functions are called; `chosen`: which of them say something.

mod capture;
mod chosen;
mod depth;
mod maps;
mod module;
mod names;
mod symbols;
mod walk;

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use fsgather_core::StackFrame;
use fsgather_system::{channel::channel, thread};

use self::{capture::Capture, maps::Maps};
use crate::memory::OwnMemory;

/// How long a look may take. Code and names are read of files that may hang as everything else does.
const LIMIT: Duration = Duration::from_millis(500);

/// The process in which a look goes on: one that was forked from it meanwhile has none of its own.
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// A look that goes on, which is so until this is dropped.
struct Look;

impl Look {
    /// Nothing, if another one goes on: it may never end.
    fn begin() -> Option<Self> {
        let own = process::id();
        (LOOKS.swap(own, Ordering::SeqCst) != own).then_some(Self)
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        LOOKS.store(0, Ordering::SeqCst);
    }
}

/// The functions of a thread that has rested all the time since that was `rest` of it, the innermost last; nothing if it has not.
///
/// Of a thread `of_python` only the innermost, if Python has called it: the others are Python's.
pub(crate) fn frames_of(thread: u32, rest: u64, of_python: bool) -> Option<Vec<StackFrame>> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some(Vec::new());
    }
    let Some(look) = Look::begin() else {
        return Some(Vec::new());
    };
    let (tell, told) = channel();
    let started = thread::start("fsgather-machine-code".into(), move || {
        let frames = read(thread, rest, of_python);
        drop(look);
        // Whoever has asked may not wait any more.
        let _ = tell.send(frames);
    });
    if started.is_err() {
        return Some(Vec::new());
    }
    told.recv_timeout(LIMIT)
        .unwrap_or_else(|_| Some(Vec::new()))
}

fn read(thread: u32, rest: u64, of_python: bool) -> Option<Vec<StackFrame>> {
    // Tables that nothing has needed yet may have to be fetched, from a file server that may hang.
    let memory = OwnMemory::open().ok().filter(OwnMemory::waits_alone);
    let (Some(memory), Ok(maps)) = (memory, Maps::read()) else {
        return Some(Vec::new());
    };
    let capture = Capture::take(thread, rest, &maps, &memory).ok().flatten()?;
    let steps = walk::walk(&memory, &maps, &capture);
    let frames = chosen::frames(&steps, of_python);
    // What has been read may be that of a library that was there, and then another one.
    let now = Maps::read().ok()?;
    let stays = |step: &walk::Step<'_>| {
        now.at(step.at) == Some(step.mapping)
            && now.start_of(step.mapping) == maps.start_of(step.mapping)
    };
    steps.iter().all(stays).then_some(frames)
}
