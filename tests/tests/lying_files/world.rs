//! A job over the model: ranks that meet, exchange data and leave, and their fates: [`World`].

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use fsgather_control::join::{self, Config, Control, Meeting};
use fsgather_core::{
    Call, Error, Exchange, JobKey, Operation, ProcessId, Rank, Site, WorldSize, lock,
};
use fsgather_store::{
    BackendDirectory, FileBackend, MarkerOwner, MessageDirFactory, check_writable, liveness,
    make_rendezvous,
};

use crate::{
    dice::Dice,
    faults::{self, Severity},
    files::{Breaks, FileWorld},
    machine::{Machine, Outcome},
    payloads::Payloads,
    profile::Profile,
    server::Moment,
};

/// The parameters of a run, which a seed determines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) profile: Profile,
    pub(crate) severity: Severity,
    pub(crate) ranks: u32,
    pub(crate) hosts: usize,
    pub(crate) calls: u32,
    pub(crate) breaks: Breaks,
}

/// The outcome of one call of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// The result; none if only other ranks receive one.
    Result(Option<Vec<Bytes>>),
    Failed(String),
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AllGather,
    Barrier,
    Gather,
    /// An all-gather whose payloads are files.
    Files,
}

/// The history of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) joined: Option<Result<(), String>>,
    pub(crate) calls: Vec<Came>,
    /// The times at which it began each call, and at which the call ended for it.
    pub(crate) times: Vec<(Moment, Moment)>,
    pub(crate) closed: Option<Result<(), String>>,
    pub(crate) ended: Option<Moment>,
}

/// The history of a world.
pub(crate) struct World {
    pub(crate) script: Script,
    pub(crate) outcome: Outcome,
    pub(crate) stories: Vec<Story>,
    /// True for ranks that a fault has ended.
    pub(crate) killed: Vec<bool>,
    /// The files that are left at the end, on the shared file system and on each host.
    pub(crate) left: Vec<Vec<String>>,
    pub(crate) happened: Vec<(Moment, usize, String)>,
    pub(crate) calls: u64,
    pub(crate) digest: u64,
}

/// Maximum duration of a world.
const LIMIT: Duration = Duration::from_secs(1800);

impl Script {
    /// The script of a seed, with these parameters if they are given.
    pub(crate) fn of(seed: u64, profile: Option<Profile>, severity: Option<Severity>) -> Self {
        let mut dice = Dice::new(seed, 20);
        let drawn = dice.pick(&crate::profile::ALL);
        let severities = [
            Severity::Nothing,
            Severity::Survivable,
            Severity::Passing,
            Severity::Anything,
        ];
        let drawn_severity = dice.pick(&severities);
        let profile = profile.unwrap_or(drawn).draw(&mut dice);
        let ranks = dice.between(1, 4) as u32;
        let hosts = if profile.is_local() {
            1
        } else {
            dice.between(1, 3) as usize
        };
        Self {
            seed,
            profile,
            severity: severity.unwrap_or(drawn_severity),
            ranks,
            hosts,
            calls: dice.between(0, 12) as u32,
            breaks: Breaks::default(),
        }
    }

    /// Runs the script.
    pub(crate) fn play(self) -> World {
        let mut dice = Dice::new(self.seed, 21);
        let mut files = FileWorld::new(self.profile, self.hosts, &mut dice, self.breaks);
        if !self.profile.is_local() {
            for skew in &mut files.skews {
                *skew = Duration::from_millis(dice.any_size(200_000));
            }
        }
        let planned = faults::draw(self.severity, &mut dice);
        let machine = Machine::new(files, planned, self.seed);
        if self.severity == Severity::Passing {
            machine.keep_faults_back();
        }
        let stories = Arc::new(Mutex::new(vec![Story::default(); self.ranks as usize]));
        for rank in 0..self.ranks {
            let host = self.host_of(rank);
            let begins = dice.any_size(3_000_000_000);
            let its = Arc::clone(&stories);
            machine.process(host, begins, &format!("rank {rank}"), move || {
                self.live(rank, machine, &its);
            });
        }
        let limit = u64::try_from(LIMIT.as_nanos()).unwrap_or(u64::MAX);
        let outcome = machine.run(limit);
        let mut inner = machine.inner();
        inner.files.settle();
        let killed = inner
            .processes
            .iter()
            .map(|process| process.was_killed)
            .collect();
        let left = (0..=self.hosts)
            .map(|mount| inner.files.server.tree(mount))
            .collect();
        World {
            script: self,
            outcome,
            stories: lock(&stories).clone(),
            killed,
            left,
            happened: inner.happened.clone(),
            calls: inner.calls,
            digest: inner.digest,
        }
    }

