use std::sync::mpsc::{Receiver, channel};

use fsgather_core::{ChannelId, ProcessId, Rank, WorldSize};
use fsgather_testkit::MemoryMailbox;
use uuid::Uuid;

use super::{
    super::endpoint::{BulletinItem, CoordinatorEndpoint, To},
    *,
};
use crate::{
    fixtures,
    join::forming::{FormingWorlds, JoinRoute},
};

const NONCE: u128 = 0x1111_2222_3333_4444_5555_6666_7777_8888;

/// Time limit for events that happen soon, even on a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn process(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        ..ProcessId::default()
    }
}

/// Rank 0 of a place in memory, and a process that asks it to be rank 1 of 2.
struct Bed {
    post: Arc<MemoryMailbox>,
    mailbox: Arc<dyn Mailbox>,
    endpoint: CoordinatorEndpoint,
    outbox: Outbox,
    searching: Option<Searching>,
    events: Receiver<JoinEvent>,
}

impl Bed {
    /// Once rank 0 has read which process asks.
    fn asked() -> Self {
        let mut bed = Self::begin(None);
        let heard = bed.hear();
        assert!(
            matches!(heard, ToCoordinator::Join(JoinRequest::Join(join)) if join.rank == Rank::new(1))
        );
        bed
    }

    /// Looks where rank 0 is, or elsewhere.
    fn begin(elsewhere: Option<Vec<u8>>) -> Self {
        let post = MemoryMailbox::new();
        let world_size = WorldSize::new(2).unwrap();
        let opened = post.factory(&process(1)).open(Uuid::nil(), world_size);
        let (facts, mailbox) = opened.unwrap();
        let watched = Arc::clone(&post);
        let search_for = Search {
            mailboxes: post.factory(&process(2)),
            place: MarkerPlace {
                facts: elsewhere.unwrap_or(facts),
                process: process(1),
            },
            join: Join {
                process: process(2),
                ..fixtures::join(1, 2, NONCE)
            },
            is_running: Arc::new(move |process| watched.is_running(process)),
            threads: BackgroundThreads::default(),
        };
        let (tell, events) = channel();
        let searching = search(search_for, move |event| drop(tell.send(event)));
        Self {
            post,
            mailbox,
            endpoint: CoordinatorEndpoint::default(),
            outbox: Outbox::default(),
            searching: Some(searching.unwrap()),
            events,
        }
    }

    /// The next message that rank 0 gets; the order of what one letter holds is kept by the tests themselves.
    fn hear(&mut self) -> ToCoordinator {
        let deadline = clock::now() + SOON;
        loop {
            let found = self.mailbox.receive(true).unwrap();
            let mut heard = self.endpoint.receive(found);
            assert!(heard.len() < 2, "more than one message: {heard:?}");
            if let Some((from, nonce, message)) = heard.pop() {
                assert_eq!((from, nonce), (Rank::new(1), NONCE));
                return message;
            }
            assert!(clock::now() < deadline, "rank 0 hears nothing");
            clock::sleep(Duration::from_millis(1));
        }
    }

    fn say(&mut self, item: BulletinItem) {
        self.endpoint.send(To::Process(NONCE), item);
        self.outbox.put(self.endpoint.take_outgoing());
        self.outbox.send(&*self.mailbox, clock::now()).unwrap();
    }

    fn tell(&mut self, message: ToMember) {
        self.say(BulletinItem::Message(message));
    }

    fn take_in(&mut self) {
        self.say(BulletinItem::Admitted);
        self.tell(ToMember::Join(JoinReply::Forming {
            coordinator: "here (pid 1)".into(),
        }));
        let event = self.event();
        assert!(
            matches!(event, Some(JoinEvent::Forming { coordinator, .. }) if coordinator == "here (pid 1)")
        );
    }

    /// The next event of the process; `None` when its search has ended.
    fn event(&self) -> Option<JoinEvent> {
        match self.events.recv_timeout(SOON) {
            Ok(event) => Some(event),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("nothing happens"),
        }
    }

