//! The path that a call requests: [`PathRequest`].

use std::path::{Path, PathBuf};

use fsgather_core::{Way, plain_text};

use fsgather_config::settings::Transport;

/// The path that a call requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathRequest {
    /// Files, memory, or automatic.
    pub(crate) transport: Transport,
    /// Another directory than the communicator's own.
    pub(crate) directory: Option<PathBuf>,
}

impl PathRequest {
    /// Returns the request for the other ranks, which must request the same.
    pub(crate) fn way(&self) -> Way {
        Way {
            transport: self.transport.to_string(),
            directory: self.directory.as_deref().map(text),
        }
    }
}

/// Returns a path without parts that make no difference, such as a slash at its end.
fn text(path: &Path) -> String {
    let plain: PathBuf = path.components().collect();
    // As it reaches the others, which compare it with theirs.
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
