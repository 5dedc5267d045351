//! File names of ranks that another rank uses for its output: [`agree`].

use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt};

use crate::failure::Failure;

/// Maximum length of a file name in bytes, on any file system.
const MAX_NAME_BYTES: usize = 255;

/// The names of all ranks' files, by rank, from their bytes.
///
/// # Errors
///
/// Returns the same error on all ranks if a name is not that of a file in a directory, or two ranks have the same name.
pub(crate) fn agree(names: Vec<Vec<u8>>) -> Result<Vec<OsString>, Failure> {
    let mut first: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (rank, name) in names.iter().enumerate() {
        let shown = String::from_utf8_lossy(name);
        if !is_plain(name) {
            return Err(Failure::usage(format!(
                "rank {rank} calls its file {shown:?}, which is not the name of a file in a directory; leave out \
                 --keep-names"
            )));
        }
        if let Some(other) = first.insert(name, rank) {
            return Err(Failure::usage(format!(
                "ranks {other} and {rank} both call their file {shown:?}; leave out --keep-names"
            )));
        }
    }
    Ok(names.into_iter().map(OsString::from_vec).collect())
}

/// Returns true if it names an entry of a directory, and nothing above, below or beside it.
fn is_plain(name: &[u8]) -> bool {
    let is_dots = matches!(name, b"" | b"." | b"..");
    !is_dots && name.len() <= MAX_NAME_BYTES && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_byte_by_byte() {
        let names = vec![
            b"a b".to_vec(),
            b"\xff".to_vec(),
            b"\xfe".to_vec(),
            b"...".to_vec(),
        ];
        let kept = agree(names.clone()).unwrap();
        let kept: Vec<Vec<u8>> = kept.into_iter().map(OsString::into_vec).collect();
        assert_eq!(kept, names);
    }

    #[test]
    fn what_is_no_name_is_refused_and_the_rank_named() {
        let long = vec![b'x'; 256];
        let bad: [&[u8]; 8] = [
            b"",
            b".",
            b"..",
            b"/etc/passwd",
            b"../x",
            b".ssh/authorized_keys",
            b"a\0b",
            &long,
        ];
        for name in bad {
            let refused = agree(vec![b"good".to_vec(), name.to_vec()]).unwrap_err();
            assert!(
                refused.to_string().contains("rank 1 calls its file"),
                "{refused}"
            );
        }
    }

    #[test]
    fn equal_file_names_are_named_without_control_characters() {
        let refused = agree(vec![b"x\x1b[2J".to_vec(), b"x\x1b[2J".to_vec()]).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("ranks 0 and 1 both call their file"),
            "{refused}"
        );
        assert!(!refused.contains('\x1b'), "{refused:?}");
    }
}
