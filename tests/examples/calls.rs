//! One rank of many equal calls in a row: `calls OPERATION BYTES COUNT`, with the rank and the rest from the environment.
//!
//! For tools that count what a call costs, such as `scripts/count-instructions`: what `COUNT` calls cost more than half as
//! many is the cost of the calls alone. Rank 0 prints the seconds that ranks took to meet,
//! and then those of each tenth of the calls.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use fsgather::{Communicator, Error, Pieces, Rank};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [operation, bytes, count] = &words[..] else {
        complain("usage: calls barrier|gather|all_gather BYTES COUNT");
        return ExitCode::from(2);
    };
    let (Ok(bytes), Ok(count)) = (bytes.parse(), count.parse()) else {
        complain(&format!("{bytes} and {count} are to be numbers"));
        return ExitCode::from(2);
    };
    match run(operation, bytes, count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(operation: &str, bytes: usize, count: usize) -> Result<(), Error> {
    let mut since = Instant::now();
    let world = Communicator::from_env()?;
    let own = vec![7; bytes];
    let mut say = || {
        if world.rank() == Rank::ZERO {
            let _ = writeln!(io::stdout(), "{:.6}", since.elapsed().as_secs_f64());
            since = Instant::now();
        }
    };
    say();
    for number in 1..=count {
        match operation {
            "barrier" => world.barrier()?,
            "gather" => {
                for part in world.gather(Pieces::from(&own), 0)?.into_iter().flatten() {
                    assert_eq!(part?.1.len(), bytes);
                }
            }
            "all_gather" => {
                let parts = world.all_gather(Pieces::from(&own))?;
                assert!(parts.iter().all(|part| part.len() == bytes));
            }
            other => return Err(Error::config(format!("there is no operation {other}"))),
        }
        if number.is_multiple_of(count.div_ceil(10)) {
            say();
        }
    }
    world.close()
}

fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
