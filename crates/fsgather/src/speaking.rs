//! Writes warnings to standard error if a program has no log subscriber: [`speak_up`].

use fsgather_config::environment::{self, Variables};
use fsgather_core::{Rank, speak_as};
use tracing::level_filters::LevelFilter;

/// Writes warnings that no subscriber receives to standard error from now on, unless the filter shows only errors.
/// Without a rank, several ranks are threads of this process.
pub(crate) fn speak_up(variables: &Variables, rank: Option<Rank>) {
    let who = match rank {
        Some(rank) => format!("rank {rank}"),
        None => "a rank of this process".to_owned(),
    };
    let filter = variables.get(environment::LOG).unwrap_or("warn");
    speak_as(takes_warnings(filter).then_some(who.as_str()));
}

/// Returns true if a log filter takes warnings of this library. Directives for other targets, and invalid ones, are
/// ignored.
fn takes_warnings(filter: &str) -> bool {
    let (mut of_all, mut of_ours) = (None, None);
    // An empty directive would mean errors.
    for directive in filter.split(',').filter(|it| !it.trim().is_empty()) {
        let (level, about) = match directive.split_once('=') {
            None => (directive, &mut of_all),
            Some((target, level)) if target.trim() == "fsgather" => (level, &mut of_ours),
            Some(_) => continue,
        };
        if let Ok(level) = level.trim().parse::<LevelFilter>() {
            *about = Some(level);
        }
    }
    of_ours
        .or(of_all)
        .is_none_or(|level| level >= LevelFilter::WARN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_filters_for_errors_or_off_silence_warnings() {
        for filter in [
            "",
            "warn",
            "info",
            "debug",
            "4",
            "x=error",
            "off,fsgather=info",
            "?",
        ] {
            assert!(takes_warnings(filter), "{filter}");
        }
        for filter in [
            "off",
            "OFF",
            "error",
            "Error",
            " off ",
            "0",
            "fsgather=error",
            "debug,fsgather=off",
        ] {
            assert!(!takes_warnings(filter), "{filter}");
        }
    }
}
