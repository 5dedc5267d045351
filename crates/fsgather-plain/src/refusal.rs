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
        /// Its place in the object, such as `[3]['boxes'][0]`; empty for the object itself.
        place: String,
    },
    /// A part of this type is inside too many containers; pickle may be able to encode the object.
    TooDeep {
        /// The type of that part.
        type_name: String,
    },
    /// Python raised an error.
    Raised(PyErr),
}

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
        Self::because(type_name_of(object))
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
        let type_name = type_name_of(object);
        Box::new(Self::TooDeep { type_name })
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
        if let Self::NotPlain { place, .. } = &mut *self {
            place.insert_str(0, &step.to_string());
        }
        self
    }

    /// Returns the reason as a part of a sentence about `object`; `None` for an error of Python.
    #[must_use]
    pub fn reason(&self, object: &str) -> Option<String> {
        match self {
            Self::NotPlain { type_name, place } => Some(format!(
                "{object}{place} is of type {type_name}, which is not plain data"
            )),
            Self::TooDeep { type_name } => Some(format!(
                "{object} has a {type_name} inside more than {DEEPEST} containers, and plain data has at most so many"
            )),
            Self::Raised(_) => None,
        }
    }
}

fn type_name_of(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().fully_qualified_name();
    name.map_or_else(|_| "an unknown type".into(), |name| name.to_string())
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
            Self::NotPlain { type_name, place } => {
                write!(to, "not plain data: {type_name} at {place}")
            }
            Self::TooDeep { type_name } => write!(
                to,
                "not plain data: {type_name} nested too deep, in more than {DEEPEST}"
            ),
            Self::Raised(error) => error.fmt(to),
        }
    }
}
