//! Two jobs that meet in one directory at the same time, under every kind of launcher: no rank gets data of the other job.

use std::{fs, path::Path, process::Command, time::Duration};

use crate::common::{Stage, World, build::command_line_tool, everybody, place};

const RANKS: u32 = 3;

/// The variables of a launcher; `{rank}`, `{ranks}` and `{job}` stand for the rank, the number of ranks and the id of this job.
struct Launcher {
    variables: &'static str,
    /// True if it sets an id of the job.
    has_id: bool,
}

const LAUNCHERS: [Launcher; 9] = [
    Launcher {
        variables: "FSGATHER_RANK={rank} FSGATHER_WORLD_SIZE={ranks}",
        has_id: false,
    },
    Launcher {
        variables: "PMI_RANK={rank} PMI_SIZE={ranks} SLURM_JOB_ID=1",
        has_id: false,
    },
    Launcher {
        variables: "MV2_COMM_WORLD_RANK={rank} MV2_COMM_WORLD_SIZE={ranks}",
        has_id: false,
    },
    Launcher {
        variables: "PMI_RANK={rank} PMI_SIZE={ranks} I_MPI_HYDRA_UUID={job}",
        has_id: true,
    },
    Launcher {
        variables: "OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={ranks} PMIX_NAMESPACE={job}",
        has_id: true,
    },
    Launcher {
        variables: "SLURM_PROCID={rank} SLURM_STEP_NUM_TASKS={ranks} SLURM_JOB_ID={job} SLURM_STEP_ID=0 \
                    SLURM_LOCALID={rank} SLURM_STEP_NODELIST=localhost SLURM_GTIDS=0,1,2",
        has_id: true,
    },
    Launcher {
        variables: "RANK={rank} WORLD_SIZE={ranks} TORCHELASTIC_RUN_ID={job} MASTER_ADDR=localhost MASTER_PORT=29500",
        has_id: true,
    },
    Launcher {
        variables: "FLUX_TASK_RANK={rank} FLUX_JOB_SIZE={ranks} FLUX_JOB_ID={job}",
        has_id: true,
    },
    // A rank that another launcher has passed on.
    Launcher {
        variables: "FSGATHER_RANK={rank} FSGATHER_WORLD_SIZE={ranks} FLUX_TASK_RANK={rank} FLUX_JOB_SIZE={ranks} FLUX_JOB_ID={job}",
        has_id: true,
    },
];

/// The origin of the processes of two jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Starts {
    /// One process starts all ranks of both.
    OneProcess,
    /// Each rank is in a session of its own, without a common parent.
    Terminals,
    /// Each rank is in a session and a pid namespace of its own.
    Containers,
}

impl Starts {
    const fn prefix(self) -> &'static [&'static str] {
        match self {
            Self::OneProcess => &["env"],
            Self::Terminals => &["setsid", "--fork", "--wait"],
            Self::Containers => &[
                "setsid",
                "--fork",
                "--wait",
                "unshare",
                "--user",
                "--map-current-user",
                "--pid",
                "--fork",
                "--mount-proc",
            ],
        }
    }
}

/// Orders in which the ranks of two jobs are started, with the pause after each.
fn orders() -> [Vec<(char, u32, Duration)>; 5] {
    let both = |delay, between| {
        let jobs = [('a', delay), ('b', delay)];
        let ranks = jobs.map(|(job, delay)| (0..RANKS).map(move |rank| (job, rank, delay)));
        let mut order: Vec<_> = ranks.into_iter().flatten().collect();
        if let Some((_, _, last)) = order.get_mut(RANKS as usize - 1) {
            *last = between;
        }
        order
    };
    let none = Duration::ZERO;
    let in_turn = Duration::from_millis(50);
    let interleaved = (0..RANKS).flat_map(|rank| {
        // The first two ranks of a job never start one after the other.
        let jobs = if rank == 1 { ['b', 'a'] } else { ['a', 'b'] };
        jobs.map(|job| (job, rank, in_turn))
    });
    // The ranks of each half are a complete world of the wrong ranks.
    let crossed = ['a', 'b'].into_iter().flat_map(|first| {
        let jobs = if first == 'a' { ['a', 'b'] } else { ['b', 'a'] };
        (0..RANKS).map(move |rank| {
            let is_last = first == 'a' && rank == RANKS - 1;
            let pause = if is_last {
                Duration::from_millis(200)
            } else {
                none
            };
            (jobs[rank as usize % 2], rank, pause)
        })
    });
    [
        both(none, none),
        crossed.collect(),
        interleaved.collect(),
        both(none, Duration::from_millis(100)),
        both(none, Duration::from_secs(1)),
    ]
}

