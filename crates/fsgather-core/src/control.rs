//! Names the carrier of messages between ranks: [`Control`].

use std::fmt;

/// How ranks talk to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Control {
    /// TCP, and marker files once it is clear, while the world forms, that a rank cannot reach rank 0.
    #[default]
    Auto,
    /// TCP, or an error.
    Tcp,
    /// Marker files in the shared directory.
    Markers,
}

impl Control {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcp => "tcp",
            Self::Markers => "markers",
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_it_is_written_in_settings() {
        let words =
            [Control::Auto, Control::Tcp, Control::Markers].map(|control| control.to_string());
        assert_eq!(words, ["auto", "tcp", "markers"]);
    }
}
