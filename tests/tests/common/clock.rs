//! A clock that can be set for some ranks only: [`Clock`].

use std::{fs, path::Path, process::Command};

use fsgather_testkit::process;

use super::{World, place};

/// The library that shifts a clock, and the file with the shift.
pub(crate) struct Clock {
    place: tempfile::TempDir,
}

impl Clock {
    /// A clock without a shift.
    pub(crate) fn new() -> Self {
        let place = place();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/beds/clock.c");
        let mut compiler = Command::new("gcc");
        compiler.args(["-shared", "-fPIC", "-O2", "-o"]);
        compiler.arg(place.path().join("clock.so")).arg(source);
        let built = process::output(&mut compiler).expect("gcc");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
        Self { place }
    }

    /// Shifts it by `seconds`, ahead or behind, from now on.
    pub(crate) fn set(&self, seconds: i64) {
        fs::write(self.place.path().join("shift"), seconds.to_string()).expect("a file");
    }

    /// Makes ranks use this clock.
    pub(crate) fn on(&self, world: World) -> World {
        let path = |name: &str| {
            self.place
                .path()
                .join(name)
                .to_str()
                .expect("text")
                .to_owned()
        };
        world
            .with("LD_PRELOAD", &path("clock.so"))
            .with("SHIFTED_CLOCK", &path("shift"))
    }
}
