//! Tests of worlds whose ranks meet like those of a job, by TCP and with a directory, though all are threads of this
//! process: the paths of their payloads.

use std::{
    fs, io,
    path::Path,
    sync::{
        Arc, Barrier, Condvar, Mutex, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fsgather::{
    Bootstrap, Builder, Communicator, Error, ErrorKind, Options, Payload, Pieces, Rendezvous,
    Stream, Transport, Verify,
};
use fsgather_testkit::pace::{rest, within_patience};

use super::{RANKS, bytes_of, everything, plain};

/// The channel from rank 0 to the others.
#[derive(Clone, Default)]
struct Channel(Arc<(Mutex<Option<Vec<u8>>>, Condvar)>);

impl Bootstrap for Channel {
    fn publish(&self, record: &[u8]) -> Result<(), String> {
        let (slot, changed) = &*self.0;
        *slot.lock().unwrap() = Some(record.to_owned());
        changed.notify_all();
        Ok(())
    }

    fn fetch(&self, deadline: Instant) -> Result<Vec<u8>, String> {
        let (slot, changed) = &*self.0;
        let left = deadline.saturating_duration_since(Instant::now());
        let (record, _) = changed
            .wait_timeout_while(slot.lock().unwrap(), left, |record| record.is_none())
            .unwrap();
        record.clone().ok_or_else(|| "nothing has come".into())
    }
}

/// Locked by each test that has a world.
static WORLDS: RwLock<()> = RwLock::new(());

/// Makes all ranks of a world that meet in this way act. Returns the results in rank order.
pub(super) fn on_all<R: Send + 'static>(
    build: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    act: impl Fn(Result<Communicator, Error>) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let _others_may = WORLDS.read().unwrap_or_else(PoisonError::into_inner);
    meet(build, act)
}

/// Like [`on_all`], without any other world, for state that a process keeps of all its worlds.
pub(super) fn on_all_alone<R: Send + 'static>(
    build: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    act: impl Fn(Result<Communicator, Error>) -> R + Send + Sync + 'static,
    look: impl FnOnce(),
) {
    let _alone = WORLDS.write().unwrap_or_else(PoisonError::into_inner);
    meet(build, act);
    look();
}

fn meet<R: Send + 'static>(
    build: impl Fn(Builder) -> Builder + Send + Sync + 'static,
    act: impl Fn(Result<Communicator, Error>) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let (act, build, channel) = (Arc::new(act), Arc::new(build), Channel::default());
    within_patience(|| {
        let ranks: Vec<_> = (0..RANKS)
            .map(|rank| {
                let (act, build) = (Arc::clone(&act), Arc::clone(&build));
                let builder = Communicator::builder()
                    .rank(rank)
                    .world_size(RANKS)
                    .rendezvous(Rendezvous::custom(channel.clone()));
                thread::spawn(move || act(build(builder).build()))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The names of gather directories below a directory.
pub(super) fn gather_directories(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory.join("all_gather_via_filesys")) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("gather-"))
        .collect()
}

/// Calls of the world and of a group, each payload too large for messages.
fn make_calls(communicator: &Communicator) {
    let me = communicator.rank().get();
    let got = communicator
        .all_gather(Pieces::from(&bytes_of(me, 1)[..]))
        .unwrap();
    assert!(plain(got) == everything(1));
    let got = communicator
        .gather(Pieces::from(&bytes_of(me, 2)[..]), 1)
        .unwrap();
    let got = got.map(|parts| parts.map(|part| part.unwrap().1).collect::<Vec<Payload>>());
    assert!(got.map(plain) == (me == 1).then(|| everything(2)));
    if me < 2 {
        let group = communicator.group(&[0, 1]).unwrap();
        let got = group
            .all_gather(Pieces::from(&bytes_of(me, 3)[..]))
            .unwrap();
        assert!(plain(got) == everything(3)[..2]);
        group.close().unwrap();
    }
}

#[test]
fn large_payloads_share_a_directory_removed_at_the_end() {
    for verify in [Verify::Always, Verify::Host] {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().to_owned();
        let named = directory.clone();
        on_all(
            move |builder| {
                builder
                    .directory(&named)
                    .transport(Transport::Filesys)
                    .verify(verify)
            },
            move |communicator| {
                let communicator = communicator.unwrap();
                make_calls(&communicator);
                assert_eq!(gather_directories(&directory).len(), 1);
                communicator.barrier().unwrap();
                communicator.close().unwrap();
            },
        );
        assert_eq!(gather_directories(place.path()), Vec::<String>::new());
    }
}

#[test]
fn through_memory_no_directory_is_touched() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    on_all(
        move |builder| builder.directory(&directory).transport(Transport::Memory),
        |communicator| {
            let communicator = communicator.unwrap();
            make_calls(&communicator);
            communicator.close().unwrap();
        },
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn one_call_may_go_another_way_than_the_others() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    on_all(
        |builder| builder.transport(Transport::Memory),
        move |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            let files = Options::new().transport(Transport::Filesys);
            let handle = communicator.with(files.directory(&directory));
            let got = handle
                .all_gather(Pieces::from(&bytes_of(me, 1)[..]))
                .unwrap();
            assert!(plain(got) == everything(1));
            assert_eq!(gather_directories(&directory).len(), 1);
            communicator.barrier().unwrap();
            let got = communicator
                .all_gather(Pieces::from(&bytes_of(me, 2)[..]))
                .unwrap();
            assert!(plain(got) == everything(2));
            communicator.close().unwrap();
        },
    );
    assert_eq!(gather_directories(place.path()), Vec::<String>::new());
}

#[test]
fn the_first_call_of_its_kind_obeys_its_own_time_out() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    let is_over = Barrier::new(RANKS as usize);
    let kinds = on_all(
        |builder| builder.transport(Transport::Memory),
        move |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            if me == 0 {
                let files = Options::new().transport(Transport::Filesys);
                let handle = communicator.with(files.directory(&directory));
                let call = handle.with(Options::new().timeout(Duration::from_secs(1)));
                let result = call.all_gather(Pieces::from(&bytes_of(me, 1)[..]));
                is_over.wait();
                result.unwrap_err().kind()
            } else {
                is_over.wait();
                communicator.barrier().unwrap_err().kind()
            }
        },
    );
    assert!(
        kinds.iter().all(|kind| *kind == ErrorKind::Timeout),
        "{kinds:?}"
    );
}

