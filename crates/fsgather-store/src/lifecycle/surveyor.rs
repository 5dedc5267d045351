//! Examines a directory that was gathered through, and changes nothing: [`Surveyor`].

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

use fsgather_core::{Error, GatherId, ProcessId, StorageCause, WorldSize, lock, sys::clock};
use rustix::fs::{CWD, FileType};

use crate::{
    directory::{gather_dir::is_not_seen, owner::OwnerRecord, owner_file::read_owner},
    layout::{self, RendezvousEntry},
    lifecycle::{
        contents::Contents,
        entries_by_gather::{Beside, EntriesByGather},
        judgement::{BeatEvidence, Evidence, GatherState, OwnerEvidence, Rules, assess},
        leftover::{self, Meeting},
        leftover_kind::{self, LeftoverKind},
        removal_mark,
        survey::{Survey, SurveyedEntry, SurveyedGather},
        view::View,
    },
    os::{
        directory::OwnUid,
        listing,
        process::{Liveness, claimed_user_text, liveness, this_process},
    },
};

/// Examines directories and judges their contents.
///
/// A second look with the same surveyor shows which heartbeats have changed in between, which one look cannot show.
#[derive(Debug)]
pub struct Surveyor {
    pub(crate) me: ProcessId,
    pub(crate) rules: Rules,
    beats: Mutex<BTreeMap<PathBuf, Watched>>,
    /// Returns the size of the future world from its record.
    pub(crate) world_size: fn(&[u8]) -> Option<WorldSize>,
}

#[derive(Debug)]
struct Watched {
    beat: Option<u64>,
    since: Instant,
    has_changed: bool,
}

/// The directories to examine.
struct SurveyedPlace {
    rendezvous: PathBuf,
    /// The directory that holds it, unless it was named itself.
    holder: Option<PathBuf>,
    only: Option<GatherId>,
}

impl Surveyor {
    /// Makes a surveyor with these rules.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when `/proc` does not show this process.
    pub fn new(rules: Rules) -> Result<Self, Error> {
        Ok(Self {
            me: this_process()?,
            rules,
            beats: Mutex::default(),
            world_size: |_| None,
        })
    }

    /// Sets the function that reads the world size from a record, whose content the store does not know.
    #[must_use]
    pub fn reading(self, world_size: fn(&[u8]) -> Option<WorldSize>) -> Self {
        Self { world_size, ..self }
    }

    /// Examines a directory: one that holds a rendezvous directory, a rendezvous directory itself, or a gather directory.
    ///
    /// To learn the server's time, this creates a short-lived file in the rendezvous directory if possible.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when the directory, or the rendezvous directory in it, cannot be read.
    pub fn survey(&self, directory: &Path) -> Result<Survey, Error> {
        let place = resolve(directory)?;
        let mut survey = Survey {
            path: directory.to_owned(),
            gathers: Vec::new(),
            leftovers: Vec::new(),
            meetings: Vec::new(),
            sample_files: 0,
            rendezvous: None,
        };
        match names_in(&place.rendezvous) {
            Ok((names, garbled)) => {
                let view = View::of(&place.rendezvous);
                self.look_at_all(&place, &names, view, &mut survey);
                if place.only.is_none() {
                    let shown = garbled.iter().map(|name| place.rendezvous.join(name));
                    let strangers = shown.map(|path| leftover::nameless_stranger(&path));
                    survey.leftovers.extend(strangers);
                    survey.rendezvous = Some((place.rendezvous.clone(), view.own));
                }
            }
            Err(error) if is_not_seen(&error) && place.holder.is_some() => {}
            Err(error) => return Err(Error::storage("list", &place.rendezvous, &error)),
        }
        if let Some(holder) = &place.holder {
            self.look_beside(holder, &mut survey)?;
        }
        survey.gathers.sort_by_key(|gather| gather.id);
        let runs = |gather: &&SurveyedGather| gather.judgement.state == GatherState::Live;
        for meeting in &mut survey.meetings {
            let mut live = survey.gathers.iter().filter(runs);
            meeting.is_forming = !live.any(|gather| {
                let owner = gather.owner.as_ref();
                owner.is_some_and(|owner| owner.process == meeting.writer)
            });
        }
        Ok(survey)
    }

