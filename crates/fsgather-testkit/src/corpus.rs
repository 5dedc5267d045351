//! Inputs that fuzzers have found: [`replay`].

use std::{fs, path::Path};

/// A fuzz target and its function, which panics if a promise is broken.
pub type Target<'a> = (&'a str, fn(&[u8]));

/// Feeds every stored input of these fuzz targets to the function.
///
/// The inputs are in `tests/fuzz/corpus`, one directory for each target.
///
/// # Panics
///
/// Panics if a promise is broken, and for a target without stored inputs.
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
