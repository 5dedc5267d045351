//! The identity of this program, [`build_identity`], and the types of its values.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::MetadataExt,
    sync::OnceLock,
};

use fsgather_core::TypeTag;

use crate::codec::Codec;

/// Returns a number that is equal in processes that run the same executable file.
///
/// It may differ between copies of one file, in which case types are not compared. It is never equal by chance for
/// different builds if their sizes or times of change differ.
fn build_identity() -> u64 {
    static IDENTITY: OnceLock<u64> = OnceLock::new();
    *IDENTITY.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        if let Ok(metadata) = std::env::current_exe().and_then(std::fs::metadata) {
            (metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
        } else {
            // An unknown identity equals no other, not even another unknown one.
            std::process::id().hash(&mut hasher);
            std::time::SystemTime::now().hash(&mut hasher);
        }
        hasher.finish()
    })
}

/// Returns the tag of a type in this program, as a codec encodes it.
pub(crate) fn type_tag<T: ?Sized>(codec: &impl Codec) -> TypeTag {
    TypeTag {
        build: build_identity(),
        name: std::any::type_name::<T>().into(),
        codec: codec.name().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_the_file_that_it_runs() {
        let file = std::env::current_exe().unwrap();
        let file = file.metadata().unwrap();
        let mut hasher = DefaultHasher::new();
        (file.len(), file.mtime(), file.mtime_nsec()).hash(&mut hasher);
        assert_eq!(build_identity(), hasher.finish());
        assert_ne!(build_identity(), 0);
    }
}
