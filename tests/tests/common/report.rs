//! Prints a line for the reader about each experiment: [`tell`].

use std::time::Instant;

use super::End;

/// Prints the experiment, its outcome on each rank, and the time until the last of them; `cargo test` shows it with `--nocapture`.
#[expect(
    clippy::print_stdout,
    reason = "the harness keeps it to itself unless it is wanted"
)]
pub(crate) fn tell(what: &str, since: Instant, ends: &[End]) {
    let last = ends.iter().map(|end| end.at).max().unwrap_or(since);
    let took = last.saturating_duration_since(since).as_secs_f64();
    let mut said: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, end) in ends.iter().enumerate() {
        let outcome = match end.code {
            0 => "all was right".to_owned(),
            code => format!("exit code {code}, {}", end.error()),
        };
        match said.iter_mut().find(|(known, _)| *known == outcome) {
            Some((_, ranks)) => ranks.push(rank),
            None => said.push((outcome, vec![rank])),
        }
    }
    println!("* {what}, {took:.1} s");
    for (outcome, ranks) in said {
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        println!("    ranks {}: {outcome}", ranks.join(" "));
    }
}
