//! The environment that `run` gives its ranks: [`Job`].

use std::{
    ffi::OsString,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    time::Duration,
};

use fsgather::{Rank, WorldSize};
use fsgather_config::environment::{self, Variables};
use fsgather_core::typed_duration_text;
use rand::{RngExt, rand_core::UnwrapErr, rngs::SysRng};

use crate::{failure::Failure, log};

/// A name and its value; `None` removes an inherited variable.
pub(super) type Variable = (&'static str, Option<OsString>);

/// The properties that all ranks of a run share.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Differs between any two runs.
    pub(super) name: String,
    /// The number of ranks.
    pub(super) world: WorldSize,
    /// The gather directory, absolute.
    pub(super) directory: PathBuf,
    timeout: Option<Duration>,
    master_port: u16,
    more: Vec<Variable>,
}

impl Job {
    /// Names a new job.
    ///
    /// # Errors
    ///
    /// Returns an error if this machine has no free port.
    pub(super) fn new(
        world: WorldSize,
        timeout: Option<Duration>,
        directory: PathBuf,
    ) -> Result<Self, Failure> {
        Ok(Self {
            name: format!(
                "run-{}-{:016x}",
                std::process::id(),
                UnwrapErr(SysRng).random::<u64>()
            ),
            world,
            directory,
            timeout,
            master_port: free_port()?,
            more: log::for_ranks(&Variables::of_process())
                .into_iter()
                .map(|(name, value)| (name, Some(value.into())))
                .collect(),
        })
    }

    /// Adds variables for all ranks.
    pub(super) fn add(&mut self, variables: Vec<Variable>) {
        self.more.extend(variables);
    }

    /// The variables of one rank.
    pub(super) fn variables_of(&self, rank: Rank) -> Vec<Variable> {
        let rank = rank.to_string();
        let world = self.world.to_string();
        let mut variables: Vec<Variable> = [
            (environment::RANK, rank.as_str()),
            (environment::WORLD_SIZE, &world),
            (environment::LOCAL_RANK, &rank),
            (environment::LOCAL_WORLD_SIZE, &world),
            (environment::JOB, &self.name),
            ("RANK", &rank),
            ("WORLD_SIZE", &world),
            ("LOCAL_RANK", &rank),
            ("LOCAL_WORLD_SIZE", &world),
            ("GROUP_RANK", "0"),
            ("GROUP_WORLD_SIZE", "1"),
            ("ROLE_RANK", &rank),
            ("ROLE_WORLD_SIZE", &world),
            ("ROLE_NAME", "default"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &self.master_port.to_string()),
            ("TORCHELASTIC_RUN_ID", &self.name),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ]
        .into_iter()
        .map(|(name, value)| (name, Some(OsString::from(value))))
        .collect();
        variables.push((environment::DIR, Some(self.directory.clone().into())));
        // Inside a rank of torchrun this means that torchrun's agent keeps the store; this job has no agent.
        variables.push(("TORCHELASTIC_USE_AGENT_STORE", None));
        if let Some(timeout) = self.timeout {
            let text = typed_duration_text(timeout).replace(' ', "");
            variables.push((environment::TIMEOUT, Some(text.clone().into())));
            variables.push((environment::JOIN_TIMEOUT, Some(text.into())));
        }
        variables.extend(self.more.iter().cloned());
        variables
    }
}

/// Finds a port on which no process listens now. Another program may take it before the ranks do; torchrun's own choice has
/// the same gap.
fn free_port() -> Result<u16, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(Failure::denied(
            "find a free port on 127.0.0.1",
            "socket, bind or listen",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(timeout: Option<Duration>) -> Job {
        Job {
            name: "run-1-2".into(),
            world: WorldSize::new(3).unwrap(),
            directory: "/x".into(),
            timeout,
            master_port: 4711,
            more: Vec::new(),
        }
    }

    fn value(variables: &[Variable], name: &str) -> Option<String> {
        let found = variables.iter().find(|(candidate, _)| *candidate == name)?;
        found.1.clone().map(|value| value.into_string().unwrap())
    }

    #[test]
    fn both_families_have_the_same_values() {
        let variables = job(None).variables_of(Rank::new(2));
        for (ours, theirs) in [
            ("FSGATHER_RANK", "RANK"),
            ("FSGATHER_WORLD_SIZE", "WORLD_SIZE"),
            ("FSGATHER_LOCAL_RANK", "LOCAL_RANK"),
            ("FSGATHER_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE"),
            ("FSGATHER_JOB", "TORCHELASTIC_RUN_ID"),
        ] {
            assert!(value(&variables, ours).is_some(), "{ours}");
            assert_eq!(value(&variables, ours), value(&variables, theirs), "{ours}");
        }
        assert_eq!(value(&variables, "RANK").as_deref(), Some("2"));
        assert_eq!(value(&variables, "MASTER_PORT").as_deref(), Some("4711"));
    }

    #[test]
    fn time_outs_are_set_when_given_and_read_back_as_given() {
        assert_eq!(
            value(&job(None).variables_of(Rank::ZERO), "FSGATHER_TIMEOUT"),
            None
        );
        let timeout = Duration::from_millis(90_500);
        let variables = job(Some(timeout)).variables_of(Rank::ZERO);
        for name in ["FSGATHER_TIMEOUT", "FSGATHER_JOIN_TIMEOUT"] {
            let text = value(&variables, name).unwrap();
            assert_eq!(humantime::parse_duration(&text), Ok(timeout), "{text}");
        }
    }

    #[test]
    fn a_free_port_can_be_listened_on() {
        let port = free_port().unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
