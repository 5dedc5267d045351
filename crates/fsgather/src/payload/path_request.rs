//! The path that a call asks for: [`PathRequest`].

use std::path::{Path, PathBuf};

use fsgather_core::{Way, plain_text};

use fsgather_config::settings::Transport;

/// Which path a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathRequest {
    /// Files, memory, or whatever works.
    pub(crate) transport: Transport,
    /// Another directory than the communicator's own.
    pub(crate) directory: Option<PathBuf>,
}

impl PathRequest {
    /// The same for the other ranks, which have to ask for the same.
    pub(crate) fn way(&self) -> Way {
        Way {
            transport: self.transport.to_string(),
            directory: self.directory.as_deref().map(text),
        }
    }
}

/// A path without what makes no difference, such as a slash at its end.
fn text(path: &Path) -> String {
    let plain: PathBuf = path.components().collect();
    // As the others get to see it, with whose ways this rank's is compared.
    plain_text(&plain.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_the_same_directory_are_told_alike() {
        let way = |directory: &str| {
            let request = PathRequest {
                transport: Transport::Filesys,
                directory: Some(directory.into()),
            };
            request.way()
        };
        assert_eq!(way("/shared/a/"), way("/shared//a"));
        assert_ne!(way("/shared/a"), way("/shared/b"));
        assert_eq!(
            way("/shared/a").to_string(),
            "transport=filesys and directory=/shared/a"
        );
    }
}
