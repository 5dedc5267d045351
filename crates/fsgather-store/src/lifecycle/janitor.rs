//! File calls that may hang, on a separate thread: [`Janitor`], and its [`Care`] of one directory.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use fsgather_core::{
    BackgroundThread, BackgroundThreads, Deadline, Error, StorageCause, lock,
    sys::{
        channel::{Receiver, Sender, channel},
        clock,
    },
};

use crate::{
    directory::gather_dir::GatherDir,
    layout::{self, GatherEntry, PayloadName},
    lifecycle::{
        entries_by_gather::EntriesByGather, judgement::Rules, removal_mark, sweeping::Sweep,
    },
    os::{file, listing, remove},
    payload::writer::PayloadId,
};

/// Time for which [`Care::finish`] waits for a thread that may hang in a file call.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Identifies the directory of an order.
type Number = u64;

enum Order {
    Begin(Number, Box<Work>),
    /// Removes a payload. No rank has read it since this time.
    Reclaim(Number, PayloadName, Instant),
    ReclaimOf(Number, PayloadId),
    Sweep(Number, Option<String>),
    /// Ends the care of a directory; the waiting thread receives a message once all its orders are done.
    End(Number, Sender<()>),
    Stop,
}

/// A thread that renews the heartbeats of gather directories and removes payloads that no rank needs any more, so that such
/// file calls never block a caller. One thread serves any number of directories.
///
/// It ends with the last of its handles and [cares](Care). In a forked child, all of them do nothing.
#[derive(Clone)]
pub struct Janitor {
    thread: Arc<Thread>,
}

/// The thread's side that handles share.
struct Thread {
    /// Locked to send an order.
    orders: Mutex<Sender<Order>>,
    next: AtomicU64,
    /// True if the last wait for it timed out.
    hangs: AtomicBool,
    handle: Option<BackgroundThread>,
    process: u32,
}

impl Janitor {
    /// Starts the thread; errors name the directory that it is needed for. A panic of the thread ends the world of `threads`.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when no thread can be started.
    pub fn start(first: &GatherDir, threads: &BackgroundThreads) -> Result<Self, Error> {
        let (orders, to_do) = channel();
        let handle = threads
            .start("fsgather-files", move || attend(&to_do))
            .map_err(|error| Error::storage("start a thread for", first.path(), &error))?;
        Ok(Self {
            thread: Arc::new(Thread {
                orders: Mutex::new(orders),
                next: AtomicU64::new(0),
                hangs: AtomicBool::new(false),
                handle: Some(handle),
                process: std::process::id(),
            }),
        })
    }

    /// Begins to take care of a directory. Its owner gives the period of its heartbeat; other ranks give `None`.
    #[must_use = "it ends when it is dropped"]
    pub fn care_for(&self, directory: GatherDir, beat: Option<Duration>) -> Care {
        let number = self.thread.next.fetch_add(1, Ordering::Relaxed);
        let condemned = Arc::new(Mutex::new(None));
        let is_ending = Arc::new(AtomicBool::new(false));
        let work = Work {
            directory,
            beat: beat.map(|period| (period, clock::now())),
            condemned: Arc::clone(&condemned),
            is_ending: Arc::clone(&is_ending),
            counter: 0,
            has_warned: false,
            sweeping: None,
            sweep_again: None,
        };
        self.thread.order(Order::Begin(number, Box::new(work)));
        Care {
            thread: Some(Arc::clone(&self.thread)),
            number,
            condemned,
            is_ending,
        }
    }
}

impl Thread {
    /// Sends an order. A thread that has panicked ignores it.
    fn order(&self, order: Order) {
        let _ = lock(&self.orders).send(order);
    }

    fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    /// Waits for the thread to finish its orders, with a time limit that all directories share. Returns true if it has finished
    /// them.
    fn await_end(&self, of: &Receiver<()>) -> bool {
        let done = of.recv_timeout(self.last_wait());
        let is_late = done == Err(RecvTimeoutError::Timeout);
        if !self.hangs.swap(is_late, Ordering::Relaxed) && is_late {
            fsgather_core::warn!("a file call hangs; leaving its thread behind");
        }
        done.is_ok()
    }

    fn last_wait(&self) -> Duration {
        if self.hangs.load(Ordering::Relaxed) {
            Duration::ZERO
        } else {
            LAST_WAIT
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // A forked child has the handle but not the thread.
        if self.is_foreign() {
            return;
        }
        self.order(Order::Stop);
        // A thread that hangs was already waited for.
        if let Some(handle) = self.handle.take()
            && !self.hangs.load(Ordering::Relaxed)
        {
            handle.wait(LAST_WAIT);
        }
    }
}

impl fmt::Debug for Janitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Janitor").finish_non_exhaustive()
    }
}

