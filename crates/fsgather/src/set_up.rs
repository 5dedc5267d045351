//! How ranks agree on where payloads go: [`place_for`].
//!
//! Set-up is made of ordinary exchanges, so it fails, times out and is agreed on like any call:
//!
//! 1. Rank 0 makes the gather directory, unless it was told to use memory, and tells everybody its
//!    plan. If it cannot, nobody can.
//! 2. Only when ranks may see different mounts: it is proved that they share the directory
//!    ([`sharing::prove`]).
//!
//! If it is not, the transport `auto` goes through memory with one warning, and `filesys` is an error. How
//! ranks connect to each other for that is in [`links`].

mod links;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Once},
};

use bytes::Bytes;
use fsgather_core::{Call, Contribution, Error, Operation, Phase, Rank, Round};
use fsgather_store::{
    BEAT_PERIOD, Caretaker, CollectPolicy, FileSystem, GatherDir, GatherFacts, OwnUid,
    cannot_be_shared, check_writable, probers,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    inner::{Inner, lock},
    place::{FilePlace, Place},
    route::Route,
    settings::Transport,
    sharing::{self, Talk},
};

/// What rank 0 tells everybody.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    plan: Plan,
    /// What ranks must know to connect to each other, if it comes to that.
    secret: [u8; 32],
}

/// What rank 0 means to do.
#[derive(Debug, Serialize, Deserialize)]
enum Plan {
    /// Memory, as rank 0 was told.
    Memory,
    /// Files in this rendezvous directory.
    Files {
        directory: String,
        facts: GatherFacts,
        /// Whether ranks may see different mounts, so that it has to be proved that they share it.
        is_in_doubt: bool,
    },
    /// Memory, or nothing: it is plain that ranks do not share the directory.
    NotShared(Error),
}

/// The place that a route leads to; found out together with all other ranks the first time, where `call` is
/// made and with its time-out.
pub(crate) fn place_for(inner: &Inner, route: &Route, call: &Call) -> Result<Place, Error> {
    let _one_at_a_time = lock(&inner.world.setting_up);
    if let Some(known) = inner.world.known_place(route) {
        return Ok(known);
    }
    let place = run(inner, route, call)?;
    inner.world.keep_place(route.clone(), place.clone());
    Ok(place)
}

/// Finds the place that a route leads to, together with all other ranks.
fn run(inner: &Inner, route: &Route, call: &Call) -> Result<Place, Error> {
    if inner.exchange.body_limit() == usize::MAX {
        return Ok(Place::Relay);
    }
    let set_up = SetUp { inner, route, call };
    let mut made = None;
    let place = set_up.find(&mut made);
    if let (Some(directory), Ok(Place::Relay | Place::Mesh(_)) | Err(_)) = (made, &place) {
        let removal = directory.remove();
        if !removal.is_complete() {
            tracing::warn!("{removal}");
        }
    }
    place
}

struct SetUp<'a> {
    inner: &'a Inner,
    route: &'a Route,
    /// What it is done for.
    call: &'a Call,
}

