//! The arguments of `bench`: [`BenchArguments`], and [`Work`], its part for the ranks.

use std::{ffi::OsString, path::PathBuf};

use bytesize::ByteSize;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use fsgather::WorldSize;
use fsgather_config::settings::{Choice, Control, Transport};

use super::operation::{Operation, Recipients};
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  fsgather bench
      four ranks and 64 MiB each: barrier, broadcast, gather and all_gather
  fsgather bench --dir /shared/scratch --operation gather --ranks 8
      how fast a file system is for gathering to rank 0
  fsgather bench --operation barrier,all_gather --bytes 64 --iterations 1000
      how long small calls take
  fsgather bench --transport filesys,memory --json | jq .rows
      both paths, for programs

What is measured:
  Ranks are processes of this machine. They meet once for each transport, start
  each iteration together and take their own time, from the call until all that
  was received has been looked at, a byte of every page, and freed. An iteration
  takes as long as its slowest rank. Barriers are called in a row, as a loop
  would. Every rank hands over the same random bytes each time, so that making
  them is not measured, and receives into fresh memory. Some iterations that do
  not count come first. MEMORY is the most that the largest rank held, its own
  payload included. GiB/s is what each receiving rank gets in a second, its own
  part included, by the median.

  Removing files is not counted: the library does so in the background, and
  the next iteration waits for it.

Files are made in a new directory inside DIR, which is removed again. The exit
code is that of the first rank that failed, 128 + n for signal n, as in `run`.

With --json, standard output carries {schema_version, host, directory,
  file_system, source, rows: [{operation, transport, control, ranks, bytes,
  recipients, iterations, median_seconds, min_seconds, p90_seconds,
  peak_rss_bytes}]}; docs/reference/json.md has more.";

/// Measure how long calls take, between rank processes on this machine.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArguments {
    /// How many rank processes, from 1 to 128.
    #[arg(short = 'n', long, value_name = "N", default_value = "4", value_parser = ranks)]
    pub(super) ranks: WorldSize,

    /// Existing directory on the file system to measure (env: `FSGATHER_DIR`, else `EXP_DIR`; else the
    /// system's temporary directory).
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    /// Only operations whose result all ranks receive, or the root alone.
    #[arg(long, value_name = "WHO", value_enum)]
    recipients: Option<Recipients>,

    #[command(flatten)]
    work: Work,
}

/// What each rank has to know.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// The payload of each rank: 64, 16MiB, 1GiB.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub(super) bytes: usize,

    /// What to measure, separated by commas; without it everything.
    #[arg(
        long = "operation",
        value_name = "LIST",
        value_delimiter = ',',
        value_enum
    )]
    pub(super) operations: Vec<Operation>,

    /// How payloads travel, separated by commas, each measured with ranks of its own; without it `FSGATHER_TRANSPORT`, else
    /// filesys.
    #[arg(long = "transport", value_name = "LIST", value_delimiter = ',',
          value_parser = one_of::<Transport>())]
    pub(super) transports: Vec<Transport>,

    /// How ranks talk; without it `FSGATHER_CONTROL`, else auto.
    #[arg(long, value_name = "HOW",
          value_parser = one_of::<Control>())]
    pub(super) control: Option<Control>,

    /// How many iterations count; without it as many as fit into 2 seconds, from 10 to 1000.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) iterations: Option<u32>,
}

impl BenchArguments {
    /// The part of the arguments for the ranks, with all operations filled in.
    ///
    /// # Errors
    ///
    /// Returns an error if a requested operation has other recipients than the requested ones.
    pub(super) fn work(&self) -> Result<Work, Failure> {
        let mut work = self.work.clone();
        let is_wanted = |operation: &Operation| {
            self.recipients
                .is_none_or(|wanted| operation.recipients() == wanted)
        };
        if work.operations.is_empty() {
            work.operations = Operation::ALL.into_iter().filter(is_wanted).collect();
        } else if let Some(odd) = work.operations.iter().find(|one| !is_wanted(one)) {
            let recipients = odd.recipients().word();
            return Err(Failure::usage(format!(
                "--operation {} does not go with --recipients: its result goes to {recipients}; leave \
                 one of them out",
                odd.word(),
            )));
        }
        Ok(work)
    }
}

