//! `fsgather doctor` reports obstacles to a job, and leaves nothing behind.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

mod conformance;

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::common::{
    CONFIG, STORAGE, World,
    doctor::{USABLE, alone, document, findings, ranks, stage},
    place,
};

#[test]
fn wrong_variables_are_all_named() {
    let place = place();
    let directory = place.path().to_str().expect("text");
    let variables = [
        ("FSGATHER_TIMEOUT", "30"),
        ("FSGATHER_PORT", "ssh"),
        ("FSGATHER_DRI", "/x"),
    ];
    let end = alone(&[directory], &variables);
    assert_eq!(end.code, CONFIG, "{end:?}");
    let said = end.stdout.join("\n");
    for text in [
        "FSGATHER_TIMEOUT=\"30\"",
        "a right one is FSGATHER_TIMEOUT=30m",
        "FSGATHER_PORT=\"ssh\"",
        "did you mean FSGATHER_DIR?",
        "not usable: settings are wrong (2 problems, 1 warning, 0 notes)",
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    let end = alone(&[directory, "--json"], &[("FSGATHER_LOG", "fsgather=loud")]);
    assert_eq!(end.code, CONFIG, "{end:?}");
    assert!(end.stderr.join("\n").contains("FSGATHER_LOG"), "{end:?}");
    // Each is valid, but they contradict each other.
    let variables = [
        ("FSGATHER_CONTROL", "markers"),
        ("FSGATHER_RENDEZVOUS", "tcp://127.0.0.1:60001"),
    ];
    let document = document(&alone(&[directory, "--json"], &variables));
    assert_eq!(document["exit_code"], CONFIG);
    assert!(findings(&document, "problem")[0].contains("FSGATHER_CONTROL=markers"));
}

#[test]
fn directories_that_cannot_be_used_are_named() {
    let place = place();
    let file = place.path().join("file");
    fs::write(&file, "x").expect("a file");
    for path in [place.path().join("nowhere"), file] {
        let path = path.to_str().expect("text");
        let document = document(&alone(&[path, "--json"], &[]));
        assert_eq!(document["exit_code"], STORAGE);
        let problems = findings(&document, "problem");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with("directory: cannot use "),
            "{problems:?}"
        );
        assert!(problems[0].contains(path), "{problems:?}");
        // Ranks that cannot even meet report that, each on its own.
        let mut stage = stage();
        let world = World::new(2, Path::new(path));
        for rank in 0..2 {
            stage.start(&mut world.tool(rank, &["doctor"]));
        }
        for end in ranks(&mut stage, STORAGE) {
            // Only the problems.
            let said = end.stdout.join("\n");
            assert!(end.stdout[0].starts_with("not usable: "), "{said}");
            assert!(end.stdout[0].contains("(1 problem, 0 warnings)"), "{said}");
            assert!(end.stdout[1].starts_with("report of rank "), "{said}");
            assert!(said.contains(path) && end.stdout.len() <= 5, "{said}");
        }
    }
}

#[test]
fn nothing_is_advised_that_harms_the_host() {
    for path in ["/dev/null", "/proc"] {
        let end = alone(&["--verbose", path], &[]);
        assert_eq!(end.code, STORAGE, "{end:?}");
        let said = end.stdout.join("\n");
        assert!(
            !said.contains("chmod") && !said.contains("make room"),
            "{said}"
        );
        assert!(said.contains("(1 problem, 0 warnings, "), "{said}");
    }
}

#[test]
fn anybody_who_may_remove_files_is_warned_of() {
    let place = place();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).expect("our directory");
    let document = document(&alone(
        &[place.path().to_str().expect("text"), "--json"],
        &[],
    ));
    let warnings = findings(&document, "warning");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("anybody may remove") && warnings[0].contains("0777"));
}
