//! A polled switch ends waits of the very thread that polls it, and calls that are done soon do not poll it.

#![expect(clippy::unwrap_used, reason = "a check reports by panicking")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use fsgather_control::join::{self, Control, Meeting};
use fsgather_core::{
    Call, Contribution, Error, Exchange, Interrupt, Operation, Phase, ProcessId, Rank, Round, Site,
    WorldSize,
};
use fsgather_testkit::{
    MemoryBackend, MemoryMailbox,
    pace::{patience, rest},
};

/// A switch that gives a reason once it is thrown.
#[derive(Clone, Default)]
struct Switch {
    asked: Arc<AtomicU32>,
    by: Arc<Mutex<Vec<ThreadId>>>,
    is_thrown: Arc<AtomicU32>,
}

impl Switch {
    fn interrupt(&self) -> Interrupt {
        let its = self.clone();
        Interrupt::polled_by(move || {
            its.asked.fetch_add(1, Ordering::SeqCst);
            its.by.lock().unwrap().push(thread::current().id());
            (its.is_thrown.load(Ordering::SeqCst) > 0).then(|| "KeyboardInterrupt".into())
        })
    }

    fn throw(&self) {
        self.is_thrown.store(1, Ordering::SeqCst);
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    fn wait_until_asked(&self) {
        let before = self.asked();
        let deadline = Instant::now() + patience();
        while self.asked() < before + 2 {
            assert!(Instant::now() < deadline, "nobody asks");
            rest();
        }
    }
}

/// The place where two ranks meet.
struct Bed {
    board: Arc<MemoryBackend>,
    post: Arc<MemoryMailbox>,
    control: Control,
}

impl Bed {
    fn new(control: Control) -> Self {
        Self {
            board: Arc::default(),
            post: MemoryMailbox::new(),
            control,
        }
    }

    fn config(&self, rank: u32, interrupt: Interrupt) -> join::Config {
        let process = ProcessId {
            host: "here".into(),
            boot_id: "this boot".into(),
            pid: std::process::id(),
            start_time: rank.into(),
            ..ProcessId::default()
        };
        let meeting = Meeting::Board(self.board.clone());
        join::Config {
            mailboxes: Some(self.post.factory(&process)),
            interfaces: Arc::new(|_, address| address.is_loopback()),
            control: self.control,
            interrupt,
            ..join::Config::new(
                Rank::new(rank),
                WorldSize::new(2).unwrap(),
                process,
                meeting,
            )
        }
    }
}

/// Two ranks, of which rank `asker` has this switch.
fn world(control: Control, asker: u32, switch: &Switch) -> [Box<dyn Exchange>; 2] {
    let bed = Bed::new(control);
    let join = |rank: u32| {
        let interrupt = if rank == asker {
            switch.interrupt()
        } else {
            Interrupt::default()
        };
        let config = bed.config(rank, interrupt);
        thread::spawn(move || join::join(&config).unwrap().exchange)
    };
    [0, 1].map(join).map(|joining| joining.join().unwrap())
}

/// The same, one rank apart from the other.
fn asker_and_other(
    control: Control,
    asker: u32,
    switch: &Switch,
) -> (Box<dyn Exchange>, Box<dyn Exchange>) {
    let [first, second] = world(control, asker, switch);
    if asker == 0 {
        (first, second)
    } else {
        (second, first)
    }
}

/// Every way of carrying messages, and each of two ranks.
fn cases() -> impl Iterator<Item = (Control, u32)> {
    [Control::Tcp, Control::Markers]
        .into_iter()
        .flat_map(|control| [0, 1].map(|rank| (control, rank)))
}

/// Checks all of them at the same time.
fn on_all_cases(check: impl Fn(Control, u32) + Sync) {
    let check = &check;
    thread::scope(|scope| {
        for (control, rank) in cases() {
            scope.spawn(move || check(control, rank));
        }
    });
}

fn is_the_reason(error: &Error) -> bool {
    error.root_cause().to_string().contains("KeyboardInterrupt")
}

#[test]
fn short_calls_do_not_ask_each_time() {
    const CALLS: u32 = 300;
    for asker in [0, 1] {
        let switch = Switch::default();
        let [one, other] = world(Control::Tcp, asker, &switch);
        let before = switch.asked();
        let barriers = |exchange: &dyn Exchange| {
            for _ in 0..CALLS {
                exchange.barrier(Site::named("here")).unwrap();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| barriers(&*one));
            barriers(&*other);
        });
        // A busy machine makes some barriers long, but not all.
        assert!(switch.asked() - before < CALLS);
    }
}

