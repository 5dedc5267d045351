//! A value together with where it comes from: [`Setting`] and [`Origin`].

use std::fmt;

use crate::launcher::Family;

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The caller's own code or command line.
    Argument,
    /// The variable of this name.
    Variable(&'static str),
    /// What this launcher says.
    Launcher(Family),
    /// Nobody: it is what holds when nobody says anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument => f.write_str("argument"),
            Self::Variable(name) => f.write_str(name),
            Self::Launcher(family) => family.fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it comes from, so that both can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// A value that an argument gives, which wins over all others.
    #[must_use]
    pub const fn argument(value: T) -> Self {
        Self {
            value,
            origin: Origin::Argument,
        }
    }

    /// A value that holds when nobody says anything.
    #[must_use]
    pub const fn default(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }

    /// A value that a variable gives.
    #[must_use]
    pub const fn variable(value: T, name: &'static str) -> Self {
        Self {
            value,
            origin: Origin::Variable(name),
        }
    }

    /// Whether anybody said so, rather than nobody.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.origin != Origin::Default
    }
}
