//! Removal of directories that earlier attempts at a job have left, during a later attempt: [`Sweep`].

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use fsgather_core::{Error, GatherId, sys::clock};

use crate::{
    calls,
    directory::owner::job_tag,
    layout::{self, RendezvousEntry},
    lifecycle::{
        abandoned::{self, Outcome},
        entries_by_gather::EntriesByGather,
        judgement::{GatherState, Removable, Rules},
        leftover::Leftover,
        removal,
        survey::{SurveyedEntry, SurveyedGather},
        surveyor::Surveyor,
        view::View,
    },
    messages::detours::DetourName,
    os::{directory::OwnUid, listing, process},
};

/// Time that a sweep may use even if it delays other work.
const AT_LEAST: Duration = Duration::from_secs(1);

/// Number of entries that it examines even then, youngest first: the last attempt of a job is among them.
const AT_LEAST_ENTRIES: usize = 100;

/// Removes the gather directories of earlier attempts at a job, in the rendezvous directory of a later one; one entry at a
/// time, the youngest first.
///
/// Removes only directories whose owners are proved to be gone; for a job without an id, the owner's process itself must be
/// gone, because a survivor's mark is not enough if jobs cannot be distinguished. Empty items without an owner are removed too,
/// once nothing has changed in them for 10 minutes. Names show which gather directories may belong to the job: no others are
/// examined, however many there are.
pub(crate) struct Sweep {
    rendezvous: PathBuf,
    job: Option<String>,
    surveyor: Surveyor,
    entries: EntriesByGather,
    view: View,
    /// Names that are not examined yet, youngest last.
    to_do: Vec<String>,
    looked_at: usize,
    began: Instant,
    is_unfinished: bool,
}

impl Sweep {
    /// Begins a sweep beside the caller's `own` directory. Returns `None` if there is nothing to examine.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when `/proc` does not show this process.
    pub(crate) fn begin(
        rendezvous: &Path,
        own: Option<GatherId>,
        job: Option<&str>,
        rules: Rules,
    ) -> Result<Option<Self>, Error> {
        let me = process::this_process()?;
        let tag = job_tag(job, &me.host);
        // Usually there is only the caller's own directory: then there is no disk access.
        let is_wanted = |name: &str| may_belong_to(name, tag);
        let names = listing::names_if(rendezvous, &is_wanted).unwrap_or_default();
        let age = |name: &String| match RendezvousEntry::parse(name) {
            Some(RendezvousEntry::Gather(id)) => (Some(id) != own).then_some(Some(id)),
            Some(RendezvousEntry::Probe(_)) => Some(None),
            None => DetourName::parse(name).map(|_| None),
            Some(_) => None,
        };
        let mut to_do: Vec<(Option<GatherId>, &String)> = names
            .iter()
            .filter_map(|name| Some((age(name)?, name)))
            .collect();
        if to_do.is_empty() {
            return Ok(None);
        }
        to_do.sort_unstable();
        Ok(Some(Self {
            rendezvous: rendezvous.to_owned(),
            job: job.map(str::to_owned),
            surveyor: Surveyor::new(rules)?,
            entries: EntriesByGather::among(&names),
            view: View::of(rendezvous),
            to_do: to_do.into_iter().map(|(_, name)| name.clone()).collect(),
            looked_at: 0,
            began: clock::now(),
            is_unfinished: false,
        }))
    }

    /// Returns true if the sweep has done enough that a waiting caller need not wait any longer.
    pub(crate) fn has_had_its_share(&self) -> bool {
        self.looked_at >= AT_LEAST_ENTRIES || self.has_had_its_time()
    }

    fn has_had_its_time(&self) -> bool {
        clock::since(self.began) >= AT_LEAST
    }

