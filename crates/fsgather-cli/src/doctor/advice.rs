//! Advice that several findings give.

/// For a directory that is not shared.
pub(super) const SHARE: &str = "name a directory on a shared file system with FSGATHER_DIR, or set FSGATHER_TRANSPORT=memory and \
     FSGATHER_RENDEZVOUS=tcp://HOST:PORT";

/// For a wrong setting whose message gives no advice.
pub(super) const MEND: &str = "see docs/reference/environment.md, or unset it";

/// For a directory that cannot be used.
pub(super) const NAME_ANOTHER: &str = "name another directory with FSGATHER_DIR";
