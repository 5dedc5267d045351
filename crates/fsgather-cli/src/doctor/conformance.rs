//! Calls through the directory, with every byte compared: [`try_directory`] and [`run`].
//!
//! One gather shows whether all ranks can use the directory. Many calls, over each carrier of messages, show whether an untested file
//! system keeps the guarantees that jobs rely on, and how fast it is. For each carrier, a world of its own meets in the directory. Results
//! go to rank 0 through the world that has met for the diagnosis, which uses no file. It stays connected meanwhile, so the other worlds use
//! neither its address nor its only port.
//!
//! No two payloads are equal, so that old data is never taken for new.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use fsgather::{Communicator, Options, Payload, Pieces, Rendezvous, Transport};
use fsgather_config::{
    settings::{Control, RendezvousSetting, Settings},
    words::Word,
};
use fsgather_core::{Backoff, Deadline, Error, Interrupt, StorageCause};
use fsgather_store::{Rules, Surveyor};
use rand::{
    Rng, RngExt, SeedableRng,
    rand_core::UnwrapErr,
    rngs::{StdRng, SysRng},
};
use serde::{Deserialize, Serialize};

use super::facts::{ConformanceFacts, RankFacts, WayFacts, is_on_one_host_only};

/// The payload sizes, which alternate: the first travel inside messages, the second in files.
const LENGTHS: [u32; 2] = [1000, 1_500_000];

/// The largest payload that travels inside messages, whichever settings a job has.
const INLINE_LIMIT: u64 = 64 << 10;

/// Time for which ranks wait for each other to meet: longer than any known file system shows stale listings.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which a call may wait without progress.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum time that files of the calls may take to disappear: clients of some file systems hold on to removed files.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The tests that rank 0 asks all ranks to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    #[serde(with = "fsgather::bindings::exact_path")]
    pub(super) directory: PathBuf,
    /// Number of calls over each carrier; 0 without `--conformance`.
    pub(super) calls: u32,
    /// The beginning of the job names of the worlds that meet in the directory.
    job: String,
    /// The port of rank 0, if that is the only one allowed and rank 0 listens on it already.
    taken_port: Option<u16>,
}

impl Plan {
    /// Plans on rank 0; none if the directory is known to be unusable, or no directory is used.
    pub(super) fn of(ranks: &[RankFacts], settings: &Settings, calls: Option<u32>) -> Option<Self> {
        let path = |facts: &RankFacts| Some(facts.directory.as_ref()?.path.clone());
        let is_usable = |facts: &RankFacts| {
            let directory = facts.directory.as_ref();
            directory.is_none_or(|directory| directory.problem.is_none())
        };
        if !ranks.iter().all(is_usable) || is_on_one_host_only(ranks) {
            return None;
        }
        Some(Self {
            directory: path(ranks.first()?)?.into(),
            calls: calls.unwrap_or(0),
            job: format!("doctor-{:016x}", UnwrapErr(SysRng).random::<u64>()),
            taken_port: taken_port(settings),
        })
    }
}

/// The results of one rank over one carrier.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    meeting_seconds: Option<f64>,
    /// The duration of each call that has ended.
    call_seconds: Vec<f64>,
    /// Calls whose result differs from the data that the ranks sent.
    wrong: Vec<u32>,
    problem: Option<String>,
    /// True if the settings exclude this carrier.
    is_refused: bool,
}

/// Gathers once through files in the directory. All ranks call this, and get the same error.
pub(super) fn try_directory(world: &Communicator, plan: &Plan) -> Result<(), Error> {
    let files = Options::new().transport(Transport::Filesys);
    let files = world.with(files.directory(&plan.directory));
    let length = LENGTHS[1];
    let Some(parts) = files.gather(Pieces::from(payload(0, world.rank().get(), length)), 0)? else {
        return Ok(());
    };
    for part in parts {
        let (rank, part) = part?;
        if part[..] != payload(0, rank.get(), length)[..] {
            let cause = StorageCause::described("it returned other data than was written");
            return Err(Error::storage("gather through", &plan.directory, cause));
        }
    }
    Ok(())
}

/// Makes the calls of a plan over each carrier; returns their results on rank 0. All ranks call this.
pub(super) fn run(
    world: &Communicator,
    plan: &Plan,
    interrupt: &Interrupt,
) -> Result<Option<ConformanceFacts>, Error> {
    let mut ways = Vec::new();
    for (control, carrier) in [(Control::Tcp, "tcp"), (Control::Markers, "markers")] {
        let found = one_way(plan, interrupt, control, carrier);
        if let Some(parts) = world.gather(&found, 0)? {
            let all = parts.map(|part| Ok(part?.1));
            let all = all.collect::<Result<Vec<Found>, Error>>()?;
            ways.push(together(carrier, plan.calls, &all));
        }
    }
    if ways.is_empty() {
        return Ok(None);
    }
    let (left, left_problem) = left(plan);
    Ok(Some(ConformanceFacts {
        payload_bytes: LENGTHS,
        ways,
        left,
        left_problem,
    }))
}

