//! Progress bars on standard error: [`bar`].

use fsgather::Error;
use fsgather_config::{
    environment::{self, Variables},
    settings::{Settings, ShowProgress},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{colour, log};

/// Makes a bar of `length` steps. It draws only on a terminal, and not with `FSGATHER_PROGRESS=off` or `--quiet`.
///
/// # Errors
///
/// [`Error::Config`] for a variable that is not valid.
pub(crate) fn bar(length: u64, template: &str) -> Result<ProgressBar, Error> {
    // This process is not a rank: variables of a rank may belong to another job.
    let process = Variables::of_process();
    let value = process.get(environment::PROGRESS);
    let own = value.map(|value| (environment::PROGRESS, value));
    let settings = Settings::resolve(&own.into_iter().collect())?;
    let is_wanted = !log::is_quiet() && settings.progress.value == ShowProgress::Auto;
    let target = if is_wanted && colour::has_cursor() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    Ok(ProgressBar::with_draw_target(Some(length), target).with_style(style))
}
