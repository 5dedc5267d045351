//! Finds a second process that claims to be rank 0 of this job: [`RivalSearch`].
//!
//! Members that find two rank 0s report them to each other. While no member has come, nothing else does.

use std::sync::{Arc, Mutex};

use fsgather_core::{Error, ProcessId, Rank, RendezvousBackend, lock};

use crate::{
    coordinator::claimed_twice_by_name,
    join::config::IsRunning,
    join::{config::Config, record::RendezvousRecord},
};

/// Looks for records that other processes have posted for the same job.
pub(super) struct RivalSearch {
    own: ProcessId,
    key: u64,
    is_running: Arc<IsRunning>,
    /// The processes whose records were there at the first look: unless they are seen to live, crashed runs have left these.
    earlier: Mutex<Option<Vec<ProcessId>>>,
}

impl RivalSearch {
    /// Begins when this rank 0 has posted its record. `None` for jobs that a launcher's id or their starts tell apart.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let is_known_by_name_alone =
            config.is_named && config.start.is_some_and(|start| !start.is_whole);
        is_known_by_name_alone.then(|| Self {
            own: config.process.clone(),
            key: config.job_credentials.key,
            is_running: Arc::clone(&config.is_running),
            earlier: Mutex::default(),
        })
    }

    /// The failure of this meeting, if another process claims its rank 0. Other ranks may still show which of two jobs each belongs to, so
    /// nothing is an error before `is_late`.
    pub(super) fn find(&self, board: &dyn RendezvousBackend, is_late: bool) -> Option<Error> {
        let mut earlier = lock(&self.earlier);
        if earlier.is_some() && !is_late {
            return None;
        }
        let mut posters = board.posted_by_others();
        posters.retain(|(poster, record)| *poster != self.own && self.is_claim(record));
        let mut posters = posters.into_iter().map(|(poster, _)| poster);
        let Some(earlier) = &*earlier else {
            *earlier = Some(posters.collect());
            return None;
        };
        let rival = posters.find(|poster| {
            if self.own.sees_pids_of(poster) {
                (self.is_running)(poster)
            } else {
                !earlier.contains(poster)
            }
        })?;
        // Both report the same.
        let mut both = [&self.own, &rival];
        both.sort_by_key(|process| (&process.host, process.pid));
        Some(claimed_twice_by_name(Rank::ZERO, both[0], both[1]))
    }

    fn is_claim(&self, record: &[u8]) -> bool {
        RendezvousRecord::from_bytes(record)
            .is_ok_and(|record| record.refusal.is_none() && record.fingerprint.key == self.key)
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{Start, WorldSize};

    use super::*;
    use crate::join::{Meeting, config};

    /// A place that holds the records of other processes.
    #[derive(Default)]
    struct Posted(Mutex<Vec<(ProcessId, Vec<u8>)>>);

    impl RendezvousBackend for Posted {
        fn post(&self, _: &[u8]) -> Result<(), Error> {
            Ok(())
        }

        fn records(&self) -> Result<Vec<Vec<u8>>, Error> {
            Ok(Vec::new())
        }

        fn posted_by_others(&self) -> Vec<(ProcessId, Vec<u8>)> {
            lock(&self.0).clone()
        }

        fn place(&self) -> String {
            "/shared".into()
        }
    }

    fn process(host: &str, pid: u32) -> ProcessId {
        ProcessId {
            host: host.into(),
            boot_id: host.into(),
            pid_namespace: 1,
            pid,
            ..ProcessId::default()
        }
    }

    #[test]
    fn second_rank_0_is_named_unless_it_may_have_ended() {
        let board = Arc::new(Posted::default());
        let meeting = Meeting::Board(Arc::clone(&board) as Arc<dyn RendezvousBackend>);
        let world_size = WorldSize::new(2).unwrap();
        let mut config = Config::new(Rank::ZERO, world_size, process("a", 1), meeting);
        config.is_running = Arc::new(|process| process.pid != 4);
        config.start = Some(Start::default());
        assert!(RivalSearch::new(&config).is_none(), "it has no name");
        config.is_named = true;
        let claim = config::record(&config).to_bytes();
        let post = |host: &str, pid| lock(&board.0).push((process(host, pid), claim.clone()));
        let search = || RivalSearch::new(&config).unwrap();
        let found = |search: &RivalSearch| search.find(&*board, true);

        post("a", 1);
        post("a", 4);
        post("b", 2);
        let left_by_ended = search();
        assert_eq!(found(&left_by_ended), None);
        assert_eq!(found(&left_by_ended), None);
        post("c", 3);
        assert_eq!(left_by_ended.find(&*board, false), None);
        let remote = found(&left_by_ended).unwrap().to_string();
        assert!(
            remote
                .contains("two processes say that they are rank 0: a, pid 1 and c, pid 3. Either"),
            "{remote}"
        );
        let with_newcomer = search();
        assert_eq!(found(&with_newcomer), None);
        assert_eq!(found(&with_newcomer), None, "all were there before");
        post("a", 5);
        let beside_a_live_one = search();
        assert_eq!(found(&beside_a_live_one), None);
        let local = found(&beside_a_live_one).unwrap().to_string();
        assert!(local.contains("a, pid 1 and a, pid 5"), "{local}");
    }
}
