//! Advice that several findings give.

/// Advice for a directory that is not shared.
pub(super) const SHARE: &str = "name a directory on a shared file system with FSGATHER_DIR, or set FSGATHER_TRANSPORT=memory and \
     FSGATHER_RENDEZVOUS=tcp://HOST:PORT";

/// Advice for a wrong setting whose message gives none.
pub(super) const MEND: &str = "see docs/reference/environment.md, or unset it";

/// Advice for a directory that cannot be used.
pub(super) const NAME_ANOTHER: &str = "name another directory with FSGATHER_DIR";
