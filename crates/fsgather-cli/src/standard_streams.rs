//! Finds the standard streams that were closed when this program was started.
//!
//! A shell closes them with `>&-` and `<&-`. Before `main`, Rust's runtime opens `/dev/null` for each closed one. Then no file of this
//! program can take their numbers, but reads return nothing and writes are lost without an error. Payloads must not be lost like that. A
//! device that a caller has chosen on purpose looks the same afterwards, so the check happens before.

use std::sync::atomic::{AtomicU8, Ordering};

use rustix::{io::fcntl_getfd, stdio};

const INPUT: u8 = 1;
const OUTPUT: u8 = 2;

static CLOSED: AtomicU8 = AtomicU8::new(0);

/// The reason why nothing can be read from standard input, if it was closed at the start.
pub(crate) fn input_objection() -> Option<&'static str> {
    was_closed(INPUT).then_some(
        "standard input is closed; name a FILE, or redirect </dev/null to hand over nothing",
    )
}

/// The reason why nothing can be written to standard output, if it was closed at the start.
pub(crate) fn output_objection() -> Option<&'static str> {
    was_closed(OUTPUT).then_some(
        "standard output is closed; name a file with --out, or redirect >/dev/null to drop what comes",
    )
}

fn was_closed(stream: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & stream != 0
}

/// Checks the streams.
extern "C" fn look() {
    let mut closed = 0;
    if fcntl_getfd(stdio::stdin()).is_err() {
        closed |= INPUT;
    }
    if fcntl_getfd(stdio::stdout()).is_err() {
        closed |= OUTPUT;
    }
    CLOSED.store(closed, Ordering::Relaxed);
}

/// The loader calls the functions in this section, before the runtime and `main`.
///
/// Sound: the section holds pointers to functions of the C calling convention, which is what this is. The loader passes arguments
/// (on glibc) or none; a function that takes none ignores them. The function needs nothing that the runtime
/// sets up: it makes two system calls and stores a number. It does not panic and does not unwind.
#[expect(
    unsafe_code,
    reason = "there is no other way to be called before the runtime"
)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
