//! Inputs that fuzzers have kept: [`replay`].

use std::{fs, path::Path};

/// A fuzz target and its function, which panics where a promise is broken.
pub type Target<'a> = (&'a str, fn(&[u8]));

/// Feeds every kept input of these fuzz targets to the function.
///
/// The inputs lie in `tests/fuzz/corpus`, one directory for each target.
///
/// # Panics
///
/// When a promise is broken, and for a target of which nothing is kept.
pub fn replay(targets: &[Target<'_>]) {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus");
    for (target, run) in targets {
        let inputs = fs::read_dir(corpora.join(target)).expect("a directory of inputs");
        let mut count = 0;
        for input in inputs {
            run(&fs::read(input.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "nothing is kept for {target}");
    }
}
