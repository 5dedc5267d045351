//! Measures the mesh against bare blocking sockets that do the same work, between processes of this machine.
//!
//! ```sh
//! cargo run --release -p fsgather-bench --bin mesh -- ring 8 16 5 both
//! cargo run --release -p fsgather-bench --bin mesh -- pull 8 64 5 both
//! ```
//!
//! Arguments: the operation, the number of processes, MiB for each, the number of repetitions, and the way: `both` take turns, in the same
//! processes; `bare` and `mesh` alone are for profiling. The figures are for the whole, from the start until the last rank is done.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on is over"
)]

use std::{
    env,
    hint::black_box,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather_control::mesh::{Mesh, MeshConfig, Source};
use fsgather_core::{CallId, ChannelId, Epoch, Error, ProcessId, Rank};
use uuid::Uuid;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |index: usize| -> usize { arguments[index].parse().unwrap() };
    let setting = Setting {
        ranks: number(1),
        len: number(2) << 20,
        times: number(3),
        ways: match arguments[4].as_str() {
            "bare" => vec![Way::Bare],
            "mesh" => vec![Way::Mesh],
            _ => vec![Way::Bare, Way::Mesh],
        },
    };
    match arguments.get(5) {
        Some(rank) => work(&arguments[0], &setting, rank.parse().unwrap()),
        None => lead(&arguments, &setting),
    }
}

struct Setting {
    ranks: usize,
    len: usize,
    times: usize,
    ways: Vec<Way>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Bare,
    Mesh,
}

impl Setting {
    /// The way of each round. The first round of each way is for warming up.
    fn rounds(&self) -> impl Iterator<Item = Way> {
        let rounds = (self.times + 1) * self.ways.len();
        self.ways.iter().copied().cycle().take(rounds)
    }
}

/// Starts the processes, makes them begin together, and measures the time.
fn lead(arguments: &[String], setting: &Setting) {
    let mut workers: Vec<Worker> = (0..setting.ranks)
        .map(|rank| Worker::start(arguments, rank))
        .collect();
    let addresses: Vec<String> = workers.iter_mut().map(Worker::hear).collect();
    for worker in &mut workers {
        for address in &addresses {
            worker.say(address);
        }
    }
    let mut taken = [Vec::new(), Vec::new()];
    for (round, way) in setting.rounds().enumerate() {
        for worker in &mut workers {
            assert_eq!(worker.hear(), "ready");
        }
        let started = Instant::now();
        for worker in &mut workers {
            worker.say("go");
        }
        let mut cpu = 0.0;
        for worker in &mut workers {
            cpu += worker.hear().parse::<f64>().unwrap();
        }
        if round >= setting.ways.len() {
            taken[way as usize].push((started.elapsed(), cpu));
        }
        for worker in &mut workers {
            worker.say("next");
        }
    }
    for worker in &mut workers {
        worker.child.wait().unwrap();
    }
    let [bare, mesh] = taken.map(|times| Figures::of(&times));
    println!(
        "{}: {} processes, {} MiB each, milliseconds, bare and mesh: median {:.0} {:.0} ({:.2}), least \
         {:.0} {:.0} ({:.2}), processor {:.0} {:.0} ({:.2})",
        arguments[0],
        setting.ranks,
        setting.len >> 20,
        bare.median,
        mesh.median,
        mesh.median / bare.median,
        bare.least,
        mesh.least,
        mesh.least / bare.least,
        bare.cpu,
        mesh.cpu,
        mesh.cpu / bare.cpu,
    );
}

/// Durations in milliseconds.
struct Figures {
    median: f64,
    least: f64,
    /// The least processor time, of all ranks together.
    cpu: f64,
}

impl Figures {
    fn of(taken: &[(Duration, f64)]) -> Self {
        if taken.is_empty() {
            return Self {
                median: f64::NAN,
                least: f64::NAN,
                cpu: f64::NAN,
            };
        }
        let mut times: Vec<f64> = taken.iter().map(|(t, _)| t.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let cpu = taken.iter().map(|(_, cpu)| *cpu);
        Self {
            median: times[times.len() / 2],
            least: times[0],
            cpu: cpu.fold(f64::INFINITY, f64::min),
        }
    }
}

/// The processor time of this process, in milliseconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap().as_secs_f64() * 1e3
}

