//! `fsgather doctor --conformance` makes calls in earnest, and tells what came of them.

use crate::{
    CONFIG, USABLE, alone,
    common::{World, assert_nothing_left, place},
    stage,
};

#[test]
fn conformance_makes_calls_both_ways_compares_them_and_ends_with_a_row() {
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
        "| file system | over TCP | over marker files | set |",
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    let row = ends[0].stdout.iter().rfind(|line| line.starts_with("| "));
    let row: Vec<&str> = row.expect("a row").split('|').map(str::trim).collect();
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
fn conformance_of_one_process_is_refused_with_the_way_to_start_it() {
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