/// The only port that rank 0 may listen on, if it does.
fn taken_port(settings: &Settings) -> Option<u16> {
    let is_elsewhere = matches!(
        settings.rendezvous.value,
        Some(RendezvousSetting::Tcp { .. })
    );
    let ports = settings.port.value.ports();
    let is_only = ports.start() == ports.end() && *ports.start() != 0;
    let is_over_tcp = settings.control.value != Control::Markers;
    (is_over_tcp && is_only && !is_elsewhere).then_some(*ports.start())
}

fn one_way(plan: &Plan, interrupt: &Interrupt, control: Control, carrier: &str) -> Found {
    let mut found = Found::default();
    if let (Control::Tcp, Some(port)) = (control, plan.taken_port) {
        let next = port.checked_add(1).unwrap_or(port - 1);
        let (first, last) = (port.min(next), port.max(next));
        found.is_refused = true;
        found.problem = Some(format!(
            "rank 0 listens on {port}, the only port of FSGATHER_PORT, for this diagnosis; let it have another one: \
             FSGATHER_PORT={first}-{last}"
        ));
    } else if let Err(error) = make_calls(plan, interrupt, control, carrier, &mut found) {
        let has_met = found.meeting_seconds.is_some();
        found.is_refused = !has_met && matches!(error.root_cause(), Error::Config { .. });
        found.problem = Some(error.to_string());
    }
    found
}

fn make_calls(
    plan: &Plan,
    interrupt: &Interrupt,
    control: Control,
    carrier: &str,
    found: &mut Found,
) -> Result<(), Error> {
    let since = Instant::now();
    let world = Communicator::builder()
        .directory(&plan.directory)
        .rendezvous(Rendezvous::File(plan.directory.clone()))
        .job(format!("{}-{carrier}", plan.job))
        .control(control)
        .transport(Transport::Filesys)
        .inline_limit(INLINE_LIMIT)
        .join_timeout(JOIN_TIMEOUT)
        .timeout(CALL_TIMEOUT)
        .interrupt(interrupt)
        .argument("trace", Word::Text("off".into()))?
        .build()?;
    found.meeting_seconds = Some(since.elapsed().as_secs_f64());
    let ranks = world.world_size().get();
    for (call, length) in (0..plan.calls).zip(LENGTHS.into_iter().cycle()) {
        let own = payload(call, world.rank().get(), length);
        let since = Instant::now();
        // Each fifth call is an all-gather; the root of the other calls changes every five calls.
        let parts = if call % 5 == 4 {
            Some(world.all_gather(Pieces::from(&own))?)
        } else {
            let gathered = world.gather(Pieces::from(&own), call / 5 % ranks)?;
            let parts = gathered.map(|parts| parts.map(|part| Ok(part?.1)).collect());
            let parts: Option<Result<Vec<Payload>, Error>> = parts;
            parts.transpose()?
        };
        found.call_seconds.push(since.elapsed().as_secs_f64());
        if let Some(parts) = parts {
            let is_right = parts.len() == world.world_size().count()
                && (0..ranks)
                    .zip(&parts)
                    .all(|(rank, part)| part[..] == payload(call, rank, length)[..]);
            if !is_right {
                found.wrong.push(call);
            }
        }
    }
    world.close()
}

