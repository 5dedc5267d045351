//! Chooses the way that the function `all_gather` goes: [`choose_path`].

use std::sync::OnceLock;

use fsgather::Rank;
use fsgather_config::{path_choice::GatherPath, switches::Switches};
use pyo3::prelude::*;

use crate::{communicator::Communicator, errors};

/// The way of one call: `"solo"`, `"filesys_root_only"`, `"filesys"`, `"memory"` or `"auto"`.
#[pyfunction]
pub(crate) fn choose_path(
    py: Python<'_>,
    communicator: &Communicator,
    force_cpu: bool,
    force_filesys: bool,
) -> PyResult<&'static str> {
    // Variables count as they are when they are first asked for, like all others.
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
    Ok(
        match switches.path(member.world_size(), force_filesys, force_cpu) {
            GatherPath::Solo => "solo",
            GatherPath::FilesysRootOnly => "filesys_root_only",
            GatherPath::Filesys => "filesys",
            GatherPath::Memory => "memory",
            GatherPath::Auto => "auto",
        },
    )
}

/// Warns of the lists that are empty because rank 0 alone gets them: once for the whole job.
#[pyfunction]
pub(crate) fn warn_of_empty_lists(rank: u32) {
    GatherPath::FilesysRootOnly.warn_of_empty_lists(Rank::new(rank));
}
