//! The directories in which a rank keeps its last calls: [`shared`], [`own`].

use std::path::{Path, PathBuf};

use fsgather_config::settings::Transport;
use fsgather_core::{Error, StorageCause};
use fsgather_store::{FileSystem, calls, free_bytes, layout, make_rendezvous};

use crate::{group_state::GroupState, payload::path::PayloadPath};

/// Minimum free space of the file system that keeps calls, in bytes, so that they take no space from payloads.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// Returns the rendezvous directory in which ranks hand over payloads, have met, or could do so.
pub(crate) fn shared(inner: &GroupState) -> Option<PathBuf> {
    if let Some(PayloadPath::Files(files)) = inner.world.settled() {
        return files.directory().path().parent().map(Path::to_owned);
    }
    let context = &inner.world.context;
    let known = context.known.first().map(|(place, _)| place.clone());
    // If payloads go through memory, nothing may appear in a directory in which ranks do not meet.
    let uses_files = inner.world.request().transport != Transport::Memory;
    let named = context.named.as_deref().filter(|_| uses_files);
    known.or_else(|| named.map(layout::rendezvous_path))
}

/// Returns the directory of this host: `shared` if it is on a file system of this host, else a private one.
pub(crate) fn own(shared: Option<&Path>) -> Result<PathBuf, Error> {
    let is_local = |place: &&Path| FileSystem::of(place).is_ok_and(|of| of.is_mappable());
    let made = |place: &Path| make_rendezvous(place.parent()?).ok();
    let own = match shared.filter(is_local).and_then(made) {
        Some(own) => own,
        None => calls::local_rendezvous()?,
    };
    if free_bytes(&own).is_some_and(|free| free < MIN_FREE_BYTES) {
        let cause = StorageCause::described("it has little room");
        return Err(Error::storage("keep calls in", &own, cause));
    }
    Ok(own)
}

/// Returns true if no rank with a lower number runs on the host of this one.
pub(crate) fn is_first_of_host(inner: &GroupState) -> bool {
    let world = &inner.world;
    let Some(own) = world.processes.get(world.rank.index()) else {
        return false;
    };
    let of_host = world.processes.iter().position(|one| one.sees_pids_of(own));
    of_host == Some(world.rank.index())
}
