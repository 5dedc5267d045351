use std::{path::Path, process::Command};

use fsgather_testkit::process;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    directory::{owner::tests::record, rendezvous_directory::check_writable},
    payload::{collect_policy::CollectPolicy, compression::supported},
};

fn id() -> PayloadId {
    PayloadId {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(5),
        rank: Rank::new(1),
    }
}

fn make(place: &Path) -> GatherDir {
    let own = check_writable(place).unwrap();
    GatherDir::create(place, 0o700, &record(1), own).unwrap()
}

fn names_in(directory: &Path) -> Vec<String> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn payloads_are_invisible_until_published() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    let mut writer = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    writer.write_all(&vec![7; 2 * CHUNK_LEN]).unwrap();
    assert!(names_in(&directory.payloads()).is_empty());
    let name = writer.name().to_string();
    writer.publish().unwrap();
    assert_eq!(names_in(&directory.payloads()), [name]);
    assert!(names_in(&directory.staging()).is_empty());
}

#[test]
fn every_attempt_has_a_name_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    for _ in 0..20 {
        let writer = directory
            .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
            .unwrap();
        writer.publish().unwrap();
    }
    assert_eq!(names_in(&directory.payloads()).len(), 20);
}

#[test]
fn dropping_a_writer_removes_what_it_wrote() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    let mut writer = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    writer.write_all(&vec![7; CHUNK_LEN]).unwrap();
    assert_eq!(names_in(&directory.staging()).len(), 1);
    drop(writer);
    assert!(names_in(&directory.staging()).is_empty());
}

#[test]
fn ranks_outside_the_world_do_not_write() {
    let place = tempfile::tempdir().unwrap();
    let outside = PayloadId {
        rank: Rank::new(4),
        ..id()
    };
    let error = make(place.path())
        .create_payload(outside, Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
}

#[test]
fn an_error_of_the_progress_hook_ends_the_writing_and_sticks() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    let ended = Error::config("the call has failed elsewhere");
    let mut writer = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| {
            Err(ended.clone())
        })
        .unwrap();
    assert_eq!(writer.take_error(), None);
    let text = writer
        .write_all(&vec![7; CHUNK_LEN])
        .unwrap_err()
        .to_string();
    assert_eq!(text, ended.to_string());
    assert!(writer.write(b"more").is_err());
    assert_eq!(writer.take_error(), Some(ended.clone()));
    assert_eq!(writer.publish().unwrap_err(), ended);
    assert!(names_in(&directory.staging()).is_empty());
    assert!(names_in(&directory.payloads()).is_empty());
}

/// Bytes with compressible and incompressible chunks.
fn uneven(len: usize) -> Vec<u8> {
    let mut bytes = vec![7; len];
    StdRng::seed_from_u64(3).fill_bytes(&mut bytes[len / 3..len / 2]);
    bytes
}

#[test]
fn written_bytes_can_be_taken_back_at_any_step() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    for setting in supported() {
        for len in [0, 9, CHUNK_LEN, 9 * CHUNK_LEN + 5] {
            for step in [None, Some(PublishStep::Written), Some(PublishStep::Closed)] {
                let mut writer = directory
                    .create_payload(id(), Encoding(0), setting, |_| Ok(()))
                    .unwrap();
                let bytes = uneven(len);
                writer.write_all(&bytes).unwrap();
                if step.is_some() {
                    let stopped = writer.run(&mut |reached| {
                        if step == Some(reached) {
                            return Err(Error::config("no room"));
                        }
                        Ok(())
                    });
                    stopped.unwrap_err();
                }
                assert_eq!(
                    writer.take_back(),
                    Some(bytes),
                    "{setting:?} {len} {step:?}"
                );
                assert!(names_in(&directory.staging()).is_empty());
            }
        }
    }
}