    fn host_of(&self, rank: u32) -> usize {
        rank as usize * self.hosts / self.ranks as usize
    }

    fn process(&self, rank: u32) -> ProcessId {
        let host = self.host_of(rank);
        ProcessId {
            host: format!("n{host}"),
            boot_id: format!("boot {host}"),
            machine_id: format!("machine {host}"),
            pid_namespace: 7,
            mount_namespace: host as u64 + 1,
            pid: 1000 + rank,
            start_time: (1000 + rank).into(),
            time_namespace: ProcessId::NO_TIME_NAMESPACES,
        }
    }

    /// Runs one rank.
    fn live(self, rank: u32, machine: &'static Machine, stories: &Mutex<Vec<Story>>) {
        let tell = |tell: &dyn Fn(&mut Story)| tell(&mut lock(stories)[rank as usize]);
        let joined = self.join(rank);
        tell(&|story| {
            let told = joined.as_ref().map(drop).map_err(ToString::to_string);
            story.joined = Some(told);
        });
        if let Ok((exchange, place)) = joined {
            let mut payloads = None;
            let mut is_well = true;
            for call in 0..self.calls {
                self.think(rank, call);
                let came_to_it = machine.now_in_model();
                let came = self.call(&*exchange, &place, &mut payloads, call);
                let time = (came_to_it, machine.now_in_model());
                is_well = !matches!(came, Came::Failed(_));
                machine.let_faults_come(self.severity);
                tell(&|story| {
                    story.calls.push(came.clone());
                    story.times.push(time);
                });
                if !is_well {
                    break;
                }
            }
            let mut is_closed = false;
            if is_well {
                let closed = exchange.close(Site::named("the end"));
                is_closed = closed.is_ok();
                tell(&|story| {
                    story.closed = Some(closed.clone().map_err(|error| error.to_string()));
                });
            }
            let departure = exchange.leave(None);
            drop(exchange);
            if let Some(payloads) = payloads {
                payloads.end(Rank::new(rank), is_closed, &departure);
            }
        }
        let now = machine.now_in_model();
        tell(&|story| story.ended = Some(now));
    }

    /// Computes for a while between two calls, on all ranks for about as long.
    fn think(&self, rank: u32, call: u32) {
        let mut dice = Dice::new(self.seed ^ u64::from(call) << 32, 23);
        let together = match self.severity {
            // The consequences of an error may show only after a while.
            Severity::Passing if dice.one_in(3) => dice.below(120_000),
            _ if dice.one_in(4) => dice.any_size(40_000),
            _ => 0,
        };
        let mut own = Dice::new(dice.next() ^ u64::from(rank), 24);
        let thought = together + own.any_size(3000);
        if thought > 0 {
            fsgather_core::sys::clock::sleep(Duration::from_millis(thought));
        }
    }

    fn join(&self, rank: u32) -> Result<(Box<dyn Exchange>, BackendDirectory), Error> {
        let process = self.process(rank);
        let directory = make_rendezvous("/shared".as_ref())?;
        let own = check_writable(&directory)?;
        let place = BackendDirectory { directory, own };
        let places = vec![place.clone()];
        let world_size = WorldSize::new(self.ranks)?;
        let key = JobKey {
            uid: own.0,
            family: "none".into(),
            job: Some("a job".into()),
            launch: None,
            attempt: None,
            world_size,
            number: 0,
            master: None,
        };
        let owner = MarkerOwner {
            process: process.clone(),
            uid: own.0,
            user: "somebody".into(),
            job: Some("a job".into()),
            mode: 0o700,
        };
        let backend = Arc::new(FileBackend::new(
            places.clone(),
            key.hash(),
            process.clone(),
        ));
        let observer = process.clone();
        let config = Config {
            mailboxes: Some(Arc::new(MessageDirFactory::new(places, owner))),
            control: Control::Markers,
            is_running: Arc::new(move |process| !liveness(process, &observer).has_ended()),
            ..Config::new(
                Rank::new(rank),
                world_size,
                process,
                Meeting::Board(backend),
            )
        };
        Ok((join::join_over_files(&config)?.exchange, place))
    }

