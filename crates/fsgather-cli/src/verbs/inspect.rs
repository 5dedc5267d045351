//! The verb `inspect`: what lies in shared directories, whether it is alive, and why.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
    path::PathBuf,
    thread,
    time::{Duration, SystemTime},
};

use clap::Args;
use fsgather::{
    Error, Rank, WorldSize, bytes_text, duration_text,
    environment::Variables,
    housekeeping::{
        self, Leftover, LeftoverKind, Removable, Rules, Survey, SurveyedGather, Surveyor,
    },
    settings::Settings,
};
use serde::Serialize;

use crate::{
    exit,
    failure::Failure,
    log,
    output::{self, Stream},
    table::{Side, Table, plain},
};

const EXAMPLES: &str = "\
Examples:
  fsgather inspect /shared/scratch
      gather directories in it: live, stale, finished or unknown, and why
  fsgather inspect --watch /shared/scratch
      the same every 2 seconds; beats that change show who is at work
  fsgather inspect --json | jq '.directories[].gather_dirs[] | .state'
      for programs

DIR is a directory that is gathered through, the all_gather_via_filesys in it,
or one gather directory. Nothing is changed but for a file of a moment's life,
which tells the server's time. `fsgather clean` removes what is left over.

With --json, standard output carries
  {schema_version, directories, errors}; docs/reference/json.md has it all.
It exits with 12 when a directory cannot be read.";

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(2);

/// Show what lies in shared directories, whether it is alive, and why.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct InspectArguments {
    /// Where to look; without it `FSGATHER_DIR`, else `EXP_DIR`, else the default directories.
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// Look again every 2 seconds until interrupted.
    #[arg(long)]
    watch: bool,
}

/// The settings of a command that is not one of several, whatever a launcher or a shell says of ranks.
/// From here on the library's notes are written.
pub(super) fn settings() -> Result<Settings, Failure> {
    let variables = Variables::of_process();
    let settings = Settings::resolve_as(Rank::ZERO, WorldSize::ONE, &variables)?;
    log::start_with(&settings)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    Ok(settings)
}

/// The directories that were named, else those that gathering would use.
pub(super) fn directories(named: &[PathBuf], settings: &Settings) -> Result<Vec<PathBuf>, Failure> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    Ok(housekeeping::default_directories(settings)?)
}

/// Shows what lies in shared directories.
///
/// # Errors
///
/// When it cannot be shown.
pub(crate) fn inspect(arguments: &InspectArguments, json: bool) -> Result<u8, Failure> {
    let directories = directories(&arguments.directories, &settings()?)?;
    let mut surveyor = Surveyor::new(Rules::default())?;
    let clears = arguments.watch && !json && io::stdout().is_terminal();
    loop {
        let mut surveys = Vec::new();
        let mut errors = Vec::new();
        for directory in &directories {
            match surveyor.survey(directory) {
                Ok(survey) => surveys.push(survey),
                Err(error) => errors.push((directory.clone(), error)),
            }
        }
        let shown = if json {
            output::json(&report(&surveys, &errors))
        } else {
            let clear = if clears { "\x1b[H\x1b[2J\x1b[3J" } else { "" };
            let gap = if arguments.watch && !clears { "\n" } else { "" };
            let text = format!("{clear}{}{gap}", text(&surveys));
            output::write(Stream::Stdout, text.as_bytes())
        };
        let is_read = is_read(shown)?;
        if !arguments.watch || !json {
            for (_, error) in &errors {
                output::say(&format!("fsgather inspect: {}", plain(&error.to_string())));
            }
        }
        if !(arguments.watch && is_read) {
            return Ok(if errors.is_empty() {
                exit::DONE
            } else {
                exit::STORAGE
            });
        }
        pause();
    }
}

/// Whether somebody goes on reading. Whoever closes the pipe has seen enough: `| head` is no failure.
pub(super) fn is_read(shown: io::Result<()>) -> Result<bool, Failure> {
    match shown {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::system("write standard output")(error)),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when another host changes a directory"
)]
fn pause() {
    thread::sleep(EVERY);
}

fn text(surveys: &[Survey]) -> String {
    let blocks: Vec<String> = surveys.iter().map(block).collect();
    blocks.join("\n")
}

fn block(survey: &Survey) -> String {
    let path = plain(&survey.path.display().to_string());
    let is_empty = survey.gathers.is_empty() && survey.leftovers.is_empty();
    if is_empty && survey.meetings.is_empty() {
        return format!("{path}: nothing of fsgather here\n");
    }
    let mut tables = Vec::new();
    if !survey.gathers.is_empty() {
        tables.push(gathers(&survey.gathers));
    }
    if survey.meetings.iter().any(|meeting| meeting.is_forming) {
        tables.push(meetings(survey));
    }
    if !survey.leftovers.is_empty() {
        tables.push(leftovers(survey));
    }
    tables.push(summary(survey));
    format!("{path}\n\n{}", tables.join("\n"))
}

