//! The kind of copy that a result must be: [`Like`].

use pyo3::{exceptions::PyValueError, prelude::*};

/// The guarantees that an object keeps on its way to other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Like {
    /// Ours: tensors that share memory still share it afterwards, and are on the host; arrays keep their byte order.
    #[default]
    Ours,
    /// Those of a pickle by the default protocol, which torch's object functions use: each tensor has memory of its own on its device;
    /// arrays have the byte order that pickle gives them.
    Pickle,
    /// The same for a list whose entries are pickled one by one, so that no two share anything.
    Pickles,
}

impl Like {
    /// Returns the value with this name in Python.
    ///
    /// # Errors
    ///
    /// Returns `ValueError` for an unknown name.
    pub fn of(word: Option<&str>) -> PyResult<Self> {
        match word {
            None => Ok(Self::Ours),
            Some("pickle") => Ok(Self::Pickle),
            Some("pickles") => Ok(Self::Pickles),
            Some(word) => Err(PyValueError::new_err(format!(
                "like={word:?} must be pickle or pickles"
            ))),
        }
    }

    /// Returns its name in Python.
    #[must_use]
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::Ours => None,
            Self::Pickle => Some("pickle"),
            Self::Pickles => Some("pickles"),
        }
    }

    /// Returns true if the result equals that of a pickle, in every visible respect.
    pub(crate) const fn is_pickle(self) -> bool {
        matches!(self, Self::Pickle | Self::Pickles)
    }
}
