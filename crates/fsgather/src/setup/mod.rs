//! Agrees with the other ranks on where payloads go: [`payload_path_for`].
//!
//! Each group, and the world, sets up for itself each [`PathRequest`] that its calls take, the first time that one does,
//! by ordinary exchanges of its own. So it fails, times out and is agreed on like any call, needs nobody but the
//! members, and has nobody else wait. What is shared between groups, and what others see of a path, goes by
//! the ranks' numbers in the world. In the following the *root* is the first member: rank 0 of the world.
//!
//! 1. Where the root knows that the world has come to a path already, it proposes that, and all say whether they know it as well.
//!    Groups of which some member does not know it yet go on as if nobody did.
//! 2. The root makes the gather directory, unless it was told to use memory, and tells everybody its
//!    plan. If it cannot, nobody can.
//! 3. Only when members may see different mounts: it is proved that they share the directory
//!    ([`sharing::prove`]).
//! 4. All say that they have what they need to use it, and whether it lies on a file system of their host.
//!
//! On the way all tell which payloads they want verified, of which the strictest counts ([`checksums`]).
//!
//! If it is not shared, the transport `auto` goes through memory with one warning, and `filesys` is an error. The same
//! holds of a directory that cannot be used, if nobody has named it, and of one without room. How ranks connect to
//! each other for that is in [`links`]. Ranks of one host share memory besides: [`shared_memory`].

mod checksums;
mod links;
mod messages;
mod plain_text;
mod shared_memory;
#[cfg(test)]
mod tests;
mod told_transport;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use fsgather_core::{
    Call, ChannelId, Contribution, Error, Operation, Phase, ProcessId, Rank, Round, error_form,
    error_form::SentError, lock,
};
use fsgather_store::{
    BEAT_PERIOD, CollectPolicy, FileSystem, GatherDir, GatherFacts, OwnUid, cannot_be_shared,
    check_writing, probers,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    group_state::GroupState,
    join::{
        exact_path,
        local_context::is_dispensable,
        sharing::{self, Talk},
    },
    payload::{
        path::{FilesPath, PathId, PayloadPath},
        path_request::PathRequest,
    },
};
use fsgather_config::settings::{Transport, Verify};
use told_transport::ToldTransport;

pub(crate) use messages::{decode, encode};
pub(crate) use shared_memory::share_memory;

/// What the root tells everybody.
#[derive(Debug, Serialize, Deserialize)]
struct ToldPlan {
    plan: PathPlan,
    /// Which way the root was told to use: where ranks were told different things, its word counts.
    transport: ToldTransport,
    /// Which payloads it was told to verify.
    verify: Verify,
    /// What the ranks of the world must know to connect to each other, if it comes to that; told by its rank 0, which is
    /// root of the first set-up of all its ranks, and by no other. Where there is no such set-up it is told at the beginning.
    secret: Option<[u8; 32]>,
}

/// What the root means to do.
#[derive(Debug, Serialize, Deserialize)]
enum PathPlan {
    /// Where the payloads of the world go, if all members know that.
    AsTheWorld(PathId),
    /// Memory, as the root was told.
    Memory,
    /// Files in this rendezvous directory.
    Files {
        #[serde(with = "exact_path")]
        directory: PathBuf,
        facts: GatherFacts,
        /// Whether members may see different mounts, so that it has to be proved that they share it.
        is_in_doubt: bool,
        /// Whether somebody has named it, so that a member that cannot use it is not passed over.
        is_named: bool,
    },
    /// Memory, or nothing: members do not share the directory, or it cannot be used.
    WithoutFiles(#[serde(with = "error_form")] Error),
}

/// Reads any bytes as what the root tells, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_reading(body: &Bytes) {
    let _ = decode::<ToldPlan>(Some(body)).map(|told| format!("{told:?}"));
}

/// The path that a request leads to; found out together with all other members the first time, where `call` is
/// made and with its time-out.
pub(crate) fn payload_path_for(
    inner: &GroupState,
    request: &PathRequest,
    call: &Call,
) -> Result<PayloadPath, Error> {
    // Nothing is too large for such an exchange.
    if inner.exchange.body_limit() == usize::MAX {
        return Ok(PayloadPath::Relay);
    }
    if let Some(known) = inner.known_paths.find(request) {
        return Ok(known);
    }
    let (_, payload_path) = run(inner, request, call)?;
    keep(inner, request, &payload_path);
    Ok(payload_path)
}

