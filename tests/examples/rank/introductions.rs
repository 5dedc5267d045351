//! Ways of the program's own to introduce ranks to each other.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use fsgather::{Bootstrap, Communicator, Error, Rendezvous};

/// Joins by the way that a script names.
pub(crate) fn join(way: &str, place: &str) -> Result<Communicator, Error> {
    let way: Box<dyn Bootstrap> = match way {
        "note" => Box::new(Note(place.into())),
        "store" => Box::new(Store(crate::values::number(place))),
        "garbage" => Box::new(Garbage(place.into())),
        "broken" => Box::new(Broken),
        _ => panic!("no such way: {way}"),
    };
    let once = Once {
        way,
        thread: thread::current().id(),
        is_used: AtomicBool::new(false),
    };
    let builder = Communicator::builder();
    builder.rendezvous(Rendezvous::custom(once)).build()
}

/// Sees to it that a way is used once, on the thread that builds.
struct Once {
    way: Box<dyn Bootstrap>,
    thread: ThreadId,
    is_used: AtomicBool,
}

impl Once {
    fn check(&self) -> Result<(), String> {
        if self.is_used.swap(true, Ordering::SeqCst) {
            return Err("used twice".into());
        }
        if thread::current().id() != self.thread {
            return Err("used on another thread".into());
        }
        Ok(())
    }
}

impl Bootstrap for Once {
    fn publish(&self, record: &[u8]) -> Result<(), String> {
        self.check()?;
        self.way.publish(record)
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        self.check()?;
        self.way.fetch(deadline)
    }
}

/// A file.
struct Note(PathBuf);

impl Bootstrap for Note {
    fn publish(&self, record: &[u8]) -> Result<(), String> {
        let draft = self.0.with_extension("draft");
        let written = fs::write(&draft, record).and_then(|()| fs::rename(&draft, &self.0));
        written.map_err(|error| error.to_string())
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        until(deadline, || fs::read(&self.0))
    }
}

/// A process at this port, that keeps one thing: nothing sent, and it answers with what it has.
struct Store(u32);

impl Store {
    fn ask(&self, what: &[u8]) -> std::io::Result<Vec<u8>> {
        let port = u16::try_from(self.0).unwrap_or_default();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(what)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

impl Bootstrap for Store {
    fn publish(&self, record: &[u8]) -> Result<(), String> {
        self.ask(record)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        until(deadline, || match self.ask(&[]) {
            Ok(answer) if answer.is_empty() => Err(std::io::ErrorKind::NotFound.into()),
            answer => answer,
        })
    }
}

/// Hands over something else.
struct Garbage(String);

impl Bootstrap for Garbage {
    fn publish(&self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn fetch(&self, _: Instant) -> Result<Vec<u8>, String> {
        Ok(self.0.clone().into_bytes())
    }
}

/// Fails to hand over, and waits for what never comes.
struct Broken;

impl Bootstrap for Broken {
    fn publish(&self, _: &[u8]) -> Result<(), String> {
        Err("the store is on fire".into())
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        until(deadline, || Err(std::io::ErrorKind::NotFound.into()))
    }
}

fn until(deadline: Instant, ask: impl Fn() -> std::io::Result<Vec<u8>>) -> Result<Vec<u8>, String> {
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if Instant::now() >= deadline => return Err(error.to_string()),
            Err(_) => thread::park_timeout(Duration::from_millis(5)),
        }
    }
}
