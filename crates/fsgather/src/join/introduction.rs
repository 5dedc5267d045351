//! Introduces the ranks of one world through a program's own channel: [`Introduction`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_control::{job_credentials::JobFingerprint, record::RendezvousRecord};
use fsgather_core::{
    Error, Missing, ProcessId, Rank, RendezvousBackend, RollCall, WaitEnd, WorldSize,
};
use fsgather_store::slow_place::watched;
use uuid::Uuid;

use crate::join::rendezvous::Bootstrap;

/// The name of the channel in messages.
const PLACE: &str = "the program's own rendezvous";

/// Minimum time for meeting after waiting for the record.
const MIN_MEETING_TIME: Duration = Duration::from_secs(2);

/// One world's use of a [`Bootstrap`]: one call of it on each rank, on the thread that builds.
pub(crate) struct Introduction {
    bootstrap: Arc<dyn Bootstrap>,
    /// Rank 0's record, on the others.
    fetched: Option<Vec<u8>>,
    /// True if the channel has been used, on rank 0.
    is_published: AtomicBool,
    began: Instant,
}

impl Introduction {
    /// Waits for rank 0's record, if this is another rank, for `timeout` at most.
    pub(crate) fn begin(
        bootstrap: &Arc<dyn Bootstrap>,
        rank: Rank,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let began = Instant::now();
        let fetched = if rank == Rank::ZERO {
            None
        } else {
            let deadline = began + timeout;
            let text = move |lasts: &str| {
                waiting_text(lasts, deadline.saturating_duration_since(Instant::now()))
            };
            let record = watched(text, || bootstrap.fetch(deadline))
                .map_err(|why| not_fetched(rank, &why, Instant::now() >= deadline, timeout))?;
            check(rank, &record)?;
            Some(record)
        };
        Ok(Self {
            bootstrap: Arc::clone(bootstrap),
            fetched,
            is_published: AtomicBool::new(false),
            began,
        })
    }

    /// Returns the part of `timeout` that is left for the rest of meeting.
    pub(crate) fn left_of(&self, timeout: Duration) -> Duration {
        let left = timeout.saturating_sub(self.began.elapsed());
        // Messages show whole seconds.
        Duration::from_secs(left.as_secs()).max(MIN_MEETING_TIME.min(timeout))
    }

    /// Sends the reason why there is no world to the other ranks, unless they have rank 0's record already.
    pub(crate) fn refuse(&self, process: &ProcessId, world_size: WorldSize, failure: &Error) {
        if self.fetched.is_some() || self.is_published.swap(true, Ordering::SeqCst) {
            return;
        }
        let record = RendezvousRecord {
            communicator: Uuid::new_v4(),
            secret: [0; 32],
            addresses: Vec::new(),
            markers: None,
            refusal: Some(failure.clone()),
            refuser: None,
            world_size,
            host: process.host.clone(),
            boot_id: process.boot_id.clone(),
            network_namespace: 0,
            fingerprint: JobFingerprint::default(),
        };
        if let Err(why) = self.bootstrap.publish(&record.to_bytes()) {
            tracing::debug!("the others could not be told: {why}");
        }
    }
}

impl RendezvousBackend for Introduction {
    fn introduces(&self) -> bool {
        true
    }

    fn post(&self, record: &[u8]) -> Result<(), Error> {
        let leads_somewhere = RendezvousRecord::from_bytes(record)
            .is_ok_and(|record| !record.addresses.is_empty() || record.markers.is_some());
        if !leads_somewhere {
            // There is one record only, and `refuse` has a better one.
            return Ok(());
        }
        self.is_published.store(true, Ordering::SeqCst);
        self.bootstrap.publish(record).map_err(|why| {
            Error::rendezvous(format!(
                "rank 0's record was not handed over by {PLACE}: {why}"
            ))
        })
    }

    fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.fetched.iter().cloned().collect())
    }

    fn place(&self) -> String {
        PLACE.into()
    }
}

/// Returns the warning text while rank 0 does not arrive.
fn waiting_text(lasts: &str, left: Duration) -> String {
    format!(
        "still waiting for rank 0's record from {PLACE}, for {lasts} now; see whether rank 0 was started and uses the same one; {}",
        WaitEnd::After(left)
    )
}

