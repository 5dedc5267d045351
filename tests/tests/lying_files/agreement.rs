//! Small programs that run on the model and on a real file system: the model must permit everything that they see on the real one.

use std::{
    collections::BTreeSet,
    io::IoSlice,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use fsgather_core::{lock, sys::files};
use rustix::{
    fs::{AtFlags, CWD, OFlags},
    io::Result,
};

use crate::{
    dice::Dice,
    files::{Breaks, FileWorld},
    machine::{Machine, Outcome},
    profile::Profile,
};

/// A step of one host in a directory; returns its observation.
type Step = (usize, fn(&Path) -> String);

/// Programs, each a sequence of steps.
const PROGRAMS: [(&str, &[Step]); 6] = [
    (
        "what one host publishes another one lists and reads",
        &[(0, publish), (1, list), (1, read)],
    ),
    (
        "what was missed and is made then",
        &[(1, look), (0, publish), (1, look), (1, list), (1, look)],
    ),
    (
        "what is removed while it is open",
        &[(0, publish), (0, remove_while_open), (1, list)],
    ),
    (
        "what is renamed over something",
        &[(0, publish), (1, read), (0, replace), (1, list), (1, read)],
    ),
    (
        "what is made twice, or removed twice",
        &[
            (0, publish),
            (1, make_again),
            (0, remove),
            (1, remove),
            (0, list),
        ],
    ),
    (
        "directories",
        &[
            (0, make_directories),
            (1, list),
            (1, remove_directories),
            (0, list),
        ],
    ),
];

fn told<R>(what: &str, result: Result<R>) -> String {
    result.map_or_else(
        |errno| format!("{what}: {errno:?}"),
        |_| format!("{what} is done"),
    )
}

fn make(path: &Path, contents: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = std::fs::File::from(files::open(CWD, path, flags, 0o600)?);
    let mut written = 0;
    while written < contents.len() {
        let part = [IoSlice::new(&contents[written..])];
        written += files::write(&file, &part).expect("room");
    }
    files::sync(&file)?;
    match files::close_in_model(file) {
        Ok(closed) => closed,
        Err(real) => {
            drop(real);
            Ok(())
        }
    }
}

fn contents(path: &Path) -> Result<String> {
    let file = std::fs::File::from(files::open(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, 0)?);
    let bytes = files::read_to_end(&file, 1 << 20).expect("a file that is there");
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn publish(place: &Path) -> String {
    let (staged, published) = (place.join("staged"), place.join("published"));
    let made = make(&staged, b"one").and_then(|()| files::rename(&staged, &published));
    told("publishing", made)
}

fn list(place: &Path) -> String {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = files::open(CWD, place, flags, 0).and_then(|opened| {
        let fresh = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        files::look(&opened, Path::new(""), fresh)?;
        let mut names = BTreeSet::new();
        files::list(&opened, &mut |name| {
            let name = name.to_string_lossy();
            // The name under which a client hides a file does not matter.
            let is_hidden = name.starts_with(".nfs") || name.starts_with(".fuse_hidden");
            names.insert(if is_hidden {
                "hidden".into()
            } else {
                name.into_owned()
            });
        })?;
        names.remove(".");
        names.remove("..");
        Ok(names)
    });
    listed.map_or_else(|errno| format!("{errno:?}"), |names| format!("{names:?}"))
}

fn read(place: &Path) -> String {
    format!("{:?}", contents(&place.join("published")))
}

fn look(place: &Path) -> String {
    told(
        "looking",
        files::look(CWD, &place.join("published"), AtFlags::SYMLINK_NOFOLLOW),
    )
}

fn remove_while_open(place: &Path) -> String {
    let path = place.join("published");
    let opened = files::open(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, 0);
    let file = std::fs::File::from(opened.expect("a file that is there"));
    let removed = told("removing", files::unlink(CWD, &path, AtFlags::empty()));
    let read = files::read_to_end(&file, 100).map_err(|error| error.to_string());
    format!("{removed}, {read:?}")
}

fn replace(place: &Path) -> String {
    let (staged, published) = (place.join("another"), place.join("published"));
    let made = make(&staged, b"another").and_then(|()| files::rename(&staged, &published));
    told("replacing", made)
}

fn make_again(place: &Path) -> String {
    let made = told("making", make(&place.join("published"), b"two"));
    let linked = told(
        "linking",
        files::link(&place.join("nothing"), &place.join("link")),
    );
    format!("{made}, {linked}")
}

fn remove(place: &Path) -> String {
    told(
        "removing",
        files::unlink(CWD, &place.join("published"), AtFlags::empty()),
    )
}

fn make_directories(place: &Path) -> String {
    let made = told("making", files::make_directory(&place.join("one"), 0o700));
    let again = told("making", files::make_directory(&place.join("one"), 0o700));
    let below = told("making", make(&place.join("one/below"), b"x"));
    format!("{made}, {again}, {below}")
}

fn remove_directories(place: &Path) -> String {
    let full = files::unlink(CWD, &place.join("one"), AtFlags::REMOVEDIR);
    let file = files::unlink(CWD, &place.join("one/below"), AtFlags::empty());
    let empty = files::unlink(CWD, &place.join("one"), AtFlags::REMOVEDIR);
    [full, file, empty]
        .map(|done| told("removing", done))
        .join(", ")
}

/// The observations on the model.
fn on_the_model(steps: &[Step], profile: Profile, seed: u64) -> Vec<String> {
    let mut dice = Dice::new(seed, 30);
    let profile = profile.draw(&mut dice);
    let files = FileWorld::new(profile, 2, &mut dice, Breaks::default());
    let machine = Machine::new(files, Vec::new(), seed);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for (number, (host, step)) in (1..).zip(steps.iter().copied()) {
        let its = Arc::clone(&seen);
        machine.process(host, number * 200_000_000, "a step", move || {
            let saw = step(Path::new("/shared"));
            lock(&its).push(saw);
        });
    }
    assert!(matches!(machine.run(u64::MAX), Outcome::Over(_)));
    std::mem::take(&mut *lock(&seen))
}

/// The observations on real files, if these directories of the hosts are one.
fn on_real_files(steps: &[Step], hosts: &[PathBuf; 2]) -> Vec<String> {
    let mut seen = Vec::new();
    for (host, step) in steps {
        seen.push(step(&hosts[*host]));
        // A bed with caches shows cached state, and steps without a pause would be seen as simultaneous.
        #[expect(clippy::disallowed_methods, reason = "there is nothing to wait for")]
        thread::sleep(Duration::from_millis(20));
    }
    seen
}

/// Fails if an observation is not permitted by the model.
pub(crate) fn check(profile: Profile, hosts: &[PathBuf; 2]) {
    for (name, steps) in PROGRAMS {
        let within = |host: &PathBuf| host.join(name.replace(' ', "-"));
        let places = [within(&hosts[0]), within(&hosts[1])];
        std::fs::create_dir(&places[0]).expect("a place to try things");
        let seen = on_real_files(steps, &places);
        let permitted: BTreeSet<Vec<String>> = (1..200)
            .map(|seed| on_the_model(steps, profile, seed))
            .collect();
        assert!(
            permitted.contains(&seen),
            "{name} on {}: seen {seen:#?}, permitted {permitted:#?}",
            profile.name
        );
    }
}
