//! Worlds that do something wrong on purpose, to see that it is noticed: [`Lie`].

use fsgather_control::{
    coordinator::Action,
    message::{CallReply, CallRequest, ToCoordinator, ToMember},
};
use fsgather_core::Rank;

/// A fault that a world has on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Every verdict is sent twice.
    SaysVerdictsTwice,
    /// Tables arrive in another order.
    SwapsParts,
    /// The last part of every table is that of the first rank.
    DoublesParts,
    /// Verdicts do not arrive.
    LosesVerdicts,
    /// Contributions of rank 1 count as those of the last rank as well.
    HearsAnother,
    /// A contribution counts as the report of all ranks that they have read everything.
    HearsThatAllIsRead,
    /// Timers fire without effect.
    ForgetsTimers,
    /// Rank 0 does not receive reports that a rank cannot continue.
    LosesFailures,
}

impl Lie {
    /// Rank 0's orders that are carried out.
    pub(super) fn carries_out(self, ordered: Vec<Action>) -> Vec<Action> {
        let is_verdict = |action: &Action| matches!(action, Action::Send { message, .. } if matches!(message, ToMember::Call(CallReply::Release { .. })));
        let times = |action: &Action| match self {
            Self::SaysVerdictsTwice if is_verdict(action) => 2,
            _ => 1,
        };
        let ordered = ordered.into_iter();
        ordered
            .flat_map(|action| vec![action.clone(); times(&action)])
            .collect()
    }

    /// Rank 0's message as it arrives, if it does.
    pub(super) fn carries(self, mut message: ToMember) -> Option<ToMember> {
        if let ToMember::Call(CallReply::Release { verdict, .. }) = &mut message {
            match (self, &mut verdict.table) {
                (Self::LosesVerdicts, _) => return None,
                (Self::SwapsParts, Some(table)) => table.bodies.reverse(),
                (Self::DoublesParts, Some(table)) => {
                    let bodies = &mut table.bodies;
                    let first = bodies.first().cloned();
                    if let (Some(first), Some(last)) = (first, bodies.last_mut()) {
                        *last = first;
                    }
                }
                _ => {}
            }
        }
        Some(message)
    }

    /// The messages that the coordinator receives for one message of a rank.
    pub(super) fn hears(
        self,
        from: Rank,
        message: ToCoordinator,
        ranks: usize,
    ) -> Vec<(Rank, ToCoordinator)> {
        let mut heard = vec![(from, message.clone())];
        match (self, &message) {
            (Self::HearsAnother, ToCoordinator::Call(CallRequest::Contribute { .. }))
                if from == Rank::new(1) =>
            {
                heard.push((super::index(ranks - 1), message));
            }
            (
                Self::HearsThatAllIsRead,
                ToCoordinator::Call(CallRequest::Contribute { step, .. }),
            ) => {
                let done = ToCoordinator::Call(CallRequest::Done {
                    channel: step.channel,
                    epoch: step.epoch,
                });
                let ranks = 0..ranks;
                heard.extend(ranks.map(|rank| (super::index(rank), done.clone())));
            }
            (Self::LosesFailures, ToCoordinator::Call(CallRequest::Fail { .. })) => heard.clear(),
            _ => {}
        }
        heard
    }
}
