//! The functions that existing jobs call, on the process's own communicator: [`all_gather`],
//! [`all_gather_via_filesys`], [`all_gather_list`].
//!
//! New programs use [`Communicator`].

use std::{
    panic::Location,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use fsgather_config::{settings::Transport, switches::Switches};
use fsgather_core::{Error, Rank, Site, lock};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Options, call::blocking::step_aside, communicator::Communicator};

/// The options of one call of [`all_gather`]; by default those of the variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllGatherOptions {
    /// Uses memory rather than files.
    pub force_cpu: bool,
    /// Uses files of the shared directory.
    pub force_filesys: bool,
    /// The shared directory, if files are used; else `FSGATHER_DIR`, `EXP_DIR`, the default.
    pub filesys_save_dir: Option<PathBuf>,
}

/// The communicator of the process, made by the first call that needs it.
static OWN: Mutex<Option<Arc<Own>>> = Mutex::new(None);

struct Own {
    communicator: Communicator,
    switches: Switches,
}

impl Own {
    /// The communicator through this transport and directory, for calls at this place.
    fn handle(&self, transport: Transport, directory: Option<&Path>, site: Site) -> Communicator {
        let options = Options::new().transport(transport).at(site);
        self.communicator.with(match directory {
            Some(directory) => options.directory(directory),
            None => options,
        })
    }
}

/// Gathers the values of all ranks on every rank, in rank order, through memory or files.
///
/// The first that applies decides:
///
/// | condition | path |
/// |---|---|
/// | the world has one rank | none: `[data]` |
/// | `FSGATHER_ROOT_ONLY=1` or `MDETR_FILESYS_REDUCE_RANK_0_ONLY=1` | files; only rank 0 gets the list, the others an empty one |
/// | `FSGATHER_TRANSPORT=filesys`, `MDETR_FILESYS_REDUCE=1` or `force_filesys` | files |
/// | `FSGATHER_TRANSPORT=memory`, `MDETR_CPU_REDUCE=1` or `force_cpu` | memory |
/// | otherwise | files where ranks share a directory, else memory |
///
/// The first call in a process joins the world; [`close`] ends it.
///
/// # Errors
///
/// Those of [`Communicator::from_env`] and [`Communicator::all_gather`].
///
/// # Examples
///
/// ```standalone_crate
/// use fsgather::compat::{self, AllGatherOptions};
///
/// let all = compat::all_gather(&vec![0.5, 0.25], &AllGatherOptions::default())?;
/// assert_eq!(all, [[0.5, 0.25]]);
/// fsgather::compat::close()?;
/// # Ok::<(), fsgather::Error>(())
/// ```
#[track_caller]
pub fn all_gather<T>(data: &T, options: &AllGatherOptions) -> Result<Vec<T>, Error>
where
    T: Serialize + DeserializeOwned,
{
    let site = Site::of(Location::caller());
    step_aside(|| {
        let own = own()?;
        let path = own.switches.agreed(own.communicator.transport()).path(
            own.communicator.world_size(),
            options.force_filesys,
            options.force_cpu,
        );
        path.warn_of_empty_lists(own.communicator.rank());
        let directory = options.filesys_save_dir.as_deref();
        let handle = own.handle(path.transport(), directory, site);
        gather(&handle, data, path.is_root_only())
    })
}

/// Gathers the values of all ranks through files of a shared directory, in rank order.
///
/// The directory is the argument, else `FSGATHER_DIR`, else `EXP_DIR`, else the default. With
/// `gather_to_rank_0_only` the other ranks get an empty list. In a world of one rank no file is touched.
///
/// Values that fit into the control messages make no file.
///
/// # Errors
///
/// Those of [`all_gather`], and [`Error::NotShared`] when ranks do not see one directory.
///
/// # Examples
///
/// ```standalone_crate
/// let all = fsgather::compat::all_gather_via_filesys(&"boxes".to_string(), None, false)?;
/// assert_eq!(all, ["boxes"]);
/// # Ok::<(), fsgather::Error>(())
/// ```
#[track_caller]
pub fn all_gather_via_filesys<T>(
    data: &T,
    filesys_save_dir: Option<&Path>,
    gather_to_rank_0_only: bool,
) -> Result<Vec<T>, Error>
where
    T: Serialize + DeserializeOwned,
{
    let site = Site::of(Location::caller());
    step_aside(|| {
        let handle = own()?.handle(Transport::Filesys, filesys_save_dir, site);
        gather(&handle, data, gather_to_rank_0_only)
    })
}

/// Gathers the values of all ranks on every rank, in rank order. No value may need more than `max_size` bytes.
///
/// The bound is compared between ranks, and every value with it, before any data moves: a value that does not fit is an
/// error on all ranks, and the next call may give a larger bound.
///
/// # Errors
///
/// Those of [`all_gather`], and [`Error::TooLarge`] on all ranks, naming the rank and the size of its value in bytes.
///
/// # Examples
///
/// ```standalone_crate
/// assert_eq!(fsgather::compat::all_gather_list(&0.25, 16)?, [0.25]);
/// let refused = fsgather::compat::all_gather_list(&"x".repeat(100), 16).unwrap_err();
/// assert!(matches!(refused, fsgather::Error::TooLarge { size: 101, bound: 16, .. }));
/// fsgather::compat::close()?;
/// # Ok::<(), fsgather::Error>(())
/// ```
#[track_caller]
pub fn all_gather_list<T>(data: &T, max_size: u64) -> Result<Vec<T>, Error>
where
    T: Serialize + DeserializeOwned,
{
    let site = Site::of(Location::caller());
    step_aside(|| {
        let options = Options::new().bound(max_size).at(site);
        own()?.communicator.with(options).all_gather(data)
    })
}

/// Ends the process's own communicator together with all other ranks, and leaves nothing behind.
///
/// Does nothing if no function of this module has been called. A later call joins anew.
///
/// # Errors
///
/// Those of [`Communicator::close`], and [`Error::Config`] while another thread is in a call.
pub fn close() -> Result<(), Error> {
    let own = lock(&OWN).take();
    match own.map(Arc::try_unwrap) {
        None => Ok(()),
        Some(Ok(own)) => own.communicator.close(),
        Some(Err(in_use)) => {
            *lock(&OWN) = Some(in_use);
            Err(Error::config(
                "another thread is in a call on the process's own communicator; wait for it before close",
            ))
        }
    }
}

/// Gathers the values of all ranks, on rank 0 only or on all.
fn gather<T>(handle: &Communicator, data: &T, root_only: bool) -> Result<Vec<T>, Error>
where
    T: Serialize + DeserializeOwned,
{
    if root_only {
        let parts = handle.gather(data, Rank::ZERO)?.into_iter().flatten();
        parts.map(|part| Ok(part?.1)).collect()
    } else {
        handle.all_gather(data)
    }
}

fn own() -> Result<Arc<Own>, Error> {
    let mut own = lock(&OWN);
    if let Some(own) = &*own {
        return Ok(Arc::clone(own));
    }
    let switches = Switches::from_env()?;
    let made = Arc::new(Own {
        communicator: Communicator::from_env()?,
        switches,
    });
    *own = Some(Arc::clone(&made));
    Ok(made)
}
