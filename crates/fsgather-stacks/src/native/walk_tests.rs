use std::{
    cell::Cell,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::{caller::Thread, memory::OwnMemory, thread::rest_of};

#[test]
fn calls_of_all_forms_are_known() {
    let calls: [&[u8]; 12] = [
        &[0xe8, 1, 2, 3, 4],
        &[0xff, 0xd0],
        &[0x41, 0xff, 0xd4],
        &[0xff, 0x10],
        &[0xff, 0x50, 8],
        &[0xff, 0x90, 1, 2, 3, 4],
        &[0xff, 0x15, 1, 2, 3, 4],
        &[0xff, 0x14, 0xc8],
        &[0xff, 0x54, 0x24, 8],
        &[0xff, 0x94, 0x24, 1, 2, 3, 4],
        &[0xff, 0x14, 0xc5, 1, 2, 3, 4],
        &[0xff, 0x14, 0x24],
    ];
    for call in calls {
        let mut code = vec![0x90; LONGEST_CALL - call.len()];
        code.extend(call);
        assert!(is_after_call(&code), "{call:x?}");
        code.push(0x90);
        assert!(!is_after_call(&code[1..]), "{call:x?} and one more");
    }
    for other in [[0x90; 7], [0, 0, 0, 0, 0, 0xff, 0xe0], [0xff; 7]] {
        assert!(!is_after_call(&other), "{other:x?}");
    }
    assert!(!is_after_call(&[]));
}

/// Memory of which some bytes are others.
struct Damaged {
    memory: OwnMemory,
    state: Cell<u64>,
}

impl Damaged {
    fn next(&self) -> u64 {
        let state = self.state.get().wrapping_mul(6_364_136_223_846_793_005);
        self.state
            .set(state.wrapping_add(1_442_695_040_888_963_407));
        self.state.get() >> 33
    }
}

impl Memory for Damaged {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read(at, into)?;
        if self.next().is_multiple_of(8) && !into.is_empty() {
            let place = usize::try_from(self.next()).unwrap() % into.len();
            into[place] = self.next().to_le_bytes()[0];
        }
        Ok(())
    }
}

#[test]
fn tables_that_are_damaged_end_the_walk_and_nothing_else() {
    let (tell, told) = mpsc::channel();
    let (keep, never) = mpsc::channel::<()>();
    let waits = thread::spawn(move || {
        tell.send(Thread::current().id.unwrap()).unwrap();
        let _ = never.recv();
    });
    let thread = told.recv().unwrap();
    let (maps, start) = (Maps::read().unwrap(), Instant::now());
    let memory = OwnMemory::open().unwrap();
    // Other tests of this process map and unmap memory meanwhile: an error passes.
    let taken = || {
        Capture::take(thread, rest_of(thread)?, &maps, &memory)
            .ok()
            .flatten()
    };
    let capture = loop {
        if let Some(capture) = taken() {
            break capture;
        }
        assert!(start.elapsed() < Duration::from_mins(2));
        thread::yield_now();
    };
    let sound = walk(&memory, &maps, &capture).len();
    assert!(sound > 5, "{sound}");
    let mut least = sound;
    for seed in 0..3000 {
        let damaged = Damaged {
            memory: OwnMemory::open().unwrap(),
            state: Cell::new(seed),
        };
        least = least.min(walk(&damaged, &maps, &capture).len());
    }
    assert!(least < sound);
    drop(keep);
    waits.join().unwrap();
}
