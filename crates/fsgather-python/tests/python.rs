//! Runs the tests of the Python package, which are written in Python, with the extension module that was built for this
//! test run.
//!
//! What they need (pytest, hypothesis, numpy, mypy) is installed once, into a virtual environment below the target directory.
//! Where there is no Python, or it cannot be installed, this says so and passes.
#![expect(
    clippy::expect_used,
    reason = "a check reports by panicking, in its helpers too"
)]

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use fsgather_testkit::process;
use tempfile::TempDir;

/// What the tests need besides the package.
const NEEDED: [&str; 7] = [
    "pytest>=8,<10",
    "pytest-xdist>=3",
    "hypothesis>=6.100",
    "numpy",
    "joblib",
    "distributed",
    "mypy>=1.10",
];

/// So many run at once: most of them wait for ranks most of the time.
const AT_ONCE: &str = "5";

/// Each test of the package has a limit of its own (`tests/conftest.py`).
const ALL_TOGETHER: Duration = Duration::from_mins(30);

#[test]
fn the_python_package_passes_its_own_tests() {
    let built = built();
    let environment = built.join("../python-tests");
    let Some(python) = interpreter(&environment) else {
        eprintln!(
            "SKIPPED: the tests of the Python package need python3 (3.9 or later) with venv, and {}",
            NEEDED.join(", ")
        );
        return;
    };
    let stage =
        stage(&built, &environment).expect("the package is laid out below the target directory");
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = Command::new(&python);
    tests
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .args([
            "--ignore",
            "tests/switch",
            "--ignore",
            "tests/engines",
            "-n",
            AT_ONCE,
        ])
        .current_dir(package)
        .env("PYTHONPATH", stage.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(
            "HYPOTHESIS_STORAGE_DIRECTORY",
            environment.join("hypothesis"),
        );
    let status = process::status_within(&mut tests, ALL_TOGETHER)
        .expect("the interpreter was there a moment ago");
    assert!(status.success(), "pytest ended with {status}");
}

/// Where this test program and the extension module are: `target/PROFILE/deps`.
fn built() -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    program.parent().expect("it lies somewhere").to_owned()
}

/// The interpreter of an environment with all that is needed, which is made if need be.
fn interpreter(environment: &Path) -> Option<PathBuf> {
    let python = environment.join("venv/bin/python");
    let marker = environment.join("complete");
    if fs::read_to_string(&marker).is_ok_and(|has| has == NEEDED.join("\n")) {
        return Some(python);
    }
    let venv = environment.join("venv");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(venv);
    let mut install = Command::new(&python);
    install
        .args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        .args(NEEDED);
    let succeeds =
        |command: &mut Command| process::status(command).is_ok_and(|status| status.success());
    if !(succeeds(&mut make) && succeeds(&mut install)) {
        return None;
    }
    fs::write(&marker, NEEDED.join("\n")).ok()?;
    Some(python)
}

/// The package as it would be installed: its Python files, and the extension module beside them.
fn stage(built: &Path, environment: &Path) -> io::Result<TempDir> {
    let stage = tempfile::tempdir_in(environment)?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    copy(&sources, stage.path())?;
    fs::copy(
        built.join("lib_fsgather.so"),
        stage.path().join("fsgather/_fsgather.abi3.so"),
    )?;
    Ok(stage)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
