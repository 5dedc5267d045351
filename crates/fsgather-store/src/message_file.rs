//! A message as one sealed file: [`read`]. It may be seen before it is whole.

use std::{io, path::Path};

use crate::{directory::OwnUid, file, sealed};

/// Reads a sealed file of this user; why it cannot be read (yet), otherwise.
pub(crate) fn read(path: &Path, own: OwnUid) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| error.to_string();
    let file = file::open(path).map_err(failed)?;
    let opened = file::examine(&file).map_err(failed)?;
    if !opened.is_regular || opened.uid != own.0 {
        return Err(format!("it is not a file of uid {}", own.0));
    }
    if opened.len > sealed::MAX_LEN {
        return Err(format!("its {} bytes are too many", opened.len));
    }
    let bytes = file::read_bounded(&file, sealed::MAX_LEN).map_err(failed)?;
    sealed::unseal(bytes).map_err(|error| error.to_string())
}
