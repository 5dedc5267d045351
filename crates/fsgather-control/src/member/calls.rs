//! Begins calls of a member, hands in its contributions, and returns their verdicts, each once.

use std::time::Instant;

use fsgather_core::{Call, ChannelId, Contribution, Error, Phase, Round, Step, Ticket, Verdict};

use super::Member;

impl Member {
    /// Numbers a call.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`] after a failure.
    pub fn begin(&mut self, channel: ChannelId, call: Call) -> Result<Ticket, Error> {
        self.channel(channel)?.begin(call)
    }

    /// Numbers a call even after a failure, which the call reports when it is handed in.
    ///
    /// # Errors
    ///
    /// Where this rank takes no part in the communicator.
    pub fn begin_despite(&mut self, channel: ChannelId, call: Call) -> Result<Ticket, Error> {
        Ok(self.channel(channel)?.number(call))
    }

    /// Hands in a contribution to one round of a call.
    ///
    /// # Errors
    ///
    /// The agreed error when the communicator has failed meanwhile.
    pub fn contribute(
        &mut self,
        ticket: &Ticket,
        round: Round,
        contribution: Contribution,
        now: Instant,
    ) -> Result<(), Error> {
        let leaves = contribution.leaves;
        let channel = self.channel(ticket.channel)?;
        let message = channel.contribute(ticket, round, contribution, now)?;
        self.keeping.publish(ticket.channel, ticket.epoch, leaves);
        self.doing = ticket.activity(Phase::Waiting);
        self.send(message);
        Ok(())
    }

    /// Returns the verdict on one round, once it has arrived; each verdict is returned once.
    pub fn take_verdict(&mut self, step: Step) -> Option<Result<Verdict, Error>> {
        match self.channel(step.channel) {
            Ok(channel) => channel.take_verdict(step),
            Err(closed) => Some(Err(closed)),
        }
    }

    /// Drops the verdict on a call whose result no caller here wants any more, now or when it arrives. This rank still does
    /// its part for the others; if it cannot, the call fails with `cause`.
    pub fn abandon(&mut self, ticket: &Ticket, cause: Error, now: Instant) {
        self.now = now;
        let channel = self.channels.get_mut(&ticket.channel);
        let message = channel.and_then(|channel| channel.abandon(ticket.epoch, cause, now));
        if let Some(message) = message {
            self.send(message);
        }
        self.go_if_free(ticket.channel);
    }
}
