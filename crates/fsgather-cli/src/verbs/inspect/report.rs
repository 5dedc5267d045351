//! Renders the contents of shared directories as JSON.

use std::{collections::HashMap, path::PathBuf, time::SystemTime};

use fsgather::{Error, WorldSize};
use fsgather_core::ProcessId;
use fsgather_store::{Leftover, Removable, Survey, SurveyedGather};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct InspectReport {
    directories: Vec<DirectoryReport>,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct DirectoryReport {
    path: String,
    gather_dirs: Vec<GatherReport>,
    meetings: Vec<MeetingReport>,
    leftovers: Vec<LeftoverReport>,
    sample_files: usize,
    total_bytes: u64,
}

#[derive(Serialize)]
struct GatherReport {
    id: String,
    path: String,
    state: &'static str,
    reason: String,
    removable: bool,
    created: String,
    closed: bool,
    user: String,
    age_seconds: f64,
    beat_age_seconds: Option<f64>,
    owner: Option<OwnerReport>,
    job: Option<String>,
    world_size: Option<u32>,
    ranks_present: u64,
    payload_files: u64,
    payload_bytes: u64,
    inodes: u64,
    mode: String,
}

#[derive(Serialize)]
struct OwnerReport {
    host: String,
    boot_id: String,
    pid: u32,
    user: String,
}

#[derive(Serialize)]
struct LeftoverReport {
    path: String,
    kind: &'static str,
    bytes: u64,
    age_seconds: f64,
    removable: bool,
    reason: String,
    user: String,
    owner: Option<OwnerReport>,
    job: Option<String>,
}

#[derive(Serialize)]
struct MeetingReport {
    path: String,
    forming: bool,
    host: String,
    pid: u32,
    world_size: Option<u32>,
    bytes: u64,
    age_seconds: f64,
    reason: String,
}

#[derive(Serialize)]
pub(in crate::verbs) struct ErrorReport {
    pub(in crate::verbs) path: String,
    pub(in crate::verbs) error: String,
}

/// The report on all surveys, and on directories that could not be read.
pub(super) fn report(surveys: &[Survey], errors: &[(PathBuf, Error)]) -> InspectReport {
    let gather = |gather: &SurveyedGather| GatherReport {
        id: gather.id.to_string(),
        path: gather.path.display().to_string(),
        state: gather.judgement.state.word(),
        reason: gather.judgement.reason.clone(),
        removable: gather.judgement.removable != Removable::No,
        created: rfc3339(gather.created),
        closed: gather.is_closed,
        user: gather.user.clone(),
        age_seconds: gather.age.as_secs_f64(),
        beat_age_seconds: gather.beat_age.map(|age| age.as_secs_f64()),
        owner: gather.owner.as_ref().map(|owner| {
            let user = owner.user.clone();
            owner_report(&owner.process, user)
        }),
        job: gather.owner.as_ref().and_then(|owner| owner.job.clone()),
        world_size: gather.owner.as_ref().map(|owner| owner.world_size.get()),
        ranks_present: gather.ranks_present,
        payload_files: gather.payload_files,
        payload_bytes: gather.payload_bytes,
        inodes: gather.inodes,
        mode: format!("{:04o}", gather.mode),
    };
    let directories = surveys.iter().map(|survey| DirectoryReport {
        path: survey.path.display().to_string(),
        gather_dirs: survey.gathers.iter().map(gather).collect(),
        leftovers: leftovers(survey),
        meetings: survey
            .meetings
            .iter()
            .map(|meeting| MeetingReport {
                path: meeting.path.display().to_string(),
                forming: meeting.is_forming,
                host: meeting.writer.host.clone(),
                pid: meeting.writer.pid,
                world_size: meeting.world_size.map(WorldSize::get),
                bytes: meeting.bytes,
                age_seconds: meeting.age.as_secs_f64(),
                reason: meeting.reason.clone(),
            })
            .collect(),
        sample_files: survey.sample_files,
        total_bytes: survey.total_bytes(),
    });
    let errors = errors.iter().map(|(path, error)| ErrorReport {
        path: path.display().to_string(),
        error: error.to_string(),
    });
    InspectReport {
        directories: directories.collect(),
        errors: errors.collect(),
    }
}

fn owner_report(process: &ProcessId, user: String) -> OwnerReport {
    OwnerReport {
        host: process.host.clone(),
        boot_id: process.boot_id.clone(),
        pid: process.pid,
        user,
    }
}

fn leftovers(survey: &Survey) -> Vec<LeftoverReport> {
    let gathers = survey.gathers.iter();
    // A record does not name its job, but the gather directory of its process does.
    let jobs: HashMap<&ProcessId, &str> = gathers
        .filter_map(|gather| {
            let owner = gather.owner.as_ref()?;
            Some((&owner.process, owner.job.as_deref()?))
        })
        .collect();
    let report = |leftover: &Leftover| {
        let writer = leftover.writer.as_ref();
        let job = writer.and_then(|writer| jobs.get(writer));
        LeftoverReport {
            path: leftover.path.display().to_string(),
            kind: leftover.kind.word(),
            bytes: leftover.bytes,
            age_seconds: leftover.age.as_secs_f64(),
            removable: leftover.removable,
            reason: leftover.reason.clone(),
            user: leftover.user.clone(),
            owner: writer.map(|writer| owner_report(writer, leftover.user.clone())),
            job: job.map(|job| (*job).to_owned()),
        }
    };
    survey.leftovers.iter().map(report).collect()
}

/// A time as RFC 3339 in UTC, in whole seconds.
fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn times_have_a_zone() {
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00Z");
    }
}
