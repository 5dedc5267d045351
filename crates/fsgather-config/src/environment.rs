//! The one owner of the process environment: the names of all variables, and [`Variables`], what they say.
//!
//! Everything else that depends on the environment is a pure function over a [`Variables`], so that it can
//! be tested with any environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use fsgather_core::Error;

use crate::working_directory;

/// Defines the name of each variable once, as a documented constant and in [`NAMES`].
macro_rules! define_names {
    ($(
        $(#[$note:meta])*
        $field:ident: $type:ty {
            variable { $(
                $constant:ident = $name:literal $(or $($older:ident)+)?: $meaning:literal $([$($page:literal),+])?
            );+ }
            help { $($help:literal)? }
            value $value:tt
            argument $argument:tt
        }
    )*) => {
        $($(
            #[doc = concat!("`", $name, "`: ", $meaning)]
            pub const $constant: &str = $name;
        )+)*

        /// Every variable that settings come from, ours and those of the Python original that count when ours is not set.
        const NAMES: &[(&str, &[&str])] = &[$($(($constant, &[$($($older),+)?])),+),*];
    };
}

settings_table!(define_names);

/// `EXP_DIR`: the directory that the Python original uses; counts when [`DIR`] is not set.
pub const EXP_DIR: &str = "EXP_DIR";

/// `MDETR_FILESYS_REDUCE`: the Python original's switch to the file system; only `1` switches it on.
pub const MDETR_FILESYS_REDUCE: &str = "MDETR_FILESYS_REDUCE";

/// `MDETR_CPU_REDUCE`: the Python original's switch to host memory; only `1` switches it on.
pub const MDETR_CPU_REDUCE: &str = "MDETR_CPU_REDUCE";

/// `MDETR_FILESYS_REDUCE_RANK_0_ONLY`: the Python original's switch to the file system with a result on
/// rank 0 only; only `1` switches it on.
pub const MDETR_FILESYS_REDUCE_RANK_0_ONLY: &str = "MDETR_FILESYS_REDUCE_RANK_0_ONLY";

/// What the names of all variables of ours begin with.
const PREFIX: &str = "FSGATHER_";

/// Names that belong to Python programs: nothing here acts on them, and they are no misspellings.
const OF_PYTHON: [&str; 2] = ["FSGATHER_PATCH", "FSGATHER_PICKLE"];

/// `FSGATHER_ERROR_FILE`: where a rank leaves what it has failed with; `fsgather run` sets it.
pub const ERROR_FILE: &str = "FSGATHER_ERROR_FILE";

/// `FSGATHER_PROGRESS_FILE`: where a rank leaves how far it has come; `fsgather run` on a terminal sets it.
pub const PROGRESS_FILE: &str = "FSGATHER_PROGRESS_FILE";

/// What `fsgather run` says to its ranks alone.
const OF_RUN: [&str; 2] = [ERROR_FILE, PROGRESS_FILE];

/// The variables that say where ranks meet, and what their job is called.
pub const WHERE_RANKS_MEET: [&str; 4] = [DIR, EXP_DIR, RENDEZVOUS, JOB];

/// A set of environment variables, of this process or made up.
///
/// A variable with an empty value counts as not set, because `export FSGATHER_JOB=$UNSET` leaves one behind.
/// The debug form shows names only: environments are full of secrets.
///
/// ```
/// use fsgather_config::environment::Variables;
///
/// let variables = Variables::from_iter([("FSGATHER_JOB", "nightly"), ("EXP_DIR", "")]);
/// assert_eq!(variables.get("FSGATHER_JOB"), Some("nightly"));
/// assert_eq!(variables.get("EXP_DIR"), None);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    texts: BTreeMap<String, String>,
    /// Names of variables whose values are not text.
    garbled: BTreeSet<String>,
    /// The directory to which relative paths belong; `None`: they stay as they are.
    base: Option<PathBuf>,
}

impl Variables {
    /// The environment of this process, as it is now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader")]
    pub fn of_process() -> Self {
        let mut variables = Self::from_os(std::env::vars_os());
        variables.base = working_directory::remember().map(Path::to_owned);
        variables
    }

    /// A path that a variable names, as an absolute one.
    pub(crate) fn path(&self, text: impl AsRef<Path>) -> PathBuf {
        working_directory::absolute_in(self.base.as_deref(), text.as_ref())
    }

