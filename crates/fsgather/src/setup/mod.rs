//! Agrees with the other ranks on the paths of payloads: [`payload_path_for`].
//!
//! Each group, and the world, sets up each [`PathRequest`] of its calls for itself, by ordinary exchanges, when a call
//! first needs it. So a set-up fails, times out and is agreed on like any call. It needs only the members of the group,
//! and no other rank waits for it. State that groups share, and the part of a path that others see, use the ranks'
//! numbers in the world. In the following the *root* is the first member: rank 0 of the world.
//!
//! 1. If the root already knows the path of the world, it proposes that path, and all members report if they know it.
//!    If some member does not know it yet, the group continues as if no member did.
//! 2. The root makes the gather directory, unless its settings require memory, and sends its plan to all members. If it
//!    cannot make the directory, no member can.
//! 3. Only if members may see different mounts: they prove that they share the directory ([`sharing::prove`]).
//! 4. All members report that they have everything to use it, and if it is on a file system of their host.
//!
//! On the way all members send which payloads they want to verify; the strictest setting counts ([`checksums`]).
//!
//! If the directory is not shared, the transport `auto` goes through memory with one warning, and `filesys` is an
//! error. The same applies to a directory that cannot be used, if no user named it, and to one without free space.
//! [`links`] describes how ranks then connect to each other. Ranks of one host also share memory: [`shared_memory`].

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

/// The message of the root to all members.
#[derive(Debug, Serialize, Deserialize)]
struct ToldPlan {
    plan: PathPlan,
    /// The transport in the settings of the root, which counts if the settings of ranks differ.
    transport: ToldTransport,
    /// The payloads that the root verifies, by its settings.
    verify: Verify,
    /// The secret that the ranks of the world need to connect to each other. Only its rank 0 sends it, as the root of
    /// the first set-up of all its ranks. Without such a set-up it is sent at the beginning.
    secret: Option<[u8; 32]>,
}

/// The plan of the root.
#[derive(Debug, Serialize, Deserialize)]
enum PathPlan {
    /// The path of the payloads of the world, if all members know it.
    AsTheWorld(PathId),
    /// Memory, by the settings of the root.
    Memory,
    /// Files in this rendezvous directory.
    Files {
        #[serde(with = "exact_path")]
        directory: PathBuf,
        facts: GatherFacts,
        /// True if members may see different mounts, so that they must prove that they share it.
        is_in_doubt: bool,
        /// True if a user named it, so that a member that cannot use it is not ignored.
        is_named: bool,
    },
    /// Memory, or nothing: members do not share the directory, or it cannot be used.
    WithoutFiles(#[serde(with = "error_form")] Error),
}

/// Reads any bytes as a message of the root, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) fn try_reading(body: &Bytes) {
    let _ = decode::<ToldPlan>(Some(body)).map(|told| format!("{told:?}"));
}

/// Returns the path of a request. The first time, all members find it together, at the place of `call` and with its
/// time-out.
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

/// Records the path of a request for later calls.
fn keep(inner: &GroupState, request: &PathRequest, payload_path: &PayloadPath) {
    inner
        .known_paths
        .keep(request.clone(), payload_path.clone());
    if inner.settles_the_world(request) {
        inner.world.settle(payload_path.clone());
    }
}

/// Finds the default path of the payloads of a world, which its groups take from there.
pub(crate) fn settle(inner: &GroupState, request: &PathRequest, call: &Call) -> Result<(), Error> {
    let (transport, payload_path) = run(inner, request, call)?;
    keep(inner, &agreed(inner, request, transport), &payload_path);
    Ok(())
}

/// Agrees on the default transport of calls; the calls find the path later.
///
/// All ranks have the secret for connections from now on. Otherwise a group without rank 0 would not get it, and
/// members of a group of which only some had it from another group would disagree on whether connections are possible.
pub(crate) fn agree_on_transport(
    inner: &GroupState,
    request: &PathRequest,
    call: Call,
) -> Result<(), Error> {
    let links = &inner.world.links;
    let secret = (inner.exchange.rank() == Rank::ZERO).then(|| links.draw_secret());
    let own = encode(&(ToldTransport::own(inner, request), secret))?;
    let table = inner.exchange(call, own)?;
    let told = table.and_then(|table| table.bodies.into_iter().next());
    let (transport, secret) = decode(told.as_ref())?;
    if let Some(secret) = secret {
        links.keep_secret(secret);
    }
    agreed(inner, request, transport);
    Ok(())
}

/// Returns the default request of calls, given the transport of the root.
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

/// Finds the path of a request, together with all other members. Also returns the transport that counts.
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
    /// The call that needs the set-up.
    call: &'a Call,
    /// The processes of the members, in the order of the group.
    processes: Vec<ProcessId>,
}

impl SetUp<'_> {
    /// Finds the path. `made` is the root's directory, as soon as it exists.
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

    /// Returns the path of the world's payloads, if this request is the world's and its path is known here by now.
    fn known_to_the_world(&self) -> Option<PayloadPath> {
        let is_the_worlds = self.request == self.inner.default_request();
        self.inner.world.settled().filter(|_| is_the_worlds)
    }

    /// Makes the root send its plan, and all other members send the path that they know already. The strictest setting
    /// of all members decides which payloads are verified.
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

    /// Carries out the plan of the root; `made` is its directory there.
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
                // If all members see the same mounts, all can open a directory that one can open.
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

    /// Returns the plan of the root.
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

    /// Returns true if payloads can take another path despite this problem of the directory. If messages go through files,
    /// the other path would be files again.
    fn can_do_without_files(&self, problem: &Error, transport: Transport, is_named: bool) -> bool {
        let is_networked = self.inner.world.context.links.is_some();
        transport == Transport::Auto && is_networked && is_dispensable(problem, is_named)
    }

    /// Returns true if a user named the directory.
    fn is_named(&self) -> bool {
        self.request.directory.is_some() || self.inner.world.context.named.is_some()
    }

    /// Returns true if these ranks have met without a directory, see different mounts, and have no directory for
    /// payloads: their working directories are not ours to write in.
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

    /// Returns the plan with files. Makes the gather directory at once, so that a lack of space or permission is known
    /// now rather than after hours of work.
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

    /// Returns an error if this rank does not allow payloads in files of this directory in plain text.
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

    /// Returns the opened directory, if this rank allows payloads in it.
    fn encrypted_enough(
        &self,
        rendezvous: &Path,
        opened: Result<GatherDir, Error>,
    ) -> Result<GatherDir, Error> {
        let opened = opened?;
        self.allows_files(rendezvous, &FileSystem::of(rendezvous)?)?;
        Ok(opened)
    }

    /// Returns the rendezvous directory in which the gather directory is made.
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

    /// Returns the reason why mount namespaces do not see the same directory, if they do not.
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

    /// Begins to use a directory if every member can. Returns the reason if a member cannot, and the directory is not
    /// needed. Such a rank must not leave the others waiting in their first call, nor without the reason.
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
        // The world's files must not end with the group that needed them first.
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

    /// Makes one exchange of the set-up; if the part of a rank fails, it fails on all ranks.
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

/// Warns of something once in this process, even if ranks set up again and again, as groups of torch do.
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
