//! Keeps this rank's last calls where others find them: [`Recording`].
//!
//! They lie in a mapped file, on a file system of this host, so that they survive the process and cost no call of the
//! system: beside the rank's other files, or, where those are on a file server, in this host's private directory. From there a
//! thread copies them to the server: after half a minute, every 10 seconds while something changes, and when something has
//! failed. Rank 0's thread also answers who asks what all ranks are doing, and a thread of each host has the files look young.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fsgather_config::settings::{Trace, Transport};
use fsgather_core::{Error, Onlooker, Rank, StorageCause, lock};
use fsgather_store::{
    FileSystem, Rules,
    calls::{self, CallsHeader, HEADER_LEN, LONGEST_ANSWER, Question},
    free_bytes, layout, liveness, make_rendezvous, sweep_calls,
};
use fsgather_trace::{
    recorder::{self, Recorder},
    roll_call,
};

use uuid::Uuid;

use crate::{group_state::GroupState, payload::path::PayloadPath};

/// After what time calls are copied for the first time: what is over by then costs the server nothing.
const FIRST_COPY: Duration = Duration::from_secs(30);

/// What must be free where calls are kept, in bytes, so that they take no room from payloads.
const ROOM: u64 = 64 << 20;

/// How often they are copied then, if something has changed.
const COPY_EVERY: Duration = Duration::from_secs(10);

/// How often files are touched, so that nobody who cannot see their processes takes them for left behind while a program
/// computes for days.
const TOUCH_EVERY: Duration = Duration::from_hours(1);

/// How many worlds that have failed a process leaves the calls of: who tries again and again leaves those of the last ones.
const MOST_FAILED: usize = 3;

/// What this process has left of worlds that have failed.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// What a world has left that has failed.
struct Left {
    /// Of which process: a forked child inherits what it has not left.
    process: u32,
    communicator: Uuid,
    /// The file, and its copy.
    paths: [PathBuf; 2],
}

/// How often rank 0 looks for questions, on a file system of its host and elsewhere.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AFAR_EVERY: Duration = Duration::from_secs(5);

/// How long ranks have to say what they are doing, and then others of their hosts to say it of them.
const ANSWERS: Duration = Duration::from_millis(1500);

/// After what time nobody waits for an answer any more.
const LEFT_BEHIND: Duration = Duration::from_mins(1);

/// How long the end of a world waits for the last copy: the server may hang.
const LAST_COPY: Duration = Duration::from_secs(2);

/// One rank's last calls, for as long as it is in its world.
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    /// What names the calls of all ranks to `fsgather trace`.
    shown: PathBuf,
    keep: Trace,
    communicator: Uuid,
    /// What had failed in this process when this world was made: if all ends well, the program has got over it.
    got_over: Vec<Uuid>,
    is_told: AtomicBool,
    worker: Option<Arc<Orders>>,
}

/// Begins to write the calls of a world down, where that is wanted and can be done.
pub(crate) fn begin(inner: &GroupState, keep: Trace) {
    if keep == Trace::Off {
        return;
    }
    match Recording::begin(inner, keep) {
        Ok(recording) => {
            inner
                .world
                .call_log
                .record_with(Arc::clone(&recording.recorder));
            inner.world.recording.get_or_init(|| recording);
        }
        Err(error) => tracing::debug!("calls are not written down: {error}"),
    }
}

impl Recording {
    fn begin(inner: &GroupState, keep: Trace) -> Result<Self, Error> {
        let world = &inner.world;
        let shared = shared_place(inner);
        let is_local = |place: &PathBuf| FileSystem::of(place).is_ok_and(|of| of.is_mappable());
        let made = |place: PathBuf| make_rendezvous(place.parent()?).ok();
        let own = match shared.clone().filter(is_local).and_then(made) {
            Some(own) => own,
            None => calls::local_rendezvous()?,
        };
        if free_bytes(&own).is_some_and(|free| free < ROOM) {
            let cause = StorageCause::described("it has little room");
            return Err(Error::storage("keep calls in", &own, cause));
        }
        // Nothing that a file server sees, where nothing may go over a network in plain text.
        let afar = shared.filter(|shared| *shared != own && !world.context.encrypt);
        let (origin, now) = (Instant::now(), SystemTime::now());
        let began = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let process = world.processes.get(world.rank.index());
        let header = CallsHeader {
            process: process.cloned().unwrap_or_default(),
            communicator: world.communicator,
            rank: world.rank,
            world_size: inner.exchange.world_size().get(),
            began: u64::try_from(began.as_nanos()).unwrap_or(u64::MAX),
            job: world.context.job.clone(),
        };
        let (file, path) = calls::create(&own, &header, recorder::LEN)?;
        let recorder = Recorder::begin_in(&file, &path, origin).map_err(|error| {
            calls::remove(&path);
            Error::storage("map", &path, &error)
        })?;
        let recorder = Arc::new(recorder);
        let shown = match &afar {
            Some(afar) => afar.join(header.name()),
            None => path,
        };
        let is_first_of_host = is_first_of_host(inner);
        let worker = Worker {
            recorder: Arc::clone(&recorder),
            file,
            swept: is_first_of_host.then(|| own.clone()),
            copy: afar.clone().map(|place| Copying {
                place,
                header: header.clone(),
                made: None,
                copied: vec![0; recorder::LEN_OF_RECORDS],
                changes: 0,
            }),
            asked: if world.rank == Rank::ZERO {
                [Some(own), afar].into_iter().flatten().collect()
            } else {
                Vec::new()
            },
            known: BTreeMap::new(),
            onlooker: inner.exchange.onlooker(),
            header,
        };
        Ok(Self {
            recorder,
            shown,
            keep,
            communicator: world.communicator,
            got_over: own_left(&lock(&LEFT))
                .map(|left| left.communicator)
                .collect(),
            is_told: AtomicBool::new(false),
            worker: worker.start(),
        })
    }

