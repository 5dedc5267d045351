//! The result of a diagnosis: [`Finding`]s, each with a [`Level`], and the [`Conclusion`] over all of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Nothing is wrong.
    Ok,
    /// Useful to know.
    Note,
    /// It works, but worse than it could, or not always.
    Warning,
    /// It does not work.
    Problem,
}

/// The subject of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Topic {
    /// Variables and arguments.
    Settings,
    /// The identity of this rank, and the launcher that set it.
    Launcher,
    /// Resource limits of this process.
    Limits,
    /// The rendezvous of the ranks.
    Meeting,
    /// Addresses, and connections between hosts.
    Network,
    /// The shared directory.
    Directory,
    /// Leftovers of earlier runs in the shared directory.
    Leftovers,
}

/// One result of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// Its severity.
    pub(crate) level: Level,
    /// Its subject.
    pub(crate) topic: Topic,
    /// The ranks that it concerns, in order.
    pub(crate) ranks: Vec<u32>,
    /// The text of the result.
    pub(crate) text: String,
    /// The remedy. Every warning and every problem has one.
    pub(crate) advice: Option<String>,
    /// True if the finding holds for every file system of this kind, and belongs in a table of them.
    #[serde(skip)]
    pub(crate) is_for_table: bool,
}

impl Finding {
    fn new(level: Level, topic: Topic, text: impl Into<String>) -> Self {
        Self {
            level,
            topic,
            ranks: Vec::new(),
            text: text.into(),
            advice: None,
            is_for_table: false,
        }
    }

    pub(super) fn ok(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(Level::Ok, topic, text)
    }

    pub(crate) fn note(topic: Topic, text: impl Into<String>) -> Self {
        Self::new(Level::Note, topic, text)
    }

    pub(super) fn warning(topic: Topic, text: impl Into<String>, advice: &str) -> Self {
        Self::new(Level::Warning, topic, text).advise(advice)
    }

    pub(crate) fn problem(topic: Topic, text: impl Into<String>, advice: &str) -> Self {
        Self::new(Level::Problem, topic, text).advise(advice)
    }

    /// A problem described by an error message, which may end with its own advice after a semicolon or a full stop.
    pub(super) fn error(topic: Topic, message: &str, advice: &str) -> Self {
        let end = message.rfind("; ").max(message.rfind(". "));
        match end.and_then(|end| Some((message.get(..end)?, message.get(end + 2..)?))) {
            Some((text, own)) => Self::problem(topic, text, own),
            None => Self::problem(topic, message, advice),
        }
    }

    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub(super) const fn at(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    pub(super) const fn for_table(mut self) -> Self {
        self.is_for_table = true;
        self
    }

    pub(super) fn of(mut self, ranks: impl IntoIterator<Item = u32>) -> Self {
        self.ranks = ranks.into_iter().collect();
        self
    }

    /// Its effect on the conclusion.
    fn conclusion(&self) -> Conclusion {
        match (self.level, self.topic) {
            (Level::Problem, Topic::Settings | Topic::Launcher | Topic::Limits) => {
                Conclusion::WrongSettings
            }
            (Level::Problem, Topic::Directory | Topic::Leftovers) => Conclusion::BadDirectory,
            (Level::Problem, Topic::Meeting | Topic::Network) => Conclusion::NoMeeting,
            _ => Conclusion::Usable,
        }
    }
}

/// Whether a job could run with these settings, and if not, the obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Conclusion {
    /// A job could run.
    Usable,
    /// The ranks cannot meet.
    NoMeeting,
    /// The directory cannot be used, or not by all ranks.
    BadDirectory,
    /// Settings are wrong or contradict each other.
    WrongSettings,
}

impl Conclusion {
    /// The conclusion over these findings. If there are several problems, the one that may have caused the others counts: settings before
    /// the directory, the directory before the meeting.
    pub(crate) fn over(findings: &[Finding]) -> Self {
        let conclusions = findings.iter().map(Finding::conclusion);
        conclusions.max().unwrap_or(Self::Usable)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Settings => "settings",
            Self::Launcher => "launcher",
            Self::Limits => "limits",
            Self::Meeting => "meeting",
            Self::Network => "network",
            Self::Directory => "directory",
            Self::Leftovers => "leftovers",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_other_problems_counts() {
        let problem = |topic| Finding::problem(topic, "x", "y");
        let meeting = problem(Topic::Meeting);
        let directory = problem(Topic::Directory);
        let settings = problem(Topic::Settings);
        assert_eq!(Conclusion::over(&[]), Conclusion::Usable);
        let warning = Finding::warning(Topic::Directory, "x", "y");
        assert_eq!(Conclusion::over(&[warning]), Conclusion::Usable);
        assert_eq!(
            Conclusion::over(std::slice::from_ref(&meeting)),
            Conclusion::NoMeeting
        );
        let both = [meeting.clone(), directory.clone()];
        assert_eq!(Conclusion::over(&both), Conclusion::BadDirectory);
        let all = [settings, directory, meeting];
        assert_eq!(Conclusion::over(&all), Conclusion::WrongSettings);
    }

    #[test]
    fn what_to_do_is_taken_from_the_message_where_it_has_it() {
        let of = |message| {
            let finding = Finding::error(Topic::Directory, message, "do this");
            (finding.text, finding.advice.unwrap())
        };
        assert_eq!(of("no room"), ("no room".into(), "do this".into()));
        assert_eq!(
            of("no room; 0 free; make some"),
            ("no room; 0 free".into(), "make some".into())
        );
        assert_eq!(
            of("no way. Set X to 1.5"),
            ("no way".into(), "Set X to 1.5".into())
        );
    }
}
