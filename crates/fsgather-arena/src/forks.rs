//! Counts how often this process was forked: [`count`].
//!
//! A forked child has all mappings of its parent, and so all payloads that the parent held. If the parent released one, its owner
//! would write the next payload to the same place while the child may still read there. So neither process ever releases a
//! payload that was held during a fork.
#![expect(unsafe_code, reason = "`pthread_atfork` takes a function of C")]

use std::sync::{
    Once,
    atomic::{AtomicU64, Ordering},
};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// Returns how often this process has been forked, or was about to be, since the first call. In a child it is one more than it
/// was in its parent.
pub(crate) fn count() -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: `about_to_fork` runs in the process that forks, before it does. It adds to an atomic, and nothing else.
        let refused = unsafe { libc::pthread_atfork(Some(about_to_fork), None, None) };
        if refused != 0 {
            // Then no payload is ever released.
            tracing::debug!("shared memory is used once only: error {refused} of pthread_atfork");
            UNKNOWN.store(1, Ordering::Relaxed);
        }
    });
    if UNKNOWN.load(Ordering::Relaxed) == 1 {
        return FORKS.fetch_add(1, Ordering::AcqRel);
    }
    FORKS.load(Ordering::Acquire)
}

/// Whether forks of this process go unnoticed.
static UNKNOWN: AtomicU64 = AtomicU64::new(0);

extern "C" fn about_to_fork() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use fsgather_core::Rank;
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
