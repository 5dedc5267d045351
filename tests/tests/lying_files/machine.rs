//! Hosts and processes whose time is virtual, on one thread: [`Machine`].

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeSet,
    os::fd::RawFd,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fsgather_core::sys::model;
use rustix::io::{Errno, Result};

use crate::{
    coroutines::{Coroutine, give_way},
    descriptors,
    dice::Dice,
    faults::{Fault, Planned, Severity},
    files::FileWorld,
    server::Moment,
};

/// All hosts of a world, and their processes.
pub(crate) struct Machine {
    inner: RefCell<Inner>,
    /// The origin of virtual time.
    base: Instant,
}

pub(crate) struct Inner {
    pub(crate) now: Moment,
    threads: Vec<Thread>,
    current: usize,
    pub(crate) processes: Vec<Process>,
    pub(crate) files: FileWorld,
    dice: Dice,
    random: Dice,
    /// Draws the locks at which threads pause, and the durations.
    stopping: Dice,
    /// Threads pause at one lock in this many; never if 0.
    stops: u64,
    planned: Vec<Planned>,
    /// No faults come up to this call.
    peace: u64,
    /// Faults that have come, for the output of a failing seed.
    pub(crate) happened: Vec<(Moment, usize, String)>,
    windows: Vec<Window>,
    server_is_back: Moment,
    pub(crate) calls: u64,
    /// A hash of all events: two runs of a seed have the same.
    pub(crate) digest: u64,
}

/// A period in which calls of a host fail.
#[derive(Clone, Copy, Debug)]
struct Window {
    host: usize,
    until: Moment,
    errno: Errno,
    /// True if only calls that need space fail.
    is_for_room: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) host: usize,
    pub(crate) pid: u32,
    pub(crate) is_running: bool,
    /// True if a fault has ended it.
    pub(crate) was_killed: bool,
}

struct Thread {
    coroutine: Option<Coroutine>,
    process: usize,
    is_main: bool,
    name: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It continues at this moment at the latest, or when `on` is woken.
    Waits {
        on: usize,
        until: Option<Moment>,
    },
    Done,
}

/// The possible values of [`Inner::stops`].
const STOPS: [u64; 4] = [0, 2, 10, 50];

/// The first number to wait on for the end of a thread.
const ENDS: usize = 1;

/// The end of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All processes have ended, at this moment.
    Over(Moment),
    /// These threads wait, and no event would ever wake them; or the limit was reached.
    Stuck(Vec<String>),
}

/// The kind of a call, which determines its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Looks,
    Makes,
    Removes,
    Writes,
    Syncs,
}

