use std::{fs, os::unix::fs::symlink, path::Path, time::Instant};

use fsgather_core::{Error, ProcessId, Rank};

use super::*;
use crate::layout::SampleFileName;

pub(super) fn header() -> SampleFileHeader {
    SampleFileHeader {
        encoding: "bytes".into(),
        config: Some([("temperature".to_owned(), "0.7".to_owned())].into()),
        world_size: 2,
        process: ProcessId::default(),
        job: Some("job 7".into()),
        began: 1_700_000_000,
    }
}

pub(super) fn name(attempt: u32, rank: u32) -> SampleFileName {
    let nonce = u64::from(attempt) << 32 | u64::from(rank);
    SampleFileName::first(attempt, Rank::new(rank), nonce)
}

fn writer(place: &Path, attempt: u32, rank: u32) -> SampleWriter {
    SampleWriter::create(place, name(attempt, rank), &header(), b"").unwrap()
}

fn add(writer: &SampleWriter, id: impl Into<SampleId>, value: &[u8]) {
    let added = writer.add(EntryKind::Result, &id.into(), &[value], &mut || Ok(()));
    added.unwrap();
}

fn value(read: &SampleDirectory, id: impl Into<SampleId>) -> Option<Vec<u8>> {
    let place = read.index().result(&id.into())?;
    Some(read.value(place).unwrap())
}

/// A file with the results 0 to 9, each of which takes some bytes.
fn ten_results(place: &Path) -> std::path::PathBuf {
    let writer = writer(place, 1, 0);
    for id in 0..10 {
        add(&writer, id, &[u8::try_from(id).unwrap(); 20]);
    }
    writer.close(&mut || Ok(())).unwrap();
    place.join(name(1, 0).to_string())
}

#[test]
fn flushed_results_are_read_while_the_writer_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let writer = writer(place.path(), 1, 0);
    let large = vec![7; 5 << 20];
    add(&writer, "large", &large);
    add(&writer, 3, b"");
    let failure = writer.add(EntryKind::Failure, &4.into(), &[b"no answer"], &mut || {
        Ok(())
    });
    failure.unwrap();
    writer.flush(&mut || Ok(())).unwrap();
    let read = SampleDirectory::read(place.path()).unwrap();
    assert_eq!(value(&read, "large"), Some(large));
    assert_eq!(value(&read, 3), Some(Vec::new()));
    assert_eq!(value(&read, "3"), None);
    let reason = read.index().failure(&4.into()).unwrap();
    assert_eq!(read.value(reason).unwrap(), b"no answer");
    assert_eq!(read.files()[0].header, Some(header()));
    assert_eq!(writer.progress().synced, 3);
    assert_eq!(writer.files(), [(name(1, 0), read.files()[0].len)]);
    add(&writer, 5, b"later");
    drop(writer);
    let read = SampleDirectory::read(place.path()).unwrap();
    assert_eq!(value(&read, 5), Some(b"later".to_vec()));
    assert_eq!(read.files()[0].damage, FileDamage::default());
}

#[test]
fn results_reach_the_file_without_a_flush() {
    let place = tempfile::tempdir().unwrap();
    let writer = writer(place.path(), 1, 0);
    add(&writer, 1, b"one");
    let began = Instant::now();
    while writer.progress().synced == 0 {
        assert!(began.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    let read = SampleDirectory::read(place.path()).unwrap();
    assert_eq!(value(&read, 1), Some(b"one".to_vec()));
}

#[test]
fn removed_and_replaced_files_are_an_error_at_the_next_flush() {
    for is_replaced in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("run");
        fs::create_dir(&directory).unwrap();
        let writer = writer(&directory, 1, 0);
        add(&writer, 1, b"one");
        writer.flush(&mut || Ok(())).unwrap();
        fs::rename(&directory, place.path().join("moved")).unwrap();
        if is_replaced {
            fs::create_dir(&directory).unwrap();
        }
        add(&writer, 2, b"two");
        let error = writer.flush(&mut || Ok(())).unwrap_err().to_string();
        assert!(error.contains("removed or replaced"), "{error}");
        assert!(writer.close(&mut || Ok(())).is_err());
    }
}

#[test]
fn writers_without_results_leave_no_file() {
    let place = tempfile::tempdir().unwrap();
    let writer = writer(place.path(), 1, 0);
    assert_eq!(SampleDirectory::names(place.path()).unwrap(), [name(1, 0)]);
    writer.close(&mut || Ok(())).unwrap();
    assert_eq!(SampleDirectory::names(place.path()).unwrap(), []);
    let closed = writer.add(EntryKind::Result, &1.into(), &[], &mut || Ok(()));
    assert!(closed.unwrap_err().to_string().contains("closed"));
}

#[test]
fn files_cut_at_each_byte_lose_only_what_is_behind() {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    let whole = fs::read(&path).unwrap();
    let mut counts = Vec::new();
    for len in 0..=whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        let read = SampleDirectory::read(place.path()).unwrap();
        for id in 0..10_u8 {
            let found = value(&read, id);
            assert!(found.is_none_or(|found| found == [id; 20]), "{len}");
        }
        let damage = read.files()[0].damage;
        assert_eq!(damage.inner_bytes, 0, "{len}");
        counts.push(read.index().len());
    }
    assert!(counts.is_sorted());
    assert_eq!(
        (counts[0], counts[whole.len() - 1], counts[whole.len()]),
        (0, 9, 10)
    );
}

