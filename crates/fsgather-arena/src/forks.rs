//! Counts how often this process was forked: [`count`].
//!
//! A forked child has all mappings of its parent, and so all payloads that the parent held. When the parent lets go of one, its
//! owner writes the next payload to the same place, under the child's eyes. So what was held while a child was made is never
//! let go of, by neither of them: the child may read it for ever.
#![expect(unsafe_code, reason = "what `fork` calls is given to a function of C")]

use std::sync::{
    Once,
    atomic::{AtomicU64, Ordering},
};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How often this process has been forked, or was about to be, since this was first asked; in a child one more than in its parent
/// before.
pub(crate) fn count() -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // SAFETY: `about_to_fork` runs in the process that forks, before it does. It adds to an atomic, and nothing else.
        let refused = unsafe { libc::pthread_atfork(Some(about_to_fork), None, None) };
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

#[cfg(test)]
mod tests {
    use fsgather_core::Rank;
    use rustix::process::{Pid, WaitOptions, waitpid};

    use crate::meeting::tests::{call, met, place};

    #[test]
    fn what_a_forked_child_may_read_stays_where_it_is() {
        let all = met(2);
        let readers = [Rank::new(1)];
        let location = place(&all[0], &[1; 10_000], 0, &readers);
        let held = all[1].lease(Rank::ZERO, &location, call(0)).unwrap();
        // SAFETY: the child drops one value, which takes no lock, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // What a child drops, its parent still reads.
            drop(held);
            // SAFETY: nothing of the child is to be cleaned up.
            unsafe { libc::_exit(0) };
        }
        waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap();
        let others = [2, 3].map(|byte| place(&all[0], &[byte; 10_000], u64::from(byte), &readers));
        assert!(others.iter().all(|other| other != &location));
        assert_eq!(*held, [1; 10_000]);
        drop(held);
        let next = place(&all[0], &[4; 10_000], 4, &readers);
        assert!(
            all[1].lease(Rank::ZERO, &location, call(0)).is_some(),
            "nothing was written there"
        );
        assert!(others.iter().all(|other| *other != next));
    }
}
