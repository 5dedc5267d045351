//! A trace in a few lines of text: [`summary`]. Pure.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use fsgather_core::{Rank, duration_text, plain_line};

use crate::trace::{
    black_box::World,
    cause::Cause,
    losses::{Losses, losses},
    now::{Doing, Standing, named_ranks, standings},
    timeline::Timeline,
};

/// How many ranks are blamed by name.
const MOST: usize = 10;

/// A duration, to a precision that people care for.
#[must_use]
pub fn nanoseconds_text(nanoseconds: u64) -> String {
    let duration = Duration::from_nanos(nanoseconds);
    #[expect(
        clippy::cast_precision_loss,
        reason = "one digit behind the point is shown"
    )]
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000_000 => format!("{:.0} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        1_000_000_000..60_000_000_000 => format!("{:.1} s", value / 1e9),
        _ => duration_text(Duration::from_secs(duration.as_secs())),
    }
}

/// What the calls of a job come to, in some lines: of one world, or of several that it has met in. `now` is the time on the
/// axis; for a job that is over, its end.
#[must_use]
pub fn summary(worlds: &[World], timeline: &Timeline, now: i64) -> String {
    let mut text = head(worlds, timeline);
    text += &open(&standings(timeline, now));
    text += &lost(&losses(timeline));
    for why in worlds.iter().flat_map(|world| &world.unread) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "  not read: {}", plain_line(why));
    }
    text
}

fn head(worlds: &[World], timeline: &Timeline) -> String {
    let job = worlds.iter().find_map(World::job).map_or_else(
        || "a job without an id".to_owned(),
        |job| format!("job {}", plain_line(job)),
    );
    let mut hosts: Vec<&str> = timeline
        .lines
        .iter()
        .map(|line| line.of.header.process.host.as_str())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let place = match hosts.as_slice() {
        [one] => format!("on {one}"),
        hosts => format!("on {} hosts", hosts.len()),
    };
    let size = worlds.iter().map(World::size).max().unwrap_or_default();
    let present = timeline.rows().len();
    let ranks = if u32::try_from(present).is_ok_and(|present| present < size) {
        format!("{present} of {size} ranks have left their calls")
    } else {
        format!("{size} ranks")
    };
    let met = match timeline.worlds() {
        0 | 1 => String::new(),
        times => format!(", which have met {times} times"),
    };
    let span = nanoseconds_text(u64::try_from(timeline.end()).unwrap_or_default());
    let calls = timeline.calls().len();
    let last = match calls {
        1 => "call".to_owned(),
        calls => format!("{calls} calls"),
    };
    format!("{job}, {ranks} {place}{met}: the last {last}, over {span}\n")
}

/// Calls that are not over, or have failed, and who is missing in them.
fn open(standings: &[Standing]) -> String {
    let mut text = String::new();
    let is_over = standings.iter().all(|one| one.doing == Doing::Ended);
    let mut waiting: BTreeMap<(usize, u64, u64), Vec<&Standing>> = BTreeMap::new();
    let mut apart: BTreeMap<(usize, u64, u64), Vec<&Standing>> = BTreeMap::new();
    for one in standings {
        if let Some(call) = one.call.as_ref().filter(|call| call.cause == Cause::Desync) {
            let key = (one.world, call.channel, call.epoch);
            apart.entry(key).or_default().push(one);
            continue;
        }
        if let Some(call) = &one.call
            && (call.is_waiting() || call.failed_waiting())
            && (one.doing != Doing::Ended || call.failed_waiting() || is_over)
        {
            let key = (one.world, call.channel, call.epoch);
            waiting.entry(key).or_default().push(one);
        }
    }
    for ranks in apart.values() {
        text += &different_calls(ranks);
    }
    for ranks in waiting.values() {
        let is_first = |one: &&&Standing| (!one.waits_for.is_empty(), one.since);
        let Some((first, call)) = ranks
            .iter()
            .max_by_key(is_first)
            .and_then(|first| Some((first, first.call.as_ref()?)))
        else {
            continue;
        };
        let who: Vec<Rank> = ranks.iter().map(|one| one.rank).collect();
        let whom = match first.waits_for.as_slice() {
            [] if first.may_wait_for.is_empty() && !first.is_unclear => None,
            [] => Some("others".to_owned()),
            missing => Some(named_ranks(missing)),
        };
        let place = format!("{} at {}", call.name(), call.site);
        let who_text = named_ranks(&who);
        let _ = if call.failed_waiting() {
            let waited = call
                .ended
                .unwrap_or_default()
                .saturating_sub(call.handed_in.unwrap_or_default());
            let waited = nanoseconds_text(waited);
            let culprit = call.culprit.map(Rank::new);
            let why = match call.cause.words_of(culprit) {
                words if words.is_empty() => words,
                words => format!(" ({words})"),
            };
            // Whose doing it is stands there already.
            let whom = whom.filter(|_| culprit.is_none());
            let whom = whom.map_or_else(String::new, |whom| format!(" for {whom}"));
            writeln!(
                text,
                "{place} has failed{why}: {who_text} waited{whom}, {waited}"
            )
        } else if first.doing == Doing::Ended {
            match whom {
                Some(whom) => {
                    let waited = at_least(first.since);
                    writeln!(
                        text,
                        "{place}: {who_text} waited for {whom} as they ended{waited}"
                    )
                }
                None => writeln!(text, "{place}: all had come as {who_text} ended"),
            }
        } else {
            let verb = if who.len() == 1 { "waits" } else { "wait" };
            let since = nanoseconds_text(first.since);
            match whom {
                Some(whom) => {
                    writeln!(text, "{place}: {who_text} {verb} for {whom}, since {since}")
                }
                None => writeln!(
                    text,
                    "{place}: all have come, and {who_text} {verb}, since {since}"
                ),
            }
        };
        for missing in &first.waits_for {
            let of_world = |one: &&Standing| one.world == first.world && one.rank == *missing;
            if let Some(one) = standings.iter().find(of_world) {
                let _ = writeln!(text, "  rank {missing}: {}", standing_text(one));
            }
        }
        if !first.may_wait_for.is_empty() {
            let unknown = named_ranks(&first.may_wait_for);
            let _ = writeln!(text, "  nothing is known of {unknown}");
        }
    }
    text
}

