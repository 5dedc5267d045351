//! The thread that maintains a rank's last calls, [`Worker`], and its tasks, [`Orders`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fsgather_core::{BackgroundThreads, Error, Onlooker, Rank, RankNames, lock};
use fsgather_store::{
    Rules,
    calls::{self, AllowedOwner, CallsHeader, HEADER_LEN, LONGEST_ANSWER, Question},
    liveness, sweep_calls,
};

use super::copying::Copying;
use crate::trace::{
    record_file::{LEN, used_len_of_records},
    recorder::Recorder,
    roll_call,
};

/// Time until calls are copied for the first time: shorter worlds cost the server nothing.
const FIRST_COPY: Duration = Duration::from_secs(30);

/// Interval at which they are copied then, if something has changed.
const COPY_EVERY: Duration = Duration::from_secs(10);

/// Interval at which files are touched, so that processes which cannot see the ranks do not take the files for
/// abandoned while a program computes for days.
const TOUCH_EVERY: Duration = Duration::from_secs(3600);

/// Intervals at which rank 0 looks for questions, on a file system of its host and elsewhere.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AFAR_EVERY: Duration = Duration::from_secs(5);

/// Time for ranks to report their activities, and then for other processes of their hosts to report about silent ranks.
const ANSWERS: Duration = Duration::from_millis(1500);

/// Time after which no process waits for an answer any more.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Time for which the end of a world waits for the last copy: the server may hang.
const LAST_COPY: Duration = Duration::from_secs(2);

/// The name of the thread.
const NAME: &str = "fsgather-calls";

/// A task of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Work,
    CopyNow,
    End { stays: bool },
    HasEnded,
}

pub(super) struct Orders {
    order: Mutex<Order>,
    changed: Condvar,
}

impl Orders {
    pub(super) fn give(&self, order: Order) {
        let mut current = lock(&self.order);
        if !matches!(*current, Order::End { .. } | Order::HasEnded) {
            *current = order;
        }
        self.changed.notify_all();
    }

    fn end(&self) {
        *lock(&self.order) = Order::HasEnded;
        self.changed.notify_all();
    }

    /// Waits for the end, but not for long. Returns true if the thread has ended.
    pub(super) fn wait_for_end(&self) -> bool {
        let waits = |order: &mut Order| *order != Order::HasEnded;
        let ended = self
            .changed
            .wait_timeout_while(lock(&self.order), LAST_COPY, waits);
        let (_order, limit) = ended.unwrap_or_else(PoisonError::into_inner);
        !limit.timed_out()
    }

    /// Takes an order, as soon as there is one; returns `None` after this time.
    fn take(&self, pause: Duration) -> Option<Order> {
        let waits = |order: &mut Order| *order == Order::Work;
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.order), pause, waits);
        let (mut order, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = *order;
        if taken == Order::CopyNow {
            *order = Order::Work;
        }
        (taken != Order::Work).then_some(taken)
    }
}

/// The state of the thread.
pub(super) struct Worker {
    pub(super) recorder: Arc<Recorder>,
    pub(super) path: PathBuf,
    pub(super) header: CallsHeader,
    pub(super) file: File,
    /// The directory in which this rank removes old calls of others and touches those of this host, if that is its
    /// task.
    pub(super) swept: Option<PathBuf>,
    pub(super) copy: Option<Copying>,
    /// The directories in which questions are left, on rank 0.
    pub(super) asked: Vec<PathBuf>,
    /// Questions that have arrived, with the time of arrival; true if they have been answered.
    pub(super) known: BTreeMap<u32, (Instant, bool)>,
    pub(super) onlooker: Option<Arc<dyn Onlooker>>,
    /// The names of ranks in the job.
    pub(super) names: RankNames,
}

impl Worker {
    /// Starts the thread, if there is a task for it.
    pub(super) fn start(self, threads: &BackgroundThreads) -> Option<Arc<Orders>> {
        if self.copy.is_none() && self.asked.is_empty() && self.swept.is_none() {
            return None;
        }
        let orders = Arc::new(Orders {
            order: Mutex::new(Order::Work),
            changed: Condvar::new(),
        });
        let (taken, its) = (Arc::clone(&orders), threads.clone());
        let started = threads.start(NAME, move || {
            its.guard(NAME, || self.work(&taken));
            taken.end();
        });
        match started {
            Ok(_) => Some(orders),
            Err(error) => {
                tracing::debug!("no thread looks after calls: {error}");
                None
            }
        }
    }