    /// Notes that something has failed, so that the calls stay. Says so where `speaks` says that it is this rank who does.
    pub(crate) fn fail(&self, speaks: bool) {
        if self.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        self.recorder.fail();
        if let Some(orders) = &self.worker {
            orders.give(Order::CopyNow);
        }
        if speaks {
            tracing::warn!(
                "the last calls of each rank are kept: fsgather trace {}",
                self.shown.display()
            );
        }
    }

    /// Ends it with the world. `closed`: all ranks have closed it together.
    pub(crate) fn end(&self, closed: bool) {
        let stays = match self.keep {
            Trace::Always => true,
            // What has failed before, in a group or in an earlier world, the program has got over.
            Trace::Failed => self.recorder.has_failed() && !closed,
            Trace::Off => false,
        };
        // Nothing that fails from here on has anything to do with its calls.
        self.is_told.store(true, Ordering::Relaxed);
        if let Some(orders) = &self.worker {
            orders.give(Order::End { stays });
            orders.wait_for_end();
        }
        if !stays {
            calls::remove(self.recorder.path());
        }
        if self.keep == Trace::Failed {
            self.settle(stays, closed);
        }
    }

    /// Notes what this world leaves, and removes what earlier ones have left in vain.
    fn settle(&self, stays: bool, closed: bool) {
        let mut left = lock(&LEFT);
        if stays {
            left.push(Left {
                process: std::process::id(),
                communicator: self.communicator,
                paths: [self.recorder.path().to_owned(), self.shown.clone()],
            });
        }
        let mut more = own_left(&left).count().saturating_sub(MOST_FAILED);
        let removed: Vec<Left> = left
            .extract_if(.., |one| {
                let is_own = one.process == std::process::id();
                let is_more = is_own && more > 0;
                more -= usize::from(is_more);
                is_more || is_own && closed && self.got_over.contains(&one.communicator)
            })
            .collect();
        drop(left);
        for path in removed.iter().flat_map(|one| &one.paths) {
            calls::remove(path);
        }
    }
}

/// Those of this process.
fn own_left(left: &[Left]) -> impl Iterator<Item = &Left> {
    let process = std::process::id();
    left.iter().filter(move |one| one.process == process)
}

/// The rendezvous directory in which ranks hand over payloads, have met, or could do so.
fn shared_place(inner: &GroupState) -> Option<PathBuf> {
    if let Some(PayloadPath::Files(files)) = inner.world.settled() {
        return files.directory().path().parent().map(Path::to_owned);
    }
    let context = &inner.world.context;
    let known = context.known.first().map(|(place, _)| place.clone());
    // Who has payloads go through memory wants nothing in a directory that ranks do not meet in.
    let uses_files = inner.world.request().transport != Transport::Memory;
    let named = context.named.as_deref().filter(|_| uses_files);
    known.or_else(|| named.map(layout::rendezvous_path))
}

fn is_first_of_host(inner: &GroupState) -> bool {
    let world = &inner.world;
    let Some(own) = world.processes.get(world.rank.index()) else {
        return false;
    };
    let of_host = world.processes.iter().position(|one| one.sees_pids_of(own));
    of_host == Some(world.rank.index())
}

/// What the thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Work,
    CopyNow,
    End { stays: bool },
    HasEnded,
}

struct Orders {
    order: Mutex<Order>,
    changed: Condvar,
}

