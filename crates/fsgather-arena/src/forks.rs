//! Counts how often this process was forked: [`count`].
//!
//! A forked child has all mappings of its parent, and so all payloads that the parent held. When the parent lets go of one, its
//! owner writes the next payload to the same place, under the child's eyes. So what was held while a child was made is never
//! let go of, by neither of them: the child may read it for ever.
//!
//! What the parent itself writes to, for others to read, is a [`SharedMapping`]: in a child it becomes the child's own at once,
//! so that what the child writes there is seen by nobody.
#![expect(
    unsafe_code,
    reason = "what `fork` calls is given to a function of C, and exchanges mappings"
)]

use std::{
    io,
    sync::{
        Once,
        atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering},
    },
};

use memmap2::MmapRaw;

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How often this process has been forked, or was about to be, since this was first asked; in a child one more than in its parent
/// before.
pub(crate) fn count() -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: `about_to_fork` runs in the process that forks, before it does. It adds to an atomic, and nothing else.
        // `keep_to_oneself` runs in the child, and reads atomics and makes system calls alone.
        let refused =
            unsafe { libc::pthread_atfork(Some(about_to_fork), None, Some(keep_to_oneself)) };
        if refused != 0 {
            // Then nothing is ever let go of.
            tracing::debug!("shared memory is used once only: error {refused} of pthread_atfork");
            UNKNOWN.store(1, Ordering::Relaxed);
        }
    });
    if UNKNOWN.load(Ordering::Relaxed) == 1 {
        return FORKS.fetch_add(1, Ordering::AcqRel);
    }
    FORKS.load(Ordering::Acquire)
}

/// Whether it is not known when this process is forked.
static UNKNOWN: AtomicU64 = AtomicU64::new(0);

extern "C" fn about_to_fork() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

/// How many mappings a process may have that it shares by writing to them.
const MOST_SHARED: usize = 256;

/// Where in the process such a mapping is, and of which file.
struct Entry {
    is_taken: AtomicBool,
    /// None as long as this is 0.
    address: AtomicUsize,
    len: AtomicUsize,
    descriptor: AtomicI32,
    start: AtomicU64,
}

/// A child finds them as they were when it was made; no lock could be had there.
static SHARED: [Entry; MOST_SHARED] = [const {
    Entry {
        is_taken: AtomicBool::new(false),
        address: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        descriptor: AtomicI32::new(0),
        start: AtomicU64::new(0),
    }
}; MOST_SHARED];

/// A mapping by which this process writes what others read, for as long as it is one.
#[derive(Debug)]
pub(crate) struct SharedMapping(usize);

