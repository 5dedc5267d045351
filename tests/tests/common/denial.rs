//! System calls that fail for a command and all that it starts, as in a sandbox or on an old kernel: [`Denial`].

use std::fmt;

use syscalls::Sysno;

/// Calls that fail with an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Denial<'a> {
    /// The error, such as `ENOSYS`.
    pub(crate) errno: &'static str,
    /// The calls.
    pub(crate) calls: DeniedCalls<'a>,
}

/// The calls that fail, by names as in `statx`, or `socket@16` for those with that first argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeniedCalls<'a> {
    /// One call.
    Only(&'a str),
    /// All calls except these.
    AllExcept(&'a [&'a str]),
}

impl Denial<'_> {
    /// Returns the command before a program that runs it without these calls. Names that this architecture lacks are left out.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let (mode, names) = match &self.calls {
            DeniedCalls::Only(name) => ("deny", std::slice::from_ref(name)),
            DeniedCalls::AllExcept(names) => ("allow", *names),
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/deny.py");
        let mut words = ["python3", script, self.errno, mode]
            .map(str::to_owned)
            .to_vec();
        words.extend(names.iter().filter_map(|name| rule(name)));
        words.push("--".to_owned());
        words
    }
}

impl fmt::Display for Denial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.calls {
            DeniedCalls::Only(name) => write!(f, "{name}: {}", self.errno),
            DeniedCalls::AllExcept(_) => write!(f, "unlisted calls: {}", self.errno),
        }
    }
}

/// Returns a rule with the number of a call instead of its name.
fn rule(rule: &str) -> Option<String> {
    let name = rule.split('@').next()?;
    let mut all = (0..1024).filter_map(Sysno::new);
    let number = all.find(|call| call.name() == name)?.id();
    Some(rule.replacen(name, &number.to_string(), 1))
}
