//! Explains errors of system calls that a kernel lacks or a sandbox denies: [`explain_denial`], [`is_denied`].

use std::io;

use rustix::io::Errno;

/// Returns the text of an error. It lists `calls`, the calls that were tried, if one of them is missing or denied.
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
    if is_denied(error) {
        format!("{error}: a sandbox or an old kernel denies {calls}")
    } else {
        error.to_string()
    }
}

/// Returns true if an error means that a kernel lacks a call, or that a sandbox denies it.
#[must_use]
pub fn is_denied(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOSYS | Errno::PERM))
}
