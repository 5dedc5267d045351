//! Explains errors of system calls that a kernel lacks or a sandbox denies: [`explain_denial`].

use std::io;

use rustix::io::Errno;

/// Returns the text of an error. It lists `calls`, those that were tried, if one of them is missing or denied.
///
/// ```
/// use std::io;
///
/// use fsgather_core::sys::explain_denial;
///
/// let not_permitted = io::Error::from_raw_os_error(1);
/// let text = explain_denial(&not_permitted, "bind or listen");
/// assert!(text.ends_with("a sandbox or an old kernel denies bind or listen"), "{text}");
/// let interrupted = io::Error::from_raw_os_error(4);
/// assert_eq!(explain_denial(&interrupted, "bind or listen"), interrupted.to_string());
/// ```
#[must_use]
pub fn explain_denial(error: &io::Error, calls: &str) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSYS | Errno::PERM) => {
            format!("{error}: a sandbox or an old kernel denies {calls}")
        }
        _ => error.to_string(),
    }
}
