//! A trace in a few lines of text: [`summary`]. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::Duration,
};

use fsgather_core::{Rank, duration_text, plain_line, rank_ranges};

use crate::trace::{
    cause::Cause,
    losses::{Losses, losses},
    record::{CallRecord, Outcome},
    status::{RankState, RankStatus, statuses},
    timeline::Timeline,
    world::World,
};

/// Maximum number of ranks without a part in a call that are listed below it.
const MAX_MISSING: usize = 16;

/// Maximum number of ranks whose losses are listed.
const MAX_LOSSES: usize = 10;

/// Returns a time, in microseconds below one millisecond.
#[must_use]
pub fn time_text(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000_000 => format!("{} us", nanoseconds / 1000),
        _ => duration_text(Duration::from_nanos(nanoseconds)),
    }
}

/// Returns a job with its user, if that is another one, and the directory through which its ranks gather: `job 4711 of
/// anna in /shared/scratch`.
#[must_use]
pub fn job_text(world: &World) -> String {
    let job = world.job().map_or_else(
        || "a job without an id".to_owned(),
        |job| format!("job {}", plain_line(job)),
    );
    let user = world
        .user
        .as_ref()
        .map_or_else(String::new, |user| format!(" of {user}"));
    let directory = world
        .directory()
        .map(|directory| directory.display().to_string());
    let place = directory.map_or_else(String::new, |directory| {
        format!(" in {}", plain_line(&directory))
    });
    format!("{job}{user}{place}")
}

/// Returns some lines about the calls of a job, in all worlds in which its ranks have met: calls that have failed or are not over,
/// and the ranks that came last. `now` is the time on the axis; for a job that is over, its end.
#[must_use]
pub fn summary(worlds: &[World], timeline: &Timeline, now: i64) -> String {
    let mut text = head(worlds, timeline);
    text += &unfinished(&statuses(timeline, now));
    text += &costs(&losses(timeline));
    for why in worlds.iter().flat_map(|world| &world.unread) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  not read: {}", plain_line(why));
    }
    text
}

fn head(worlds: &[World], timeline: &Timeline) -> String {
    let job = worlds.last().map(job_text).unwrap_or_default();
    let lines = timeline.lines.iter();
    let mut hosts: Vec<&str> = lines
        .map(|line| line.of.header.process.host.as_str())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let place = match hosts.as_slice() {
        [one] => format!("on {one}"),
        hosts => format!("on {} hosts", hosts.len()),
    };
    let size = worlds.iter().map(World::size).max().unwrap_or_default();
    let lines = timeline.lines.iter();
    let present: BTreeSet<Rank> = lines.map(|line| line.of.rank()).collect();
    let present = present.len();
    let ranks = if u32::try_from(present).is_ok_and(|present| present < size) {
        format!("{present} of {size} ranks have left their calls")
    } else {
        format!("{size} ranks")
    };
    let met = match timeline.worlds() {
        0 | 1 => String::new(),
        times => format!(", which have met {times} times"),
    };
    let span = time_text(u64::try_from(timeline.end()).unwrap_or_default());
    let calls = match timeline.calls().len() {
        1 => "the last call".to_owned(),
        calls => format!("the last {calls} calls"),
    };
    format!("{job}, {ranks} {place}{met}: {calls}, over {span}\n")
}

/// Returns a line for each call that has failed or is not over, and below it the activities of the missing ranks.
fn unfinished(statuses: &[RankStatus]) -> String {
    let is_over = statuses.iter().all(|one| one.state == RankState::Ended);
    let mut calls: BTreeMap<_, Vec<(&RankStatus, &CallRecord)>> = BTreeMap::new();
    for one in statuses {
        let Some(call) = &one.call else { continue };
        let has_failed = call.failed_waiting() || call.cause == Cause::Desync;
        if has_failed || call.is_waiting() && (is_over || one.state != RankState::Ended) {
            let key = (one.world, call.channel, call.epoch, call.name(), &call.site);
            calls.entry(key).or_default().push((one, call));
        }
    }
    let mut text = String::new();
    for ranks in calls.values() {
        let knows_most =
            |(one, _): &&(&RankStatus, &CallRecord)| (!one.waits_for.is_empty(), one.since);
        let Some((first, call)) = ranks.iter().max_by_key(knows_most) else {
            continue;
        };
        let who: Vec<Rank> = ranks.iter().map(|(one, _)| one.rank).collect();
        text += &sentence(&who, first, call);
        let may_be_missing = |one: &&RankStatus| {
            let is_waited_for = first.waits_for.contains(&one.rank);
            one.world == first.world
                && (is_waited_for || first.is_unclear && !who.contains(&one.rank))
        };
        let missing: Vec<_> = statuses.iter().filter(may_be_missing).collect();
        for one in missing.iter().take(MAX_MISSING) {
            let _ = writeln!(text, "  rank {}: {}", one.rank, status_text(one));
        }
        if let more @ 1.. = missing.len().saturating_sub(MAX_MISSING) {
            let _ = writeln!(text, "  and {more} more");
        }
        if !first.may_wait_for.is_empty() {
            let unknown = named_ranks(&first.may_wait_for);
            let _ = writeln!(text, "  nothing is known of {unknown}");
        }
    }
    text
}

