//! Faults, and the calls that they happen at: [`Fault`].

use std::time::Duration;

use rustix::io::Errno;

use crate::dice::Dice;

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails without an effect.
    Fails(Errno),
    /// The reply is lost after the effect; the client retries, and its own effect is in the way.
    LosesReply,
    /// The call takes this long.
    Hangs(Duration),
    /// Calls of that host that create or write files fail for this long.
    NoRoom(Errno, Duration),
    /// All calls of that host fail for this long.
    Medium(Errno, Duration),
    /// The process ends at this call.
    EndsProcess,
    /// The host ends at this call, and loses data that was not flushed.
    EndsHost,
    /// The server disappears and returns after this long, without data that was not synced.
    RestartsServer(Duration),
}

/// A fault and its call, counted from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: u64,
    /// True if it happens at the next write from that call on.
    pub(crate) is_at_write: bool,
    pub(crate) fault: Fault,
}

/// The severity of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// No faults, only caches.
    Nothing,
    /// Faults that the project promises to survive.
    Survivable,
    /// Errors that pass within seconds, in a world that has formed and whose payloads travel with the messages.
    Passing,
    /// Any fault.
    Anything,
}

/// Number of calls among which faults happen, about as many as a job of some ranks makes.
const CALLS: u64 = 3000;

/// Draws the faults of one world.
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

/// Draws a fault that is shorter than the retries of messages.
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