#[test]
fn what_was_taken_before_the_file_failed_can_be_taken_back() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    let bytes = uneven(40 * CHUNK_LEN);
    for setting in supported() {
        for before in [0, 2 * CHUNK_LEN, 20 * CHUNK_LEN + 5] {
            let mut writer = directory
                .create_payload(id(), Encoding(0), setting, |_| Ok(()))
                .unwrap();
            writer.write_all(&bytes[..before]).unwrap();
            // A file that accepts no more data.
            writer.staged.file = Some(file::open(&writer.staged.path).unwrap());
            let mut at = before;
            let failed = loop {
                match writer.write(&bytes[at..]) {
                    Ok(0) => break writer.try_publish().is_err(),
                    Ok(taken) => at += taken,
                    Err(_) => break true,
                }
            };
            assert!(failed, "{setting:?} {before}");
            let taken = usize::try_from(writer.written()).unwrap();
            assert!(taken >= before, "{setting:?} {before} {taken}");
            assert!(
                writer.take_back().unwrap() == bytes[..taken],
                "{setting:?} {before} {taken}"
            );
        }
    }
}

#[test]
fn what_is_not_in_the_file_any_more_is_not_taken_back() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    let mut writer = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    writer.write_all(&vec![7; 2 * CHUNK_LEN]).unwrap();
    let [name] = &names_in(&directory.staging())[..] else {
        panic!("one staged file");
    };
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(directory.staging().join(name))
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", CHUNK_LEN as u64).unwrap();
    assert_eq!(writer.take_back(), None);
    assert!(names_in(&directory.staging()).is_empty());
}

/// Stops publishing after `step`, as a crash would, and returns the announcement, if any.
fn crash_after(directory: &GatherDir, step: Option<PublishStep>) -> Option<Locator> {
    let mut writer = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    writer.write_all(&vec![7; CHUNK_LEN + 9]).unwrap();
    let announced = writer.run(&mut |reached| {
        if step == Some(reached) {
            Err(Error::config("crash"))
        } else {
            Ok(())
        }
    });
    // A crash runs no destructor: the files stay.
    std::mem::forget(writer);
    announced.ok()
}

#[test]
fn publishing_crashes_show_all_or_none_and_can_be_cleaned() {
    for mode in [PublishMode::Rename, PublishMode::Link, PublishMode::Direct] {
        for step in [
            Some(PublishStep::Written),
            Some(PublishStep::Synced),
            Some(PublishStep::Closed),
            Some(PublishStep::Published),
            None,
        ] {
            let place = tempfile::tempdir().unwrap();
            let directory = make(place.path());
            let mut facts = directory.facts().clone();
            facts.publish = mode;
            let directory = directory.with_facts(facts);
            let announced = crash_after(&directory, step);
            let visible = names_in(&directory.payloads());
            let is_published = matches!(step, Some(PublishStep::Published) | None);
            if mode == PublishMode::Direct {
                assert_eq!(visible.len(), 1);
            } else {
                assert_eq!(
                    visible.len(),
                    usize::from(is_published),
                    "{mode:?} {step:?}"
                );
            }
            // A file with its final name is complete.
            if is_published {
                let len = std::fs::metadata(directory.payloads().join(&visible[0]))
                    .unwrap()
                    .len();
                assert_eq!(
                    Some(len),
                    crate::payload::format::file_len(CHUNK_LEN as u64 + 9, 2)
                );
            }
            assert_eq!(announced.is_some(), step.is_none());
            if let Some(locator) = announced {
                let policy = CollectPolicy::default();
                let payload = directory
                    .collect(&locator, &policy, &mut |_| Ok(()))
                    .unwrap();
                assert!(*payload == vec![7; CHUNK_LEN + 9]);
            }
            assert_eq!(directory.remove().to_string(), "everything was removed");
            assert!(names_in(place.path()).is_empty());
        }
    }
}

#[test]
fn a_crash_while_writing_leaves_a_removable_staged_file() {
    for whole_chunks in 0..3 {
        let place = tempfile::tempdir().unwrap();
        let directory = make(place.path());
        let mut writer = directory
            .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
            .unwrap();
        writer
            .write_all(&vec![7; whole_chunks * CHUNK_LEN])
            .unwrap();
        std::mem::forget(writer);
        assert!(names_in(&directory.payloads()).is_empty());
        assert_eq!(names_in(&directory.staging()).len(), 1);
        assert!(directory.remove().is_complete());
        assert!(names_in(place.path()).is_empty());
    }
}

