//! The reason why an object is not encoded: [`Refusal`].

use std::fmt;

use pyo3::{exceptions::PyRuntimeError, prelude::*};

use super::stream::DEEPEST;

/// The reason why an object is not encoded.
#[derive(Debug)]
pub enum Refusal {
    /// A part of it is not plain data; pickle may be able to encode it.
    NotPlain {
        /// The type of that part.
        type_name: String,
        /// Its place in the object, such as `[3]['boxes'][0]`; empty for the object itself, "too deep" for a part inside too many
        /// containers.
        place: String,
    },
    /// Python raised an error.
    Raised(PyErr),
}

/// The place of a part that is nested too deeply to be described.
const TOO_DEEP: &str = "too deep";

/// Boxed, so that results stay small where every nanosecond matters.
pub(crate) type Refused<T> = Result<T, Box<Refusal>>;

#[expect(
    clippy::unnecessary_box_returns,
    reason = "they are made for results that hold boxes"
)]
impl Refusal {
    /// The object is of a type that is not plain.
    #[cold]
    pub(crate) fn of_type(object: &Bound<'_, PyAny>) -> Box<Self> {
        let kind = object.get_type();
        let name = kind.fully_qualified_name();
        let name = name.map_or_else(|_| "an unknown type".into(), |name| name.to_string());
        Self::because(name)
    }

    /// The object is of a plain type, but has more than its data.
    #[cold]
    pub(crate) fn because(type_name: impl Into<String>) -> Box<Self> {
        Box::new(Self::NotPlain {
            type_name: type_name.into(),
            place: String::new(),
        })
    }

    /// The object is inside too many containers.
    #[cold]
    pub(crate) fn too_deep(object: &Bound<'_, PyAny>) -> Box<Self> {
        let mut refusal = Self::of_type(object);
        if let Self::NotPlain { place, .. } = &mut *refusal {
            TOO_DEEP.clone_into(place);
        }
        refusal
    }

    /// A container of this type changed while it was read.
    #[cold]
    pub(crate) fn changed(name: &str) -> Box<Self> {
        let message = format!("{name} changed size during iteration");
        Box::new(Self::Raised(PyRuntimeError::new_err(message)))
    }

    /// The refusal as seen from the container.
    #[cold]
    pub(crate) fn below(mut self: Box<Self>, step: impl fmt::Display) -> Box<Self> {
        if let Self::NotPlain { place, .. } = &mut *self
            && place != TOO_DEEP
        {
            place.insert_str(0, &step.to_string());
        }
        self
    }
}

impl From<PyErr> for Box<Refusal> {
    fn from(error: PyErr) -> Self {
        Self::new(Refusal::Raised(error))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPlain { type_name, place } if place.is_empty() => {
                write!(to, "not plain data: {type_name}")
            }
            Self::NotPlain { type_name, place } if place == TOO_DEEP => {
                write!(
                    to,
                    "not plain data: {type_name} nested too deep, in more than {DEEPEST}"
                )
            }
            Self::NotPlain { type_name, place } => {
                write!(to, "not plain data: {type_name} at {place}")
            }
            Self::Raised(error) => error.fmt(to),
        }
    }
}
