//! Keeps the numbers of the standard streams from other files: [`keep_standard_streams`].

use std::{
    fs::File,
    os::fd::{AsRawFd, IntoRawFd},
};

/// The number of the last standard stream, standard error.
const LAST: i32 = 2;

/// Opens `/dev/null` for each standard stream that is closed. Otherwise a message of the program would go into the file
/// or connection that takes its number.
///
/// Rust's runtime has done so before `main`, but a library can be a part of a program in another language.
pub fn keep_standard_streams() {
    while let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        // The lowest free number is given out: all below it are in use.
        if null.as_raw_fd() > LAST {
            break;
        }
        let _open_for_good = null.into_raw_fd();
    }
}