/// Notes for later calls where a request leads.
fn keep(inner: &GroupState, request: &PathRequest, payload_path: &PayloadPath) {
    inner
        .known_paths
        .keep(request.clone(), payload_path.clone());
    if inner.settles_the_world(request) {
        inner.world.settle(payload_path.clone());
    }
}

/// Finds out where the payloads of a world go, if nothing else is said; its groups have it from there.
pub(crate) fn settle(inner: &GroupState, request: &PathRequest, call: &Call) -> Result<(), Error> {
    let (transport, payload_path) = run(inner, request, call)?;
    keep(inner, &agreed(inner, request, transport), &payload_path);
    Ok(())
}

/// Agrees on which way calls take that ask for nothing else, and leaves it to them to find out where that leads.
///
/// All have the secret for connections from now on: a group without rank 0 would not be told it, and one of whose members
/// some had it from another group would not agree on whether there can be connections.
pub(crate) fn agree_on_transport(
    inner: &GroupState,
    request: &PathRequest,
    call: Call,
) -> Result<(), Error> {
    let links = &inner.world.links;
    let secret = (inner.exchange.rank() == Rank::ZERO).then(|| links.draw_secret());
    let own = encode(&(ToldTransport::own(inner, request), secret))?;
    let table = inner.exchange.exchange(call, own)?;
    let told = table.and_then(|table| table.bodies.into_iter().next());
    let (transport, secret) = decode(told.as_ref())?;
    if let Some(secret) = secret {
        links.keep_secret(secret);
    }
    agreed(inner, request, transport);
    Ok(())
}

/// The request of calls that ask for nothing else, given which transport the root was told.
fn agreed(inner: &GroupState, request: &PathRequest, told: ToldTransport) -> PathRequest {
    let transport = told.value;
    if transport != request.transport && told.is_setting && !inner.world.moves_no_payloads {
        fsgather_core::warn!(
            "FSGATHER_TRANSPORT differs: rank 0 was told {transport}, this rank ({}) {}; all ranks use {transport}",
            inner.world.rank,
            request.transport
        );
    }
    let agreed = PathRequest {
        transport,
        directory: request.directory.clone(),
    };
    inner.world.agree_on(agreed.clone());
    agreed
}

/// Finds the path that a request leads to, together with all other members; the transport that counts.
fn run(
    inner: &GroupState,
    request: &PathRequest,
    call: &Call,
) -> Result<(ToldTransport, PayloadPath), Error> {
    let set_up = SetUp {
        inner,
        request,
        call,
        processes: inner.processes(),
    };
    let mut made = None;
    let found = set_up.find(&mut made);
    let is_used = matches!(found, Ok((_, PayloadPath::Files(_))));
    if let (Some(directory), false) = (made, is_used) {
        let removal = directory.remove();
        if !removal.is_complete() {
            fsgather_core::warn!("{removal}");
        }
    }
    found.inspect_err(|failure| inner.world.record_failure(failure))
}

struct SetUp<'a> {
    inner: &'a GroupState,
    request: &'a PathRequest,
    /// What it is done for.
    call: &'a Call,
    /// Where the members run, in the order of the group.
    processes: Vec<ProcessId>,
}

