//! The hidden verb `bench-rank`: one rank that measures.

use std::path::PathBuf;

use clap::Args;
use fsgather::{Communicator, Rendezvous};
use fsgather_config::{
    environment::Variables,
    settings::{Settings, Transport},
};

use super::{
    arguments::Work,
    course::{Measurement, Series},
    library::Library,
    operation::Operation,
    report::{BenchReport, Ground, Measured},
};
use crate::{exit, failure::Failure, invocation::Invocation, log, membership::Membership, output};

/// One rank of `fsgather bench`, which starts this by itself.
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct BenchRankArguments {
    /// Where to gather.
    #[arg(long)]
    place: PathBuf,

    /// Say what is being measured.
    #[arg(long)]
    announce: bool,

    #[command(flatten)]
    pub(super) work: Work,
}

/// Measures the requested operations, together with the other ranks; rank 0 prints the results.
///
/// # Errors
///
/// Returns any error of this rank or another one.
pub(crate) fn bench_rank(
    arguments: &BenchRankArguments,
    json: bool,
    invocation: &Invocation,
) -> Result<u8, Failure> {
    log::start()?;
    let settings = Settings::resolve(&Variables::of_process())?;
    let work = &arguments.work;
    // Files go to a new directory inside the measured one, which is removed again.
    let ground = Ground::of(arguments.place.parent().unwrap_or(&arguments.place));
    if settings.detection.rank.get() == 0 && !json {
        let text = ground.text(settings.detection.world_size, work);
        output::write(output::Stream::Stdout, format!("{text}\n\n").as_bytes())
            .map_err(Failure::system("write standard output"))?;
    }
    let mut measured = Vec::new();
    for &transport in &work.transports {
        let mut builder = Communicator::builder()
            .directory(&arguments.place)
            .rendezvous(Rendezvous::File(arguments.place.clone()))
            .transport(transport);
        if let Some(control) = work.control {
            builder = builder.control(control);
        }
        let membership = Membership::enter(builder, invocation)?;
        let bench = Bench {
            arguments,
            settings: &settings,
            transport,
        };
        measured.extend(membership.complete(|world| bench.measure(world))?);
    }
    if settings.detection.rank.get() == 0 {
        let report = BenchReport::new(ground, work, settings.detection.world_size, &measured);
        if json {
            output::json(&report).map_err(Failure::system("write standard output"))?;
        } else {
            let text = report.text();
            output::write(output::Stream::Stdout, text.as_bytes())
                .map_err(Failure::system("write standard output"))?;
        }
    }
    Ok(exit::DONE)
}

/// The measurements of one world.
struct Bench<'a> {
    arguments: &'a BenchRankArguments,
    settings: &'a Settings,
    transport: Transport,
}

impl Bench<'_> {
    /// Measures all operations; returns the results on rank 0, and an empty list elsewhere.
    fn measure(&self, world: &Communicator) -> Result<Vec<Measured>, Failure> {
        let work = &self.arguments.work;
        let mut source = Vec::new();
        if work.operations.iter().any(|one| one.has_payload()) {
            source.resize(work.bytes, 0);
            // Random bytes cannot be compressed or deduplicated.
            rand::fill(source.as_mut_slice());
        }
        let bound = self.settings.inline_bound(world.world_size());
        let is_large = source.len() as u64 > bound;
        let ours = Library::new(world, &source);
        let mut measured = Vec::new();
        for &operation in &work.operations {
            self.announce(world, operation);
            let course = Measurement {
                world,
                operation,
                is_large: is_large && operation.has_payload(),
            };
            let series = course.run(&ours, work.iterations)?;
            measured.extend(self.collect(world, operation, &series)?);
        }
        Ok(measured)
    }

    /// Collects the measurements of all ranks for one operation, on rank 0.
    fn collect(
        &self,
        world: &Communicator,
        operation: Operation,
        series: &Series,
    ) -> Result<Option<Measured>, Failure> {
        let Some(parts) = world.gather(series, 0)? else {
            return Ok(None);
        };
        let series = parts.map(|part| Ok(part?.1));
        let ranks = series.collect::<Result<Vec<_>, fsgather::Error>>()?;
        Ok(Some(Measured {
            operation,
            transport: self.transport,
            ranks,
        }))
    }

    fn announce(&self, world: &Communicator, operation: Operation) {
        if world.rank().get() != 0 {
            return;
        }
        let text = format!("measuring {} ({})", operation.word(), self.transport);
        if self.arguments.announce {
            output::say(&text);
        } else {
            tracing::info!("{text}");
        }
    }
}
