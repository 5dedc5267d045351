//! Finds the programs that the tests start.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use fsgather_testkit::process;

/// A build of everything on a machine that does other things too takes no longer.
const BUILDING: Duration = Duration::from_mins(30);

/// The directory of the profile that this test was built with.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let profile = test.parent().and_then(Path::parent);
    profile.expect("target/PROFILE/deps/TEST").to_owned()
}

/// `examples/rank`.
pub(crate) fn rank_program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let package = ["-p", "fsgather-tests", "--example", "rank"];
    BUILT.get_or_init(|| up_to_date("examples/rank", &package))
}

/// An example of the library, which newcomers read.
pub(crate) fn library_example(name: &str) -> PathBuf {
    // Together with the ranks of these tests, so that nothing they have in common is built twice.
    let packages = ["-p", "fsgather", "-p", "fsgather-tests", "--examples"];
    up_to_date(&format!("examples/{name}"), &packages)
}

/// `examples/clean.rs`.
pub(crate) fn cleaning_program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let package = ["-p", "fsgather-tests", "--example", "clean"];
    BUILT.get_or_init(|| up_to_date("examples/clean", &package))
}

/// `examples/wiretap.rs`.
pub(crate) fn wiretap() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let package = ["-p", "fsgather-tests", "--example", "wiretap"];
    BUILT.get_or_init(|| up_to_date("examples/wiretap", &package))
}

/// The command-line tool.
pub(crate) fn command_line_tool() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| up_to_date("fsgather", &["-p", "fsgather-cli"]))
}

/// A program of this profile; built, where cargo has not done that for these tests: it does so for tests
/// of the whole workspace, but not for a single one.
fn up_to_date(name: &str, package: &[&str]) -> PathBuf {
    let profile = profile_directory();
    let program = profile.join(name);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = ["../crates", "examples", "src"].map(|part| latest(&here.join(part)));
    let changed = sources.into_iter().max();
    if changed > modified(&program) {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--offline", "--target-dir"]);
        cargo.arg(profile.parent().expect("target/PROFILE"));
        match profile.file_name().and_then(|name| name.to_str()) {
            Some("debug") => {}
            Some(name) => drop(cargo.args(["--profile", name])),
            None => panic!("no profile in {}", profile.display()),
        }
        let built = process::output_within(cargo.args(package).current_dir(here), BUILDING);
        let built = built.expect("cargo");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
    }
    program
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// When anything below was last changed.
fn latest(path: &Path) -> SystemTime {
    let Ok(entries) = fs::read_dir(path) else {
        return modified(path).unwrap_or(SystemTime::UNIX_EPOCH);
    };
    let entries = entries.filter_map(Result::ok);
    let below = entries.map(|entry| latest(&entry.path())).max();
    below.unwrap_or(SystemTime::UNIX_EPOCH)
}
