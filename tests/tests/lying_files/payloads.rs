//! Payloads of a job in files: [`Payloads`], which uses the store as the library does.

use std::{io::Write, path::Path, sync::Arc};

use bytes::Bytes;
use fsgather_core::{
    BackgroundThreads, Call, CompressionSetting, Contribution, Departure, Error, Exchange, Leaves,
    Operation, Phase, ProcessId, Rank, Round, Site, Ticket, WorldSize, read_message,
};
use fsgather_store::{
    BEAT_PERIOD, Care, CollectPolicy, Encoding, GatherDir, GatherFacts, Janitor, Locator, OwnUid,
    OwnerRecord, PayloadId, draw_id,
};

/// A rank's access to the gather directory of a job.
pub(crate) struct Payloads {
    directory: GatherDir,
    care: Arc<Care>,
}

fn encoded(value: &impl serde::Serialize) -> Bytes {
    postcard::to_stdvec(value).expect("plain data").into()
}

fn decoded<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    read_message(bytes).map_err(|error| Error::config(error.to_string()))
}

impl Payloads {
    /// Makes the directory on rank 0, and opens it on the others; all ranks agree that they have it.
    pub(crate) fn set_up(
        exchange: &dyn Exchange,
        rendezvous: &Path,
        own: OwnUid,
        process: &ProcessId,
    ) -> Result<Self, Error> {
        let setting_up = || Call::new(Operation::SetUp, Site::named("here"));
        let ticket = exchange.begin(setting_up())?;
        let is_first = exchange.rank() == Rank::ZERO;
        let made = is_first.then(|| make(exchange.world_size(), rendezvous, own, process));
        let made = made.transpose();
        let made = made.map_err(|cause| exchange.fail(&ticket, Phase::Publishing, cause))?;
        let told = made.as_ref().map(|made| encoded(made.facts()));
        let contribution = Contribution::inline(told.unwrap_or_default());
        exchange.contribute(&ticket, Round::VERDICT, contribution)?;
        let table = exchange.wait(&ticket, Round::VERDICT)?.table;
        let told = table.map(|table| table.bodies).unwrap_or_default();
        let ticket = exchange.begin(setting_up())?;
        let entered = match (made, told.first()) {
            (Some(made), _) => Ok(made),
            (None, Some(facts)) => open(exchange, &ticket, facts, rendezvous, own),
            (None, None) => Err(Error::config("nothing was told")),
        };
        let directory = entered.map_err(|cause| exchange.fail(&ticket, Phase::Reading, cause))?;
        exchange.contribute(&ticket, Round::VERDICT, Contribution::default())?;
        exchange.wait(&ticket, Round::VERDICT)?;
        let beat = is_first.then_some(BEAT_PERIOD);
        let care = Arc::new(
            Janitor::start(&directory, &BackgroundThreads::default())?
                .care_for(directory.clone(), beat),
        );
        let its = Arc::clone(&care);
        exchange.set_reclaim_sink(Arc::new(move |channel, epoch, rank| {
            its.reclaim_of(PayloadId {
                channel,
                epoch,
                rank,
            });
        }));
        Ok(Self { directory, care })
    }

    /// Exchanges the bodies of all ranks, through files.
    pub(crate) fn all_gather(
        &self,
        exchange: &dyn Exchange,
        body: &[u8],
    ) -> Result<Vec<Bytes>, Error> {
        let call = Call::new(Operation::AllGather, Site::named("here"));
        let ticket = exchange.begin(call)?;
        let failed = |phase| {
            let ticket = &ticket;
            move |cause| exchange.fail(ticket, phase, cause)
        };
        let published = self.publish(exchange, &ticket, body);
        let locator = published.map_err(failed(Phase::Publishing))?;
        let contribution = Contribution {
            body: encoded(&locator),
            leaves: Leaves::ForOwner,
            further_rounds: 0,
        };
        exchange.contribute(&ticket, Round::VERDICT, contribution)?;
        let table = exchange.wait(&ticket, Round::VERDICT)?.table;
        let mut collected = Vec::new();
        for told in table.map(|table| table.bodies).unwrap_or_default() {
            let read = decoded::<Locator>(&told).and_then(|locator| {
                let progress = &mut |bytes| exchange.progress(&ticket, Phase::Reading, bytes);
                self.directory
                    .collect(&locator, &CollectPolicy::default(), progress)
            });
            let payload = read.map_err(failed(Phase::Reading))?;
            collected.push(Bytes::copy_from_slice(&payload));
        }
        exchange.done(&ticket);
        Ok(collected)
    }

    fn publish(
        &self,
        exchange: &dyn Exchange,
        ticket: &Ticket,
        body: &[u8],
    ) -> Result<Locator, Error> {
        self.care.check()?;
        let id = PayloadId {
            channel: ticket.channel,
            epoch: ticket.epoch,
            rank: exchange.rank(),
        };
        let mut writer =
            self.directory
                .create_payload(id, Encoding(0), CompressionSetting::None, |bytes| {
                    exchange.progress(ticket, Phase::Publishing, bytes)
                })?;
        if let Err(error) = writer.write_all(body) {
            let known = writer.take_error();
            return Err(known.unwrap_or_else(|| Error::config(error.to_string())));
        }
        writer.publish()
    }

    /// Ends it after the rank has left: rank 0 removes the directory if no rank reads in it any more.
    pub(crate) fn end(self, rank: Rank, is_closed: bool, departure: &Departure) {
        // The sink was dropped with the exchange.
        if let Some(care) = Arc::into_inner(self.care) {
            let _ = care.finish();
        }
        let is_safe = is_closed || rank == Rank::ZERO && departure.in_good_hands;
        match (rank == Rank::ZERO, is_safe) {
            (true, true) => drop(self.directory.remove()),
            (false, true) => {}
            (true, false) => drop(self.directory.mark_finished()),
            (false, false) => {
                if !self.directory.remove_if_unused(Rank::ZERO) {
                    let _ = self.directory.mark_aborted("rank 0 was lost or has left");
                }
            }
        }
    }
}

fn make(
    world_size: WorldSize,
    rendezvous: &Path,
    own: OwnUid,
    process: &ProcessId,
) -> Result<GatherDir, Error> {
    let now = fsgather_core::sys::clock::wall();
    let gather = draw_id(now, Some("a job"), process);
    let owner = OwnerRecord {
        process: process.clone(),
        uid: own.0,
        user: "somebody".into(),
        job: Some("a job".into()),
        world_size,
        gather,
        communicator: uuid::Uuid::from_u128(fsgather_core::sys::random::fresh()),
        created: now,
        ranks: Vec::new(),
    };
    GatherDir::create(rendezvous, 0o700, &owner, own)
}

fn open(
    exchange: &dyn Exchange,
    ticket: &Ticket,
    facts: &[u8],
    rendezvous: &Path,
    own: OwnUid,
) -> Result<GatherDir, Error> {
    let facts: GatherFacts = decoded(facts)?;
    let visibility = CollectPolicy::default().visibility;
    let progress = &mut |bytes| exchange.progress(ticket, Phase::Reading, bytes);
    GatherDir::open(rendezvous, facts, Rank::ZERO, own, visibility, progress)
}
