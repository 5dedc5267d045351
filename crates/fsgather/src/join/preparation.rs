//! The preparation of a meeting from settings: directories, address and secret.

use std::{path::PathBuf, sync::Arc};

use fsgather_control::{job_credentials::JobCredentials, join::Meeting, means_loopback_only};
use fsgather_core::{BackgroundThreads, Error, Interrupt, JobKey, MailboxFactory, ProcessId, Rank};
use fsgather_store::{
    BackendDirectory, Class, FileBackend, FileSystem, MarkerOwner, MessageDirFactory, OwnUid,
    check_writing,
    slow_place::{directory_text, watched},
};
use uuid::Uuid;

use crate::join::{
    introduction::Introduction, local_context::LocalContext, rendezvous::Rendezvous, secret_file,
};
use fsgather_config::settings::{Control, RendezvousSetting, SecretSetting, Settings};

/// A way to meet, and the facts that set-ups need.
pub(crate) struct Prepared {
    pub(crate) meeting: Meeting,
    /// The facts that all ranks of this job share.
    pub(crate) job_credentials: JobCredentials,
    /// The places of messages if TCP does not work; none without a directory in which ranks meet.
    pub(crate) mailboxes: Option<Arc<dyn MailboxFactory>>,
    /// The program's own rendezvous, if it has one.
    pub(crate) introduction: Option<Arc<Introduction>>,
    pub(crate) context: LocalContext,
}

/// Prepares the meeting of a world of several ranks. With a rendezvous of the program's own it waits for rank 0's
/// record from there.
pub(crate) fn prepare(
    settings: &Settings,
    rendezvous: Option<&Rendezvous>,
    key: &JobKey,
    process: &ProcessId,
    interrupt: &Interrupt,
) -> Result<Prepared, Error> {
    let is_root = settings.detection.rank == Rank::ZERO;
    let given = given_secret(settings)?;
    let is_introduced = matches!(rendezvous, Some(Rendezvous::Custom(_)));
    // At an address, ranks with different world sizes learn of each other's sizes, because both processes belong to one
    // job.
    let has_address = matches!(rendezvous, Some(Rendezvous::Tcp(_)));
    let sizeless = has_address.then(|| key.of_any_size());
    let key = sizeless.as_ref().unwrap_or(key);
    let job_credentials = JobCredentials {
        // Ranks that a channel introduces need not have the same key.
        key: if is_introduced { 0 } else { key.hash().get() },
        secret: given,
    };
    let mut context = LocalContext::of(settings, key.uid);
    context.is_introduced = is_introduced;
    // Its ranks need no directory to meet, so only they have to agree on one for payloads.
    context.has_local_default |= is_introduced;
    let mut introduction = None;
    let (meeting, places) = match rendezvous {
        Some(Rendezvous::Custom(bootstrap)) => {
            let rank = settings.detection.rank;
            let timeout = settings.join_timeout.value;
            let begun = Arc::new(Introduction::begin(bootstrap, rank, timeout)?);
            introduction = Some(Arc::clone(&begun));
            let named: Vec<PathBuf> = context.named.iter().cloned().collect();
            let places = if settings.control.value == Control::Markers {
                let size = settings.detection.world_size;
                places(&named, None, key, is_root, &mut context)
                    .inspect_err(|failure| begun.refuse(process, size, failure))?
            } else {
                Vec::new()
            };
            (Meeting::Board(begun), places)
        }
        Some(Rendezvous::Tcp(address)) => (by_address(address, settings, key, given)?, Vec::new()),
        Some(Rendezvous::File(directory)) => by_directories(
            std::slice::from_ref(directory),
            None,
            key,
            process,
            is_root,
            &mut context,
        )?,
        None => {
            // Without a named directory rank 0 leaves its record in both defaults, and members look in both: containers
            // on one host need not share /tmp.
            let (local, problem) = match context.local_default().transpose() {
                Ok(local) => (local, None),
                Err(problem) => (None, Some(problem)),
            };
            let candidates = [context.named.clone(), local, context.shared_default.clone()];
            let candidates: Vec<PathBuf> = candidates.into_iter().flatten().collect();
            by_directories(&candidates, problem, key, process, is_root, &mut context)?
        }
    };
    let owner = MarkerOwner {
        process: process.clone(),
        uid: context.uid,
        user: context.user.clone(),
        job: context.job.clone(),
        mode: context.mode,
    };
    let places = sealed_enough(settings, places)?;
    let threads = BackgroundThreads::new(interrupt.clone());
    let mailboxes = (!places.is_empty()).then(|| {
        let factory = MessageDirFactory::new(places, owner).with_threads(threads);
        Arc::new(factory) as Arc<dyn MailboxFactory>
    });
    Ok(Prepared {
        meeting,
        job_credentials,
        mailboxes,
        introduction,
        context,
    })
}

