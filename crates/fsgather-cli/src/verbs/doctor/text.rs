//! A diagnosis for people to read: who was asked, where each host stands, which settings hold, what was
//! found, and the conclusion.

use std::fmt::Write;

use fsgather::{
    bytes_text,
    diagnosis::{Conclusion, Diagnosis, Finding, Level, RankFacts, SettingFact},
};

use crate::table::{Side, Table, plain};

/// The whole report.
pub(super) fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    let ranks = &diagnosis.ranks[..];
    if let Some(first) = ranks.first() {
        let _ = writeln!(text, "{}\n", head(first, ranks, diagnosis.world.is_some()));
        if diagnosis.world.is_some() {
            text.push_str(&hosts(ranks));
            text.push('\n');
        }
        text.push_str(&settings(&first.settings));
        text.push('\n');
    }
    for finding in &diagnosis.findings {
        text.push_str(&line(finding, ranks));
    }
    let _ = writeln!(text, "\n{}", summary(diagnosis));
    text
}

fn head(first: &RankFacts, ranks: &[RankFacts], have_met: bool) -> String {
    let host = plain(&first.host);
    let (rank, pid, of) = (first.rank, first.pid, first.world_size);
    if have_met {
        let hosts = by_host(ranks, |_| true).len();
        let hosts = if hosts == 1 {
            format!("on {host}")
        } else {
            format!("on {hosts} hosts")
        };
        format!("{of} ranks {hosts}, told by rank 0")
    } else if of == 1 {
        format!("one process, on {host} (pid {pid})")
    } else {
        format!(
            "rank {rank} of {of}, on {host} (pid {pid}), told by itself: the ranks have not met"
        )
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

/// How each host stands, by the one of its ranks that has found out most.
fn hosts(ranks: &[RankFacts]) -> String {
    let mut table = Table::new(&[
        ("HOST", Side::Left),
        ("RANKS", Side::Left),
        ("DIRECTORY ON", Side::Left),
        ("FREE", Side::Right),
        ("NEW FILE SEEN", Side::Right),
        ("CLOCK", Side::Right),
        ("ADDRESSES", Side::Left),
    ]);
    for (host, of_host) in by_host(ranks, |_| true) {
        let mut here = ranks.iter().filter(|facts| of_host.contains(&facts.rank));
        let is_prober = |facts: &&RankFacts| {
            let trial = facts.trial.as_ref();
            trial.is_some_and(|trial| trial.is_prober)
        };
        let teller = here.clone().find(is_prober).or_else(|| here.next());
        let Some(facts) = teller else { continue };
        let directory = facts.directory.as_ref();
        let mount = directory.and_then(|facts| facts.mount.as_ref());
        let capacity = directory.and_then(|facts| facts.capacity);
        let trial = facts.trial.as_ref();
        let seen = trial.and_then(|trial| trial.saw_rank_0_seconds);
        let clock = trial.and_then(|trial| trial.clock);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        table.row(
            vec![
                plain(host),
                ranges(&of_host),
                or_dash(mount.map(|mount| plain(&format!("{} {}", mount.kind, mount.source)))),
                or_dash(capacity.map(|capacity| bytes_text(capacity.free_bytes))),
                or_dash(seen.map(|seconds| format!("{:.0} ms", seconds * 1000.0))),
                or_dash(clock.map(|clock| format!("{:+.1} s", clock.ahead_seconds))),
                plain(&facts.network.addresses.join(" ")),
            ],
            None,
        );
    }
    table.text()
}

fn settings(settings: &[SettingFact]) -> String {
    let mut table = Table::new(&[
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
        table.row(vec![plain(name), plain(value), plain(origin)], None);
    }
    table.text()
}

fn line(finding: &Finding, ranks: &[RankFacts]) -> String {
    let Finding { level, topic, .. } = finding;
    let who = who(&finding.ranks, ranks);
    let text = plain(&finding.text);
    let mut line = format!("  {level:<7}  {topic:<9}  {who}{text}\n");
    if let Some(advice) = &finding.advice {
        let _ = writeln!(line, "                      -> {}", plain(advice));
    }
    line
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
            format!("{word} {} on {}", ranges(&with), plain(host))
        })
        .collect();
    format!("{}: ", told.join(", "))
}

/// Ranks as ranges: `0-3, 7`.
fn ranges(ranks: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if rank == last.saturating_add(1) => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let texts: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(", ")
}

fn summary(diagnosis: &Diagnosis) -> String {
    let count = |level: Level, one: &str| {
        let findings = diagnosis.findings.iter();
        match findings.filter(|finding| finding.level == level).count() {
            1 => format!("1 {one}"),
            count => format!("{count} {one}s"),
        }
    };
    let word = match diagnosis.conclusion {
        Conclusion::Usable => "usable",
        Conclusion::NoMeeting => "not usable: ranks cannot meet",
        Conclusion::BadDirectory => "not usable: the directory is in the way",
        Conclusion::WrongSettings => "not usable: settings are wrong",
    };
    format!(
        "{word} ({}, {}, {})",
        count(Level::Problem, "problem"),
        count(Level::Warning, "warning"),
        count(Level::Note, "note")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(rank: u32, host: &str) -> RankFacts {
        let mut facts = RankFacts::default();
        facts.rank = rank;
        facts.host = host.into();
        facts
    }

    #[test]
    fn a_finding_names_its_ranks_by_host_unless_it_holds_for_all() {
        let ranks = [on(0, "n1"), on(1, "n1"), on(2, "n2"), on(3, "n2")];
        assert_eq!(who(&[0, 1, 2, 3], &ranks), "");
        assert_eq!(who(&[3], &ranks), "rank 3 on n2: ");
        assert_eq!(who(&[1, 2, 3], &ranks), "rank 1 on n1, ranks 2-3 on n2: ");
    }
}