/// Returns the line of a call that some ranks have in common, given the one that knows most.
fn sentence(who: &[Rank], first: &RankStatus, call: &CallRecord) -> String {
    let place = place(call);
    let who_text = named_ranks(who);
    let missing = match first.waits_for.as_slice() {
        [] if first.may_wait_for.is_empty() && !first.is_unclear => None,
        [] => Some("others".to_owned()),
        missing => Some(named_ranks(missing)),
    };
    let since = time_text(first.since);
    let verb = if who.len() == 1 { "waits" } else { "wait" };
    match missing {
        _ if call.outcome == Outcome::Failed => {
            let culprit = call.culprit.map(Rank::new);
            let why = match call.cause.words_of(culprit) {
                words if words.is_empty() => words,
                words => format!(" ({words})"),
            };
            let waited = call
                .ended
                .zip(call.handed_in)
                .map(|(ended, handed_in)| ended.saturating_sub(handed_in));
            let waited =
                waited
                    .filter(|_| call.cause != Cause::Desync)
                    .map_or_else(String::new, |waited| {
                        // The culprit is named already.
                        let missing = missing.filter(|_| culprit.is_none());
                        let missing =
                            missing.map_or_else(String::new, |missing| format!(" for {missing}"));
                        format!(" waited{missing}, {}", time_text(waited))
                    });
            format!("{place} has failed{why}: {who_text}{waited}\n")
        }
        Some(missing) if first.state == RankState::Ended => {
            format!("{place}: {who_text} waited for {missing} when they ended\n")
        }
        None if first.state == RankState::Ended => {
            format!("{place}: all ranks had arrived when {who_text} ended\n")
        }
        Some(missing) => format!("{place}: {who_text} {verb} for {missing}, since {since}\n"),
        None => format!("{place}: all ranks have arrived, and {who_text} {verb}, since {since}\n"),
    }
}

/// Returns the activity of a rank, in a few words.
fn status_text(one: &RankStatus) -> String {
    let since = time_text(one.since);
    let Some(call) = &one.call else {
        return format!("{}, before its first call", one.state.word());
    };
    let place = place(call);
    match one.state {
        RankState::Ended if call.ended.is_none() => format!("ended in {place}"),
        RankState::Ended => format!("ended after {place}"),
        RankState::Closed => format!("closed, since {since}"),
        state @ RankState::Computing => format!("{} after {place}, since {since}", state.word()),
        state => format!("{} in {place}, since {since}", state.word()),
    }
}

/// Returns a call with its place in the program: `barrier #2 at eval.py:95`.
fn place(call: &CallRecord) -> String {
    format!("{} at {}", call.name(), call.site)
}

/// Returns ranks as messages name them: `rank 5`, `ranks 0-4 6 7`.
fn named_ranks(ranks: &[Rank]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let ranks: Vec<u32> = ranks.iter().map(|rank| rank.get()).collect();
    format!("{word} {}", rank_ranges(&ranks))
}

