//! Results that are kept while calls go on: steps `keep:LEN`, `lend:LEN`, `give:LEN`, `keep_some:ROOT:LEN:COUNT`,
//! `lend_some:ROOT:LEN:COUNT`, `right`, `let_go`.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use fsgather::{Communicator, Payload, Rank, SendBuffer};
use fsgather_tests::{Generated, generate_for};

use crate::{
    Failure, say,
    values::{len_of, number},
};

/// What is written to a send buffer once it has been handed over.
const WRITTEN_LATER: u8 = 0xA5;

/// Results that are kept, and what was handed over for them.
#[derive(Default)]
pub(crate) struct Kept {
    all: Vec<Parts>,
    /// What was handed over in memory that was lent for it, and then written to.
    buffers: Vec<SendBuffer>,
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
            ["lend", len] => self.lend(communicator, len),
            ["give", len] => self.give(communicator, len),
            [how, root, len, count] => {
                self.keep_some(communicator, [root, len, count], how == "lend_some")
            }
            _ => panic!("no such step: {words:?}"),
        }
    }

    /// Gathers from everybody, and keeps what comes.
    fn keep(&mut self, communicator: &Communicator, len: &str) -> Result<(), Failure> {
        let me = communicator.rank().get();
        let own = Generated::new(me, len_of(len, me)).bytes();
        self.add(len, of_all(communicator.all_gather_bytes(&own)?));
        Ok(())
    }

    /// Keeps so many parts of a gather, as they come, of send buffers if they are `lent`, and gives up the others.
    fn keep_some(
        &mut self,
        communicator: &Communicator,
        [root, len, count]: [&str; 3],
        is_lent: bool,
    ) -> Result<(), Failure> {
        let me = communicator.rank().get();
        let own = Generated::new(me, len_of(len, me)).bytes();
        let take = |bytes: &[u8]| {
            let parts = communicator.gather_bytes(bytes, number(root))?;
            let some = parts.into_iter().flatten().take(number(count) as usize);
            some.collect::<Result<Vec<_>, _>>()
        };
        let parts = if is_lent {
            let mut buffer = lent(communicator, &own);
            let parts = take(&buffer)?;
            buffer.fill(WRITTEN_LATER);
            self.buffers.push(buffer);
            parts
        } else {
            take(&own)?
        };
        self.add(len, parts);
        say("has some");
        Ok(())
    }

    /// The same of a send buffer, which is kept as well, and written to.
    fn lend(&mut self, communicator: &Communicator, len: &str) -> Result<(), Failure> {
        let me = communicator.rank().get();
        let own = Generated::new(me, len_of(len, me)).bytes();
        let mut buffer = lent(communicator, &own);
        let parts = communicator.all_gather_bytes(&buffer)?;
        buffer.fill(WRITTEN_LATER);
        self.buffers.push(buffer);
        self.add(len, of_all(parts));
        Ok(())
    }

    /// The same of a send buffer that is handed over by value.
    fn give(&mut self, communicator: &Communicator, len: &str) -> Result<(), Failure> {
        let me = communicator.rank().get();
        let own = Generated::new(me, len_of(len, me)).bytes();
        let given = lent(communicator, &own);
        self.add(len, of_all(communicator.all_gather_bytes(given)?));
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
        let mut buffers = self.buffers.iter();
        if buffers.any(|buffer| buffer.iter().any(|byte| *byte != WRITTEN_LATER)) {
            return Err(Failure::Wrong(
                "what was written to a send buffer has changed".into(),
            ));
        }
        Ok(())
    }

    /// Lets go of everything.
    pub(crate) fn let_go(&mut self) {
        self.all.clear();
        self.buffers.clear();
    }
}

/// A send buffer that holds these bytes.
fn lent(communicator: &Communicator, bytes: &[u8]) -> SendBuffer {
    let mut buffer = communicator.send_buffer(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer
}

/// The payloads of all ranks, each with its rank.
fn of_all(parts: Vec<Payload>) -> Vec<(Rank, Payload)> {
    (0..).map(Rank::new).zip(parts).collect()
}
