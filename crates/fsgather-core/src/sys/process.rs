//! Names of the host and its kernel, and processes of a model: [`host_name`], [`kernel_release`], [`in_model`].

use std::fs;

/// Returns the name of this host as `uname` has it; empty if `/proc` does not show it.
///
/// A sandbox may deny `uname`, and ranks need `/proc` in any case.
#[must_use]
pub fn host_name() -> String {
    kernel_text("hostname")
}

/// Returns the release of the kernel as `uname -r` has it, such as `6.1.0-18-amd64`; empty if `/proc` does not show it.
#[must_use]
pub fn kernel_release() -> String {
    kernel_text("osrelease")
}

fn kernel_text(name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    text.trim_end().to_owned()
}

/// Returns the start time of a process of this thread's model, if it runs, in the unit of the model. Returns `None`
/// without a model: then callers look for themselves.
#[must_use]
#[cfg_attr(
    not(feature = "model"),
    expect(
        clippy::missing_const_for_fn,
        unused_variables,
        reason = "there is nothing to ask"
    )
)]
pub fn in_model(pid: u32) -> Option<Option<u64>> {
    crate::sys::ask_model!(model => Some(model.process(pid)));
    None
}
