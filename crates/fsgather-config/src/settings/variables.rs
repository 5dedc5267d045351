//! Describes each variable of a setting, for the reference page and for help: [`Variable`].

use super::{
    CompressionSetting, Control, DEFAULT_INLINE_LIMIT, DEFAULT_JOIN_TIMEOUT, DEFAULT_TIMEOUT,
    DirMode, Duration, InterfaceFilter, PortRange, RendezvousSetting, ShowProgress, Transport,
    value::SettingValue,
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

/// Describes one variable.
macro_rules! describe {
    // As its type and its default say.
    ($type:ty, { $($help:literal)? }, { default $default:expr, $($value:tt)* },
     $constant:ident = $name:literal $(or $($older:ident)+)?: $meaning:literal) => {
        Variable {
            name: environment::$constant,
            also: &[$($(environment::$older),+)?],
            meaning: $meaning,
            help: concat!($($help)?),
            values: <$type as SettingValue>::values,
            default: || format!("`{}`", SettingValue::typed(&$default)),
        }
    };
    // The same, but for how the default is told.
    ($type:ty, { $($help:literal)? }, $value:tt,
     $constant:ident = $name:literal $(or $($older:ident)+)?: $meaning:literal [$default:literal]) => {
        Variable {
            name: environment::$constant,
            also: &[$($(environment::$older),+)?],
            meaning: $meaning,
            help: concat!($($help)?),
            values: <$type as SettingValue>::values,
            default: || $default.to_owned(),
        }
    };
    // As the table says.
    ($type:ty, { $($help:literal)? }, $value:tt,
     $constant:ident = $name:literal $(or $($older:ident)+)?: $meaning:literal [$values:literal, $default:literal]) => {
        Variable {
            name: environment::$constant,
            also: &[$($(environment::$older),+)?],
            meaning: $meaning,
            help: concat!($($help)?),
            values: || $values.to_owned(),
            default: || $default.to_owned(),
        }
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
            &[$(describe!(
                $type, $help, $value, $constant = $name $(or $($older)+)?: $meaning $([$($page),+])?
            )),+]
        ),*];
    };
}

settings_table!(define_variables);
