//! Renders the contents of shared directories as text: processes at work, leftovers and totals.
//!
//! If there are more items than fit on a screen, items that are alike become one line.

use std::{cmp::Reverse, collections::HashMap, fmt::Write, path::Path, time::Duration};

use fsgather_core::{GatherId, ProcessId, bytes_text, duration_text};
use fsgather_store::{GatherState, Leftover, LeftoverKind, Meeting, Survey, SurveyedGather};

use crate::{
    alike::{Alike, Counts, One, Size},
    colour::Hue,
    shell_word::shell_word,
    table::{Cell, Narrowing, Side, TableStyle, TextTable, plain, wrapped},
    verbs::others,
};

/// Steps that narrow the table of gather directories for a terminal, in this order.
const WAYS: [Narrowing; 8] = [
    Narrowing::Drop("FILES"),
    Narrowing::Shorten("OWNER"),
    Narrowing::Shorten("GATHER DIRECTORY"),
    Narrowing::Shorten("JOB"),
    Narrowing::Drop("RANKS"),
    Narrowing::Drop("JOB"),
    Narrowing::Drop("OWNER"),
    Narrowing::Drop("AGE"),
];

/// Steps that narrow the table of leftovers.
const LEFTOVER_WAYS: [Narrowing; 3] = [
    Narrowing::Shorten("LEFTOVER"),
    Narrowing::Drop("AGE"),
    Narrowing::Drop("SIZE"),
];

/// Renders all surveys. If `is_long` is set, each item has a row of its own.
pub(super) fn text(surveys: &[Survey], is_long: bool, is_root: bool, look: &TableStyle) -> String {
    let blocks = surveys.iter();
    let blocks: Vec<String> = blocks
        .map(|survey| block(survey, is_long, is_root, look))
        .collect();
    blocks.join("\n")
}

fn block(survey: &Survey, is_long: bool, is_root: bool, look: &TableStyle) -> String {
    let path = plain(&survey.path.display().to_string());
    if survey.has_only_an_empty_rendezvous() {
        return format!("{path}: nothing but an empty all_gather_via_filesys\n");
    }
    let is_empty = survey.gathers.is_empty() && survey.leftovers.is_empty();
    let samples = samples(survey);
    if is_empty && survey.meetings.is_empty() {
        if let Some(samples) = samples {
            return format!("{path}: {samples}");
        }
        return format!("{path}: nothing of fsgather here\n");
    }
    let records = Records::of(survey);
    let (rows, alike) = Rows::of(survey, &records, is_long);
    let mut blocks = vec![format!("{path}\n")];
    if !rows.gathers.is_empty() {
        blocks.push(gathers(&rows.gathers, &records, look));
    }
    if !rows.meetings.is_empty() {
        blocks.push(meetings(&rows.meetings, look));
    }
    if !rows.leftovers.is_empty() {
        blocks.push(leftovers(&rows.leftovers, look));
    }
    if !alike.is_empty() {
        blocks.push(alike.text(look));
    }
    let mut end = summary(survey, is_root, look);
    if !alike.is_empty() {
        let directory = shell_word(&survey.path.display().to_string());
        // Writing to a `String` cannot fail.
        let _ = writeln!(end, "each of them: fsgather inspect --long {directory}");
    }
    blocks.push(end);
    blocks.extend(samples);
    blocks.join("\n")
}

/// Points to the verb that shows samples, if there are any.
fn samples(survey: &Survey) -> Option<String> {
    let count = survey.sample_files;
    let files = if count == 1 { "file" } else { "files" };
    let directory = shell_word(&survey.path.display().to_string());
    (count > 0).then(|| format!("{count} {files} of samples, which are never removed; fsgather samples {directory} shows them\n"))
}

/// Records of processes that have a gather directory here. Their sizes are shown in the row of that directory: the oldest one, if a process
/// has several.
struct Records<'a> {
    by_writer: HashMap<&'a ProcessId, (GatherId, u64)>,
}

impl<'a> Records<'a> {
    fn of(survey: &'a Survey) -> Self {
        let mut by_writer = HashMap::new();
        for gather in &survey.gathers {
            if let Some(owner) = &gather.owner {
                by_writer.entry(&owner.process).or_insert((gather.id, 0));
            }
        }
        let living = survey.meetings.iter();
        let living = living.map(|meeting| (&meeting.writer, meeting.bytes));
        let left = survey.leftovers.iter();
        let left = left.filter(|left| left.kind == LeftoverKind::Record);
        let left = left.filter_map(|left| Some((left.writer.as_ref()?, left.bytes)));
        for (writer, bytes) in living.chain(left) {
            if let Some((_, known)) = by_writer.get_mut(writer) {
                *known += bytes;
            }
        }
        Self { by_writer }
    }

