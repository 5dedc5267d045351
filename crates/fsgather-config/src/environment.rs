//! The one owner of the process environment: which variables there are, and [`Variables`], what they say.
//!
//! Everything else that depends on the environment is a pure function over a [`Variables`], so that it can
//! be tested with any environment. `docs/reference/environment.md` is generated from [`ALL`].

#[cfg(test)]
mod page;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt, iter,
};

use fsgather_core::Error;

/// What a variable is called and what it does, as the reference page tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Older names, of the Python original, that count when this one is not set.
    pub also: &'static [&'static str],
    /// The values it takes.
    pub values: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it does, as a sentence.
    pub meaning: &'static str,
}

/// Defines each variable once, as a documented constant and as an entry of [`ALL`].
macro_rules! variables {
    ($(
        $constant:ident = $name:literal $(or $($also:ident)+)?;
        values $values:literal;
        default $default:literal;
        $meaning:literal
    )*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $meaning)]
            #[doc = ""]
            #[doc = concat!("Values: ", $values, ". Default: ", $default, ".")]
            pub const $constant: &str = $name;
        )*

        /// Every variable of ours that this version acts on, in the order of the reference page.
        pub const ALL: &[Variable] = &[$(
            Variable {
                name: $constant,
                also: &[$($($also),+)?],
                values: $values,
                default: $default,
                meaning: $meaning,
            }
        ),*];
    };
}

variables! {
    DIR = "FSGATHER_DIR" or EXP_DIR;
    values "a path";
    default "`/tmp/fsgather-<uid>` when the launcher says that all ranks are on one host, else the working directory; ranks that a program's own channel introduces, as torch's do, use the former where they see the same mounts, and none elsewhere";
    "The directory in which `all_gather_via_filesys/` is made, for meeting and for payloads. One that is not named is done without where it cannot be used, unless `FSGATHER_TRANSPORT` is `filesys`."

    DIR_MODE = "FSGATHER_DIR_MODE";
    values "`0700`, `0750`, `0770` or `any`";
    default "`0700`";
    "The mode of gather directories. With `0750` and `0770` the group of the directory that they are made in may read them, with `0770` also remove what is in them; nobody else can change a file. `any` is for file systems without modes of their own, such as SMB and vfat: whoever can read what lies there can join the job and read its data."

    TRANSPORT = "FSGATHER_TRANSPORT" or MDETR_FILESYS_REDUCE MDETR_CPU_REDUCE;
    values "`auto`, `filesys` or `memory`";
    default "`auto`";
    "The way payloads take. With `auto` they go through files where there is a directory that can be used and has room, and through memory elsewhere; `MDETR_FILESYS_REDUCE=1` means `filesys`, `MDETR_CPU_REDUCE=1` means `memory`."

    ROOT_ONLY = "FSGATHER_ROOT_ONLY" or MDETR_FILESYS_REDUCE_RANK_0_ONLY;
    values "`0` or `1`";
    default "`0`";
    "With `1` the function `all_gather` returns the list on rank 0 only and an empty one elsewhere; the methods of a communicator are not affected."

    CONTROL = "FSGATHER_CONTROL";
    values "`auto`, `tcp` or `markers`";
    default "`auto`";
    "How ranks talk to each other: over TCP, or by marker files in the shared directory; with `auto` over TCP, unless a rank cannot reach rank 0. Rank 0's setting counts for all."

    RENDEZVOUS = "FSGATHER_RENDEZVOUS";
    values "`file://DIR` or `tcp://HOST:PORT`";
    default "the directory of `FSGATHER_DIR`";
    "Where ranks meet. At a loopback address, or `localhost`, nobody from another host can."

    JOB = "FSGATHER_JOB";
    values "any text";
    default "the launcher's job id";
    "Tells jobs apart that share a directory."

    SECRET = "FSGATHER_SECRET";
    values "32 random bytes in hexadecimal or base64";
    default "none; at an address it is derived from the job then";
    "What a process must know to join, wherever ranks meet; in a directory besides what rank 0 draws. Ranks that were given different ones are told so."

    SECRET_FILE = "FSGATHER_SECRET_FILE";
    values "a path";
    default "none";
    "A file that holds the secret, of this user or root and closed to others, as by mode `0600`; it counts when `FSGATHER_SECRET` is not set."

    ENCRYPT = "FSGATHER_ENCRYPT";
    values "`0` or `1`";
    default "`0`";
    "What goes over connections between hosts is always encrypted. With `1` nothing takes another way over a network either: messages do not move to marker files, `auto` puts no payloads into files that are not on a local disk, and `markers` and `filesys` are refused there."

    RANK = "FSGATHER_RANK";
    values "a number from 0";
    default "from the launcher";
    "The rank of this process; it counts together with `FSGATHER_WORLD_SIZE` only."

    WORLD_SIZE = "FSGATHER_WORLD_SIZE";
    values "a number from 1";
    default "from the launcher";
    "How many ranks there are; it counts together with `FSGATHER_RANK`, or in a pod of a Kubernetes indexed Job."

    LOCAL_RANK = "FSGATHER_LOCAL_RANK";
    values "a number from 0";
    default "from the launcher";
    "The number of this process among those on its host."

    LOCAL_WORLD_SIZE = "FSGATHER_LOCAL_WORLD_SIZE";
    values "a number from 1";
    default "from the launcher";
    "How many ranks there are on this host."

    JOIN_TIMEOUT = "FSGATHER_JOIN_TIMEOUT";
    values "a duration";
    default "`5m`";
    "How long to wait for all ranks to meet."

    TIMEOUT = "FSGATHER_TIMEOUT";
    values "a duration";
    default "`30m`";
    "How long to wait in a call since anything last moved."

    PORT = "FSGATHER_PORT";
    values "`0`, a port, or a range such as `60001-60999`";
    default "`0`, any free port";
    "Where rank 0 and neighbours listen."

    INTERFACE = "FSGATHER_INTERFACE";
    values "a comma list of names, prefixes of names, and address blocks such as `10.1.0.0/16`; `^` before one leaves it out, before the first leaves all of them out";
    default "all";
    "The network interfaces whose addresses are published, and listened at, beside the loopback."

    INLINE_LIMIT = "FSGATHER_INLINE_LIMIT";
    values "a size";
    default "`64KiB`";
    "Payloads up to this size travel with the control messages and make no file; never above 4 MiB divided by the world size."

    COMPRESS = "FSGATHER_COMPRESS";
    values "`none`, `lz4`, `zstd` or `zstd:LEVEL` with a level from -131072 to 22";
    default "`none`";
    "How payload files of this rank are compressed, for file systems on which bytes are dear; `zstd` means `zstd:3`. Small payloads that make no file are not. It needs the cargo feature `lz4` or `zstd`, on all ranks, which the command-line tool has."

    LOG = "FSGATHER_LOG";
    values "a `tracing` filter";
    default "`warn`";
    "What the command-line tool says on standard error, and Python programs that have set up no logging. Where more than warnings is asked for, with the time; `debug` says of each call how long it took, who came last, and how long that was waited for. `-q` and `-v` go before it, but those of `fsgather run` do not go before what its ranks find in this."

    PROGRESS = "FSGATHER_PROGRESS";
    values "`auto` or `off`";
    default "`auto`";
    "Whether long work of the command-line tool shows how far it has come: by a line that changes on a terminal, of all ranks together under `fsgather run`; elsewhere `fsgather gather` says a line after a second and every 30 seconds on the rank that receives, rank 0 if all do."
}

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
}

