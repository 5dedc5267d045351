//! The functions that existing jobs call, on the process's own communicator: [`all_gather`],
//! [`all_gather_via_filesys`].

use std::{
    panic::Location,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
};

use fsgather_core::{Error, Rank, Site};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    blocking::step_aside,
    communicator::Communicator,
    environment::Variables,
    path_choice::{GatherPath, PathConditions, choose_path},
    route::Route,
    settings::{Settings, Transport},
};

/// How one call of [`all_gather`] is to be made; by default as the variables say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllGatherOptions {
    /// Through memory rather than files.
    pub force_cpu: bool,
    /// Through files of the shared directory.
    pub force_filesys: bool,
    /// The shared directory, where files are used; else `FSGATHER_DIR`, `EXP_DIR`, the default.
    pub filesys_save_dir: Option<PathBuf>,
}

/// The communicator of the process, made by the first call that needs it.
static OWN: Mutex<Option<Arc<Own>>> = Mutex::new(None);

struct Own {
    communicator: Communicator,
    root_only: bool,
    transport: Transport,
}

/// Gathers everybody's value on every rank, in rank order, by whichever path is asked for.
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
/// ```
/// use fsgather::AllGatherOptions;
///
/// let all = fsgather::all_gather(&vec![0.5, 0.25], &AllGatherOptions::default())?;
/// assert_eq!(all, [[0.5, 0.25]]);
/// fsgather::close()?;
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
        let path = choose_path(PathConditions {
            world_size: own.communicator.world_size(),
            root_only: own.root_only,
            transport: own.transport,
            force_filesys: options.force_filesys,
            force_cpu: options.force_cpu,
        });
        let (transport, root_only) = match path {
            GatherPath::Solo | GatherPath::Memory => (Transport::Memory, false),
            GatherPath::FilesysRootOnly => (Transport::Filesys, true),
            GatherPath::Filesys => (Transport::Filesys, false),
            GatherPath::Auto => (Transport::Auto, false),
        };
        if root_only {
            warn_of_empty_lists(own.communicator.rank());
        }
        let uses_files = transport != Transport::Memory;
        let directory = options.filesys_save_dir.clone().filter(|_| uses_files);
        let route = Route {
            transport,
            directory,
        };
        gather(&own.communicator, &route, data, root_only, site)
    })
}

/// Gathers everybody's value through files of a shared directory, in rank order.
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
/// ```
/// let all = fsgather::all_gather_via_filesys(&"boxes".to_string(), None, false)?;
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
        let own = own()?;
        let route = Route {
            transport: Transport::Filesys,
            directory: filesys_save_dir.map(Path::to_owned),
        };
        gather(&own.communicator, &route, data, gather_to_rank_0_only, site)
    })
}

/// Ends the process's own communicator together with all other ranks, and leaves nothing behind.
///
/// Does nothing when no function of this module has been called. A later call joins anew.
///
/// # Errors
///
/// Those of [`Communicator::close`], and [`Error::Config`] while another thread is in a call.
pub fn close() -> Result<(), Error> {
    let own = lock().take();
    match own.map(Arc::try_unwrap) {
        None => Ok(()),
        Some(Ok(own)) => own.communicator.close(),
        Some(Err(in_use)) => {
            *lock() = Some(in_use);
            Err(Error::config(
                "another thread is in a call on the process's own communicator; wait for it before close",
            ))
        }
    }
}

fn gather<T>(
    communicator: &Communicator,
    route: &Route,
    data: &T,
    root_only: bool,
    site: Site,
) -> Result<Vec<T>, Error>
where
    T: Serialize + DeserializeOwned,
{
    if root_only {
        let gathered = communicator.gather_by(route, data, 0, site)?;
        gathered.all().into_iter().flatten().collect()
    } else {
        communicator.all_gather_by(route, data, None, site)
    }
}

fn own() -> Result<Arc<Own>, Error> {
    let mut own = lock();
    if let Some(own) = &*own {
        return Ok(Arc::clone(own));
    }
    let settings = Settings::resolve(&Variables::of_process())?;
    let made = Arc::new(Own {
        communicator: Communicator::from_env()?,
        root_only: settings.root_only.value,
        transport: settings.transport.value,
    });
    *own = Some(Arc::clone(&made));
    Ok(made)
}

fn lock() -> MutexGuard<'static, Option<Arc<Own>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Said once for the whole job, by a rank that it concerns.
fn warn_of_empty_lists(rank: Rank) {
    static ONCE: Once = Once::new();
    if rank == Rank::new(1) {
        ONCE.call_once(|| {
            tracing::warn!(
                "all_gather returns an empty list on every rank but 0, because FSGATHER_ROOT_ONLY=1 or \
                 MDETR_FILESYS_REDUCE_RANK_0_ONLY=1 is set"
            );
        });
    }
}