    /// Examines only the records of live worlds. It does not examine gather directories, which would take a look at each of
    /// their files.
    ///
    /// # Errors
    ///
    /// Like [`survey`](Self::survey).
    pub fn meetings(&self, directory: &Path) -> Result<Vec<Meeting>, Error> {
        let rendezvous = resolve(directory)?.rendezvous;
        let names = match names_in(&rendezvous) {
            Ok((names, _)) => names,
            Err(error) if is_not_seen(&error) => return Ok(Vec::new()),
            Err(error) => return Err(Error::storage("list", &rendezvous, &error)),
        };
        let is_record = |name: &&String| {
            matches!(
                RendezvousEntry::parse(name),
                Some(RendezvousEntry::Record(_))
            )
        };
        let mut records = names.iter().filter(is_record).peekable();
        if records.peek().is_none() {
            return Ok(Vec::new());
        }
        let view = View::of(&rendezvous);
        let record = |name: &String| self.record(&rendezvous.join(name), view);
        let meeting = |entry| match entry {
            SurveyedEntry::Meeting(meeting) => Some(meeting),
            _ => None,
        };
        Ok(records.filter_map(record).filter_map(meeting).collect())
    }

    fn look_at_all(
        &self,
        place: &SurveyedPlace,
        names: &[String],
        view: View,
        survey: &mut Survey,
    ) {
        // The names are grouped once: the time per entry must not grow with their number.
        let entries = EntriesByGather::among(names);
        if let Some(only) = place.only {
            let beside = entries.beside(only);
            let gather = self.look_at(&place.rendezvous, only, beside, view);
            survey.gathers.extend(gather);
            return;
        }
        for name in names {
            match self.look_at_entry(&place.rendezvous, name, &entries, view) {
                Some(SurveyedEntry::Gather(gather)) => survey.gathers.push(*gather),
                Some(SurveyedEntry::Leftover(leftover)) => survey.leftovers.push(leftover),
                Some(SurveyedEntry::Meeting(meeting)) => survey.meetings.push(meeting),
                None => {}
            }
        }
    }

    /// Examines one entry of a rendezvous directory. Returns `None` if it is gone, still in use, or part of another entry.
    pub(crate) fn look_at_entry(
        &self,
        rendezvous: &Path,
        name: &str,
        entries: &EntriesByGather,
        view: View,
    ) -> Option<SurveyedEntry> {
        if let Some(RendezvousEntry::Gather(id)) = RendezvousEntry::parse(name) {
            let gather = self.look_at(rendezvous, id, entries.beside(id), view);
            if let Some(gather) = gather {
                return Some(SurveyedEntry::Gather(Box::new(gather)));
            }
        }
        self.look_at_file(rendezvous, name, entries, view)
    }

