//! Judges the file system of the directory by the facts of all ranks: free space and speed.

use fsgather_core::bytes_text;
use fsgather_store::Capacity;

use super::text;
use crate::doctor::{
    advice::NAME_ANOTHER,
    facts::{DirectoryFacts, PayloadFacts, RankFacts, numbers},
    finding::{Finding, Topic},
};

/// Free space below this is worth a warning, in bytes.
const LITTLE_ROOM: u64 = 64 << 20;

/// A smaller number of free inodes is worth a warning: a gather uses some for each rank.
const FEW_INODES: u64 = 1000;

pub(super) fn findings(ranks: &[RankFacts]) -> Vec<Finding> {
    let all = || ranks.iter().filter_map(|facts| facts.directory.as_ref());
    let mut findings: Vec<Finding> = Vec::new();
    // Free space in an unusable directory does not matter.
    let usable = || all().filter(|facts| facts.problem.is_none());
    findings.extend(room(usable()));
    findings.extend(writing(all()));
    findings.extend(all().find_map(|facts| facts.payload.as_ref()).map(payload));
    findings
        .into_iter()
        .map(|finding| finding.of(numbers(ranks)))
        .collect()
}

fn room<'a>(mut all: impl Iterator<Item = &'a DirectoryFacts>) -> Option<Finding> {
    let first = all.next()?;
    let source = |facts: &DirectoryFacts| facts.mount.as_ref().map(|mount| mount.source.clone());
    // Free space on other file systems does not count.
    let same = all.filter(|facts| source(facts) == source(first));
    let capacities = std::iter::once(first)
        .chain(same)
        .filter_map(|facts| facts.capacity);
    let Capacity {
        total_bytes,
        free_bytes,
        total_inodes,
        free_inodes,
    } = capacities.min_by_key(|capacity| capacity.free_bytes)?;
    // Some mounts report no free inodes, but still create files.
    let is_counted = total_inodes > 0 && (free_inodes > 0 || first.write_seconds.is_none());
    let inodes = if is_counted {
        format!("{free_inodes} of {total_inodes} inodes")
    } else {
        "inodes are not counted".to_owned()
    };
    let text = format!(
        "{} of {} are free, {inodes}; quotas do not show here",
        bytes_text(free_bytes),
        bytes_text(total_bytes)
    );
    let is_short = free_bytes < LITTLE_ROOM || (is_counted && free_inodes < FEW_INODES);
    Some(if is_short {
        let text = format!("only {text}; payloads that need more cannot be written");
        let advice = if total_bytes < 2 * LITTLE_ROOM {
            "name a larger directory with FSGATHER_DIR"
        } else {
            "make room, or name another directory with FSGATHER_DIR"
        };
        Finding::warning(Topic::Directory, text, advice)
    } else {
        Finding::ok(Topic::Directory, text)
    })
}

fn writing<'a>(all: impl Iterator<Item = &'a DirectoryFacts>) -> Option<Finding> {
    let slowest = all
        .filter_map(|facts| facts.write_seconds)
        .reduce(f64::max)?;
    let text = format!(
        "a small file is written, synced and removed within {}",
        text::seconds(slowest)
    );
    Some(if slowest < 1.0 {
        Finding::ok(Topic::Directory, text)
    } else {
        Finding::warning(
            Topic::Directory,
            text,
            "files are slow here: FSGATHER_INLINE_LIMIT=1MiB makes fewer of them, FSGATHER_TRANSPORT=memory none",
        )
    })
}

fn payload(facts: &PayloadFacts) -> Finding {
    if let Some(problem) = &facts.problem {
        return Finding::error(Topic::Directory, problem, NAME_ANOTHER);
    }
    let links = if facts.has_links {
        "hard links can be made"
    } else {
        "hard links cannot be made"
    };
    let way = match facts.publish.as_str() {
        "rename" => format!("renaming works, {links}"),
        "link" => "renaming does not work, so files get their names by hard links".to_owned(),
        _ => "neither renaming nor hard links work, so files are written under their final names"
            .to_owned(),
    };
    let reading = match facts.read {
        None => String::new(),
        Some(read) => format!(
            " and {} in {}",
            if read.mapped {
                "mapped"
            } else {
                "read into memory"
            },
            text::seconds(read.seconds)
        ),
    };
    let text = format!(
        "{way}; a payload of {} was published in {}{reading}",
        bytes_text(facts.bytes),
        text::seconds(facts.write_seconds)
    );
    if facts.publish == "rename" {
        Finding::ok(Topic::Directory, text)
    } else {
        Finding::note(Topic::Directory, text)
    }
}
