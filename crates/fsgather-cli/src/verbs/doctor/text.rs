//! A diagnosis as text: the conclusion, the warnings and problems, and the settings that are not defaults; with `--verbose` also the
//! findings without a problem.

use std::fmt::Write;

use fsgather_core::rank_ranges;

use crate::{
    colour::Hue,
    doctor::{Conclusion, Diagnosis, Finding, Level, RankFacts, SettingFact, counted},
    table::{Side, TableStyle, TextTable, plain, wrapped},
};

use super::row::{HEAD, legend, row};

/// Renders the report. A rank that has not met the others reports only problems, because all ranks do.
pub(super) fn text(diagnosis: &Diagnosis, is_verbose: bool, look: &TableStyle) -> String {
    let ranks = &diagnosis.ranks[..];
    let have_met = diagnosis.world.is_some();
    let first = ranks.first();
    let is_brief = !is_verbose && !have_met && first.is_some_and(|first| first.world_size > 1);
    let least = match (is_verbose, is_brief) {
        (true, _) => Level::Ok,
        (false, true) => Level::Warning,
        (false, false) => Level::Note,
    };
    let mut text = format!("{}\n", conclusion(diagnosis, least, look));
    if let Some(first) = first {
        let _ = writeln!(text, "{}", head(first, ranks, diagnosis));
    }
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
    if let Some(first) = first {
        let is_shown = |setting: &&SettingFact| is_verbose || setting.origin != "default";
        let shown: Vec<&SettingFact> = first.settings.iter().filter(is_shown).collect();
        if !shown.is_empty() {
            let _ = write!(text, "\n{}", settings(&shown, look));
        }
    }
    if let Some(row) = row(diagnosis) {
        // The row must be copied as one line.
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
        let hosts = match by_host(ranks, |_| true).len() {
            1 => host,
            hosts => format!("{hosts} hosts"),
        };
        format!("{of} ranks on {hosts}; report of rank 0")
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
    // Colours add no width: the word is coloured after the lines are wrapped.
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
        // A command must be copied as one line.
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

/// The ranks that a finding concerns; empty if it concerns all.
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

/// The conclusion, with the number of findings of each level that is shown.
fn conclusion(diagnosis: &Diagnosis, least: Level, look: &TableStyle) -> String {
    let word = match diagnosis.conclusion {
        Conclusion::Usable => "usable",
        Conclusion::NoMeeting if diagnosis.has_met => "no conclusion: ranks have lost each other",
        Conclusion::NoMeeting => "not usable: ranks cannot meet",
        Conclusion::BadDirectory => "not usable: the directory cannot be used",
        Conclusion::WrongSettings => "not usable: settings are wrong",
    };
    let hue = if diagnosis.conclusion == Conclusion::Usable {
        Hue::Good
    } else {
        Hue::Bad
    };
    let levels = [Level::Problem, Level::Warning, Level::Note];
    let counts = levels.iter().filter(|level| **level >= least).map(|level| {
        let findings = diagnosis.findings.iter();
        let of_level = findings.filter(|finding| finding.level == *level);
        counted(of_level.count(), &level.to_string())
    });
    let counts: Vec<String> = counts.collect();
    format!("{} ({})", look.paint.on(hue, word), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Topic;

    fn on(rank: u32, host: &str) -> RankFacts {
        RankFacts {
            rank,
            host: host.into(),
            ..RankFacts::default()
        }
    }

    #[test]
    fn the_conclusion_counts_what_is_shown() {
        let note = Finding::note(Topic::Directory, "x");
        let problem = Finding::problem(Topic::Directory, "y", "z");
        let diagnosis = |ranks| Diagnosis {
            conclusion: Conclusion::BadDirectory,
            findings: vec![note.clone(), problem.clone()],
            ranks,
            world: None,
            is_reported_here: true,
            failure: None,
            has_met: false,
        };
        let of_two = RankFacts {
            world_size: 2,
            ..on(0, "n1")
        };
        let brief = text(&diagnosis(vec![of_two]), false, &TableStyle::PLAIN);
        assert!(brief.contains("(1 problem, 0 warnings)"), "{brief}");
        let alone = text(&diagnosis(vec![on(0, "n1")]), false, &TableStyle::PLAIN);
        assert!(alone.contains("(1 problem, 0 warnings, 1 note)"), "{alone}");
    }

    #[test]
    fn a_finding_names_its_ranks_by_host_unless_it_holds_for_all() {
        let ranks = [on(0, "n1"), on(1, "n1"), on(2, "n2"), on(3, "n2")];
        assert_eq!(who(&[0, 1, 2, 3], &ranks), "");
        assert_eq!(who(&[3], &ranks), "rank 3 on n2: ");
        assert_eq!(who(&[1, 2, 3], &ranks), "rank 1 on n1, ranks 2 3 on n2: ");
    }
}