    /// Examines one gather directory. Returns `None` if it is gone, or not a directory.
    pub(crate) fn look_at(
        &self,
        rendezvous: &Path,
        id: GatherId,
        beside: Beside,
        view: View,
    ) -> Option<SurveyedGather> {
        let path = rendezvous.join(RendezvousEntry::Gather(id).to_string());
        let found = listing::examine_path(&path).ok()?;
        if found.kind != FileType::Directory {
            return None;
        }
        let (contents, failure) = match Contents::of(&path) {
            Ok(contents) => (Some(contents), None),
            Err(error) if is_not_seen(&error) => return None,
            Err(error) => (None, Some(error.to_string())),
        };
        let (owner, evidence) = self.owner_evidence(&path, found.uid, failure);
        let beat = contents.as_ref().and_then(|contents| contents.beat);
        let is_foreign = found.uid != view.own.0;
        // If user names are not known on every host, the record may have the name.
        let record = owner.as_ref().filter(|owner| owner.uid == found.uid);
        let user = claimed_user_text(found.uid, record.map(|owner| owner.user.as_str()));
        let evidence = Evidence {
            foreign: is_foreign.then(|| user.clone()),
            owner: evidence,
            finished: contents.as_ref().is_some_and(|contents| contents.finished),
            aborted: contents.as_ref().is_some_and(|contents| contents.aborted),
            condemned: removal_mark::condemned_by(rendezvous, &beside.marks, id, OwnUid(found.uid))
                .map(|(_, by)| by),
            beat: self.watch(&path, beat.map(|(counter, _)| counter)),
            last_beat: beat.map(|(_, at)| at),
            changed: contents.as_ref().map_or(found.changed, |seen| seen.changed),
            payloads: contents.as_ref().map_or(0, |seen| seen.payloads_in_use),
            is_bare: contents.as_ref().is_some_and(|seen| seen.is_bare),
            stranger: contents.as_ref().and_then(|seen| seen.stranger.clone()),
        };
        let (is_nameless, is_suspected) = (evidence.is_nameless(), evidence.is_suspected());
        let created = owner.as_ref().map_or(id.time(), |owner| owner.created);
        let count = |of: fn(&Contents) -> u64| contents.as_ref().map_or(0, of);
        Some(SurveyedGather {
            id,
            judgement: assess(&evidence, &self.rules, view.now),
            uid: found.uid,
            user,
            created,
            age: view.age_of(created),
            beat_age: beat.map(|(_, at)| view.age_of(at)),
            ranks_present: count(|seen| seen.ranks.len() as u64),
            payload_files: count(|seen| seen.payload_files),
            payload_bytes: count(|seen| seen.payload_bytes),
            messages: count(|seen| seen.messages),
            bytes: count(|seen| seen.bytes),
            inodes: count(|seen| seen.inodes),
            mode: found.mode,
            is_closed: contents.is_none(),
            is_nameless,
            is_suspected,
            beside,
            view,
            owner,
            path,
        })
    }

    /// Examines a gather directory again, by the server's present time.
    pub(crate) fn look_again(&self, gather: &SurveyedGather) -> Option<SurveyedGather> {
        let rendezvous = gather.path.parent()?;
        let view = gather.view.again();
        self.look_at(rendezvous, gather.id, gather.beside.clone(), view)
    }

    fn owner_evidence(
        &self,
        path: &Path,
        uid: u32,
        failure: Option<String>,
    ) -> (Option<OwnerRecord>, OwnerEvidence) {
        if let Some(failure) = failure {
            return (None, OwnerEvidence::Closed(failure));
        }
        let record = match read_owner(path, OwnUid(uid)) {
            Ok(record) => record,
            Err(Error::Storage { cause, .. })
                if cause
                    .os_code
                    .is_some_and(|code| is_not_seen(&io::Error::from_raw_os_error(code))) =>
            {
                return (None, OwnerEvidence::Missing);
            }
            Err(Error::Corrupt { reason, .. }) => return (None, OwnerEvidence::Damaged(reason)),
            Err(error) => return (None, OwnerEvidence::Closed(error.to_string())),
        };
        let owner = liveness(&record.process, &self.me);
        let evidence = OwnerEvidence::Recorded {
            owner,
            ranks: self.liveness_of_all(&record, owner),
            name: format!("pid {} on {}", record.process.pid, record.process.host),
        };
        (Some(record), evidence)
    }