impl Orders {
    fn give(&self, order: Order) {
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

    fn wait_for_end(&self) {
        let waits = |order: &mut Order| *order != Order::HasEnded;
        let ended = self
            .changed
            .wait_timeout_while(lock(&self.order), LAST_COPY, waits);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes an order, once there is one; none after this time.
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

/// What the thread works with.
struct Worker {
    recorder: Arc<Recorder>,
    header: CallsHeader,
    file: File,
    /// Where old calls of others are removed, and those of this host kept young, if that is for this rank.
    swept: Option<PathBuf>,
    copy: Option<Copying>,
    /// Where questions are left, on rank 0.
    asked: Vec<PathBuf>,
    /// Questions that have come, since when, and whether they have been answered.
    known: BTreeMap<u32, (Instant, bool)>,
    onlooker: Option<Arc<dyn Onlooker>>,
}

struct Copying {
    place: PathBuf,
    header: CallsHeader,
    made: Option<(File, PathBuf)>,
    copied: Vec<u8>,
    changes: u64,
}

impl Worker {
    /// Starts the thread, if there is something for it to do.
    fn start(self) -> Option<Arc<Orders>> {
        if self.copy.is_none() && self.asked.is_empty() && self.swept.is_none() {
            return None;
        }
        let orders = Arc::new(Orders {
            order: Mutex::new(Order::Work),
            changed: Condvar::new(),
        });
        let taken = Arc::clone(&orders);
        let started = thread::Builder::new()
            .name("fsgather-calls".into())
            .spawn(move || {
                self.work(&taken);
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
        let mut copy_at = self.copy.is_some().then(|| begun + self.first_copy());
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

    /// After what time calls are copied for the first time. Ranks take turns, so that a server is not asked for all of their
    /// files at once.
    fn first_copy(&self) -> Duration {
        let (rank, ranks) = (self.header.rank.get(), self.header.world_size.max(1));
        FIRST_COPY + COPY_EVERY.mul_f64((f64::from(rank) / f64::from(ranks)).min(1.0))
    }

    /// Has the files look as if something had changed.
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
            // One of both is enough, if it is whole.
            match copy.run(&self.recorder, &self.file) {
                Ok(()) => calls::remove(self.recorder.path()),
                Err(error) => tracing::debug!("calls cannot be copied: {error}"),
            }
            self.copy_of_lost();
        } else if let Some((_, path)) = &copy.made {
            calls::remove(path);
        }
    }

    /// Copies what ranks of this host have left that cannot do so any more.
    fn copy_of_lost(&self) {
        let (Some(copy), Some(own)) = (&self.copy, self.recorder.path().parent()) else {
            return;
        };
        for (world, rank, path) in calls::list(own).unwrap_or_default() {
            if (world, rank) == (self.header.communicator, self.header.rank)
                || world != self.header.communicator
            {
                continue;
            }
            let Ok(left) = calls::read(&path) else {
                continue;
            };
            if !liveness(&left.header.process, &self.header.process).has_ended() {
                continue;
            }
            // Several ranks that try it write the same. It may have copied some itself.
            let copied = calls::create_or_open(&copy.place, &left.header, recorder::LEN);
            let copied = copied.and_then(|made| {
                made.write_all_at(&left.records, HEADER_LEN as u64)
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

    /// Tells who has asked what all ranks are doing.
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
            // Others of their hosts can tell whether they are stopped.
            let silent: Vec<Rank> = silent.into_iter().collect();
            onlooker.look_at(&silent);
            pause(orders, ANSWERS);
            onlooker.roll_call(&all)
        };
        if let Some(text) = roll_call::to_text(&told, LONGEST_ANSWER) {
            for question in &questions {
                question.answer(&text);
                if let Some((_, is_answered)) = self.known.get_mut(&question.nonce()) {
                    *is_answered = true;
                }
            }
        }
    }

    /// The questions that have no answer. Whoever asks waits for seconds; what lies there for longer was left behind, and
    /// goes.
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

/// Waits for answers, unless the world ends.
fn pause(orders: &Orders, pause: Duration) {
    let goes_on = |order: &mut Order| *order == Order::Work;
    let waited = orders
        .changed
        .wait_timeout_while(lock(&orders.order), pause, goes_on);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

impl Copying {
    /// Brings the copy up to date.
    fn run(&mut self, recorder: &Recorder, file: &File) -> Result<(), Error> {
        let changes = recorder.changes();
        if self.made.is_some() && changes == self.changes {
            return Ok(());
        }
        let told = |error: std::io::Error| Error::storage("copy to", &self.place, &error);
        // All that have begun by now are read after this.
        let count = recorder.count();
        let mut records = vec![0; self.copied.len()];
        file.read_exact_at(&mut records, HEADER_LEN as u64)
            .map_err(told)?;
        let (copy, _) = if let Some(made) = &self.made {
            made
        } else {
            // Where ranks have no other use for it nobody has made it.
            if let Some(parent) = self.place.parent() {
                make_rendezvous(parent)?;
            }
            let made = calls::create(&self.place, &self.header, recorder::LEN)?;
            self.made.insert(made)
        };
        let is_changed = |range: &std::ops::Range<usize>| {
            records.get(range.clone()) != self.copied.get(range.clone())
        };
        let ranges = (0..records.len()).step_by(PART);
        for range in ranges.map(|at| at..(at + PART).min(records.len())) {
            if is_changed(&range)
                && let Some(part) = records.get(range.clone())
            {
                let at = (HEADER_LEN + range.start) as u64;
                copy.write_all_at(part, at).map_err(told)?;
            }
        }
        calls::write_count(copy, count).map_err(told)?;
        calls::sync(copy).map_err(told)?;
        (self.copied, self.changes) = (records, changes);
        Ok(())
    }
}

/// What is compared, and written, at a time.
const PART: usize = 4096;
