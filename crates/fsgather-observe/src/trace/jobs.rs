//! Worlds by job: [`Jobs`]. Pure.

use crate::trace::black_box::World;

/// Worlds by job, those of a job without an id each on their own. The job with the latest world is the last one, and of
/// each the oldest world is the first.
#[derive(Clone, Debug)]
pub struct Jobs(Vec<Vec<World>>);

impl Jobs {
    /// Sorts worlds of which calls were found.
    #[must_use]
    pub fn of(worlds: Vec<World>) -> Self {
        let mut worlds: Vec<World> = worlds
            .into_iter()
            .filter(|world| !world.boxes.is_empty())
            .collect();
        worlds.sort_by_key(World::began);
        let mut jobs: Vec<Vec<World>> = Vec::new();
        for world in worlds {
            let id = world.job();
            let is_same = |job: &Vec<World>| id.is_some() && id_of(job) == id;
            let mut all = jobs.iter().position(is_same).map(|at| jobs.remove(at));
            all.get_or_insert_default().push(world);
            jobs.extend(all);
        }
        Self(jobs)
    }

    /// The worlds of the job with this id, or of the last one where none is given; and how many others there are.
    #[must_use]
    pub fn chosen(&self, job: Option<&str>) -> Option<(&[World], usize)> {
        match job {
            None => Some((self.0.last()?, self.0.len() - 1)),
            // Who names it knows that there may be others.
            Some(_) => Some((self.0.iter().find(|worlds| id_of(worlds) == job)?, 0)),
        }
    }

    /// The id of each.
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
    fn a_job_has_all_its_worlds_and_the_last_one_is_chosen_where_none_is_named() {
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
