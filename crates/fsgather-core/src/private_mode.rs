//! The mode of gather directories on file systems that ignore modes: [`ANY_MODE`].

/// Mode of gather directories that are made for this user alone, but used with any mode that the file system shows,
/// because some file systems have no modes.
///
/// ```
/// assert_eq!(fsgather_core::ANY_MODE & 0o7777, 0o700);
/// ```
pub const ANY_MODE: u32 = 0o10_0700;