    /// Sorts raw variables into those that are text and those that are not.
    ///
    /// A name that is not text is none of ours and is dropped.
    fn from_os(raw: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut variables = Self::default();
        for (name, value) in raw {
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) => {
                    variables.texts.insert(name, value);
                }
                Err(_) => {
                    variables.garbled.insert(name);
                }
            }
        }
        variables
    }

    /// The value of a variable; `None` when it is not set, empty, or not text.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.texts
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Whether a switch of the Python original is on: only the exact value `1` counts.
    #[must_use]
    pub fn is_exactly_one(&self, name: &str) -> bool {
        self.get(name) == Some("1")
    }

    /// What these say of one variable, under any of its names, and nothing else.
    pub(crate) fn only(&self, name: &str) -> Self {
        known()
            .filter(|(own, _)| *own == name)
            .filter_map(|(_, name)| Some((name, self.get(name)?)))
            .collect()
    }

    /// Checks that every variable that settings come from, if it is set at all, holds text.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the first one that does not: guessing at its bytes could lead ranks to
    /// different directories.
    pub fn check_text(&self) -> Result<(), Error> {
        match known().find(|(_, name)| self.garbled.contains(*name)) {
            None => Ok(()),
            Some((_, name)) => Err(Error::config(format!(
                "the value of {name} is not valid UTF-8; choose one that is, or unset it"
            ))),
        }
    }

    /// What is worth a warning: names that begin like ours but that this version does not know, and names that would be
    /// ours if they began right.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.texts
            .iter()
            .filter(|(name, value)| name.starts_with(PREFIX) && !value.is_empty())
            .filter(|(name, _)| !own_names().any(|known| known == *name))
            .filter(|(name, _)| {
                !OF_PYTHON.contains(&name.as_str()) && !OF_RUN.contains(&name.as_str())
            })
            .map(|(name, _)| unknown(name))
            .chain(self.texts.keys().filter_map(|name| misspelt(name)))
            .collect()
    }
}

/// The names of our own variables.
pub fn own_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(own, _)| *own)
}

/// Every name that counts, each with that of our own variable.
pub(crate) fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMES.iter().flat_map(|&(own, older)| {
        let names = std::iter::once(&own).chain(older);
        names.map(|name| (own, *name)).collect::<Vec<_>>()
    })
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self {
            texts: pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            garbled: BTreeSet::new(),
            base: None,
        }
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.texts.keys().chain(&self.garbled);
        f.debug_set().entries(names).finish()
    }
}

/// What to say of a name that would be one of ours but for a slip in what they all begin with.
fn misspelt(name: &str) -> Option<String> {
    let first = PREFIX.trim_end_matches('_');
    let is_meant = |known: &&'static str| {
        let head = known
            .strip_prefix(first)
            .and_then(|rest| name.strip_suffix(rest));
        head.is_some_and(|head| strsim::damerau_levenshtein(head, first) == 1)
    };
    Some(not_known(name, Some(own_names().find(is_meant)?)))
}

fn unknown(name: &str) -> String {
    not_known(name, nearest(name))
}

fn not_known(name: &str, meant: Option<&str>) -> String {
    let text = format!("{name} is not a known variable and has no effect");
    match meant {
        Some(meant) => format!("{text}; did you mean {meant}?"),
        None => text,
    }
}

/// The known name that was probably meant, if one is near enough.
fn nearest(name: &str) -> Option<&'static str> {
    /// How alike two names have to be.
    const LIKE: f64 = 0.6;
    let own = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name);
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    // Differences count for more in short names, and what all begin with counts for nothing.
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(name, known);
    // Somebody has written a word out, or cut it short.
    let longer =
        own_names().filter(|known| name.starts_with(own(known)) || own(known).starts_with(name));
    let alike = own_names().filter(|known| likeness(own(known)) >= LIKE);
    let best = |one: &&'static str, other: &&'static str| {
        likeness(own(one)).total_cmp(&likeness(own(other)))
    };
    longer.max_by(best).or_else(|| alike.max_by(best))
}

