//! Results that are kept while calls go on: steps `keep:LEN`, `keep_some:ROOT:LEN:COUNT`,
//! `right`, `let_go`.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use fsgather::{Communicator, Payload, Pieces, Rank};
use fsgather_tests::{Generated, generate_for};

use crate::{
    Failure,
    values::{len_of, number},
};

/// Results that are kept.
#[derive(Default)]
pub(crate) struct Kept {
    all: Vec<Parts>,
}

/// What one call has brought, and for which job it was generated.
struct Parts {
    job: u64,
    len: String,
    all: Vec<(Rank, Payload)>,
}

impl Kept {
    /// Takes a step whose result is kept.
    pub(crate) fn take(
        &mut self,
        communicator: &Communicator,
        words: &[&str],
    ) -> Result<(), Failure> {
        match *words {
            ["keep", len] => self.keep(communicator, len),
            ["keep_some", root, len, count] => self.keep_some(communicator, [root, len, count]),
            _ => panic!("no such step: {words:?}"),
        }
    }

    /// Gathers from everybody, and keeps what comes.
    fn keep(&mut self, communicator: &Communicator, len: &str) -> Result<(), Failure> {
        let me = communicator.rank().get();
        let own = Generated::new(me, len_of(len, me)).bytes();
        self.add(len, of_all(communicator.all_gather(Pieces::from(&own))?));
        Ok(())
    }

    /// Keeps so many parts of a gather, and gives up the others.
    fn keep_some(
        &mut self,
        communicator: &Communicator,
        [root, len, count]: [&str; 3],
    ) -> Result<(), Failure> {
        let me = communicator.rank().get();
        let own = Generated::new(me, len_of(len, me)).bytes();
        let parts = communicator.gather(Pieces::from(&own), number(root))?;
        let some = parts.into_iter().flatten().take(number(count) as usize);
        self.add(len, some.collect::<Result<Vec<_>, _>>()?);
        Ok(())
    }

    fn add(&mut self, len: &str, parts: Vec<(Rank, Payload)>) {
        let job = generate_for(0);
        generate_for(job);
        self.all.push(Parts {
            job,
            len: len.into(),
            all: parts,
        });
    }

    /// Whether everything still is as it came.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for Parts { job, len, all } in &self.all {
            let before = generate_for(*job);
            let wrong = all.iter().find(|(rank, part)| {
                !Generated::new(rank.get(), len_of(len, rank.get())).matches(part)
            });
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

/// The payloads of all ranks, each with its rank.
fn of_all(parts: Vec<Payload>) -> Vec<(Rank, Payload)> {
    (0..).map(Rank::new).zip(parts).collect()
}
