use fsgather_core::{ChannelId, Epoch, Progress, Rank};
use fsgather_testkit::pace::within_patience;

use super::*;
use crate::{
    layout::RendezvousEntry,
    lifecycle::place_for_tests::{ended, place},
    os::{process::this_process, retry_budget::RetryBudget},
    payload::collect::tests::gather_dir,
};

fn beats(directory: &GatherDir) -> Vec<u64> {
    let names = listing::names(directory.path()).unwrap();
    let beats = names.iter().filter_map(|name| GatherEntry::parse(name));
    let mut counters: Vec<u64> = beats
        .filter_map(|entry| match entry {
            GatherEntry::Beat(counter) => Some(counter),
            _ => None,
        })
        .collect();
    counters.sort_unstable();
    counters
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let mut retries = RetryBudget::new(Duration::from_secs(30));
    let nobody: &mut Progress<'_> = &mut |_| Ok(());
    while !condition() {
        assert!(retries.pause(nobody).unwrap(), "waited in vain");
    }
}

#[test]
fn payloads_of_a_rank_that_has_gone_are_removed_and_no_others() {
    let (_place, directory) = gather_dir();
    let id = |epoch| PayloadId {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(epoch),
        rank: Rank::ZERO,
    };
    let publish = |epoch| {
        let encoding = crate::Encoding(0);
        let writer = directory.create_payload(
            id(epoch),
            encoding,
            fsgather_core::CompressionSetting::None,
            |_| Ok(()),
        );
        writer.unwrap().publish().unwrap().name
    };
    publish(1);
    let other = publish(2);
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory.clone(), None);
    care.reclaim_of(id(1));
    care.reclaim_of(id(1));
    assert!(care.finish());
    let left = listing::names(&directory.path().join("payloads")).unwrap();
    assert_eq!(left, [other.to_string()]);
}

#[test]
fn a_sweep_removes_an_earlier_attempts_leftovers_only() {
    let place = place();
    let mine = place.gather(1, this_process().unwrap(), Some("7"));
    let stale = place.gather(2, ended(), Some("7"));
    let other = place.gather(3, ended(), Some("8"));
    let care = Janitor::start(&mine, &BackgroundThreads::default())
        .unwrap()
        .care_for(mine.clone(), None);
    care.sweep(Some("7".into()));
    assert!(care.finish());
    assert!(!stale.path().exists());
    assert!(mine.path().exists() && other.path().exists());
}

#[test]
fn end_of_its_thread_is_reported_as_unfinished_work() {
    let (_place, directory) = gather_dir();
    let janitor = Janitor::start(&directory, &BackgroundThreads::default()).unwrap();
    let care = janitor.care_for(directory.clone(), None);
    let other = janitor.care_for(directory, None);
    assert!(care.finish());
    janitor.thread.order(Order::Stop);
    assert!(!other.finish());
}

#[test]
fn the_beat_has_a_new_name_each_time_and_at_most_two_at_once() {
    let (_place, directory) = gather_dir();
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory.clone(), Some(Duration::from_millis(5)));
    wait_until(|| {
        let counters = beats(&directory);
        assert!(counters.len() <= 2, "{counters:?}");
        counters.last().is_some_and(|&last| last >= 3)
    });
    assert!(care.finish());
    assert_eq!(beats(&directory).len(), 1);
    assert!(directory.remove().is_complete());
}

#[test]
fn an_owner_goes_on_where_somebody_has_removed_its_beat() {
    let (_place, directory) = gather_dir();
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory.clone(), Some(Duration::from_millis(5)));
    // Each directory that the janitor would remove is gone by then, or about to be removed.
    let mut removed = 0;
    wait_until(|| {
        for counter in beats(&directory) {
            let name = GatherEntry::Beat(counter).to_string();
            removed += usize::from(std::fs::remove_file(directory.path().join(name)).is_ok());
        }
        removed >= 5
    });
    care.check().unwrap();
    assert!(care.finish());
}

