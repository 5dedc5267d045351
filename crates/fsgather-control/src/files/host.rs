//! Forms a world over marker files, as rank 0: [`host`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{ChannelId, Error, MailboxFactory, RendezvousBackend, sys::random::fresh};

use super::{
    carrier::FileCarrier,
    endpoint::CoordinatorEndpoint,
    node::{Endpoint, FileNode},
    outbox::Outbox,
};
use crate::{
    carrier::Carrier,
    coordinator::Coordinator,
    join::{
        config::{self, Config, Joined},
        record::{MarkerPlace, RendezvousRecord},
        record_keeper::{RecordKeeper, is_settled},
        refusal,
    },
    machines::Machines,
    member::Member,
    thread_call::without_a_thread,
    waiting::wait_asking,
};

/// Time within which ranks answer what they are doing, if the file system shows new files within seconds.
const LEAD: Duration = Duration::from_secs(8);

/// Maximum time that processes that have asked to join may take to learn that the world has failed: they look once a second.
const TOLD_LIMIT: Duration = Duration::from_secs(3);

/// Forms a world; `started` is the time at which this rank began to meet.
pub(crate) fn host(
    config: &Config,
    board: &Arc<dyn RendezvousBackend>,
    mailboxes: &dyn MailboxFactory,
    started: Instant,
) -> Result<Joined, Error> {
    let communicator = uuid::Builder::from_random_bytes(fresh()).into_uuid();
    let (facts, mailbox) = mailboxes
        .open(communicator, config.world_size)
        .map_err(|failure| config::raised_while_joining(config, failure))
        .inspect_err(|failure| refusal::refuse_unseen(config, &**board, failure))?;
    let machines = Machines::of_root(config, communicator, LEAD, started);
    let node = Arc::new(FileNode::over_files(
        machines,
        Endpoint::Coordinator(CoordinatorEndpoint::default()),
    ));
    let line = FileCarrier::start(
        config,
        Arc::clone(&node),
        (mailbox, Outbox::default()),
        None,
        Some(Arc::clone(board)),
    )?;
    node.obey_interrupt(config);
    node.open_eyes(config);
    let record = RendezvousRecord {
        communicator,
        markers: Some(MarkerPlace {
            facts,
            process: config.process.clone(),
        }),
        ..config::record(config)
    };
    let outcome = board.post(&record.to_bytes()).and_then(|()| {
        tend(config, Arc::clone(board), Arc::clone(&node))?;
        let formed = |member: &mut Member, coordinator: Option<&Coordinator>| {
            if let Some(failure) = member.failure(ChannelId::WORLD) {
                return Some(Err(failure.clone()));
            }
            coordinator
                .filter(|coordinator| coordinator.is_open())
                .map(|coordinator| Ok(coordinator.processes()))
        };
        wait_asking(
            &config.interrupt,
            None,
            || false,
            |slice| node.until(slice, formed),
        )
        .unwrap_or_else(|| Err(Error::rendezvous("meeting was cut short")))
    });
    match outcome {
        Ok(processes) => {
            line.watch_siblings(config, &processes);
            Ok(config::joined(config, communicator, processes, false, line))
        }
        Err(failure) => {
            let failure = config::raised_while_joining(config, failure);
            node.coordinate(|coordinator, _| coordinator.give_up(&failure));
            // Processes that have asked to join say goodbye once they know.
            node.all_told(TOLD_LIMIT);
            line.shut_down();
            Err(failure)
        }
    }
}

/// Keeps the record visible until the world has formed, then removes records of crashed runs; on a thread of its own, since
/// each of these calls may hang.
fn tend(
    config: &Config,
    board: Arc<dyn RendezvousBackend>,
    node: Arc<FileNode>,
) -> Result<(), Error> {
    let keeper = RecordKeeper::new(config, board);
    let work = move || {
        let mut pauses = RecordKeeper::pauses();
        loop {
            let settled = node.until(Some(pauses.next_pause()), |member, coordinator| {
                is_settled(member, coordinator)
            });
            match settled {
                Some(true) => return keeper.sweep(),
                Some(false) => return,
                None if keeper.tend().report(&node).is_break() => return,
                None => {}
            }
        }
    };
    let started = config.threads().start("fsgather-0-board", work);
    started.map(drop).map_err(|error| without_a_thread(&error))
}
