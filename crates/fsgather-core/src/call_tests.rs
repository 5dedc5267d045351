//! Tests of the comparison of calls, and of their texts.

use super::*;

fn gather() -> Call {
    Call::new(Operation::Gather, Site::named("a.rs:1:1")).with_root(Rank::ZERO)
}

#[test]
fn calls_count_from_1_and_set_ups_share_the_next_number() {
    let mut before = 0;
    let mut name = |operation| {
        let call = Call::new(operation, Site::default()).counted(&mut before);
        operation.numbered(call.number)
    };
    let names = [
        Operation::Meet,
        Operation::SetUp,
        Operation::AllGather,
        Operation::SetUp,
        Operation::Gather,
        Operation::Barrier,
        Operation::Close,
    ]
    .map(&mut name);
    let expected = [
        "first call",
        "set-up",
        "all_gather #1",
        "set-up",
        "gather #2",
        "barrier #3",
        "close",
    ];
    assert_eq!(names, expected);
}

#[test]
fn call_sites_and_time_outs_are_not_compared() {
    let elsewhere = Call {
        site: Site::named("b.rs:2:2"),
        ..gather()
    };
    assert_eq!(gather().difference(&elsewhere), None);
    let patient = gather().with_timeout(Duration::from_secs(9));
    assert_eq!(gather().difference(&patient), None);
}

fn by(transport: &str, directory: Option<&str>, operation: Operation) -> Call {
    Call {
        way: Some(Box::new(Way {
            transport: transport.into(),
            directory: directory.map(Into::into),
        })),
        ..Call::new(operation, Site::named("a.rs:1:1"))
    }
}

#[test]
fn different_paths_are_found_before_operations_and_shown() {
    let memory = by("memory", None, Operation::AllGather);
    let files = by("filesys", None, Operation::SetUp);
    let difference = memory.difference(&files).unwrap();
    assert!(
        difference.starts_with("different transports"),
        "{difference}"
    );
    assert_eq!(
        memory.beside(&files),
        "all_gather at a.rs:1:1 with transport=memory"
    );
    let there = by("filesys", Some("/there"), Operation::SetUp);
    let difference = files.difference(&there).unwrap();
    assert!(
        difference.starts_with("different directories"),
        "{difference}"
    );
    assert_eq!(
        there.beside(&files),
        "set-up at a.rs:1:1 with transport=filesys and directory=/there"
    );
    // Calls that move no payloads do not show a path.
    let barrier = Call::new(Operation::Barrier, Site::named("a.rs:1:1"));
    assert_eq!(memory.difference(&barrier), Some("different operations"));
    assert_eq!(memory.beside(&barrier), "all_gather at a.rs:1:1");
    // The operations of two calls of the program are compared before their paths.
    let gather = by("filesys", None, Operation::Gather).with_root(Rank::new(1));
    assert_eq!(memory.difference(&gather), Some("different operations"));
}

#[test]
fn a_switch_that_differs_is_named() {
    let all = by("auto", None, Operation::AllGather);
    let one = by("filesys", None, Operation::Gather).with_root(Rank::ZERO);
    for difference in [all.difference(&one), one.difference(&all)] {
        assert!(difference.unwrap().contains("FSGATHER_ROOT_ONLY"));
    }
    let elsewhere = Call {
        site: Site::named("b.rs:2:2"),
        ..one
    };
    assert_eq!(all.difference(&elsewhere), Some("different operations"));
}

#[test]
fn operation_root_and_bound_are_compared() {
    let barrier = Call::new(Operation::Barrier, Site::default());
    assert_eq!(gather().difference(&barrier), Some("different operations"));
    let other_root = gather().with_root(Rank::new(1));
    assert_eq!(gather().difference(&other_root), Some("different roots"));
    let bounded = gather().with_bound(7);
    assert_eq!(gather().difference(&bounded), Some("different bounds"));
}

#[test]
fn tags_are_compared_and_told() {
    let (bleu, rouge) = (gather().tagged("bleu"), gather().tagged("rou\nge"));
    assert_eq!(bleu.difference(&bleu), None);
    assert_eq!(bleu.difference(&gather()), Some("different tags"));
    assert_eq!(bleu.difference(&rouge), Some("different tags"));
    assert_eq!(bleu.beside(&rouge), "gather \"bleu\" to rank 0 at a.rs:1:1");
    assert_eq!(
        rouge.to_string(),
        "gather \"rou\\nge\" to rank 0 at a.rs:1:1"
    );
    // A difference of operations counts more than a difference of tags.
    let barrier = Call::new(Operation::Barrier, Site::default()).tagged("bleu");
    assert_eq!(barrier.difference(&rouge), Some("different operations"));
}

fn typed(build: u64, name: &str, codec: &str) -> Call {
    gather().with_type(TypeTag {
        build,
        name: name.into(),
        codec: codec.into(),
    })
}

#[test]
fn codecs_are_compared_between_any_builds() {
    let (one, other) = (typed(1, "u8", "postcard"), typed(2, "u8", "json"));
    assert_eq!(one.difference(&other), Some("different codecs"));
    assert_eq!(
        other.to_string(),
        "gather::<u8> in json to rank 0 at a.rs:1:1"
    );
}

#[test]
fn types_are_compared_between_equal_builds_only() {
    let typed = |build, name: &str| typed(build, name, "postcard");
    assert_eq!(
        typed(1, "u8").difference(&typed(1, "u16")),
        Some("different types")
    );
    assert_eq!(typed(1, "u8").difference(&typed(2, "u16")), None);
    assert_eq!(
        typed(1, "u8").difference(&gather()),
        Some("typed values and bytes")
    );
}

#[test]
fn a_call_reads_like_what_the_user_wrote() {
    assert_eq!(gather().to_string(), "gather to rank 0 at a.rs:1:1");
}

#[test]
fn a_place_is_told_as_it_is_and_cut_above_four_kibibytes() {
    let here = Location::caller();
    assert_eq!(Site::of(here).to_string(), here.to_string());
    let longest = "x".repeat(4096);
    assert_eq!(Site::named(&longest).to_string(), longest);
    assert_eq!(Site::named(&longest).as_str(), longest);
    let cut = Site::named("x".repeat(9 << 20)).to_string();
    assert!(
        cut.len() <= 4096 + 64 && cut.contains("(cut; "),
        "{}",
        cut.len()
    );
}

#[test]
fn the_root_of_a_gather_alone_receives() {
    let to = |operation| {
        let call = Call::new(operation, Site::default()).with_root(Rank::new(1));
        [0, 1, 2].map(|rank| call.recipients().include(Rank::new(rank)))
    };
    assert_eq!(to(Operation::Gather), [false, true, false]);
    assert_eq!(to(Operation::Broadcast), [true; 3]);
}