impl SetUp<'_> {
    /// `made` is the root's directory, as soon as it exists.
    fn find(&self, made: &mut Option<GatherDir>) -> Result<(ToldTransport, PayloadPath), Error> {
        let known = self.known_to_the_world();
        let (mut told, others) = self.propose(known.as_ref(), made)?;
        if let PathPlan::AsTheWorld(proposed) = told.plan {
            if let Some(known) = known.as_ref().filter(|known| known.id() == proposed)
                && others.into_iter().all(|other| other == Some(proposed))
            {
                return Ok((told.transport, known.clone()));
            }
            (told, _) = self.propose(None, made)?;
        }
        self.carry_out(told, made.as_ref())
    }

    /// Where the payloads of the world go, if this request is the world's and that is known here by now.
    fn known_to_the_world(&self) -> Option<PayloadPath> {
        let is_the_worlds = self.request == self.inner.default_request();
        self.inner.world.settled().filter(|_| is_the_worlds)
    }

    /// Has the root tell its plan, and all others which path they know already. What is verified is what the strictest
    /// of them was told.
    fn propose(
        &self,
        known: Option<&PayloadPath>,
        made: &mut Option<GatherDir>,
    ) -> Result<(ToldPlan, Vec<Option<PathId>>), Error> {
        let world = &self.inner.world;
        let known = known.map(PayloadPath::id);
        let bodies = self.agree(|| {
            if let Some(problem) = &world.context.problem {
                return Err(problem.clone());
            }
            if !self.is_root() {
                return encode(&(known, world.verify));
            }
            let plan = if let Some(known) = known {
                PathPlan::AsTheWorld(known)
            } else {
                let (plan, directory) = self.plan()?;
                *made = directory;
                plan
            };
            encode(&ToldPlan {
                plan,
                transport: ToldTransport::own(self.inner, self.request),
                verify: world.verify,
                secret: (self.root() == Rank::ZERO).then(|| world.links.draw_secret()),
            })
        })?;
        let read = || {
            let mut told: ToldPlan = decode(bodies.first())?;
            let mut others = Vec::new();
            for body in bodies.iter().skip(1) {
                let (known, verify) = decode(Some(body))?;
                others.push(known);
                told.verify = told.verify.max(verify);
            }
            Ok((told, others))
        };
        let (told, others) = read().map_err(|error| self.fail(error))?;
        if let Some(secret) = told.secret {
            world.links.keep_secret(secret);
        }
        Ok((told, others))
    }

    /// Does what the root has told; `made` is its directory there.
    fn carry_out(
        &self,
        told: ToldPlan,
        made: Option<&GatherDir>,
    ) -> Result<(ToldTransport, PayloadPath), Error> {
        let transport = told.transport.value;
        let payload_path = match told.plan {
            PathPlan::AsTheWorld(_) => {
                let contradiction = "the first rank has proposed the same place twice";
                return Err(self.fail(Error::config(contradiction)));
            }
            PathPlan::Memory => self.connect(told.verify)?,
            PathPlan::WithoutFiles(problem) => {
                self.without_files(&problem, transport, told.verify)?
            }
            PathPlan::Files {
                directory,
                facts,
                is_in_doubt,
                is_named,
            } => {
                let path = directory;
                let opened = match made {
                    Some(directory) => Ok(directory.clone()),
                    None => self.open(&path, facts),
                };
                // Where all members see the same mounts, what one can open, all can.
                let problem = if is_in_doubt {
                    self.probe(&path, opened.as_ref())?
                } else {
                    None
                };
                let used = match problem {
                    None => {
                        let opened = self.encrypted_enough(&path, opened);
                        let is_needed = |problem: &Error| {
                            !self.can_do_without_files(problem, transport, is_named)
                        };
                        self.files(opened, told.verify, is_needed)?
                    }
                    Some(problem) => Err(problem),
                };
                match used {
                    Ok(files) => files,
                    Err(problem) => self.without_files(&problem, transport, told.verify)?,
                }
            }
        };
        Ok((told.transport, payload_path))
    }

    fn is_root(&self) -> bool {
        self.inner.exchange.rank() == Rank::ZERO
    }

    /// The root, by its number in the world.
    fn root(&self) -> Rank {
        self.inner.in_world(Rank::ZERO)
    }

    /// What the root means to do.
    fn plan(&self) -> Result<(PathPlan, Option<GatherDir>), Error> {
        let transport = self.request.transport;
        if transport == Transport::Memory || transport == Transport::Auto && self.is_at_large() {
            return Ok((PathPlan::Memory, None));
        }
        match self.plan_files() {
            Err(problem) if self.can_do_without_files(&problem, transport, self.is_named()) => {
                Ok((PathPlan::WithoutFiles(problem), None))
            }
            planned => planned,
        }
    }

    /// Whether payloads can go another way where the directory has this problem. Where messages go through files, that
    /// would be through files again.
    fn can_do_without_files(&self, problem: &Error, transport: Transport, is_named: bool) -> bool {
        let is_networked = self.inner.world.context.links.is_some();
        transport == Transport::Auto && is_networked && is_dispensable(problem, is_named)
    }

    /// Whether somebody has named the directory.
    fn is_named(&self) -> bool {
        self.request.directory.is_some() || self.inner.world.context.named.is_some()
    }

    /// Whether these ranks have met without a directory, see different mounts, and were given none for payloads: what
    /// they run in is not ours to write in.
    fn is_at_large(&self) -> bool {
        let is_introduced = self.inner.world.context.is_introduced;
        let is_at_large = is_introduced && !self.is_named() && probers(&self.processes).len() > 1;
        if is_at_large {
            tracing::info!(
                "no directory was named, so payloads go from memory to memory; name one that all ranks share with \
                 FSGATHER_DIR to have them go through files"
            );
        }
        is_at_large
    }

    /// The plan with files. It makes the gather directory at once, so that a lack of room or permission is known now
    /// rather than after hours of work.
    fn plan_files(&self) -> Result<(PathPlan, Option<GatherDir>), Error> {
        let world = &self.inner.world;
        let (rendezvous, own) = self.choose()?;
        let file_system = FileSystem::of(&rendezvous)?;
        if let Some(hosts) = cannot_be_shared(&file_system, &self.processes) {
            let problem = Error::not_shared(
                rendezvous,
                hosts,
                format!("{} is a file system of one host", file_system.name()),
            );
            return Ok((PathPlan::WithoutFiles(problem), None));
        }
        if let Err(problem) = self.allows_files(&rendezvous, &file_system) {
            return Ok((PathPlan::WithoutFiles(problem), None));
        }
        // Payloads are named by the numbers that ranks have in the world.
        let world_size = world.size()?;
        let context = &world.context;
        let owner = context.owner(&self.processes, world_size, world.communicator);
        let directory = GatherDir::create_anew(&rendezvous, context.mode, owner, own)?;
        let plan = PathPlan::Files {
            directory: rendezvous,
            facts: directory.facts().clone(),
            is_in_doubt: probers(&self.processes).len() > 1,
            is_named: self.is_named(),
        };
        Ok((plan, Some(directory)))
    }

    /// Whether this rank lets payloads lie in files of this directory in plain text.
    fn allows_files(&self, rendezvous: &Path, file_system: &FileSystem) -> Result<(), Error> {
        if !plain_text::goes_over_a_network(self.inner.world.context.encrypt, file_system.class()) {
            return Ok(());
        }
        Err(Error::config(format!(
            "payloads in {} ({}) would go over the network in plain text, which FSGATHER_ENCRYPT=1 does not allow on \
             rank {}; set FSGATHER_TRANSPORT=memory, or FSGATHER_ENCRYPT=0, on all ranks",
            rendezvous.display(),
            file_system.name(),
            self.inner.world.rank
        )))
    }

    /// The directory that was opened, if this rank lets payloads lie in it.
    fn encrypted_enough(
        &self,
        rendezvous: &Path,
        opened: Result<GatherDir, Error>,
    ) -> Result<GatherDir, Error> {
        let opened = opened?;
        self.allows_files(rendezvous, &FileSystem::of(rendezvous)?)?;
        Ok(opened)
    }

    /// The rendezvous directory to make the gather directory in.
    fn choose(&self) -> Result<(PathBuf, OwnUid), Error> {
        let context = &self.inner.world.context;
        if let Some(named) = &self.request.directory {
            return context.enter_new(named);
        }
        let all_here = probers(&self.processes).len() == 1;
        let chosen = context.choose(all_here)?;
        let entered = context.enter(&chosen)?;
        if context.is_working_directory(&chosen) {
            let file_system = FileSystem::of(&entered.0)?;
            warn_once(format!(
                "no directory was named, so payloads go to the working directory {} ({}); name one with FSGATHER_DIR",
                chosen.display(),
                file_system.name()
            ));
        }
        Ok(entered)
    }

    fn open(&self, rendezvous: &Path, facts: GatherFacts) -> Result<GatherDir, Error> {
        let context = &self.inner.world.context;
        let own = match context.known_owner(rendezvous) {
            Some(own) => own,
            None => check_writing(rendezvous, context.mode)?.0,
        };
        sharing::open(self, rendezvous, facts, self.root(), own)
    }

    /// Finds out whether all mount namespaces see the same directory; why not, if they do not.
    fn probe(
        &self,
        rendezvous: &Path,
        opened: Result<&GatherDir, &Error>,
    ) -> Result<Option<Error>, Error> {
        let (rank, processes) = (self.inner.exchange.rank(), &self.processes);
        let proved = sharing::prove(self, rank, processes, rendezvous, opened)?;
        if self.is_root()
            && let Ok(directory) = opened
            && let Err(error) = directory.clear_probes()
        {
            tracing::debug!("{error}");
        }
        Ok(proved.map(|blindness| blindness.into_error(rendezvous, processes)))
    }

    /// Begins to use a directory, if every member can; why one cannot, where it is not needed. A rank that cannot after
    /// all must not leave the others alone with their first call, nor without the reason.
    fn files(
        &self,
        directory: Result<GatherDir, Error>,
        verify: Verify,
        is_needed: impl Fn(&Error) -> bool,
    ) -> Result<Result<PayloadPath, Error>, Error> {
        let mut furnished = None;
        let told = self.agree(|| {
            let able = match directory.and_then(|directory| self.furnish(directory)) {
                Ok(files) => {
                    let stays = checksums::stays_on_its_host(files.directory());
                    furnished = Some(files);
                    Ok(stays)
                }
                Err(problem) if is_needed(&problem) => return Err(problem),
                Err(problem) => Err(problem),
            };
            encode(&able.map_err(SentError))
        })?;
        let stay_here = match self.all_able(&told)? {
            Ok(stay_here) => stay_here,
            Err(problem) => return Ok(Err(problem)),
        };
        let mut files = furnished.ok_or_else(|| Error::config("a set-up came to no result"))?;
        if !checksums::are_needed(
            verify,
            stay_here && checksums::share_a_host(&self.processes),
        ) {
            files = files.without_checksums();
        }
        let files = Arc::new(files);
        if self.is_root() {
            files.sweep(self.inner.world.context.job.clone());
        }
        self.inner.world.directories.add(Arc::clone(&files));
        Ok(Ok(PayloadPath::Files(files)))
    }

    fn furnish(&self, directory: GatherDir) -> Result<FilesPath, Error> {
        let processes = &self.processes;
        let single_host = checksums::share_a_host(processes);
        let policy = CollectPolicy {
            single_host,
            ..CollectPolicy::default()
        };
        let beat = self.is_root().then_some(BEAT_PERIOD);
        let care = self.inner.world.care_for(&directory, beat)?;
        // What is the world's does not end with the group that was the first to need it.
        let channel = if self.inner.settles_the_world(self.request) {
            ChannelId::WORLD
        } else {
            self.inner.exchange.channel()
        };
        Ok(FilesPath::new(
            directory,
            policy,
            channel,
            self.root(),
            care,
        ))
    }

    /// One exchange of the set-up; a rank whose part fails makes it fail for all.
    fn agree(&self, part: impl FnOnce() -> Result<Bytes, Error>) -> Result<Vec<Bytes>, Error> {
        let exchange = &self.inner.exchange;
        let ticket = exchange.begin(Call {
            timeout: self.call.timeout,
            way: self.call.way.clone(),
            ..Call::new(Operation::SetUp, self.call.site.clone())
        })?;
        let body = part().map_err(|cause| exchange.fail(&ticket, Phase::Publishing, cause))?;
        exchange.contribute(&ticket, Round::VERDICT, Contribution::inline(body))?;
        let verdict = exchange.wait(&ticket, Round::VERDICT)?;
        Ok(verdict.table.map(|table| table.bodies).unwrap_or_default())
    }
}

/// Warns of something once in this process, also where ranks set up again and again, as groups of torch do.
pub(crate) fn warn_once(text: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = lock(&SAID);
    if !said.contains(&text) {
        fsgather_core::warn!("{text}");
        said.insert(text);
    }
}

impl Talk for SetUp<'_> {
    fn gather_all<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>, Error> {
        self.agree(|| encode(own))?
            .iter()
            .map(|finding| decode(Some(finding)).map_err(|error| self.fail(error)))
            .collect()
    }

    fn fail(&self, cause: Error) -> Error {
        match self.agree(|| Err(cause.clone())) {
            Err(failure) => failure,
            Ok(_) => cause,
        }
    }

    fn heed(&self) -> Result<(), Error> {
        self.inner.heed()
    }
}
