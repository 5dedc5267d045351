//! Steps that call the functions of the process's own communicator.

use std::path::Path;

use fsgather::compat::AllGatherOptions;

use crate::{
    Failure, say,
    values::{Value, check_values, value},
};

/// `all_gather`.
pub(crate) fn function(len: &str) -> Result<(), Failure> {
    let (rank, ranks) = place()?;
    let values = fsgather::compat::all_gather(&value(rank, len), &AllGatherOptions::default())?;
    got(&values, ranks, len)
}

/// `all_gather_via_filesys`.
pub(crate) fn via(directory: &Path, root_only: bool, len: &str) -> Result<(), Failure> {
    let (rank, ranks) = place()?;
    let own = value(rank, len);
    let values = fsgather::compat::all_gather_via_filesys(&own, Some(directory), root_only)?;
    got(&values, ranks, len)
}

fn got(values: &[Value], ranks: u32, len: &str) -> Result<(), Failure> {
    say(format_args!("got {}", values.len()));
    if values.is_empty() {
        return Ok(());
    }
    check_values(ranks, values, len)
}

/// This rank and how many there are, as the variables say.
fn place() -> Result<(u32, u32), Failure> {
    let variables = fsgather_config::environment::Variables::of_process();
    let settings = fsgather_config::settings::Settings::resolve(&variables)?;
    let detection = &settings.detection;
    Ok((detection.rank.get(), detection.world_size.get()))
}
