use std::{
    path::{Path, PathBuf},
    thread,
};

use fsgather_core::{Error, ErrorKind, Rank};
use fsgather_store::SampleId;

use super::*;
use crate::{Communicator, codec::Postcard};

/// Runs `rank` on each thread of a world.
fn in_world<R: Send>(ranks: u32, rank: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    let world = Communicator::threads(ranks).unwrap();
    let rank = &rank;
    thread::scope(|scope| {
        let threads: Vec<_> = world
            .into_iter()
            .map(|member| scope.spawn(move || rank(member)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

fn expecting(count: u64) -> SampleOptions {
    SampleOptions::default().expect_count(count)
}

fn answer(id: &SampleId) -> String {
    format!("answer {id}")
}

/// Runs an attempt in which each rank adds some of its samples.
fn attempt(ranks: u32, directory: &Path, expected: u64, each: usize) {
    in_world(ranks, |member| {
        let samples = Samples::open(&member, directory, expecting(expected)).unwrap();
        for id in samples.share().take(each) {
            samples.add(id.clone(), &answer(id)).unwrap();
        }
    });
}

fn assert_complete(results: &SampleResults, expected: u64) {
    let all: Vec<_> = results
        .iter::<String>()
        .map(|item| item.map(|(id, text)| (id.clone(), text)))
        .collect::<Result<_, _>>()
        .unwrap();
    let wanted: Vec<_> = (0..expected)
        .map(SampleId::from)
        .map(|id| (id.clone(), answer(&id)))
        .collect();
    assert_eq!(all, wanted);
}

#[test]
fn attempts_of_any_number_of_ranks_complete_each_other() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("runs/mmlu");
    attempt(4, &directory, 50, 5);
    attempt(1, &directory, 50, 7);
    let results = in_world(3, |member| {
        let samples = Samples::open(&member, &directory, expecting(50)).unwrap();
        assert_eq!((samples.missing().len(), samples.attempt()), (23, 3));
        for id in samples.share() {
            samples.add(id.clone(), &answer(id)).unwrap();
        }
        samples.gather(GatherOptions::to(1)).unwrap()
    });
    let [None, Some(results), None] = &results[..] else {
        panic!("{results:?}");
    };
    assert_complete(results, 50);
    assert_eq!(results.report().to_string(), "50 of 50 samples");
    assert_eq!(
        results.get::<String>(&7.into()).unwrap().unwrap(),
        "answer 7"
    );
    assert!(results.get::<String>(&"7".into()).unwrap().is_none());
    assert!(results.get::<(String, u8)>(&7.into()).is_err());
}

#[test]
fn samples_that_a_sampler_repeats_count_once() {
    let place = tempfile::tempdir().unwrap();
    let results = in_world(4, |member| {
        let samples = Samples::open(&member, place.path(), expecting(10)).unwrap();
        // As a padding sampler has it: each rank gets three.
        for at in 0..3 {
            let id = SampleId::from((u64::from(member.rank().get()) + at * 4) % 10);
            samples.add(id.clone(), &answer(&id)).unwrap();
        }
        samples.gather(GatherOptions::to_all()).unwrap().unwrap()
    });
    for results in results {
        assert_complete(&results, 10);
        assert_eq!(results.report().repeated, 2);
        assert_eq!(results.report().added, [3; 4]);
    }
}

#[test]
fn directories_of_each_host_are_counted_and_brought_together() {
    let place = tempfile::tempdir().unwrap();
    let local = |member: &Communicator| -> PathBuf {
        place.path().join((member.rank().get() / 2).to_string())
    };
    in_world(4, |member| {
        let samples = Samples::open(&member, local(&member), expecting(30)).unwrap();
        for id in samples.share().take(5) {
            samples.add(id.clone(), &answer(id)).unwrap();
        }
    });
    for destination in [Some(3), None] {
        let results = in_world(4, |member| {
            let samples = Samples::open(&member, local(&member), expecting(30)).unwrap();
            let missing = if destination.is_some() { 10 } else { 0 };
            assert_eq!(samples.missing().len(), missing);
            for id in samples.share() {
                samples.add(id.clone(), &answer(id)).unwrap();
            }
            let options =
                destination.map_or(GatherOptions::to_all(), |rank: u32| GatherOptions::to(rank));
            samples.gather(options).unwrap()
        });
        for (rank, results) in results.iter().enumerate() {
            assert_eq!(
                results.is_some(),
                destination.is_none_or(|to| to as usize == rank)
            );
            if let Some(results) = results {
                assert_complete(results, 30);
            }
        }
    }
}

/// Path of the first file of a directory whose name has a text in it.
fn file_named(directory: &Path, part: &str) -> PathBuf {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort_unstable();
    let is_it = |path: &PathBuf| path.to_string_lossy().contains(part);
    paths.into_iter().find(is_it).unwrap()
}

fn flip(path: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_and_empty_files_do_not_end_an_evaluation() {
    let place = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        attempt(1, place.path(), 30, 8);
    }
    flip(&file_named(place.path(), "-a000001-"), |_| 18);
    let last = place
        .path()
        .join("samples-a999999-r00000-0123456789abcdef-p00000");
    std::fs::write(last, b"").unwrap();
    in_world(2, |member| {
        let samples = Samples::open(&member, place.path(), expecting(30)).unwrap();
        assert_eq!((samples.missing().len(), samples.attempt()), (14, 4));
        for id in samples.share() {
            samples.add(id.clone(), &answer(id)).unwrap();
        }
        let results = samples.gather(GatherOptions::to_all()).unwrap().unwrap();
        assert_complete(&results, 30);
        assert_eq!(results.report().damaged_files, 2);
    });
}

#[test]
fn files_that_were_cut_are_counted_without_expected_samples() {
    let place = tempfile::tempdir().unwrap();
    in_world(1, |member| {
        let samples = Samples::open(&member, place.path(), SampleOptions::default()).unwrap();
        for id in 0..5 {
            samples.add(id, &answer(&id.into())).unwrap();
        }
    });
    let path = file_named(place.path(), "samples");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 50]).unwrap();
    let read = SampleResults::read(place.path(), Postcard).unwrap();
    assert_eq!(read.report().to_string(), "3 samples; 1 file is cut short");
    let report = in_world(1, |member| {
        let samples = Samples::open(&member, place.path(), SampleOptions::default()).unwrap();
        let results = samples.gather(GatherOptions::to(0)).unwrap().unwrap();
        results.report().to_string()
    });
    assert_eq!(report, ["3 samples; 1 file is cut short"]);
}

#[test]
fn readers_learn_what_an_attempt_without_results_expects() {
    let place = tempfile::tempdir().unwrap();
    let text = || {
        let read = SampleResults::read(place.path(), Postcard).unwrap();
        read.report().to_string()
    };
    attempt(2, place.path(), 6, 0);
    assert_eq!(text(), "0 of 6 samples, 6 missing");
    attempt(1, place.path(), 12, 10);
    assert_eq!(text(), "10 of 12 samples, 2 missing");
    attempt(2, place.path(), 5, 0);
    attempt(1, place.path(), 5, 0);
    assert_eq!(text(), "5 of 5 samples, 5 not expected");
    let files = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(files, 3, "attempts that expect the same leave no file");
    flip(&file_named(place.path(), "-a000003-"), |len| len - 1);
    assert_eq!(text(), "10 of 12 samples, 2 missing; 1 file is damaged");
    for attempt in ["-a000001-", "-a000002-"] {
        flip(&file_named(place.path(), attempt), |_| 20);
    }
    let none = SampleResults::read(place.path(), Postcard).unwrap_err();
    let reason = "has no samples that can be read: 3 files are damaged";
    assert!(none.to_string().ends_with(reason), "{none}");
}

#[test]
fn damaged_copies_are_brought_again() {
    let place = tempfile::tempdir().unwrap();
    let local = |member: &Communicator| place.path().join(member.rank().to_string());
    let run = |each: usize| {
        in_world(2, |member| {
            let samples = Samples::open(&member, local(&member), expecting(12)).unwrap();
            for id in samples.share().take(each) {
                samples.add(id.clone(), &answer(id)).unwrap();
            }
            let results = samples.gather(GatherOptions::to(0).partial()).unwrap();
            results.map(|results| results.report().to_string())
        })
    };
    assert_eq!(run(4)[0].as_deref(), Some("8 of 12 samples, 4 missing"));
    let copy = file_named(&place.path().join("0"), "-r00001-");
    flip(&copy, |len| len - 80);
    assert_eq!(run(0)[0].as_deref(), Some("8 of 12 samples, 4 missing"));
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir(&copy).unwrap();
    assert_eq!(run(9)[0].as_deref(), Some("12 of 12 samples"));
}

#[test]
fn incomplete_samples_fail_everywhere_but_root_keeps_them() {
    let place = tempfile::tempdir().unwrap();
    let errors = in_world(2, |member| {
        let samples = Samples::open(&member, place.path(), expecting(5)).unwrap();
        if member.rank() == Rank::ZERO {
            samples.add("3", &answer(&3.into())).unwrap();
            samples.add(1, &answer(&1.into())).unwrap();
        } else {
            samples.add_error(2, "no memory").unwrap();
        }
        let partial = samples.gather(GatherOptions::to(0).partial()).unwrap();
        assert_eq!(
            partial.map(|results| results.len()),
            (member.rank() == Rank::ZERO).then_some(1)
        );
        samples.gather(GatherOptions::to(0)).unwrap_err()
    });
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], texts[1]);
    assert_eq!(
        texts[0],
        "3 of 5 samples are missing: 0, 3, 4; 1 of 5 samples has failed: 2 (no memory); ranks 0 to 1 have added 2, 0; \
         \"3\" was added where 3 is expected: give ids of one kind"
    );
    let carried = |error: &GatherSamplesError| match error {
        GatherSamplesError::Incomplete { results, .. } => {
            results.as_ref().map(|results| results.len())
        }
        GatherSamplesError::Failed(error) => panic!("{error}"),
    };
    assert_eq!((carried(&errors[0]), carried(&errors[1])), (Some(1), None));
    let failed = in_world(1, |member| {
        let samples = Samples::open(&member, place.path(), expecting(5)).unwrap();
        assert_eq!(samples.missing().len(), 4);
        samples.failed().to_vec()
    });
    assert_eq!(failed[0], [(2.into(), "no memory".into())]);
}