impl Work {
    /// Renders the same as words of a command line.
    pub(super) fn to_arguments(&self) -> Vec<OsString> {
        let mut words = vec![format!("--bytes={}", self.bytes)];
        let operations = self.operations.iter().map(|one| one.word());
        words.extend(operations.map(|word| format!("--operation={word}")));
        let transports = self.transports.iter();
        words.extend(transports.map(|one| format!("--transport={one}")));
        words.extend(self.control.map(|control| format!("--control={control}")));
        words.extend(self.iterations.map(|count| format!("--iterations={count}")));
        words.into_iter().map(OsString::from).collect()
    }
}

/// Maximum number of ranks: the number of connections that a listening socket queues.
const MOST_RANKS: u32 = 128;

fn ranks(text: &str) -> Result<WorldSize, String> {
    let explain = || format!("write a number of ranks between 1 and {MOST_RANKS}");
    let ranks: u32 = text.parse().map_err(|_| explain())?;
    match WorldSize::new(ranks) {
        Ok(world) if ranks <= MOST_RANKS => Ok(world),
        _ => Err(explain()),
    }
}

/// Parses a positive number of bytes, with or without a unit.
fn size(text: &str) -> Result<usize, String> {
    let ByteSize(bytes) = text.parse().unwrap_or_default();
    match usize::try_from(bytes) {
        Ok(bytes) if bytes > 0 && bytes < usize::MAX => Ok(bytes),
        _ => Err("write a number of bytes from 1, such as 4096, 64KiB or 1GiB".into()),
    }
}

/// Parses one of the words of a setting.
fn one_of<T: Choice>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::ALL.iter().map(|value| value.word()))
        .try_map(|text| T::of_word(&text).ok_or("not one of the words"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{
        arguments::{Arguments, Verb},
        exit,
    };

    fn parse(arguments: &[&str]) -> Result<BenchArguments, clap::Error> {
        let words = ["fsgather", "bench"].iter().chain(arguments);
        match Arguments::try_parse_from(words)?.verb {
            Verb::Bench(bench) => Ok(bench),
            _ => panic!("not the verb asked for"),
        }
    }

    fn operations(arguments: &[&str]) -> Vec<Operation> {
        parse(arguments).unwrap().work().unwrap().operations
    }

    #[test]
    fn without_arguments_everything_is_measured_with_64_mib() {
        let bench = parse(&[]).unwrap();
        assert_eq!(bench.ranks.get(), 4);
        assert_eq!(bench.work.bytes, 64 << 20);
        assert_eq!(operations(&[]), Operation::ALL);
    }

    #[test]
    fn ranks_get_what_was_asked_for() {
        let given = "--bytes 1.5KiB --operation gather,barrier --transport memory,filesys \
                     --control markers --iterations 7";
        let given: Vec<&str> = given.split_whitespace().collect();
        let work = parse(&given).unwrap().work().unwrap();
        assert_eq!(work.bytes, 1536);
        assert_eq!(work.operations, [Operation::Gather, Operation::Barrier]);
        assert_eq!(work.transports, [Transport::Memory, Transport::Filesys]);
        assert_eq!(work.control, Some(Control::Markers));
        let words: Vec<OsString> = ["fsgather", "bench-rank", "--place", "/x"]
            .map(OsString::from)
            .into_iter()
            .chain(work.to_arguments())
            .collect();
        match Arguments::try_parse_from(words).unwrap().verb {
            Verb::BenchRank(rank) => assert_eq!(rank.work, work),
            verb => panic!("{verb:?}"),
        }
    }

    #[test]
    fn recipients_choose_operations_and_may_not_contradict_them() {
        use Operation::{AllGather, Barrier, Broadcast, Gather};
        assert_eq!(operations(&["--recipients", "root"]), [Gather]);
        let all = [Barrier, Broadcast, AllGather];
        assert_eq!(operations(&["--recipients", "all"]), all);
        let both = ["--recipients", "all", "--operation", "all_gather,gather"];
        let failure = parse(&both).unwrap().work().unwrap_err();
        assert_eq!(failure.exit_code(), exit::USAGE);
        assert!(
            failure.to_string().contains("--operation gather"),
            "{failure}"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [
            &["--ranks", "0"][..],
            &["--ranks", "129"],
            &["--bytes", "0"],
            &["--bytes", "64 pages"],
            &["--bytes", "99999999999999999999"],
            &["--iterations", "0"],
            &["--operation", "reduce"],
            &["--transport", "carrier-pigeon"],
            &["--control", "filesys"],
            &["--recipients", "some"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
