//! Asks the interpreter of this process for the functions of its threads: `ask`.
//!
//! A thread of its own waits for the interpreter's lock, so that the report does not have to. It exists only while a
//! question is open, and all reports that need the answer share it.

use std::{
    process,
    sync::{Condvar, Mutex, OnceLock, PoisonError, atomic::AtomicU64, atomic::Ordering},
    time::{Duration, Instant},
};

use crate::{
    MOST_FRAMES, StackFrame, lock, process_state,
    sys::{clock, thread},
};

use super::caller::Thread;

/// Time that the interpreter has to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Maximum number of times that `ask` waits for [`ANSWER_LIMIT`] if no processor has run the question yet.
const MAX_WAITS: usize = 5;

/// A thread of the interpreter.
#[derive(Clone, Debug)]
pub struct InterpreterThread {
    /// The thread.
    pub thread: Thread,
    /// True if the interpreter takes it for its main thread.
    pub is_main: bool,
    /// Its functions, the innermost last, at most [`MOST_FRAMES`].
    pub frames: Vec<StackFrame>,
}

/// Lists the threads of the interpreter. It waits for the interpreter's lock.
pub type ThreadLister = fn() -> Vec<InterpreterThread>;

static LISTER: OnceLock<ThreadLister> = OnceLock::new();

/// Handle of the main thread of the process, once it has registered an interpreter.
static MAIN_HANDLE: AtomicU64 = AtomicU64::new(0);

/// Registers the interpreter of this process. Later calls only record the main thread, which a fork may change.
pub fn register(lister: ThreadLister) {
    LISTER.get_or_init(|| lister);
    if let Thread {
        id: Some(id),
        handle: Some(handle),
    } = Thread::current()
        && id == process::id()
    {
        MAIN_HANDLE.store(handle, Ordering::Relaxed);
    }
}

/// Returns the main thread among these. Packages such as gevent give the main thread another identity, so the own
/// record counts first.
pub(crate) fn main_thread(threads: &[InterpreterThread]) -> Option<Thread> {
    let noted = Thread {
        id: Some(process::id()),
        handle: Some(MAIN_HANDLE.load(Ordering::Relaxed)),
    };
    if threads.iter().any(|known| known.thread.is(noted)) {
        return Some(noted);
    }
    let main = threads.iter().find(|known| known.is_main)?;
    Some(main.thread)
}

/// The question to the interpreter, and its last answer.
struct Question {
    /// The process that asks: a forked child inherits the question without the waiting thread.
    process: u32,
    /// Start of the wait for the interpreter's lock, if a thread waits.
    since: Option<Instant>,
    /// The number of that thread in the kernel, once it runs.
    waiter: Option<u32>,
    answers: u64,
    threads: Vec<InterpreterThread>,
}

impl Question {
    const fn new(process: u32) -> Self {
        Self {
            process,
            since: None,
            waiter: None,
            answers: 0,
            threads: Vec::new(),
        }
    }
}

static QUESTION: Mutex<Question> = Mutex::new(Question::new(0));
static ANSWERED: Condvar = Condvar::new();

/// Returns the threads of the interpreter; none if there is no interpreter, or it is about to end.
///
/// # Errors
///
/// The time for which a thread has held the interpreter's lock, if that is longer than [`ANSWER_LIMIT`].
pub(crate) fn ask() -> Result<Vec<InterpreterThread>, Duration> {
    let Some(lister) = LISTER.get().copied() else {
        return Ok(Vec::new());
    };
    let mut question = lock(&QUESTION);
    if question.process != process::id() {
        *question = Question::new(process::id());
    }
    let since = question.since.unwrap_or_else(clock::now);
    if question.since.is_none() {
        let started = thread::start("fsgather-ask".into(), move || answer(lister));
        if let Err(error) = started {
            tracing::debug!("no thread to ask the interpreter: {error}");
            return Ok(Vec::new());
        }
        question.since = Some(since);
    }
    let before = question.answers;
    for _ in 0..MAX_WAITS {
        let answered = ANSWERED.wait_timeout_while(question, ANSWER_LIMIT, |question| {
            question.answers == before
        });
        question = answered.unwrap_or_else(PoisonError::into_inner).0;
        if question.answers != before {
            return Ok(question.threads.clone());
        }
        // A thread that does not run because the machine is busy shows nothing about the lock.
        if question.waiter.is_some_and(process_state::is_waiting) {
            return Err(since.elapsed());
        }
    }
    Ok(Vec::new())
}

