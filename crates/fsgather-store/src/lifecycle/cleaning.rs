//! Removal of files and directories that crashes have left: [`clean`].

use std::{
    collections::{BTreeSet, HashSet},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use fsgather_core::{Error, duration_text};
use rustix::fs::CWD;

use crate::{
    lifecycle::{
        abandoned::{self, Outcome, Removing},
        inventory::Table,
        judgement::{GatherState, Removable, Rules},
        leftover::Leftover,
        leftover_kind::{self, LeftoverKind},
        removal::{self, remove_file},
        survey::{Survey, SurveyedGather},
        surveyor::Surveyor,
    },
    os::{directory::OwnUid, listing, remove, retry_budget},
};

/// A file or directory that will be removed, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its path.
    pub path: PathBuf,
    /// Its kind, in one to three words.
    pub what: String,
    /// Number of bytes that the removal frees.
    pub bytes: u64,
    /// The reason for the removal.
    pub reason: String,
    /// The reason without the details that differ between items, so that items of one reason can be counted.
    pub gist: String,
}

/// A file or directory that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its path.
    pub path: PathBuf,
    /// Its kind, in one to three words.
    pub what: String,
    /// The reason why it stays.
    pub reason: String,
    /// The reason without the details that differ between items.
    pub gist: String,
    /// The other user who owns it and could perhaps remove it: a name, or `uid 1001`.
    pub foreign: Option<String>,
}

/// A file or directory that could not be removed or examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Its path.
    pub path: PathBuf,
    /// The error.
    pub reason: String,
}

/// The plan and the result of a cleaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleaning {
    /// Items to remove.
    pub planned: Vec<Planned>,
    /// Items that were removed; none unless removal was requested.
    pub removed: Vec<Planned>,
    /// Items that could not be removed or examined, with the reasons.
    pub failed: Vec<Failed>,
    /// Items that stay, with the reasons.
    pub kept: Vec<Kept>,
    /// True if the cleaning was stopped before it was complete.
    pub is_stopped: bool,
    /// Planned items that it had not reached by then, or not finished.
    pub untouched: Vec<Planned>,
}

/// Progress of a cleaning.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CleaningStep<'a> {
    /// The plan is complete. It is reported only if it is then executed.
    Planned(&'a Cleaning),
    /// Heartbeats are being watched, and nothing has been removed yet. Reported repeatedly.
    Watching,
    /// Items are being removed. Reported repeatedly.
    Removing,
    /// This item was removed.
    Removed(&'a Planned),
}

/// Plans the removal of everything that crashes have left in these directories, and executes the plan if `execute` is true.
///
/// Never touches directories of gathers that show life, of other users, or with unknown entries, nor files that are not ours by
/// name, kind and owner. If nothing is proved about a directory that is old enough, executing takes as long as
/// [`Rules::watch`].
///
/// `on` receives each step, and may stop the cleaning: then an item in progress is left as it is, and the rest is in
/// [`Cleaning::untouched`].
///
/// # Errors
///
/// [`Error::Storage`] when `/proc` does not show this process. Errors of a single directory are in [`Cleaning::failed`].
pub fn clean(
    directories: &[PathBuf],
    rules: Rules,
    execute: bool,
    on: &mut dyn FnMut(CleaningStep<'_>) -> ControlFlow<()>,
) -> Result<Cleaning, Error> {
    let mut cleaner = Cleaner {
        surveyor: Surveyor::new(rules)?,
        done: Cleaning::default(),
        on,
    };
    let surveys = cleaner.survey(directories);
    let mut gathers = Vec::new();
    let mut files = Vec::new();
    let mut rendezvous = Vec::new();
    for survey in surveys {
        let is_emptied = is_emptied(&survey);
        for gather in survey.gathers {
            if gather.is_removable() {
                let planned = gather.planned();
                cleaner.done.planned.push(planned);
                gathers.push(gather);
            } else {
                cleaner.keep(gather.kept());
            }
        }
        for leftover in survey.leftovers {
            if leftover.removable {
                let planned = leftover.planned();
                cleaner.done.planned.push(planned);
                files.push(leftover);
            } else {
                cleaner.keep(leftover.kept());
            }
        }
        for meeting in survey.meetings {
            cleaner.keep(Kept {
                path: meeting.path,
                what: "record".to_owned(),
                gist: "its writer runs".to_owned(),
                reason: meeting.reason,
                foreign: None,
            });
        }
        if let Some((path, own)) = survey.rendezvous {
            if is_emptied {
                cleaner.done.planned.push(emptied(&path));
            }
            rendezvous.push((path, own));
        }
    }
    if execute {
        cleaner.execute(&gathers, files, &rendezvous);
    }
    Ok(cleaner.done)
}

const EMPTY: &str = "it is empty";

/// Returns the plan for an empty rendezvous directory.
fn emptied(path: &Path) -> Planned {
    Planned {
        path: path.to_owned(),
        what: "rendezvous directory".to_owned(),
        bytes: 0,
        reason: EMPTY.to_owned(),
        gist: EMPTY.to_owned(),
    }
}

impl SurveyedGather {
    fn what(&self) -> String {
        format!("{} gather directory", self.judgement.state.word())
    }

    fn planned(&self) -> Planned {
        Planned {
            path: self.path.clone(),
            what: self.what(),
            bytes: self.bytes,
            reason: self.judgement.reason.clone(),
            gist: self.judgement.gist.clone(),
        }
    }

    fn kept(&self) -> Kept {
        let is_over = self.judgement.state != GatherState::Live;
        Kept {
            path: self.path.clone(),
            what: self.what(),
            reason: self.judgement.reason.clone(),
            gist: self.judgement.gist.clone(),
            foreign: (self.is_foreign() && is_over).then(|| self.user.clone()),
        }
    }
}

impl Leftover {
    fn planned(&self) -> Planned {
        Planned {
            path: self.path.clone(),
            what: self.kind.word().to_owned(),
            bytes: self.bytes,
            reason: self.reason.clone(),
            gist: self.gist.clone(),
        }
    }

    fn kept(&self) -> Kept {
        let is_ours = self.kind != LeftoverKind::Stranger;
        Kept {
            path: self.path.clone(),
            what: self.kind.word().to_owned(),
            reason: self.reason.clone(),
            gist: self.gist.clone(),
            foreign: (self.is_foreign && is_ours).then(|| self.user.clone()),
        }
    }
}

const STOPPED: &str = "the cleaning was stopped";

struct Cleaner<'a> {
    surveyor: Surveyor,
    done: Cleaning,
    on: &'a mut dyn FnMut(CleaningStep<'_>) -> ControlFlow<()>,
}

