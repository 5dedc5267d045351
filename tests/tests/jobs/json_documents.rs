//! The page on JSON documents has every field of each document, and no other.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::common::{
    Stage, World,
    doctor::{USABLE, document, ranks, stage},
    place,
};

/// Adds the names of all fields of a document.
fn add_fields(document: &Value, all: &mut BTreeSet<String>) {
    match document {
        Value::Object(object) => {
            for (name, value) in object {
                all.insert(name.clone());
                add_fields(value, all);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_fields(value, all)),
        _ => {}
    }
}

fn fields(document: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    add_fields(document, &mut all);
    all
}

/// Returns an example of a section of the page, counted from 0.
fn example(section: &str, number: usize) -> Value {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, section) = page
        .split_once(&format!("\n## {section}\n"))
        .expect("the section");
    let example = section
        .split("```json")
        .nth(number + 1)
        .expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    serde_json::from_str(example).expect("JSON")
}

/// Runs a verb on two ranks, and returns the document of the first.
fn document_of(words: &[&str]) -> Value {
    let place = place();
    fs::write(place.path().join("input"), "x").expect("an input");
    let words: Vec<String> = words
        .iter()
        .map(|word| word.replace("PLACE", place.path().to_str().expect("text")))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut stage = Stage::new();
    let world = World::new(2, place.path());
    for rank in 0..2 {
        stage.start(&mut world.tool(rank, &words));
    }
    let ends = ranks(&mut stage, 0);
    serde_json::from_str(&ends[0].stdout.join("\n")).expect("JSON")
}

#[test]
fn page_has_every_field_of_doctor() {
    let place = place();
    let mut stage = stage();
    let world = World::new(2, place.path());
    for rank in 0..2 {
        stage.start(&mut world.tool(rank, &["doctor", "--json", "--conformance", "--calls=1"]));
    }
    let ends = ranks(&mut stage, USABLE);
    assert_eq!(fields(&document(&ends[0])), fields(&example("doctor", 0)));
}

#[test]
fn page_has_every_field_of_collective_verbs() {
    let section = "gather, broadcast and barrier";
    for (number, words) in [
        &["gather", "--json", "--concat=PLACE/all", "PLACE/input"][..],
        &[
            "broadcast",
            "--json",
            "--out",
            "PLACE/own.{rank}",
            "PLACE/input",
        ],
        &["barrier", "--json"],
    ]
    .into_iter()
    .enumerate()
    {
        let example = example(section, number);
        assert_eq!(fields(&document_of(words)), fields(&example), "{words:?}");
    }
}

#[test]
fn page_has_every_field_of_run_and_demo() {
    let run = ["run", "-n", "2", "--json", "--", "true"];
    assert_eq!(fields(&document_of(&run)), fields(&example("run", 0)));
    let demo = ["demo", "--json"];
    assert_eq!(fields(&document_of(&demo)), fields(&example("demo", 0)));
}
