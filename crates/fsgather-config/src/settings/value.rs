//! The types of settings: how a text becomes one, and what is said where it does not ([`SettingValue`]).

use std::time::Duration;

use fsgather_core::typed_duration_text;

use crate::settings::{
    choice::Choice,
    interfaces::InterfaceFilter,
    parse::{self, DirMode, RendezvousSetting},
    ports::PortRange,
};

/// A type that settings have.
pub(super) trait SettingValue: Sized {
    /// The value of a text, if it is one.
    fn read(text: &str) -> Option<Self>;

    /// The text for a value.
    fn typed(&self) -> String;

    /// All values, as the reference page has them.
    fn values() -> String;

    /// What is wrong with a text that is no value.
    fn wrong() -> String;
}

impl<T: Choice> SettingValue for T {
    fn read(text: &str) -> Option<Self> {
        T::of_word(text)
    }

    fn typed(&self) -> String {
        self.word().to_owned()
    }

    fn values() -> String {
        T::listed(|word| format!("`{word}`"))
    }

    fn wrong() -> String {
        format!("is not {}", T::words())
    }
}

/// A setting that may be left out.
impl<T: SettingValue> SettingValue for Option<T> {
    fn read(text: &str) -> Option<Self> {
        T::read(text).map(Some)
    }

    fn typed(&self) -> String {
        self.as_ref().map_or_else(String::new, T::typed)
    }

    fn values() -> String {
        T::values()
    }

    fn wrong() -> String {
        T::wrong()
    }
}

macro_rules! setting_values {
    ($($type:ty {
        read $read:expr;
        typed $typed:expr;
        values $values:expr;
        wrong $wrong:expr;
    })*) => {
        $(impl SettingValue for $type {
            fn read(text: &str) -> Option<Self> {
                $read(text)
            }

            fn typed(&self) -> String {
                $typed(self)
            }

            fn values() -> String {
                $values.into()
            }

            fn wrong() -> String {
                $wrong.into()
            }
        })*
    };
}

setting_values! {
    bool {
        read parse::switch;
        typed |on: &bool| u8::from(*on).to_string();
        values "`0` or `1`";
        wrong "is neither 0 nor 1";
    }
    Duration {
        read parse::duration;
        typed |duration: &Duration| typed_duration_text(*duration);
        values "a duration";
        wrong "is not a duration above 0 with a unit";
    }
    // A number of bytes.
    u64 {
        read parse::size;
        typed |bytes: &u64| parse::typed_size(*bytes);
        values "a size";
        wrong "is not a size of at most 16 EiB";
    }
    // A filter of `tracing`, which alone can tell whether it is one.
    String {
        read |text: &str| Some(text.to_owned());
        typed Clone::clone;
        values "a `tracing` filter";
        wrong "is not a filter";
    }
    DirMode {
        read DirMode::parse;
        typed ToString::to_string;
        values "`0700`, `0750`, `0770` or `any`";
        wrong "is not a mode that gives everything to the owner and nothing to strangers";
    }
    RendezvousSetting {
        read RendezvousSetting::parse;
        typed ToString::to_string;
        values "`file://DIR`, `tcp://HOST:PORT` or `NAME:`";
        wrong "is neither file://DIR nor tcp://HOST:PORT nor the NAME: of an engine";
    }
    PortRange {
        read PortRange::parse;
        typed ToString::to_string;
        values "`0`, a port, or a range such as `60001-60999`";
        wrong "is neither 0, nor a port, nor a range of ports";
    }
    InterfaceFilter {
        read InterfaceFilter::parse;
        typed ToString::to_string;
        values "a comma list of names, prefixes of names, and address blocks such as `10.1.0.0/16`; `^` before one leaves it \
                out, before the first leaves all of them out";
        wrong "is no list of interfaces and address blocks";
    }
}
