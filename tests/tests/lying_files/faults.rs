//! Faults, and the calls that they come at: [`Fault`].

use std::time::Duration;

use rustix::io::Errno;

use crate::dice::Dice;

/// What goes wrong at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails and nothing was done.
    Fails(Errno),
    /// The reply is lost after the deed; the client asks again, and its own deed is in the way.
    LosesReply,
    /// It takes long.
    Hangs(Duration),
    /// Calls of that host that make or write something fail for that long.
    NoRoom(Errno, Duration),
    /// All calls of that host fail for that long.
    Medium(Errno, Duration),
    /// The process ends there.
    EndsProcess,
    /// The host ends there, and what was not flushed with it.
    EndsHost,
    /// The server goes and comes back after that long, without what was not synced.
    RestartsServer(Duration),
}

/// A fault and the call that it comes at, counted from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: u64,
    /// Whether it comes at the next call after that which writes.
    pub(crate) is_at_write: bool,
    pub(crate) fault: Fault,
}

/// How bad it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Nothing but caches.
    Nothing,
    /// What the project promises to survive.
    Survivable,
    /// In a world that has formed and whose payloads travel with the messages, errors that pass within seconds.
    Passing,
    /// Anything.
    Anything,
}

/// Calls in which faults come, about as many as a job of some ranks makes.
const CALLS: u64 = 3000;

/// Draws what goes wrong in one world.
pub(crate) fn draw(severity: Severity, dice: &mut Dice) -> Vec<Planned> {
    let count = match severity {
        Severity::Nothing => 0,
        Severity::Passing => 1,
        Severity::Survivable | Severity::Anything => dice.between(1, 4),
    };
    let mut planned: Vec<Planned> = (0..count)
        .map(|_| Planned {
            at: match severity {
                Severity::Passing => dice.any_size(CALLS / 8),
                _ => dice.any_size(CALLS),
            },
            is_at_write: dice.one_in(2),
            fault: match severity {
                Severity::Anything => anything(dice),
                Severity::Passing => passing(dice),
                _ => survivable(dice),
            },
        })
        .collect();
    planned.sort_by_key(|planned| planned.at);
    planned
}

fn survivable(dice: &mut Dice) -> Fault {
    match dice.below(2) {
        0 => Fault::LosesReply,
        _ => Fault::Hangs(Duration::from_millis(dice.any_size(4000))),
    }
}

/// Shorter than messages are tried again for.
fn passing(dice: &mut Dice) -> Fault {
    let errno = dice.pick(&[Errno::IO, Errno::STALE]);
    let full = dice.pick(&[Errno::NOSPC, Errno::DQUOT]);
    let long = Duration::from_millis(dice.any_size(6000));
    match dice.below(3) {
        0 => Fault::Fails(errno),
        1 => Fault::Medium(errno, long),
        _ => Fault::NoRoom(full, long),
    }
}

fn anything(dice: &mut Dice) -> Fault {
    let errnos = [
        Errno::IO,
        Errno::STALE,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::NOENT,
        Errno::ACCESS,
    ];
    let while_ = |dice: &mut Dice| Duration::from_millis(dice.any_size(120_000));
    match dice.below(10) {
        0..=2 => Fault::Fails(dice.pick(&errnos)),
        3 => Fault::LosesReply,
        4 => Fault::Hangs(while_(dice)),
        5 => Fault::NoRoom(dice.pick(&[Errno::NOSPC, Errno::DQUOT]), while_(dice)),
        6 => Fault::Medium(dice.pick(&[Errno::IO, Errno::STALE]), while_(dice)),
        7 => Fault::EndsProcess,
        8 => Fault::EndsHost,
        _ => Fault::RestartsServer(while_(dice)),
    }
}