/// For how long ranks have waited that have ended meanwhile: nobody notes when a process ends, so that it is told until when
/// others have noted something. That may be soon before, between two calls of a job that was as well as ever.
fn at_least(nanoseconds: u64) -> String {
    const LONG: u64 = 1_000_000_000;
    match nanoseconds {
        0..LONG => ", for how long is not known".to_owned(),
        _ => format!(", for {} at least", nanoseconds_text(nanoseconds)),
    }
}

/// The calls of ranks that were in different ones.
fn different_calls(ranks: &[&Standing]) -> String {
    let mut places: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
    for one in ranks {
        if let Some(call) = &one.call {
            let place = format!("{} at {}", call.name(), call.site);
            places.entry(place).or_default().push(one.rank);
        }
    }
    // What else differs, such as a tag, is in their errors alone.
    let mut text = match places.len() {
        1 => "ranks were in calls that differ in what their errors say:\n".to_owned(),
        _ => "ranks were in different calls:\n".to_owned(),
    };
    let mut places: Vec<(String, Vec<Rank>)> = places.into_iter().collect();
    places.sort_by_key(|(_, ranks)| ranks.first().copied());
    for (place, ranks) in places.iter().take(MOST) {
        let _ = writeln!(text, "  {}: {place}", named_ranks(ranks));
    }
    match places.len().saturating_sub(MOST) {
        0 => {}
        more => {
            let _ = writeln!(text, "  {more} more of their calls differ");
        }
    }
    text
}

/// What a rank is at, in a few words.
#[must_use]
pub fn standing_text(one: &Standing) -> String {
    let since = nanoseconds_text(one.since);
    let place = one.call.as_ref().map_or_else(String::new, |call| {
        format!("{} at {}", call.name(), call.site)
    });
    match (one.doing, place.as_str()) {
        (Doing::Ended, "") => "has ended before its first call".to_owned(),
        (Doing::Ended, _) if one.call.as_ref().is_some_and(|call| call.ended.is_none()) => {
            format!("has ended in {place}")
        }
        (Doing::Ended, _) => format!("has ended after {place}"),
        (Doing::Closed, _) => format!("closed, since {since}"),
        (doing @ Doing::Computing, "") => format!("{}, before its first call", doing.word()),
        (doing @ Doing::Computing, _) => format!("{} after {place}, since {since}", doing.word()),
        (doing, _) => format!("{} in {place}, since {since}", doing.word()),
    }
}