fn gathers(gathers: &[SurveyedGather]) -> String {
    let mut table = Table::new(&[
        ("GATHER DIRECTORY", Side::Left),
        ("STATE", Side::Left),
        ("AGE", Side::Right),
        ("OWNER", Side::Left),
        ("JOB", Side::Left),
        ("RANKS", Side::Right),
        ("FILES", Side::Right),
        ("SIZE", Side::Right),
    ]);
    for gather in gathers {
        let (owner, job, ranks) = match &gather.owner {
            None => (format!("uid {}", gather.uid), "-".into(), "?".into()),
            Some(owner) => {
                let process = &owner.process;
                let host = plain(&process.host);
                (
                    format!("{} {host} pid {}", user(owner), process.pid),
                    plain(owner.job.as_deref().unwrap_or("-")),
                    owner.world_size.to_string(),
                )
            }
        };
        let cells = vec![
            format!("gather-{}", gather.id),
            gather.judgement.state.word().into(),
            coarse(gather.age),
            owner,
            job,
            ranks,
            known(gather, gather.payload_files.to_string()),
            known(gather, bytes_text(gather.bytes)),
        ];
        let what = if gather.messages > 0 {
            "; it holds messages between ranks, no payloads"
        } else {
            ""
        };
        let reason = format!("{}{what}", plain(&gather.judgement.reason));
        table.row(cells, Some(reason));
    }
    table.text()
}

/// A figure, where the directory could be looked into.
fn known(gather: &SurveyedGather, figure: String) -> String {
    if gather.is_closed {
        "?".to_owned()
    } else {
        figure
    }
}

fn user(owner: &housekeeping::OwnerRecord) -> String {
    if owner.user == owner.uid.to_string() {
        format!("uid {}", owner.uid)
    } else {
        plain(&owner.user)
    }
}

/// Worlds that have no gather directory here yet; the record of one that has it goes without saying.
fn meetings(survey: &Survey) -> String {
    let mut table = Table::new(&[
        ("MEETING", Side::Left),
        ("STATE", Side::Left),
        ("AGE", Side::Right),
        ("OWNER", Side::Left),
        ("SIZE", Side::Right),
    ]);
    for meeting in survey.meetings.iter().filter(|meeting| meeting.is_forming) {
        let name = meeting.path.file_name().unwrap_or_default();
        let (host, pid) = (plain(&meeting.writer.host), meeting.writer.pid);
        let cells = vec![
            plain(&name.to_string_lossy()),
            "forming".into(),
            coarse(meeting.age),
            format!("{host} pid {pid}"),
            bytes_text(meeting.bytes),
        ];
        let reason = format!("{}; it has no gather directory here", meeting.reason);
        table.row(cells, Some(plain(&reason)));
    }
    table.text()
}

fn leftovers(survey: &Survey) -> String {
    let mut table = Table::new(&[
        ("LEFTOVER", Side::Left),
        ("KIND", Side::Left),
        ("AGE", Side::Right),
        ("SIZE", Side::Right),
    ]);
    for leftover in &survey.leftovers {
        let name = leftover.path.file_name().unwrap_or_default();
        let cells = vec![
            plain(&name.to_string_lossy()),
            leftover.kind.word().into(),
            coarse(leftover.age),
            bytes_text(leftover.bytes),
        ];
        table.row(cells, Some(plain(&leftover.reason)));
    }
    table.text()
}

