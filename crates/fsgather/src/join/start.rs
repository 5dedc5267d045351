//! The process that started this rank, if its launcher has no id for the job, [`find`]; and the search for another job
//! that was started alike, [`check`].
//!
//! Then ranks of one job look like ranks of another, even if both jobs have names, which may be equal. The only
//! difference is their origin: one launcher, script or shell has started all ranks of one job. `ancestry` finds it in
//! the processes that `processes` lists; docs/adr/0019-jobs-without-an-id.md has the argument.

mod ancestry;
mod processes;

use std::{
    thread,
    time::{Duration, Instant},
};

use fsgather_core::{Backoff, Error, ProcessId, Start};

use self::{
    ancestry::{Claim, Double, FoundStart},
    processes::Processes,
};
use fsgather_config::{environment::Variables, settings::Settings};

/// Maximum time between the starts of two ranks of a job that count as started together.
const MAX_START_GAP: Duration = Duration::from_millis(500);

/// Finds the process that started this rank; waits for other ranks that are just being started.
///
/// A job id that the launcher's own process shows becomes the job's. If some rank already has a second process, the
/// error is for the other ranks: that process may be gone by the time they look.
pub(crate) fn find(
    settings: &mut Settings,
    variables: &Variables,
    me: &ProcessId,
) -> (Option<Start>, Option<Error>) {
    if settings.detection.has_own_id {
        return (None, None);
    }
    let claim = Claim::of(settings, variables);
    let mut pauses = Backoff::new(Duration::from_millis(5), Duration::from_millis(50));
    let began = Instant::now();
    let young_for = MAX_START_GAP.saturating_sub(processes::age_of_this_process());
    loop {
        let processes = Processes::see();
        let is_last = began.elapsed() >= young_for;
        let (starter, is_whole) =
            match ancestry::starter(&claim, std::process::id(), is_last, &processes) {
                FoundStart::Job(job) => {
                    settings.take_launched_job(job);
                    return (None, None);
                }
                FoundStart::Starter { starter, is_whole } => (Some(starter), is_whole),
                FoundStart::Nobody if is_last => (None, false),
                FoundStart::Nobody => {
                    sleep(pauses.next_pause());
                    continue;
                }
            };
        let start = Start {
            starter,
            session: processes.session_of(std::process::id()),
            is_whole,
        };
        let double = twins(settings, &claim, start, &processes);
        return (Some(start), double.map(|double| rival(double, me)));
    }
}

/// Returns two processes of one rank, among those that come from one start.
fn twins(
    settings: &Settings,
    claim: &Claim,
    start: Start,
    processes: &Processes,
) -> Option<Double> {
    let can_see = can_see_twins(settings, start);
    can_see.then(|| ancestry::twins(claim, start, processes))?
}

/// Returns false if other processes cannot be distinguished from ranks of another job. A program may set the place
/// where its ranks meet, which cannot be seen from here; and a process beside a rank in a terminal may have its
/// variables without being a rank.
fn can_see_twins(settings: &Settings, start: Start) -> bool {
    !settings.has_said_where() && (start.is_whole || !settings.is_named())
}

/// Returns the error of a rank whose start has two processes of one rank.
fn rival((rank, one, other): Double, me: &ProcessId) -> Error {
    let host = &me.host;
    Error::rendezvous(format!(
        "two processes say that they are rank {rank}: {host}, pid {one} and {host}, pid {other}. Either two jobs \
         meet in one place (set FSGATHER_JOB to a different name for each), or the launcher's ranks were not \
         recognised (set FSGATHER_RANK and FSGATHER_WORLD_SIZE)"
    ))
}

/// Looks, in a world that has formed, for another job that was started at the same time in the same way.
///
/// It waits until the processes of that job would exist. On each host one rank does all this.
///
/// # Errors
///
/// [`Error::Rendezvous`] that names two processes of one rank.
pub(crate) fn check(
    settings: &Settings,
    variables: &Variables,
    start: Start,
    me: &ProcessId,
    world: &[ProcessId],
) -> Result<(), Error> {
    let is_first_here = world.iter().find(|process| process.sees_pids_of(me)) == Some(me);
    if !is_first_here || !can_see_twins(settings, start) {
        return Ok(());
    }
    let claim = Claim::of(settings, variables);
    let here = world.iter().filter(|process| process.sees_pids_of(me));
    let youngest = here.map(|process| process.start_time).max().unwrap_or(0);
    sleep(MAX_START_GAP.saturating_sub(processes::age(youngest)));
    let double = twins(settings, &claim, start, &Processes::see());
    double.map_or(Ok(()), |double| Err(rival(double, me)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when somebody else starts a process"
)]
fn sleep(duration: Duration) {
    thread::sleep(duration);
}