/// The payload of a rank in a call; those of two ranks or two calls always differ, and those of two ranks in length too.
fn payload(call: u32, rank: u32, length: u32) -> Vec<u8> {
    let length = length.saturating_add(7 * (rank % 1000));
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    let seed = (u64::from(call) << 32) | u64::from(rank);
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// The results of all ranks over one carrier. Pure.
fn together(carrier: &str, calls: u32, all: &[Found]) -> WayFacts {
    // A call takes as long as its slowest rank.
    let ended = all.iter().map(|found| found.call_seconds.len()).min();
    let mut times: Vec<f64> = (0..ended.unwrap_or(0))
        .map(|call| {
            let times = all
                .iter()
                .filter_map(|found| found.call_seconds.get(call).copied());
            times.fold(0.0, f64::max)
        })
        .collect();
    let is_wrong = |call: &usize| {
        all.iter()
            .any(|found| found.wrong.iter().any(|wrong| *wrong as usize == *call))
    };
    let right = (0..times.len()).filter(|call| !is_wrong(call)).count();
    times.sort_by(f64::total_cmp);
    let problem = |is_wanted: fn(&Found) -> bool| {
        let mut ranks = all.iter().enumerate();
        ranks.find_map(|(rank, found)| {
            let problem = found.problem.clone().filter(|_| is_wanted(found))?;
            Some((rank, problem))
        })
    };
    // The other ranks have waited for the rank whose settings exclude the carrier.
    let problem = problem(|found| found.is_refused).or_else(|| problem(|_| true));
    let meetings = all
        .iter()
        .map(|found| found.meeting_seconds)
        .collect::<Option<Vec<f64>>>();
    WayFacts {
        carrier: carrier.into(),
        meeting_seconds: meetings.map(|times| times.into_iter().fold(0.0, f64::max)),
        calls,
        right: u32::try_from(right).unwrap_or(u32::MAX),
        median_seconds: times.get(times.len().saturating_sub(1) / 2).copied(),
        slowest_seconds: times.last().copied(),
        problem: problem.as_ref().map(|(_, problem)| problem.clone()),
        problem_rank: problem.and_then(|(rank, _)| u32::try_from(rank).ok()),
        is_refused: all.iter().any(|found| found.is_refused),
    }
}

/// The files that these calls have left in the directory, after a limited time; or the reason why they are unknown.
#[expect(
    clippy::disallowed_methods,
    reason = "no file system tells when another host's change arrives"
)]
fn left(plan: &Plan) -> (Vec<String>, Option<String>) {
    let deadline = Deadline::after(Instant::now(), REMOVAL_TIMEOUT);
    let mut pauses = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    loop {
        let found = match look(&plan.directory, &plan.job) {
            Ok(left) => (left, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let is_clean = found.0.is_empty() && found.1.is_none();
        if is_clean || deadline.has_passed(Instant::now()) {
            return found;
        }
        std::thread::sleep(pauses.next_pause());
    }
}

/// Gather directories of jobs whose names begin with `job`.
fn look(directory: &Path, job: &str) -> Result<Vec<String>, Error> {
    let survey = Surveyor::new(Rules::default())?.survey(directory)?;
    let ours = survey.gathers.iter().filter(|gather| {
        let owner = gather.owner.as_ref().and_then(|owner| owner.job.as_ref());
        owner.is_some_and(|known| known.starts_with(job))
    });
    Ok(ours
        .map(|gather| gather.path.display().to_string())
        .collect())
}

#[cfg(test)]
mod tests {
    use fsgather_config::environment::Variables;

    use super::*;

    fn found(seconds: &[f64], wrong: &[u32]) -> Found {
        Found {
            meeting_seconds: Some(seconds[0]),
            call_seconds: seconds.to_vec(),
            wrong: wrong.to_vec(),
            problem: None,
            is_refused: false,
        }
    }

    #[test]
    fn a_call_is_timed_by_its_slowest_rank_and_judged_by_all() {
        let ways = together(
            "tcp",
            3,
            &[found(&[1.0, 5.0, 2.0], &[]), found(&[3.0, 1.0, 1.0], &[1])],
        );
        assert_eq!((ways.calls, ways.right), (3, 2));
        assert_eq!(ways.meeting_seconds, Some(3.0));
        assert_eq!(
            (ways.median_seconds, ways.slowest_seconds),
            (Some(3.0), Some(5.0))
        );
        assert_eq!(ways.problem, None);
    }

    #[test]
    fn calls_that_some_rank_has_not_ended_are_not_right() {
        let failed = Found {
            problem: Some("no room".into()),
            ..found(&[1.0], &[])
        };
        let ways = together("markers", 3, &[found(&[1.0, 2.0], &[]), failed]);
        assert_eq!((ways.calls, ways.right), (3, 1));
        assert_eq!(
            (ways.problem.as_deref(), ways.problem_rank),
            (Some("no room"), Some(1))
        );
        let none = together("markers", 3, &[Found::default()]);
        assert_eq!(
            (none.right, none.median_seconds, none.meeting_seconds),
            (0, None, None)
        );
    }

    #[test]
    fn a_refused_rank_is_the_cause_not_those_waiting_for_it() {
        let failed = |problem: &str, is_refused| Found {
            problem: Some(problem.into()),
            is_refused,
            ..Found::default()
        };
        let ways = together("tcp", 3, &[failed("late", false), failed("must not", true)]);
        assert!(ways.is_refused);
        assert_eq!(
            (ways.problem.as_deref(), ways.problem_rank),
            (Some("must not"), Some(1))
        );
        assert!(!together("tcp", 3, &[failed("late", false)]).is_refused);
    }

    #[test]
    fn the_only_port_is_taken_where_rank_0_listens_on_it() {
        let taken = |variables: &[(&str, &str)]| {
            let variables: Variables = variables.iter().copied().collect();
            taken_port(&Settings::resolve(&variables).expect("settings"))
        };
        let one = ("FSGATHER_PORT", "60001");
        assert_eq!(taken(&[one]), Some(60001));
        assert_eq!(taken(&[one, ("FSGATHER_CONTROL", "markers")]), None);
        assert_eq!(taken(&[]), None);
        assert_eq!(taken(&[("FSGATHER_PORT", "60001-60002")]), None);
        let elsewhere = ("FSGATHER_RENDEZVOUS", "tcp://127.0.0.1:60002");
        assert_eq!(taken(&[one, elsewhere]), None);
    }

    #[test]
    fn no_two_payloads_are_alike() {
        let some = [
            payload(0, 0, 1000),
            payload(0, 1, 1000),
            payload(1, 0, 1000),
        ];
        assert_eq!(some.each_ref().map(Vec::len), [1000, 1007, 1000]);
        assert_ne!(some[0], some[2]);
        assert_ne!(some[0], some[1][..1000]);
    }
}
