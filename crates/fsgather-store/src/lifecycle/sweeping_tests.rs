use crate::{
    directory::owner::job_tag,
    lifecycle::place_for_tests::{EAGER, age, elsewhere, ended, place, publish_empty},
    os::{listing::tests::entries_read, process::this_process},
};

use super::*;

/// Sweeps to the end. Returns true if some directories must be left for now.
pub(crate) fn sweep(rendezvous: &Path, job: Option<&str>, rules: Rules) -> bool {
    let Some(mut sweep) = Sweep::begin(rendezvous, None, job, rules).unwrap() else {
        return false;
    };
    while sweep.go_on(&|| false) {}
    sweep.is_unfinished()
}

#[test]
fn a_sweep_takes_the_proved_dead_of_its_own_job_only() {
    let place = place();
    let gone = place.gather(1, ended(), Some("4711"));
    let kept = [
        place.gather(2, ended(), Some("4712")),
        place.gather(3, ended(), None),
        place.gather(4, this_process().unwrap(), Some("4711")),
        place.gather(5, elsewhere(), Some("4711")),
    ];
    for directory in &kept {
        age(directory.path());
    }
    sweep(&place.rendezvous, Some("4711"), EAGER);
    assert!(!gone.path().exists());
    assert!(kept.iter().all(|directory| directory.owner().is_ok()));
    // Without a job id, only a process that is seen to be gone is a proof.
    let believed = place.gather(6, elsewhere(), None);
    believed.mark_aborted("rank 0 was lost").unwrap();
    sweep(&place.rendezvous, None, EAGER);
    assert!(!kept[1].path().exists());
    assert!(believed.owner().is_ok());
    assert!(place.left().iter().all(|name| name.starts_with("gather-")));
}

#[test]
fn a_sweep_leaves_what_a_rank_may_still_read_for_later() {
    let place = place();
    let made = place.gather(1, elsewhere(), Some("4711"));
    made.mark_aborted("rank 0 was lost").unwrap();
    publish_empty(&made);
    let sweep = |rules| sweep(&place.rendezvous, Some("4711"), rules);
    assert!(sweep(Rules::default()), "some are left for later");
    assert!(made.owner().is_ok());
    age(made.path());
    assert!(!sweep(Rules::default()));
    assert!(!made.path().exists());
}

#[test]
fn a_sweep_goes_youngest_first_and_pauses_between_entries() {
    let place = place();
    let id = |seconds: u64| {
        let tag = job_tag(None, &this_process().unwrap().host);
        let salt = fsgather_core::Salt::tagged(tag, 7);
        GatherId::new(std::time::UNIX_EPOCH + Duration::from_secs(seconds), salt)
    };
    let path = |seconds| {
        let name = RendezvousEntry::Gather(id(seconds)).to_string();
        place.rendezvous.join(name)
    };
    for seconds in 1..=150 {
        std::fs::create_dir(path(seconds)).unwrap();
    }
    for seconds in [150, 149, 1] {
        age(&path(seconds));
    }
    let mut sweep = Sweep::begin(&place.rendezvous, Some(id(150)), None, Rules::default())
        .unwrap()
        .unwrap();
    assert!(sweep.go_on(&|| true));
    assert!(path(150).exists(), "the caller's own");
    assert!(!path(149).exists(), "nothing has changed in it for long");
    for _ in 1..AT_LEAST_ENTRIES {
        assert!(!sweep.has_had_its_share() || sweep.has_had_its_time());
        assert!(sweep.go_on(&|| true));
    }
    assert!(sweep.has_had_its_share());
    assert!(path(1).exists(), "it is not its turn yet");
    while sweep.go_on(&|| true) {}
    assert!(!path(1).exists());
    assert_eq!(place.left().len(), 148);
}

#[test]
fn a_sweep_reads_only_its_own_jobs_directories() {
    let place = place();
    let tag = |job: &str| job_tag(Some(job), "");
    let mut others = (0..).map(|number| format!("job {number}"));
    for salt in 1..=50 {
        let mut other = others.by_ref().filter(|job| tag(job) != tag("4711"));
        place.gather(salt, ended(), other.next().as_deref());
    }
    let own = place.gather(99, ended(), Some("4711"));
    // The names in the rendezvous directory, and the entries of the one directory: surveyed, surveyed again, and removed.
    let seen = entries_read(|| {
        sweep(&place.rendezvous, Some("4711"), EAGER);
    });
    assert!(!own.path().exists());
    assert_eq!(place.left().len(), 50);
    assert!(seen <= 51 + 2 + 3 * 20, "{seen}");
    // Without earlier directories there is nothing to examine, and nothing is written.
    assert!(
        Sweep::begin(&place.rendezvous, None, Some("4711"), EAGER)
            .unwrap()
            .is_none()
    );
}
