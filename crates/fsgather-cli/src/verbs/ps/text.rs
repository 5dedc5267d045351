//! The text of `ps`.

use std::{collections::BTreeMap, fmt::Write};

use fsgather_core::{Rank, bytes_text, rank_ranges};
use fsgather_observe::trace::{
    status::{RankState, RankStatus},
    text::{job_text, time_text},
};

use super::job::ObservedJob;
use crate::{
    colour::Hue,
    table::{Cell, Narrowing, Side, TableStyle, TextTable, plain},
};

/// Maximum number of ranks that have a row each; more share rows.
const MAX_SINGLE_ROWS: usize = 12;

/// Maximum number of jobs that cannot be read and are listed.
const MAX_UNREAD_JOBS: usize = 10;

/// Returns the text of all jobs.
pub(super) fn text(jobs: &[ObservedJob], long: bool, style: &TableStyle) -> String {
    let jobs: Vec<String> = jobs.iter().map(|job| job_table(job, long, style)).collect();
    jobs.join("\n")
}

/// Returns the reasons for which jobs cannot be read; empty without one.
pub(super) fn unread(files: &[String]) -> String {
    let mut text = String::new();
    for why in files.iter().take(MAX_UNREAD_JOBS) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  not read: {}", plain(why));
    }
    if let more @ 1.. = files.len().saturating_sub(MAX_UNREAD_JOBS) {
        let _ = writeln!(text, "  and {more} more");
    }
    text
}

fn job_table(job: &ObservedJob, long: bool, style: &TableStyle) -> String {
    let world = &job.world;
    let (known, size) = (job.statuses.len(), world.size());
    let ranks = if u32::try_from(known) == Ok(size) {
        format!("{size} ranks")
    } else {
        format!("{known} of {size} ranks seen from here")
    };
    let age = time_text(job.age);
    let mut text = format!("{}: {ranks}, met {age} ago\n", job_text(world));
    text += &table(&job.statuses, long, style);
    for why in &world.unread {
        let _ = writeln!(text, "  not read: {}", plain(why));
    }
    match (&job.stacks, &job.problem) {
        (Some(stacks), _) if stacks.is_empty() => {
            text += "  no rank reports what it does; FSGATHER_STACKS=0 may be set\n";
        }
        (Some(stacks), _) => {
            let _ = writeln!(text, "{}", stacks.to_string().trim_start_matches('\n'));
        }
        (None, Some(problem)) => {
            let _ = writeln!(text, "  {problem}");
        }
        (None, None) => {}
    }
    text
}

/// The properties that the ranks of a row have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RowKey<'a> {
    state: RankState,
    call: Option<(String, &'a str)>,
    waits_for: &'a [Rank],
    may_wait_for: &'a [Rank],
    is_unclear: bool,
}

fn table(statuses: &[RankStatus], long: bool, style: &TableStyle) -> String {
    let mut table = TextTable::new(&[
        ("RANK", Side::Left),
        ("HOST", Side::Left),
        ("PID", Side::Right),
        ("DOING", Side::Left),
        ("SINCE", Side::Right),
        ("CALL", Side::Left),
        ("AT", Side::Left),
        ("MOVED", Side::Right),
        ("WAITS FOR", Side::Left),
    ]);
    let mut rows: BTreeMap<(usize, RowKey<'_>), Vec<&RankStatus>> = BTreeMap::new();
    let is_single = long || statuses.len() <= MAX_SINGLE_ROWS;
    for (at, one) in statuses.iter().enumerate() {
        let key = RowKey {
            state: one.state,
            call: one
                .call
                .as_ref()
                .map(|call| (call.name(), call.site.as_str())),
            waits_for: &one.waits_for,
            may_wait_for: &one.may_wait_for,
            is_unclear: one.is_unclear,
        };
        let own = if is_single { at } else { 0 };
        rows.entry((own, key)).or_default().push(one);
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, all)| all.first().map(|one| one.rank));
    for ((_, key), all) in rows {
        table.row(row(&key, &all), None);
    }
    table.fitted(
        style,
        &[
            Narrowing::Shorten("AT"),
            Narrowing::Drop("MOVED"),
            Narrowing::Drop("PID"),
            Narrowing::Drop("HOST"),
        ],
    )
}

fn row(key: &RowKey<'_>, all: &[&RankStatus]) -> Vec<Cell> {
    let numbers = |ranks: &[Rank]| {
        let ranks: Vec<u32> = ranks.iter().map(|rank| rank.get()).collect();
        rank_ranges(&ranks)
    };
    let ranks: Vec<Rank> = all.iter().map(|one| one.rank).collect();
    let mut hosts: Vec<&str> = all.iter().map(|one| one.process.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let host = match hosts.as_slice() {
        [one] => plain(one),
        hosts => format!("{} hosts", hosts.len()),
    };
    let pid = match all {
        [one] => one.process.pid.to_string(),
        _ => String::new(),
    };
    let hue = match key.state {
        RankState::Ended => Hue::Bad,
        RankState::Waiting | RankState::Closed => Hue::Stale,
        _ => Hue::Good,
    };
    let longest = all.iter().map(|one| one.since).max().unwrap_or_default();
    let moved = all.iter().map(|one| one.moved).fold(0, u64::saturating_add);
    let (call, site) = match &key.call {
        Some((call, site)) => (call.clone(), plain(site)),
        None => (String::new(), String::new()),
    };
    let call = match key.state {
        RankState::Computing if !call.is_empty() => format!("after {call}"),
        _ => call,
    };
    let mut awaited = numbers(key.waits_for);
    for rank in numbers(key.may_wait_for).split_whitespace() {
        let space = if awaited.is_empty() { "" } else { " " };
        let _ = write!(awaited, "{space}{rank}?");
    }
    if key.is_unclear && awaited.is_empty() {
        awaited += "others";
    }
    let short = site.rsplit('/').next().unwrap_or_default().to_owned();
    vec![
        numbers(&ranks).into(),
        host.into(),
        pid.into(),
        Cell::painted(key.state.word(), hue),
        time_text(longest).into(),
        plain(&call).into(),
        Cell::or(site, short),
        bytes_text(moved).into(),
        awaited.into(),
    ]
}
