use super::*;

const MIB: u64 = 1 << 20;

fn call(number: u64, moved: (u64, Option<u64>)) -> ShownCall {
    ShownCall {
        lane: 0,
        number,
        name: format!("all_gather #{number} at eval.py:42"),
        ranks: 4,
        moved: Moved {
            done: moved.0 * MIB,
            total: moved.1.map(|total| total * MIB),
        },
    }
}

#[expect(clippy::unnecessary_wraps, reason = "this is what a picture takes")]
fn of(stage: Stage, number: u64, done: u64, total: Option<u64>) -> Option<Standing> {
    Some(Standing {
        stage,
        call: Some(call(number, (done, total))),
    })
}

const JOINING: Option<Standing> = Some(Standing {
    stage: Stage::Joining,
    call: None,
});

/// The lines that come of looks that are a second apart.
fn lines(picture: &mut Picture, looks: Vec<Vec<Option<Standing>>>) -> Vec<String> {
    let start = Instant::now();
    let mut lines = Vec::new();
    for (look, seconds) in looks.into_iter().zip(0..) {
        let now = start + Duration::from_secs(seconds);
        picture.look(now, look);
        lines.push(picture.line(now).unwrap_or_default());
    }
    lines
}

#[test]
fn what_is_over_at_once_is_not_shown() {
    let mut picture = Picture::of_all(4);
    let start = Instant::now();
    picture.look(start, vec![of(Stage::Publishing, 1, 0, Some(256)); 4]);
    assert_eq!(picture.line(start + LONG_ENOUGH / 2), None);
    assert!(picture.line(start + LONG_ENOUGH).is_some());
    // The next call begins anew.
    let next = start + LONG_ENOUGH;
    picture.look(next, vec![of(Stage::Waiting, 2, 0, None); 4]);
    assert_eq!(picture.line(next), None);
    picture.look(next, vec![of(Stage::Outside, 2, 0, None); 4]);
    assert_eq!(picture.line(next + LONG_ENOUGH), None);
}

#[test]
fn those_who_have_not_come_to_the_meeting_are_named() {
    let said = lines(
        &mut Picture::of_all(4),
        vec![vec![JOINING, JOINING, None, JOINING]; 13],
    );
    assert_eq!(said[0], "");
    assert_eq!(
        said[12],
        "meeting, 3 of 4 ranks here, waiting for rank 2 (12 s)"
    );
}

#[test]
fn publishing_tells_bytes_of_all_rate_time_and_the_slowest() {
    let look = |done: [u64; 3]| {
        vec![
            of(Stage::Publishing, 1, done[0], Some(256)),
            of(Stage::Publishing, 1, done[1], Some(256)),
            of(Stage::Publishing, 1, done[2], Some(256)),
            of(Stage::Outside, 0, 0, None),
        ]
    };
    let said = lines(
        &mut Picture::of_all(4),
        vec![look([0, 0, 0]), look([100, 20, 72])],
    );
    assert_eq!(
        said[1],
        "all_gather #1 at eval.py:42: publishing 192/768 MiB, 25 %, 192.0 MiB/s, 3 s left, 0 of 4 ranks in, \
         slowest rank 1 (7 %), waiting for rank 3"
    );
}

#[test]
fn those_who_are_in_count_with_all_that_they_had() {
    let first = vec![of(Stage::Publishing, 1, 50, Some(100)); 4];
    let mut second = vec![of(Stage::Waiting, 1, 0, None); 4];
    second[2] = of(Stage::Publishing, 1, 70, Some(100));
    let said = lines(&mut Picture::of_all(4), vec![first, second]);
    assert_eq!(
        said[1],
        "all_gather #1 at eval.py:42: publishing 370/400 MiB, 92 %, 170.0 MiB/s, 1 s left, 3 of 4 ranks in, \
         slowest rank 2 (70 %)"
    );
}

#[test]
fn those_whose_streams_have_no_known_end_are_named_once_others_are_in() {
    let mut look = vec![of(Stage::Publishing, 1, 8, None); 4];
    let said = lines(&mut Picture::of_all(4), vec![look.clone(), look.clone()]);
    let name = "all_gather #1 at eval.py:42: publishing";
    assert_eq!(
        said[1],
        format!("{name} 32.0 MiB, 0 bytes/s, 0 of 4 ranks in")
    );
    look[0] = of(Stage::Waiting, 1, 0, None);
    look[3] = of(Stage::Waiting, 1, 0, None);
    let said = lines(&mut Picture::of_all(4), vec![look.clone(), look]);
    assert_eq!(
        said[1],
        format!("{name} 16.0 MiB, 0 bytes/s, 2 of 4 ranks in, waiting for ranks 1 2")
    );
}

