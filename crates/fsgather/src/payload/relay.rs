//! Payloads over the control plane, in pieces: the path for worlds without a shared directory.
//!
//! Each round is an exchange in which every rank hands in its next piece, so rank 0 never holds more than one round,
//! and nothing is padded: a rank without further data hands in nothing. It is bounded and correct rather than fast,
//! because all data passes through rank 0.

use bytes::Bytes;
use fsgather_core::{Contribution, Error, Exchange, Leaves, Round, Ticket, Verdict};

use crate::{
    call::guard::CallGuard,
    payload::{
        header::{PayloadHeader, RelayHeader},
        input::HeldInput,
        writer::{Ready, body, own_origin},
    },
};

/// Maximum length of the reason, sent to other ranks, for which a payload is not in a file, in characters.
const REASON: usize = 400;

/// Announces a payload that goes through rank 0 in further rounds; `instead` is the reason why it is not in a file.
pub(super) fn announced<'b>(
    guard: &CallGuard,
    own: HeldInput<'b>,
    instead: Option<&Error>,
) -> Result<Ready<'b>, Error> {
    let bytes = own.as_slice();
    let announcement = PayloadHeader::Relayed(RelayHeader {
        len: bytes.len() as u64,
        digest: own_origin(guard).digest(bytes),
        instead: instead.map(|problem| problem.to_string().chars().take(REASON).collect()),
    });
    let piece = guard.inner.exchange.body_limit();
    Ok(Ready {
        contribution: Contribution {
            body: body(guard, announcement)?,
            leaves: Leaves::Nothing,
            further_rounds: rounds(bytes.len(), piece)?,
        },
        len: bytes.len() as u64,
        own,
    })
}

/// Returns the number of rounds that a payload needs if each takes `piece` bytes.
fn rounds(len: usize, piece: usize) -> Result<u32, Error> {
    u32::try_from(len.div_ceil(piece.max(1))).map_err(|_| {
        Error::config(format!(
            "a payload of {len} bytes is too large for the in-memory path of so many ranks; give a shared \
             directory with FSGATHER_DIR"
        ))
    })
}

/// Appends the pieces of a round to those of earlier rounds.
fn append(received: &mut Vec<Vec<u8>>, verdict: Verdict, moved: impl Fn(u64)) {
    let Some(table) = verdict.table else {
        return;
    };
    moved(table.bodies.iter().map(|body| body.len() as u64).sum());
    received.resize_with(table.bodies.len(), Vec::new);
    for (so_far, body) in received.iter_mut().zip(table.bodies) {
        so_far.extend_from_slice(&body);
    }
}

/// Takes part in all further rounds of a call. Returns the payload of each rank, on recipients. `moved` is called with
/// the number of bytes of each round.
pub(crate) fn run(
    exchange: &dyn Exchange,
    ticket: &Ticket,
    payload: &[u8],
    rounds: u32,
    moved: impl Fn(u64),
) -> Result<Vec<Vec<u8>>, Error> {
    let piece = exchange.body_limit();
    let mut pieces = payload.chunks(piece.max(1));
    let mut received = Vec::new();
    for round in 1..=rounds {
        let round = Round::new(round);
        let body = pieces
            .next()
            .map(Bytes::copy_from_slice)
            .unwrap_or_default();
        exchange.contribute(ticket, round, Contribution::inline(body))?;
        append(&mut received, exchange.wait(ticket, round)?, &moved);
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fsgather_core::Table;

    use super::*;

    #[test]
    fn what_rounds_bring_is_put_together_by_rank_and_counted() {
        let (mut received, moved) = (Vec::new(), Cell::new(0));
        let mut bring = |bodies: Option<[&'static [u8]; 3]>| {
            let table = bodies.map(|bodies| Table {
                bodies: bodies.map(Bytes::from_static).into(),
                acknowledge: false,
            });
            let verdict = Verdict {
                table,
                further_rounds: 0,
                last: None,
            };
            append(&mut received, verdict, |bytes| {
                moved.set(moved.get() + bytes);
            });
        };
        bring(Some([b"the first", b"", b"the "]));
        // This rank receives nothing in this round.
        bring(None);
        bring(Some([b"", b"", b"last"]));
        assert_eq!(received, [&b"the first"[..], b"", b"the last"]);
        assert_eq!(moved.get(), 17);
    }

    #[test]
    fn a_payload_takes_as_many_rounds_as_pieces() {
        assert_eq!(rounds(0, 10), Ok(0));
        assert_eq!(rounds(10, 10), Ok(1));
        assert_eq!(rounds(11, 10), Ok(2));
        assert!(rounds(usize::MAX, 1).is_err());
    }
}