impl Machine {
    pub(crate) fn new(files: FileWorld, planned: Vec<Planned>, seed: u64) -> &'static Self {
        let mut stopping = Dice::new(seed, 12);
        let stops = stopping.pick(&STOPS);
        let inner = Inner {
            now: 1_000_000,
            files,
            dice: Dice::new(seed, 10),
            random: Dice::new(seed, 11),
            stopping,
            stops,
            planned,
            ..Inner::nothing()
        };
        // A model is never freed; only the world in it is replaced.
        thread_local! {
            static MACHINE: &'static Machine = Box::leak(Box::new(Machine {
                inner: RefCell::new(Inner::nothing()),
                base: Instant::now(),
            }));
        }
        let machine: &'static Self = MACHINE.with(|machine| *machine);
        let before = machine.inner.replace(inner);
        drop(before);
        machine
    }

    pub(crate) fn inner(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }

    /// Starts a process on a host, at some moment; returns its number.
    pub(crate) fn process(
        &'static self,
        host: usize,
        at: Moment,
        name: &str,
        work: impl FnOnce() + 'static,
    ) -> usize {
        let mut inner = self.inner();
        let number = inner.processes.len();
        inner.processes.push(Process {
            host,
            pid: 1000 + number as u32,
            is_running: true,
            was_killed: false,
        });
        inner.threads.push(Thread {
            coroutine: Some(Coroutine::new(Box::new(work))),
            process: number,
            is_main: true,
            name: format!("{name} (main)"),
            state: State::Waits {
                on: 0,
                until: Some(at),
            },
        });
        number
    }

    /// Runs the world, until all processes have ended.
    pub(crate) fn run(&'static self, limit: Moment) -> Outcome {
        loop {
            let next = {
                let inner = self.inner();
                let due =
                    inner.threads.iter().enumerate().filter_map(|(at, thread)| {
                        match thread.state {
                            State::Waits {
                                until: Some(until), ..
                            } => Some((until, at)),
                            _ => None,
                        }
                    });
                due.min()
            };
            let Some((until, number)) = next else {
                return self.end();
            };
            let mut coroutine = {
                let mut inner = self.inner();
                inner.now = inner.now.max(until);
                if inner.now > limit {
                    drop(inner);
                    return self.end();
                }
                inner.current = number;
                let now = inner.now;
                inner.note(now ^ (number as u64) << 48);
                let thread = &mut inner.threads[number];
                thread.coroutine.take().expect("a thread that waits")
            };
            let is_done = model::run_on(self, || coroutine.run());
            let mut inner = self.inner();
            if is_done {
                let thread = &mut inner.threads[number];
                thread.state = State::Done;
                let (process, is_main) = (thread.process, thread.is_main);
                inner.wake(ENDS + number, true);
                if is_main {
                    inner.end_process(process, false);
                }
            } else if inner.threads[number].state == State::Done {
                // It was ended at this call.
                coroutine.end();
            } else {
                inner.threads[number].coroutine = Some(coroutine);
            }
        }
    }

    fn end(&'static self) -> Outcome {
        let mut inner = self.inner();
        let waiting: Vec<String> = inner
            .threads
            .iter()
            .filter(|thread| thread.state != State::Done)
            .map(|thread| format!("{} {:?}", thread.name, thread.state))
            .collect();
        let processes = inner.processes.len();
        for process in 0..processes {
            inner.end_process(process, false);
        }
        if waiting.is_empty() {
            Outcome::Over(inner.now)
        } else {
            Outcome::Stuck(waiting)
        }
    }

    /// Enables the faults that only come after the world has formed.
    pub(crate) fn let_faults_come(&self, severity: Severity) {
        let mut inner = self.inner();
        if severity == Severity::Passing && inner.peace == u64::MAX {
            inner.peace = inner.calls;
        }
    }

    /// Disables faults until a call of all ranks has succeeded.
    pub(crate) fn keep_faults_back(&self) {
        self.inner().peace = u64::MAX;
    }

    pub(crate) fn now_in_model(&self) -> Moment {
        self.inner().now
    }

    pub(crate) fn instant(&self) -> Instant {
        self.base + Duration::from_nanos(self.inner().now)
    }

    pub(crate) fn calendar(&self) -> SystemTime {
        let inner = self.inner();
        let skew = inner.files.skews[inner.host()];
        UNIX_EPOCH + inner.files.epoch + skew + Duration::from_nanos(inner.now)
    }

    /// Makes the current thread wait.
    pub(crate) fn wait_on(&self, on: usize, limit: Option<Duration>) {
        {
            let mut inner = self.inner();
            let until = limit.map(|limit| {
                let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
                // A wait takes some time at least.
                inner
                    .now
                    .saturating_add(limit.max(1))
                    .saturating_add(inner.dice.below(100_000))
            });
            let current = inner.current;
            inner.threads[current].state = State::Waits { on, until };
        }
        give_way();
    }

    /// Lets other threads run before a lock is taken: always if another thread holds it; otherwise now and then, for a short or a long
    /// time, in worlds whose threads pause at locks.
    pub(crate) fn give_way_at_lock(&self, is_taken: bool) {
        let pause = {
            let mut inner = self.inner();
            let times = inner.stops;
            if !is_taken && !inner.stopping.one_in(times) {
                return;
            }
            if !is_taken && inner.stopping.one_in(40) {
                inner.stopping.below(30_000_000)
            } else {
                inner.stopping.below(50_000)
            }
        };
        self.wait_on(0, Some(Duration::from_nanos(pause)));
    }

    pub(crate) fn wake_at(&self, on: usize, all: bool) {
        self.inner().wake(on, all);
    }

    pub(crate) fn start_thread(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> u64 {
        let mut inner = self.inner();
        let (now, current) = (inner.now, inner.current);
        let process = inner.threads[current].process;
        let later = now + 1 + inner.dice.below(200_000);
        inner.threads.push(Thread {
            coroutine: Some(Coroutine::new(work)),
            process,
            is_main: false,
            name: format!("{name} of process {process}"),
            state: State::Waits {
                on: 0,
                until: Some(later),
            },
        });
        inner.threads.len() as u64 - 1
    }

    pub(crate) fn join_thread(&self, thread: u64) {
        let number = thread as usize;
        while self.inner().threads[number].state != State::Done {
            self.wait_on(ENDS + number, None);
        }
    }

    pub(crate) fn draw_number(&self) -> u64 {
        self.inner().random.next()
    }

    pub(crate) fn start_of(&self, pid: u32) -> Option<u64> {
        let inner = self.inner();
        let host = inner.host();
        let found = inner
            .processes
            .iter()
            .find(|process| process.pid == pid && process.host == host && process.is_running);
        found.map(|process| u64::from(process.pid))
    }

    /// Spends the time of one call, with its faults: then `act` changes the server and the host's memory.
    pub(crate) fn call<R>(
        &self,
        is_shared: bool,
        effect: Effect,
        act: impl Fn(&mut FileWorld, Moment) -> Result<R>,
    ) -> Result<R> {
        let fault = {
            let mut inner = self.inner();
            let (now, current) = (inner.now, inner.current);
            let process = inner.threads[current].process;
            inner.files.notice_closed(process, now);
            let (low, high) = if is_shared {
                inner.files.profile.latency
            } else {
                (1, 5)
            };
            let mut cost = inner.dice.between(low, high) * 1000;
            let fault = if is_shared { inner.fault(effect) } else { None };
            if let Some(Fault::Hangs(long)) = fault {
                cost += long.as_nanos() as u64;
            }
            if is_shared {
                cost += inner.server_is_back.saturating_sub(inner.now);
            }
            let until = inner.now + cost;
            inner.threads[current].state = State::Waits {
                on: 0,
                until: Some(until),
            };
            fault
        };
        give_way();
        let mut inner = self.inner();
        let now = inner.now;
        if is_shared && let Some(errno) = inner.closed_window(effect) {
            return Err(errno);
        }
        match fault {
            None | Some(Fault::Hangs(_)) => act(&mut inner.files, now),
            Some(Fault::Fails(errno)) => Err(errno),
            Some(Fault::LosesReply) => {
                let first = act(&mut inner.files, now);
                let is_repeated = inner.files.profile.loses_replies
                    && matches!(effect, Effect::Makes | Effect::Removes);
                if is_repeated && first.is_ok() {
                    act(&mut inner.files, now)
                } else {
                    first
                }
            }
            Some(Fault::NoRoom(errno, long)) => {
                inner.open_window(errno, long, true);
                act_unless(inner.closed_window(effect), || Ok(()))
                    .and_then(|()| act(&mut inner.files, now))
            }
            Some(Fault::Medium(errno, long)) => {
                inner.open_window(errno, long, false);
                Err(errno)
            }
            Some(Fault::EndsProcess) => {
                let current = inner.current;
                let process = inner.threads[current].process;
                inner.end_process(process, true);
                drop(inner);
                give_way();
                Err(Errno::IO)
            }
            Some(Fault::EndsHost) => {
                let host = inner.host();
                inner.end_host(host);
                drop(inner);
                give_way();
                Err(Errno::IO)
            }
            Some(Fault::RestartsServer(long)) => {
                inner.server_is_back = now + long.as_nanos() as u64;
                if inner.files.profile.restart_forgets {
                    inner.files.server.forget_unsynced(now);
                }
                act(&mut inner.files, now)
            }
        }
    }

    /// The place where the current thread runs: host and process.
    pub(crate) fn here(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.host(), inner.threads[inner.current].process)
    }
}

