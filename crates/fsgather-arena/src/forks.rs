//! Forked children that may read payloads which this process has held: [`ForkMark`] and [`keep`].
//!
//! A forked child has all mappings of its parent, and so all payloads that the parent held. If the parent released one, its owner
//! would write the next payload to the same place while the child may still read there. So a payload that was held during a fork is
//! released only when the children are gone, and their children: until then they have the mapping of a [`ForkWitness`].
//!
//! One witness is mapped at any time. When a payload is to be released after a fork, the next witness takes its place, and the
//! payload waits for all witnesses that were mapped while it was held. A child that lives long holds one witness; payloads that
//! come later do not wait for it.
#![expect(unsafe_code, reason = "`pthread_atfork` takes a function of C")]

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, Once, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use fsgather_core::lock;

use crate::memory::ForkWitness;

/// Maximum number of witnesses that children hold. Beyond it payloads wait until some of these children have ended.
const MAX_RETIRED_WITNESSES: usize = 64;

/// Maximum number of forks between a process and its ancestor that used this library first. Deeper descendants release nothing that
/// they held during a fork.
const MAX_DEPTH: usize = 8;

/// Forks of this process that have begun, and those that are done.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

/// Number of forks between this process and the ancestor that used this library first.
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// True if forks of this process go unnoticed.
static IS_BLIND: AtomicBool = AtomicBool::new(false);

/// One watch for each depth, since a forked child cannot use locks that other threads of its parent may have held.
static WATCHES: [OnceLock<ForkWatch>; MAX_DEPTH] = [const { OnceLock::new() }; MAX_DEPTH];

