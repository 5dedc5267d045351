//! Joins a world: [`join()`].

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use fsgather_config::{
    environment::{self, Variables},
    settings::{Origin, Settings},
};
use fsgather_control::{join, means_loopback_only};
use fsgather_core::{
    Error, Exchange, Interrupt, Look, ProcessId, Rank, Start, duration_text, ended_rank::EndedRank,
    plain_line,
};
use fsgather_store::liveness;
use uuid::Uuid;

use crate::join::{
    local_context::{LinkSettings, LocalContext},
    preparation::{Prepared, prepare},
    rendezvous::Rendezvous,
    start,
    this_process::network_namespace,
};

/// Time for which a rank that cannot use the directory tries to notify the others.
const TELL_PROBLEM: Duration = Duration::from_secs(5);

/// Time for which ranks wait for others that `fsgather run` has started and sees at work, if no user has set a
/// time-out. The others may have the longest part of the work before their first call.
const VOUCHED: Duration = Duration::from_secs(24 * 60 * 60);

/// The request of one rank to meet the others.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    /// The settings of the rank; more than one rank in its world.
    pub settings: Settings,
    /// The variables that they come from.
    pub variables: &'a Variables,
    /// The way to find rank 0, if the program sets it; else the setting counts.
    pub rendezvous: Option<Rendezvous>,
    /// The process of this rank.
    pub process: ProcessId,
    /// Ends the meeting from outside.
    pub interrupt: Interrupt,
}

/// A world that has formed, as one of its ranks sees it.
pub(crate) struct Joined {
    /// Connects the ranks.
    pub exchange: Box<dyn Exchange>,
    /// Names this world.
    pub communicator: Uuid,
    /// The processes of all ranks, by rank.
    pub processes: Vec<ProcessId>,
    /// The facts that this rank contributes.
    pub context: LocalContext,
}

/// Meets the other ranks of a world of several.
///
/// Returns when all ranks are connected. It has not been tested yet that they share a directory. If this rank knows a
/// reason against that, it is in [`LocalContext::problem`], and all ranks get it before any payload is handed over.
///
/// # Errors
///
/// [`Error::Rendezvous`], [`Error::Timeout`] and the other errors of [`join::join`]; [`Error::Config`] for settings
/// that do not go together.
pub(crate) fn join(request: Request<'_>) -> Result<Joined, Error> {
    let Request {
        mut settings,
        variables,
        rendezvous,
        process,
        interrupt,
    } = request;
    let named = || settings.rendezvous.value.as_ref().map(TryInto::try_into);
    let rendezvous = match rendezvous {
        None => named().transpose()?,
        own => own,
    };
    let uid = rustix::process::geteuid().as_raw();
    let is_introduced = matches!(rendezvous, Some(Rendezvous::Custom(_)));
    // A secret that several jobs share distinguishes them only if each has a port of its own.
    let has_own_port = matches!(rendezvous, Some(Rendezvous::Tcp(_)));
    let knows_its_own = is_introduced || has_own_port && settings.secret.value.is_some();
    let found = (!knows_its_own).then(|| start::find(&mut settings, variables, &process));
    let (start, rival) = found.unwrap_or_default();
    let key = settings.job_key(uid, next_number(is_introduced));
    let mut prepared = prepare(&settings, rendezvous.as_ref(), &key, &process, &interrupt)?;
    let is_rival = rival.is_some();
    prepared.context.problem = prepared.context.problem.or(rival);
    let introduction = prepared.introduction.clone();
    let mut config = config(&settings, process, start, interrupt, &mut prepared);
    if !is_introduced && let Some(file) = file_of_run(&settings, variables) {
        let host = config.process.host.clone();
        if settings.join_timeout.origin == Origin::Default
            && config.problem.is_none()
            && let Some(limit) = EndedRank::read_idle_limit(&file)
        {
            config.idle_watch = Some(watch_idle_ranks(file.clone(), host.clone(), limit));
            config.join_timeout = VOUCHED;
        }
        config.find_ended = find_ended(file, host);
    }
    let links = LinkSettings {
        ports: config.ports.clone(),
        interfaces: Arc::clone(&config.interfaces),
        timeout: config.timeout,
        network_namespace: config.network_namespace,
    };
    // The two processes of one rank may have failed and ended before the others look: they would be taken for one job.
    if let Some(problem) = config.problem.as_ref().filter(|_| is_rival) {
        join::refuse_latecomers(&config, problem);
    }
    let joined = join::join(&config).inspect_err(|failure| {
        if let Some(introduction) = &introduction {
            introduction.refuse(&config.process, config.world_size, failure);
        }
    });
    let joined = joined?;
    let mut context = prepared.context;
    if let Some(start) = start {
        let found = start::check(
            &settings,
            variables,
            start,
            &config.process,
            &joined.processes,
        );
        if let Err(rival) = found {
            join::refuse_latecomers(&config, &rival);
            context.problem.get_or_insert(rival);
        }
    }
    context.links = joined.is_networked.then_some(links);
    Ok(Joined {
        exchange: joined.exchange,
        communicator: joined.communicator,
        processes: joined.processes,
        context,
    })
}

