//! A diagnosis for people to read: the conclusion, who was asked, what is wrong, where each host stands, and which settings
//! somebody has chosen; what is right only if that is asked for.

use std::fmt::Write;

use fsgather_core::{bytes_text, rank_ranges};
use fsgather_doctor::{
    Conclusion, Diagnosis, Finding, Level, RankFacts, ReachFact, SettingFact, WorldFacts,
};

use crate::{
    colour::Hue,
    table::{Cell, Narrowing, Side, TableStyle, TextTable, plain, wrapped},
};

use super::row::{HEAD, legend, row};

/// What a narrow terminal is not told of hosts, in this order.
const WAYS: [Narrowing; 4] = [
    Narrowing::Drop("ADDRESSES"),
    Narrowing::Drop("FREE"),
    Narrowing::Drop("CLOCK"),
    Narrowing::Drop("NEW FILES VISIBLE AFTER"),
];

/// The report: the conclusion, and what is wrong; everything else if `is_verbose`. A rank that has not met the others says no
/// more than what is wrong, since all of them do.
pub(super) fn text(diagnosis: &Diagnosis, is_verbose: bool, look: &TableStyle) -> String {
    let mut text = format!("{}\n", conclusion(diagnosis, look));
    let ranks = &diagnosis.ranks[..];
    let have_met = diagnosis.world.is_some();
    let first = ranks.first();
    let is_brief = !is_verbose && !have_met && first.is_some_and(|first| first.world_size > 1);
    if let Some(first) = first {
        let _ = writeln!(text, "{}", head(first, ranks, diagnosis));
    }
    let least = match (is_verbose, is_brief) {
        (true, _) => Level::Ok,
        (false, true) => Level::Warning,
        (false, false) => Level::Note,
    };
    let mut lines = String::new();
    for level in [Level::Problem, Level::Warning, Level::Note, Level::Ok] {
        let findings = diagnosis.findings.iter();
        for finding in findings.filter(|finding| finding.level == level && level >= least) {
            lines.push_str(&line(finding, ranks, look));
        }
    }
    if !lines.is_empty() {
        let _ = write!(text, "\n{lines}");
    }
    if is_brief {
        return text;
    }
    if have_met && (is_verbose || by_host(ranks, |_| true).len() > 1) {
        let _ = write!(text, "\n{}", hosts(ranks, diagnosis.world.as_ref(), look));
    }
    if let Some(first) = first {
        let is_shown = |setting: &&SettingFact| is_verbose || setting.origin != "default";
        let shown: Vec<&SettingFact> = first.settings.iter().filter(is_shown).collect();
        if !shown.is_empty() {
            let _ = write!(text, "\n{}", settings(&shown, look));
        }
    }
    if let Some(row) = row(diagnosis) {
        // A row is copied as one line.
        let _ = writeln!(text, "\n{}\n\n{HEAD}\n{row}", legend(diagnosis));
    }
    if !is_verbose {
        let findings = diagnosis.findings.iter();
        let fine = findings
            .filter(|finding| finding.level == Level::Ok)
            .count();
        let checks = if fine == 1 { "check is" } else { "checks are" };
        let _ = writeln!(
            text,
            "\n{fine} {checks} ok; --verbose shows them, and all settings"
        );
    }
    text
}

fn head(first: &RankFacts, ranks: &[RankFacts], diagnosis: &Diagnosis) -> String {
    let host = plain(&first.host);
    let (rank, pid, of) = (first.rank, first.pid, first.world_size);
    if diagnosis.world.is_some() {
        let hosts = by_host(ranks, |_| true).len();
        let hosts = if hosts == 1 {
            format!("on {host}")
        } else {
            format!("on {hosts} hosts")
        };
        format!("{of} ranks {hosts}; report of rank 0")
    } else if of == 1 {
        format!("one process, on {host} (pid {pid})")
    } else {
        let met = if diagnosis.has_met {
            "have met, but did not come to the end together"
        } else {
            "have not met"
        };
        format!("report of rank {rank} of {of} alone, on {host} (pid {pid}): the ranks {met}")
    }
}

/// Ranks by host, in the order of ranks.
fn by_host(ranks: &[RankFacts], wanted: impl Fn(u32) -> bool) -> Vec<(&str, Vec<u32>)> {
    let mut hosts: Vec<(&str, Vec<u32>)> = Vec::new();
    for facts in ranks.iter().filter(|facts| wanted(facts.rank)) {
        match hosts.iter_mut().find(|(host, _)| *host == facts.host) {
            Some((_, known)) => known.push(facts.rank),
            None => hosts.push((&facts.host, vec![facts.rank])),
        }
    }
    hosts
}