    fn work(mut self, orders: &Orders) {
        if let Some(place) = &self.swept {
            sweep_calls(place, Rules::default());
        }
        let begun = Instant::now();
        let mut copy_at = self
            .copy
            .is_some()
            .then(|| begun + first_copy(&self.header));
        let mut touch_at = begun + TOUCH_EVERY;
        let look_every = if self.asked.is_empty() {
            TOUCH_EVERY
        } else if self.copy.is_some() {
            LOOK_AFAR_EVERY
        } else {
            LOOK_EVERY
        };
        loop {
            let now = Instant::now();
            let next = copy_at.map_or(touch_at, |copy_at| copy_at.min(touch_at));
            let pause = next.saturating_duration_since(now).min(look_every);
            match orders.take(pause.max(LOOK_EVERY)) {
                Some(Order::End { stays }) => return self.end(stays),
                Some(Order::HasEnded) => return,
                Some(Order::CopyNow) => self.copy(),
                Some(Order::Work) | None => {
                    self.answer(orders);
                    let now = Instant::now();
                    if copy_at.is_some_and(|copy_at| now >= copy_at) {
                        self.copy();
                        copy_at = Some(Instant::now() + COPY_EVERY);
                    }
                    if now >= touch_at {
                        self.touch();
                        touch_at = Instant::now() + TOUCH_EVERY;
                    }
                }
            }
        }
    }

    /// Makes the files look as if they had changed.
    fn touch(&self) {
        if let Some(place) = &self.swept {
            calls::touch_all(place, self.header.communicator, &self.header.process);
        }
        let copy = self.copy.as_ref().and_then(|copy| copy.made.as_ref());
        for file in [Some(&self.file), copy.map(|(copy, _)| copy)] {
            if let Some(Err(error)) = file.map(calls::touch) {
                tracing::debug!("calls cannot be touched: {error}");
            }
        }
    }

    fn copy(&mut self) {
        if let Some(copy) = &mut self.copy {
            let is_first = copy.made.is_none();
            if let Err(error) = copy.run(&self.recorder, &self.file) {
                tracing::debug!("calls cannot be copied: {error}");
            } else if is_first && self.header.rank == Rank::ZERO {
                sweep_calls(&copy.place, Rules::default());
            }
        }
    }

    fn end(mut self, stays: bool) {
        let Some(copy) = &mut self.copy else {
            return;
        };
        if stays {
            // One of both files is enough, if it is whole.
            match copy.run(&self.recorder, &self.file) {
                Ok(()) => calls::remove(&self.path),
                Err(error) => tracing::debug!("calls cannot be copied: {error}"),
            }
            self.copy_of_lost();
        } else if let Some((_, path)) = &copy.made {
            calls::remove(path);
        }
    }

    /// Copies the calls of ranks of this host that cannot do so any more.
    fn copy_of_lost(&self) {
        let (Some(copy), Some(own)) = (&self.copy, self.path.parent()) else {
            return;
        };
        for (world, rank, path) in calls::list(own).unwrap_or_default() {
            if (world, rank) == (self.header.communicator, self.header.rank)
                || world != self.header.communicator
            {
                continue;
            }
            let Ok(left) = calls::read(&path, AllowedOwner::ThisUser) else {
                continue;
            };
            if !liveness(&left.header.process, &self.header.process).has_ended() {
                continue;
            }
            // Several ranks that try it write the same. The lost rank may have copied some calls itself.
            let copied = calls::create_or_open(&copy.place, &left.header, LEN);
            let copied = copied.and_then(|made| {
                let used = left.records.get(..used_len_of_records(left.count));
                // Files that are written without mapping do not have the count.
                let used = used.filter(|_| left.count > 0);
                made.write_all_at(used.unwrap_or(&left.records), HEADER_LEN as u64)
                    .and_then(|()| calls::write_count(&made, left.count))
                    .and_then(|()| calls::sync(&made))
                    .map_err(|error| Error::storage("copy to", &copy.place, &error))
            });
            match copied {
                Ok(()) => calls::remove(&path),
                Err(error) => tracing::debug!("calls of rank {rank} cannot be copied: {error}"),
            }
        }
    }