/// Returns the file in which `fsgather run` reports about ranks, if the ranks of this world are those that it has started.
fn file_of_run(settings: &Settings, variables: &Variables) -> Option<PathBuf> {
    let detection = &settings.detection;
    let job = settings.job.value.as_deref();
    let is_said = |name, value: &str| variables.get(name).is_some_and(|said| said.trim() == value);
    let is_of_run = is_said(environment::RANK, &detection.rank.to_string())
        && is_said(environment::WORLD_SIZE, &detection.world_size.to_string())
        && job.is_some_and(|job| is_said(environment::JOB, job));
    let file = variables.get(environment::ERROR_FILE);
    file.filter(|_| is_of_run).map(PathBuf::from)
}

/// Finds ranks that `fsgather run` reports as idle, once the meeting has lasted for `limit`: reports from before may be old.
fn watch_idle_ranks(file: PathBuf, host: String, limit: Duration) -> join::IdleWatch {
    let began = Instant::now();
    let find = Arc::new(move || {
        if began.elapsed() < limit {
            return Vec::new();
        }
        let failure = |(rank, pid): (u32, u32)| {
            let failure = Error::rendezvous(format!(
                "rank {rank} on {host} (pid {pid}), which `fsgather run` has started, has not joined and shows no sign of work: \
                 it has used less than 1 % of a processor for {}; see what it does, or set FSGATHER_JOIN_TIMEOUT to wait longer",
                duration_text(limit)
            ));
            (Rank::new(rank), failure)
        };
        EndedRank::read_idle(&file)
            .into_iter()
            .map(failure)
            .collect()
    });
    join::IdleWatch { limit, find }
}

/// Finds ranks whose end `fsgather run` has reported.
fn find_ended(file: PathBuf, host: String) -> Arc<join::FindEnded> {
    Arc::new(move |is_wanted| {
        let ended = EndedRank::read(&file);
        let mut ranks = ended.iter().map(|ended| Rank::new(ended.rank));
        // Others may have ended because of the first one.
        let first = ended.first().filter(|_| ranks.any(is_wanted));
        first.map(|first| first.error(&host))
    })
}

/// Returns the configuration of the control plane.
fn config(
    settings: &Settings,
    process: ProcessId,
    start: Option<Start>,
    interrupt: Interrupt,
    prepared: &mut Prepared,
) -> join::Config {
    let interfaces = settings.interfaces.value.clone();
    let is_at_home = matches!(
        &prepared.meeting, join::Meeting::Address { host, .. } if means_loopback_only(host)
    );
    let own = process.clone();
    let job = settings.job.value.as_ref();
    let attempt = settings.detection.attempt.as_ref();
    join::Config {
        rank: settings.detection.rank,
        world_size: settings.detection.world_size,
        network_namespace: network_namespace(),
        job: job.map_or_else(
            || "an unnamed job".into(),
            |job| format!("job {}", plain_line(job)),
        ),
        timeout: settings.timeout.value,
        is_patient: settings.timeout.origin == Origin::Default,
        join_timeout: match (&prepared.context.problem, &prepared.introduction) {
            (None, None) => settings.join_timeout.value,
            (None, Some(introduction)) => introduction.left_of(settings.join_timeout.value),
            (Some(_), _) => settings.join_timeout.value.min(TELL_PROBLEM),
        },
        ports: settings.port.value.ports(),
        // Ranks that meet on the loopback interface of their host connect to each other there as well.
        interfaces: Arc::new(move |name: &str, address: IpAddr| {
            if is_at_home {
                address.is_loopback()
            } else {
                interfaces.matches(name, address)
            }
        }),
        meeting: prepared.meeting.clone(),
        job_credentials: prepared.job_credentials.clone(),
        encrypt: settings.encrypt.value,
        control: settings.control.value,
        mailboxes: prepared.mailboxes.take(),
        interrupt,
        is_running: Arc::new(move |process: &ProcessId| !liveness(process, &own).has_ended()),
        process,
        start,
        is_named: settings.is_named(),
        attempt: attempt.and_then(|count| count.trim().parse().ok()),
        problem: prepared.context.problem.clone(),
        find_ended: Arc::new(|_| None),
        idle_watch: None,
        look: settings
            .stacks
            .value
            .then(|| Arc::new(fsgather_core::stacks::look) as Arc<Look>),
    }
}

/// Returns the number of the next communicator of this process, in the order in which they are made.
///
/// Communicators whose ranks are introduced to each other have separate numbers: not all ranks of a job make them, and
/// the numbers by which ranks look for each other in a directory must be the same on all.
fn next_number(is_introduced: bool) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static NEXT_INTRODUCED: AtomicU32 = AtomicU32::new(1 << 31);
    let next = if is_introduced {
        &NEXT_INTRODUCED
    } else {
        &NEXT
    };
    next.fetch_add(1, Ordering::Relaxed)
}