/// Returns the places for messages in files: none if nothing may go over a network in plain text and some place is not
/// local to this host.
fn sealed_enough(
    settings: &Settings,
    places: Vec<BackendDirectory>,
) -> Result<Vec<BackendDirectory>, Error> {
    let mut places = places;
    if settings.encrypt.value {
        let mut elsewhere = places.iter().filter_map(|place| {
            let file_system = FileSystem::of(&place.directory).ok()?;
            (file_system.class() != Class::Local).then_some((place, file_system))
        });
        if let Some((place, file_system)) = elsewhere.next() {
            if settings.control.value == Control::Markers {
                return Err(Error::config(format!(
                    "FSGATHER_CONTROL=markers has messages go through {} ({}) in plain text, which FSGATHER_ENCRYPT=1 \
                     does not allow; set FSGATHER_CONTROL=tcp, or FSGATHER_ENCRYPT=0",
                    place.directory.display(),
                    file_system.name()
                )));
            }
            places.clear();
        }
    }
    Ok(places)
}

/// Returns the secret that the user has set, if any.
fn given_secret(settings: &Settings) -> Result<Option<[u8; 32]>, Error> {
    match &settings.secret.value {
        Some(SecretSetting::Given(secret)) => Ok(Some(*secret.bytes())),
        Some(SecretSetting::File(path)) => secret_file::read(path).map(Some),
        None => Ok(None),
    }
}

/// Returns a meeting in which rank 0 leaves its record in each usable directory, and the others look in all of them.
/// `problem` is the reason why another directory is missing in the list.
fn by_directories(
    directories: &[PathBuf],
    problem: Option<Error>,
    key: &JobKey,
    process: &ProcessId,
    is_root: bool,
    context: &mut LocalContext,
) -> Result<(Meeting, Vec<BackendDirectory>), Error> {
    let places = places(directories, problem, key, is_root, context)?;
    let board = FileBackend::new(places.clone(), key.hash(), process.clone());
    Ok((Meeting::Board(Arc::new(board)), places))
}

/// Returns the rendezvous directories in these directories.
///
/// Every rank tries for itself if it can write, so that all report the same error if none can.
fn places(
    directories: &[PathBuf],
    mut problem: Option<Error>,
    key: &JobKey,
    is_root: bool,
    context: &mut LocalContext,
) -> Result<Vec<BackendDirectory>, Error> {
    let mut places = Vec::new();
    for directory in directories {
        let mode = context.mode;
        let look = || {
            let path = context.make_rendezvous(directory)?;
            Ok((check_writing(&path, mode), path))
        };
        match watched(directory_text(directory), look) {
            Err(error) => problem = problem.or_else(|| Some(context.worded(error))),
            Ok((written, path)) => match written {
                Ok((own, _)) => {
                    context.known.push((path.clone(), own));
                    places.push(BackendDirectory {
                        directory: path,
                        own,
                    });
                }
                Err(error) => {
                    problem = problem.or_else(|| Some(context.worded(error)));
                    // Perhaps it can at least be read, so that the others can be notified.
                    let own = OwnUid(key.uid);
                    places.push(BackendDirectory {
                        directory: path,
                        own,
                    });
                }
            },
        }
    }
    if context.known.is_empty() {
        let problem = problem.unwrap_or_else(|| {
            Error::config(
                "no directory to meet in; name one on a shared file system with FSGATHER_DIR",
            )
        });
        if places.is_empty() || is_root {
            return Err(problem);
        }
        context.problem = Some(problem);
    } else if let Some(problem) = problem {
        tracing::debug!("one of the directories to meet in cannot be used: {problem}");
    }
    Ok(places)
}

fn by_address(
    address: &str,
    settings: &Settings,
    key: &JobKey,
    given: Option<[u8; 32]>,
) -> Result<Meeting, Error> {
    let (host, port) = RendezvousSetting::host_and_port(address)?;
    let secret = given.unwrap_or_else(|| {
        if settings.detection.rank == Rank::ZERO {
            let whoever = if means_loopback_only(&host) {
                "whoever is on this host"
            } else {
                "whoever can reach that port"
            };
            fsgather_core::warn!(
                "no FSGATHER_SECRET is set for tcp://{address}: {whoever} and knows the job can join it"
            );
        }
        key.derived_secret()
    });
    Ok(Meeting::Address {
        host,
        port,
        // This is only a name for the handshake; the world's own identity is in the welcome message.
        communicator: Uuid::from_u64_pair(key.hash().get(), 0),
        secret,
    })
}
