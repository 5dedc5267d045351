//! Makes gather directories under an id that is still free: [`GatherDir::create_anew`].

use std::path::Path;

use fsgather_core::Error;
use rustix::io::Errno;

use crate::{
    directory::{gather_dir::GatherDir, owner::OwnerRecord},
    layout,
    os::{directory::OwnUid, reveal::PublishMode},
};

impl GatherDir {
    /// Like [`create`](Self::create), but if a directory of this id exists, draws another id with the same job and time.
    ///
    /// # Errors
    ///
    /// Those of [`create`](Self::create).
    pub fn create_anew(
        rendezvous: &Path,
        mode: u32,
        owner: OwnerRecord,
        own: OwnUid,
    ) -> Result<Self, Error> {
        under_free_id(owner, |owner| Self::create(rendezvous, mode, owner, own))
    }

    /// Makes a gather directory that holds messages instead of payloads.
    pub(crate) fn create_for_messages(
        rendezvous: &Path,
        mode: u32,
        owner: OwnerRecord,
        own: OwnUid,
    ) -> Result<Self, Error> {
        under_free_id(owner, |owner| {
            Self::create_with(rendezvous, mode, owner, own, |directory| {
                directory.make_private(directory.path())?;
                for name in [layout::IN, layout::OUT, layout::LIVE] {
                    directory.make_directory(&directory.path().join(name))?;
                }
                Ok(PublishMode::Direct)
            })
        })
    }
}

/// Makes a directory under the first free id. Ids of one job and second differ in 21 random bits.
fn under_free_id(
    mut owner: OwnerRecord,
    make: impl Fn(&OwnerRecord) -> Result<GatherDir, Error>,
) -> Result<GatherDir, Error> {
    const MAX_ATTEMPTS: usize = 20;
    for _ in 1..MAX_ATTEMPTS {
        match make(&owner) {
            Err(Error::Storage { cause, .. })
                if cause.os_code == Some(Errno::EXIST.raw_os_error()) =>
            {
                owner = owner.redrawn();
            }
            result => return result,
        }
    }
    make(&owner)
}
