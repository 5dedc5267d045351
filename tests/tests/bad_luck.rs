//! Events that hit a job from outside: a clock that is set, a directory that disappears or is replaced, a file system that hangs. Each time
//! every rank has the right result or reports the cause, in time, and no files of others are touched.
//!
//! `scripts/prove bad-luck` runs these tests one after the other, and prints the output of each rank.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use common::{
    STORAGE, Stage, TIMED_OUT, World, assert_nothing_left, clock::Clock, double_mount::DoubleMount,
    everybody, left_in, place, report::tell,
};

/// Calls with every transport of payloads.
const CALLS: &str = "all_gather_bytes:300000 gather_from:1:300000 barrier all_gather:100";

/// Both carriers of messages.
const CONTROLS: [&str; 2] = ["tcp", "markers"];

const HOUR: i64 = 3600;

/// Runs a job whose clock is `first` off, and then `later`, on all ranks or on all except rank 0.
fn across_a_change(clock: &Clock, control: &str, first: i64, later: i64, on_rank_0: bool) {
    let place = place();
    let world = World::new(4, place.path()).with("FSGATHER_CONTROL", control);
    let shifted = clock.on(world.clone());
    clock.set(first);
    let mut stage = Stage::new();
    let since = Instant::now();
    for rank in 0..4 {
        let world = if rank == 0 && !on_rank_0 {
            &world
        } else {
            &shifted
        };
        stage.start(&mut world.rank(rank, &format!("join {CALLS} at:noon {CALLS} close")));
    }
    stage.wait_at(everybody(4), "noon");
    clock.set(later);
    stage.go_all(everybody(4));
    let ends = stage.end_all(everybody(4));
    let where_ = if on_rank_0 {
        "everywhere"
    } else {
        "but on rank 0"
    };
    tell(
        &format!("clocks {first} s ahead, then {later} s, {where_}, {control}"),
        since,
        &ends,
    );
    stage.succeed(everybody(4));
    for end in &ends {
        assert_eq!(end.warnings(), [""; 0]);
    }
    assert_nothing_left(place.path());
}

#[test]
fn clocks_that_are_set_in_the_middle_of_a_job_do_not_matter() {
    let clock = Clock::new();
    for control in CONTROLS {
        across_a_change(&clock, control, 0, -HOUR, true);
        across_a_change(&clock, control, 0, HOUR, false);
        across_a_change(&clock, control, -24 * HOUR, 24 * HOUR, false);
    }
}

/// A shift to the middle of 2040, after the second at which 32 bits of seconds overflow.
const YEAR_2040: i64 = 14 * 365 * 24 * HOUR;

#[test]
fn the_year_2040_is_a_year_like_others() {
    let clock = Clock::new();
    for control in CONTROLS {
        across_a_change(&clock, control, YEAR_2040, YEAR_2040, true);
        across_a_change(&clock, control, 0, YEAR_2040, false);
    }
    // Leftovers of a job of that year are listed with their names and ages, and removed.
    let place = place();
    clock.set(YEAR_2040);
    let world = clock.on(World::new(2, place.path()));
    let mut stage = Stage::new();
    for rank in 0..2 {
        stage.start(&mut world.rank(
            rank,
            "join all_gather_bytes:300000 gather_bytes:0:300000:read",
        ));
    }
    stage.wait_at([0], "reading");
    for rank in [0, 1] {
        stage.kill(rank);
    }
    stage.end_all(everybody(2));
    let left = left_in(place.path());
    assert!(
        left.iter()
            .any(|path| path.to_string_lossy().contains("/gather-2040")),
        "{left:?}"
    );
    let named = place.path().to_str().expect("text").to_owned();
    let index = stage.start(&mut world.tool(0, &["clean", &named, "--execute"]));
    stage.succeed([index]);
    assert_nothing_left(place.path());
}

/// The fate of a directory.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Removed,
    /// Renamed; another one, which is empty, has its name.
    Replaced,
    /// Renamed; its name is a link to another one, which is empty.
    Linked,
}

/// A directory of a job.
#[derive(Clone, Copy, Debug)]
enum Which {
    /// The directory that users name.
    Named,
    Rendezvous,
    Gather,
}

impl Which {
    fn of(self, named: &Path) -> PathBuf {
        let rendezvous = named.join("all_gather_via_filesys");
        match self {
            Self::Named => named.to_owned(),
            Self::Rendezvous => rendezvous,
            Self::Gather => {
                let found = left_in(named);
                let mut found = found.into_iter();
                found
                    .find(|path| path.to_string_lossy().contains("/gather-"))
                    .expect("a gather directory")
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "what an administrator does")]
fn befall(fate: Fate, directory: &Path, aside: &Path) {
    let other = aside.join("other");
    match fate {
        // Ranks that exchange messages through it make files in it meanwhile.
        Fate::Removed => while fs::remove_dir_all(directory).is_err() {},
        Fate::Replaced => {
            fs::rename(directory, aside.join("was")).expect("a directory");
            fs::create_dir(directory).expect("a directory");
        }
        Fate::Linked => {
            fs::rename(directory, aside.join("was")).expect("a directory");
            fs::create_dir(&other).expect("a directory");
            symlink(&other, directory).expect("a link");
        }
    }
}

/// All entries of a directory, at any depth.
fn everything_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let entries = entries.map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| [vec![path.clone()], everything_in(&path)].concat())
        .collect()
}