fn act_unless<R>(errno: Option<Errno>, act: impl FnOnce() -> Result<R>) -> Result<R> {
    errno.map_or_else(act, Err)
}

impl Inner {
    fn nothing() -> Self {
        let mut dice = Dice::new(0, 0);
        let profile = crate::profile::ALL[0];
        Self {
            now: 0,
            threads: Vec::new(),
            current: 0,
            processes: Vec::new(),
            files: FileWorld::new(profile, 0, &mut dice, crate::files::Breaks::default()),
            dice: dice.clone(),
            random: dice.clone(),
            stopping: dice,
            stops: 0,
            planned: Vec::new(),
            peace: 0,
            happened: Vec::new(),
            windows: Vec::new(),
            server_is_back: 0,
            calls: 0,
            digest: 0,
        }
    }

    fn host(&self) -> usize {
        self.threads
            .get(self.current)
            .map_or(0, |thread| self.processes[thread.process].host)
    }

    fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23);
    }

    fn wake(&mut self, on: usize, all: bool) {
        let now = self.now;
        if self.files.breaks.wakes_nobody && on > ENDS + self.threads.len() {
            return;
        }
        for number in 0..self.threads.len() {
            if let State::Waits { on: its, .. } = self.threads[number].state
                && its == on
                && on != 0
            {
                let until = Some(now + 1 + self.dice.below(50_000));
                self.threads[number].state = State::Waits { on: 0, until };
                if !all {
                    return;
                }
            }
        }
    }

    /// The fault that this call meets.
    fn fault(&mut self, effect: Effect) -> Option<Fault> {
        self.calls += 1;
        if self.peace == u64::MAX {
            return None;
        }
        if self
            .planned
            .first()
            .is_none_or(|next| next.at > self.calls - self.peace)
        {
            return None;
        }
        let writes = matches!(effect, Effect::Writes | Effect::Syncs);
        if self.planned[0].is_at_write && !writes {
            return None;
        }
        let fault = self.planned.remove(0).fault;
        let process = self.threads[self.current].process;
        let told = format!(
            "{fault:?} at call {} in {}",
            self.calls, self.threads[self.current].name
        );
        self.happened.push((self.now, process, told));
        Some(fault)
    }

    fn open_window(&mut self, errno: Errno, long: Duration, is_for_room: bool) {
        let window = Window {
            host: self.host(),
            until: self.now + long.as_nanos() as u64,
            errno,
            is_for_room,
        };
        self.windows.push(window);
    }

    /// The error of a call in a period in which calls fail.
    fn closed_window(&self, effect: Effect) -> Option<Errno> {
        let takes_room = matches!(effect, Effect::Makes | Effect::Writes | Effect::Syncs);
        let found = self.windows.iter().find(|window| {
            window.host == self.host()
                && window.until > self.now
                && (takes_room || !window.is_for_room)
        });
        found.map(|window| window.errno)
    }

    fn end_process(&mut self, number: usize, was_killed: bool) {
        if !self.processes[number].is_running {
            return;
        }
        self.processes[number].is_running = false;
        self.processes[number].was_killed = was_killed;
        self.end_threads(&BTreeSet::from([number]));
        let open = self.files.end_process(number, self.now);
        close_all(&open);
    }

    fn end_host(&mut self, host: usize) {
        let ended: BTreeSet<usize> = (0..self.processes.len())
            .filter(|process| self.processes[*process].host == host)
            .filter(|process| self.processes[*process].is_running)
            .collect();
        for process in &ended {
            self.processes[*process].is_running = false;
            self.processes[*process].was_killed = true;
        }
        self.end_threads(&ended);
        let open = self.files.end_host(host);
        close_all(&open);
    }

    fn end_threads(&mut self, processes: &BTreeSet<usize>) {
        for thread in &mut self.threads {
            if processes.contains(&thread.process) {
                thread.state = State::Done;
                // The running thread ends when it yields.
                drop(thread.coroutine.take());
            }
        }
    }
}

/// Closes the descriptors of a process that has ended: their owners were ended without running any more code.
fn close_all(open: &[(RawFd, u64)]) {
    for (file, identity) in open {
        descriptors::close_leaked(*file, *identity);
    }
}
