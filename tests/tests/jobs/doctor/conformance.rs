//! `fsgather doctor --conformance` makes calls and reports their results.

use std::path::Path;

use super::{CONFIG, USABLE, alone, stage};
use crate::common::{End, World, assert_nothing_left, place, strangers};

/// The ends of doctor on three ranks with these variables, each with arguments of its own, in the directory that is named as `.`.
fn said(directory: &Path, variables: &[(&str, &str)], arguments: [&[&str]; 3]) -> Vec<End> {
    let mut stage = stage();
    let mut world = World::new(3, directory);
    for (name, value) in variables {
        world = world.with(name, value);
    }
    for (rank, arguments) in (0..).zip(arguments) {
        let arguments = [&["doctor", "."], arguments].concat();
        stage.start(world.tool(rank, &arguments).current_dir(directory));
    }
    stage.end_all(0..3)
}

const CONFORMANCE: &[&str] = &["--conformance", "--calls=2"];

/// The cells of the row at the end of a report.
fn row(end: &End) -> Vec<&str> {
    let row = end.stdout.iter().rfind(|line| line.starts_with("| "));
    let row = row.expect("a row");
    row.split('|').map(str::trim).collect()
}

#[test]
fn the_meeting_place_does_not_affect_conformance() {
    let place = place();
    let address = format!("tcp://127.0.0.1:{}", strangers::free_port());
    let variables = [("FSGATHER_RENDEZVOUS", address.as_str())];
    let ends = said(place.path(), &variables, [CONFORMANCE; 3]);
    assert!(ends.iter().all(|end| end.code == USABLE), "{ends:?}");
    let row = row(&ends[0]);
    assert!(row[2].ends_with(')') && row[3].ends_with(')'), "{row:?}");
    // The relative name of the directory has nothing to do with its file system.
    assert_eq!(row[4], "", "{row:?}");
    assert_nothing_left(place.path());
}

#[test]
fn a_port_taken_by_doctor_is_not_the_file_systems_fault() {
    let place = place();
    let port = strangers::free_port().to_string();
    let variables = [("FSGATHER_PORT", port.as_str())];
    let ends = said(place.path(), &variables, [CONFORMANCE; 3]);
    assert!(ends.iter().all(|end| end.code == USABLE), "{ends:?}");
    let row = row(&ends[0]);
    assert!(row[2] == "-" && row[3].ends_with(')'), "{row:?}");
    assert_eq!(row[4], "", "{row:?}");
    let text = ends[0].stdout.join("\n");
    let told =
        format!("no calls were made: rank 0 listens on {port}, the only port of FSGATHER_PORT");
    assert!(text.contains(&told), "{text}");
    assert_nothing_left(place.path());
}

#[test]
fn conformance_compares_calls_both_ways_and_prints_a_row() {
    let place = place();
    let mut stage = stage();
    let world = World::new(3, place.path());
    let arguments = ["doctor", "--verbose", "--conformance", "--calls=6"];
    for rank in 0..3 {
        stage.start(&mut world.tool(rank, &arguments));
    }
    let ends = stage.end_all(0..3);
    for end in &ends {
        assert_eq!(end.code, USABLE, "{}", stage.transcript());
    }
    let said = ends[0].stdout.join("\n");
    for text in [
        "messages over TCP: 6 calls, every byte right",
        "messages in marker files: 6 calls, every byte right",
        "6 calls each way, every byte compared; median (slowest) in ms:",
        "| file system | over TCP | over marker files | set |",
        "their calls prove nothing about what other hosts see",
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    let row = row(&ends[0]);
    let [_, name, tcp, markers, _, _] = row[..] else {
        panic!("{row:?}");
    };
    assert!(!name.is_empty());
    let is_time = |cell: &str| {
        let figures = cell
            .strip_suffix(')')
            .and_then(|cell| cell.split_once(" ("));
        figures.is_some_and(|(median, slowest)| {
            let figure = |text: &str| text.parse::<u32>().ok();
            figure(median)
                .zip(figure(slowest))
                .is_some_and(|(median, slowest)| median <= slowest)
        })
    };
    assert!(is_time(tcp) && is_time(markers), "{row:?}");
    assert!(ends[1].stdout.is_empty(), "{}", stage.transcript());
    assert_nothing_left(place.path());
}

#[test]
fn conformance_of_one_process_is_refused_with_advice() {
    let place = place();
    let directory = place.path().to_str().expect("text");
    let end = alone(&[directory, "--conformance"], &[]);
    assert_eq!(end.code, CONFIG, "{end:?}");
    let said = end.stdout.join("\n");
    assert!(said.contains("no calls were made"), "{said}");
    assert!(
        said.contains("srun -N2 -n4 fsgather doctor --conformance DIR"),
        "{said}"
    );
}