#[test]
fn who_is_waited_for_is_named_while_nothing_moves() {
    let mut look = vec![of(Stage::Waiting, 1, 0, None); 4];
    look[2] = of(Stage::Outside, 0, 0, None);
    let said = lines(&mut Picture::of_all(4), vec![look; 35]);
    assert_eq!(
        said[34],
        "all_gather #1 at eval.py:42: 3 of 4 ranks in, waiting for rank 2 (34 s)"
    );
}

#[test]
fn reading_tells_bytes_of_all_and_who_is_through() {
    let look = |done: [u64; 3]| {
        vec![
            of(Stage::Reading, 1, done[0], Some(1024)),
            of(Stage::Reading, 1, done[1], Some(1024)),
            of(Stage::Reading, 1, done[2], Some(1024)),
            of(Stage::Outside, 1, 0, None),
        ]
    };
    let said = lines(
        &mut Picture::of_all(4),
        vec![look([0; 3]), look([512, 256, 0])],
    );
    assert_eq!(
        said[1],
        "all_gather #1 at eval.py:42: received 0.75/3.00 GiB, 25 %, 768.0 MiB/s, 3 s left, 1 of 4 ranks done, \
         slowest rank 2 (0 %)"
    );
}

#[test]
fn a_root_that_reads_is_shown_although_the_others_wait_in_their_next_call() {
    let mut look = vec![of(Stage::Waiting, 2, 0, None); 4];
    look[0] = of(Stage::Reading, 1, 10, Some(100));
    let said = lines(&mut Picture::of_all(4), vec![look.clone(), look]);
    assert_eq!(
        said[1],
        "all_gather #1 at eval.py:42: received 10/100 MiB, 10 %, 0 bytes/s, rank 0"
    );
}

#[test]
fn of_a_group_nobody_is_named_who_may_not_belong_to_it() {
    let mut standing = call(0, (0, None));
    standing.lane = 7;
    standing.ranks = 2;
    let standing = Some(Standing {
        stage: Stage::Waiting,
        call: Some(standing),
    });
    let look = vec![standing, None, None, None];
    let said = lines(&mut Picture::of_all(4), vec![look; 2]);
    assert_eq!(
        said[1],
        "all_gather #0 at eval.py:42: 1 of 2 ranks in (1 s)"
    );
}

#[test]
fn one_rank_alone_tells_of_itself() {
    let mut picture = Picture::of_one(Duration::from_secs(3));
    let said = lines(
        &mut picture,
        vec![
            vec![JOINING],
            vec![JOINING],
            vec![of(Stage::Publishing, 1, 0, Some(256))],
            vec![of(Stage::Publishing, 1, 118, Some(256))],
            vec![of(Stage::Waiting, 1, 0, None)],
            vec![of(Stage::Waiting, 1, 0, None)],
            vec![of(Stage::Reading, 1, 0, None)],
            vec![of(Stage::Reading, 1, 64, None)],
        ],
    );
    assert_eq!(said[1], "meeting, waiting for the others (1 s)");
    assert_eq!(
        said[3],
        "publishing 118/256 MiB, 46 %, 118.0 MiB/s, 2 s left"
    );
    assert_eq!(said[5], "handed in, waiting for the others (1 s)");
    assert_eq!(said[7], "received 64.0 MiB, 64.0 MiB/s");
}

#[test]
fn many_that_are_away_are_counted() {
    let mut look = vec![None; 40];
    look[0] = of(Stage::Waiting, 1, 0, None);
    if let Some(Standing {
        call: Some(call), ..
    }) = &mut look[0]
    {
        call.ranks = 40;
    }
    let said = lines(&mut Picture::of_all(40), vec![look; 2]);
    assert_eq!(
        said[1],
        "all_gather #1 at eval.py:42: 1 of 40 ranks in, waiting for ranks 1 2 3 4 5 6 7 8 and 31 more (1 s)"
    );
}
