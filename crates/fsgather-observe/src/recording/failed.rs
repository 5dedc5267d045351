//! The files that this process has left of failed worlds: [`Failed`].

use std::{path::PathBuf, sync::Mutex};

use fsgather_core::lock;
use fsgather_store::calls;
use uuid::Uuid;

/// Maximum number of failed worlds whose calls a process leaves: a program that tries again and again leaves those of
/// the last ones.
const MOST_FAILED: usize = 3;

/// The leftovers of this process.
pub(super) static FAILED: Failed = Failed(Mutex::new(Vec::new()));

/// The leftovers of failed worlds.
pub(super) struct Failed(Mutex<Vec<Left>>);

/// The leftovers of one failed world.
struct Left {
    /// The process that left them: a forked child inherits the list.
    process: u32,
    communicator: Uuid,
    /// The file, and its copy.
    paths: [PathBuf; 2],
}

impl Failed {
    /// Returns the worlds whose calls this process has left.
    pub(super) fn known(&self) -> Vec<Uuid> {
        let left = lock(&self.0);
        own(&left).map(|one| one.communicator).collect()
    }

    /// Records the leftovers of a world, if it leaves any, and removes needless leftovers of earlier worlds: with
    /// `closed`, those of the worlds in `got_over`, from whose failures the program has recovered.
    pub(super) fn settle(
        &self,
        stays: Option<(Uuid, [PathBuf; 2])>,
        closed: bool,
        got_over: &[Uuid],
    ) {
        let mut left = lock(&self.0);
        left.extend(stays.map(|(communicator, paths)| Left {
            process: std::process::id(),
            communicator,
            paths,
        }));
        let mut more = own(&left).count().saturating_sub(MOST_FAILED);
        let removed: Vec<Left> = left
            .extract_if(.., |one| {
                let is_own = one.process == std::process::id();
                let is_more = is_own && more > 0;
                more -= usize::from(is_more);
                is_more || is_own && closed && got_over.contains(&one.communicator)
            })
            .collect();
        drop(left);
        for path in removed.iter().flat_map(|one| &one.paths) {
            calls::remove(path);
        }
    }
}

/// Returns the leftovers of this process.
fn own(left: &[Left]) -> impl Iterator<Item = &Left> {
    let process = std::process::id();
    left.iter().filter(move |one| one.process == process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_got_over_goes_and_of_the_rest_the_last_three_stay() {
        let place = tempfile::tempdir().unwrap();
        let paths = |world: u128| [0, 1].map(|copy| place.path().join(format!("{world}-{copy}")));
        let failed = Failed(Mutex::default());
        let fail = |world: u128| {
            for path in paths(world) {
                std::fs::write(path, "calls").unwrap();
            }
            failed.settle(Some((Uuid::from_u128(world), paths(world))), false, &[]);
        };
        let left = |all: &[u128]| {
            let stays = |world: u128| paths(world).iter().all(|path| path.exists());
            assert!(
                (1..6).all(|world| stays(world) == all.contains(&world)),
                "{all:?}"
            );
        };
        fail(1);
        fail(2);
        left(&[1, 2]);
        // A world that is made now, and closed after the next one has failed.
        let got_over = failed.known();
        fail(3);
        failed.settle(None, false, &got_over);
        left(&[1, 2, 3]);
        failed.settle(None, true, &got_over);
        left(&[3]);
        fail(4);
        fail(5);
        left(&[3, 4, 5]);
        fail(6);
        left(&[4, 5]);
    }
}