impl Cleaner<'_> {
    fn execute(
        &mut self,
        gathers: &[SurveyedGather],
        files: Vec<Leftover>,
        rendezvous: &[(PathBuf, OwnUid)],
    ) {
        let told = (self.on)(CleaningStep::Planned(&self.done));
        self.record(told);
        self.watch(gathers);
        self.remove_gathers(gathers);
        for file in files {
            if self.goes_on() {
                self.remove_leftover(&file);
            }
        }
        self.withdraw_kept();
        for (path, own) in rendezvous {
            if self.goes_on() {
                self.remove_rendezvous(path, *own);
            }
        }
        if self.done.is_stopped {
            self.record_untouched();
        }
    }

    fn record(&mut self, told: ControlFlow<()>) {
        self.done.is_stopped |= told.is_break();
    }

    /// Returns true unless the cleaning was stopped.
    fn goes_on(&mut self) -> bool {
        if !self.done.is_stopped {
            let told = (self.on)(CleaningStep::Removing);
            self.record(told);
        }
        !self.done.is_stopped
    }

    /// Records the planned items that were neither removed nor failed.
    fn record_untouched(&mut self) {
        let done = &mut self.done;
        let gone = done.removed.iter().map(|item| &item.path);
        let failed = done.failed.iter().map(|item| &item.path);
        let settled: HashSet<&PathBuf> = gone.chain(failed).collect();
        let planned = done.planned.iter();
        let untouched = planned.filter(|item| !settled.contains(&item.path));
        done.untouched = untouched.cloned().collect();
    }

    /// Surveys each directory once.
    fn survey(&mut self, directories: &[PathBuf]) -> Vec<Survey> {
        let mut seen = Vec::new();
        let mut ids = BTreeSet::new();
        let mut surveys = Vec::new();
        for directory in directories {
            let real = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.clone());
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            match self.surveyor.survey(directory) {
                Ok(mut survey) => {
                    // A directory may be named together with the rendezvous directory in it.
                    survey.gathers.retain(|gather| ids.insert(gather.id));
                    surveys.push(survey);
                }
                Err(error) => self.fail(directory, error.to_string()),
            }
        }
        surveys
    }

    /// Watches the heartbeats of all directories that need it, at the same time.
    fn watch(&mut self, gathers: &[SurveyedGather]) {
        let is_in_doubt =
            |gather: &SurveyedGather| gather.judgement.removable == Removable::OnceWatched;
        if !self.done.is_stopped && gathers.iter().any(is_in_doubt) {
            let watch = self.surveyor.rules.watch;
            tracing::info!("watching heartbeats for {}", duration_text(watch));
            let on = &mut self.on;
            let watched = retry_budget::sleep(watch, &mut |_| match on(CleaningStep::Watching) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::config(STOPPED)),
            });
            self.done.is_stopped = watched.is_err();
        }
    }

    fn remove_gathers(&mut self, gathers: &[SurveyedGather]) {
        if !self.goes_on() {
            return;
        }
        let surveyor = &self.surveyor;
        let (on, done) = (&mut self.on, &mut self.done);
        abandoned::remove_all(surveyor, gathers, "fsgather clean", &mut |step| {
            let told = match step {
                Removing::Goes => on(CleaningStep::Removing),
                Removing::Ended(gather, outcome) => record_ended(done, *on, gather, outcome),
            };
            done.is_stopped |= told.is_break();
            told
        });
    }

    fn remove_leftover(&mut self, leftover: &Leftover) {
        let result = match leftover.kind {
            LeftoverKind::Mmengine => remove_tree(
                &leftover.path,
                OwnUid(leftover.uid),
                leftover_kind::dist_test,
            ),
            LeftoverKind::Torchrun => remove_tree(
                &leftover.path,
                OwnUid(leftover.uid),
                leftover_kind::torchrun,
            ),
            _ => remove_file(&leftover.path, OwnUid(leftover.uid)),
        };
        match result {
            Ok(()) => self.removed(leftover.planned()),
            Err(reason) => self.fail(&leftover.path, reason),
        }
    }

    /// Removes the rendezvous directory if it is empty. Ranks that need it make it again.
    fn remove_rendezvous(&mut self, path: &Path, own: OwnUid) {
        if !is_owned_by(path, own) {
            return;
        }
        match remove::rmdir_in(CWD, path) {
            Ok(()) => {
                if !self.done.planned.iter().any(|item| item.path == path) {
                    self.done.planned.push(emptied(path));
                }
                self.removed(emptied(path));
            }
            // The directory is in use, or an item in it stays.
            Err(error) if remove::is_in_use(&error) => {
                self.done.planned.retain(|item| item.path != path);
            }
            Err(error) => self.fail(path, error.to_string()),
        }
    }

    fn removed(&mut self, removed: Planned) {
        let told = (self.on)(CleaningStep::Removed(&removed));
        self.done.removed.push(removed);
        self.record(told);
    }

    /// Drops items from the plan that are kept after all.
    fn withdraw_kept(&mut self) {
        let kept: HashSet<&PathBuf> = self.done.kept.iter().map(|item| &item.path).collect();
        self.done.planned.retain(|item| !kept.contains(&item.path));
    }

    fn keep(&mut self, kept: Kept) {
        self.done.kept.push(kept);
    }

    fn fail(&mut self, path: &Path, reason: String) {
        let path = path.to_owned();
        self.done.failed.push(Failed { path, reason });
    }
}

