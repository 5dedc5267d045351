//! Examination of entries beside gather directories, for [`Surveyor`].

use std::path::Path;

use crate::{
    calls,
    layout::RendezvousEntry,
    lifecycle::{
        contents::Contents,
        entries_by_gather::EntriesByGather,
        inventory::{self, Table},
        judgement::Why,
        leftover::{Leftover, Meeting, is_older_than_a_moment, judge_by_age, old_file, stranger},
        leftover_kind::{self, LeftoverKind},
        survey::SurveyedEntry,
        surveyor::Surveyor,
        view::View,
    },
    messages::detours::{self, DetourName},
    os::{
        listing,
        process::{Liveness, liveness},
    },
    rendezvous::{
        record::RecordError,
        record_file::{Unread, read_record},
    },
};

impl Surveyor {
    /// Examines an entry of a rendezvous directory that is not a gather directory. Returns `None` if it is gone, still in use,
    /// or belongs to a gather directory.
    pub(crate) fn look_at_file(
        &self,
        rendezvous: &Path,
        name: &str,
        entries: &EntriesByGather,
        view: View,
    ) -> Option<SurveyedEntry> {
        let path = rendezvous.join(name);
        let leftover = match RendezvousEntry::parse(name) {
            Some(
                RendezvousEntry::Record(_)
                | RendezvousEntry::Unreachable(_)
                | RendezvousEntry::Refusal(_),
            ) => return self.record(&path, view),
            Some(RendezvousEntry::Probe(_)) => {
                let rules = self.rules.for_nameless();
                old_file(&path, LeftoverKind::Probe, view, &rules).filter(is_older_than_a_moment)
            }
            Some(RendezvousEntry::Calls { .. }) => self.calls(&path, view),
            // They are answered, or given up, within a minute.
            Some(RendezvousEntry::Asked { .. } | RendezvousEntry::Answer { .. }) => {
                let rules = self.rules.for_nameless();
                old_file(&path, LeftoverKind::Message, view, &rules).filter(is_older_than_a_moment)
            }
            // A mark of an existing directory is removed with that directory.
            Some(RendezvousEntry::Condemned { id, .. }) if entries.has(id) => None,
            Some(RendezvousEntry::Condemned { .. }) => {
                old_file(&path, LeftoverKind::Mark, view, &self.rules)
            }
            None if leftover_kind::is_of_python_original(name) => {
                old_file(&path, LeftoverKind::PythonOriginal, view, &self.rules)
            }
            None if leftover_kind::is_of_torchrun(name) => {
                self.tree(&path, LeftoverKind::Torchrun, leftover_kind::torchrun, view)
            }
            None => match DetourName::parse(name) {
                Some(detour) if entries.has(detour.id) => None,
                Some(_) => self.message(rendezvous, &path, view),
                None if inventory::is_lingering(name) => None,
                None => stranger(&path, view),
            },
            // A gather directory of that name may have gone; other kinds of files are foreign.
            Some(RendezvousEntry::Gather(_)) => stranger(&path, view)
                .filter(|found| !found.path.is_dir() || found.path.is_symlink()),
        };
        leftover.map(SurveyedEntry::Leftover)
    }

    /// Judges a message beside the place of its gather directory, which is gone.
    fn message(&self, rendezvous: &Path, path: &Path, view: View) -> Option<Leftover> {
        let rules = self.rules.for_nameless();
        let mut message = old_file(path, LeftoverKind::Message, view, &rules)?;
        if message.kind == LeftoverKind::Message
            && message.uid == view.own.0
            && !detours::may_belong_elsewhere(rendezvous)
        {
            message.removable = true;
            let why = Why::plain("the gather directory that it belongs to is gone");
            message.explain(why);
        }
        Some(message)
    }

    /// Judges the last-calls file of a rank. It is a leftover once its process has ended.
    pub(crate) fn calls(&self, path: &Path, view: View) -> Option<Leftover> {
        let is_empty = listing::examine_path(path).ok()?.len == 0;
        let rules = if is_empty {
            // Its writer was killed before it wrote its process id.
            self.rules.for_nameless()
        } else {
            self.rules
        };
        let mut leftover = old_file(path, LeftoverKind::Calls, view, &rules)?;
        let Some(writer) = calls::writer(path, view.own) else {
            return Some(leftover);
        };
        let liveness = liveness(&writer, &self.me);
        if liveness == Liveness::Running {
            return None;
        }
        leftover.take_writer(writer, liveness);
        Some(leftover)
    }

    /// Judges a directory of another program by the age of its contents, as it reveals nothing else.
    pub(crate) fn tree(
        &self,
        path: &Path,
        kind: LeftoverKind,
        table: Table,
        view: View,
    ) -> Option<Leftover> {
        let Ok(seen) = Contents::with_table(path, table) else {
            return stranger(path, view);
        };
        let facts = (seen.uid, seen.bytes, seen.changed);
        let mut leftover = judge_by_age(path, kind, facts, view, &self.rules);
        if let Some(stranger) = seen.stranger {
            leftover.removable = false;
            let reason = format!("it holds {stranger}");
            leftover.explain(Why::new(reason, "it holds what is not of fsgather"));
        }
        Some(leftover)
    }

    pub(crate) fn record(&self, path: &Path, view: View) -> Option<SurveyedEntry> {
        let read = read_record(path, view.own);
        let rules = match &read {
            // No process takes this long to write a record, and a torn record is never read.
            Err(Unread::Record(RecordError::Torn)) => self.rules.for_nameless(),
            _ => self.rules,
        };
        let mut leftover = old_file(path, LeftoverKind::Record, view, &rules)?;
        let record = match read {
            Ok(record) => record,
            Err(Unread::Record(RecordError::Torn)) if !is_older_than_a_moment(&leftover) => {
                return None;
            }
            Err(_) => return Some(SurveyedEntry::Leftover(leftover)),
        };
        let (writer, body) = (record.poster, record.body);
        let liveness = liveness(&writer, &self.me);
        if liveness == Liveness::Running {
            let reason = format!("its writer, pid {} on {}, runs", writer.pid, writer.host);
            return Some(SurveyedEntry::Meeting(Meeting {
                path: leftover.path,
                bytes: leftover.bytes,
                age: leftover.age,
                writer,
                is_forming: true,
                world_size: (self.world_size)(&body),
                reason,
            }));
        }
        leftover.take_writer(writer, liveness);
        Some(SurveyedEntry::Leftover(leftover))
    }
}
