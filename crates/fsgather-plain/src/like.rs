//! The kind of copy that a result must be: [`Like`].

use pyo3::{exceptions::PyValueError, prelude::*};

/// Whose promises an object keeps on its way to other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Like {
    /// Ours: tensors that share memory go on sharing it, and come back on the host; arrays keep the order of their
    /// bytes.
    #[default]
    Ours,
    /// Those of a pickle by the default protocol, which torch's object functions make: each tensor has memory of its
    /// own and comes back on its device; arrays come back in the order of bytes that pickle gives them.
    Pickle,
    /// The same for a list of which each entry is pickled by itself, so that no two share anything.
    Pickles,
}

impl Like {
    /// Returns the value with this name in Python.
    ///
    /// # Errors
    ///
    /// `ValueError` for an unknown name.
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

    /// Whether the result is that of a pickle, in every respect that can be seen.
    pub(crate) const fn is_pickle(self) -> bool {
        matches!(self, Self::Pickle | Self::Pickles)
    }
}