/// A small tmpfs, unmounted on drop. Tests that need it are ignored, since mounting takes privileges.
pub(crate) struct SmallDisk(pub(crate) tempfile::TempDir);

impl SmallDisk {
    pub(crate) fn new(options: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(place.path());
        let mounted = process::status(&mut mount);
        assert!(
            mounted.is_ok_and(|status| status.success()),
            "a tmpfs cannot be mounted: run this as root, or under `unshare --map-root-user --mount`"
        );
        // Made only if it is mounted, since dropping it unmounts.
        Self(place)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = process::status(Command::new("umount").arg("-l").arg(self.0.path()));
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
#[ignore = "needs root to mount a tmpfs: scripts/prove mounts"]
fn a_full_disk_names_its_figures_and_frees_written_bytes() {
    let disk = SmallDisk::new("size=4m");
    let directory = make(disk.0.path());
    let mut writer = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    writer.expect_len(9 << 20);
    let io_error = writer.write_all(&vec![7; 9 << 20]).unwrap_err();
    let error = writer.take_error().unwrap();
    assert_eq!(io_error.to_string(), error.to_string());
    assert!(error.is_transient(), "space may be made by somebody else");
    let text = error.to_string();
    for part in ["No space left", "needs 9.0 MiB", "are free", "FSGATHER_DIR"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(writer.publish().unwrap_err(), error);
    assert!(names_in(&directory.staging()).is_empty());
    let mut second = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    second.write_all(&vec![7; 2 << 20]).unwrap();
    let second = second.publish().unwrap();
    directory.reclaim(second.name).unwrap();
    // Random bytes, which cannot be compressed; the compressed length of others is unknown in advance.
    let mut noise = vec![0; 9 << 20];
    StdRng::seed_from_u64(7).fill_bytes(&mut noise);
    for setting in supported() {
        let mut writer = directory
            .create_payload(id(), Encoding(0), setting, |_| Ok(()))
            .unwrap();
        writer.expect_len(9 << 20);
        writer.write_all(&noise).unwrap_err();
        let text = writer.take_error().unwrap().to_string();
        let is_known = setting == CompressionSetting::None;
        assert_eq!(text.contains("needs 9.0 MiB or more"), is_known, "{text}");
        assert_eq!(text.contains("needs up to 9.0 MiB"), !is_known, "{text}");
        drop(writer);
        assert!(names_in(&directory.staging()).is_empty());
    }
    assert!(directory.remove().is_complete());
}

#[test]
#[ignore = "needs root to mount a tmpfs: scripts/prove mounts"]
fn missing_inodes_or_write_access_name_the_directory() {
    let disk = SmallDisk::new("size=4m,nr_inodes=2");
    let place = disk.0.path();
    std::fs::write(place.join("last inode"), b"").unwrap();
    let text = check_writable(place).unwrap_err().to_string();
    assert!(
        text.contains("No space left") && text.contains("inodes"),
        "{text}"
    );
    assert!(text.starts_with(&format!("cannot write in {}", place.display())));
    let remounted = process::status(Command::new("mount").args(["-o", "remount,ro"]).arg(place));
    assert!(remounted.is_ok_and(|status| status.success()));
    let text = check_writable(place).unwrap_err().to_string();
    assert!(text.contains("Read-only file system"), "{text}");
}

#[test]
fn a_large_piece_after_a_small_one_is_not_copied_as_a_whole() {
    let place = tempfile::tempdir().unwrap();
    let directory = make(place.path());
    let mut writer = directory
        .create_payload(id(), Encoding(0), CompressionSetting::None, |_| Ok(()))
        .unwrap();
    let large = vec![7; 6 * CHUNK_LEN];
    writer.write_all(b"head").unwrap();
    writer.write_all(&large).unwrap();
    writer.write_all(&large[1..]).unwrap();
    assert!(writer.buffer.capacity() <= 2 * CHUNK_LEN);
    let locator = writer.publish().unwrap();
    let collected = directory
        .collect(&locator, &CollectPolicy::default(), &mut |_| Ok(()))
        .unwrap();
    assert_eq!(*collected, [b"head", &large[..], &large[1..]].concat()[..]);
}
