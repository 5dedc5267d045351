//! The worlds of each job: [`Jobs`]. Pure.

use crate::trace::world::World;

/// Worlds by job. A job without an id has one world. The job with the latest world is the last one, and the oldest world of each
/// is its first.
#[derive(Clone, Debug)]
pub struct Jobs(Vec<Vec<World>>);

impl Jobs {
    /// Sorts the worlds that have left calls.
    #[must_use]
    pub fn of(mut worlds: Vec<World>) -> Self {
        worlds.retain(|world| !world.boxes.is_empty());
        worlds.sort_by_key(World::began);
        let mut jobs: Vec<Vec<World>> = Vec::new();
        for world in worlds {
            let is_same = |job: &Vec<World>| {
                let known = job.first().filter(|known| known.job().is_some());
                known.is_some_and(|known| {
                    (known.job(), known.directory(), &known.user)
                        == (world.job(), world.directory(), &world.user)
                })
            };
            let mut job = jobs.iter().position(is_same).map(|at| jobs.remove(at));
            job.get_or_insert_default().push(world);
            jobs.extend(job);
        }
        Self(jobs)
    }

    /// Returns the worlds of the last job, or of the last one with this id, and the number of earlier jobs that were passed over.
    #[must_use]
    pub fn chosen(&self, id: Option<&str>) -> Option<(&[World], usize)> {
        let mut jobs = self.0.iter();
        match id {
            None => Some((jobs.next_back()?, jobs.len())),
            Some(_) => Some((jobs.rfind(|worlds| id_of(worlds) == id)?, 0)),
        }
    }

    /// Returns the id of each job.
    #[must_use]
    pub fn ids(&self) -> Vec<Option<&str>> {
        self.0.iter().map(|worlds| id_of(worlds)).collect()
    }
}

fn id_of(worlds: &[World]) -> Option<&str> {
    worlds.first().and_then(World::job)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::trace::timeline::tests::left;

    #[test]
    fn last_job_is_chosen_by_default_with_all_its_worlds() {
        let world = |(number, job): (u64, Option<&str>)| {
            let mut world = World::new(Uuid::from_u128(number.into()));
            let mut left = left(0, number, Vec::new());
            left.header.job = job.map(str::to_owned);
            world.boxes.push(left);
            world
        };
        let worlds = [
            (3, None),
            (2, Some("b")),
            (1, Some("a")),
            (5, Some("a")),
            (4, None),
        ];
        let jobs = Jobs::of(worlds.into_iter().map(world).collect());
        let numbers = |chosen: Option<(&[World], usize)>| {
            let (worlds, others) = chosen.unwrap();
            let numbers = worlds.iter().map(|world| world.communicator.as_u128());
            (numbers.collect::<Vec<_>>(), others)
        };
        assert_eq!(numbers(jobs.chosen(None)), (vec![1, 5], 3));
        assert_eq!(numbers(jobs.chosen(Some("b"))), (vec![2], 0));
        assert!(jobs.chosen(Some("c")).is_none());
        assert_eq!(jobs.ids(), [Some("b"), None, None, Some("a")]);
        assert!(
            Jobs::of(vec![World::new(Uuid::nil())])
                .chosen(None)
                .is_none()
        );
    }
}