#[test]
fn flipped_bits_cost_one_result_and_are_reported() {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    let whole = fs::read(&path).unwrap();
    let entries = whole.len()
        - SampleDirectory::read(place.path()).unwrap().files()[0]
            .header
            .as_ref()
            .map(|header| header.to_bytes(name(1, 0), b"").unwrap().len())
            .unwrap();
    for at in whole.len() - entries..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).unwrap();
        let read = SampleDirectory::read(place.path()).unwrap();
        assert_eq!(read.index().len(), 9, "byte {at}");
        for id in 0..10_u8 {
            assert!(value(&read, id).is_none_or(|found| found == [id; 20]));
        }
        assert_ne!(read.files()[0].damage, FileDamage::default());
    }
}

/// Reads a directory in which something is in the place of the second of two files, and returns the damage of that.
fn damage_of_second(make: impl FnOnce(&Path, &Path)) -> String {
    let place = tempfile::tempdir().unwrap();
    let good = ten_results(place.path());
    make(&good, &place.path().join(name(2, 0).to_string()));
    let read = SampleDirectory::read(place.path()).unwrap();
    let [first, second] = read.files() else {
        panic!("{:?}", read.files());
    };
    assert!(!first.is_damaged() && second.is_damaged(), "{second:?}");
    assert_eq!(read.index().len(), 10);
    assert_eq!(SampleDirectory::last_attempt(place.path()).unwrap(), 1);
    second.damage_text()
}

#[test]
fn anything_else_in_the_place_of_a_file_is_damage() {
    let link = damage_of_second(|good, path| symlink(good, path).unwrap());
    assert!(link.contains("link"), "{link}");
    let dangling = damage_of_second(|_, path| symlink("nowhere", path).unwrap());
    assert_eq!(dangling, link);
    let directory = damage_of_second(|_, path| fs::create_dir(path).unwrap());
    assert_eq!(directory, "it is not a file");
    let socket = damage_of_second(|_, path| {
        std::os::unix::net::UnixListener::bind(path).unwrap();
    });
    let pipe = damage_of_second(|_, path| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
    });
    assert_eq!((&socket, &pipe), (&directory, &directory));
    let empty = damage_of_second(|_, path| fs::write(path, b"").unwrap());
    assert_eq!(empty, "it is empty");
    let other = damage_of_second(|_, path| fs::write(path, [b'x'; 500]).unwrap());
    assert!(other.contains("header is damaged"), "{other}");
    let swapped = damage_of_second(|good, path| {
        fs::copy(good, path).unwrap();
    });
    assert!(swapped.contains("that of another file"), "{swapped}");
}

#[test]
fn any_flipped_bit_of_a_header_is_damage_and_no_other_version() {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    let whole = fs::read(&path).unwrap();
    for bit in 0..header().to_bytes(name(1, 0), b"").unwrap().len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &damaged).unwrap();
        let read = SampleDirectory::read(place.path()).unwrap();
        assert!(read.files()[0].is_damaged(), "bit {bit}");
        assert!(read.index().is_empty());
    }
}

#[test]
fn files_of_another_version_are_an_error() {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    let body = b"anything";
    let mut bytes = file_header::preamble_of_version(2, body, name(1, 0));
    bytes.extend_from_slice(body);
    fs::write(&path, &bytes).unwrap();
    let error = SampleDirectory::read(place.path()).unwrap_err();
    assert!(matches!(error, Error::Incompatible { .. }));
    assert!(error.to_string().contains(&path.display().to_string()));
}

#[test]
fn cut_files_are_seen_unless_another_part_follows() {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let read = SampleDirectory::read(place.path()).unwrap();
    assert!(read.files()[0].is_cut() && !read.files()[0].is_damaged());
    assert_eq!((read.index().len(), read.lost()), (9, 0));
    let next = SampleFileName {
        part: 1,
        ..name(1, 0)
    };
    fs::write(place.path().join(next.to_string()), &whole).unwrap();
    let read = SampleDirectory::read(place.path()).unwrap();
    assert!(read.files().iter().all(|file| !file.is_cut()));
    assert_eq!((read.index().len(), read.lost()), (10, 0));
}

