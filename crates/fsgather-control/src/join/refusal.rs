//! Reports the failure of a world to ranks that rank 0 cannot reach: [`refuse`].
//!
//! A refusal is a record like any other, and may be left over from a crashed run. So a member believes it only if it has
//! seen the record of that very world before, and tried it in vain.
//!
//! [`refuse_latecomers`] leaves a refusal for ranks that join after a meeting has failed. It stays, and the backend hands
//! it over only to processes that ran already when it was left.

use std::{
    sync::{Arc, mpsc::RecvTimeoutError},
    time::Duration,
};

use fsgather_core::{
    Activity, Backoff, Error, Phase, RendezvousBackend,
    sys::{channel::channel, clock, random::fresh, thread},
};
use uuid::Uuid;

use crate::{
    join::{
        config::{self, Config},
        record::{Addressee, Refuser, RendezvousRecord, UnreachableReport},
    },
    thread_call::ThreadCall,
};

/// Time for which a record has to be visible so that all ranks have seen it: they look once a second.
const SEEN_BY_ALL: Duration = Duration::from_secs(3);

/// Maximum time that ranks with objections have to take them back once they know why.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum time that a meeting may take before it looks for the result of an earlier one.
const LOOK_BACK: Duration = Duration::from_secs(5);

/// Text of ranks about such a meeting.
const HAD_FAILED: &str = "a meeting of this job had failed before this rank was started";

/// Maximum time that leaving a refusal may take.
const WORD_LIMIT: Duration = Duration::from_secs(2);

/// Shows all processes that have tried to reach this world why it has failed.
pub(crate) fn refuse(
    config: &Config,
    backend: &dyn RendezvousBackend,
    communicator: Uuid,
    failure: &Error,
) {
    let record = RendezvousRecord {
        communicator,
        refusal: Some(failure.clone()),
        ..config::record(config)
    };
    show(config, backend, &record, |shown_for| {
        shown_for >= SEEN_BY_ALL
            && (shown_for >= LIMIT || unreachable_reports(backend, communicator).is_empty())
    });
}

/// Shows all processes that the world has failed before they could have tried it.
pub(crate) fn refuse_unseen(config: &Config, backend: &dyn RendezvousBackend, failure: &Error) {
    let communicator = uuid::Builder::from_random_bytes(fresh()).into_uuid();
    let record = RendezvousRecord {
        communicator,
        ..config::record(config)
    };
    show(config, backend, &record, |shown_for| {
        shown_for >= SEEN_BY_ALL
    });
    refuse(config, backend, communicator, failure);
}

/// Posts a record and takes it down again once `is_enough`, or when this rank is interrupted.
fn show(
    config: &Config,
    backend: &dyn RendezvousBackend,
    record: &RendezvousRecord,
    is_enough: impl Fn(Duration) -> bool,
) {
    if let Err(error) = backend.post(&record.to_bytes()) {
        tracing::debug!("the others could not be told: {error}");
        return;
    }
    let posted = clock::now();
    let mut pauses = Backoff::new(Duration::from_millis(25), Duration::from_millis(500));
    let (interrupt, interrupted) = channel();
    config.interrupt.on_raise(move |_| {
        // The wait may be over already, because the record was shown for long enough.
        let _ = interrupt.send(());
    });
    while !is_enough(clock::since(posted)) {
        match interrupted.recv_timeout(pauses.next_pause()) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Err(error) = backend.tend(clock::since(posted)) {
            tracing::debug!("a record could not be tended: {error}");
        }
    }
    backend.take_down();
}

/// Leaves a refusal for ranks that come later; best effort, since the directory itself may fail. It does not wait for a
/// directory that hangs.
pub(crate) fn refuse_latecomers(
    config: &Config,
    backend: &Arc<dyn RendezvousBackend>,
    failure: &Error,
) {
    let record = RendezvousRecord {
        refusal: Some(with_a_name(config, failure)),
        refuser: Some(Refuser {
            process: config.process.clone(),
            start: config.start,
        }),
        ..config::record(config)
    };
    let leave = move |backend: &dyn RendezvousBackend| {
        if let Err(error) = backend.refuse(&record.to_bytes()) {
            tracing::debug!("ranks that come later cannot be told: {error}");
        }
    };
    let (done, told) = channel();
    let (its, leave_there) = (Arc::clone(backend), leave.clone());
    let started = thread::start("fsgather-word".into(), move || {
        leave_there(&*its);
        // The wait may be over if this has taken long.
        let _ = done.send(());
    });
    match started {
        Ok(_) => drop(told.recv_timeout(WORD_LIMIT)),
        // A lack of threads may be the very failure to report.
        Err(_) => leave(&**backend),
    }
}

/// A failure with the name of its rank, for readers that cannot know it: a time-out of that rank is not over for them.
fn with_a_name(config: &Config, failure: &Error) -> Error {
    let mut failure = failure.clone();
    if let Error::Timeout { hint, .. } = &mut failure {
        *hint = format!(
            "{hint}; {} has waited for so long and given up",
            config::own_peer(config)
        );
    }
    if matches!(
        failure,
        Error::Config { .. } | Error::Storage { .. } | Error::Incompatible { .. }
    ) {
        let joining = Activity::outside(Phase::Joining);
        return Error::raised(config::own_peer(config), joining, failure.to_string());
    }
    failure
}

