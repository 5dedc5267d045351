//! Removing what crashes have left: [`clean`].

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

/// Something that is to be removed, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Where it is.
    pub path: PathBuf,
    /// What it is, in a word or three.
    pub what: String,
    /// How many bytes that frees.
    pub bytes: u64,
    /// Why,
    pub reason: String,
    /// and that without what differs from one to the next, so that those that are alike can be counted.
    pub gist: String,
}

/// Something that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// What it is, in a word or three.
    pub what: String,
    /// Why,
    pub reason: String,
    /// and that without what differs from one to the next.
    pub gist: String,
    /// The other user whom it belongs to and who could remove it, perhaps: a name, or `uid 1001`.
    pub foreign: Option<String>,
}

/// Something that could not be removed or not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Where it is.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// What a cleaning was about to do, and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleaning {
    /// What was to be removed.
    pub planned: Vec<Planned>,
    /// What was removed; nothing unless that was asked for.
    pub removed: Vec<Planned>,
    /// What could not be removed or not be looked at, and why.
    pub failed: Vec<Failed>,
    /// What is to be left, and why.
    pub kept: Vec<Kept>,
    /// Whether it was stopped before it had come to everything,
    pub is_stopped: bool,
    /// and what it had not come to by then, or was in the middle of.
    pub untouched: Vec<Planned>,
}

/// How far a cleaning has come.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CleaningStep<'a> {
    /// What is to be removed is known; it is told only where it is then removed.
    Planned(&'a Cleaning),
    /// Beats are watched, and this is told all the time; nothing has been removed yet.
    Watching,
    /// Something is being removed, and this is told all the time.
    Removing,
    /// This is gone.
    Removed(&'a Planned),
}

/// Plans to remove what crashes have left in these directories, and does so if `execute` says it.
///
/// Never touched are directories of gathers that show life, of other users, or with anything unknown in
/// them, and files that are not ours by name, kind and owner. Where nothing is proved of a directory that
/// is old enough, executing takes as long as [`Rules::watch`] says.
///
/// `on` is told what happens, and may stop it: then what was begun is left as it is, and the rest is in
/// [`Cleaning::untouched`].
///
/// # Errors
///
/// [`Error::Storage`] when `/proc` does not show this process. What goes wrong with a directory is in
/// [`Cleaning::failed`].
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

/// That a rendezvous directory is removed.
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

    /// Whether nobody has stopped it.
    fn goes_on(&mut self) -> bool {
        if !self.done.is_stopped {
            let told = (self.on)(CleaningStep::Removing);
            self.record(told);
        }
        !self.done.is_stopped
    }

    /// Notes what was planned, and has neither gone nor failed.
    fn record_untouched(&mut self) {
        let done = &mut self.done;
        let gone = done.removed.iter().map(|item| &item.path);
        let failed = done.failed.iter().map(|item| &item.path);
        let settled: HashSet<&PathBuf> = gone.chain(failed).collect();
        let planned = done.planned.iter();
        let untouched = planned.filter(|item| !settled.contains(&item.path));
        done.untouched = untouched.cloned().collect();
    }

    /// Looks at all directories, at each once.
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
                    // A directory and the rendezvous directory in it may both have been named.
                    survey.gathers.retain(|gather| ids.insert(gather.id));
                    surveys.push(survey);
                }
                Err(error) => self.fail(directory, error.to_string()),
            }
        }
        surveys
    }

    /// Watches the beats of those that need it, all at the same time.
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

    /// Removes the rendezvous directory if nothing is left in it; whoever needs it makes it again.
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
            // Somebody uses it, or something was to be left.
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

    /// What is kept after all was never to be removed.
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

/// Notes how removing one gather directory has ended.
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
        // By somebody else, whose doing it is; or to be gone on with.
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

/// Whether nothing will be left in a rendezvous directory of this user's.
fn is_emptied(survey: &Survey) -> bool {
    let Some((rendezvous, own)) = &survey.rendezvous else {
        return false;
    };
    let Ok(names) = listing::open(CWD, rendezvous).and_then(|open| listing::names_of(&open)) else {
        return false;
    };
    // The mark of a directory of which nothing is proved stays for its owner.
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
    /// Whether its owner is proved to be gone, or has said that it is done; or there never was anything
    /// in it. Then nobody has to be told that it was removed.
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
