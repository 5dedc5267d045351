//! The secret in a file: [`read`].

use std::{
    fs::OpenOptions,
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use fsgather_core::Error;

use fsgather_config::settings::Secret;

/// Maximum length of the file, in bytes: each notation of 32 bytes is shorter.
const MAX_FILE_BYTES: u64 = 1024;

/// The forbidden permissions: all permissions of others, and write permission of the group.
const TOO_OPEN: u32 = 0o027;

/// Reads the secret in a file of this user or root that no other user can read or change.
///
/// # Errors
///
/// [`Error::Storage`] if it cannot be read, [`Error::Config`] if others may know it, or if the file holds no secret.
pub fn read(path: &Path) -> Result<[u8; 32], Error> {
    let cannot = |error| Error::storage("read the secret in", path, &error);
    let refused =
        |why: &str| Error::config(format!("FSGATHER_SECRET_FILE: {} {why}", path.display()));
    // Opening a pipe would wait for a writer.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(nonblocking).open(path);
    let file = file.map_err(cannot)?;
    // The facts are those of the opened file, even if the name now belongs to another one.
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(refused("is no regular file"));
    }
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own && found.uid() != 0 {
        let whose = format!(
            "belongs to uid {}; it has to belong to you or root",
            found.uid()
        );
        return Err(refused(&whose));
    }
    let mode = found.mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        return Err(refused(&format!(
            "has mode {mode:04o}, so others can read or change it; give it mode 0600, and draw another secret if they \
             have"
        )));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    let secret = Secret::parse(text.trim())
        .ok_or_else(|| refused("does not hold 32 bytes in hexadecimal or base64"))?;
    Ok(*secret.bytes())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn refusal(path: &Path) -> String {
        read(path).unwrap_err().to_string()
    }

    #[test]
    fn a_secret_that_others_can_read_or_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secret");
        fs::write(&path, format!("{}\n", "5c".repeat(32))).unwrap();
        for mode in [0o600, 0o400, 0o640, 0o440] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path), Ok([0x5c; 32]), "{mode:04o}");
        }
        for mode in [0o666, 0o644, 0o660, 0o604, 0o602, 0o620, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = refusal(&path);
            assert!(
                refused.contains(&format!("has mode {mode:04o}")),
                "{refused}"
            );
        }
    }

    #[test]
    fn bad_secret_files_are_refused_without_wait_or_full_read() {
        let place = tempfile::tempdir().unwrap();
        assert!(refusal(Path::new("/dev/zero")).contains("is no regular file"));
        assert!(refusal(place.path()).contains("is no regular file"));
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(refusal(&pipe).contains("is no regular file"));
        let large = place.path().join("large");
        let file = fs::File::create(&large).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600))
            .unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(refusal(&large).contains("does not hold 32 bytes"));
        let gone = read(&place.path().join("gone")).unwrap_err();
        assert!(matches!(gone, Error::Storage { .. }), "{gone}");
    }
}