/// The error for a value that cannot be used: which variable, what it holds, why not, and what would do.
pub(crate) fn refusal(name: &str, text: &str, wrong: &str, example: &str) -> Error {
    Error::config(format!(
        "{name}={text:?} {wrong}; a right one is {name}={example}"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    use super::*;
    use crate::settings::{RendezvousSetting, SecretSetting, Settings};

    fn warnings_of(name: &str) -> Vec<String> {
        Variables::from_iter([(name, "1")]).warnings()
    }

    #[test]
    fn known_and_foreign_names_are_no_reason_to_warn() {
        for known in own_names() {
            assert_eq!(warnings_of(known), [""; 0]);
        }
        for foreign in ["EXP_DIR", "SLURM_PROCID", "MY_FSGATHER_DIR", "PATH"] {
            assert_eq!(warnings_of(foreign), [""; 0]);
        }
        for reserved in OF_PYTHON {
            assert_eq!(warnings_of(reserved), [""; 0]);
            assert!(own_names().all(|known| known != reserved));
        }
        let empty = Variables::from_iter([("FSGATHER_DRI", "")]);
        assert_eq!(empty.warnings(), [""; 0]);
    }

    #[test]
    fn a_misspelt_prefix_is_told_where_the_rest_is_one_of_ours() {
        for misspelt in ["FSGATER_TIMEOUT", "FSGAHTER_TIMEOUT", "FS_GATHER_TIMEOUT"] {
            let expected = format!(
                "{misspelt} is not a known variable and has no effect; did you mean {TIMEOUT}?"
            );
            assert_eq!(warnings_of(misspelt), [expected]);
        }
        for foreign in ["FSGATER_COLOUR", "GATHER_DIR", "SCATTER_TIMEOUT", "TIMEOUT"] {
            assert_eq!(warnings_of(foreign), [""; 0]);
        }
    }

    #[test]
    fn names_like_none_get_no_advice() {
        for strange in ["FSGATHER_XYZZY", "FSGATHER_SIMULATE"] {
            let warnings = warnings_of(strange);
            assert_eq!(warnings.len(), 1);
            assert!(warnings[0].ends_with("has no effect"), "{warnings:?}");
        }
    }

    #[test]
    fn misspelt_names_are_answered_with_the_nearest_known_one() {
        for (misspelt, meant) in [
            ("FSGATHER_DRI", DIR),
            ("FSGATHER_TIME_OUT", TIMEOUT),
            ("FSGATHER_WORLDSIZE", WORLD_SIZE),
            ("FSGATHER_LOCAL_SIZE", LOCAL_WORLD_SIZE),
            ("FSGATHER_INTERFACES", INTERFACE),
            ("FSGATHER_DIRECTORY", DIR),
        ] {
            let [warning] = &warnings_of(misspelt)[..] else {
                panic!("{misspelt} is worth exactly one warning");
            };
            assert!(warning.starts_with(misspelt), "{warning}");
            assert!(
                warning.ends_with(&format!("did you mean {meant}?")),
                "{warning}"
            );
        }
    }

    #[test]
    fn names_are_listed_once_and_begin_alike() {
        let names: BTreeSet<&str> = own_names().collect();
        assert_eq!(names.len(), NAMES.len());
        assert!(names.iter().all(|name| name.starts_with(PREFIX)));
    }

    #[test]
    fn non_text_values_are_refused_by_name_where_they_matter() {
        let garbled = |name: &str| {
            Variables::from_os([(name.into(), OsString::from_vec(b"/x/\xff".to_vec()))])
        };
        for name in [DIR, EXP_DIR, MDETR_CPU_REDUCE] {
            let message = garbled(name).check_text().unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
            assert_eq!(garbled(name).get(name), None);
        }
        assert_eq!(garbled("LS_COLORS").check_text(), Ok(()));
    }

    #[test]
    fn the_debug_form_shows_no_values() {
        let variables = Variables::from_iter([("FSGATHER_SECRET", "hunter2")]);
        assert_eq!(format!("{variables:?}"), "{\"FSGATHER_SECRET\"}");
    }

    #[test]
    fn relative_variables_belong_to_first_working_directory() {
        let mut variables = Variables::from_iter([(DIR, "gathers"), (RENDEZVOUS, "file://met")]);
        variables.base = Some("/start".into());
        let settings = Settings::resolve(&variables).unwrap();
        assert_eq!(settings.directory.value, Some("/start/gathers".into()));
        let met = RendezvousSetting::File("/start/met".into());
        assert_eq!(settings.rendezvous.value, Some(met));
        let mut variables = Variables::from_iter([(EXP_DIR, "exp"), (SECRET_FILE, "key")]);
        variables.base = Some("/start".into());
        let settings = Settings::resolve(&variables).unwrap();
        assert_eq!(settings.directory.value, Some("/start/exp".into()));
        let key = SecretSetting::File("/start/key".into());
        assert_eq!(settings.secret.value, Some(key));
    }

    #[test]
    fn the_environment_of_the_process_is_read() {
        assert_eq!(
            Variables::of_process().get("CARGO_PKG_NAME"),
            Some(env!("CARGO_PKG_NAME"))
        );
    }

    proptest! {
        #[test]
        fn any_unknown_name_is_answered_with_a_known_one(rest in "[A-Z_]{1,20}") {
            let name = format!("{PREFIX}{rest}");
            let known = own_names().any(|known| known == name) || OF_PYTHON.contains(&name.as_str());
            let warnings = warnings_of(&name);
            prop_assert_eq!(warnings.len(), usize::from(!known));
        }
    }
}
