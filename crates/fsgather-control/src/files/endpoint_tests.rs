use bytes::Bytes;
use fsgather_core::{ChannelId, Epoch, Round, Step, Table, Verdict};

use super::*;
use crate::message::CallReply;

const NONCE: u128 = 0x1111_2222_3333_4444_5555_6666_7777_8888;

fn done(epoch: u64) -> ToCoordinator {
    ToCoordinator::Call(CallRequest::Done {
        channel: ChannelId::WORLD,
        epoch: Epoch::new(epoch),
    })
}

fn timeout(channel: u64) -> ToMember {
    ToMember::Call(CallReply::KeepWaiting {
        channel: ChannelId::new(channel),
    })
}

fn release(epoch: u64, len: usize) -> ToMember {
    ToMember::Call(CallReply::Release {
        step: Step {
            channel: ChannelId::WORLD,
            epoch: Epoch::new(epoch),
            round: Round::VERDICT,
        },
        verdict: Verdict {
            table: Some(Table {
                bodies: vec![Bytes::from(vec![1; len])],
                acknowledge: false,
            }),
            further_rounds: 0,
            last: None,
        },
    })
}

/// As found by a process that reads what is for `reader`.
fn found_by(
    reader: Rank,
    from: Rank,
    sender: u64,
    outgoing: Vec<OutgoingFile>,
) -> Vec<InboundMessage> {
    outgoing
        .into_iter()
        .map(|outgoing| InboundMessage {
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

fn letters_found(outgoing: Vec<OutgoingFile>) -> Vec<InboundMessage> {
    found_by(Rank::ZERO, Rank::new(3), sender_of(NONCE), outgoing)
}

fn bulletins_found(outgoing: Vec<OutgoingFile>) -> Vec<InboundMessage> {
    found_by(Rank::new(3), Rank::ZERO, 0, outgoing)
}

fn admitted() -> (MemberEndpoint, CoordinatorEndpoint) {
    let mut member = MemberEndpoint::new(Rank::new(3), NONCE);
    let mut root = CoordinatorEndpoint::default();
    root.send(To::Process(NONCE), BulletinItem::Admitted);
    member.receive(bulletins_found(root.take_outgoing()));
    (member, root)
}

#[test]
fn letters_arrive_in_order_however_they_are_found() {
    let mut member = MemberEndpoint::new(Rank::new(3), NONCE);
    let mut found = Vec::new();
    for epoch in 0..4 {
        member.send(done(epoch));
        found.extend(letters_found(member.take_outgoing(false)));
    }
    found.reverse();
    found.extend(found.clone());
    let heard = CoordinatorEndpoint::default().receive(found);
    let expected: Vec<_> = (0..4)
        .map(|epoch| (Rank::new(3), NONCE, done(epoch)))
        .collect();
    assert_eq!(heard, expected);
}

#[test]
fn a_gap_is_waited_for() {
    let mut member = MemberEndpoint::new(Rank::new(3), NONCE);
    let mut files = Vec::new();
    for epoch in 0..3 {
        member.send(done(epoch));
        files.push(letters_found(member.take_outgoing(false)));
    }
    let mut root = CoordinatorEndpoint::default();
    assert_eq!(root.receive(files.remove(0)).len(), 1);
    assert!(root.receive(files.remove(1)).is_empty());
    assert_eq!(root.receive(files.remove(0)).len(), 2);
}

#[test]
fn a_process_hears_nothing_for_its_rank_before_it_is_admitted() {
    let rank = Rank::new(3);
    let mut member = MemberEndpoint::new(rank, NONCE);
    let mut root = CoordinatorEndpoint::default();
    let to_rank = |root: &mut CoordinatorEndpoint, channel| {
        root.send(
            To::Ranks(vec![rank]),
            BulletinItem::Message(timeout(channel)),
        );
    };
    to_rank(&mut root, 1);
    let early = bulletins_found(root.take_outgoing());
    root.send(To::Process(!NONCE), BulletinItem::Admitted);
    to_rank(&mut root, 2);
    let of_a_twin = bulletins_found(root.take_outgoing());
    root.send(To::Process(NONCE), BulletinItem::Admitted);
    to_rank(&mut root, 3);
    let own = bulletins_found(root.take_outgoing());
    to_rank(&mut root, 4);
    let late = bulletins_found(root.take_outgoing());
    // The later one is seen before the one that admits.
    assert!(member.receive(late).is_empty());
    assert!(member.receive(of_a_twin).is_empty());
    assert_eq!(member.receive(own), [timeout(3), timeout(4)]);
    assert!(member.receive(early).is_empty());
}

#[test]
fn a_late_process_finds_its_answer_without_old_bulletins() {
    let mut root = CoordinatorEndpoint::default();
    for channel in 0..5 {
        let to = To::Ranks(vec![Rank::new(3)]);
        root.send(to, BulletinItem::Message(timeout(channel)));
        root.take_outgoing();
    }
    root.send(To::Process(NONCE), BulletinItem::Message(timeout(9)));
    let found = bulletins_found(root.take_outgoing());
    let mut member = MemberEndpoint::new(Rank::new(3), NONCE);
    assert_eq!(member.receive(found), [timeout(9)]);
}

#[test]
fn both_sides_say_how_far_they_have_read() {
    let (mut member, mut root) = admitted();
    member.send(done(1));
    root.receive(letters_found(member.take_outgoing(false)));
    let readers = || std::iter::once((Rank::new(3), NONCE));
    assert_eq!(root.read_by(readers()), 1);
    assert!(!member.is_answered());
    root.send(
        To::Ranks(vec![Rank::new(5)]),
        BulletinItem::Message(timeout(1)),
    );
    member.receive(bulletins_found(root.take_outgoing()));
    assert!(member.is_answered());
    assert_eq!(member.acknowledged(), 1);
    // There is no message to send, but at the end rank 0 must know that everything was read.
    assert!(member.take_outgoing(false).is_empty());
    root.receive(letters_found(member.take_outgoing(true)));
    assert_eq!(root.read_by(readers()), root.sent());
    assert!(member.take_outgoing(true).is_empty());
}

#[test]
fn nobody_waits_for_a_process_that_has_left() {
    let (mut member, mut root) = admitted();
    member.send(ToCoordinator::End(EndRequest::Leave { cause: None }));
    root.receive(letters_found(member.take_outgoing(false)));
    root.send(
        To::Ranks(vec![Rank::new(3)]),
        BulletinItem::Message(timeout(1)),
    );
    root.take_outgoing();
    let readers = std::iter::once((Rank::new(3), NONCE));
    assert_eq!(root.read_by(readers), root.sent());
}

#[test]
fn many_read_messages_are_mentioned_without_other_news() {
    let (mut member, mut root) = admitted();
    for epoch in 0..=MENTION_AFTER {
        member.send(done(epoch));
        root.receive(letters_found(member.take_outgoing(false)));
    }
    let mention = root.take_outgoing();
    assert_eq!(mention.len(), 1);
    member.receive(bulletins_found(mention));
    assert!(member.is_answered());
    assert!(root.take_outgoing().is_empty());
}

#[test]
fn others_need_not_read_a_large_message_for_one_rank() {
    let (mut member, mut root) = admitted();
    let mut send = |rank, message| {
        let to = To::Ranks(vec![Rank::new(rank)]);
        root.send(to, BulletinItem::Message(message));
    };
    send(3, timeout(1));
    send(7, release(1, 100_000));
    send(3, timeout(2));
    let outgoing = root.take_outgoing();
    let to: Vec<_> = outgoing.iter().map(|outgoing| outgoing.to).collect();
    assert_eq!(to, [None, Some(Rank::new(7)), None]);
    let found = bulletins_found(outgoing);
    assert!(found[1].body.is_none());
    assert_eq!(member.receive(found), [timeout(1), timeout(2)]);
}

#[test]
fn many_messages_are_split_over_several_files() {
    let (mut member, mut root) = admitted();
    for epoch in 0..5 {
        let to = To::Ranks(vec![Rank::new(3), Rank::new(4)]);
        root.send(to, BulletinItem::Message(release(epoch, JOIN_UP_TO / 2)));
    }
    let outgoing = root.take_outgoing();
    assert!(outgoing.len() >= 4);
    assert_eq!(member.receive(bulletins_found(outgoing)).len(), 5);
}

#[test]
fn a_file_of_another_version_is_passed_over() {
    let (mut member, mut root) = admitted();
    root.send(
        To::Ranks(vec![Rank::new(3)]),
        BulletinItem::Message(timeout(1)),
    );
    let mut found = bulletins_found(root.take_outgoing());
    if let Some(body) = &mut found[0].body {
        body[0] = 0xff;
    }
    assert!(member.receive(found).is_empty());
    root.send(
        To::Ranks(vec![Rank::new(3)]),
        BulletinItem::Message(timeout(2)),
    );
    let heard = member.receive(bulletins_found(root.take_outgoing()));
    assert_eq!(heard, [timeout(2)]);
}

#[test]
fn whoever_is_turned_away_has_heard_when_it_says_goodbye() {
    let mut member = MemberEndpoint::new(Rank::new(3), NONCE);
    let mut root = CoordinatorEndpoint::default();
    member.send(done(1));
    root.receive(letters_found(member.take_outgoing(false)));
    assert!(root.all_informed());
    root.send(To::Process(NONCE), BulletinItem::Message(timeout(1)));
    assert!(!root.all_informed());
    member.receive(bulletins_found(root.take_outgoing()));
    member.send(ToCoordinator::End(EndRequest::Leave { cause: None }));
    root.receive(letters_found(member.take_outgoing(false)));
    assert!(root.all_informed());
}