#[test]
fn handles_that_differ_between_ranks_fail_on_all() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    let kinds = on_all(
        move |builder| builder.directory(&directory),
        |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            let ways = [Transport::Memory, Transport::Filesys];
            let handle = communicator.with(Options::new().transport(ways[usize::from(me == 1)]));
            handle
                .all_gather(Pieces::from(&bytes_of(me, 1)[..]))
                .unwrap_err()
                .kind()
        },
    );
    assert!(
        kinds.iter().all(|kind| *kind == ErrorKind::Desync),
        "{kinds:?}"
    );
}

/// The files of last calls below a directory.
fn files_of_calls(directory: &Path) -> Vec<String> {
    let below = fs::read_dir(directory.join("all_gather_via_filesys")).unwrap();
    let names = below.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("calls-")).collect()
}

#[test]
fn call_files_lie_beside_payloads_until_a_clean_close() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    let named = directory.clone();
    on_all(
        move |builder| builder.directory(&named),
        move |communicator| {
            let communicator = communicator.unwrap();
            communicator.barrier().unwrap();
            assert_eq!(files_of_calls(&directory).len(), RANKS as usize);
            communicator.barrier().unwrap();
            communicator.close().unwrap();
        },
    );
    assert_eq!(files_of_calls(place.path()), Vec::<String>::new());
}

#[test]
fn a_removed_payload_is_reported_at_once_within_a_host() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    let named = directory.clone();
    on_all(
        move |builder| builder.directory(&named).transport(Transport::Filesys),
        move |communicator| {
            let communicator = communicator.unwrap();
            let me = communicator.rank().get();
            let parts = communicator
                .gather(Pieces::from(&bytes_of(me, 1)[..]), 0)
                .unwrap();
            let Some(mut parts) = parts else {
                return;
            };
            for name in gather_directories(&directory) {
                let payloads = directory
                    .join("all_gather_via_filesys")
                    .join(name)
                    .join("payloads");
                for file in fs::read_dir(payloads).unwrap() {
                    fs::remove_file(file.unwrap().path()).unwrap();
                }
            }
            let read: Result<Vec<_>, Error> = parts.by_ref().collect();
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Storage);
        },
    );
}

/// Number of payloads that lie in files below a directory.
pub(super) fn payload_files(directory: &Path) -> usize {
    let below = directory.join("all_gather_via_filesys");
    let payloads = gather_directories(directory).into_iter();
    let payloads = payloads.map(|name| fs::read_dir(below.join(name).join("payloads")).unwrap());
    payloads.map(Iterator::count).sum()
}

/// How bytes are handed in.
type HandIn = fn(&[u8]) -> Pieces<'_>;

