use super::*;

pub(crate) fn header(rank: u32, process: ProcessId) -> CallsHeader {
    CallsHeader {
        process,
        communicator: Uuid::from_u128(7),
        rank: Rank::new(rank),
        called: Rank::new(rank),
        world_size: 4,
        began: 1_800_000_000_000_000_000,
        job: Some("4711".into()),
        directory: None,
    }
}

#[test]
fn a_directory_made_only_for_calls_goes_with_the_last() {
    let place = tempfile::tempdir().unwrap();
    let before = SystemTime::now();
    let rendezvous = crate::make_rendezvous(place.path()).unwrap();
    let (_, path) = create(
        &rendezvous,
        &header(0, crate::this_process().unwrap()),
        8192,
    )
    .unwrap();
    remove_unused_rendezvous(&rendezvous, before);
    assert!(path.exists());
    remove(&path);
    // An older directory belongs to others.
    let later = SystemTime::now() + Duration::from_secs(1);
    remove_unused_rendezvous(&rendezvous, later);
    assert!(rendezvous.exists());
    remove_unused_rendezvous(&rendezvous, before);
    let is_told = listing::hold(place.path())
        .and_then(listing::examine_open)
        .is_ok_and(|made| made.born.is_some());
    assert_eq!(rendezvous.exists(), !is_told);
    // The next rank makes it again.
    let (_, path) = create(
        &rendezvous,
        &header(0, crate::this_process().unwrap()),
        8192,
    )
    .unwrap();
    assert!(path.exists());
}

#[test]
fn what_was_made_is_read_and_listed_and_has_its_name_once() {
    let place = tempfile::tempdir().unwrap();
    let header = header(3, crate::this_process().unwrap());
    let (made, path) = create(place.path(), &header, 8192).unwrap();
    made.write_all_at(b"records", HEADER_LEN as u64).unwrap();
    let found = read(&path, AllowedOwner::ThisUser).unwrap();
    assert_eq!(
        (found.header, found.records),
        (header.clone(), b"records".to_vec())
    );
    let listed = list(place.path()).unwrap();
    assert_eq!(listed, [(header.communicator, Rank::new(3), path)]);
    create(place.path(), &header, 8192).unwrap_err();
}

#[test]
fn a_file_writer_is_believed_only_for_this_users_files() {
    let place = tempfile::tempdir().unwrap();
    let header = header(3, crate::this_process().unwrap());
    let (_, path) = create(place.path(), &header, 8192).unwrap();
    let own = crate::check_writable(place.path()).unwrap();
    assert_eq!(writer(&path, own), Some(header.process));
    assert_eq!(writer(&path, OwnUid(own.0 + 1)), None);
    assert_eq!(writer(place.path(), own), None);
}

#[test]
fn selected_records_are_read_if_the_file_has_a_count() {
    let place = tempfile::tempdir().unwrap();
    let (made, path) = create(place.path(), &header(3, ProcessId::default()), 8192).unwrap();
    made.write_all_at(b"first second third ", HEADER_LEN as u64)
        .unwrap();
    let last_two = |count: u64| {
        assert_eq!(count, 3);
        vec![13..18, 0..5]
    };
    assert_eq!(
        read_some(&path, &last_two, AllowedOwner::ThisUser)
            .unwrap()
            .records
            .len(),
        19
    );
    write_count(&made, 3).unwrap();
    let some = read_some(&path, &last_two, AllowedOwner::ThisUser).unwrap();
    assert_eq!(some.records, b"thirdfirst");
    assert_eq!(
        some.header,
        read(&path, AllowedOwner::ThisUser).unwrap().header
    );
    let beyond = |_| vec![13..18, 0..5000];
    read_some(&path, &beyond, AllowedOwner::ThisUser).unwrap_err();
}

#[test]
fn what_the_same_process_has_made_is_opened_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let own = header(3, crate::this_process().unwrap());
    for records in [b"first", b"later"] {
        let made = create_or_open(place.path(), &own, 8192).unwrap();
        made.write_all_at(records, HEADER_LEN as u64).unwrap();
        assert_eq!(
            read(&place.path().join(own.name()), AllowedOwner::ThisUser)
                .unwrap()
                .records,
            records
        );
    }
    let other = header(3, ProcessId::default());
    create_or_open(place.path(), &other, 8192).unwrap_err();
    let linked = header(1, own.process.clone());
    std::os::unix::fs::symlink(
        place.path().join(own.name()),
        place.path().join(linked.name()),
    )
    .unwrap();
    create_or_open(place.path(), &linked, 8192).unwrap_err();
}

#[test]
fn touched_files_are_kept_after_a_day_without_calls() {
    let place = tempfile::tempdir().unwrap();
    // A process that runs here, invisible to others, and one that ran elsewhere.
    let me = crate::this_process().unwrap();
    let elsewhere = ProcessId {
        boot_id: "another".into(),
        ..me.clone()
    };
    let paths = [(0, &me), (1, &elsewhere)].map(|(rank, process)| {
        let (made, path) = create(place.path(), &header(rank, process.clone()), 8192).unwrap();
        let day = Duration::from_secs(90_000);
        made.set_modified(SystemTime::now() - day).unwrap();
        path
    });
    touch_all(place.path(), Uuid::from_u128(8), &me);
    let age = |path: &Path| path.metadata().unwrap().modified().unwrap().elapsed();
    assert!(
        paths
            .iter()
            .all(|path| age(path).unwrap().as_secs() > 86_400)
    );
    touch_all(place.path(), Uuid::from_u128(7), &me);
    assert!(age(&paths[0]).unwrap().as_secs() < 86_400);
    crate::sweep_calls(place.path(), crate::Rules::default());
    assert_eq!(paths.map(|path| path.exists()), [true, false]);
}

#[test]
fn a_long_job_is_cut_and_damage_is_told() {
    let mut long = header(0, ProcessId::default());
    long.job = Some("ä".repeat(5000));
    let bytes = long.to_bytes().unwrap();
    assert_eq!(bytes.len(), HEADER_LEN);
    let read = CallsHeader::from_bytes(&bytes).unwrap();
    assert_eq!(read.job.unwrap().len(), LONGEST_JOB);
    let used = FIXED_LEN + usize::from(bytes[12]) + 256 * usize::from(bytes[13]) + CHECKSUM_LEN;
    for at in (0..used).filter(|at| !(10..12).contains(at)) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        CallsHeader::from_bytes(&changed).unwrap_err();
    }
    for cut in 0..used {
        CallsHeader::from_bytes(&bytes[..cut]).unwrap_err();
    }
}