/// How each host stands towards rank 0's, by the one of its ranks that has found out most.
fn hosts(ranks: &[RankFacts], world: Option<&WorldFacts>, look: &TableStyle) -> String {
    let mut table = TextTable::new(&[
        ("HOST", Side::Left),
        ("RANKS", Side::Left),
        ("DIRECTORY ON", Side::Left),
        ("FREE", Side::Right),
        ("SHARED", Side::Left),
        ("NEW FILES VISIBLE AFTER", Side::Right),
        ("REACHES RANK 0", Side::Right),
        ("CLOCK", Side::Right),
        ("ADDRESSES", Side::Left),
    ]);
    for (host, of_host) in by_host(ranks, |_| true) {
        let here = || ranks.iter().filter(|facts| of_host.contains(&facts.rank));
        let is_prober = |facts: &&RankFacts| {
            let trial = facts.trial.as_ref();
            trial.is_some_and(|trial| trial.is_prober)
        };
        let teller = here().find(is_prober).or_else(|| here().next());
        let Some(facts) = teller else { continue };
        let directory = facts.directory.as_ref();
        let mount = directory.and_then(|facts| facts.mount.as_ref());
        let capacity = directory.and_then(|facts| facts.capacity);
        let trial = facts.trial.as_ref();
        let seen = trial.and_then(|trial| trial.saw_rank_0_seconds);
        let clock = trial.and_then(|trial| trial.clock);
        let blind = world.map_or(&[][..], |world| &world.blind);
        let is_blind = of_host.iter().any(|rank| blind.contains(rank));
        let is_tried = world.is_some_and(|world| world.directory.is_some());
        let mut tried = here().filter_map(|facts| facts.trial.as_ref()?.reach.as_ref());
        let reach = tried.next().map(|reach| reached(reach));
        let or_dash = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".into()));
        table.row(
            vec![
                plain(host).into(),
                rank_ranges(&of_host).into(),
                or_dash(mount.map(|mount| plain(&format!("{} {}", mount.kind, mount.source)))),
                or_dash(capacity.map(|capacity| bytes_text(capacity.free_bytes))),
                match (is_tried, is_blind) {
                    (false, _) => or_dash(None),
                    (true, false) => Cell::painted("yes", Hue::Good),
                    (true, true) => Cell::painted(NO, Hue::Bad),
                },
                or_dash(seen.map(|seconds| format!("{:.0} ms", seconds * 1000.0))),
                reach.unwrap_or_else(|| or_dash(None)),
                or_dash(clock.map(|clock| format!("{:+.1} s", clock.ahead_seconds))),
                plain(&facts.network.addresses.join(" ")).into(),
            ],
            None,
        );
    }
    table.fitted(look, &WAYS)
}

const NO: &str = "NO";

/// At how many of its addresses rank 0 is reached, and how soon.
fn reached(reach: &[ReachFact]) -> Cell {
    let times = reach.iter().filter_map(|fact| fact.seconds);
    let slowest = times.clone().reduce(f64::max);
    match (slowest, times.count()) {
        (None, _) => Cell::painted(NO, Hue::Bad),
        (Some(slowest), count) if count == reach.len() => {
            format!("{:.0} ms", slowest * 1000.0).into()
        }
        (Some(_), count) => format!("at {count} of {}", reach.len()).into(),
    }
}

fn settings(settings: &[&SettingFact], look: &TableStyle) -> String {
    let mut table = TextTable::new(&[
        ("SETTING", Side::Left),
        ("VALUE", Side::Left),
        ("FROM", Side::Left),
    ]);
    for SettingFact {
        name,
        value,
        origin,
    } in settings
    {
        let cells = [name, value, origin].map(|text| plain(text));
        table.row(cells.into(), None);
    }
    table.fitted(look, &[])
}

fn line(finding: &Finding, ranks: &[RankFacts], look: &TableStyle) -> String {
    const INDENT: &str = "                      ";
    let Finding { level, topic, .. } = finding;
    let said = who(&finding.ranks, ranks) + &plain(&finding.text);
    // Colours take no room: the word gets its own once the lines are made.
    let word = format!("{level:<7}");
    let line = wrapped(
        &format!("  {word}  {topic:<9}  "),
        INDENT,
        &said,
        look.width,
    );
    let mut line = line.replacen(&word, &look.paint.on(hue(*level), &word), 1);
    if let Some(advice) = &finding.advice {
        let later = format!("{INDENT}   ");
        // A command is copied as one line.
        let width = look.width.filter(|_| !advice.contains("fsgather "));
        line += &wrapped(&format!("{INDENT}-> "), &later, &plain(advice), width);
    }
    line
}