/// Gets the answer, on the thread that waits for it.
fn answer(lister: ThreadLister) {
    lock(&QUESTION).waiter = Thread::current().id;
    let threads = lister();
    let mut question = lock(&QUESTION);
    question.since = None;
    question.waiter = None;
    question.answers += 1;
    question.threads = threads;
    ANSWERED.notify_all();
}

/// Directories that show the owner of a file.
#[derive(Debug)]
pub struct Libraries {
    /// The package that asks. A thread in its functions is reported by the function that called them, because the call
    /// itself is known.
    pub package: String,
    /// The directory of the language's own modules.
    pub language: String,
}

impl Libraries {
    /// Returns the frames of a thread for a report, the innermost last. `functions` has the file, line and name of its
    /// functions, the innermost first.
    pub fn frames(
        &self,
        functions: impl Iterator<Item = (String, Option<u32>, String)>,
    ) -> Vec<StackFrame> {
        let frames = functions.map(|(file, line, function)| StackFrame {
            is_own: self.is_own(&file),
            file,
            line,
            function,
        });
        let mut frames: Vec<StackFrame> = frames.take(2 * MOST_FRAMES).collect();
        let caller = frames
            .iter()
            .position(|frame| !is_within(&frame.file, &self.package));
        frames.drain(..caller.unwrap_or_default());
        frames.truncate(MOST_FRAMES);
        frames.reverse();
        frames
    }

    /// Returns true if a file belongs to the program, as far as its name shows, and not to the language or an installed
    /// package.
    fn is_own(&self, file: &str) -> bool {
        let installed = [
            "/lib/python",
            "/lib64/python",
            "/site-packages/",
            "/dist-packages/",
        ];
        !file.starts_with('<')
            && !installed.iter().any(|part| file.contains(part))
            && !is_within(file, &self.package)
            && !is_within(file, &self.language)
    }
}

/// Returns true if a file is below a directory.
fn is_within(file: &str, directory: &str) -> bool {
    let rest = file.strip_prefix(directory);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries() -> Libraries {
        Libraries {
            package: "/home/me/checkout/fsgather".into(),
            language: "/opt/py".into(),
        }
    }

    #[test]
    fn files_of_libraries_are_not_the_programs() {
        for file in [
            "/home/me/eval.py",
            "eval.py",
            "/home/me/fsgather/eval.py",
            "/home/me/checkout/fsgather.py",
        ] {
            assert!(libraries().is_own(file), "{file}");
        }
        for file in [
            "<frozen importlib._bootstrap>",
            "/usr/lib/python3.11/threading.py",
            "/v/site-packages/h5/__init__.py",
            "/opt/py/queue.py",
            "/home/me/checkout/fsgather/_communicator.py",
        ] {
            assert!(!libraries().is_own(file), "{file}");
        }
    }

    #[test]
    fn frames_begin_with_the_caller_of_the_package() {
        let function = |file: &str, line| (file.to_owned(), Some(line), "f".to_owned());
        let package = "/home/me/checkout/fsgather/_communicator.py";
        let functions = [function(package, 1), function(package, 2)];
        let frames = libraries().frames(functions.clone().into_iter());
        let lines: Vec<_> = frames.iter().map(|frame| frame.line).collect();
        assert_eq!(lines, [Some(2), Some(1)], "there is no caller");
        let program = (3..100).map(|line| function("/home/me/eval.py", line));
        let frames = libraries().frames(functions.into_iter().chain(program));
        assert_eq!(frames.len(), MOST_FRAMES);
        assert_eq!(frames.last().unwrap().line, Some(3), "the innermost");
    }
}
