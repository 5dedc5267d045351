//! Tests of [`Pending`] calls that are awaited.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    thread,
};

use super::*;
use crate::Communicator;

#[test]
fn who_asks_again_after_the_result_is_told_so() {
    let mut pending = Communicator::solo().start_all_gather(&1).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let result = loop {
        match Pin::new(&mut pending).poll(&mut context) {
            Poll::Ready(result) => break result,
            Poll::Pending => thread::yield_now(),
        }
    };
    assert_eq!(result, Ok(vec![1]));
    let again = Pin::new(&mut pending).poll(&mut context);
    assert!(matches!(again, Poll::Ready(Err(Error::Config { .. }))));
}

/// A value that the thread which waits cannot read.
#[derive(Debug, serde::Serialize)]
struct Unreadable;

impl<'de> serde::Deserialize<'de> for Unreadable {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        let thread = thread::current();
        assert_ne!(thread.name(), Some("fsgather-await"), "unreadable");
        Ok(Self)
    }
}

#[test]
fn a_panic_in_the_users_code_reaches_who_awaits() {
    let mut pending = Communicator::solo().start_all_gather(&Unreadable).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let polling = AssertUnwindSafe(|| {
        while Pin::new(&mut pending).poll(&mut context).is_pending() {
            thread::yield_now();
        }
    });
    let panicked = catch_unwind(polling).unwrap_err();
    let text: &String = panicked.downcast_ref().unwrap();
    assert!(text.contains("unreadable"), "{text}");
}

/// Polls once for a waker that does nothing.
fn poll_once<R: Send + 'static>(pending: &mut Pending<R>) -> Poll<Result<R, Error>> {
    Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()))
}

/// A call that has been polled, and has most probably not come by then.
fn polled(alone: &Communicator) -> Result<Pending<Vec<u32>>, Error> {
    loop {
        let mut pending = alone.start_all_gather(&7_u32)?;
        if poll_once(&mut pending).is_pending() {
            break Ok(pending);
        }
    }
}

/// A way to ask for the result of a call.
type Ask = fn(Pending<Vec<u32>>) -> Result<Vec<u32>, Error>;

#[test]
fn a_call_that_has_been_polled_can_still_be_asked_for_in_other_ways() {
    let asks: [Ask; 3] = [
        Pending::wait,
        |mut pending| loop {
            if let Some(result) = pending.try_wait()? {
                break Ok(result);
            }
            thread::yield_now();
        },
        |mut pending| {
            let result = pending.wait_timeout(Duration::MAX)?;
            let again = pending.wait_timeout(Duration::ZERO);
            assert!(matches!(again, Err(Error::Config { .. })), "{again:?}");
            Ok(result.unwrap())
        },
    ];
    for ask in asks {
        assert_eq!(ask(polled(&Communicator::solo()).unwrap()), Ok(vec![7]));
    }
}

/// A waker that does what none should.
struct Panicking(AtomicBool);

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("a waker's panic"));
    }
}

#[test]
fn a_waker_that_panics_harms_no_other_call() {
    let alone = Communicator::solo();
    let woken = Arc::new(Panicking(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    while !woken.0.load(Ordering::SeqCst) {
        let mut harmful = alone.start_all_gather(&7_u32).unwrap();
        let polled_first = Pin::new(&mut harmful).poll(&mut Context::from_waker(&waker));
        let mut harmless = polled(&alone).unwrap();
        // A test that waits for ever would not tell what is wrong.
        let limit = Duration::from_secs(20);
        assert_eq!(harmless.wait_timeout(limit), Ok(Some(vec![7])));
        if polled_first.is_pending() {
            assert_eq!(harmful.wait(), Ok(vec![7]));
        }
    }
}

#[test]
fn close_may_follow_at_once_when_a_future_is_dropped() {
    for _ in 0..20 {
        let alone = Communicator::solo();
        drop(polled(&alone).unwrap());
        assert_eq!(alone.close(), Ok(()));
    }
}

/// Tells when it is being read by the thread that waits, and is read when it may be.
#[derive(Debug, serde::Serialize)]
struct Gated;

static IS_READ: Barrier = Barrier::new(2);
static MAY_BE_READ: Barrier = Barrier::new(2);

impl<'de> serde::Deserialize<'de> for Gated {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        if thread::current().name() == Some("fsgather-await") {
            IS_READ.wait();
            MAY_BE_READ.wait();
        }
        Ok(Self)
    }
}

#[test]
fn close_waits_for_what_is_read_of_a_call_that_nobody_awaits_any_more() {
    let communicator = Communicator::solo();
    let mut pending = communicator.start_all_gather(&Gated).unwrap();
    assert!(poll_once(&mut pending).is_pending());
    IS_READ.wait();
    drop(pending);
    thread::scope(|scope| {
        scope.spawn(|| MAY_BE_READ.wait());
        assert_eq!(communicator.close(), Ok(()));
    });
}
