//! Results that are kept while calls go on: steps `keep:LEN`, `right`, `let_go`.

use fsgather::{Communicator, Payload};
use fsgather_tests::{Generated, generate_for};

use crate::{Failure, values::len_of};

/// Results, and for which job they were generated.
#[derive(Default)]
pub(crate) struct Kept {
    all: Vec<(u64, String, Vec<Payload>)>,
}

impl Kept {
    /// Gathers from everybody, and keeps what comes.
    pub(crate) fn keep(&mut self, communicator: &Communicator, len: &str) -> Result<(), Failure> {
        let me = communicator.rank().get();
        let own = Generated::new(me, len_of(len, me)).bytes();
        let parts = communicator.all_gather_bytes(&own)?;
        let job = generate_for(0);
        generate_for(job);
        self.all.push((job, len.into(), parts));
        Ok(())
    }

    /// Whether everything still is as it came.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for (job, len, parts) in &self.all {
            let before = generate_for(*job);
            let wrong = (0..)
                .zip(parts)
                .find(|(rank, part)| !Generated::new(*rank, len_of(len, *rank)).matches(part));
            generate_for(before);
            if let Some((rank, _)) = wrong {
                return Err(Failure::Wrong(format!(
                    "what rank {rank} handed in to job {job} has changed"
                )));
            }
        }
        Ok(())
    }

    /// Lets go of everything.
    pub(crate) fn let_go(&mut self) {
        self.all.clear();
    }
}
