//! Jobs whose ranks torchrun starts, and starts again: [`Job`].

use std::{path::Path, process::Command};

use super::{OVER_MARKERS, Stage, build, everybody};

/// A job of agents with one rank each.
pub(crate) struct Job<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) ranks: u32,
}

impl<'a> Job<'a> {
    /// A job whose ranks would wait for longer than any test.
    pub(crate) fn patient(directory: &'a Path) -> Self {
        Self {
            directory,
            ranks: 2,
        }
    }

    /// A rank as its agent starts it, after this agent has counted `restarts` restarts.
    pub(crate) fn rank(&self, rank: u32, restarts: u32, script: &str) -> Command {
        let mut command = Command::new(build::rank_program());
        command
            .args(script.split_whitespace())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", self.ranks.to_string())
            .env("LOCAL_RANK", "0")
            .env("LOCAL_WORLD_SIZE", "1")
            .env("GROUP_RANK", rank.to_string())
            .env("MASTER_ADDR", "n1")
            .env("MASTER_PORT", "29500")
            .env("TORCHELASTIC_RUN_ID", "job")
            .env("TORCHELASTIC_RESTART_COUNT", restarts.to_string())
            .env("TORCHELASTIC_MAX_RESTARTS", "4")
            .env("FSGATHER_DIR", self.directory)
            .env("FSGATHER_JOIN_TIMEOUT", "10m");
        if OVER_MARKERS {
            command.env("FSGATHER_CONTROL", "markers");
        }
        command
    }
}

/// The beginning of the message of a rank that has found the running world of another attempt.
pub(crate) const MET: &str = "found a world that has formed without this rank";

/// Starts the world of an earlier attempt (ranks 0 and 1), and a rank 1 of the attempt after `restarts` restarts, which has found that
/// world.
pub(crate) fn a_newcomer_to_a_running_world(job: &Job<'_>, restarts: u32) -> (Stage, usize) {
    let mut stage = Stage::new();
    for rank in 0..2 {
        stage.start(&mut job.rank(rank, 0, "join at:running barrier close"));
    }
    stage.wait_at(everybody(2), "running");
    let newcomer = stage.start(&mut job.rank(1, restarts, "join barrier close"));
    stage.wait_for_where(newcomer, MET, |line| line.contains(MET));
    (stage, newcomer)
}