impl SetUp<'_> {
    /// `made` is rank 0's directory, as soon as it exists.
    fn find(&self, made: &mut Option<GatherDir>) -> Result<Place, Error> {
        let is_root = self.inner.exchange.rank() == Rank::ZERO;
        let told = self.agree(|| {
            if let Some(problem) = &self.inner.world.ground.problem {
                return Err(problem.clone());
            }
            if !is_root {
                return Ok(Bytes::new());
            }
            let (plan, directory) = self.plan()?;
            *made = directory;
            let secret = rand::random();
            encode(&Told { plan, secret })
        })?;
        let Told { plan, secret } = decode(told.first())?;
        let (path, facts, is_in_doubt) = match plan {
            Plan::Memory => return self.memory(secret),
            Plan::NotShared(problem) => return self.not_shared(problem, secret),
            Plan::Files {
                directory,
                facts,
                is_in_doubt,
            } => (PathBuf::from(directory), facts, is_in_doubt),
        };
        let opened = match made {
            Some(directory) => Ok(directory.clone()),
            None => self.open(&path, facts),
        };
        // Where all ranks see the same mounts, what one can open, all can.
        let directory = if is_in_doubt {
            match self.probe(&path, opened)? {
                Ok(directory) => Ok(directory),
                Err(problem) => return self.not_shared(problem, secret),
            }
        } else {
            opened
        };
        // A rank that cannot open it after all must not leave the others alone with their first call.
        let directory = self.agree_on(directory)?;
        Ok(Place::Files(Arc::new(self.furnish(directory)?)))
    }

    /// What rank 0 means to do; it makes the gather directory at once, so that a lack of room or
    /// permission is known now rather than after hours of work.
    fn plan(&self) -> Result<(Plan, Option<GatherDir>), Error> {
        if self.route.transport == Transport::Memory {
            return Ok((Plan::Memory, None));
        }
        let ground = &self.inner.world.ground;
        let (rendezvous, own) = self.choose()?;
        let processes = &self.inner.world.processes;
        let file_system = FileSystem::of(&rendezvous)?;
        if let Some(hosts) = cannot_be_shared(&file_system, processes) {
            let problem = Error::NotShared {
                directory: rendezvous,
                hosts,
                reason: format!("{} is a file system of one host", file_system.name()),
            };
            return Ok((Plan::NotShared(problem), None));
        }
        let world_size = self.inner.exchange.world_size();
        let owner = ground.owner(processes, world_size, self.inner.world.communicator);
        let directory = GatherDir::create(&rendezvous, ground.mode, &owner, own)?;
        let plan = Plan::Files {
            directory: rendezvous.to_string_lossy().into_owned(),
            facts: directory.facts().clone(),
            is_in_doubt: probers(processes).len() > 1,
        };
        Ok((plan, Some(directory)))
    }

    /// The rendezvous directory to make the gather directory in.
    fn choose(&self) -> Result<(PathBuf, OwnUid), Error> {
        let ground = &self.inner.world.ground;
        if let Some(named) = &self.route.directory {
            return ground.enter(named);
        }
        let all_here = probers(&self.inner.world.processes).len() == 1;
        let chosen = ground.choose(all_here)?;
        let entered = ground.enter(chosen)?;
        if ground.is_working_directory(chosen) {
            // Once, also where the ranks of a job meet again and again, as groups of torch do.
            static SAID: Once = Once::new();
            let file_system = FileSystem::of(&entered.0)?;
            SAID.call_once(|| {
                tracing::warn!(
                    "no directory was named, so payloads go to the working directory {} ({}); name one with \
                     FSGATHER_DIR",
                    chosen.display(),
                    file_system.name()
                );
            });
        }
        Ok(entered)
    }

    fn open(&self, rendezvous: &Path, facts: GatherFacts) -> Result<GatherDir, Error> {
        let own = match self.inner.world.ground.known_owner(rendezvous) {
            Some(own) => own,
            None => check_writable(rendezvous)?,
        };
        sharing::open(self, rendezvous, facts, own)
    }

    /// Finds out whether all mount namespaces see the same directory; why not, if they do not.
    fn probe(
        &self,
        rendezvous: &Path,
        opened: Result<GatherDir, Error>,
    ) -> Result<Result<GatherDir, Error>, Error> {
        let processes = &self.inner.world.processes;
        let rank = self.inner.exchange.rank();
        let proved = sharing::prove(self, rank, processes, rendezvous, opened.as_ref())?;
        if rank == Rank::ZERO
            && let Ok(directory) = &opened
            && let Err(error) = directory.clear_probes()
        {
            tracing::debug!("{error}");
        }
        Ok(match proved {
            None => opened,
            Some(blindness) => Err(blindness.into_error(rendezvous, processes)),
        })
    }

    /// Makes sure that every rank has what it needs, or none goes on.
    fn agree_on<R>(&self, own: Result<R, Error>) -> Result<R, Error> {
        let mut kept = None;
        self.agree(|| {
            kept = Some(own?);
            Ok(Bytes::new())
        })?;
        kept.ok_or_else(|| Error::config("a set-up came to no result"))
    }

    fn furnish(&self, directory: GatherDir) -> Result<FilePlace, Error> {
        let processes = &self.inner.world.processes;
        let single_host = processes
            .iter()
            .all(|process| process.boot_id == processes[0].boot_id);
        let policy = CollectPolicy {
            single_host,
            ..CollectPolicy::default()
        };
        let is_root = self.inner.exchange.rank() == Rank::ZERO;
        let caretaker = Caretaker::start(directory.clone(), is_root.then_some(BEAT_PERIOD))?;
        if is_root {
            caretaker.sweep(self.inner.world.ground.job.clone());
        }
        Ok(FilePlace::new(directory, policy, caretaker))
    }

    /// Where ranks were told different things, rank 0 decides.
    fn memory(&self, secret: [u8; 32]) -> Result<Place, Error> {
        if self.route.transport == Transport::Filesys {
            tracing::warn!(
                "rank 0 was told to use memory, this rank ({}) to use files: memory it is",
                self.inner.exchange.rank()
            );
        }
        self.connect(secret)
    }

    fn not_shared(&self, problem: Error, secret: [u8; 32]) -> Result<Place, Error> {
        if self.route.transport == Transport::Filesys {
            return Err(problem);
        }
        if self.inner.exchange.rank() == Rank::ZERO {
            tracing::warn!("{problem}; payloads go through memory instead");
        }
        self.connect(secret)
    }

    /// One exchange of the set-up; a rank whose part fails makes it fail for all.
    fn agree(&self, part: impl FnOnce() -> Result<Bytes, Error>) -> Result<Vec<Bytes>, Error> {
        let exchange = &self.inner.exchange;
        let ticket = exchange.begin(Call {
            patience: self.call.patience,
            ..Call::new(Operation::SetUp, self.call.site.clone())
        })?;
        let body = part().map_err(|cause| exchange.fail(&ticket, Phase::Publishing, cause))?;
        exchange.contribute(&ticket, Round::VERDICT, Contribution::inline(body))?;
        let verdict = exchange.wait(&ticket, Round::VERDICT)?;
        Ok(verdict.table.map(|table| table.bodies).unwrap_or_default())
    }
}

impl Talk for SetUp<'_> {
    fn tell_all<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>, Error> {
        self.agree(|| encode(own))?
            .iter()
            .map(|finding| decode(Some(finding)))
            .collect()
    }

    fn heed(&self) -> Result<(), Error> {
        self.inner.heed()
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Bytes, Error> {
    postcard::to_stdvec(value)
        .map(Bytes::from)
        .map_err(|error| Error::config(format!("a set-up message cannot be encoded: {error}")))
}

pub(crate) fn decode<T: DeserializeOwned>(body: Option<&Bytes>) -> Result<T, Error> {
    body.and_then(|body| postcard::from_bytes(body).ok())
        .ok_or_else(|| Error::Incompatible {
            what: "a set-up message".into(),
            ours: env!("CARGO_PKG_VERSION").into(),
            theirs: "unknown".into(),
        })
}