fn summary(survey: &Survey) -> String {
    let count = |word: &str| {
        let gathers = survey.gathers.iter();
        gathers
            .filter(|gather| gather.judgement.state.word() == word)
            .count()
    };
    let states: Vec<String> = ["live", "stale", "finished", "unknown"]
        .into_iter()
        .map(|word| format!("{} {word}", count(word)))
        .collect();
    let is_stranger = |leftover: &&Leftover| leftover.kind == LeftoverKind::Stranger;
    let strangers = survey.leftovers.iter().filter(is_stranger).count();
    let mut counts: Vec<String> = Vec::new();
    match survey.meetings.iter().filter(|meeting| meeting.is_forming) {
        forming if forming.clone().count() > 0 => {
            counts.push(format!("{} forming", forming.count()));
        }
        _ => {}
    }
    counts.extend(states);
    counts.push(match survey.leftovers.len() - strangers {
        1 => "1 leftover".to_owned(),
        count => format!("{count} leftovers"),
    });
    if strangers > 0 {
        counts.push(format!("{strangers} not of fsgather"));
    }
    let is_partial = survey.gathers.iter().any(|gather| gather.is_closed);
    let mut text = format!(
        "{}; {}{} in all\n",
        counts.join(", "),
        if is_partial { "at least " } else { "" },
        bytes_text(survey.total_bytes())
    );
    let gathers = survey.gathers.iter().filter(|gather| gather.is_removable());
    let files = survey
        .leftovers
        .iter()
        .filter(|leftover| leftover.removable);
    let bytes = gathers
        .clone()
        .map(|gather| gather.bytes)
        .chain(files.clone().map(|leftover| leftover.bytes));
    if gathers.count() + files.count() > 0 {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "{} can be freed: fsgather clean {} --execute",
            bytes_text(bytes.sum()),
            word(&survey.path.display().to_string())
        );
    }
    text
}

/// A path as a word of a shell.
pub(super) fn word(path: &str) -> String {
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if path.chars().all(is_simple) {
        path.to_owned()
    } else {
        format!("'{}'", plain(path).replace('\'', r"'\''"))
    }
}

/// An age in its two largest units.
fn coarse(age: Duration) -> String {
    let text = duration_text(Duration::from_secs(age.as_secs()));
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[derive(Serialize)]
struct Report {
    directories: Vec<DirectoryReport>,
    errors: Vec<ErrorReport>,
}

#[derive(Serialize)]
struct DirectoryReport {
    path: String,
    gather_dirs: Vec<GatherReport>,
    meetings: Vec<MeetingReport>,
    leftovers: Vec<LeftoverReport>,
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
}

#[derive(Serialize)]
struct MeetingReport {
    path: String,
    forming: bool,
    host: String,
    pid: u32,
    bytes: u64,
    age_seconds: f64,
    reason: String,
}

#[derive(Serialize)]
pub(super) struct ErrorReport {
    pub(super) path: String,
    pub(super) error: String,
}

fn report(surveys: &[Survey], errors: &[(PathBuf, Error)]) -> Report {
    let gather = |gather: &SurveyedGather| GatherReport {
        id: gather.id.to_string(),
        path: gather.path.display().to_string(),
        state: gather.judgement.state.word(),
        reason: gather.judgement.reason.clone(),
        removable: gather.judgement.removable != Removable::No,
        created: rfc3339(gather.created),
        age_seconds: gather.age.as_secs_f64(),
        beat_age_seconds: gather.beat_age.map(|age| age.as_secs_f64()),
        owner: gather.owner.as_ref().map(|owner| OwnerReport {
            host: owner.process.host.clone(),
            boot_id: owner.process.boot_id.clone(),
            pid: owner.process.pid,
            user: owner.user.clone(),
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
        leftovers: survey
            .leftovers
            .iter()
            .map(|leftover| LeftoverReport {
                path: leftover.path.display().to_string(),
                kind: leftover.kind.word(),
                bytes: leftover.bytes,
                age_seconds: leftover.age.as_secs_f64(),
                removable: leftover.removable,
                reason: leftover.reason.clone(),
            })
            .collect(),
        meetings: survey
            .meetings
            .iter()
            .map(|meeting| MeetingReport {
                path: meeting.path.display().to_string(),
                forming: meeting.is_forming,
                host: meeting.writer.host.clone(),
                pid: meeting.writer.pid,
                bytes: meeting.bytes,
                age_seconds: meeting.age.as_secs_f64(),
                reason: meeting.reason.clone(),
            })
            .collect(),
        total_bytes: survey.total_bytes(),
    });
    let errors = errors.iter().map(|(path, error)| ErrorReport {
        path: path.display().to_string(),
        error: error.to_string(),
    });
    Report {
        directories: directories.collect(),
        errors: errors.collect(),
    }
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
    fn ages_times_and_paths_read_as_people_expect() {
        assert_eq!(coarse(Duration::from_millis(2500)), "2s");
        assert_eq!(coarse(Duration::from_secs(93_784)), "1day 2h");
        assert_eq!(rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(word("/shared/scratch"), "/shared/scratch");
        assert_eq!(word("/it's here"), r"'/it'\''s here'");
    }

    #[test]
    fn a_directory_without_anything_says_so() {
        let place = tempfile::tempdir().unwrap();
        let mut surveyor = Surveyor::new(Rules::default()).unwrap();
        let survey = surveyor.survey(place.path()).unwrap();
        assert!(text(&[survey]).ends_with(": nothing of fsgather here\n"));
    }
}