#[test]
fn results_that_differ_are_counted_or_refused() {
    let place = tempfile::tempdir().unwrap();
    in_world(2, |member| {
        let samples = Samples::open(&member, place.path(), expecting(2)).unwrap();
        samples.add(0, &member.rank().get()).unwrap();
        samples.add(1, &7).unwrap();
        let results = samples.gather(GatherOptions::to_all()).unwrap().unwrap();
        assert_eq!(
            results.get::<u32>(&0.into()).unwrap(),
            Some(0),
            "the first counts"
        );
        assert_eq!(
            (
                results.report().conflicts.as_slice(),
                results.report().repeated
            ),
            (&[0.into()][..], 1)
        );
        let are_equal = |_: &[u8], _: &[u8]| true;
        let alike = samples.gather(GatherOptions::to_all().compare_with(&are_equal));
        assert_eq!(alike.unwrap().unwrap().report().repeated, 2);
        let error = samples
            .gather(GatherOptions::to(1).refuse_conflicts())
            .unwrap_err();
        assert_eq!(error.to_string(), "1 sample has results that differ: 0");
    });
}

#[test]
fn ranks_that_open_different_samples_all_hear_of_it() {
    let place = tempfile::tempdir().unwrap();
    let errors = in_world(2, |member| {
        let expected = expecting(5 + u64::from(member.rank().get()));
        let different = Samples::open(&member, place.path(), expected).unwrap_err();
        let config = SampleOptions::default().config("seed", member.rank());
        let other_config = Samples::open(&member, place.path(), config).unwrap_err();
        let twice = SampleOptions::default().expect_ids(vec![1; 1 + member.rank().index()]);
        let twice = Samples::open(&member, place.path(), twice).unwrap_err();
        [different, other_config, twice].map(|error| error.to_string())
    });
    assert_eq!(errors[0], errors[1]);
    let [different, other_config, twice] = &errors[0];
    assert!(
        different.contains("rank 0 expects 5 samples, rank 1 6 samples"),
        "{different}"
    );
    assert!(other_config.contains("seed: 0 -> 1"), "{other_config}");
    assert!(
        twice.starts_with("rank 1 on ") && twice.contains("1 is expected twice"),
        "{twice}"
    );
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn results_of_another_configuration_are_not_touched() {
    let place = tempfile::tempdir().unwrap();
    let config = |temperature: f64| {
        expecting(3)
            .config("model", "a")
            .config("temperature", temperature)
    };
    in_world(1, |member| {
        let samples = Samples::open(&member, place.path(), config(0.5)).unwrap();
        samples.add(1, &1).unwrap();
    });
    let error: Error = in_world(2, |member| {
        Samples::open(&member, place.path(), config(0.7)).unwrap_err()
    })
    .remove(1);
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("temperature: 0.5 -> 0.7"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn destinations_outside_the_world_fail_on_all_ranks() {
    let place = tempfile::tempdir().unwrap();
    let texts = in_world(2, |member| {
        let samples = Samples::open(&member, place.path(), expecting(1)).unwrap();
        samples.add(0, &answer(&0.into())).unwrap();
        let nowhere = samples.gather(GatherOptions::to(2)).unwrap_err();
        let wrong = (member.rank() != Rank::ZERO).then_some("dst='x' is not a rank");
        let wrong = samples
            .gather(GatherOptions::to(0).wrong(wrong))
            .unwrap_err();
        let none = Vec::<(u8, u8)>::new();
        let short = gather_samples(&member, none, expecting(0), GatherOptions::to(2)).unwrap_err();
        let results = samples.gather(GatherOptions::to_all()).unwrap().unwrap();
        assert_complete(&results, 1);
        [nowhere, wrong, short].map(|error| error.to_string())
    });
    assert_eq!(texts[0], texts[1]);
    let [nowhere, wrong, short] = &texts[0];
    assert_eq!(nowhere, "rank 2 is outside a world of 2 ranks (0 to 1)");
    assert_eq!(short, nowhere);
    assert!(
        wrong.starts_with("rank 1 on ") && wrong.ends_with("dst='x' is not a rank"),
        "{wrong}"
    );
}

#[test]
fn without_expected_samples_all_count_in_the_order_of_ranks() {
    let place = tempfile::tempdir().unwrap();
    let results = in_world(3, |member| {
        let samples = Samples::open(&member, place.path(), SampleOptions::default()).unwrap();
        for id in ["x", "y"] {
            let id = format!("{id}{}", member.rank());
            samples.add(id.as_str(), &id).unwrap();
        }
        samples.gather(GatherOptions::to(0)).unwrap()
    });
    let ids: Vec<String> = results[0]
        .as_ref()
        .unwrap()
        .ids()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        ids,
        [
            r#""x0""#, r#""y0""#, r#""x1""#, r#""y1""#, r#""x2""#, r#""y2""#
        ]
    );
}

#[test]
fn directories_that_cannot_be_used_fail_on_all_ranks() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let errors = in_world(2, |member| {
        let usable = member.rank() == Rank::ZERO;
        let directory = if usable { place.path() } else { &file };
        Samples::open(&member, directory, expecting(1))
            .unwrap_err()
            .to_string()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("rank 1"), "{}", errors[0]);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
}
