//! Describes each variable of a setting, for the reference page and for help: [`Variable`].

use super::{
    CompressionSetting, Control, DEFAULT_INLINE_LIMIT, DEFAULT_JOIN_TIMEOUT, DEFAULT_SHARED_MEMORY,
    DEFAULT_TIMEOUT, DirMode, Duration, InterfaceFilter, PortRange, RendezvousSetting,
    ShowProgress, Trace, Transport, Verify, value::SettingValue,
};
use crate::environment;

/// What a variable is called and what it does.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Older names, of the Python original, that count when this one is not set.
    pub also: &'static [&'static str],
    /// What it does, as a sentence.
    pub meaning: &'static str,
    /// The same in a few words, for the help of verbs that list it.
    pub help: &'static str,
    values: fn() -> String,
    default: fn() -> String,
}

impl Variable {
    /// The values it takes, as the reference page has them.
    #[must_use]
    pub fn values(&self) -> String {
        (self.values)()
    }

    /// What holds when it is not set, as the reference page has it.
    #[must_use]
    pub fn default(&self) -> String {
        (self.default)()
    }
}

/// Every variable of ours that this version acts on, in the order of the reference page.
pub fn variables() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().copied().flatten()
}

/// The values of a variable: as the table says, else as their type does.
macro_rules! values_of {
    ($type:ty, $values:literal, $default:literal) => {
        || $values.to_owned()
    };
    ($type:ty $(, $default:literal)?) => {
        <$type as SettingValue>::values
    };
}

/// What holds where a variable is not set: as the table says, else the value of the default.
macro_rules! default_of {
    ({ default $default:expr, $($value:tt)* }) => {
        || format!("`{}`", SettingValue::typed(&$default))
    };
    ($value:tt, $values:literal, $default:literal) => {
        default_of!($value, $default)
    };
    ($value:tt, $default:literal) => {
        || $default.to_owned()
    };
}

/// The few words of the table; it may have none.
macro_rules! help_of {
    ({ $($help:literal)? }) => {
        concat!($($help)?)
    };
}

macro_rules! define_variables {
    ($(
        $(#[$note:meta])*
        $field:ident: $type:ty {
            variable { $(
                $constant:ident = $name:literal $(or $($older:ident)+)?: $meaning:literal $([$($page:literal),+])?
            );+ }
            help $help:tt
            value $value:tt
            argument $argument:tt
        }
    )*) => {
        const VARIABLES: &[&[Variable]] = &[$(
            &[$(Variable {
                name: environment::$constant,
                also: &[$($(environment::$older),+)?],
                meaning: $meaning,
                help: help_of!($help),
                values: values_of!($type $(, $($page),+)?),
                default: default_of!($value $(, $($page),+)?),
            }),+]
        ),*];
    };
}

settings_table!(define_variables);