    /// Returns true if a file is the record of a process that has a gather directory here.
    fn has(&self, leftover: &Leftover) -> bool {
        let writer = leftover.writer.as_ref();
        leftover.kind == LeftoverKind::Record
            && writer.is_some_and(|writer| self.by_writer.contains_key(writer))
    }

    fn bytes(&self, gather: &SurveyedGather) -> Option<u64> {
        let (id, bytes) = self.by_writer.get(&gather.owner.as_ref()?.process)?;
        (*id == gather.id && *bytes > 0).then_some(*bytes)
    }
}

/// The items that have a row of their own.
#[derive(Default)]
struct Rows<'a> {
    gathers: Vec<&'a SurveyedGather>,
    meetings: Vec<&'a Meeting>,
    leftovers: Vec<&'a Leftover>,
}

impl<'a> Rows<'a> {
    /// Splits the items into those with a row of their own and those in groups.
    fn of(survey: &'a Survey, records: &Records<'_>, is_long: bool) -> (Self, Alike) {
        let mut rows = Self {
            gathers: survey.gathers.iter().collect(),
            leftovers: survey.leftovers.iter().collect(),
            meetings: survey.meetings.iter().collect(),
        };
        rows.meetings.retain(|meeting| meeting.is_forming);
        rows.leftovers.retain(|leftover| !records.has(leftover));
        rows.gathers.sort_by_key(|gather| {
            let size = Reverse(gather.bytes);
            (order(gather.judgement.state), size, Reverse(gather.age))
        });
        rows.leftovers.sort_by_key(|leftover| {
            let size = Reverse(leftover.bytes);
            (leftover.kind.word(), size, Reverse(leftover.age))
        });
        let ones = rows.gathers.iter().copied().map(one_of_gather);
        let ones: Vec<One<'_>> = ones
            .chain(rows.leftovers.iter().copied().map(one_of_leftover))
            .collect();
        let counts = Counts::of(ones.iter(), is_long);
        let mut alike = Alike::default();
        for one in ones.iter().filter(|one| counts.has_several(one)) {
            alike.add(one);
        }
        rows.gathers
            .retain(|&gather| !counts.has_several(&one_of_gather(gather)));
        rows.leftovers
            .retain(|&leftover| !counts.has_several(&one_of_leftover(leftover)));
        (rows, alike)
    }
}

fn one_of_gather(gather: &SurveyedGather) -> One<'_> {
    let process = gather.owner.as_ref().map(|owner| &owner.process);
    One {
        fate: None,
        what: gather.judgement.state.word(),
        hue: Some(hue(gather.judgement.state)),
        gist: &gather.judgement.gist,
        host: process.map(|process| process.host.as_str()),
        age: Some(gather.age),
        size: if gather.is_closed {
            Size::Unknown
        } else {
            Size::Of(gather.bytes)
        },
    }
}

fn one_of_leftover(leftover: &Leftover) -> One<'_> {
    let writer = leftover.writer.as_ref();
    One {
        fate: None,
        what: leftover.kind.word(),
        hue: None,
        gist: &leftover.gist,
        host: writer.map(|writer| writer.host.as_str()),
        age: Some(leftover.age),
        size: Size::Of(leftover.bytes),
    }
}

const STATES: [GatherState; 4] = [
    GatherState::Live,
    GatherState::Stale,
    GatherState::Finished,
    GatherState::Unknown,
];

fn order(state: GatherState) -> Option<usize> {
    STATES.iter().position(|known| *known == state)
}

fn hue(state: GatherState) -> Hue {
    match state {
        GatherState::Live => Hue::Good,
        GatherState::Stale | GatherState::Finished => Hue::Stale,
        GatherState::Unknown => Hue::Doubtful,
    }
}