    /// Answers the processes that have asked for the activities of all ranks.
    fn answer(&mut self, orders: &Orders) {
        let questions = self.new_questions();
        let Some(onlooker) = self.onlooker.as_ref().filter(|_| !questions.is_empty()) else {
            return;
        };
        let all: Vec<Rank> = (0..self.header.world_size).map(Rank::new).collect();
        onlooker.look_at(&all);
        pause(orders, ANSWERS);
        let told = onlooker.roll_call(&all);
        let silent = told.groups.iter().filter(|(_, its)| !its.is_own_word);
        let silent: BTreeSet<Rank> = silent.flat_map(|(ranks, _)| ranks.clone()).collect();
        let told = if silent.is_empty() {
            told
        } else {
            // Other processes of their hosts can see if they are stopped.
            let silent: Vec<Rank> = silent.into_iter().collect();
            onlooker.look_at(&silent);
            pause(orders, ANSWERS);
            onlooker.roll_call(&all)
        };
        let told = self.names.of_roll_call(told);
        if let Some(text) = roll_call::to_text(&told, LONGEST_ANSWER) {
            for question in &questions {
                question.answer(&text);
                if let Some((_, is_answered)) = self.known.get_mut(&question.nonce()) {
                    *is_answered = true;
                }
            }
        }
    }

    /// Returns the questions without an answer. A process that asks waits for seconds; questions that are older were
    /// abandoned, and are removed.
    fn new_questions(&mut self) -> Vec<Question> {
        let now = Instant::now();
        let (world, known) = (self.header.communicator, &mut self.known);
        let all = self
            .asked
            .iter()
            .flat_map(|place| Question::to(place, world));
        let (mut there, mut open) = (BTreeSet::new(), Vec::new());
        for question in all {
            there.insert(question.nonce());
            let (since, is_answered) = *known.entry(question.nonce()).or_insert((now, false));
            if now.saturating_duration_since(since) > LEFT_BEHIND {
                question.withdraw();
            } else if !is_answered {
                open.push(question);
            }
        }
        known.retain(|nonce, _| there.contains(nonce));
        open
    }
}

/// Returns the time until calls are copied for the first time. Ranks take turns, so that a server does not get all of
/// their files at once.
fn first_copy(header: &CallsHeader) -> Duration {
    let (rank, ranks) = (header.rank.get(), header.world_size.max(1));
    FIRST_COPY + COPY_EVERY.mul_f64((f64::from(rank) / f64::from(ranks)).min(1.0))
}

