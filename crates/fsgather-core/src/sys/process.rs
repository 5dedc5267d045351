//! Processes of a model: [`in_model`].

/// When a process of the model on which this thread runs was started, if it runs, in the unit that the model likes. Nothing where
/// there is no model: who asks looks for itself then.
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
