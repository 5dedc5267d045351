//! Gathers the facts that ranks find out together once they have met: [`run`].
//!
//! 1. Rank 0 makes a gather directory as for payloads, publishes a payload in it, opens a door like its own
//!    beside the world's, and tells everybody.
//! 2. Where ranks may see different mounts it is proved that they share the directory, as at the start
//!    of every job. Once more, now that every client has something to remember, new files are timed.
//! 3. One rank of each network tries all of rank 0's addresses.
//! 4. Clocks are compared: in a barrier there is a moment at which all ranks are.
//! 5. Rank 0 gathers what all have found, and removes the directory.
//!
//! What goes wrong with files and addresses on one rank is a fact that it tells. Errors are only those of
//! the calls by which ranks tell each other.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use fsgather_config::settings::{Control, Settings};
use fsgather_control::reach::{ReachServer, dial};
use fsgather_core::{Error, Rank};
use fsgather_rendezvous::{
    exact_path,
    sharing::{self, visibility_for},
    this_process::network_namespace,
};
use fsgather_store::{
    FileSystem, GatherDir, GatherFacts, Locator, ProbeNonce, cannot_be_shared, check_writing,
    make_rendezvous, probers,
};
use serde::{Deserialize, Serialize};

use crate::{
    directory::{self, Depth, TrialDirectory, difference, epoch_seconds},
    examine::whereabouts,
    facts::{PayloadFacts, RankFacts, ReachFact, TrialFacts, WorldFacts},
    met::Met,
};