    /// The contribution of a rank.
    pub(crate) fn body(&self, rank: u32, call: u32) -> Bytes {
        let mut dice = Dice::new(
            self.seed ^ u64::from(call) << 32 ^ u64::from(rank) << 16,
            22,
        );
        let len = if dice.one_in(8) {
            dice.below(20_000)
        } else {
            dice.below(200)
        };
        let mut body = format!("{rank} in {call} of {}:", self.seed).into_bytes();
        body.extend((0..len).map(|_| dice.next() as u8));
        body.into()
    }

    /// Returns true if a rank gets the bodies of all ranks of a call.
    pub(crate) fn receives(&self, rank: u32, call: u32) -> bool {
        match self.kind(call) {
            Kind::AllGather | Kind::Files => true,
            Kind::Barrier => false,
            Kind::Gather => rank == call % self.ranks,
        }
    }

    /// The kind of a call.
    fn kind(&self, call: u32) -> Kind {
        let mut dice = Dice::new(self.seed ^ u64::from(call) << 32, 25);
        let kinds = [Kind::AllGather, Kind::Barrier, Kind::Gather, Kind::Files];
        let count = if self.severity == Severity::Passing {
            3
        } else {
            4
        };
        dice.pick(&kinds[..count])
    }

    fn call(
        &self,
        exchange: &dyn Exchange,
        place: &BackendDirectory,
        payloads: &mut Option<Payloads>,
        call: u32,
    ) -> Came {
        let site = Site::named("here");
        let rank = exchange.rank().get();
        let simple = |call: Call, body| {
            let table = exchange.exchange(call, body);
            table.map(|table| table.map(|table| table.bodies))
        };
        let made = match self.kind(call) {
            Kind::AllGather => simple(Call::new(Operation::AllGather, site), self.body(rank, call)),
            Kind::Barrier => exchange.barrier(site).map(|()| None),
            Kind::Gather => {
                let root = Rank::new(call % self.ranks);
                let gather = Call::new(Operation::Gather, site).with_root(root);
                simple(gather, self.body(rank, call))
            }
            Kind::Files => self
                .through_files(exchange, place, payloads, call)
                .map(Some),
        };
        match made {
            Ok(result) => Came::Result(result),
            Err(error) => Came::Failed(error.to_string()),
        }
    }

    fn through_files(
        &self,
        exchange: &dyn Exchange,
        place: &BackendDirectory,
        payloads: &mut Option<Payloads>,
        call: u32,
    ) -> Result<Vec<Bytes>, Error> {
        let rank = exchange.rank().get();
        let payloads = match payloads {
            Some(payloads) => payloads,
            None => payloads.insert(Payloads::set_up(
                exchange,
                &place.directory,
                place.own,
                &self.process(rank),
            )?),
        };
        payloads.all_gather(exchange, &self.body(rank, call))
    }
}

impl World {
    /// Returns true if the project promises to survive all faults of this world.
    pub(crate) fn is_survivable(&self) -> bool {
        self.script.severity != Severity::Anything
    }

    /// Returns true if nothing may be left behind.
    pub(crate) fn is_tidy(&self) -> bool {
        matches!(
            self.script.severity,
            Severity::Nothing | Severity::Survivable
        )
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}", self.script)?;
        writeln!(f, "{} calls, {:?}", self.calls, self.outcome)?;
        for (at, process, what) in &self.happened {
            writeln!(f, "  {:.3} s, process {process}: {what}", *at as f64 / 1e9)?;
        }
        for (rank, story) in self.stories.iter().enumerate() {
            let calls: Vec<String> = story
                .calls
                .iter()
                .map(|came| match came {
                    Came::Result(_) => "well".into(),
                    Came::Failed(why) => why.clone(),
                })
                .collect();
            writeln!(
                f,
                "  rank {rank}: joined {:?}, calls {calls:?}, closed {:?}, ended {:?}",
                story.joined,
                story.closed,
                story.ended.map(|at| at as f64 / 1e9)
            )?;
        }
        Ok(())
    }
}