fn lost(losses: &Losses) -> String {
    if losses.calls == 0 {
        return "no call can be compared\n".to_owned();
    }
    let mut text = String::new();
    let mut ranks = losses.ranks.iter().filter(|loss| loss.cost > 0);
    for loss in ranks.by_ref().take(MOST) {
        let _ = write!(
            text,
            "rank {} came last in {} of {} calls and cost the others {}",
            loss.rank,
            loss.last,
            losses.calls,
            nanoseconds_text(loss.cost)
        );
        let _ = match &loss.between {
            None => writeln!(text),
            Some((from, to, cost)) => {
                let part = if *cost == loss.cost {
                    String::new()
                } else {
                    format!("of that {} ", nanoseconds_text(*cost))
                };
                if from == to {
                    writeln!(text, ", {part}before calls at {to}")
                } else {
                    writeln!(text, ", {part}between {from} and {to}")
                }
            }
        };
    }
    match ranks.count() {
        0 => {}
        1 => text += "1 more rank cost less\n",
        more => {
            let _ = writeln!(text, "{more} more ranks cost less");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{
        record::Outcome,
        timeline::tests::{call, left},
    };
    use uuid::Uuid;

    #[test]
    fn a_hanging_job_is_told_in_a_few_lines() {
        let waiting = |rank| {
            let mut second = call(1, "eval.py:95", [20, 21, 0]);
            (second.decided, second.ended, second.outcome) = (None, None, Outcome::Open);
            left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 400]), second])
        };
        let late = left(1, 1, vec![call(0, "eval.py:80", [1, 390, 400])]);
        let boxes = vec![waiting(0), late, waiting(2)];
        let timeline = Timeline::new(boxes.clone());
        let mut world = World::new(Uuid::from_u128(7));
        world.boxes = boxes;
        let now = timeline.at(0, 21_000) + 2_460_000_000_000;
        assert_eq!(
            summary(&[world], &timeline, now),
            "a job without an id, 3 ranks on 3 hosts: the last 2 calls, over 400 us\n\
             barrier #2 at eval.py:95: ranks 0 2 wait for rank 1, since 41 min\n  \
             rank 1: computing after barrier #1 at eval.py:80, since 40 min 59 s\n\
             rank 1 came last in 1 of 1 calls and cost the others 796 us\n"
        );
    }

    #[test]
    fn the_name_of_a_job_stays_within_its_line() {
        let mut only = left(0, 1, vec![call(0, "eval.py:80", [1, 2, 400])]);
        only.header.job = Some("evil\nfsgather: rank 9: \u{1b}[31mred".into());
        let timeline = Timeline::new(vec![only.clone()]);
        let mut world = World::new(Uuid::from_u128(7));
        world.boxes = vec![only];
        world.unread = vec!["/a\nb: it is damaged".into()];
        let text = summary(&[world], &timeline, timeline.end());
        assert!(
            text.starts_with("job evil?fsgather: rank 9: ?[31mred, 1 of 3 ranks"),
            "{text}"
        );
        assert!(
            text.ends_with("\n  not read: /a?b: it is damaged\n"),
            "{text}"
        );
    }

    #[test]
    fn of_a_job_that_was_ended_as_a_whole_it_is_told_who_waited_for_whom() {
        let waiting = |rank| {
            let mut second = call(1, "eval.py:95", [20, 21, 0]);
            (second.decided, second.ended, second.outcome) = (None, None, Outcome::Open);
            left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 400]), second])
        };
        let late = left(1, 1, vec![call(0, "eval.py:80", [1, 390, 400])]);
        let mut boxes = vec![waiting(0), late, waiting(2)];
        for left in &mut boxes {
            left.is_running = Some(false);
        }
        let timeline = Timeline::new(boxes);
        assert_eq!(
            open(&standings(&timeline, timeline.end())),
            "barrier #2 at eval.py:95: ranks 0 2 waited for rank 1 as they ended, for how long is not known\n  \
             rank 1: has ended after barrier #1 at eval.py:80\n"
        );
    }

    #[test]
    fn of_ranks_that_ended_it_is_told_how_long_they_waited_as_far_as_others_have_noted_anything() {
        assert_eq!(at_least(10_000_000), ", for how long is not known");
        assert_eq!(at_least(1_500_000_000), ", for 1.5 s at least");
    }

    #[test]
    fn nobody_waits_for_others_where_all_have_come() {
        let open_call = |rank, is_running| {
            let mut second = call(1, "eval.py:95", [20, 21, 0]);
            (second.decided, second.ended, second.outcome) = (None, None, Outcome::Open);
            let mut left = left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 400]), second]);
            left.is_running = Some(is_running);
            left
        };
        let told = |boxes: Vec<_>| {
            let timeline = Timeline::new(boxes);
            open(&standings(&timeline, timeline.end()))
        };
        assert_eq!(
            told((0..3).map(|rank| open_call(rank, false)).collect()),
            "barrier #2 at eval.py:95: all had come as ranks 0-2 ended\n"
        );
        let text = told((0..3).map(|rank| open_call(rank, true)).collect());
        let running = "barrier #2 at eval.py:95: all have come, and ranks 0-2 wait, since ";
        assert!(text.starts_with(running), "{text}");
        // One has heard that all have, and two have not.
        let decided = {
            let mut ended = open_call(2, false);
            ended.records[1] = call(1, "eval.py:95", [20, 21, 25]);
            ended
        };
        assert_eq!(
            told(vec![open_call(0, false), open_call(1, false), decided]),
            "barrier #2 at eval.py:95: all had come as ranks 0 1 ended\n"
        );
        let failed = |rank| {
            let mut left = open_call(rank, false);
            (left.records[1].outcome, left.records[1].cause) = (Outcome::Failed, Cause::Timeout);
            left.records[1].ended = Some(40_000);
            left
        };
        let text = told((0..3).map(failed).collect());
        let failed = "barrier #2 at eval.py:95 has failed (timed out): ranks 0-2 waited, ";
        assert!(text.starts_with(failed), "{text}");
    }

    #[test]
    fn a_call_that_failed_by_one_rank_blames_no_other_that_has_not_come() {
        let failed = |rank| {
            let mut first = call(0, "eval.py:95", [20, 21, 40]);
            (first.decided, first.outcome) = (None, Outcome::Failed);
            (first.cause, first.culprit) = (Cause::Departed, Some(2));
            left(rank, 1, vec![first])
        };
        let told = |boxes| {
            let timeline = Timeline::new(boxes);
            open(&standings(&timeline, timeline.end()))
        };
        // Rank 1 has not come because the call had failed by then.
        assert_eq!(
            told(vec![failed(0), left(1, 1, Vec::new())]),
            "barrier #1 at eval.py:95 has failed (rank 2 had already left): rank 0 waited, 20 us\n  \
             nothing is known of rank 2\n"
        );
        assert_eq!(
            told(vec![failed(0), failed(1), left(2, 1, Vec::new())]),
            "barrier #1 at eval.py:95 has failed (rank 2 had already left): ranks 0 1 waited, 20 us\n  \
             rank 2: computing, before its first call\n"
        );
    }

    #[test]
    fn of_ranks_that_have_left_nothing_nothing_is_said_but_that() {
        let mut waits = call(1, "eval.py:95", [20, 21, 0]);
        (waits.decided, waits.ended, waits.outcome) = (None, None, Outcome::Open);
        let timeline = Timeline::new(vec![left(1, 1, vec![waits])]);
        assert_eq!(
            open(&standings(&timeline, 60_000_000_000 + timeline.end())),
            "barrier #2 at eval.py:95: rank 1 waits for others, since 1 min\n  nothing is known of ranks 0 2\n"
        );
    }

    #[test]
    fn ranks_in_different_calls_are_told_with_each_of_them() {
        let apart = |rank, operation: &str, site| {
            let mut second = call(1, site, [20, 21, 0]);
            (second.decided, second.outcome) = (None, Outcome::Failed);
            (second.cause, second.operation) = (Cause::Desync, operation.into());
            left(rank, 1, vec![call(0, "eval.py:80", [1, 2, 400]), second])
        };
        let timeline = Timeline::new(vec![
            apart(0, "barrier", "eval.py:95"),
            apart(1, "all_gather", "save.py:7"),
            apart(2, "barrier", "eval.py:95"),
        ]);
        assert_eq!(
            open(&standings(&timeline, timeline.end())),
            "ranks were in different calls:\n  \
             ranks 0 2: barrier #2 at eval.py:95\n  \
             rank 1: all_gather #2 at save.py:7\n"
        );
        // Tags are not kept.
        let timeline = Timeline::new(vec![
            apart(0, "barrier", "eval.py:95"),
            apart(1, "barrier", "eval.py:95"),
        ]);
        assert_eq!(
            open(&standings(&timeline, timeline.end())),
            "ranks were in calls that differ in what their errors say:\n  \
             ranks 0 1: barrier #2 at eval.py:95\n"
        );
    }

    #[test]
    fn those_who_are_not_named_are_counted() {
        let loss = |rank| crate::trace::losses::Loss {
            rank: Rank::new(rank),
            last: 1,
            cost: u64::from(rank != 0),
            between: None,
        };
        let of = |count: u32| {
            let losses = Losses {
                calls: 20,
                ranks: (0..=count).map(loss).collect(),
            };
            lost(&losses).lines().nth(10).map(str::to_owned)
        };
        assert_eq!(of(10), None);
        assert_eq!(of(11).as_deref(), Some("1 more rank cost less"));
        assert_eq!(of(12).as_deref(), Some("2 more ranks cost less"));
    }

    #[test]
    fn times_have_the_precision_that_people_care_for() {
        for (nanoseconds, text) in [
            (1_500, "2 us"),
            (2_460_000, "2.5 ms"),
            (1_830_000_000, "1.8 s"),
            (2_460_000_000_000, "41 min"),
        ] {
            assert_eq!(nanoseconds_text(nanoseconds), text);
        }
    }
}
