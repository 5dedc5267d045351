use bytes::Bytes;
use fsgather_core::{ChannelId, Epoch, Round, Step};

use super::*;

const NONCE: u128 = 0x1111_2222_3333_4444_5555_6666_7777_8888;

fn done(epoch: u64) -> ToCoordinator {
    ToCoordinator::Done {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(epoch),
    }
}

fn timeout(channel: u64) -> ToMember {
    ToMember::KeepWaiting {
        channel: ChannelId::new(channel),
    }
}

fn release(epoch: u64, len: usize) -> ToMember {
    ToMember::Release {
        step: Step {
            channel: ChannelId::WORLD,
            epoch: Epoch::new(epoch),
            round: Round::VERDICT,
        },
        bodies: Some(vec![Bytes::from(vec![1; len])]),
        acknowledge: false,
        further_rounds: 0,
        last: None,
    }
}

/// As found by a process that reads what is for `reader`.
fn found_by(reader: Rank, from: Rank, sender: u64, outgoing: Vec<OutgoingFile>) -> Vec<Letter> {
    outgoing
        .into_iter()
        .map(|outgoing| Letter {
            from,
            sender,
            number: outgoing.number,
            body: outgoing
                .to
                .is_none_or(|to| to == reader)
                .then_some(outgoing.body),
        })
        .collect()
}

fn letters_found(outgoing: Vec<OutgoingFile>) -> Vec<Letter> {
    found_by(Rank::ZERO, Rank::new(3), sender_of(NONCE), outgoing)
}

fn bulletins_found(outgoing: Vec<OutgoingFile>) -> Vec<Letter> {
    found_by(Rank::new(3), Rank::ZERO, 0, outgoing)
}

fn admitted() -> (Letters, Bulletins) {
    let mut letters = Letters::new(Rank::new(3), NONCE);
    let mut bulletins = Bulletins::default();
    bulletins.say(To::Process(NONCE), Saying::Admitted);
    letters.take_in(bulletins_found(bulletins.take_outgoing()));
    (letters, bulletins)
}

#[test]
fn letters_arrive_in_order_however_they_are_found() {
    let mut letters = Letters::new(Rank::new(3), NONCE);
    let mut found = Vec::new();
    for epoch in 0..4 {
        letters.say(done(epoch));
        found.extend(letters_found(letters.take_outgoing(false)));
    }
    found.reverse();
    found.extend(found.clone());
    let heard = Bulletins::default().take_in(found);
    let expected: Vec<_> = (0..4)
        .map(|epoch| (Rank::new(3), NONCE, done(epoch)))
        .collect();
    assert_eq!(heard, expected);
}

#[test]
fn a_gap_is_waited_for() {
    let mut letters = Letters::new(Rank::new(3), NONCE);
    let mut files = Vec::new();
    for epoch in 0..3 {
        letters.say(done(epoch));
        files.push(letters_found(letters.take_outgoing(false)));
    }
    let mut bulletins = Bulletins::default();
    assert_eq!(bulletins.take_in(files.remove(0)).len(), 1);
    assert!(bulletins.take_in(files.remove(1)).is_empty());
    assert_eq!(bulletins.take_in(files.remove(0)).len(), 2);
}

#[test]
fn a_process_hears_nothing_for_its_rank_before_it_is_admitted() {
    let rank = Rank::new(3);
    let mut letters = Letters::new(rank, NONCE);
    let mut bulletins = Bulletins::default();
    let to_rank = |bulletins: &mut Bulletins, channel| {
        bulletins.say(To::Ranks(vec![rank]), Saying::Message(timeout(channel)));
    };
    to_rank(&mut bulletins, 1);
    let early = bulletins_found(bulletins.take_outgoing());
    bulletins.say(To::Process(!NONCE), Saying::Admitted);
    to_rank(&mut bulletins, 2);
    let of_a_twin = bulletins_found(bulletins.take_outgoing());
    bulletins.say(To::Process(NONCE), Saying::Admitted);
    to_rank(&mut bulletins, 3);
    let own = bulletins_found(bulletins.take_outgoing());
    to_rank(&mut bulletins, 4);
    let late = bulletins_found(bulletins.take_outgoing());
    // The later one is seen before the one that admits.
    assert!(letters.take_in(late).is_empty());
    assert!(letters.take_in(of_a_twin).is_empty());
    assert_eq!(letters.take_in(own), [timeout(3), timeout(4)]);
    assert!(letters.take_in(early).is_empty());
}

#[test]
fn a_process_that_comes_late_finds_its_answer_although_earlier_bulletins_are_gone() {
    let mut bulletins = Bulletins::default();
    for channel in 0..5 {
        let to = To::Ranks(vec![Rank::new(3)]);
        bulletins.say(to, Saying::Message(timeout(channel)));
        bulletins.take_outgoing();
    }
    bulletins.say(To::Process(NONCE), Saying::Message(timeout(9)));
    let found = bulletins_found(bulletins.take_outgoing());
    let mut letters = Letters::new(Rank::new(3), NONCE);
    assert_eq!(letters.take_in(found), [timeout(9)]);
}

