//! Measures the promises in seconds: the time from an event to the report of each rank. `scripts/prove timing` runs it.
//!
//! Each promise is measured in many rounds with real processes. The program prints the distribution of all samples and fails if the 99th
//! percentile is over the limit. It judges only on a quiet machine: if other processes use the processors, it prints the figures and exits
//! with 77.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program of its own, which prints figures and fails by its exit code"
)]

#[path = "../common/mod.rs"]
mod common;
mod distribution;
mod idle;
mod promises;

use std::process::exit;

use clap::{Parser, builder::PossibleValuesParser};

use distribution::Distribution;
use promises::{PROMISES, Promise};

/// Exit code if the machine is too busy to judge.
const NOT_JUDGED: i32 = 77;

/// Measures the time from an event to the report of each rank, in many rounds.
#[derive(Parser)]
#[command(name = "timing")]
struct Options {
    /// Rounds of each promise; one that takes half a minute is measured in fewer.
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Promises to measure; all if none is named.
    #[arg(value_parser = PossibleValuesParser::new(PROMISES.map(|promise| promise.name)))]
    names: Vec<String>,
}

fn main() {
    let options = Options::parse();
    let chosen = |promise: &&Promise| {
        options.names.is_empty() || options.names.iter().any(|name| name == promise.name)
    };
    let mut is_quiet = idle::is_machine_idle();
    let mut broken = Vec::new();
    println!("seconds after the event  limit  samples    50 %    90 %    99 %     max  after");
    for promise in PROMISES.iter().filter(chosen) {
        let rounds = (options.rounds / promise.quick_rounds).max(1);
        let samples = (0..rounds).flat_map(promise.measure).collect();
        let samples = Distribution::new(samples);
        println!(
            "{:<23} {:>6.1} {samples}  {}",
            promise.name,
            promise.limit.as_secs_f64(),
            promise.event
        );
        if samples.percentile(99) > promise.limit {
            broken.push(promise.name);
        }
        is_quiet &= idle::is_machine_idle();
    }
    if !is_quiet {
        println!("not judged: other processes use the processors of this machine");
        exit(NOT_JUDGED);
    }
    if !broken.is_empty() {
        println!("over the limit: {}", broken.join(", "));
        exit(1);
    }
}