fn gathers(gathers: &[&SurveyedGather], records: &Records<'_>, look: &TableStyle) -> String {
    let mut table = TextTable::new(&[
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
        let user = plain(&gather.user);
        let (owner, job, ranks) = match &gather.owner {
            None => (user.into(), "-".into(), "?".into()),
            Some(owner) => {
                let process = &owner.process;
                let short = format!("{user} {}", plain(&process.host));
                let whole = format!("{short} pid {}", process.pid);
                let job = plain(owner.job.as_deref().unwrap_or("-"));
                (
                    Cell::or(whole, short),
                    Cell::or(job.clone(), cut(&job)),
                    owner.world_size.to_string(),
                )
            }
        };
        let (id, judgement) = (gather.id.to_string(), &gather.judgement);
        let salt = id.rsplit('-').next().unwrap_or_default();
        let cells = vec![
            Cell::or(format!("gather-{id}"), format!("..{salt}")),
            Cell::painted(judgement.state.word(), hue(judgement.state)),
            coarse(gather.age).into(),
            owner,
            job,
            ranks.into(),
            known(gather, gather.payload_files.to_string()).into(),
            known(gather, bytes_text(gather.bytes)).into(),
        ];
        let mut reason = plain(&judgement.reason);
        if gather.messages > 0 {
            reason += "; it holds messages between ranks, no payloads";
        }
        if let Some(bytes) = records.bytes(gather) {
            let _ = write!(reason, "; its record is {}", bytes_text(bytes));
        }
        table.row(cells, Some(reason));
    }
    table.fitted(look, &WAYS)
}

/// The end of a job's name, in which most long names differ.
fn cut(job: &str) -> String {
    const LENGTH: usize = 10;
    match job.char_indices().rev().nth(LENGTH - 1) {
        Some((at, _)) if at > 2 => format!("..{}", &job[at..]),
        _ => job.to_owned(),
    }
}

/// A number, or `?` if the directory could not be read.
fn known(gather: &SurveyedGather, figure: String) -> String {
    if gather.is_closed {
        "?".to_owned()
    } else {
        figure
    }
}

/// Renders the worlds that have no gather directory here yet.
fn meetings(meetings: &[&Meeting], look: &TableStyle) -> String {
    let mut table = TextTable::new(&[
        ("MEETING", Side::Left),
        ("STATE", Side::Left),
        ("AGE", Side::Right),
        ("OWNER", Side::Left),
        ("RANKS", Side::Right),
        ("SIZE", Side::Right),
    ]);
    for meeting in meetings {
        let name = file_name(&meeting.path);
        let (host, pid) = (plain(&meeting.writer.host), meeting.writer.pid);
        let salt = format!("..{}", name.rsplit('-').next().unwrap_or_default());
        let ranks = meeting.world_size;
        let cells = vec![
            Cell::or(name, salt),
            Cell::painted("forming", Hue::Good),
            coarse(meeting.age).into(),
            Cell::or(format!("{host} pid {pid}"), host),
            ranks
                .map_or_else(|| "?".to_owned(), |ranks| ranks.to_string())
                .into(),
            bytes_text(meeting.bytes).into(),
        ];
        let expected = match ranks {
            Some(ranks) if ranks.get() == 1 => "1 rank expected; ".to_owned(),
            Some(ranks) => format!("{ranks} ranks expected; "),
            None => String::new(),
        };
        let reason = format!(
            "{expected}{}; no gather directory here yet, or none needed",
            meeting.reason
        );
        table.row(cells, Some(plain(&reason)));
    }
    let ways = [
        Narrowing::Shorten("OWNER"),
        Narrowing::Shorten("MEETING"),
        Narrowing::Drop("SIZE"),
        Narrowing::Drop("OWNER"),
    ];
    table.fitted(look, &ways)
}

fn leftovers(leftovers: &[&Leftover], look: &TableStyle) -> String {
    let mut table = TextTable::new(&[
        ("LEFTOVER", Side::Left),
        ("KIND", Side::Left),
        ("AGE", Side::Right),
        ("SIZE", Side::Right),
    ]);
    for leftover in leftovers {
        let kind = leftover.kind.word();
        let kind = if leftover.kind == LeftoverKind::Stranger {
            Cell::painted(kind, Hue::Doubtful)
        } else {
            kind.to_owned().into()
        };
        let cells = vec![
            shortened(&file_name(&leftover.path)),
            kind,
            coarse(leftover.age).into(),
            bytes_text(leftover.bytes).into(),
        ];
        table.row(cells, Some(plain(&leftover.reason)));
    }
    table.fitted(look, &LEFTOVER_WAYS)
}

fn file_name(path: &Path) -> String {
    plain(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// A name whose middle may be cut out.
fn shortened(name: &str) -> Cell {
    const END_CHARS: usize = 10;
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= 2 * END_CHARS + 2 {
        return name.to_owned().into();
    }
    let part = |part: &[char]| part.iter().collect::<String>();
    let (begin, end) = (
        &characters[..END_CHARS],
        &characters[characters.len() - END_CHARS..],
    );
    Cell::or(name.to_owned(), part(begin) + ".." + &part(end))
}

fn summary(survey: &Survey, is_root: bool, look: &TableStyle) -> String {
    let mut counts: Vec<String> = Vec::new();
    match survey.meetings.iter().filter(|meeting| meeting.is_forming) {
        forming if forming.clone().count() > 0 => {
            counts.push(format!("{} forming", forming.count()));
        }
        _ => {}
    }
    counts.extend(STATES.into_iter().map(|state| {
        let gathers = survey.gathers.iter();
        let count = gathers.filter(|gather| gather.judgement.state == state);
        format!("{} {}", count.count(), state.word())
    }));
    let is_stranger = |leftover: &&Leftover| leftover.kind == LeftoverKind::Stranger;
    let strangers = survey.leftovers.iter().filter(is_stranger).count();
    counts.push(match survey.leftovers.len() - strangers {
        1 => "1 leftover".to_owned(),
        count => format!("{count} leftovers"),
    });
    if strangers > 0 {
        counts.push(format!("{strangers} not of fsgather"));
    }
    let is_partial = survey.gathers.iter().any(|gather| gather.is_closed);
    let least = if is_partial { "at least " } else { "" };
    let all = bytes_text(survey.total_bytes());
    let counts = format!("{}; {least}{all} in all", counts.join(", "));
    let mut text = wrapped("", "  ", &counts, look.width);
    let gathers = survey.gathers.iter().filter(|gather| gather.is_removable());
    let files = survey.leftovers.iter().filter(|left| left.removable);
    let bytes = gathers.clone().map(|gather| gather.bytes);
    let bytes = bytes.chain(files.clone().map(|leftover| leftover.bytes));
    let directory = shell_word(&survey.path.display().to_string());
    if gathers.count() + files.count() > 0 {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "{} can be freed: fsgather clean {directory} --execute",
            bytes_text(bytes.sum()),
        );
    }
    let gathers = survey.gathers.iter();
    let gathers = gathers
        .filter(|gather| gather.is_foreign() && gather.judgement.state != GatherState::Live)
        .map(|gather| gather.user.as_str());
    let files = survey.leftovers.iter();
    let files = files
        .filter(|leftover| leftover.is_foreign && leftover.kind != LeftoverKind::Stranger)
        .map(|leftover| leftover.user.as_str());
    let command = format!("fsgather clean {directory} --execute");
    text + &others::text(gathers.chain(files), &command, is_root)
}

/// Formats an age, in whole seconds at the finest.
fn coarse(age: Duration) -> String {
    duration_text(Duration::from_secs(age.as_secs()))
}

#[cfg(test)]
mod tests {
    use fsgather_store::{Rules, Surveyor};

    use super::*;

    #[test]
    fn ages_and_names_read_as_people_expect() {
        assert_eq!(coarse(Duration::from_millis(2500)), "2 s");
        assert_eq!(coarse(Duration::from_secs(93_784)), "1 d 2 h");
        assert_eq!(cut("4711"), "4711");
        assert_eq!(cut("run-20261121t033336z-5f3a9c01"), "..z-5f3a9c01");
    }

    #[test]
    fn a_directory_without_anything_says_so() {
        let place = tempfile::tempdir().unwrap();
        let surveyor = Surveyor::new(Rules::default()).unwrap();
        let survey = surveyor.survey(place.path()).unwrap();
        let text = text(&[survey], false, false, &TableStyle::PLAIN);
        assert!(text.ends_with(": nothing of fsgather here\n"));
    }

    #[test]
    fn samples_are_shown_as_such() {
        let place = tempfile::tempdir().unwrap();
        let name = "samples-a000001-r00000-000000000000beef-p00000";
        std::fs::write(place.path().join(name), b"").unwrap();
        let surveyor = crate::housekeeping::surveyor(Rules::default()).unwrap();
        let mut survey = surveyor.survey(place.path()).unwrap();
        survey.count_samples();
        let text = text(&[survey], false, false, &TableStyle::PLAIN);
        assert!(
            text.contains(": 1 file of samples, which are never removed; fsgather samples /"),
            "{text}"
        );
    }

    #[test]
    fn a_place_where_ranks_have_met_and_left_nothing_is_told() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("all_gather_via_filesys")).unwrap();
        let surveyor = Surveyor::new(Rules::default()).unwrap();
        let survey = surveyor.survey(place.path()).unwrap();
        let text = text(&[survey], false, false, &TableStyle::PLAIN);
        assert!(
            text.ends_with(": nothing but an empty all_gather_via_filesys\n"),
            "{text}"
        );
    }
}