/// Waits for answers, unless the world ends.
fn pause(orders: &Orders, pause: Duration) {
    let goes_on = |order: &mut Order| *order == Order::Work;
    let waited = orders
        .changed
        .wait_timeout_while(lock(&orders.order), pause, goes_on);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command, time::SystemTime};

    use fsgather_core::ProcessId;
    use fsgather_store::{make_rendezvous, this_process};
    use fsgather_testkit::{
        pace::{patience, rest},
        process,
    };

    use super::*;
    use crate::trace::record_file::LEN_OF_RECORDS;

    /// A process that has ended.
    fn ended() -> ProcessId {
        let mut process = process::spawn(&mut Command::new("true")).unwrap();
        process.wait().unwrap();
        ProcessId {
            pid: process.id(),
            ..this_process().unwrap()
        }
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < patience(), "it is not so");
            rest();
        }
    }

    fn header(rank: u32, world_size: u32) -> CallsHeader {
        CallsHeader {
            process: ProcessId::default(),
            communicator: uuid::Uuid::nil(),
            rank: Rank::new(rank),
            called: Rank::new(rank),
            world_size,
            began: 0,
            job: None,
            directory: None,
        }
    }

    /// A rank that keeps its calls in this directory, and has nothing else to do.
    fn worker(own: &Path, rank: u32) -> Worker {
        let header = header(rank, 4);
        let (file, path) = calls::create(own, &header, LEN).unwrap();
        let recorder = Recorder::new(header.rank, &RankNames::default(), &[]);
        recorder.write_to(&file, &path).unwrap();
        Worker {
            recorder: Arc::new(recorder),
            path,
            header,
            file,
            swept: None,
            copy: None,
            asked: Vec::new(),
            known: BTreeMap::new(),
            onlooker: None,
            names: RankNames::default(),
        }
    }

    /// Returns calls that no process has read for two days, of a process that has ended.
    fn old_calls(place: &Path) -> PathBuf {
        let header = CallsHeader {
            process: ended(),
            communicator: uuid::Uuid::from_u128(7),
            ..header(3, 4)
        };
        let (file, path) = calls::create(place, &header, LEN).unwrap();
        let then = SystemTime::now() - Duration::from_secs(172_800);
        file.set_modified(then).unwrap();
        path
    }

    #[test]
    fn a_thread_removes_old_calls_and_starts_only_if_needed() {
        let place = tempfile::tempdir().unwrap();
        let old = old_calls(place.path());
        assert!(
            worker(place.path(), 1)
                .start(&BackgroundThreads::default())
                .is_none()
        );
        let worker = Worker {
            swept: Some(place.path().into()),
            ..worker(place.path(), 2)
        };
        let orders = worker.start(&BackgroundThreads::default()).unwrap();
        wait_until(|| !old.exists());
        orders.give(Order::End { stays: false });
        orders.wait_for_end();
    }

    #[test]
    fn rank_0_removes_old_calls_where_its_first_copy_goes() {
        for (rank, removes) in [(0, true), (1, false)] {
            let (own, afar) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let place = make_rendezvous(afar.path()).unwrap();
            let old = old_calls(&place);
            let mut worker = worker(own.path(), rank);
            worker.copy = Some(Copying {
                place,
                header: worker.header.clone(),
                made: None,
                copied: vec![0; LEN_OF_RECORDS],
                changes: 0,
            });
            worker.copy();
            assert_eq!(old.exists(), !removes, "rank {rank}");
        }
    }

    #[test]
    fn an_order_is_carried_out_once_and_the_last_one_is_to_end() {
        let orders = Orders {
            order: Mutex::new(Order::Work),
            changed: Condvar::new(),
        };
        let take = || orders.take(Duration::ZERO);
        assert_eq!(take(), None);
        orders.give(Order::CopyNow);
        assert_eq!((take(), take()), (Some(Order::CopyNow), None));
        orders.give(Order::End { stays: true });
        orders.give(Order::CopyNow);
        assert_eq!(take(), Some(Order::End { stays: true }));
        orders.end();
        assert!(orders.wait_for_end());
    }

    #[test]
    fn ranks_take_turns_in_copying_for_the_first_time() {
        for (rank, ranks, tenths) in [
            (0, 4, 300),
            (1, 4, 325),
            (3, 4, 375),
            (5, 4, 400),
            (0, 0, 300),
        ] {
            let after = Duration::from_millis(100 * tenths);
            assert_eq!(first_copy(&header(rank, ranks)), after, "{rank} of {ranks}");
        }
    }

    #[test]
    fn a_copy_is_made_once_and_the_end_is_for_good() {
        let orders = Orders {
            order: Mutex::new(Order::Work),
            changed: Condvar::new(),
        };
        let (now, soon, since) = (Duration::ZERO, Duration::from_millis(20), Instant::now());
        assert_eq!(orders.take(soon), None);
        assert!(since.elapsed() >= soon, "an order is waited for");
        orders.give(Order::CopyNow);
        assert_eq!(orders.take(now), Some(Order::CopyNow));
        assert_eq!(orders.take(now), None);
        let end = Order::End { stays: true };
        orders.give(end);
        orders.give(Order::CopyNow);
        assert_eq!((orders.take(now), orders.take(now)), (Some(end), Some(end)));
    }
}