/// The reason why there will be no world, if one of these records refuses this rank.
pub(crate) fn refusal_in(records: &[Vec<u8>], addressee: &Addressee) -> Option<Error> {
    let mut records = records
        .iter()
        .filter_map(|bytes| RendezvousRecord::from_bytes(bytes).ok());
    records.find_map(|record| record.refusal_to(addressee).cloned())
}

/// The result of an earlier meeting of this job that failed in the minutes before this process was started: this process
/// may be too late for the only meeting.
pub(crate) fn earlier_failure(
    backend: &dyn RendezvousBackend,
    addressee: &Addressee,
) -> Option<String> {
    let records = backend.earlier_refusals();
    let records = records
        .iter()
        .filter_map(|bytes| RendezvousRecord::from_bytes(bytes).ok());
    let mut causes = records.filter_map(|record| record.refusal_to(addressee).cloned());
    // A process that was too late itself has only repeated what it has read.
    let is_repeated = |cause: &Error| cause.to_string().contains(HAD_FAILED);
    let cause = causes.find(|cause| !is_repeated(cause))?;
    Some(format!("{HAD_FAILED}: {cause}"))
}

/// Time after which to look for it, if there is no world by then.
pub(crate) fn looking_back_after(join_timeout: Duration) -> Duration {
    LOOK_BACK.min(join_timeout / 2)
}