/// What rank 0 tells everybody before anything is tried.
#[derive(Debug, Default, Serialize, Deserialize)]
struct TrialPlan {
    /// What to try in the directory, if there is one and rank 0 can use it.
    files: Option<FilePlan>,
    /// What it takes to try rank 0's addresses, if that is to be done.
    invitation: Option<Vec<u8>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FilePlan {
    #[serde(with = "exact_path")]
    directory: PathBuf,
    #[serde(with = "exact_path")]
    rendezvous: PathBuf,
    facts: GatherFacts,
    locator: Locator,
}

/// Reads any bytes as a plan, for fuzzers.
#[cfg(any(test, fuzzing))]
pub(super) fn try_reading(body: &bytes::Bytes) {
    let _ = fsgather_core::read_message::<TrialPlan>(body).map(|plan| format!("{plan:?}"));
}

/// What rank 0 holds while the others try it.
#[derive(Default)]
struct Held {
    directory: Option<TrialDirectory>,
    payload: Option<PayloadFacts>,
    server: Option<ReachServer>,
}

/// Tries everything together; on rank 0, what all ranks and the world have found.
pub(super) fn run(
    met: &Met,
    settings: &Settings,
    mut facts: RankFacts,
    took: Duration,
) -> Result<Option<(Vec<RankFacts>, WorldFacts)>, Error> {
    let me = met.communicator.rank();
    let is_root = me == Rank::ZERO;
    let processes = &met.processes;
    let all_probers = probers(processes);
    let mut world = WorldFacts {
        met_seconds: took.as_secs_f64(),
        carrier: match met.context.links {
            Some(_) => "tcp".into(),
            None => "markers".into(),
        },
        sees_same_mounts: all_probers.len() == 1,
        ..WorldFacts::default()
    };
    let mut held = Held::default();
    let mut plan = TrialPlan::default();
    if is_root {
        (plan, held) = prepare(met, settings, &facts, &mut world);
    }
    let plan: TrialPlan = met.communicator.broadcast(&plan, 0)?;

    let mut trial = TrialFacts {
        is_prober: all_probers.contains(&me.index()),
        ..TrialFacts::default()
    };
    // By rank, on rank 0.
    let mut seen = Vec::new();
    if let Some(files) = &plan.files {
        seen = try_files(met, files, &held, &mut facts, &mut trial, &mut world)?;
    }
    trial.reach = reach(met, plan.invitation.as_deref())?;
    let interval = rendezvous_in_time(met)?;
    let intervals: Vec<[f64; 2]> = met.communicator.all_gather(&interval)?;
    if !is_root {
        trial.clock = intervals.first().map(|root| difference(interval, *root));
    }
    if let (Some(payload), Some(directory)) = (held.payload.take(), &mut facts.directory) {
        let read = trial.read;
        directory.payload = Some(PayloadFacts { read, ..payload });
    }
    facts.trial = Some(trial);
    let Some(parts) = met.communicator.gather(&facts, 0)? else {
        return Ok(None);
    };
    let ranks = parts.map(|part| Ok(part?.1));
    let mut ranks = ranks.collect::<Result<Vec<RankFacts>, Error>>()?;
    // Everybody has done with both.
    drop((held.directory, held.server));
    for (rank, facts) in ranks.iter_mut().enumerate() {
        if let Some(trial) = &mut facts.trial {
            trial.seen_by_rank_0_seconds = seen.get(rank).copied().flatten();
        }
    }
    Ok(Some((ranks, world)))
}

/// Rank 0's part before anything is tried.
fn prepare(
    met: &Met,
    settings: &Settings,
    facts: &RankFacts,
    world: &mut WorldFacts,
) -> (TrialPlan, Held) {
    let mut plan = TrialPlan::default();
    let mut held = Held::default();
    if facts.directory.is_some() {
        match prepare_files(met, world) {
            Ok(None) => {}
            Ok(Some((files, directory, payload))) => {
                plan.files = Some(files);
                held.directory = Some(directory);
                held.payload = Some(payload);
            }
            Err(problem) => world.problem = Some(problem.to_string()),
        }
    }
    // Where files carry messages by request, processes may not be allowed to listen.
    if settings.control.value != Control::Markers {
        let interfaces = settings.interfaces.value.clone();
        let matches = move |name: &str, address: IpAddr| interfaces.matches(name, address);
        let processes = &met.processes;
        let place = processes.first().map(whereabouts);
        let ports = settings.port.value.ports();
        if let Some(Ok(server)) = place.map(|place| ReachServer::open(&place, &ports, &matches)) {
            world.tried_other_port = server.taken().is_some();
            plan.invitation = Some(server.invitation());
            held.server = Some(server);
        }
    }
    (plan, held)
}

/// Rank 0's part with files; none where it is plain that they cannot be shared.
fn prepare_files(
    met: &Met,
    world: &mut WorldFacts,
) -> Result<Option<(FilePlan, TrialDirectory, PayloadFacts)>, Error> {
    let processes = &met.processes;
    let chosen = met.context.choose(world.sees_same_mounts)?;
    world.directory = Some(chosen.display().to_string());
    let file_system = FileSystem::of(&chosen)?;
    if cannot_be_shared(&file_system, processes).is_some() {
        let name = file_system.name();
        world.blind_reason = Some(format!("{name} is a file system of one host"));
        world.blind = numbers(&probers(processes));
        return Ok(None);
    }
    let (rendezvous, own) = met.context.enter(&chosen)?;
    let (directory, payload, locator) = directory::publish(
        &met.context,
        &rendezvous,
        own,
        processes,
        met.communicator.world_size(),
        met.id,
    )?;
    let files = FilePlan {
        directory: chosen,
        rendezvous,
        facts: directory.facts().clone(),
        locator,
    };
    Ok(Some((files, directory, payload)))
}

/// Tries what rank 0 has made in the directory; on rank 0, how soon it has seen a file of each rank.
fn try_files(
    met: &Met,
    files: &FilePlan,
    held: &Held,
    facts: &mut RankFacts,
    trial: &mut TrialFacts,
    world: &mut WorldFacts,
) -> Result<Vec<Option<f64>>, Error> {
    let processes = &met.processes;
    let directory = files.directory.as_path();
    let rendezvous = files.rendezvous.as_path();
    let is_known = facts
        .directory
        .as_ref()
        .is_some_and(|known| known.path == files.directory.to_string_lossy());
    if !is_known {
        let depth = Depth::Brief;
        let origin = "rank 0".to_owned();
        facts.directory = Some(directory::examine(directory, origin, &met.context, depth));
    }
    let opened = match &held.directory {
        Some(directory) => Ok(directory.0.clone()),
        None => open(met, rendezvous, files.facts.clone()),
    };
    trial.problem = opened.as_ref().err().map(ToString::to_string);
    let mut seen = Vec::new();
    if !world.sees_same_mounts {
        let me = met.communicator.rank();
        let proved = sharing::prove(met, me, processes, rendezvous, opened.as_ref())?;
        match proved {
            None => seen = time_files(met, rendezvous, &opened, trial)?,
            Some(blindness) => {
                world.blind = numbers(&blindness.ranks);
                world.blind_reason = Some(blindness.reason);
            }
        }
    }
    if let (Ok(opened), true, true) = (&opened, trial.is_prober, world.blind.is_empty()) {
        let boot = |rank: usize| processes.get(rank).map(|process| &process.boot_id);
        let single_host = (1..processes.len()).all(|rank| boot(rank) == boot(0));
        match directory::read(opened, &files.locator, single_host) {
            Ok(read) => trial.read = Some(read),
            Err(problem) => trial.read_problem = Some(problem.to_string()),
        }
    }
    Ok(seen)
}

fn numbers(ranks: &[usize]) -> Vec<u32> {
    let ranks = ranks.iter();
    ranks.filter_map(|rank| u32::try_from(*rank).ok()).collect()
}

fn open(met: &Met, rendezvous: &Path, facts: GatherFacts) -> Result<GatherDir, Error> {
    if let Some(directory) = rendezvous.parent() {
        make_rendezvous(directory)?;
    }
    let own = check_writing(rendezvous, facts.mode)?.0;
    sharing::open(met, rendezvous, facts, Rank::ZERO, own)
}

/// Times new files, now that every client has listed the directory they come into: rank 0 looks for those
/// of all probers, they look for its.
fn time_files(
    met: &Met,
    rendezvous: &Path,
    opened: &Result<GatherDir, Error>,
    trial: &mut TrialFacts,
) -> Result<Vec<Option<f64>>, Error> {
    let prober = opened.as_ref().ok().filter(|_| trial.is_prober);
    if let Some(directory) = prober {
        directory.visible_nonces(&[], Duration::ZERO, &mut |_| Ok(()))?;
    }
    met.communicator.barrier()?;
    let mut planted = None;
    let mut own = None;
    let me = met.own_process();
    if let (Some(directory), Some(me)) = (prober, me) {
        let nonce = ProbeNonce::random();
        match directory.plant(nonce, me) {
            Ok(made) => (planted, own) = (Some(made), Some(nonce)),
            Err(problem) => trial.problem = Some(problem.to_string()),
        }
    }
    let nonces: Vec<Option<ProbeNonce>> = met.communicator.all_gather(&own)?;
    let is_root = met.communicator.rank() == Rank::ZERO;
    let (first, others) = nonces.split_first().unwrap_or((&None, &[]));
    let wanted: Vec<ProbeNonce> = if is_root {
        others.iter().filter_map(|nonce| *nonce).collect()
    } else {
        first.iter().copied().collect()
    };
    let Some(directory) = prober else {
        met.communicator.barrier()?;
        return Ok(Vec::new());
    };
    let since = Instant::now();
    let mut tend = |_| {
        if let Some(planted) = &mut planted {
            planted.tend(since.elapsed());
        }
        Ok(())
    };
    let times = directory.time_nonces(&wanted, visibility_for(rendezvous), &mut tend)?;
    let seconds = |nonce: Option<ProbeNonce>| {
        let time = nonce.and_then(|nonce| times.get(&nonce));
        time.map(Duration::as_secs_f64)
    };
    // Nobody goes on to something else while others still look.
    met.communicator.barrier()?;
    if is_root {
        Ok(nonces.into_iter().map(seconds).collect())
    } else {
        trial.saw_rank_0_seconds = seconds(*first);
        Ok(Vec::new())
    }
}

/// Tries rank 0's addresses, from one rank of each network but rank 0.
fn reach(met: &Met, invitation: Option<&[u8]>) -> Result<Option<Vec<ReachFact>>, Error> {
    let processes = &met.processes;
    let namespaces: Vec<u64> = met.communicator.all_gather(&network_namespace())?;
    let networks: Vec<(&str, u64)> = processes
        .iter()
        .map(|process| process.boot_id.as_str())
        .zip(namespaces)
        .collect();
    let me = met.communicator.rank().index();
    let mut before = networks.iter().take(me).skip(1);
    let is_dialer = me > 0 && before.all(|other| Some(other) != networks.get(me));
    let (Some(invitation), Some(process), true) = (invitation, processes.get(me), is_dialer) else {
        return Ok(None);
    };
    let dialed = dial(invitation, &whereabouts(process));
    Ok(dialed.ok().map(|dialed| {
        dialed
            .into_iter()
            .map(|dialed| ReachFact {
                address: dialed.address.ip().to_string(),
                seconds: dialed.outcome.as_ref().ok().map(Duration::as_secs_f64),
                problem: dialed.outcome.err(),
            })
            .collect()
    }))
}

/// An interval of this host's clock that holds a moment which lies in the intervals of all ranks.
fn rendezvous_in_time(met: &Met) -> Result<[f64; 2], Error> {
    // So that all come to the second one at about the same time.
    met.communicator.barrier()?;
    let before = epoch_seconds(SystemTime::now());
    met.communicator.barrier()?;
    Ok([before, epoch_seconds(SystemTime::now())])
}