#[test]
fn members_do_not_beat_but_reclaim() {
    let (_place, directory) = gather_dir();
    let name = PayloadName::new(ChannelId::WORLD, Epoch::FIRST, Rank::ZERO, 9);
    let path = directory.payloads().join(name.to_string());
    std::fs::write(&path, b"").unwrap();
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory.clone(), None);
    care.reclaim(name);
    care.reclaim(name);
    // Earlier orders are completed before it ends.
    assert!(care.finish());
    assert!(!path.exists());
    assert!(beats(&directory).is_empty());
}

#[test]
fn dropping_ends_it_long_before_the_next_beat() {
    let (_place, directory) = gather_dir();
    let hourly = Some(Duration::from_secs(3600));
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory, hourly);
    within_patience(|| drop(care));
}

#[test]
fn an_owner_whose_directory_has_vanished_is_told_so() {
    let (_place, directory) = gather_dir();
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory.clone(), Some(Duration::from_millis(5)));
    care.check().unwrap();
    while !directory.remove().is_complete() {}
    wait_until(|| care.check().is_err());
    let text = care.check().unwrap_err().to_string();
    let path = directory.path().to_str().unwrap();
    assert!(
        text.contains(path) && text.contains("it has vanished"),
        "{text}"
    );
}

#[test]
fn an_owner_whose_directory_was_replaced_is_told_so() {
    let (place, directory) = gather_dir();
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory.clone(), Some(Duration::from_millis(5)));
    care.check().unwrap();
    // Made elsewhere first, so that it is never missing for long enough to count as vanished.
    let other = place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        &other,
        rustix::fs::CWD,
        directory.path(),
        rustix::fs::RenameFlags::EXCHANGE,
    )
    .unwrap();
    wait_until(|| care.check().is_err());
    let text = care.check().unwrap_err().to_string();
    assert!(text.contains("is in its place"), "{text}");
}

#[test]
fn an_owner_whose_directory_was_condemned_is_told_by_whom() {
    let (place, directory) = gather_dir();
    let care = Janitor::start(&directory, &BackgroundThreads::default())
        .unwrap()
        .care_for(directory.clone(), Some(Duration::from_millis(5)));
    care.check().unwrap();
    let mark = RendezvousEntry::Condemned {
        id: directory.facts().id,
        nonce: 7,
    };
    // Written elsewhere first, so that it is seen whole.
    let draft = place.path().join("draft");
    let text = format!("fsgather clean on n3 (pid 8)\n{}\n", directory.facts().id);
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, place.path().join(mark.to_string())).unwrap();
    wait_until(|| care.check().is_err());
    let text = care.check().unwrap_err().to_string();
    assert!(
        text.contains("condemned by fsgather clean on n3 (pid 8)"),
        "{text}"
    );
}

#[test]
fn one_thread_takes_care_of_all_directories() {
    let (_first_place, first) = gather_dir();
    let janitor = Janitor::start(&first, &BackgroundThreads::default()).unwrap();
    let all: Vec<_> = (0..20)
        .map(|_| {
            let (place, directory) = gather_dir();
            let period = Some(Duration::from_millis(5));
            let care = janitor.care_for(directory.clone(), period);
            (place, directory, care)
        })
        .collect();
    for (_, directory, _) in &all {
        wait_until(|| beats(directory).last().is_some_and(|&last| last >= 2));
    }
    let mut all = all.into_iter();
    let (_place, ended, care) = all.next().unwrap();
    assert!(care.finish());
    let last = beats(&ended);
    // The others continue, and one vanished directory does not affect them.
    let (_gone_place, gone, gone_care) = all.next().unwrap();
    while !gone.remove().is_complete() {}
    wait_until(|| gone_care.check().is_err());
    for (_, directory, care) in all {
        let before = beats(&directory);
        wait_until(|| beats(&directory).last() > before.last());
        assert_eq!(care.check(), Ok(()));
    }
    assert_eq!(beats(&ended), last);
}
