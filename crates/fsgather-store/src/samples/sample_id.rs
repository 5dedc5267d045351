//! The name of a sample: [`SampleId`].

use std::fmt;

use fsgather_core::plain_line;
use serde::{Deserialize, Serialize};

/// The name of one sample of an evaluation: an integer, a text, or a tuple of these.
///
/// Ids are equal only if they are of one kind: `7` and `"7"` are two samples.
///
/// ```
/// # mod fsgather { pub mod samples { pub use fsgather_store::SampleId; } }
/// use fsgather::samples::SampleId;
///
/// let id = SampleId::from_iter([SampleId::from("mmlu"), SampleId::from(7)]);
/// assert_eq!(id.to_string(), r#"("mmlu", 7)"#);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SampleId {
    /// An integer.
    Int(i128),
    /// A text.
    Text(Box<str>),
    /// Several ids that name one sample together.
    Tuple(Box<[SampleId]>),
}

impl SampleId {
    /// Encodes the id.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Into memory everything can be written.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Returns the id that looks like this one but is of another kind: `"7"` for `7`.
    #[must_use]
    pub fn other_spelling(&self) -> Option<Self> {
        match self {
            Self::Int(value) => Some(Self::from(value.to_string())),
            Self::Text(text) => text
                .trim()
                .parse()
                .ok()
                .map(Self::Int)
                .or_else(|| (text.trim() != &**text).then(|| Self::from(text.trim()))),
            Self::Tuple(ids) => match &**ids {
                [id] => Some(id.clone()),
                _ => None,
            },
        }
    }
}

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Text(text) => write!(f, "\"{}\"", plain_line(text)),
            Self::Tuple(ids) => {
                f.write_str("(")?;
                for (at, id) in ids.iter().enumerate() {
                    write!(f, "{}{id}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str(if ids.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

impl fmt::Debug for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! from_integers {
    ($($kind:ty)*) => {
        $(
            impl From<$kind> for SampleId {
                fn from(value: $kind) -> Self {
                    Self::Int(value.into())
                }
            }
        )*
    };
}

from_integers!(i8 i16 i32 i64 i128 u8 u16 u32 u64);

impl From<usize> for SampleId {
    fn from(value: usize) -> Self {
        // No pointer is wider than 64 bits.
        Self::Int(value as i128)
    }
}

impl From<&str> for SampleId {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for SampleId {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl FromIterator<SampleId> for SampleId {
    fn from_iter<I: IntoIterator<Item = SampleId>>(ids: I) -> Self {
        Self::Tuple(ids.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::read_value;

    use super::*;

    fn read(bytes: &[u8]) -> Option<SampleId> {
        read_value(bytes).ok().map(|(id, _)| id)
    }

    fn ids() -> Vec<SampleId> {
        let mut ids: Vec<SampleId> = [0, 1, -1, 63, 64, -64, -65, i128::MAX, i128::MIN]
            .map(SampleId::Int)
            .into();
        ids.push("".into());
        ids.push("é\n".into());
        ids.push(SampleId::from_iter([]));
        ids.push(ids.iter().cloned().collect());
        ids
    }

    #[test]
    fn ids_survive_encoding() {
        for id in ids() {
            assert_eq!(read(&id.to_bytes()), Some(id));
        }
    }

    #[test]
    fn bytes_that_are_not_one_id_are_refused() {
        let bytes = SampleId::from("abc").to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), None, "{len}");
        }
        let mut nested = [2, 1].repeat(100_000);
        nested.extend([0, 0]);
        assert_eq!(read(&nested), None);
    }

    #[test]
    fn texts_show_control_characters_as_question_marks() {
        assert_eq!(SampleId::from("a\x1b[1m").to_string(), "\"a?[1m\"");
        assert_eq!(SampleId::from_iter([7.into()]).to_string(), "(7,)");
    }

    #[test]
    fn other_spellings_of_numbers_and_texts_are_found() {
        assert_eq!(SampleId::from(7).other_spelling(), Some("7".into()));
        assert_eq!(SampleId::from("7").other_spelling(), Some(7.into()));
        assert_eq!(SampleId::from(" a ").other_spelling(), Some("a".into()));
        assert_eq!(SampleId::from("a").other_spelling(), None);
    }
}