fn hue(level: Level) -> Hue {
    match level {
        Level::Problem => Hue::Bad,
        Level::Warning => Hue::Stale,
        Level::Ok => Hue::Good,
        Level::Note => Hue::Quiet,
    }
}

/// The ranks that a finding holds for, unless it holds for all.
fn who(concerned: &[u32], ranks: &[RankFacts]) -> String {
    if concerned.len() >= ranks.len() {
        return String::new();
    }
    let hosts = by_host(ranks, |rank| concerned.contains(&rank));
    let told: Vec<String> = hosts
        .into_iter()
        .map(|(host, with)| {
            let word = if with.len() == 1 { "rank" } else { "ranks" };
            format!("{word} {} on {}", rank_ranges(&with), plain(host))
        })
        .collect();
    format!("{}: ", told.join(", "))
}

fn conclusion(diagnosis: &Diagnosis, look: &TableStyle) -> String {
    let count = |level: Level, one: &str| {
        let findings = diagnosis.findings.iter();
        match findings.filter(|finding| finding.level == level).count() {
            1 => format!("1 {one}"),
            count => format!("{count} {one}s"),
        }
    };
    let word = match diagnosis.conclusion {
        Conclusion::Usable => "usable",
        Conclusion::NoMeeting if diagnosis.has_met && diagnosis.world.is_none() => {
            "no conclusion: ranks have lost each other"
        }
        Conclusion::NoMeeting => "not usable: ranks cannot meet",
        Conclusion::BadDirectory => "not usable: the directory cannot be used",
        Conclusion::WrongSettings => "not usable: settings are wrong",
    };
    let hue = if diagnosis.conclusion == Conclusion::Usable {
        Hue::Good
    } else {
        Hue::Bad
    };
    format!(
        "{} ({}, {}, {})",
        look.paint.on(hue, word),
        count(Level::Problem, "problem"),
        count(Level::Warning, "warning"),
        count(Level::Note, "note")
    )
}

#[cfg(test)]
mod tests {
    use fsgather_doctor::TrialFacts;

    use super::*;

    fn on(rank: u32, host: &str) -> RankFacts {
        let mut facts = RankFacts::default();
        facts.rank = rank;
        facts.host = host.into();
        facts
    }

    #[test]
    fn each_host_has_a_row_of_what_it_sees_and_reaches() {
        let mut ranks = [on(0, "n1"), on(1, "n2"), on(2, "n3")];
        let fact = |address: &str, seconds| ReachFact {
            address: address.into(),
            seconds,
            problem: None,
        };
        for (rank, reach) in [
            (
                1,
                vec![fact("10.0.0.1", Some(0.002)), fact("fd00::1", Some(0.004))],
            ),
            (2, vec![fact("10.0.0.1", None)]),
        ] {
            let mut trial = TrialFacts::default();
            trial.reach = Some(reach);
            ranks[rank].trial = Some(trial);
        }
        let mut world = WorldFacts::default();
        world.directory = Some("/shared".into());
        world.blind = vec![2];
        let table = hosts(&ranks, Some(&world), &TableStyle::PLAIN);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[0],
            ["n1", "0", "-", "-", "yes", "-", "-", "-"],
            "{table}"
        );
        assert_eq!(
            rows[1],
            ["n2", "1", "-", "-", "yes", "-", "4", "ms", "-"],
            "{table}"
        );
        assert_eq!(
            rows[2],
            ["n3", "2", "-", "-", "NO", "-", "NO", "-"],
            "{table}"
        );
    }

    #[test]
    fn a_finding_names_its_ranks_by_host_unless_it_holds_for_all() {
        let ranks = [on(0, "n1"), on(1, "n1"), on(2, "n2"), on(3, "n2")];
        assert_eq!(who(&[0, 1, 2, 3], &ranks), "");
        assert_eq!(who(&[3], &ranks), "rank 3 on n2: ");
        assert_eq!(who(&[1, 2, 3], &ranks), "rank 1 on n1, ranks 2 3 on n2: ");
    }
}
