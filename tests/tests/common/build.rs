//! Finds the programs that the tests start.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use fsgather_testkit::process;

/// Maximum time of a complete build on a busy machine.
const BUILDING: Duration = Duration::from_secs(1800);

/// The directory of the profile that this test was built with.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let profile = test.parent().and_then(Path::parent);
    profile.expect("target/PROFILE/deps/TEST").to_owned()
}

/// `examples/rank`.
pub(crate) fn rank_program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| up_to_date("examples/rank", ["--example", "rank"]))
}

/// An example of the library, which newcomers read.
pub(crate) fn library_example(name: &str) -> PathBuf {
    up_to_date(&format!("examples/{name}"), ["--example", name])
}

/// `examples/clean.rs`.
pub(crate) fn cleaning_program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| up_to_date("examples/clean", ["--example", "clean"]))
}

/// `examples/wiretap.rs`.
pub(crate) fn wiretap() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| up_to_date("examples/wiretap", ["--example", "wiretap"]))
}

/// The command-line tool.
pub(crate) fn command_line_tool() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| up_to_date("fsgather", ["--bin", "fsgather"]))
}

/// A program of this profile, which is built if a source is newer: cargo builds it for the tests of the whole workspace, but not for a
/// single test program.
fn up_to_date(name: &str, target: [&str; 2]) -> PathBuf {
    let profile = profile_directory();
    let program = profile.join(name);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["../crates", "examples", "src"].map(|part| latest(&here.join(part)));
    let changed = sources.into_iter().max();
    if changed > modified(&program) {
        let mut cargo = Command::new(env!("CARGO"));
        without_variables_of_cargo(&mut cargo);
        cargo.args(["build", "--offline", "--target-dir"]);
        cargo.arg(profile.parent().expect("target/PROFILE"));
        match profile.file_name().and_then(|name| name.to_str()) {
            Some("debug") => {}
            Some(name) => drop(cargo.args(["--profile", name])),
            None => panic!("no profile in {}", profile.display()),
        }
        // With a test program, dependencies have the same features as in `cargo test --workspace`: nothing is built twice.
        cargo
            .args(["--workspace", "--test", "architecture"])
            .args(target);
        let built = process::output_within(cargo.current_dir(here), BUILDING);
        let built = built.expect("cargo");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
    }
    program
}

/// Removes the variables with which cargo describes this package to its tests: build scripts that look at them would run again.
#[expect(clippy::disallowed_methods, reason = "it is for tests alone")]
fn without_variables_of_cargo(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let is_of_package = ["CARGO_MANIFEST_", "CARGO_PKG_"]
            .iter()
            .any(|start| name.to_string_lossy().starts_with(start));
        if is_of_package {
            command.env_remove(name);
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// The time of the last change below a path.
fn latest(path: &Path) -> SystemTime {
    let Ok(entries) = fs::read_dir(path) else {
        return modified(path).unwrap_or(SystemTime::UNIX_EPOCH);
    };
    let entries = entries.filter_map(Result::ok);
    let below = entries.map(|entry| latest(&entry.path())).max();
    below.unwrap_or(SystemTime::UNIX_EPOCH)
}
