//! The result of looking at the launcher's variables: [`Detection`].

use std::{fmt, ops::RangeInclusive};

use fsgather_core::{Error, Rank, WorldSize, plain_line};

use super::{
    family::{Family, LauncherRow},
    hosts::expand_hosts,
    slurm,
};
use crate::environment::{self, Variables, refusal};

/// Who this rank is, by which launcher, and what else that launcher tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Detection {
    /// The launcher that was believed.
    pub family: Family,
    /// The rank of this process.
    pub rank: Rank,
    /// How many ranks there are.
    pub world_size: WorldSize,
    /// The number of this process among the ranks on its host, if that is known.
    pub local_rank: Option<u32>,
    /// How many ranks there are on this host, if that is known.
    pub local_size: Option<u32>,
    /// The host that the launcher singles out.
    pub master: Option<Master>,
    /// The launcher's name for the job, the same on all ranks; it can come again in a later job.
    pub job: Option<String>,
    /// Whether no other job has that name, or that master, at the same time.
    pub has_own_id: bool,
    /// Which attempt at the job this is, if the launcher counts them.
    pub attempt: Option<String>,
    /// The hosts of the job's step, in the launcher's order; empty when they are not known.
    pub hosts: Vec<String>,
    /// Other launchers whose variables are there and were not used.
    pub others: Vec<Family>,
    /// The choice, its reason, and the other launchers that were found, for one line of the log.
    pub notes: Vec<String>,
    /// A warning for the user: this is a world of one, although no variable asks for it, or a variable of ours has no effect.
    pub warning: Option<String>,
}

/// The host that a launcher singles out, and the port there if it names one.
///
/// The port is taken: with torchrun its agent listens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Its name or address.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
}

impl Master {
    /// Whether every host calls itself so.
    fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => f.write_str(&self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
        }
    }
}

impl Detection {
    /// Whether the launcher says that all ranks run on this host.
    #[must_use]
    pub fn is_on_one_host(&self) -> bool {
        self.local_size == Some(self.world_size.get())
    }

    /// What belongs to the key of the job besides its id: torchrun's master address and port.
    ///
    /// Elsewhere the master is derived from what the key has already, or says nothing of the job.
    #[must_use]
    pub fn master_for_key(&self) -> Option<String> {
        match self.family {
            Family::Torchrun => self.master.as_ref().map(ToString::to_string),
            _ => None,
        }
    }