    /// Returns `Running` if any rank is seen to run, else the weakest evidence among all ranks.
    fn liveness_of_all(&self, record: &OwnerRecord, owner: Liveness) -> Liveness {
        let mut all = owner;
        for rank in &record.ranks {
            all = match (liveness(rank, &self.me), all) {
                (Liveness::Running, _) => return Liveness::Running,
                (Liveness::Gone, all) => all,
                (Liveness::Unknown, _) | (_, Liveness::Unknown) => Liveness::Unknown,
                (weak, _) => weak,
            };
        }
        // The record lists all ranks that use the directory, or none: a group has a directory of its own.
        let are_known = !record.ranks.is_empty();
        if are_known || all == Liveness::Running {
            all
        } else {
            Liveness::Unknown
        }
    }

    fn watch(&self, path: &Path, beat: Option<u64>) -> BeatEvidence {
        let now = clock::now();
        let mut beats = lock(&self.beats);
        let watched = beats.entry(path.to_owned()).or_insert(Watched {
            beat,
            since: now,
            has_changed: false,
        });
        if watched.beat != beat {
            *watched = Watched {
                beat,
                since: now,
                has_changed: true,
            };
        }
        let same_for = now.saturating_duration_since(watched.since);
        if watched.has_changed && same_for < self.rules.watch {
            BeatEvidence::Changed
        } else {
            BeatEvidence::Same(same_for)
        }
    }

    /// Adds leftovers of the Python original and of mmengine in a directory.
    fn look_beside(&self, holder: &Path, survey: &mut Survey) -> Result<(), Error> {
        let names =
            listing::names(holder).map_err(|error| Error::storage("list", holder, &error))?;
        let ours = |name: &&String| {
            leftover_kind::is_of_python_original(name) || *name == leftover_kind::DIST_TEST
        };
        let names: Vec<&String> = names.iter().filter(ours).collect();
        if names.is_empty() {
            return Ok(());
        }
        let view = View::of(holder);
        for name in names {
            let path = holder.join(name);
            survey
                .leftovers
                .extend(if name == leftover_kind::DIST_TEST {
                    let table = leftover_kind::dist_test;
                    self.tree(&path, LeftoverKind::Mmengine, table, view)
                } else {
                    leftover::old_file(&path, LeftoverKind::PythonOriginal, view, &self.rules)
                });
        }
        Ok(())
    }
}

/// Returns all names in a rendezvous directory, and separately names that are not valid text, as far as they can be shown.
fn names_in(rendezvous: &Path) -> io::Result<(Vec<String>, Vec<String>)> {
    listing::refresh(rendezvous);
    let (mut names, mut garbled) = (Vec::new(), Vec::new());
    for name in listing::names_of(&listing::open(CWD, rendezvous)?)? {
        match name {
            Ok(name) => names.push(name),
            Err(shown) => garbled.push(shown),
        }
    }
    Ok((names, garbled))
}

fn resolve(named: &Path) -> Result<SurveyedPlace, Error> {
    let failed = |error: io::Error| Error::storage("read", named, &error);
    // Links on the path are the user's choice; the name is that of the final directory.
    let real = std::fs::canonicalize(named).map_err(failed)?;
    if !std::fs::metadata(&real).map_err(failed)?.is_dir() {
        let cause = StorageCause::described("it is not a directory");
        return Err(Error::storage("read", named, cause));
    }
    let name = real.file_name().and_then(|name| name.to_str());
    let entry = name.and_then(RendezvousEntry::parse);
    Ok(match (entry, real.parent()) {
        (Some(RendezvousEntry::Gather(id)), Some(parent)) => SurveyedPlace {
            rendezvous: parent.to_owned(),
            holder: None,
            only: Some(id),
        },
        _ if name == Some(layout::RENDEZVOUS_DIRECTORY) => SurveyedPlace {
            rendezvous: real,
            holder: None,
            only: None,
        },
        _ => SurveyedPlace {
            rendezvous: layout::rendezvous_path(named),
            holder: Some(named.to_owned()),
            only: None,
        },
    })
}

#[cfg(test)]
#[path = "surveyor_tests.rs"]
mod tests;