#[test]
fn both_sides_say_how_far_they_have_read() {
    let (mut letters, mut bulletins) = admitted();
    letters.say(done(1));
    bulletins.take_in(letters_found(letters.take_outgoing(false)));
    let readers = || std::iter::once((Rank::new(3), NONCE));
    assert_eq!(bulletins.read_by(readers()), 1);
    assert!(!letters.is_answered());
    bulletins.say(To::Ranks(vec![Rank::new(5)]), Saying::Message(timeout(1)));
    letters.take_in(bulletins_found(bulletins.take_outgoing()));
    assert!(letters.is_answered());
    assert_eq!(letters.acknowledged(), 1);
    // Nothing to say, but at the end rank 0 must know that everything was read.
    assert!(letters.take_outgoing(false).is_empty());
    bulletins.take_in(letters_found(letters.take_outgoing(true)));
    assert_eq!(bulletins.read_by(readers()), bulletins.sent());
    assert!(letters.take_outgoing(true).is_empty());
}

#[test]
fn nobody_waits_for_a_process_that_has_left() {
    let (mut letters, mut bulletins) = admitted();
    letters.say(ToCoordinator::Leave { cause: None });
    bulletins.take_in(letters_found(letters.take_outgoing(false)));
    bulletins.say(To::Ranks(vec![Rank::new(3)]), Saying::Message(timeout(1)));
    bulletins.take_outgoing();
    let readers = std::iter::once((Rank::new(3), NONCE));
    assert_eq!(bulletins.read_by(readers), bulletins.sent());
}

#[test]
fn unread_mail_is_mentioned_even_if_there_is_nothing_to_say() {
    let (mut letters, mut bulletins) = admitted();
    for epoch in 0..=MENTION_AFTER {
        letters.say(done(epoch));
        bulletins.take_in(letters_found(letters.take_outgoing(false)));
    }
    let mention = bulletins.take_outgoing();
    assert_eq!(mention.len(), 1);
    letters.take_in(bulletins_found(mention));
    assert!(letters.is_answered());
    assert!(bulletins.take_outgoing().is_empty());
}

#[test]
fn a_large_table_for_one_rank_need_not_be_read_by_the_others() {
    let (mut letters, mut bulletins) = admitted();
    bulletins.say(To::Ranks(vec![Rank::new(3)]), Saying::Message(timeout(1)));
    bulletins.say(
        To::Ranks(vec![Rank::new(7)]),
        Saying::Message(release(1, 100_000)),
    );
    bulletins.say(To::Ranks(vec![Rank::new(3)]), Saying::Message(timeout(2)));
    let outgoing = bulletins.take_outgoing();
    let to: Vec<_> = outgoing.iter().map(|outgoing| outgoing.to).collect();
    assert_eq!(to, [None, Some(Rank::new(7)), None]);
    let found = bulletins_found(outgoing);
    assert!(found[1].body.is_none());
    assert_eq!(letters.take_in(found), [timeout(1), timeout(2)]);
}

#[test]
fn much_mail_is_split_over_several_files() {
    let (mut letters, mut bulletins) = admitted();
    for epoch in 0..5 {
        let to = To::Ranks(vec![Rank::new(3), Rank::new(4)]);
        bulletins.say(to, Saying::Message(release(epoch, JOIN_UP_TO / 2)));
    }
    let outgoing = bulletins.take_outgoing();
    assert!(outgoing.len() >= 4);
    assert_eq!(letters.take_in(bulletins_found(outgoing)).len(), 5);
}

#[test]
fn a_file_of_another_version_is_passed_over() {
    let (mut letters, mut bulletins) = admitted();
    bulletins.say(To::Ranks(vec![Rank::new(3)]), Saying::Message(timeout(1)));
    let mut found = bulletins_found(bulletins.take_outgoing());
    if let Some(body) = &mut found[0].body {
        body[0] = 0xff;
    }
    assert!(letters.take_in(found).is_empty());
    bulletins.say(To::Ranks(vec![Rank::new(3)]), Saying::Message(timeout(2)));
    let heard = letters.take_in(bulletins_found(bulletins.take_outgoing()));
    assert_eq!(heard, [timeout(2)]);
}

#[test]
fn whoever_is_turned_away_has_heard_when_it_says_goodbye() {
    let mut letters = Letters::new(Rank::new(3), NONCE);
    let mut bulletins = Bulletins::default();
    letters.say(done(1));
    bulletins.take_in(letters_found(letters.take_outgoing(false)));
    assert!(bulletins.all_heard());
    bulletins.say(To::Process(NONCE), Saying::Message(timeout(1)));
    assert!(!bulletins.all_heard());
    letters.take_in(bulletins_found(bulletins.take_outgoing()));
    letters.say(ToCoordinator::Leave { cause: None });
    bulletins.take_in(letters_found(letters.take_outgoing(false)));
    assert!(bulletins.all_heard());
}