/// The care of a [`Janitor`] for one directory, until [`finish`](Self::finish) or drop.
pub struct Care {
    /// `None` once the care has ended.
    thread: Option<Arc<Thread>>,
    number: Number,
    condemned: Arc<Mutex<Option<Error>>>,
    /// Set to stop optional work.
    is_ending: Arc<AtomicBool>,
}

impl Care {
    fn order(&self, order: impl FnOnce(Number) -> Order) {
        if let Some(thread) = &self.thread {
            thread.order(order(self.number));
        }
    }

    /// Orders the removal of a payload. It happens soon, and failures are logged.
    pub fn reclaim(&self, name: PayloadName) {
        self.order(|number| Order::Reclaim(number, name, clock::now()));
    }

    /// Orders the removal of the payload of a rank that has gone. It happens soon, and failures are logged.
    pub fn reclaim_of(&self, id: PayloadId) {
        self.order(|number| Order::ReclaimOf(number, id));
    }

    /// Orders the removal of gather directories that earlier attempts at a job have left beside this one. It happens soon;
    /// directories that ranks may still read from are removed later.
    ///
    /// This removes directories of this user whose owners are proved to be gone, of any attempt and world size. Failures
    /// are logged.
    pub fn sweep(&self, job: Option<String>) {
        self.order(|number| Order::Sweep(number, job));
    }

    /// Returns an error if the directory must not be used any more.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] once a process has condemned the directory because it looked abandoned, or once the directory has
    /// vanished.
    pub fn check(&self) -> Result<(), Error> {
        lock(&self.condemned).clone().map_or(Ok(()), Err)
    }

    /// Ends the care after all orders so far, except for a long sweep: the rest of that is left to a later one. Waits at most 2
    /// seconds for a thread that hangs in a file call. Returns true if all orders were completed.
    #[must_use = "it tells whether something was left behind"]
    pub fn finish(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let Some(thread) = self.thread.take() else {
            return true;
        };
        if thread.is_foreign() {
            return false;
        }
        self.is_ending.store(true, Ordering::Relaxed);
        let (ending, end) = channel();
        thread.order(Order::End(self.number, ending));
        thread.await_end(&end)
    }
}

impl Drop for Care {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Care {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Care")
            .field("condemned", &self.condemned)
            .finish_non_exhaustive()
    }
}