/// Waits for a while, and then looks for the result of an earlier meeting; never ends if there is none.
pub(crate) async fn look_back(
    backend: Arc<dyn RendezvousBackend>,
    join_timeout: Duration,
    addressee: Addressee,
) -> String {
    tokio::time::sleep(looking_back_after(join_timeout)).await;
    let looked = ThreadCall::start(move || earlier_failure(&*backend, &addressee));
    match looked.finish().await {
        Ok(Some(failure)) => failure,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// The reports about one world's record.
pub(crate) fn unreachable_reports(
    backend: &dyn RendezvousBackend,
    communicator: Uuid,
) -> Vec<UnreachableReport> {
    let found = backend.unreachable_reports().unwrap_or_else(|error| {
        tracing::debug!("cannot look for reports: {error}");
        Vec::new()
    });
    let reports = found
        .iter()
        .filter_map(|bytes| UnreachableReport::from_bytes(bytes));
    reports
        .filter(|report| report.communicator == communicator)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use fsgather_core::{ProcessId, Rank, WorldSize, lock};
    use fsgather_testkit::MemoryBackend;

    use super::*;
    use crate::join::{job_credentials::JobFingerprint, record_keeper::RecordKeeper};

    /// A place that holds refusals of earlier meetings, and nothing else.
    struct Earlier(Vec<Vec<u8>>);

    impl RendezvousBackend for Earlier {
        fn post(&self, _record: &[u8]) -> Result<(), Error> {
            Ok(())
        }

        fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
            Ok(Vec::new())
        }

        fn earlier_refusals(&self) -> Vec<Vec<u8>> {
            self.0.clone()
        }

        fn place(&self) -> String {
            "memory".into()
        }
    }

    /// A place that shows what was left in it: records, and refusals that stay.
    #[derive(Default)]
    struct Kept {
        posted: Mutex<Vec<Vec<u8>>>,
        stay: Mutex<Vec<Vec<u8>>>,
    }

    impl RendezvousBackend for Kept {
        fn post(&self, record: &[u8]) -> Result<(), Error> {
            lock(&self.posted).push(record.to_vec());
            Ok(())
        }

        fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
            Ok(Vec::new())
        }

        fn refuse(&self, record: &[u8]) -> Result<(), Error> {
            lock(&self.stay).push(record.to_vec());
            Ok(())
        }

        fn place(&self) -> String {
            "memory".into()
        }
    }

    /// Rank 0, which has been interrupted, so that it shows nothing for long.
    fn interrupted() -> Config {
        let meeting = crate::join::Meeting::Board(Arc::new(Kept::default()));
        let world_size = WorldSize::new(2).unwrap();
        let config = Config::new(Rank::ZERO, world_size, ProcessId::default(), meeting);
        config.interrupt.raise("the end");
        config
    }

    fn read(records: &Mutex<Vec<Vec<u8>>>) -> Vec<RendezvousRecord> {
        let records = lock(records);
        let read = records
            .iter()
            .map(|bytes| RendezvousRecord::from_bytes(bytes));
        read.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn ranks_that_tried_a_world_or_saw_none_read_its_failure() {
        let (config, kept, failure) = (interrupted(), Kept::default(), Error::rendezvous("x"));
        refuse(&config, &kept, Uuid::from_u128(4), &failure);
        let shown = read(&kept.posted);
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].communicator, Uuid::from_u128(4));
        assert_eq!(shown[0].refusal, Some(failure.clone()));
        let kept = Kept::default();
        refuse_unseen(&config, &kept, &failure);
        let shown = read(&kept.posted);
        // The world itself comes first: a refusal is believed only of worlds that have been tried.
        let refusals: Vec<_> = shown.iter().map(|record| &record.refusal).collect();
        assert_eq!(refusals, [&None, &Some(failure)]);
        assert_eq!(shown[0].communicator, shown[1].communicator);
        assert!(!shown[0].communicator.is_nil());
    }

    #[test]
    fn latecomers_read_the_failure_and_its_refuser() {
        let kept = Arc::new(Kept::default());
        let place: Arc<dyn RendezvousBackend> = Arc::<Kept>::clone(&kept);
        let failure = Error::rendezvous("x");
        refuse_latecomers(&interrupted(), &place, &failure);
        let left = read(&kept.stay);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].refusal, Some(failure));
        assert!(left[0].refuser.is_some());
    }

    fn me() -> Addressee {
        Addressee {
            process: ProcessId::default(),
            start: None,
            is_named: false,
            key: 7,
        }
    }

    /// The bytes of a refusal that stays, of the job with this key.
    fn refused(key: u64, cause: &str) -> Vec<u8> {
        let record = RendezvousRecord {
            communicator: Uuid::from_u128(1),
            secret: [0; 32],
            addresses: Vec::new(),
            markers: None,
            refusal: Some(Error::rendezvous(cause)),
            refuser: Some(Refuser {
                process: ProcessId::default(),
                start: None,
            }),
            world_size: WorldSize::ONE,
            host: "n1".into(),
            boot_id: "b".into(),
            network_namespace: 3,
            fingerprint: JobFingerprint {
                key,
                ..JobFingerprint::default()
            },
        };
        record.to_bytes()
    }

    #[test]
    fn the_first_refusal_for_this_rank_among_records_is_heard() {
        let records = [b"no record".to_vec(), refused(8, "theirs"), refused(7, "x")];
        assert_eq!(refusal_in(&records, &me()), Some(Error::rendezvous("x")));
        assert_eq!(refusal_in(&records[..2], &me()), None);
    }

    #[test]
    fn an_earlier_failure_counts_but_a_repeated_one_does_not() {
        let repeated = refused(7, &format!("{HAD_FAILED}: rank 3 was lost"));
        let told = |records: Vec<Vec<u8>>| earlier_failure(&Earlier(records), &me());
        let failure = told(vec![
            b"no record".to_vec(),
            refused(8, "theirs"),
            repeated.clone(),
            refused(7, "rank 3 was lost"),
        ]);
        let cause = Error::rendezvous("rank 3 was lost");
        assert_eq!(failure, Some(format!("{HAD_FAILED}: {cause}")));
        assert_eq!(told(vec![refused(8, "theirs"), repeated]), None);
    }

    #[test]
    fn rank_0_looks_back_once_it_is_late_and_once() {
        let board = Arc::new(Earlier(vec![refused(0, "x")]));
        let keeper = |join_timeout| {
            let board: Arc<dyn RendezvousBackend> = Arc::<Earlier>::clone(&board);
            let config = Config {
                join_timeout,
                ..interrupted()
            };
            RecordKeeper::new(&config, board)
        };
        let late = keeper(Duration::ZERO);
        let earlier = || late.tend().earlier;
        assert!(earlier().is_some_and(|told| told.starts_with(HAD_FAILED)));
        assert_eq!(earlier(), None);
        assert_eq!(keeper(LIMIT).tend().earlier, None);
    }

    #[test]
    fn a_meeting_looks_back_after_five_seconds_or_half_of_its_time() {
        let after = |seconds| looking_back_after(Duration::from_secs(seconds));
        assert_eq!(after(600), LOOK_BACK);
        assert_eq!(after(10), LOOK_BACK);
        assert_eq!(after(4), Duration::from_secs(2));
    }

    #[tokio::test]
    async fn looking_back_finds_an_earlier_failure_or_nothing() {
        let looked = |records, patience| {
            let backend = Arc::new(Earlier(records));
            let looking = look_back(backend, Duration::from_millis(20), me());
            tokio::time::timeout(patience, looking)
        };
        let told = looked(vec![refused(7, "no world")], LIMIT).await.unwrap();
        assert!(told.starts_with(HAD_FAILED), "{told}");
        let nothing = looked(Vec::new(), Duration::from_millis(200)).await;
        assert!(nothing.is_err(), "{nothing:?}");
    }

    #[test]
    fn objections_to_another_world_are_not_this_ones() {
        let backend = MemoryBackend::default();
        let report = |world| UnreachableReport {
            communicator: Uuid::from_u128(world),
            peer: fsgather_core::Peer {
                rank: Rank::new(2),
                host: "n2".into(),
                pid: 5,
            },
            tried: "10.0.0.1:80 (refused)".into(),
        };
        for bytes in [report(1).to_bytes(), b"none".to_vec(), report(2).to_bytes()] {
            backend.report_unreachable(&bytes).unwrap();
        }
        let found = unreachable_reports(&backend, Uuid::from_u128(1));
        assert_eq!(found, [report(1)]);
    }
}
