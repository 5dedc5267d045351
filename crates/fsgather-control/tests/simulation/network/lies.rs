//! Worlds that do something wrong on purpose, to see that it is noticed: [`Lie`].

use fsgather_control::{
    coordinator::Action,
    message::{CallReply, CallRequest, ToCoordinator, ToMember},
};
use fsgather_core::Rank;

/// What a world does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Every verdict is said twice.
    SaysVerdictsTwice,
    /// Tables arrive in another order.
    SwapsParts,
    /// The last part of every table is that of the first rank.
    DoublesParts,
    /// Verdicts do not arrive.
    LosesVerdicts,
    /// What rank 1 hands in counts as that of the last rank as well.
    HearsAnother,
    /// Who hands something in counts as having read everything.
    HearsThatAllIsRead,
    /// Timers fire, and nobody looks what is due.
    ForgetsTimers,
    /// Rank 0 does not hear that a rank cannot go on.
    LosesFailures,
}

impl Lie {
    /// What is carried out of what rank 0 has ordered.
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

    /// What arrives of what rank 0 has said.
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

    /// What the coordinator hears when a rank says something.
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
