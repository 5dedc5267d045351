//! Ranks as threads: [`Bed`].

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use fsgather_control::join::{self, Config, Control, Meeting};
use fsgather_core::{Error, ProcessId, Rank, WorldSize};
use fsgather_testkit::{
    MemoryBackend, MemoryMailbox, exchange_conformance::RankExchange, pace::patience,
};

/// Shared settings of all ranks of a test.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) post: Arc<MemoryMailbox>,
    pub(crate) board: Arc<MemoryBackend>,
    pub(crate) world_size: WorldSize,
    /// Number of ranks that share a host.
    pub(crate) by_host: u32,
    pub(crate) timeout: Duration,
    pub(crate) join_timeout: Duration,
}

impl Bed {
    pub(crate) fn new(post: Arc<MemoryMailbox>, ranks: u32) -> Self {
        Self {
            post,
            board: Arc::default(),
            world_size: WorldSize::new(ranks).unwrap(),
            by_host: ranks,
            timeout: patience(),
            join_timeout: patience(),
        }
    }

    /// The process that is this rank in every test that does not start another one.
    pub(crate) fn process(&self, rank: u32) -> ProcessId {
        self.twin(rank, 0)
    }

    /// One of several processes that claim to be this rank.
    pub(crate) fn twin(&self, rank: u32, which: u32) -> ProcessId {
        let host = rank / self.by_host;
        ProcessId {
            host: format!("n{host}"),
            boot_id: format!("boot {host}"),
            pid_namespace: 7,
            // The pid is that of this process, so that no watch is on an unrelated process.
            pid: std::process::id(),
            start_time: (rank + 1000 * which).into(),
            ..ProcessId::default()
        }
    }

    pub(crate) fn config(&self, rank: u32, process: ProcessId) -> Config {
        let post = Arc::clone(&self.post);
        let own_host = process.host_label();
        let meeting = Meeting::Board(self.board.clone());
        Config {
            mailboxes: Some(self.post.factory(&process)),
            timeout: self.timeout,
            join_timeout: self.join_timeout,
            interfaces: Arc::new(|_, address| address.is_loopback()),
            control: Control::Markers,
            is_running: Arc::new(move |process| {
                process.host_label() != own_host || post.is_running(process)
            }),
            ..Config::new(Rank::new(rank), self.world_size, process, meeting)
        }
    }

    /// Starts a rank that joins on a thread of its own and acts.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        rank: u32,
        act: impl FnOnce(Result<RankExchange, Error>) -> R + Send + 'static,
    ) -> Running<R> {
        start(self.config(rank, self.process(rank)), act)
    }

    /// A world whose ranks have all joined.
    pub(crate) fn world(&self) -> Vec<RankExchange> {
        let joining: Vec<_> = self
            .world_size
            .ranks()
            .map(|rank| self.start(rank.get(), Result::unwrap))
            .collect();
        joining.into_iter().map(Running::result).collect()
    }
}

/// A rank that was started.
pub(crate) struct Running<R>(Receiver<R>);

impl<R> Running<R> {
    /// Its result; all that tests here wait for takes less than this limit.
    pub(crate) fn result(self) -> R {
        self.0.recv_timeout(2 * patience()).unwrap()
    }
}

/// Starts a process that joins on a thread of its own and acts.
pub(crate) fn start<R: Send + 'static>(
    config: Config,
    act: impl FnOnce(Result<RankExchange, Error>) -> R + Send + 'static,
) -> Running<R> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || {
        let joined = join::join(&config).map(|joined| joined.exchange);
        let _ = done.send(act(joined));
    });
    Running(result)
}

/// Checks with each of these seeds, all at the same time.
pub(crate) fn on_threads(seeds: impl Iterator<Item = u64>, check: impl Fn(u64) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for seed in seeds {
            thread::Builder::new()
                .name(format!("seed {seed}"))
                .spawn_scoped(scope, move || check(seed))
                .unwrap();
        }
    });
}
