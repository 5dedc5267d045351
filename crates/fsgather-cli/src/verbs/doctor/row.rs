//! The row for the table of file systems, after the calls of `--conformance`: [`row`].

use crate::{
    doctor::{ConformanceFacts, Diagnosis, WayFacts},
    table::plain,
};

/// The columns of [`row`].
pub(super) const HEAD: &str = "| file system | over TCP | over marker files | set |";

/// Explains the numbers of [`row`].
pub(super) fn legend(diagnosis: &Diagnosis) -> String {
    let conformance = diagnosis.world.as_ref().and_then(|world| {
        let ways = &world.conformance.as_ref()?.ways;
        ways.iter().map(|way| way.calls).max()
    });
    let calls = conformance.unwrap_or_default();
    format!("{calls} calls each way, every byte compared; median (slowest) in ms:")
}

/// The row of the directory, if calls were made in it; it contains no server name and no path.
///
/// As in the guides: the median and the slowest call in milliseconds, or the number of correct calls if some were wrong.
pub(super) fn row(diagnosis: &Diagnosis) -> Option<String> {
    let facts = diagnosis.world.as_ref()?.conformance.as_ref()?;
    let directory = diagnosis.ranks.first()?.directory.as_ref()?;
    let name = match (&directory.mount, &directory.file_system) {
        (Some(mount), _) => &mount.kind,
        (None, Some(name)) => name,
        (None, None) => "unknown",
    };
    let cell = |carrier: &str| way(facts, carrier);
    let advice = diagnosis
        .findings
        .iter()
        .filter(|finding| finding.is_for_table)
        .filter_map(|finding| finding.advice.as_deref());
    let path = directory.path.as_str();
    let advice: Vec<String> = advice
        .map(|advice| {
            let words = advice.split(' ');
            let words = words.map(|word| if word == path { "DIR" } else { word });
            plain(&words.collect::<Vec<_>>().join(" "))
        })
        .collect();
    Some(format!(
        "| {} | {} | {} | {} |",
        plain(name),
        cell("tcp"),
        cell("markers"),
        advice.join("; ").replace('|', "/")
    ))
}

fn way(facts: &ConformanceFacts, carrier: &str) -> String {
    let Some(way) = facts.ways.iter().find(|way| way.carrier == carrier) else {
        return "-".into();
    };
    match way {
        WayFacts {
            is_refused: true, ..
        } => "-".into(),
        WayFacts {
            median_seconds: Some(median),
            slowest_seconds: Some(slowest),
            ..
        } if way.right == way.calls && way.problem.is_none() => {
            format!("{:.0} ({:.0})", median * 1e3, slowest * 1e3)
        }
        _ => format!("{} of {} right", way.right, way.calls),
    }
}
