//! Threads of a model, all on one real thread: [`Coroutine`]. No other file here has code that the compiler cannot check.
#![expect(unsafe_code, reason = "the argument stands beside each")]

use std::{cell::Cell, ptr::NonNull};

use corosensei::{CoroutineResult, Yielder, stack::DefaultStack};

thread_local! {
    /// Suspends the running coroutine.
    static YIELDER: Cell<Option<NonNull<Yielder<(), ()>>>> = const { Cell::new(None) };
    /// Stacks for reuse.
    static STACKS: Cell<Vec<DefaultStack>> = const { Cell::new(Vec::new()) };
}

/// Enough for the deepest calls of a debug build.
const STACK: usize = 1 << 20;

/// A thread of the model.
pub(crate) struct Coroutine(Option<corosensei::Coroutine<(), (), (), DefaultStack>>);

impl Coroutine {
    pub(crate) fn new(work: Box<dyn FnOnce()>) -> Self {
        let mut kept = STACKS.take();
        let stack = kept
            .pop()
            .unwrap_or_else(|| DefaultStack::new(STACK).expect("a stack"));
        STACKS.set(kept);
        let body = move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(Some(NonNull::from(yielder)));
            work();
        };
        Self(Some(corosensei::Coroutine::with_stack(stack, body)))
    }

    /// Runs it until it yields; returns true if it has ended.
    pub(crate) fn run(&mut self) -> bool {
        let Some(coroutine) = &mut self.0 else {
            return true;
        };
        let outer = YIELDER.take();
        let result = coroutine.resume(());
        YIELDER.set(outer);
        match result {
            CoroutineResult::Yield(()) => false,
            CoroutineResult::Return(()) => {
                self.end();
                true
            }
        }
    }

    /// Ends it at its current position, as the kernel ends a thread: nothing that it holds is released.
    pub(crate) fn end(&mut self) {
        let Some(mut coroutine) = self.0.take() else {
            return;
        };
        if !coroutine.done() {
            // SAFETY: nothing else refers to its stack. All values of a thread of the model are its own (`'static`), it starts no scoped
            // threads, and it links nothing on its stack into lists of others. Its heap memory is leaked.
            unsafe { coroutine.force_reset() };
        }
        let mut kept = STACKS.take();
        kept.push(coroutine.into_stack());
        STACKS.set(kept);
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Yields from within a coroutine, until it is run again.
pub(crate) fn give_way() {
    let yielder = YIELDER.get().expect("only a coroutine gives way");
    // SAFETY: a coroutine sets it when it begins and when it continues, and it lives as long as the coroutine's stack, on which this runs.
    unsafe { yielder.as_ref() }.suspend(());
    YIELDER.set(Some(yielder));
}