/// The loop of the thread, until it is stopped.
fn attend(to_do: &Receiver<Order>) {
    let mut all: BTreeMap<Number, Box<Work>> = BTreeMap::new();
    loop {
        let now = clock::now();
        for work in all.values_mut() {
            work.beat_if_due(now);
        }
        let next = all.values().filter_map(|work| work.next_beat()).min();
        let order = match next {
            // All other work is done between two entries of a sweep.
            _ if all.values().any(|work| work.sweeping.is_some()) => match to_do.try_recv() {
                Ok(order) => Ok(order),
                Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {
                    for work in all.values_mut() {
                        work.go_on_sweeping();
                    }
                    Err(RecvTimeoutError::Timeout)
                }
            },
            None => to_do.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(next) => to_do.recv_timeout(next.saturating_duration_since(clock::now())),
        };
        match order {
            Ok(Order::Begin(number, work)) => {
                all.insert(number, work);
            }
            Ok(Order::Reclaim(number, name, since)) => {
                if let Some(work) = all.get(&number) {
                    work.directory.wait_until_closed(clock::since(since));
                    if let Err(error) = work.directory.reclaim(name) {
                        fsgather_core::warn!("{error}");
                    }
                }
            }
            Ok(Order::ReclaimOf(number, id)) => {
                if let Some(work) = all.get(&number)
                    && let Err(error) = work.directory.reclaim_of(id)
                {
                    fsgather_core::warn!("{error}");
                }
            }
            Ok(Order::Sweep(number, job)) => {
                if let Some(work) = all.get_mut(&number) {
                    work.sweep(job);
                }
            }
            Ok(Order::End(number, ending)) => {
                if let Some(mut work) = all.remove(&number) {
                    work.end_sweeping();
                }
                let _ = ending.send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The state of one directory.
struct Work {
    directory: GatherDir,
    /// Interval at which its heartbeat is renewed, and time of the next renewal.
    beat: Option<(Duration, Instant)>,
    condemned: Arc<Mutex<Option<Error>>>,
    is_ending: Arc<AtomicBool>,
    counter: u64,
    has_warned: bool,
    /// A sweep in progress, with its job.
    sweeping: Option<(Sweep, Option<String>)>,
    /// Time of the next sweep, with its job.
    sweep_again: Option<(Instant, Option<String>)>,
}

impl Work {
    fn next_beat(&self) -> Option<Instant> {
        self.beat.map(|(_, next)| next)
    }

    fn beat_if_due(&mut self, now: Instant) {
        let Some((period, next)) = self.beat else {
            return;
        };
        if now < next {
            return;
        }
        // This is checked first, so that no heartbeat is left in the wrong place.
        let replaced = self.directory.check_place();
        let is_first = self.counter == 0;
        let is_there = replaced.is_err() || self.renew();
        // A directory that was just made is never taken for abandoned.
        if !is_first {
            self.look_for_mark();
        }
        if let Err(error) = replaced {
            lock(&self.condemned).get_or_insert(error);
        }
        if !is_there {
            self.give_up("it has vanished: somebody has removed it".into());
        }
        self.sweep_if_due();
        self.beat = Some((period, Deadline::after(clock::now(), period).at()));
    }

    fn sweep_if_due(&mut self) {
        if let Some((at, job)) = self.sweep_again.take() {
            if clock::now() >= at {
                self.sweep(job);
            } else {
                self.sweep_again = Some((at, job));
            }
        }
    }

    /// Begins a sweep, or begins a sweep in progress anew.
    fn sweep(&mut self, job: Option<String>) {
        let Some(rendezvous) = self.directory.path().parent() else {
            return;
        };
        let own = Some(self.directory.facts().id);
        match Sweep::begin(rendezvous, own, job.as_deref(), Rules::default()) {
            Ok(sweep) => self.sweeping = sweep.map(|sweep| (sweep, job)),
            Err(error) => tracing::debug!("cannot sweep: {error}"),
        }
    }

    /// Examines one more entry, if a sweep is in progress.
    fn go_on_sweeping(&mut self) {
        let Some((mut sweep, job)) = self.sweeping.take() else {
            return;
        };
        if sweep.go_on(&|| self.is_ending.load(Ordering::Relaxed)) {
            self.sweeping = Some((sweep, job));
        } else if sweep.is_unfinished() {
            let at = Deadline::after(clock::now(), Rules::default().readers).at();
            self.sweep_again = Some((at, job));
        }
    }

    /// Continues a sweep in progress until it has done the minimum.
    fn end_sweeping(&mut self) {
        while let Some((sweep, _)) = &self.sweeping
            && !sweep.has_had_its_share()
        {
            self.go_on_sweeping();
        }
    }

    /// Writes the next heartbeat, then removes the previous one. Returns false if the directory is gone.
    fn renew(&mut self) -> bool {
        let path = |counter| {
            self.directory
                .path()
                .join(GatherEntry::Beat(counter).to_string())
        };
        let write = || file::write_new(&path(self.counter), self.directory.file_mode(), b"", false);
        let unlink_last = || match self.counter.checked_sub(1) {
            None => Ok(()),
            Some(before) => remove::unlink(&path(before)),
        };
        let result = match write() {
            // The previous heartbeat makes room for the next.
            Err(error) if file::is_lack_of_room(&error) => unlink_last().and_then(|()| write()),
            done => done.and_then(|()| unlink_last()),
        };
        self.counter += 1;
        let Err(error) = result else {
            return true;
        };
        if !self.has_warned {
            self.has_warned = true;
            let directory = self.directory.path().display();
            fsgather_core::warn!("cannot renew the heartbeat in {directory}: {error}");
        }
        // Creating a file always reaches the server, despite client caches.
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        !(is_gone(&error)
            && listing::examine_path(self.directory.path()).is_err_and(|error| is_gone(&error)))
    }

    fn look_for_mark(&self) {
        let Some(rendezvous) = self.directory.path().parent() else {
            return;
        };
        let (id, own) = (self.directory.facts().id, self.directory.own());
        let stem = layout::condemned_stem(id);
        let marks = listing::names_if(rendezvous, &|name| name.starts_with(&stem));
        let marks = EntriesByGather::among(&marks.unwrap_or_default())
            .beside(id)
            .marks;
        let Some((mark, by)) = removal_mark::condemned_by(rendezvous, &marks, id, own) else {
            return;
        };
        self.give_up(format!(
            "condemned by {by}: it was taken for abandoned ({mark})"
        ));
    }

    fn give_up(&self, why: String) {
        let cause = StorageCause::described(why);
        let error = Error::storage("use", self.directory.path(), cause);
        lock(&self.condemned).get_or_insert(error);
    }
}

#[cfg(test)]
#[path = "janitor_tests.rs"]
mod tests;
