//! Checks the results of one call on its ranks: [`check_bodies`], [`check_verdict`].
//!
//! Every simulation of a world checks its calls with these.

use std::fmt::Display;

use bytes::Bytes;
use fsgather_core::Rank;

/// The part of a rank in a call.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// The rank has contributed this body.
    Contributed(&'a Bytes),
    /// The rank has not reached the call.
    Missing,
}

/// Checks the result of a successful call on one rank: if it receives anything, the bodies of all ranks in rank order.
///
/// # Errors
///
/// Returns an error if the result differs, or a rank has not reached the call.
pub fn check_bodies<'a>(
    parts: impl IntoIterator<Item = Part<'a>>,
    receives: bool,
    bodies: Option<&[Bytes]>,
) -> Result<(), String> {
    if receives != bodies.is_some() {
        return Err(format!("a rank that receives ({receives}) gets {bodies:?}"));
    }
    let mut given = bodies.map(|bodies| bodies.iter());
    for (rank, part) in parts.into_iter().enumerate() {
        let body = given.as_mut().map(Iterator::next);
        let is_right = match (part, body) {
            (Part::Missing, _) => return Err(format!("it succeeds without rank {rank}")),
            (_, None) => true,
            (Part::Contributed(own), Some(body)) => body == Some(own),
        };
        if !is_right {
            return Err(format!("{body:?} is given of rank {rank}: {part:?}"));
        }
    }
    let more = given.and_then(|mut given| given.next());
    more.map_or(Ok(()), |more| Err(format!("{more:?} is given of no rank")))
}

/// Checks that a call has one verdict: it has not succeeded on one rank and failed on another.
///
/// # Errors
///
/// Returns an error otherwise.
pub fn check_verdict<E: Display>(
    succeeded: impl IntoIterator<Item = Rank>,
    failed: impl IntoIterator<Item = (Rank, E)>,
) -> Result<(), String> {
    let both = succeeded.into_iter().next().zip(failed.into_iter().next());
    both.map_or(Ok(()), |(one, (other, error))| {
        Err(format!(
            "it succeeds on rank {one} and fails on rank {other}: {error}"
        ))
    })
}