/// Records the outcome of the removal of one gather directory.
fn record_ended(
    done: &mut Cleaning,
    on: &mut dyn FnMut(CleaningStep<'_>) -> ControlFlow<()>,
    gather: &SurveyedGather,
    outcome: Outcome,
) -> ControlFlow<()> {
    let fail = |reason: String| {
        let path = gather.path.clone();
        Failed { path, reason }
    };
    match outcome {
        Outcome::Removed => {
            let removed = gather.planned();
            let told = on(CleaningStep::Removed(&removed));
            done.removed.push(removed);
            return told;
        }
        // Another process has removed it, or the removal will be continued.
        Outcome::Gone | Outcome::Unfinished => {}
        Outcome::Alive(reason) => done.kept.push(Kept {
            gist: reason.clone(),
            reason,
            ..gather.kept()
        }),
        Outcome::Failed(reason) => done.failed.push(fail(reason)),
    }
    ControlFlow::Continue(())
}

/// Returns true if the plan empties a rendezvous directory of this user.
fn is_emptied(survey: &Survey) -> bool {
    let Some((rendezvous, own)) = &survey.rendezvous else {
        return false;
    };
    let Ok(names) = listing::open(CWD, rendezvous).and_then(|open| listing::names_of(&open)) else {
        return false;
    };
    // The mark stays for an owner that is not proved to be gone.
    let gathers = survey.gathers.iter();
    let gathers = gathers
        .filter(|gather| gather.is_removable() && gather.leaves_nobody())
        .flat_map(|gather| {
            let beside = gather.beside.detours.iter().chain(&gather.beside.marks);
            beside
                .map(|name| rendezvous.join(name))
                .chain([gather.path.clone()])
        });
    let leftovers = survey.leftovers.iter();
    let leftovers = leftovers
        .filter(|leftover| leftover.removable)
        .map(|leftover| leftover.path.clone());
    let going: HashSet<PathBuf> = gathers.chain(leftovers).collect();
    let goes = |name: &str| going.contains(&rendezvous.join(name));
    is_owned_by(rendezvous, *own) && names.iter().all(|name| name.as_deref().is_ok_and(goes))
}

fn is_owned_by(path: &Path, own: OwnUid) -> bool {
    listing::examine_path(path).is_ok_and(|found| found.uid == own.0)
}

impl SurveyedGather {
    /// Returns true if its owner is proved to be gone or has finished with it, or if it never held anything. Then no process
    /// has to learn of the removal.
    pub(crate) fn leaves_nobody(&self) -> bool {
        self.is_nameless
            || matches!(
                self.judgement.state,
                GatherState::Stale | GatherState::Finished
            )
    }
}

fn remove_tree(path: &Path, own: OwnUid, table: Table) -> Result<(), String> {
    let removal = removal::remove_directory(path, own, table);
    if removal.is_complete() {
        Ok(())
    } else {
        Err(removal.reasons())
    }
}

#[cfg(test)]
#[path = "cleaning_tests.rs"]
pub(crate) mod tests;