#[test]
fn what_a_root_hands_in_to_its_own_gather_it_keeps_as_it_was() {
    const LARGE: usize = 9 << 20;
    const ROOT: u32 = 0;
    let cases: [(usize, usize, HandIn); 4] = [
        (100_000, 1, |bytes| Pieces::from(bytes)),
        (100_000, 1, |bytes| {
            let (first, second) = bytes.split_at(5);
            Pieces::new(
                128,
                vec![
                    Bytes::copy_from_slice(first),
                    Bytes::copy_from_slice(second),
                ],
            )
        }),
        (LARGE, 1, |bytes| Bytes::copy_from_slice(bytes).into()),
        (LARGE, 2, |bytes| Pieces::from(bytes)),
    ];
    for (len, files, hand_in) in cases {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().to_owned();
        let named = directory.clone();
        on_all(
            move |builder| builder.directory(&named).transport(Transport::Filesys),
            move |communicator| {
                let communicator = communicator.unwrap();
                let me = communicator.rank().get();
                let byte = |rank: u32| u8::try_from(rank + 1).unwrap();
                // The last rank's rides on the messages.
                let len = if me + 1 == RANKS { 9 } else { len };
                let mut own = vec![byte(me); len];
                let parts = communicator.gather(hand_in(&own), ROOT).unwrap();
                own.fill(0);
                if let Some(parts) = parts {
                    assert_eq!(payload_files(&directory), files);
                    for (part, rank) in parts.zip(0..) {
                        let (from, payload) = part.unwrap();
                        assert_eq!(from.get(), rank);
                        assert!(payload.iter().all(|one| *one == byte(rank)));
                        assert!(payload.len() == if rank + 1 == RANKS { 9 } else { len });
                    }
                    // Payloads that have been read are removed, the root's own file as well.
                    while payload_files(&directory) > 0 {
                        rest();
                    }
                }
                communicator.close().unwrap();
            },
        );
        assert_eq!(gather_directories(place.path()), Vec::<String>::new());
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_the_same_error_on_all() {
    let place = tempfile::tempdir().unwrap();
    let nowhere = place.path().join("nowhere");
    for transport in [Transport::Auto, Transport::Filesys] {
        let named = nowhere.clone();
        let said = on_all(
            move |builder| builder.directory(&named).transport(transport),
            |communicator| communicator.map(drop).unwrap_err(),
        );
        for error in &said {
            assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
            assert!(
                error.to_string().contains(nowhere.to_str().unwrap()),
                "{error}"
            );
        }
    }
}

/// A source that is interrupted before each of its bytes, as by signals.
struct Interrupted<'a> {
    bytes: &'a [u8],
    is_next: bool,
}

impl io::Read for Interrupted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.is_next = !self.is_next;
        if self.is_next {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = into.len().min(self.bytes.len()).min(40_000);
        into[..len].copy_from_slice(&self.bytes[..len]);
        self.bytes = &self.bytes[len..];
        Ok(len)
    }
}

#[test]
fn a_source_that_is_interrupted_is_asked_again() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_owned();
    on_all(
        move |builder| builder.directory(&directory),
        |communicator| {
            let communicator = communicator.unwrap();
            let bytes = bytes_of(communicator.rank().get(), 1);
            let mut source = Interrupted {
                bytes: &bytes,
                is_next: false,
            };
            let got = communicator.all_gather(Stream::new(&mut source)).unwrap();
            assert!(plain(got) == everything(1));
            communicator.close().unwrap();
        },
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing but time passes while a rank computes"
)]
fn compute(time: Duration) {
    thread::sleep(time);
}

#[test]
fn a_rank_that_only_starts_calls_still_serves_others() {
    for starter in 0..RANKS {
        let served = Arc::new(AtomicU32::new(0));
        let all_have_ended = Barrier::new(RANKS as usize);
        on_all(
            |builder| builder,
            move |communicator| {
                let communicator = communicator.unwrap();
                let me = communicator.rank().get();
                communicator.barrier().unwrap();
                let mut pending = vec![communicator.start_all_gather(&me).unwrap()];
                if me != starter {
                    let all = pending.remove(0).wait().unwrap();
                    assert_eq!(all, (0..RANKS).collect::<Vec<_>>());
                    served.fetch_add(1, Ordering::SeqCst);
                }
                while served.load(Ordering::SeqCst) < RANKS - 1 {
                    if me == starter {
                        pending.push(communicator.start_all_gather(&me).unwrap());
                        assert!(pending.len() < 5000, "nobody was served by {starter}");
                    }
                    compute(Duration::from_millis(2));
                }
                // A rank that leaves makes later calls fail.
                all_have_ended.wait();
                communicator.leave();
            },
        );
    }
}