fn not_fetched(rank: Rank, why: &str, is_late: bool, timeout: Duration) -> Error {
    if !is_late {
        return Error::rendezvous(format!(
            "rank {rank} got no record of rank 0 from {PLACE}: {why}"
        ));
    }
    Error::timed_out(
        format!("meeting (looked in {PLACE} for rank 0's record: {why})"),
        timeout,
        vec![Missing {
            rank: Rank::ZERO,
            process: None,
            last_seen: None,
        }],
        RollCall::default(),
        "see whether rank 0 was started and uses the same rendezvous, or set \
               FSGATHER_JOIN_TIMEOUT to wait longer",
    )
}

/// Returns an error if the channel delivered a refusal, or bytes that are not a record. Its content is trusted.
fn check(rank: Rank, bytes: &[u8]) -> Result<(), Error> {
    match RendezvousRecord::from_bytes(bytes) {
        Ok(RendezvousRecord {
            refusal: Some(cause),
            refuser: None,
            ..
        }) => Err(cause),
        Ok(_) => Ok(()),
        // The version will stay below 256 for a long time; other data begins like this only by chance.
        Err(incompatible @ Error::Incompatible { .. }) if bytes.get(1) == Some(&0) => {
            Err(incompatible)
        }
        Err(_) => Err(Error::rendezvous(format!(
            "{PLACE} has handed {} bytes to rank {rank} that are no record of rank 0; all ranks must use \
             the same one, and nothing else may go through it meanwhile",
            bytes.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A channel that returns a set answer, and remembers the published record.
    #[derive(Default)]
    struct Told {
        answer: Option<Vec<u8>>,
        published: Mutex<Vec<Vec<u8>>>,
    }

    impl Bootstrap for Told {
        fn publish(&self, record: &[u8]) -> Result<(), String> {
            self.published.lock().unwrap().push(record.to_vec());
            Ok(())
        }

        fn fetch(&self, _: Instant) -> Result<Vec<u8>, String> {
            self.answer.clone().ok_or_else(|| "no answer".into())
        }
    }

    fn begin(told: Told, rank: u32) -> Result<Introduction, Error> {
        let bootstrap: Arc<dyn Bootstrap> = Arc::new(told);
        Introduction::begin(&bootstrap, Rank::new(rank), Duration::from_secs(60))
    }

    fn answering(answer: &[u8]) -> Told {
        Told {
            answer: Some(answer.into()),
            ..Told::default()
        }
    }

    #[test]
    fn what_is_no_record_is_refused_at_once() {
        for garbage in [&b""[..], b"x", b"HTTP/1.1 404 Not Found", &[7; 4096]] {
            let error = begin(answering(garbage), 3).err().unwrap();
            let said = error.to_string();
            assert!(said.contains("no record of rank 0"), "{said}");
        }
        let other_version = begin(answering(&[200, 0, 1, 2, 3]), 3).err().unwrap();
        assert!(matches!(other_version, Error::Incompatible { .. }));
    }

    #[test]
    fn an_error_before_the_deadline_is_told_as_it_is() {
        let error = begin(Told::default(), 1).err().unwrap().to_string();
        assert!(error.contains("rank 1 got no record"), "{error}");
        assert!(error.contains("no answer"), "{error}");
    }

    #[test]
    fn rank_0_publishes_once_whatever_it_has_to_say() {
        let told = Arc::new(Told::default());
        let bootstrap: Arc<dyn Bootstrap> = Arc::<Told>::clone(&told);
        let minute = Duration::from_secs(60);
        let introduction = Introduction::begin(&bootstrap, Rank::ZERO, minute).unwrap();
        let process = ProcessId::default();
        let world_size = WorldSize::new(2).unwrap();
        let failure = Error::rendezvous("no port is free");
        introduction.refuse(&process, world_size, &failure);
        introduction.refuse(&process, world_size, &failure);
        let published = told.published.lock().unwrap();
        assert_eq!(published.len(), 1);
        let error = begin(answering(&published[0]), 1).err();
        assert_eq!(error, Some(failure));
    }

    #[test]
    fn it_is_said_for_whom_a_rank_waits_and_by_which_way() {
        let text = waiting_text("30 s", Duration::from_secs(90));
        assert!(text.ends_with("; times out in 1 min 30 s"), "{text}");
        assert!(text.starts_with("still waiting for rank 0's record from the program's own rendezvous, for 30 s now; "), "{text}");
    }
}
