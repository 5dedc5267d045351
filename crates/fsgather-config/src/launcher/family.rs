//! The launchers that are known, and what they call things: [`Family`] and the table of [`LauncherRow`]s.

use std::fmt;

use crate::environment;

/// A launcher, or a kind of launchers that set the same variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// No launcher either: the program itself names rank and world size.
    Explicit,
    /// Our own variables, set by `fsgather run` or by hand.
    Fsgather,
    /// torchrun, and whatever else sets torch's variables, such as Kubeflow.
    Torchrun,
    /// Open MPI.
    OpenMpi,
    /// MVAPICH2.
    Mvapich2,
    /// Cray's PALS.
    Pals,
    /// IBM's Job Step Manager (`jsrun`).
    Jsm,
    /// Flux.
    Flux,
    /// The process management interface of MPICH: its Hydra launcher, Intel MPI's, and `srun --mpi=pmi2`.
    Pmi,
    /// A step of a Slurm job.
    Slurm,
    /// A pod of a group of a `LeaderWorkerSet` of Kubernetes.
    LeaderWorkerSet,
    /// A pod of an indexed Job of Kubernetes.
    Kubernetes,
    /// No launcher: a world of one.
    Alone,
}

impl Family {
    /// The name that enters the key of a job: one lower-case word that never changes.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Fsgather => "fsgather",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "openmpi",
            Self::Mvapich2 => "mvapich2",
            Self::Pals => "pals",
            Self::Jsm => "jsm",
            Self::Flux => "flux",
            Self::Pmi => "pmi",
            Self::Slurm => "slurm",
            Self::LeaderWorkerSet => "leaderworkerset",
            Self::Kubernetes => "kubernetes",
            Self::Alone => "none",
        }
    }

    /// Whether its ranks are those of an MPI program.
    #[must_use]
    pub const fn is_mpi(self) -> bool {
        matches!(
            self,
            Self::OpenMpi | Self::Mvapich2 | Self::Pals | Self::Jsm | Self::Pmi
        )
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Explicit => "arguments",
            Self::Fsgather => "fsgather's own variables",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Mvapich2 => "MVAPICH2",
            Self::Pals => "Cray PALS",
            Self::Jsm => "IBM JSM",
            Self::Flux => "Flux",
            Self::Pmi => "MPICH or Intel MPI",
            Self::Slurm => "Slurm",
            Self::LeaderWorkerSet => "Kubernetes LeaderWorkerSet",
            Self::Kubernetes => "Kubernetes indexed Job",
            Self::Alone => "no launcher",
        })
    }
}

/// What one family of launchers calls its variables.
#[derive(Clone, Copy, Debug)]
pub struct LauncherRow {
    /// The family.
    pub family: Family,
    /// Holds the rank.
    pub rank: &'static str,
    /// Holds the world size.
    pub world_size: &'static str,
    /// Whether no other family uses the variable of the world size: then it alone shows the family.
    pub owns_world_size: bool,
    /// Holds the number of the process on its host.
    pub local_rank: Option<&'static str>,
    /// Holds the number of processes on its host.
    pub local_size: Option<&'static str>,
    /// Hold the job id; those that are set are joined by a dot.
    pub job: &'static [&'static str],
}

/// Variables of launchers that number their ranks, and name the world size in no variable.
pub(super) const RANKS_WITHOUT_A_SIZE: [&str; 2] = ["PMIX_RANK", "ALPS_APP_PE"];

/// All families, the innermost first: launchers nest, and each leaves its variables to those inside it.
pub const ROWS: &[LauncherRow] = &[
    LauncherRow {
        family: Family::Fsgather,
        rank: environment::RANK,
        world_size: environment::WORLD_SIZE,
        owns_world_size: true,
        local_rank: Some(environment::LOCAL_RANK),
        local_size: Some(environment::LOCAL_WORLD_SIZE),
        // `FSGATHER_JOB` is a name that a user gives.
        job: &[],
    },
    LauncherRow {
        family: Family::Torchrun,
        rank: "RANK",
        world_size: "WORLD_SIZE",
        owns_world_size: true,
        local_rank: Some("LOCAL_RANK"),
        local_size: Some("LOCAL_WORLD_SIZE"),
        job: &["TORCHELASTIC_RUN_ID"],
    },
    LauncherRow {
        family: Family::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: "OMPI_COMM_WORLD_SIZE",
        owns_world_size: true,
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        job: &["PMIX_NAMESPACE"],
    },
    LauncherRow {
        family: Family::Mvapich2,
        rank: "MV2_COMM_WORLD_RANK",
        world_size: "MV2_COMM_WORLD_SIZE",
        owns_world_size: true,
        local_rank: Some("MV2_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("MV2_COMM_WORLD_LOCAL_SIZE"),
        job: &[],
    },
    LauncherRow {
        family: Family::Pals,
        rank: "PALS_RANKID",
        world_size: "PMI_SIZE",
        owns_world_size: false,
        local_rank: Some("PALS_LOCAL_RANKID"),
        local_size: Some("PALS_LOCAL_SIZE"),
        job: &["PBS_JOBID", "PALS_APID"],
    },
    LauncherRow {
        family: Family::Jsm,
        rank: "JSM_NAMESPACE_RANK",
        world_size: "JSM_NAMESPACE_SIZE",
        owns_world_size: true,
        local_rank: Some("JSM_NAMESPACE_LOCAL_RANK"),
        local_size: None,
        job: &["LSB_JOBID"],
    },
    LauncherRow {
        family: Family::Flux,
        rank: "FLUX_TASK_RANK",
        world_size: "FLUX_JOB_SIZE",
        owns_world_size: true,
        local_rank: Some("FLUX_TASK_LOCAL_ID"),
        local_size: None,
        job: &["FLUX_JOB_ID"],
    },
    LauncherRow {
        family: Family::Pmi,
        rank: "PMI_RANK",
        world_size: "PMI_SIZE",
        owns_world_size: true,
        local_rank: Some("MPI_LOCALRANKID"),
        local_size: Some("MPI_LOCALNRANKS"),
        job: &["I_MPI_HYDRA_UUID"],
    },
    LauncherRow {
        family: Family::Slurm,
        rank: "SLURM_PROCID",
        world_size: "SLURM_STEP_NUM_TASKS",
        owns_world_size: true,
        local_rank: Some("SLURM_LOCALID"),
        // Not a number in one variable, but how many entries `SLURM_GTIDS` has.
        local_size: None,
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    LauncherRow {
        family: Family::LeaderWorkerSet,
        rank: "LWS_WORKER_INDEX",
        world_size: "LWS_GROUP_SIZE",
        owns_world_size: true,
        local_rank: None,
        local_size: None,
        // Each group has a leader, whose name is in no other group.
        job: &["LWS_LEADER_ADDRESS"],
    },
    LauncherRow {
        family: Family::Kubernetes,
        rank: "JOB_COMPLETION_INDEX",
        world_size: environment::WORLD_SIZE,
        owns_world_size: false,
        local_rank: None,
        local_size: None,
        // `HOSTNAME` without the index, which no table can say.
        job: &[],
    },
];