impl Variables {
    /// The environment of this process, as it is now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader")]
    pub fn of_process() -> Self {
        Self::from_os(std::env::vars_os())
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
    pub(crate) fn only(&self, variable: &Variable) -> Self {
        let names = iter::once(&variable.name).chain(variable.also);
        names
            .filter_map(|name| Some((*name, self.get(name)?)))
            .collect()
    }

    /// Checks that every variable that [`ALL`] lists, if it is set at all, holds text.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] that names the first one that does not: guessing at its bytes could lead ranks to
    /// different directories.
    pub fn check_text(&self) -> Result<(), Error> {
        let mut names = ALL
            .iter()
            .flat_map(|variable| iter::once(&variable.name).chain(variable.also));
        match names.find(|name| self.garbled.contains(**name)) {
            None => Ok(()),
            Some(name) => Err(Error::config(format!(
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
            .filter(|(name, _)| !ALL.iter().any(|known| known.name == *name))
            .filter(|(name, _)| {
                !OF_PYTHON.contains(&name.as_str()) && !OF_RUN.contains(&name.as_str())
            })
            .map(|(name, _)| unknown(name))
            .chain(self.texts.keys().filter_map(|name| misspelt(name)))
            .collect()
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self {
            texts: pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            garbled: BTreeSet::new(),
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
    let mut known = ALL.iter().map(|known| known.name);
    Some(not_known(name, Some(known.find(is_meant)?)))
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
    let known = || ALL.iter().map(|known| known.name);
    // Somebody has written a word out, or cut it short.
    let longer =
        known().filter(|known| name.starts_with(own(known)) || own(known).starts_with(name));
    let alike = known().filter(|known| likeness(own(known)) >= LIKE);
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

    fn warnings_of(name: &str) -> Vec<String> {
        Variables::from_iter([(name, "1")]).warnings()
    }

    #[test]
    fn known_and_foreign_names_are_no_reason_to_warn() {
        for known in ALL {
            assert_eq!(warnings_of(known.name), [""; 0]);
        }
        for foreign in ["EXP_DIR", "SLURM_PROCID", "MY_FSGATHER_DIR", "PATH"] {
            assert_eq!(warnings_of(foreign), [""; 0]);
        }
        for reserved in OF_PYTHON {
            assert_eq!(warnings_of(reserved), [""; 0]);
            assert!(ALL.iter().all(|known| known.name != reserved));
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
        let names: BTreeSet<&str> = ALL.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.iter().all(|name| name.starts_with(PREFIX)));
    }

    #[test]
    fn values_that_are_not_text_are_refused_by_name_where_they_matter() {
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
            let known = ALL.iter().any(|known| known.name == name) || OF_PYTHON.contains(&name.as_str());
            let warnings = warnings_of(&name);
            prop_assert_eq!(warnings.len(), usize::from(!known));
        }
    }
}