/// One rank of a job, which gathers the letter of its job.
#[expect(
    clippy::expect_used,
    reason = "the tests that share it fail in the same way"
)]
fn rank(
    place: &Path,
    own: &Path,
    launcher: &Launcher,
    is_named: bool,
    starts: Starts,
    job: char,
    rank: u32,
) -> Command {
    // A job that must succeed gets all the time that a busy machine needs.
    let patience = if launcher.has_id { "2m" } else { "8s" };
    let world = World::new(RANKS, place).with("FSGATHER_JOIN_TIMEOUT", patience);
    let prefix = starts.prefix();
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg(command_line_tool());
    let mut command = world.set_up(command, rank, "");
    command
        .env_remove("FSGATHER_RANK")
        .env_remove("FSGATHER_WORLD_SIZE");
    for variable in launcher.variables.split(' ') {
        let (name, value) = variable.split_once('=').expect("a variable");
        let value = value
            .replace("{rank}", &rank.to_string())
            .replace("{ranks}", &RANKS.to_string())
            .replace("{job}", &format!("launched-{job}"));
        command.env(name, value);
    }
    if is_named {
        command.env("FSGATHER_JOB", "one-name");
    }
    let part = own.join(job.to_string());
    fs::write(&part, job.to_string()).expect("a file");
    command.args(["gather", "--all"]).arg(part);
    command.arg(format!("--concat={}/got-{job}-{{rank}}", own.display()));
    command
}

#[expect(
    clippy::expect_used,
    reason = "the tests that share it fail in the same way"
)]
fn two_jobs_never_exchange_ranks(is_named: bool, starts: Starts) {
    for order in orders() {
        let mut stage = Stage::new();
        let places: Vec<_> = LAUNCHERS
            .iter()
            .map(|launcher| (launcher, place(), place()))
            .collect();
        let mut started = Vec::new();
        for &(job, number, pause) in &order {
            for (index, (launcher, place, own)) in places.iter().enumerate() {
                let mut command = rank(
                    place.path(),
                    own.path(),
                    launcher,
                    is_named,
                    starts,
                    job,
                    number,
                );
                started.push((index, job, number, stage.start(&mut command)));
            }
            stage.let_pass(pause);
        }
        for (index, job, number, process) in started {
            let (launcher, _, own) = &places[index];
            let what = format!(
                "{} {starts:?} {order:?}: rank {number} of {job}",
                launcher.variables
            );
            let end = stage.end(process);
            if end.code == 0 {
                let got = fs::read_to_string(own.path().join(format!("got-{job}-{number}")));
                let own = job.to_string().repeat(RANKS as usize);
                assert_eq!(
                    got.expect("a result"),
                    own,
                    "{what}\n{}",
                    stage.transcript()
                );
            } else {
                assert!(!launcher.has_id, "{what}\n{end:?}");
            }
        }
    }
}

#[test]
fn one_name_started_by_one_process() {
    two_jobs_never_exchange_ranks(true, Starts::OneProcess);
}

#[test]
fn one_name_in_terminals() {
    two_jobs_never_exchange_ranks(true, Starts::Terminals);
}

#[test]
fn one_name_in_containers() {
    two_jobs_never_exchange_ranks(true, Starts::Containers);
}

#[test]
fn no_name_started_by_one_process() {
    two_jobs_never_exchange_ranks(false, Starts::OneProcess);
}

#[test]
fn no_name_in_terminals() {
    two_jobs_never_exchange_ranks(false, Starts::Terminals);
}

#[test]
fn no_name_in_containers() {
    two_jobs_never_exchange_ranks(false, Starts::Containers);
}

#[test]
fn one_job_in_terminals_or_containers() {
    for starts in [Starts::Terminals, Starts::Containers] {
        let (place, own) = (place(), place());
        let mut stage = Stage::new();
        for number in 0..RANKS {
            stage.start(&mut rank(
                place.path(),
                own.path(),
                &LAUNCHERS[0],
                true,
                starts,
                'a',
                number,
            ));
        }
        let ends = stage.end_all(everybody(RANKS));
        assert!(
            ends.iter().all(|end| end.code == 0),
            "{}",
            stage.transcript()
        );
    }
}
