//! What an abort has to be like: whom it names, and when a time-out comes.

use std::{collections::BTreeSet, time::Duration};

use fsgather_core::{Call, Error, PeerFailure, Rank, Round, Step};

use super::{Broken, Checked, Connected, Ledger, promise};
use crate::{rank::raised, script::PATIENCE};

impl Ledger {
    pub(super) fn aborts(
        &mut self,
        to: &[Rank],
        cause: &Error,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        if let Some(first) = &self.abort {
            promise!(
                first == cause,
                "P3: first the world fails with \"{first}\", then with \"{cause}\""
            );
            return Ok(());
        }
        if let Error::Timeout {
            during, missing, ..
        } = cause
        {
            let missing = missing.iter().map(|missing| missing.rank).collect();
            self.check_timeout(during, &missing, now, connected)?;
        } else {
            self.check_names(cause)?;
        }
        if let Error::PeerFailed {
            peer,
            failure: PeerFailure::Lost { .. },
            ..
        } = cause
        {
            let mut undecided = self
                .exchanges
                .values()
                .filter(|exchange| !exchange.released);
            promise!(
                !self.came_to_close.contains(&peer.rank)
                    || undecided.any(|exchange| !exchange.arrived.contains(&peer.rank)),
                "P3: nobody needs rank {} any more, and its loss makes the world fail",
                peer.rank
            );
        }
        // Of several that are lost at the same time, later ones may still be told.
        let mut all = self.all().filter(|rank| connected(*rank));
        promise!(
            all.all(|rank| to.contains(&rank)),
            "P3: only {to:?} are told of the failure"
        );
        self.untold = to.iter().copied().collect();
        self.abort = Some(cause.clone());
        Ok(())
    }

    /// The error has to name a rank that something was done to.
    fn check_names(&self, cause: &Error) -> Checked {
        let named: BTreeSet<Rank> = match cause {
            Error::PeerFailed { peer, .. } => [peer.rank].into(),
            Error::Desync { one, other, .. } => [one.rank, other.rank].into(),
            other => self.all().filter(|rank| *other == raised(*rank)).collect(),
        };
        let guilty = named.iter().any(|rank| self.culprits.contains(rank));
        promise!(
            guilty || self.rank_0_was_disturbed,
            "P3: \"{cause}\" names {named:?}, but things were done to {:?}",
            self.culprits
        );
        Ok(())
    }

    /// A time-out comes exactly when nothing has moved for as long as patience lasts, and names exactly
    /// those who are missing.
    fn check_timeout(
        &self,
        during: &str,
        named: &BTreeSet<Rank>,
        now: Duration,
        connected: Connected<'_>,
    ) -> Checked {
        if self.rank_0_was_disturbed {
            return Ok(());
        }
        let (missing, since) = if during == "close" {
            let all = self.all().filter(|rank| connected(*rank));
            let missing = all
                .filter(|rank| !self.came_to_close.contains(rank) || self.reads(*rank))
                .collect();
            (missing, self.closing)
        } else {
            let exchange = self.exchanges.iter().find(|(step, exchange)| {
                !exchange.released
                    && exchange
                        .handed_in
                        .values()
                        .any(|(call, _)| text_of(**step, call) == during)
            });
            let Some((_, exchange)) = exchange else {
                return Err(Broken(format!("P7: nobody waits for {during}")));
            };
            let all = self.all();
            let missing = all
                .filter(|rank| !exchange.arrived.contains(rank))
                .collect::<BTreeSet<_>>();
            (missing, Some(exchange.last_progress))
        };
        promise!(
            *named == missing,
            "P7: {during} timed out for {named:?}, missing are {missing:?}"
        );
        let due = since.map(|since| since + Duration::from_secs(PATIENCE));
        promise!(
            due == Some(now),
            "P7: {during} timed out at {now:?} instead of {due:?}"
        );
        Ok(())
    }
}

/// What rank 0 calls a step in a time-out.
fn text_of(step: Step, call: &Call) -> String {
    if step.round == Round::VERDICT {
        format!("{} #{}", call.operation, step.epoch)
    } else {
        format!(
            "{} #{} (part {})",
            call.operation,
            step.epoch,
            step.round.get()
        )
    }
}