#[test]
fn the_waiting_thread_ends_a_wait_and_all_get_the_reason() {
    on_all_cases(|control, asker| {
        let switch = Switch::default();
        let (own, other) = asker_and_other(control, asker, &switch);
        let waiting = thread::spawn(move || {
            let told = own.barrier(Site::named("here")).unwrap_err();
            (told, thread::current().id())
        });
        switch.wait_until_asked();
        switch.throw();
        let (told, id) = waiting.join().unwrap();
        assert!(is_the_reason(&told), "{told}");
        assert_eq!(switch.by.lock().unwrap().last(), Some(&id));
        // The first call may have been decided: both had reached it before the other rank got the error.
        let barrier = || other.barrier(Site::named("there"));
        let told = barrier().and_then(|()| barrier()).unwrap_err();
        assert!(is_the_reason(&told), "{told}");
        assert!(
            told.to_string().contains(&format!("rank {asker}")),
            "{told}"
        );
    });
}

#[test]
fn a_limit_to_a_wait_holds_although_somebody_is_asked() {
    let switch = Switch::default();
    let [one, _other] = world(Control::Tcp, 0, &switch);
    let call = Call::new(Operation::Barrier, Site::named("here"));
    let ticket = one.begin(call).unwrap();
    one.contribute(&ticket, Round::VERDICT, Contribution::default())
        .unwrap();
    let before = switch.asked();
    for (limit, questions) in [(0, 0), (90, 0), (350, 3)] {
        let limit = Duration::from_millis(limit);
        let verdict = one.wait_for(&ticket, Round::VERDICT, Some(limit)).unwrap();
        assert_eq!(verdict, None);
        assert!(switch.asked() - before <= questions + 1);
    }
    assert!(switch.asked() > before);
}

#[test]
fn work_within_a_call_is_ended_by_its_own_progress() {
    let switch = Switch::default();
    let [one, _other] = world(Control::Tcp, 0, &switch);
    let call = Call::new(Operation::Gather, Site::named("here")).with_root(Rank::ZERO);
    let ticket = one.begin(call).unwrap();
    one.progress(&ticket, Phase::Publishing, 1).unwrap();
    switch.throw();
    let deadline = Instant::now() + patience();
    let told = loop {
        if let Err(told) = one.progress(&ticket, Phase::Publishing, 1) {
            break told;
        }
        assert!(Instant::now() < deadline, "nobody asks");
    };
    assert!(is_the_reason(&told), "{told}");
}

#[test]
fn closing_is_ended_as_long_as_it_waits_for_the_others() {
    for (control, asker) in cases() {
        let switch = Switch::default();
        let (own, _other) = asker_and_other(control, asker, &switch);
        let closing = thread::spawn(move || own.close(Site::named("here")).unwrap_err());
        switch.wait_until_asked();
        switch.throw();
        let told = closing.join().unwrap();
        assert!(is_the_reason(&told), "{told}");
    }
}

#[test]
fn the_waiting_thread_ends_a_meeting_over_any_carrier() {
    for (control, rank) in cases() {
        let switch = Switch::default();
        let config = Bed::new(control).config(rank, switch.interrupt());
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send((join::join(&config).err(), thread::current().id())));
        switch.wait_until_asked();
        switch.throw();
        let (told, id) = told.recv_timeout(patience()).unwrap();
        assert!(is_the_reason(&told.unwrap()));
        assert_eq!(switch.by.lock().unwrap().last(), Some(&id));
    }
}