extern "C" fn before_fork() {
    BEGUN.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn in_parent() {
    DONE.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn in_child() {
    DEPTH.fetch_add(1, Ordering::SeqCst);
    DONE.fetch_add(1, Ordering::SeqCst);
}

/// The moment at which this process took a payload, in terms of forks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkMark {
    /// Number of forks that were done.
    done: u64,
    depth: usize,
    /// The number of the witness that was mapped.
    witness: u64,
}

impl ForkMark {
    /// The present moment.
    pub(crate) fn now() -> Self {
        static HOOKS: Once = Once::new();
        HOOKS.call_once(|| {
            // SAFETY: the hooks add to atomics, and do nothing else.
            let refused =
                unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
            if refused != 0 {
                tracing::debug!(
                    "shared memory is used once only: error {refused} of pthread_atfork"
                );
                IS_BLIND.store(true, Ordering::SeqCst);
            }
        });
        let depth = DEPTH.load(Ordering::SeqCst);
        let watch = WATCHES.get(depth);
        Self {
            witness: watch.map_or(0, |watch| watch.get_or_init(ForkWatch::begin).current()),
            done: DONE.load(Ordering::SeqCst),
            depth,
        }
    }

    /// Returns true if this process has not been forked since.
    pub(crate) fn is_unforked(&self) -> bool {
        BEGUN.load(Ordering::SeqCst) == self.done && !IS_BLIND.load(Ordering::Relaxed)
    }
}

/// Calls `release` once no child that was forked since `mark` exists. A child never calls it.
pub(crate) fn keep(mark: ForkMark, release: impl FnOnce() + Send + 'static) {
    if IS_BLIND.load(Ordering::Relaxed) || DEPTH.load(Ordering::SeqCst) != mark.depth {
        return;
    }
    if let Some(watch) = WATCHES.get(mark.depth).and_then(OnceLock::get) {
        watch.keep(mark.witness, Box::new(release));
    }
}

/// Releases payloads whose children have ended.
pub(crate) fn release_ended() {
    let watch = WATCHES.get(DEPTH.load(Ordering::Relaxed));
    if let Some(watch) = watch.and_then(OnceLock::get)
        && watch.waiting.load(Ordering::Relaxed) > 0
    {
        watch.release_ended();
    }
}

/// The witnesses of one process, and the payloads that wait for children.
struct ForkWatch {
    /// The number of the witness that is mapped.
    current: AtomicU64,
    /// Number of payloads that wait.
    waiting: AtomicUsize,
    witnesses: Mutex<Witnesses>,
}

struct Witnesses {
    /// `None` if the system has refused the first one.
    mapped: Option<ForkWitness>,
    /// Number of forks that were done when it was mapped.
    mapped_after: u64,
    /// Those that children may still have, by number.
    retired: BTreeMap<u64, ForkWitness>,
    kept: Vec<KeptPayload>,
}

/// A payload that waits for the children that hold witnesses of these numbers.
struct KeptPayload {
    first: u64,
    /// One more than the last one, once that is retired.
    end: Option<u64>,
    release: Box<dyn FnOnce() + Send>,
}

impl ForkWatch {
    fn begin() -> Self {
        let mapped_after = DONE.load(Ordering::SeqCst);
        let mapped = ForkWitness::make();
        Self {
            current: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            witnesses: Mutex::new(Witnesses {
                mapped: mapped
                    .inspect_err(|error| tracing::debug!("forks end shared memory: {error}"))
                    .ok(),
                mapped_after,
                retired: BTreeMap::new(),
                kept: Vec::new(),
            }),
        }
    }

    fn current(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    fn keep(&self, first: u64, release: Box<dyn FnOnce() + Send>) {
        lock(&self.witnesses).kept.push(KeptPayload {
            first,
            end: None,
            release,
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.release_ended();
    }

    fn release_ended(&self) {
        let mut witnesses = lock(&self.witnesses);
        witnesses.close(&self.current);
        let Witnesses { retired, kept, .. } = &mut *witnesses;
        retired.retain(|_, witness| !witness.is_unmapped());
        let is_free = |payload: &mut KeptPayload| {
            let waits = |end| retired.range(payload.first..end).next().is_some();
            payload.end.is_some_and(|end| !waits(end))
        };
        let free: Vec<_> = kept.extract_if(.., is_free).collect();
        drop(witnesses);
        self.waiting.fetch_sub(free.len(), Ordering::SeqCst);
        for payload in free {
            (payload.release)();
        }
    }
}

impl Witnesses {
    /// Sets the last witness of payloads that so far wait for the mapped witness and any later one.
    fn close(&mut self, current: &AtomicU64) {
        let mut open = self.kept.iter_mut().filter(|payload| payload.end.is_none());
        let Some(first) = open.next() else { return };
        let mut end = current.load(Ordering::SeqCst);
        if BEGUN.load(Ordering::SeqCst) != self.mapped_after {
            // A fork that is under way may still copy this witness, the next one, or both.
            let mapped_after = DONE.load(Ordering::SeqCst);
            if self.retired.len() >= MAX_RETIRED_WITNESSES {
                return;
            }
            let (Some(mapped), Ok(next)) = (&mut self.mapped, ForkWitness::make()) else {
                return;
            };
            let mut last = std::mem::replace(mapped, next);
            current.store(end + 1, Ordering::SeqCst);
            last.retire();
            self.retired.insert(end, last);
            self.mapped_after = mapped_after;
            end += 1;
        }
        for payload in std::iter::once(first).chain(open) {
            payload.end = Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        env,
        io::{PipeWriter, pipe},
        ops::Range,
        os::fd::AsRawFd as _,
        process::Command,
        sync::Arc,
    };

    use fsgather_core::Rank;
    use fsgather_testkit::{pace::within_patience, process};
    use rustix::process::{Pid, WaitOptions, waitpid};

    use crate::{
        Arenas, Placement,
        meeting::tests::{call, met, place},
    };

    /// Runs the test of this name in a process of its own: a fork counts for all that its process holds, and other tests of this
    /// one expect places to be free again.
    fn alone(name: &str, test: impl FnOnce()) {
        let exact = "--exact";
        if env::args().any(|argument| argument == exact) {
            return test();
        }
        let mut again = Command::new(env::current_exe().unwrap());
        again.args([exact, &format!("forks::tests::{name}")]);
        let ended = process::output(&mut again).unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    /// A forked child, which reads a payload until it is ended.
    struct Reader {
        child: Pid,
        lives: PipeWriter,
    }

    impl Reader {
        /// Forks a child that closes all descriptors that are not its own. A grandchild reads instead, whose parent has ended, if
        /// that is `deep`.
        fn of(payload: &[u8], deep: bool) -> Self {
            let (waits, lives) = pipe().unwrap();
            let first = payload[0];
            let reads = || {
                // SAFETY: the child uses no descriptor except its standard input.
                let ended = unsafe {
                    libc::dup2(waits.as_raw_fd(), 0);
                    libc::close_range(3, libc::c_uint::MAX, 0);
                    libc::read(0, std::ptr::from_mut(&mut [0_u8]).cast(), 1)
                };
                ended == 0 && payload.iter().all(|byte| *byte == first)
            };
            let child = fork(|| if deep { fork(reads).is_some() } else { reads() });
            Self {
                child: child.unwrap(),
                lives,
            }
        }

        /// Ends the child, and returns true if its payload has not changed.
        fn end(self) -> bool {
            drop(self.lives);
            ended_well(self.child)
        }
    }

    /// Forks a child, which ends with what `run` returns.
    fn fork(run: impl FnOnce() -> bool) -> Option<Pid> {
        // SAFETY: what children of these tests do takes no lock that another thread could have had, and they end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = if run() { 3 } else { 4 };
            // SAFETY: nothing of the child is to be cleaned up.
            unsafe { libc::_exit(status) };
        }
        Pid::from_raw(child)
    }

    fn ended_well(child: Pid) -> bool {
        let waited = waitpid(Some(child), WaitOptions::empty());
        waited.unwrap().unwrap().1.exit_status() == Some(3)
    }

    /// Returns true if `run` returns true in a forked child.
    fn in_child(run: impl FnOnce() -> bool) -> bool {
        ended_well(fork(run).unwrap())
    }

    /// Places payloads of one size, one after the other, and returns where they begin.
    fn starts(all: &[Arc<Arenas>], epochs: Range<u64>) -> BTreeSet<u64> {
        let readers = [Rank::new(1)];
        let mut starts = BTreeSet::new();
        for epoch in epochs {
            let location = place(&all[0], &[9; 10_000], epoch, &readers);
            drop(all[1].lease(Rank::ZERO, &location, call(epoch)).unwrap());
            starts.insert(location.start);
        }
        starts
    }

    #[test]
    fn payload_keeps_its_place_until_forked_children_end() {
        alone("payload_keeps_its_place_until_forked_children_end", || {
            let all = met(2);
            let readers = [Rank::new(1)];
            let location = place(&all[0], &[1; 10_000], 0, &readers);
            let held = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
            let mut held = Some(held);
            let early = Reader::of(held.as_deref().unwrap(), false);
            let late = Reader::of(held.as_deref().unwrap(), false);
            // The child drops its lease while the parent still reads.
            assert!(in_child(|| held.take().is_some()));
            assert!(!starts(&all, 1..5).contains(&location.start));
            drop(held);
            assert!(!starts(&all, 5..9).contains(&location.start));
            assert!(early.end());
            assert!(!starts(&all, 9..13).contains(&location.start));
            assert!(late.end());
            assert!(starts(&all, 13..17).contains(&location.start));
        });
    }

    #[test]
    fn payload_keeps_its_place_until_a_grandchild_ends() {
        alone("payload_keeps_its_place_until_a_grandchild_ends", || {
            let all = met(2);
            let location = place(&all[0], &[1; 10_000], 0, &[Rank::new(1)]);
            let held = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
            let Reader { child, lives } = Reader::of(&held, true);
            drop(held);
            assert!(ended_well(child));
            assert!(!starts(&all, 1..5).contains(&location.start));
            drop(lives);
            within_patience(|| {
                let mut epochs = (5..).step_by(2);
                while !starts(&all, epochs.next().map_or(0..0, |epoch| epoch..epoch + 2))
                    .contains(&location.start)
                {}
            });
        });
    }

    #[test]
    fn payload_that_no_child_has_is_released_at_once() {
        alone("payload_that_no_child_has_is_released_at_once", || {
            let all = met(2);
            for epoch in 0..200 {
                let location = place(&all[0], &[1; 10_000], epoch, &[Rank::new(1)]);
                let held = all[1].lease(Rank::ZERO, &location, call(epoch)).unwrap();
                assert!(in_child(|| held[0] == 1));
                drop(held);
            }
            assert_eq!(starts(&all, 200..201).len(), 1);
            assert!(starts(&all, 201..210).contains(&0));
        });
    }

    #[test]
    fn payloads_do_not_wait_for_children_that_are_older() {
        alone("payloads_do_not_wait_for_children_that_are_older", || {
            let all = met(2);
            let location = place(&all[0], &[1; 10_000], 0, &[Rank::new(1)]);
            let first = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
            let older = Reader::of(&first, false);
            drop(first);
            let next = place(&all[0], &[2; 10_000], 1, &[Rank::new(1)]);
            let second = all[1].lease(Rank::ZERO, &next, call(1)).unwrap();
            assert!(in_child(|| second[0] == 2));
            drop(second);
            assert_eq!(starts(&all, 2..6), BTreeSet::from([next.start]));
            assert!(older.end());
        });
    }

    #[test]
    fn a_forked_child_takes_nothing_of_what_its_parent_shares() {
        alone(
            "a_forked_child_takes_nothing_of_what_its_parent_shares",
            || {
                let all = met(2);
                let own = all[0].own();
                let placement = Placement {
                    call: call(1),
                    readers: &[Rank::new(1)],
                    is_gone: &|_| false,
                };
                place(&all[0], &[1; 10_000], 0, &[]);
                let bytes: &[u8] = &[2; 10_000];
                assert!(in_child(|| { own.place(&[bytes], &placement).is_none() }));
                assert!(own.place(&[bytes], &placement).is_some());
            },
        );
    }
}
