//! `fsgather doctor` reports obstacles to a job, and leaves nothing behind.

use std::{fs, process::Command};

use crate::common::{
    assert_nothing_left,
    build::command_line_tool,
    doctor::{USABLE, alone, document, findings, host, stage},
    place,
};

/// The beginning of the summary of a usable directory. Without a network there is one more note.
const USABLE_HERE: &str = "usable (0 problems, 0 warnings, ";

#[test]
fn doctor_alone_reports_the_directory_and_untried_checks() {
    let place = place();
    let directory = place.path().to_str().expect("text");
    let brief = alone(&[directory], &[]);
    assert_eq!(brief.code, USABLE, "{brief:?}");
    assert!(brief.stdout[0].starts_with(USABLE_HERE), "{brief:?}");
    let said = brief.stdout.join("\n");
    assert!(
        said.contains(" checks are ok; --verbose shows them"),
        "{said}"
    );
    assert!(said.contains("  FSGATHER_DIR "), "{said}");
    for text in ["every variable is understood", "FSGATHER_TIMEOUT"] {
        assert!(!said.contains(text), "{said}");
    }
    let end = alone(&[directory, "--verbose"], &[]);
    assert_eq!(end.code, USABLE, "{end:?}");
    let said = end.stdout.join("\n");
    for text in [
        "FSGATHER_DIR               ",
        "every variable is understood",
        "a world of one",
        "renaming works, hard links can be made; a payload of 1.5 MiB was published",
        "of up to",
        "are free",
        &format!("srun fsgather doctor {directory}"),
        USABLE_HERE,
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
}

#[test]
fn ranks_that_fsgather_run_starts_are_told_of_once_by_rank_0() {
    let place = place();
    let mut command = Command::new(command_line_tool());
    command
        .args(["run", "-n", "3", "--dir"])
        .arg(place.path())
        .arg("--")
        .arg(command_line_tool())
        .args(["doctor", "--json"])
        .env_clear();
    let mut stage = stage();
    stage.start(&mut command);
    let mut end = stage.end(0);
    assert_eq!(end.code, USABLE, "{}", stage.transcript());
    assert_eq!(end.stdout.len(), 1, "{end:?}");
    end.stdout[0] = end.stdout[0].trim_start_matches("[0] ").to_owned();
    let document = document(&end);
    assert_eq!(
        (&document["met"], &document["world_size"]),
        (&true.into(), &3.into())
    );
    assert_eq!(document["directory"], place.path().to_str().expect("text"));
    assert_eq!(findings(&document, "problem"), [""; 0]);
    assert_eq!(findings(&document, "warning"), [""; 0]);
    let ranks = document["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 3);
    for (number, facts) in ranks.iter().enumerate() {
        assert_eq!(
            (&facts["rank"], &facts["host"]),
            (&number.into(), &host().into())
        );
        let settings = facts["settings"].as_array().expect("settings");
        let of = |name: &str| {
            let mut named = settings.iter().filter(|setting| setting["name"] == name);
            named.next().expect(name)["origin"].as_str().expect("text")
        };
        assert_eq!(
            (of("FSGATHER_DIR"), of("FSGATHER_TIMEOUT")),
            ("FSGATHER_DIR", "default")
        );
        let own = facts["directory"]["own_uid"].as_u64();
        assert_eq!(own, Some(rustix::process::geteuid().as_raw().into()));
    }
    let told = findings(&document, "ok").join("\n");
    assert!(told.contains("a gather through it was right"), "{told}");
    assert!(ranks[0]["directory"]["payload"]["read"]["mapped"].is_boolean());
    assert_nothing_left(place.path());
}