    /// All notes in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        self.notes.join("; ")
    }

    pub(super) fn alone() -> Self {
        let note = "a world of one: no launcher says both rank and world size";
        Self::bare(Family::Alone, Rank::ZERO, WorldSize::ONE, note.into())
    }

    pub(super) fn explicit(rank: Rank, world_size: WorldSize) -> Self {
        let note = format!("rank {rank} of {world_size}, by arguments");
        Self::bare(Family::Explicit, rank, world_size, note)
    }

    /// Rank and world size, and nothing else known yet.
    fn bare(family: Family, rank: Rank, world_size: WorldSize, note: String) -> Self {
        Self {
            family,
            rank,
            world_size,
            local_rank: None,
            local_size: None,
            master: None,
            job: None,
            has_own_id: false,
            attempt: None,
            hosts: Vec::new(),
            others: Vec::new(),
            notes: vec![note],
            warning: None,
        }
    }

    pub(super) fn claimed(
        variables: &Variables,
        row: &LauncherRow,
        rank: Rank,
        world_size: WorldSize,
    ) -> Self {
        let note = format!(
            "rank {rank} of {world_size}, by {} ({} and {})",
            row.family, row.rank, row.world_size
        );
        let mut detection = Self::bare(row.family, rank, world_size, note);
        detection.job = joined(variables, row.job);
        let (mut local_rank, mut local_size) = (
            row.local_rank.and_then(|name| variables.get(name)),
            row.local_size
                .and_then(|name| variables.get(name))
                .map(ToOwned::to_owned),
        );
        let text = |name| variables.get(name).map(ToOwned::to_owned);
        let tasks_here = || slurm::tasks_here(variables).map(|tasks| tasks.to_string());
        match row.family {
            Family::Torchrun => {
                detection.master = text("MASTER_ADDR").map(|host| Master {
                    host,
                    port: variables
                        .get("MASTER_PORT")
                        .and_then(|port| port.trim().parse().ok()),
                });
                detection.attempt = text("TORCHELASTIC_RESTART_COUNT");
            }
            Family::Pmi => {
                if let Some(step) = slurm::pmi_step(variables) {
                    local_rank = variables.get("SLURM_LOCALID");
                    local_size = tasks_here();
                    detection.job = Some(step.into());
                    detection.attempt = text("SLURM_RESTART_COUNT");
                } else if detection.job.is_none() {
                    detection.job = text("SLURM_JOB_ID").or_else(|| grid_engine_job(variables));
                }
            }
            Family::Slurm => {
                local_size = tasks_here();
                detection.attempt = text("SLURM_RESTART_COUNT");
                let list = variables.get("SLURM_STEP_NODELIST").unwrap_or_default();
                match expand_hosts(list) {
                    Some(hosts) => detection.hosts = hosts,
                    None => detection
                        .notes
                        .push(format!("SLURM_STEP_NODELIST={list:?} is no list of hosts")),
                }
                detection.master = detection.hosts.first().map(|host| Master {
                    host: host.clone(),
                    port: None,
                });
            }
            Family::Kubernetes => {
                detection.job = variables
                    .get("HOSTNAME")
                    .and_then(|host| host.strip_suffix(&format!("-{rank}")))
                    .map(ToOwned::to_owned);
            }
            _ => {}
        }
        detection.job = detection.job.filter(|job| job != "none");
        detection.has_own_id = match row.family {
            Family::Torchrun => {
                let is_elsewhere = |master: &Master| master.port.is_some() && !master.is_loopback();
                let is_agents = variables.get("TORCHELASTIC_RUN_ID").is_some();
                let master = detection.master.as_ref();
                master.is_some_and(|master| is_elsewhere(master) || is_agents)
                    || (is_agents && detection.job.is_some())
            }
            Family::Pals => variables.get("PALS_APID").is_some(),
            // That of a whole allocation, in which there may be several at once, is none.
            Family::Pmi => {
                variables.get("I_MPI_HYDRA_UUID").is_some() || slurm::pmi_step(variables).is_some()
            }
            _ => detection.job.is_some(),
        };
        // Our own are read, and checked, later and for all families alike.
        if row.family != Family::Fsgather {
            detection.local_rank = local_rank.and_then(|text| text.trim().parse().ok());
            detection.local_size = local_size.and_then(|text| text.trim().parse().ok());
        }
        detection
    }

    /// Takes the job's id from a launcher whose variables were passed on under other names, as in
    /// `RANK=$SLURM_PROCID`.
    pub(super) fn take_id_of(&mut self, launched: &Self, variables: &Variables) {
        if self.has_own_id || !launched.has_own_id || launched.world_size != self.world_size {
            return;
        }
        // torchrun's is no id without its master.
        let parts = [launched.job.clone(), launched.master_for_key()];
        let job = parts.into_iter().flatten().collect::<Vec<_>>().join(".");
        // It gives both names the same value.
        let is_run =
            launched.job.is_some() && launched.job.as_deref() == variables.get(environment::JOB);
        let family = if is_run {
            "fsgather run".to_owned()
        } else {
            launched.family.to_string()
        };
        self.notes
            .push(format!("job {}, by {family}", plain_line(&job)));
        self.job = Some(job);
        self.has_own_id = true;
        if launched.family != Family::Torchrun {
            self.attempt.clone_from(&launched.attempt);
        }
    }

    /// Notes which other families have variables here; those that come later were not read.
    pub(super) fn see_others(
        &mut self,
        variables: &Variables,
        rows: std::slice::Iter<'_, LauncherRow>,
    ) {
        let says = |name: &str, number: u32| {
            let text = variables.get(name).unwrap_or_default();
            text.trim().parse() == Ok(number)
        };
        for row in rows.filter(|row| variables.get(row.rank).is_some()) {
            self.others.push(row.family);
            // As where one launcher says the same in the words of several.
            if says(row.rank, self.rank.get()) && says(row.world_size, self.world_size.get()) {
                continue;
            }
            self.notes.push(format!(
                "{} is there too ({}) and was not used",
                row.family, row.rank
            ));
        }
    }

    /// Settles local rank and size: our own variables win over any launcher's, and nonsense of a
    /// launcher's is dropped.
    pub(super) fn take_local(&mut self, variables: &Variables) -> Result<(), Error> {
        let world_size = self.world_size.get();
        let own_size = own_number(variables, environment::LOCAL_WORLD_SIZE, 1..=world_size)?;
        let size = own_size.or(self.local_size);
        let last = own_size.unwrap_or(world_size) - 1;
        let own_rank = own_number(variables, environment::LOCAL_RANK, 0..=last)?;
        let rank = own_rank.or(self.local_rank);

        let size_fits = size.is_none_or(|size| (1..=world_size).contains(&size));
        let rank_fits = rank.is_none_or(|rank| rank < size.unwrap_or(world_size));
        if size_fits && rank_fits {
            (self.local_rank, self.local_size) = (rank, size);
        } else {
            self.notes.push(format!(
                "local rank {} of {} was dropped, for it does not fit into a world of {world_size}",
                shown(rank),
                shown(size)
            ));
            (self.local_rank, self.local_size) = (own_rank, own_size);
        }
        if self.world_size.is_solo() {
            // There is nothing else that they could be.
            (self.local_rank, self.local_size) = (Some(0), Some(1));
        }
        Ok(())
    }
}

/// The values of those variables that are set, joined by dots.
fn joined(variables: &Variables, names: &[&str]) -> Option<String> {
    let parts: Vec<&str> = names
        .iter()
        .filter_map(|name| variables.get(name))
        .collect();
    (!parts.is_empty()).then(|| parts.join("."))
}

/// Grid Engine's job id, which is the same on all its nodes, as the number of slots is not.
fn grid_engine_job(variables: &Variables) -> Option<String> {
    let job = variables.get("JOB_ID")?;
    match variables.get("SGE_TASK_ID") {
        None | Some("undefined") => Some(job.into()),
        Some(task) => Some(format!("{job}.{task}")),
    }
}

/// Reads a number of our own, which must be one of these if it is there.
fn own_number(
    variables: &Variables,
    name: &str,
    allowed: RangeInclusive<u32>,
) -> Result<Option<u32>, Error> {
    let Some(text) = variables.get(name) else {
        return Ok(None);
    };
    let (least, most) = (*allowed.start(), *allowed.end());
    let wrong = match text.trim().parse() {
        Ok(number) if allowed.contains(&number) => return Ok(Some(number)),
        Ok(_) if least == most => format!("must be {least} in this world"),
        Ok(_) => format!("must be from {least} to {most} in this world"),
        Err(_) => "is not a number".to_owned(),
    };
    Err(refusal(name, text, &wrong, &least.to_string()))
}

fn shown(number: Option<u32>) -> String {
    number.map_or_else(|| "?".into(), |number| number.to_string())
}