#[test]
fn expected_samples_are_read_from_files_without_entries() {
    let place = tempfile::tempdir().unwrap();
    let open = |attempt, expectation| {
        SampleWriter::create(place.path(), name(attempt, 0), &header(), expectation).unwrap()
    };
    let killed = open(1, &b"six"[..]);
    let expected = || {
        let read = SampleDirectory::read(place.path()).unwrap();
        read.index()
            .expectation()
            .map(|place| read.value(place).unwrap())
    };
    assert_eq!(expected().as_deref(), Some(&b"six"[..]), "while it runs");
    drop(killed);
    assert_eq!(expected(), None);
    let kept = open(2, b"twelve");
    kept.keep_file();
    drop(kept);
    drop(open(3, b""));
    assert_eq!(expected().as_deref(), Some(&b"twelve"[..]));
}

/// Stores a received copy of the file with ten results over something.
fn receive_over(make: impl FnOnce(&Path, &[u8])) -> (SampleDirectory, usize) {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    let whole = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    make(&path, &whole);
    receive_sample_file(place.path(), name(1, 0), whole.len() as u64, &whole[..]).unwrap();
    let read = SampleDirectory::read(place.path()).unwrap();
    assert_eq!(read.index().len(), 10);
    (read, fs::read_dir(place.path()).unwrap().count())
}

#[test]
fn damaged_copies_are_replaced_by_received_ones() {
    let changed = |whole: &[u8], at: usize| {
        let mut changed = whole.to_vec();
        changed[at] ^= 1;
        changed
    };
    let (read, files) = receive_over(|_, _| {});
    assert_eq!((read.files()[0].damage, files), (FileDamage::default(), 1));
    for at in [5, 60] {
        let (read, files) = receive_over(|path, whole| {
            fs::write(path, changed(whole, whole.len() - at)).unwrap();
        });
        assert_eq!((read.files()[0].damage, files), (FileDamage::default(), 1));
    }
    let (read, files) = receive_over(|path, _| fs::create_dir_all(path.join("below")).unwrap());
    assert_eq!((read.files().len(), files), (1, 2));
    let (_, files) = receive_over(|path, _| symlink("nowhere", path).unwrap());
    assert_eq!(files, 2, "nothing is removed that is not a copy");
}

#[test]
fn received_copies_never_cost_an_entry() {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let entry = (whole.len() - header().to_bytes(name(1, 0), b"").unwrap().len()) / 10;
    damaged[whole.len() - 9 * entry - 1] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let lost = SampleDirectory::read(place.path()).unwrap();
    assert_eq!((lost.index().len(), lost.lost()), (9, 1));
    // The other copy is an earlier one.
    let earlier = &whole[..whole.len() - 5 * entry];
    let receive = || {
        receive_sample_file(place.path(), name(1, 0), earlier.len() as u64, earlier).unwrap();
        let read = SampleDirectory::read(place.path()).unwrap();
        assert_eq!((read.files().len(), read.index().len()), (2, 10));
        assert_eq!(read.lost(), 0);
    };
    receive();
    receive();
}

#[test]
fn samples_cannot_be_added_to_a_file_twice() {
    let place = tempfile::tempdir().unwrap();
    ten_results(place.path());
    let again = SampleWriter::create(place.path(), name(1, 0), &header(), b"").unwrap_err();
    assert!(matches!(again, Error::Storage { .. }));
}

#[test]
fn read_only_and_missing_directories_are_named() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = SampleDirectory::make(&file.join("below")).unwrap_err();
    assert!(error.to_string().contains(&file.display().to_string()));
    let nowhere = place.path().join("nowhere");
    let error = SampleWriter::create(&nowhere, name(1, 0), &header(), b"").unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn ten_thousand_files_are_read_together() {
    let place = tempfile::tempdir().unwrap();
    let path = ten_results(place.path());
    assert!(path.exists());
    for attempt in 2..10_000 {
        let mut bytes = header().to_bytes(name(attempt, 0), b"").unwrap();
        let id = SampleId::from(attempt);
        let nonce = name(attempt, 0).nonce;
        entry::encode_entry(&mut bytes, nonce, 0, EntryKind::Result, &id, &[b"x"]).unwrap();
        fs::write(place.path().join(name(attempt, 0).to_string()), bytes).unwrap();
    }
    let read = SampleDirectory::read(place.path()).unwrap();
    assert_eq!((read.files().len(), read.index().len()), (9_999, 9_998 + 2));
    // More files than are kept open.
    assert!((2..10_000).all(|id| id < 10 || value(&read, id) == Some(b"x".to_vec())));
}