struct Worker {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(arguments: &[String], rank: usize) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(arguments)
            .arg(rank.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

/// Runs one rank.
fn work(what: &str, setting: &Setting, rank: usize) {
    let processes = (0..setting.ranks).map(|_| ProcessId {
        boot_id: "here".into(),
        ..ProcessId::default()
    });
    let mesh = Mesh::listen(&MeshConfig {
        rank: rank_of(rank),
        communicator: Uuid::nil(),
        secret: [1; 32],
        ports: 0..=0,
        interfaces: Arc::new(|_, _| true),
        network_namespace: 0,
        timeout: Duration::from_secs(60),
        processes: processes.collect(),
        threads: fsgather_core::BackgroundThreads::default(),
    })
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!(
        "{} {}",
        listener.local_addr().unwrap(),
        serde_json::to_string(mesh.address()).unwrap()
    );
    let mut bare = Vec::new();
    let mut direct = Vec::new();
    for _ in 0..setting.ranks {
        let line = read_line();
        let (address, rest) = line.split_once(' ').unwrap();
        bare.push(address.parse().unwrap());
        direct.push(serde_json::from_str(rest).unwrap());
    }
    for (rank, address) in (0..).zip(direct) {
        mesh.know(Rank::new(rank), address).unwrap();
    }
    let rank = Working {
        setting,
        rank,
        mesh,
        own: vec![u8::try_from(rank).unwrap(); setting.len],
        shared: vec![u8::try_from(rank).unwrap(); setting.len].into(),
        neighbours: None,
    };
    rank.work(what, &listener, &bare);
}

struct Working<'a> {
    setting: &'a Setting,
    rank: usize,
    mesh: Mesh,
    own: Vec<u8>,
    shared: Bytes,
    /// Bare connections from the left and to the right, or from the root, or to all.
    neighbours: Option<Vec<TcpStream>>,
}

impl Working<'_> {
    fn work(mut self, what: &str, listener: &TcpListener, addresses: &[SocketAddr]) {
        self.neighbours = Some(match what {
            "ring" => {
                let right = connect(addresses[(self.rank + 1) % self.setting.ranks]);
                vec![accept(listener), right]
            }
            _ if self.rank == 0 => addresses[1..].iter().copied().map(connect).collect(),
            _ => vec![accept(listener)],
        });
        for (round, way) in self.setting.rounds().enumerate() {
            println!("ready");
            assert_eq!(read_line(), "go");
            let before = cpu();
            let kept = match (what, way) {
                ("ring", Way::Bare) => self.bare_ring(),
                ("ring", Way::Mesh) => self.ring(round),
                (_, Way::Bare) => self.bare_pull(),
                (_, Way::Mesh) => self.pull(round),
            };
            println!("{}", cpu() - before);
            assert_eq!(read_line(), "next");
            black_box(kept);
        }
    }

    /// Forwards whole payloads, one after the other: each is received while the previous one is sent.
    fn bare_ring(&mut self) -> Vec<Vec<u8>> {
        let [left, right] = self.neighbours.as_mut().unwrap().as_mut_slice() else {
            unreachable!("a ring has two neighbours");
        };
        let mut got: Vec<Vec<u8>> = Vec::new();
        for step in 1..self.setting.ranks {
            let sent = got.last().unwrap_or(&self.own);
            let received = thread::scope(|scope| {
                scope.spawn(|| right.write_all(sent).unwrap());
                receive(left, self.setting.len)
            });
            assert_eq!(got.len() + 1, step);
            got.push(received);
        }
        got
    }

    fn ring(&self, round: usize) -> Vec<Vec<u8>> {
        let members: Vec<Rank> = (0..self.setting.ranks).map(rank_of).collect();
        let lens = vec![self.own.len() as u64; self.setting.ranks];
        self.mesh
            .ring(call(round), &members, &self.own, &lens, &mut ignore)
            .unwrap()
    }

    fn bare_pull(&mut self) -> Vec<Vec<u8>> {
        let neighbours = self.neighbours.as_mut().unwrap();
        if self.rank == 0 {
            return neighbours
                .iter_mut()
                .map(|peer| receive(peer, self.setting.len))
                .collect();
        }
        neighbours[0].write_all(&self.own).unwrap();
        Vec::new()
    }

    fn pull(&self, round: usize) -> Vec<Vec<u8>> {
        if self.rank == 0 {
            let asked: Vec<_> = (1..self.setting.ranks)
                .map(|rank| {
                    self.mesh
                        .pull(call(round), rank_of(rank), self.setting.len as u64)
                        .unwrap()
                })
                .collect();
            return asked
                .into_iter()
                .map(|pull| pull.read_to_end(&mut ignore).unwrap())
                .collect();
        }
        if let Some(before) = round.checked_sub(2) {
            self.mesh.withdraw(call(before));
        }
        let own = Source::Memory(self.shared.clone());
        self.mesh.offer(call(round), own);
        Vec::new()
    }
}

fn receive(from: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(len);
    from.take(len as u64).read_to_end(&mut payload).unwrap();
    assert_eq!(payload.len(), len);
    payload
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn call(round: usize) -> CallId {
    CallId {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(round as u64),
    }
}

fn rank_of(rank: usize) -> Rank {
    Rank::new(u32::try_from(rank).unwrap())
}

#[expect(clippy::unnecessary_wraps, reason = "this is what progress is told")]
fn ignore(_: u64) -> Result<(), Error> {
    Ok(())
}

fn read_line() -> String {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).unwrap();
    line.trim().to_owned()
}