impl SharedMapping {
    /// Forked children will have the bytes of `map` for themselves; they are those of a file from `start` on.
    ///
    /// # Errors
    ///
    /// There are too many, or it is not known when this process is forked.
    pub(crate) fn of(map: &MmapRaw, descriptor: i32, start: u64) -> io::Result<Self> {
        count();
        if UNKNOWN.load(Ordering::Relaxed) == 1 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let free = |entry: &Entry| !entry.is_taken.swap(true, Ordering::AcqRel);
        let index = SHARED.iter().position(free);
        let index = index.ok_or(io::ErrorKind::QuotaExceeded)?;
        let entry = &SHARED[index];
        entry.len.store(map.len(), Ordering::Relaxed);
        entry.descriptor.store(descriptor, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        entry
            .address
            .store(map.as_ptr() as usize, Ordering::Release);
        Ok(Self(index))
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        let entry = &SHARED[self.0];
        entry.address.store(0, Ordering::Release);
        entry.is_taken.store(false, Ordering::Release);
    }
}

/// In a child: makes every mapping that its parent shares by writing to it one of the child's own, of the same bytes.
extern "C" fn keep_to_oneself() {
    for entry in &SHARED {
        let address = entry.address.load(Ordering::Acquire);
        if address == 0 {
            continue;
        }
        let len = entry.len.load(Ordering::Relaxed);
        let start = libc::off_t::try_from(entry.start.load(Ordering::Relaxed));
        let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(address);
        // SAFETY: the child has a mapping there, as its parent had when the entry was as it is, and it is as long; no other
        // thread is there that could have unmapped it. Another one of the same bytes, which is made elsewhere and which nobody
        // knows of, takes its place (`OwnMemory::part_with` says why in two steps). Should there be none, nobody can write
        // through the one that is there.
        unsafe {
            let own = libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE,
                entry.descriptor.load(Ordering::Relaxed),
                start.unwrap_or(-1),
            );
            let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            if own == libc::MAP_FAILED || libc::mremap(own, len, len, moves, at) == libc::MAP_FAILED
            {
                libc::mprotect(at, len, libc::PROT_READ);
            }
        }
        // What the child writes there is seen by its own children, as all else that it has.
        entry.address.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use fsgather_core::{Rank, lock};
    use fsgather_testkit::process;
    use rustix::process::{Pid, WaitOptions, waitpid};

    use crate::{
        Placement,
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

    /// Whether a forked child finds something to be so.
    fn in_child(run: impl FnOnce() -> bool) -> bool {
        // SAFETY: what children of these tests do takes no lock that another thread could have had, and they end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = if run() { 3 } else { 4 };
            // SAFETY: nothing of the child is to be cleaned up.
            unsafe { libc::_exit(status) };
        }
        let waited = waitpid(Pid::from_raw(child), WaitOptions::empty());
        waited.unwrap().unwrap().1.exit_status() == Some(3)
    }

    #[test]
    fn what_a_forked_child_may_read_stays_where_it_is() {
        alone("what_a_forked_child_may_read_stays_where_it_is", || {
            let all = met(2);
            let readers = [Rank::new(1)];
            let location = place(&all[0], &[1; 10_000], 0, &readers);
            let held = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
            let mut held = Some(held);
            // What a child drops, its parent still reads.
            assert!(in_child(|| held.take().is_some()));
            let others =
                [2, 3].map(|byte| place(&all[0], &[byte; 10_000], u64::from(byte), &readers));
            assert!(others.iter().all(|other| other != &location));
            assert_eq!(held.as_deref(), Some(&[1; 10_000][..]));
            drop(held);
            let next = place(&all[0], &[4; 10_000], 4, &readers);
            assert!(
                all[1].lease(Rank::ZERO, &location, call(0)).is_some(),
                "nothing was written there"
            );
            assert!(others.iter().all(|other| *other != next));
        });
    }

    #[test]
    fn what_a_forked_child_writes_to_memory_that_is_shared_nobody_sees() {
        const LEN: usize = 16_000;
        alone(
            "what_a_forked_child_writes_to_memory_that_is_shared_nobody_sees",
            || {
                let all = met(2);
                let mut memory = all[0].own().lend(LEN).unwrap();
                memory.fill(7);
                assert!(in_child(|| {
                    let held = memory.iter().all(|byte| *byte == 7);
                    memory.fill(9);
                    held && memory.iter().all(|byte| *byte == 9)
                }));
                assert_eq!(*memory, [7; LEN]);
                let hand_over = |bytes: &[u8], epoch| {
                    let placement = Placement {
                        call: call(epoch),
                        readers: &[Rank::new(1)],
                        is_gone: &|_| false,
                    };
                    all[0].own().place(&[bytes], &placement).unwrap()
                };
                let location = hand_over(&memory, 0);
                let read = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
                assert_eq!(*read, [7; LEN]);
                drop((read, memory));
                let next = all[0].own().lend(LEN).unwrap();
                assert_ne!(
                    hand_over(&next, 1).start,
                    location.start,
                    "another child may have it still"
                );
            },
        );
    }

    #[test]
    fn no_mapping_is_left_where_a_forked_child_may_read_for_ever() {
        const LEN: usize = 16_000;
        alone(
            "no_mapping_is_left_where_a_forked_child_may_read_for_ever",
            || {
                let all = met(2);
                let own = all[0].own();
                let frozen = own.lend(LEN).unwrap().freeze();
                let bytes = frozen.as_ref().to_vec();
                assert!(in_child(|| frozen.as_ref() == bytes));
                drop(frozen);
                assert!(lock(&own.left_mappings).is_empty());
                drop(own.lend(LEN).unwrap().freeze());
                assert_eq!(lock(&own.left_mappings).len(), 1);
            },
        );
    }

    #[test]
    fn what_a_forked_child_has_written_its_own_children_see() {
        const LEN: usize = 16_000;
        alone(
            "what_a_forked_child_has_written_its_own_children_see",
            || {
                let all = met(2);
                let mut memory = all[0].own().lend(LEN).unwrap();
                memory.fill(7);
                assert!(in_child(|| {
                    memory.fill(9);
                    in_child(|| memory.iter().all(|byte| *byte == 9))
                }));
                assert_eq!(*memory, [7; LEN]);
            },
        );
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
                assert!(in_child(|| {
                    own.lend(bytes.len()).is_none() && own.place(&[bytes], &placement).is_none()
                }));
                assert!(own.place(&[bytes], &placement).is_some());
                assert!(own.lend(bytes.len()).is_some());
            },
        );
    }
}