    /// Returns true if some directories must be left for now and can be tried again.
    pub(crate) const fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Examines the next entry, and returns true if there was one. Once the minimum time is over, a removal in progress is left
    /// to other processes if `is_enough` returns true.
    pub(crate) fn go_on(&mut self, is_enough: &dyn Fn() -> bool) -> bool {
        let Some(name) = self.to_do.pop() else {
            return false;
        };
        self.looked_at += 1;
        let found = self
            .surveyor
            .look_at_entry(&self.rendezvous, &name, &self.entries, self.view);
        match found {
            Some(SurveyedEntry::Gather(gather)) => self.judge(&gather, is_enough),
            Some(SurveyedEntry::Leftover(leftover)) => remove_leftover(&leftover),
            Some(SurveyedEntry::Meeting(_)) | None => {}
        }
        true
    }

    fn judge(&mut self, gather: &SurveyedGather, is_enough: &dyn Fn() -> bool) {
        let has_job = self.job.is_some();
        let is_same_job = gather
            .owner
            .as_ref()
            .is_some_and(|owner| owner.job == self.job);
        let is_nameless = gather.is_nameless && gather.judgement.removable == Removable::Yes;
        let is_over = match gather.judgement.state {
            GatherState::Stale => has_job || gather.is_owner_seen_gone(&self.surveyor.me),
            GatherState::Finished => has_job,
            GatherState::Unknown => {
                // The owner's last sign of life may be too recent.
                self.is_unfinished |= is_same_job && has_job && gather.is_suspected;
                false
            }
            GatherState::Live => false,
        };
        if !(is_same_job && is_over || is_nameless) {
            return;
        }
        if gather.judgement.removable != Removable::Yes {
            self.is_unfinished = true;
            return;
        }
        let began = self.began;
        let is_enough = || clock::since(began) >= AT_LEAST && is_enough();
        let what = "a later attempt at the same job";
        match abandoned::remove(&self.surveyor, gather, what, false, &is_enough) {
            Outcome::Removed => {
                tracing::info!(
                    path = %gather.path.display(),
                    "removed what an earlier run had left: {}", gather.judgement.reason
                );
            }
            Outcome::Gone | Outcome::Unfinished => {}
            Outcome::Alive(reason) | Outcome::Failed(reason) => {
                tracing::debug!(path = %gather.path.display(), reason, "not swept");
            }
        }
    }
}

/// Removes the last-calls files of ranks that are long gone, of any job: they were of no use for so long. Those of a
/// job that failed recently stay, even if the job is started again.
pub fn sweep_calls(rendezvous: &Path, rules: Rules) {
    let Ok(found) = calls::list(rendezvous) else {
        return;
    };
    let Ok(surveyor) = Surveyor::new(rules) else {
        return;
    };
    // There are at most as many files of running jobs as files of ended jobs.
    let old = found.iter().map(|(.., path)| path).filter(|path| {
        listing::examine_path(path).is_ok_and(|found| {
            let age = clock::wall().duration_since(found.changed);
            age.is_ok_and(|age| found.len == 0 || age > rules.older_than)
        })
    });
    let mut view = None;
    for path in old {
        let view = *view.get_or_insert_with(|| View::of(rendezvous));
        let leftover = surveyor.calls(path, view);
        let is_old = |left: &Leftover| left.bytes == 0 || left.age > rules.older_than;
        if let Some(leftover) = leftover.filter(is_old) {
            remove_leftover(&leftover);
        }
    }
}

/// Returns true if a name may belong to an item of a job with this tag, or to an item without a job. Pure.
fn may_belong_to(name: &str, tag: u16) -> bool {
    let of_gather = ["gather-", "condemned-", "detour-"]
        .iter()
        .find_map(|kind| name.strip_prefix(kind));
    match of_gather {
        // Checks only the digits: there may be many thousands of names.
        Some(rest) => layout::salt_in(rest).is_some_and(|salt| salt.tag() == tag),
        None => name.starts_with("probe-"),
    }
}

fn remove_leftover(leftover: &Leftover) {
    if leftover.removable
        && let Err(reason) = removal::remove_file(&leftover.path, OwnUid(leftover.uid))
    {
        tracing::debug!(path = %leftover.path.display(), reason, "not swept");
    }
}

#[cfg(test)]
#[path = "sweeping_tests.rs"]
pub(crate) mod tests;