fn a_directory_that(fate: Fate, which: Which, control: &str) {
    let outside = place();
    let named = outside.path().join("named");
    let aside = outside.path().join("aside");
    for directory in [&named, &aside] {
        fs::create_dir(directory).expect("a directory");
    }
    let world = World::new(4, &named)
        .with("FSGATHER_CONTROL", control)
        .with("FSGATHER_TRANSPORT", "filesys");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| {
        format!("join {CALLS} at:ready {CALLS} {CALLS} close")
    });
    stage.wait_at(everybody(4), "ready");
    befall(fate, &which.of(&named), &aside);
    let since = Instant::now();
    stage.go_all(everybody(4));
    let ends = stage.end_all(everybody(4));
    tell(&format!("{which:?} {fate:?}, {control}"), since, &ends);
    for end in &ends {
        assert!([0, STORAGE].contains(&end.code), "{}", stage.transcript());
        let text = named.to_str().expect("text");
        assert!(end.code == 0 || end.error().contains(text), "{end:?}");
    }
    let other = everything_in(&aside.join("other"));
    assert!(other.is_empty(), "{other:?}");
}

const FATES: [Fate; 3] = [Fate::Removed, Fate::Replaced, Fate::Linked];

#[test]
fn a_lost_or_replaced_directory_fails_and_is_not_followed() {
    for which in [Which::Named, Which::Rendezvous, Which::Gather] {
        for fate in FATES {
            a_directory_that(fate, which, "tcp");
        }
    }
    a_directory_that(Fate::Linked, Which::Rendezvous, "markers");
}

#[test]
fn a_lost_or_replaced_directory_fails_over_markers_too() {
    for which in [Which::Named, Which::Rendezvous, Which::Gather] {
        for fate in FATES {
            a_directory_that(fate, which, "markers");
        }
    }
}

#[test]
fn a_meeting_that_fails_writes_nothing_where_a_link_leads() {
    let outside = place();
    let [named, aside] = ["named", "aside"].map(|name| outside.path().join(name));
    for directory in [&named, &aside] {
        fs::create_dir(directory).expect("a directory");
    }
    let world = World::new(3, &named).with("FSGATHER_JOIN_TIMEOUT", "3s");
    let mut stage = Stage::new();
    for rank in 0..2 {
        stage.start(&mut world.rank(rank, "join close"));
    }
    stage.wait_until_taken_in(1);
    befall(Fate::Linked, &Which::Rendezvous.of(&named), &aside);
    let since = Instant::now();
    let ends = stage.end_all(everybody(2));
    tell("Rendezvous Linked while ranks meet", since, &ends);
    for end in &ends {
        assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
    }
    let other = everything_in(&aside.join("other"));
    assert!(other.is_empty(), "{other:?}");
}

/// Runs two ranks on two hosts, where the whole file system of one host or both hangs for `seconds`.
fn hangs_for(seconds: u64, hosts: &[u32], control: &str) {
    let mount = DoubleMount::with("", 0);
    let world = mount.world().with("FSGATHER_CONTROL", control);
    let mut stage = Stage::new();
    for rank in [0, 1] {
        let script = format!("join {CALLS} at:ready {CALLS} close");
        stage.start(&mut mount.rank(&world, rank, &script));
    }
    stage.wait_at(everybody(2), "ready");
    for host in hosts {
        mount.rules(*host, "* * hang");
    }
    let since = Instant::now();
    stage.go_all(everybody(2));
    stage.let_pass(Duration::from_secs(seconds));
    for host in hosts {
        mount.rules(*host, "");
    }
    let ends = stage.end_all(everybody(2));
    tell(
        &format!("the mounts of hosts {hosts:?} hang for {seconds} s, {control}"),
        since,
        &ends,
    );
    stage.succeed(everybody(2));
    for end in &ends {
        let took = end.at.saturating_duration_since(since);
        assert!(took < Duration::from_secs(seconds + 10), "{took:?}");
    }
    assert_nothing_left(&mount.behind());
}

#[test]
fn mounts_that_hang_for_20_seconds_cost_20_seconds() {
    for control in CONTROLS {
        for hosts in [&[1_u32] as &[u32], &[2], &[1, 2]] {
            hangs_for(20, hosts, control);
        }
    }
}

/// The mount of one of two hosts hangs for ever: ranks that can end report it in time, and the others as soon as they can.
fn hangs_for_ever(host: u32, control: &str) {
    let mount = DoubleMount::with("", 0);
    let world = mount
        .world()
        .with("FSGATHER_CONTROL", control)
        .with("FSGATHER_TIMEOUT", "5s");
    let mut stage = Stage::new();
    for rank in [0, 1] {
        let script = format!("join {CALLS} at:ready {CALLS} close");
        stage.start(&mut mount.rank(&world, rank, &script));
    }
    stage.wait_at(everybody(2), "ready");
    mount.rules(host, "* * hang");
    let since = Instant::now();
    stage.go_all(everybody(2));
    let (hung, well) = (host as usize - 1, 2 - host as usize);
    let end = stage.end(well);
    let took = end.at.saturating_duration_since(since);
    assert!(stage.runs(hung), "{}", stage.transcript());
    mount.rules(host, "");
    let late = stage.end(hung);
    let mut ends = [end.clone(), late.clone()];
    ends.rotate_right(well);
    tell(
        &format!("the mount of host {host} hangs for ever, {control}"),
        since,
        &ends,
    );
    assert_eq!(end.code, TIMED_OUT, "{}", stage.transcript());
    let named = format!("(pid {}", stage.pid(hung));
    assert!(end.error().contains(&named), "{end:?}");
    // Five seconds for the time-out, and ten for its message; then it asks for the state of the other rank, and ends.
    assert!(took < Duration::from_secs(20), "{took:?}: {end:?}");
    assert_ne!(late.code, 0, "{}", stage.transcript());
}

#[test]
fn a_mount_that_hangs_for_ever_is_told_by_those_who_can() {
    for control in CONTROLS {
        for host in [1, 2] {
            hangs_for_ever(host, control);
        }
    }
}
