//! Shows people what ranks are at.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use fsgather_core::{Rank, RollCall, bytes_text, duration_text, rank_ranges};
use fsgather_observe::trace::now::{Doing, Standing};

use super::Seen;
use crate::{
    colour::Hue,
    table::{Cell, Narrowing, Side, TableStyle, TextTable, plain},
};

/// So many ranks have a row each; of more, those that are alike share one.
const MOST_ROWS: usize = 12;

/// All jobs that were seen.
pub(super) fn text(seen: &[Seen], long: bool, look: &TableStyle) -> String {
    let jobs: Vec<String> = seen.iter().map(|seen| job(seen, long, look)).collect();
    jobs.join("\n")
}

/// How many jobs are told of that cannot be read.
const MOST_UNREAD: usize = 10;

/// Of jobs of which nothing can be read: why. Nothing where there are none.
pub(super) fn unread(files: &[String]) -> String {
    let mut text = String::new();
    for why in files.iter().take(MOST_UNREAD) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  not read: {}", plain(why));
    }
    if let more @ 1.. = files.len().saturating_sub(MOST_UNREAD) {
        let _ = writeln!(text, "  and {more} more");
    }
    text
}

fn job(seen: &Seen, long: bool, look: &TableStyle) -> String {
    let world = &seen.world;
    let name = world.job().map_or_else(
        || "a job without an id".to_owned(),
        |job| format!("job {}", plain(job)),
    );
    let (known, size) = (seen.standings.len(), world.size());
    let ranks = if u32::try_from(known) == Ok(size) {
        format!("{size} ranks")
    } else {
        format!("{known} of {size} ranks seen from here")
    };
    let mut text = format!("{name}: {ranks}, met {} ago\n", coarse(seen.age));
    text += &table(&seen.standings, long, look);
    for why in &world.unread {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  not read: {}", plain(why));
    }
    match (&seen.stacks, &seen.problem) {
        (Some(told), _) if told.is_empty() => {
            text += "  no rank says what it is doing; FSGATHER_STACKS=0 may be set\n";
        }
        (Some(told), _) => {
            text += &stacks(told, &seen.standings);
        }
        (None, Some(problem)) => {
            let _ = writeln!(text, "  {problem}");
        }
        (None, None) => {}
    }
    text
}

/// What ranks are doing, and since when those that are outside of calls.
fn stacks(told: &RollCall, standings: &[Standing]) -> String {
    let mut text = String::new();
    // A line for each group, and one for what is left out.
    let lines = told.to_string();
    let mut groups = told.groups.iter();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let ranks = groups.next().map_or(&[][..], |(ranks, _)| ranks);
        let after = after(ranks, standings).unwrap_or_default();
        let _ = writeln!(text, "{line}{after}");
    }
    text
}

/// After which call some ranks have gone on with their program, and for how long, if that is the same call for all of them:
/// `, 41 min after all_gather #312 at eval.py:95`.
fn after(ranks: &[Rank], standings: &[Standing]) -> Option<String> {
    let of = |rank: &Rank| standings.iter().find(|one| one.rank == *rank);
    let all: Option<Vec<&Standing>> = ranks.iter().map(of).collect();
    let all = all?;
    let call = all.first()?.call.as_ref()?;
    let is_alike = |one: &&Standing| {
        let its = one.call.as_ref();
        one.doing == Doing::Computing
            && its.is_some_and(|its| its.name() == call.name() && its.site == call.site)
    };
    let since = all.iter().map(|one| one.since).max()?;
    let place = plain(&format!("{} at {}", call.name(), call.site));
    let since = coarse(since);
    all.iter()
        .all(is_alike)
        .then(|| format!(", {since} after {place}"))
}

/// What ranks that are alike have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike<'a> {
    doing: Doing,
    call: Option<(String, &'a str)>,
    waits_for: &'a [Rank],
    may_wait_for: &'a [Rank],
    is_unclear: bool,
}

fn table(standings: &[Standing], long: bool, look: &TableStyle) -> String {
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
    let mut rows: BTreeMap<(usize, Alike<'_>), Vec<&Standing>> = BTreeMap::new();
    let is_each = long || standings.len() <= MOST_ROWS;
    for (at, one) in standings.iter().enumerate() {
        let alike = Alike {
            doing: one.doing,
            call: one
                .call
                .as_ref()
                .map(|call| (call.name(), call.site.as_str())),
            waits_for: &one.waits_for,
            may_wait_for: &one.may_wait_for,
            is_unclear: one.is_unclear,
        };
        let own = if is_each { at } else { 0 };
        rows.entry((own, alike)).or_default().push(one);
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, all)| all.first().map(|one| one.rank));
    for ((_, alike), all) in rows {
        table.row(row(&alike, &all), None);
    }
    table.fitted(
        look,
        &[
            Narrowing::Shorten("AT"),
            Narrowing::Drop("MOVED"),
            Narrowing::Drop("PID"),
            Narrowing::Drop("HOST"),
        ],
    )
}

fn row(alike: &Alike<'_>, all: &[&Standing]) -> Vec<Cell> {
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
    let hue = match alike.doing {
        Doing::Ended => Hue::Bad,
        Doing::Waiting | Doing::Closed => Hue::Stale,
        _ => Hue::Good,
    };
    let longest = all.iter().map(|one| one.since).max().unwrap_or_default();
    let moved = all.iter().map(|one| one.moved).fold(0, u64::saturating_add);
    let (call, site) = match &alike.call {
        Some((call, site)) => (call.clone(), plain(site)),
        None => (String::new(), String::new()),
    };
    let call = match alike.doing {
        Doing::Computing if !call.is_empty() => format!("after {call}"),
        _ => call,
    };
    let mut whom = numbers(alike.waits_for);
    for rank in numbers(alike.may_wait_for).split_whitespace() {
        let space = if whom.is_empty() { "" } else { " " };
        let _ = write!(whom, "{space}{rank}?");
    }
    if alike.is_unclear && whom.is_empty() {
        whom += "others";
    }
    let short = site.rsplit('/').next().unwrap_or_default().to_owned();
    vec![
        numbers(&ranks).into(),
        host.into(),
        pid.into(),
        Cell::painted(alike.doing.word(), hue),
        coarse(longest).into(),
        plain(&call).into(),
        Cell::or(site, short),
        bytes_text(moved).into(),
        whom.into(),
    ]
}

/// A time, in whole seconds above one.
fn coarse(nanoseconds: u64) -> String {
    let time = Duration::from_nanos(nanoseconds);
    if time < Duration::from_secs(1) {
        return format!("{} ms", time.as_millis());
    }
    duration_text(Duration::from_secs(time.as_secs()))
}
