//! Tests that the examples of the guides work: shell blocks are run here; Rust blocks are documentation tests of the library.
#![expect(
    clippy::expect_used,
    reason = "functions that tests share fail them in the same way"
)]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use common::{build::command_line_tool, place};
use fsgather_testkit::process;

/// Pages whose blocks are all run, except those marked `text`.
const PAGES: [&str; 4] = ["groups", "rust", "shell", "switching"];

fn guide() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide")
}

/// The blocks of a page, each with its language.
fn blocks(page: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(guide().join(format!("{page}.md"))).expect("a page");
    let mut fences = text.split("\n```");
    let _ = fences.next();
    let mut blocks = Vec::new();
    while let (Some(block), Some(_)) = (fences.next(), fences.next()) {
        let (language, block) = block.split_once('\n').expect("a block has lines");
        blocks.push((language.to_owned(), block.to_owned()));
    }
    blocks
}

#[test]
fn shell_blocks_do_what_they_say() {
    let tool = command_line_tool().parent().expect("a directory");
    let mut tried = 0;
    for page in PAGES {
        for (_, script) in blocks(page).iter().filter(|(language, _)| language == "sh") {
            let place = place();
            let mut shell = Command::new("sh");
            shell
                .args(["-euc", script])
                .current_dir(&place)
                .env_clear()
                .env("PATH", format!("{}:/usr/bin:/bin", tool.display()));
            let done = process::output(&mut shell).expect("a shell");
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{page}:\n{script}\n{said}");
            tried += 1;
        }
    }
    assert!(tried >= 4, "{tried}");
}

#[test]
fn every_block_is_tried_out_or_is_no_code() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/fsgather/src/lib.rs");
    let library = fs::read_to_string(library).expect("the library");
    for page in PAGES {
        assert!(library.contains(&format!("docs/guide/{page}.md")), "{page}");
        for (language, block) in blocks(page) {
            let known = ["rust", "python", "sh", "text", "toml"].contains(&language.as_str());
            assert!(known, "{page}: `{language}`:\n{block}");
        }
    }
}

#[test]
fn links_of_the_guides_lead_somewhere() {
    let mut links = 0;
    for entry in fs::read_dir(guide()).expect("a directory") {
        let page = entry.expect("an entry").path();
        let text = fs::read_to_string(&page).expect("text");
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let path = link.split('#').next().unwrap_or_default();
            if link.contains("://") || path.is_empty() {
                continue;
            }
            assert!(guide().join(path).exists(), "{}: {link}", page.display());
            links += 1;
        }
    }
    assert!(links > 40, "{links}");
}
