//! The carrier of messages between ranks: [`Control`].

use std::fmt;

/// The transport of messages between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Control {
    /// TCP, or marker files if it turns out while the world forms that a rank cannot reach rank 0.
    #[default]
    Auto,
    /// TCP, or an error.
    Tcp,
    /// Marker files in the shared directory.
    Markers,
}

impl Control {
    /// Returns the word of the setting.
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