    fn has_learnt_all(&self) -> bool {
        self.event().is_none()
    }
}

fn bye() -> ToMember {
    ToMember::End(EndReply::Bye { orderly: true })
}

fn welcome(nonce: u128) -> ToMember {
    ToMember::Join(JoinReply::Welcome(Welcome {
        nonces: vec![0, nonce],
        communicator: Uuid::nil(),
        processes: vec![process(1), process(2)],
        timeout: SOON,
    }))
}

#[test]
fn a_rank_0_that_leaves_before_admitting_any_is_not_ours() {
    let mut bed = Bed::asked();
    bed.tell(bye());
    assert!(matches!(bed.event(), Some(JoinEvent::Failed(why)) if why == "it left"));
    assert!(bed.has_learnt_all());
}

#[test]
fn a_rank_0_that_leaves_after_it_took_in_is_lost() {
    let mut bed = Bed::asked();
    bed.take_in();
    bed.tell(bye());
    assert!(matches!(bed.event(), Some(JoinEvent::Lost(why)) if why == "it left"));
    assert!(bed.has_learnt_all());
}

#[test]
fn that_a_world_is_forming_is_told_once() {
    let mut bed = Bed::asked();
    bed.take_in();
    bed.tell(ToMember::Join(JoinReply::Forming {
        coordinator: "again".into(),
    }));
    bed.tell(bye());
    assert!(matches!(bed.event(), Some(JoinEvent::Lost(_))));
}

#[test]
fn the_end_of_rank_0_matters_to_those_in_its_world() {
    for is_in in [false, true] {
        let mut bed = Bed::asked();
        if is_in {
            bed.take_in();
        }
        bed.post.kill(&process(1));
        let how = "its process has ended";
        match bed.event() {
            Some(JoinEvent::Lost(why)) => assert!(is_in && why == how),
            Some(JoinEvent::Failed(why)) => assert!(!is_in && why == how),
            _ => panic!("another event"),
        }
        assert!(bed.has_learnt_all());
    }
}

#[test]
fn a_world_that_is_gone_matters_to_those_in_it() {
    for is_in in [false, true] {
        let mut bed = Bed::asked();
        if is_in {
            bed.take_in();
        }
        bed.mailbox.retire(Retirement::Over);
        match bed.event() {
            Some(JoinEvent::Lost(_)) => assert!(is_in),
            Some(JoinEvent::Failed(_)) => assert!(!is_in),
            _ => panic!("another event"),
        }
    }
}

#[test]
fn who_cannot_write_any_more_says_so_once_it_is_in() {
    const READ_ONLY: i32 = 30;
    for is_in in [false, true] {
        let mut bed = Bed::asked();
        if is_in {
            bed.take_in();
        }
        bed.post.refuse_sends(&process(2), READ_ONLY, u32::MAX);
        bed.searching.as_ref().unwrap().report_rival("a".into());
        match bed.event() {
            Some(JoinEvent::Unable(error)) => {
                assert!(is_in && error.to_string().contains("a test wants it so"));
            }
            Some(JoinEvent::Failed(why)) => assert!(!is_in && why.contains("a test wants it so")),
            _ => panic!("another event"),
        }
    }
}

#[test]
fn who_is_refused_says_goodbye() {
    let cause = || Error::config("a reason");
    let abort = ToMember::Call(CallReply::Abort {
        channel: ChannelId::WORLD,
        cause: cause(),
    });
    let refused = |reason| ToMember::Join(JoinReply::Refused { reason });
    let failed = refused(cause().into());
    let other_size = refused(RefusalReason::OtherSize("a size".into()));
    for message in [abort, failed, other_size] {
        let mut bed = Bed::asked();
        bed.tell(message);
        match bed.event() {
            Some(JoinEvent::Refused(RefusalReason::Failed(why))) => {
                assert_eq!(why.to_string(), cause().to_string());
            }
            Some(JoinEvent::Refused(RefusalReason::OtherSize(why))) => assert_eq!(why, "a size"),
            _ => panic!("another event"),
        }
        assert!(matches!(
            bed.hear(),
            ToCoordinator::End(EndRequest::Leave { cause: None })
        ));
        assert!(bed.has_learnt_all());
    }
}

