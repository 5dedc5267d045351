//! How far long work has come, on a terminal: [`bar`].

use fsgather::{
    Error,
    environment::Variables,
    settings::{Progress, Settings},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `length` steps on standard error. It draws nothing where that is no terminal, or where
/// `FSGATHER_PROGRESS=off` is set.
///
/// # Errors
///
/// [`Error::Config`] for a variable that cannot be understood.
pub(crate) fn bar(length: u64, template: &str) -> Result<ProgressBar, Error> {
    let settings = Settings::resolve(&Variables::of_process())?;
    let target = match settings.progress.value {
        Progress::Auto => ProgressDrawTarget::stderr(),
        Progress::Off => ProgressDrawTarget::hidden(),
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    Ok(ProgressBar::with_draw_target(Some(length), target).with_style(style))
}