fn costs(losses: &Losses) -> String {
    if losses.calls == 0 {
        return "no call can be compared\n".to_owned();
    }
    let mut text = String::new();
    let costly: Vec<_> = losses.ranks.iter().filter(|loss| loss.cost > 0).collect();
    for loss in costly.iter().take(MAX_LOSSES) {
        let between = match &loss.between {
            None => String::new(),
            Some((from, to)) if from == to => format!(", mostly before calls at {to}"),
            Some((from, to)) => format!(", mostly between {from} and {to}"),
        };
        let cost = time_text(loss.cost);
        let (rank, last, calls) = (loss.rank, loss.last, losses.calls);
        let _ = writeln!(
            text,
            "rank {rank} came last in {last} of {calls} calls and cost the others {cost}{between}"
        );
    }
    if let more @ 1.. = costly.len().saturating_sub(MAX_LOSSES) {
        let _ = writeln!(text, "  and {more} more, which cost less");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{
        black_box::BlackBox,
        losses::RankLoss,
        timeline::tests::{call, left},
    };
    use uuid::Uuid;

    /// A rank that has made one call, and waits in the second one.
    fn waiting(rank: u32, is_running: bool) -> BlackBox {
        let mut second = call(1, "eval.py:95", [20, 21, 0]);
        (second.decided, second.ended, second.outcome) = (None, None, Outcome::Open);
        let mut left = left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 400]), second]);
        left.is_running = Some(is_running);
        left
    }

    /// A rank that has made the first call, last of all.
    fn late(rank: u32, is_running: bool) -> BlackBox {
        let mut left = left(rank, 1, vec![call(0, "eval.py:80", [1, 390, 400])]);
        left.is_running = Some(is_running);
        left
    }

    fn world(boxes: Vec<BlackBox>) -> World {
        let mut world = World::new(Uuid::from_u128(7));
        world.boxes = boxes;
        world
    }

    /// The lines about calls that have failed or are not over.
    fn unfinished_calls(boxes: Vec<BlackBox>) -> String {
        let timeline = Timeline::new(boxes);
        unfinished(&statuses(&timeline, timeline.end()))
    }

    #[test]
    fn hanging_job_has_a_line_for_each_fact() {
        let mut boxes = vec![waiting(0, true), late(1, true), waiting(2, true)];
        boxes[0].header.directory = Some("/shared/scratch".into());
        let timeline = Timeline::new(boxes.clone());
        let now = timeline.at(0, 21_000) + 2_460_000_000_000;
        assert_eq!(
            summary(&[world(boxes)], &timeline, now),
            "a job without an id in /shared/scratch, 3 ranks on 3 hosts: the last 2 calls, over 400 us\n\
             barrier #2 at eval.py:95: ranks 0 2 wait for rank 1, since 41 min\n  \
             rank 1: computing after barrier #1 at eval.py:80, since 40 min 59 s\n\
             rank 1 came last in 1 of 1 calls and cost the others 796 us\n"
        );
    }

    #[test]
    fn names_of_others_stay_within_their_line() {
        let mut only = left(0, 1, vec![call(0, "eval.py:80", [1, 2, 400])]);
        only.header.job = Some("evil\nfsgather: rank 9: \u{1b}[31mred".into());
        only.header.directory = Some("/a\nb".into());
        let timeline = Timeline::new(vec![only.clone()]);
        let mut world = world(vec![only]);
        world.unread = vec!["/a\nb: it is damaged".into()];
        let text = summary(&[world], &timeline, timeline.end());
        let head = "job evil?fsgather: rank 9: ?[31mred in /a?b, 1 of 3 ranks";
        assert!(text.starts_with(head), "{text}");
        let end = "\n  not read: /a?b: it is damaged\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn ended_job_shows_which_ranks_waited_for_which() {
        assert_eq!(
            unfinished_calls(vec![waiting(0, false), late(1, false), waiting(2, false)]),
            "barrier #2 at eval.py:95: ranks 0 2 waited for rank 1 when they ended\n  \
             rank 1: ended after barrier #1 at eval.py:80\n"
        );
    }

    #[test]
    fn complete_call_waits_for_no_rank() {
        let all = |is_running| (0..3).map(|rank| waiting(rank, is_running)).collect();
        assert_eq!(
            unfinished_calls(all(false)),
            "barrier #2 at eval.py:95: all ranks had arrived when ranks 0-2 ended\n"
        );
        let text = unfinished_calls(all(true));
        let running =
            "barrier #2 at eval.py:95: all ranks have arrived, and ranks 0-2 wait, since ";
        assert!(text.starts_with(running), "{text}");
        // One has learned that all have arrived, and two have not.
        let mut decided = waiting(2, false);
        decided.records[1] = call(1, "eval.py:95", [20, 21, 25]);
        assert_eq!(
            unfinished_calls(vec![waiting(0, false), waiting(1, false), decided]),
            "barrier #2 at eval.py:95: all ranks had arrived when ranks 0 1 ended\n"
        );
        let failed = |rank| {
            let mut left = waiting(rank, false);
            (left.records[1].outcome, left.records[1].cause) = (Outcome::Failed, Cause::Timeout);
            left.records[1].ended = Some(40_000);
            left
        };
        let text = unfinished_calls((0..3).map(failed).collect());
        let failed = "barrier #2 at eval.py:95 has failed (timed out): ranks 0-2 waited, ";
        assert!(text.starts_with(failed), "{text}");
    }

    #[test]
    fn failed_call_blames_only_the_rank_that_caused_it() {
        let failed = |rank| {
            let mut first = call(0, "eval.py:95", [20, 21, 40]);
            (first.decided, first.outcome) = (None, Outcome::Failed);
            (first.cause, first.culprit) = (Cause::Departed, Some(2));
            left(rank, 1, vec![first])
        };
        // Rank 1 has not arrived because the call had failed by then.
        assert_eq!(
            unfinished_calls(vec![failed(0), left(1, 1, Vec::new())]),
            "barrier #1 at eval.py:95 has failed (rank 2 had already left): rank 0 waited, 20 us\n  \
             nothing is known of rank 2\n"
        );
        assert_eq!(
            unfinished_calls(vec![failed(0), failed(1), left(2, 1, Vec::new())]),
            "barrier #1 at eval.py:95 has failed (rank 2 had already left): ranks 0 1 waited, 20 us\n  \
             rank 2: computing, before its first call\n"
        );
    }

    #[test]
    fn ranks_without_calls_are_unknown() {
        let timeline = Timeline::new(vec![waiting(1, true)]);
        let now = timeline.at(0, 21_000) + 60_000_000_000;
        assert_eq!(
            unfinished(&statuses(&timeline, now)),
            "barrier #2 at eval.py:95: rank 1 waits for others, since 1 min\n  nothing is known of ranks 0 2\n"
        );
    }

    #[test]
    fn different_calls_have_a_line_each() {
        let apart = |rank, operation: &str, site| {
            let mut second = call(1, site, [20, 21, 0]);
            (second.decided, second.outcome) = (None, Outcome::Failed);
            (second.cause, second.operation) = (Cause::Desync, operation.into());
            left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 400]), second])
        };
        assert_eq!(
            unfinished_calls(vec![
                apart(0, "barrier", "eval.py:95"),
                apart(1, "all_gather", "save.py:7"),
                apart(2, "barrier", "eval.py:95"),
            ]),
            "all_gather #2 at save.py:7 has failed (ranks were in different calls): rank 1\n\
             barrier #2 at eval.py:95 has failed (ranks were in different calls): ranks 0 2\n"
        );
    }

    #[test]
    fn only_ten_losses_are_listed() {
        let loss = |rank| RankLoss {
            rank: Rank::new(rank),
            last: 1,
            cost: u64::from(rank != 0),
            between: None,
        };
        let line = |count: u32| {
            let losses = Losses {
                calls: 20,
                ranks: (0..=count).map(loss).collect(),
            };
            costs(&losses).lines().nth(10).map(str::to_owned)
        };
        assert_eq!(line(10), None);
        assert_eq!(line(12).as_deref(), Some("  and 2 more, which cost less"));
    }

    #[test]
    fn short_times_are_in_microseconds() {
        for (nanoseconds, text) in [
            (1_500, "1 us"),
            (2_460_000, "2 ms"),
            (1_830_000_000, "1.8 s"),
            (2_460_000_000_000, "41 min"),
        ] {
            assert_eq!(time_text(nanoseconds), text);
        }
    }

    #[test]
    fn ranks_that_may_be_missing_from_a_group_are_listed() {
        let mut first = waiting(0, true);
        let call = first.records.last_mut().unwrap();
        (call.channel, call.ranks) = (5, 2);
        let boxes = vec![first, late(1, true), late(2, true)];
        let timeline = Timeline::new(boxes.clone());
        let now = timeline.at(0, 21_000) + 5_000;
        let text = summary(&[world(boxes)], &timeline, now);
        assert!(text.contains(": rank 0 waits for others, "), "{text}");
        for rank in [1, 2] {
            let listed = format!("\n  rank {rank}: computing after barrier #1 at eval.py:80, ");
            assert!(text.contains(&listed), "{text}");
        }
    }
}