#[test]
fn a_welcome_counts_for_those_whom_it_names() {
    let mut bed = Bed::asked();
    bed.take_in();
    bed.tell(welcome(NONCE + 1));
    bed.tell(welcome(NONCE));
    bed.tell(bye());
    let Some(JoinEvent::WelcomeOverFiles(entered)) = bed.event() else {
        panic!("another event");
    };
    assert_eq!(entered.welcome.nonces, [0, NONCE]);
    assert!(entered.outbox.is_empty());
    assert!(bed.has_learnt_all());
}

#[test]
fn a_world_that_has_formed_without_this_process_is_asked_again() {
    let mut bed = Bed::asked();
    let reason = RefusalReason::OtherStart("another start".into());
    bed.tell(ToMember::Join(JoinReply::Refused { reason }));
    assert!(matches!(
        bed.event(),
        Some(JoinEvent::Refused(RefusalReason::OtherStart(why))) if why == "another start"
    ));
    let told_at = clock::now();
    let reason = RefusalReason::AlreadyFormed {
        running: "a job".into(),
        is_live: true,
    };
    bed.tell(ToMember::Join(JoinReply::Refused { reason }));
    assert!(matches!(
        bed.event(),
        Some(JoinEvent::Refused(RefusalReason::AlreadyFormed { running, .. })) if running == "a job"
    ));
    assert!(
        matches!(bed.hear(), ToCoordinator::Join(JoinRequest::Join(join)) if join.nonce == NONCE)
    );
    assert!(clock::now() - told_at >= ASK_AGAIN);
}

#[test]
fn who_gives_up_says_why_and_rank_0_knows_before_it_is_over() {
    for cause in [None, Some(Error::config("its own reason"))] {
        let mut bed = Bed::asked();
        let searching = bed.searching.take().unwrap();
        searching.report_rival("b (pid 3)".into());
        assert!(
            matches!(bed.hear(), ToCoordinator::Join(JoinRequest::Rival { other }) if other == "b (pid 3)"),
            "a rival is told"
        );
        let expected = cause
            .clone()
            .unwrap_or_else(|| Error::config("it does not wait for the others any longer"));
        if let Some(cause) = cause {
            searching.will_not_come(cause);
        }
        drop(searching);
        // It is there already: dropping has waited for that.
        let found = bed.mailbox.receive(true).unwrap();
        let heard = bed.endpoint.receive(found);
        let [(_, _, ToCoordinator::End(EndRequest::Leave { cause: Some(cause) }))] = &heard[..]
        else {
            panic!("not a farewell: {heard:?}");
        };
        assert_eq!(cause.to_string(), expected.to_string());
        assert!(bed.has_learnt_all());
    }
}

#[tokio::test]
async fn each_of_two_worlds_is_told_of_the_other_one() {
    let mut beds = [Bed::asked(), Bed::asked()];
    let mut worlds = FormingWorlds::default();
    let names = ["n1 (pid 1)", "n2 (pid 1)"];
    for (bed, name) in beds.iter_mut().zip(names) {
        let searching = Arc::new(bed.searching.take().unwrap());
        worlds.add(name.into(), name.into(), JoinRoute::Files(searching));
        if name == names[0] {
            worlds.report_rivals().await;
        }
    }
    worlds.report_rivals().await;
    // The first one got no such report as long as it was alone.
    for (bed, rival) in beds.iter_mut().zip([names[1], names[0]]) {
        assert!(
            matches!(bed.hear(), ToCoordinator::Join(JoinRequest::Rival { other }) if other == rival)
        );
    }
}

#[test]
fn an_unseen_place_is_searched_until_rank_0_has_ended() {
    let bed = Bed::begin(Some(usize::MAX.to_le_bytes().to_vec()));
    bed.post.kill(&process(1));
    assert!(matches!(bed.event(), Some(JoinEvent::Failed(why)) if why == "its process has ended"));
    assert!(bed.has_learnt_all());
}
