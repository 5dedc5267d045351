//! Tests of payloads that come from a stream and are read as one, piece by piece, on each path.

use std::{
    fs,
    io::{self, Read},
    sync::{Barrier, LazyLock},
};

use fsgather::{
    ErrorKind, Stream, Transport,
    parts::{PartReader, Parts},
};

use super::{RANKS, met::on_all};

/// Longer than what a way holds in memory at a time.
const LEN: usize = (9 << 20) + 5;

/// How far the bytes of one rank are from those of the next.
const STEP: usize = 13;

/// The last rank's is short, and the one before it empty.
fn bytes_of(rank: u32) -> &'static [u8] {
    static ALL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let bytes =
            (0..LEN + STEP * RANKS as usize).map(|at| (at / 7 + at / 65_537).to_le_bytes()[0]);
        bytes.collect()
    });
    let len = match RANKS - rank {
        1 => 1000,
        2 => 0,
        _ => LEN,
    };
    &ALL[STEP * rank as usize..][..len]
}

/// A stream that yields its bytes in small parts.
struct Slow(&'static [u8]);

impl Read for Slow {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(77_777);
        self.0.read(&mut into[..len])
    }
}

/// Reads one whole in pieces of odd lengths.
fn check(mut reader: PartReader, rank: u32) {
    assert_eq!(reader.rank().get(), rank);
    let mut expected = bytes_of(rank);
    assert_eq!(reader.total_len(), expected.len() as u64);
    let mut buffer = vec![0; 300_001];
    loop {
        let read = reader.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        let (now, later) = expected.split_at(read);
        assert!(
            now == &buffer[..read],
            "rank {rank}, {} bytes before its end",
            expected.len()
        );
        expected = later;
    }
    assert_eq!(expected.len(), 0);
    assert!(reader.take_error().is_none());
}

#[test]
fn every_part_is_read_piece_by_piece_the_own_one_as_well() {
    for transport in [Transport::Filesys, Transport::Memory, Transport::Auto] {
        for root in [0, RANKS - 1] {
            let place = tempfile::tempdir().unwrap();
            let named = place.path().to_owned();
            on_all(
                move |builder| builder.directory(&named).transport(transport),
                move |communicator| {
                    let communicator = communicator.unwrap();
                    let me = communicator.rank().get();
                    let mut own = Slow(bytes_of(me));
                    let parts = communicator.gather(Stream::new(&mut own), root).unwrap();
                    assert_eq!(parts.is_some(), me == root);
                    let readers = parts.into_iter().flat_map(Parts::into_readers);
                    for (rank, reader) in (0..).zip(readers) {
                        check(reader.unwrap(), rank);
                    }
                    let all = communicator
                        .all_gather(Stream::new(&mut Slow(bytes_of(me))))
                        .unwrap();
                    assert_eq!(all.len(), RANKS as usize);
                    for (rank, payload) in (0..).zip(all) {
                        assert!(*payload == *bytes_of(rank), "rank {rank}");
                    }
                    communicator.close().unwrap();
                },
            );
        }
    }
}

/// A stream that breaks after some bytes.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the tape is torn"));
        }
        let len = into.len().min(self.0);
        self.0 -= len;
        Ok(len)
    }
}

#[test]
fn a_stream_that_breaks_is_told_to_all_with_its_rank_and_reason() {
    for transport in [Transport::Filesys, Transport::Memory] {
        let place = tempfile::tempdir().unwrap();
        let named = place.path().to_owned();
        let said = on_all(
            move |builder| builder.directory(&named).transport(transport),
            |communicator| {
                let communicator = communicator.unwrap();
                let me = communicator.rank().get();
                let result = if me == 1 {
                    communicator.all_gather(Stream::new(&mut Broken(9 << 20)))
                } else {
                    communicator.all_gather(Stream::new(&mut Slow(bytes_of(me))))
                };
                result.map(drop).unwrap_err()
            },
        );
        for (rank, error) in (0..).zip(said) {
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
            let text = error.to_string();
            assert!(
                text.contains("the tape is torn") && text.contains("rank 1"),
                "rank {rank}: {text}"
            );
        }
    }
}

/// Number of files of this length that this process has open that have no name.
fn nameless_files(len: u64) -> usize {
    let opened = fs::read_dir("/proc/self/fd").unwrap();
    let paths = opened.filter_map(|entry| Some(entry.ok()?.path()));
    let nameless = paths.filter(|path| {
        let name = fs::read_link(path).unwrap_or_default();
        name.to_string_lossy().ends_with(" (deleted)")
    });
    nameless
        .filter(|path| fs::metadata(path).is_ok_and(|found| found.len() == len))
        .count()
}

#[test]
fn a_long_stream_stays_in_a_file_until_the_root_asks() {
    // Of no other test.
    const STREAM_BYTES: u64 = (8 << 20) + 4711;
    let is_seen = Barrier::new(RANKS as usize);
    on_all(
        |builder| builder.transport(Transport::Memory),
        move |communicator| {
            let communicator = communicator.unwrap();
            let is_long = communicator.rank().get() == 0;
            let len = if is_long { STREAM_BYTES } else { 5 };
            let mut own = io::repeat(7).take(len);
            let parts = communicator.gather(Stream::new(&mut own), 1).unwrap();
            let files = nameless_files(STREAM_BYTES);
            is_seen.wait();
            assert_eq!(files, 1);
            let lens = parts.map(|parts| parts.map(|part| part.unwrap().1.len() as u64));
            assert!(lens.is_none_or(|lens| lens.eq([STREAM_BYTES, 5, 5])));
            communicator.close().unwrap();
            assert_eq!(nameless_files(STREAM_BYTES), 0);
        },
    );
}
