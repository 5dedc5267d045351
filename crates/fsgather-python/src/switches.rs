//! Reads variables for Python code: [`choose_path`] for the function `all_gather`, [`join_timeout`] and [`launched_rank`].

use std::sync::OnceLock;

use fsgather::{Rank, WorldSize};
use fsgather_config::{
    environment::Variables,
    launcher::{self, Family},
    path_choice::GatherPath,
    settings::Settings,
    switches::Switches,
};
use pyo3::prelude::*;

use crate::{communicator::Communicator, errors};

/// Returns the path of one call: `"solo"`, `"filesys_root_only"`, `"filesys"`, `"memory"` or `"auto"`.
#[pyfunction]
pub(crate) fn choose_path(
    py: Python<'_>,
    communicator: &Communicator,
    force_cpu: bool,
    force_filesys: bool,
) -> PyResult<&'static str> {
    // Variables are read once, on first use, like all others.
    static SWITCHES: OnceLock<Switches> = OnceLock::new();
    let raised = |error| errors::raise(py, &error);
    let switches = if let Some(switches) = SWITCHES.get() {
        *switches
    } else {
        let switches = Switches::from_env().map_err(raised)?;
        *SWITCHES.get_or_init(|| switches)
    };
    let member = communicator.member()?;
    let switches = switches.agreed(member.transport());
    let path = switches.path(member.world_size(), force_filesys, force_cpu);
    path.warn_of_empty_lists(member.rank());
    Ok(match path {
        GatherPath::Solo => "solo",
        GatherPath::FilesysRootOnly => "filesys_root_only",
        GatherPath::Filesys => "filesys",
        GatherPath::Memory => "memory",
        GatherPath::Auto => "auto",
    })
}

/// Maximum time that ranks may take to meet if the program sets none, in seconds.
#[pyfunction]
pub(crate) fn join_timeout(py: Python<'_>) -> PyResult<f64> {
    // The caller does not know the rank yet, and no launcher should be asked for it.
    let settings = Settings::resolve_as(Rank::ZERO, WorldSize::ONE, &Variables::of_process());
    let settings = settings.map_err(|error| errors::raise(py, &error))?;
    Ok(settings.join_timeout.value.as_secs_f64())
}

/// Rank and world size of this process by its launcher, and a sentence about their source; `None` without a launcher.
#[pyfunction]
pub(crate) fn launched_rank(py: Python<'_>) -> PyResult<Option<(u32, u32, String)>> {
    let found = launcher::detect(&Variables::of_process());
    let found = found.map_err(|error| errors::raise(py, &error))?;
    let (rank, size) = (found.rank.get(), found.world_size.get());
    let note = found.notes.into_iter().next().unwrap_or_default();
    Ok((found.family != Family::Alone).then_some((rank, size, note)))
}
