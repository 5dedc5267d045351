//! Calls that may hang, on a thread of their own: [`Caretaker`].

use std::{
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use fsgather_core::{Deadline, Error, StorageCause};

use crate::{
    cleaning, condemnation, file,
    gather_dir::GatherDir,
    judgement::Rules,
    layout::{GatherEntry, PayloadName},
    listing,
    payload_writer::PayloadId,
    remove,
};

/// How long a sweep may take; what is left then is left to the next.
const SWEEPING: Duration = Duration::from_secs(1);

/// How long [`Caretaker::finish`] waits for a thread that may hang in a file call.
const LAST_WAIT: Duration = Duration::from_secs(2);

enum Order {
    Reclaim(PayloadName),
    ReclaimOf(PayloadId),
    Sweep(Option<String>),
    Stop,
}

/// Renews the beat of a gather directory and removes payloads that nobody needs any more, so that no
/// file call of that kind ever keeps a caller waiting.
///
/// Dropping it stops it, as [`finish`](Self::finish) does; in a forked child that does nothing.
pub struct Caretaker {
    orders: Sender<Order>,
    /// Closed by the thread when it ends.
    end: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    condemned: Arc<Mutex<Option<Error>>>,
    process: u32,
}

impl Caretaker {
    /// Starts the thread. The owner of the directory gives the period of its beat; others give `None`.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] when no thread can be started.
    pub fn start(directory: GatherDir, beat: Option<Duration>) -> Result<Self, Error> {
        let (orders, to_do) = mpsc::channel();
        let (ending, end) = mpsc::channel();
        let condemned = Arc::new(Mutex::new(None));
        let path = directory.path().to_owned();
        let work = Work {
            directory,
            beat,
            condemned: Arc::clone(&condemned),
            counter: 0,
            has_warned: false,
            sweep_again: None,
        };
        let thread = thread::Builder::new()
            .name("fsgather-files".into())
            .spawn(move || {
                work.run(&to_do);
                drop(ending);
            })
            .map_err(|error| Error::storage("start a thread for", path, &error))?;
        Ok(Self {
            orders,
            end,
            thread: Some(thread),
            condemned,
            process: std::process::id(),
        })
    }

    /// Has a payload removed, some time soon. Failures are logged.
    pub fn reclaim(&self, name: PayloadName) {
        // The thread ends before its channel does only when it is told to.
        let _ = self.orders.send(Order::Reclaim(name));
    }

    /// Has the payload of a rank that has gone removed, some time soon. Failures are logged.
    pub fn reclaim_of(&self, id: PayloadId) {
        let _ = self.orders.send(Order::ReclaimOf(id));
    }

    /// Has gather directories that earlier attempts at a job have left beside this one removed, some time
    /// soon; those that ranks may still read from, once they do not.
    ///
    /// Removed are directories of this user's whose owners are proved to be gone, whatever the attempt
    /// and world size. Failures are logged.
    pub fn sweep(&self, job: Option<String>) {
        let _ = self.orders.send(Order::Sweep(job));
    }

    /// Whether the directory may still be used.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`] once somebody has taken the directory for abandoned and condemned it, or it has
    /// vanished.
    pub fn check(&self) -> Result<(), Error> {
        let condemned = self
            .condemned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        condemned.clone().map_or(Ok(()), Err)
    }

    /// Stops the thread after what it has been asked to do so far; one that hangs in a file call is
    /// abandoned after 2 seconds. Returns whether it has ended.
    #[must_use = "it tells whether a thread was left behind"]
    pub fn finish(mut self) -> bool {
        self.stop()
    }

    fn stop(&mut self) -> bool {
        let Some(thread) = self.thread.take() else {
            return true;
        };
        // A forked child has the handle but not the thread.
        if self.process != std::process::id() {
            return false;
        }
        let _ = self.orders.send(Order::Stop);
        match self.end.recv_timeout(LAST_WAIT) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("a file call hangs; leaving its thread behind");
                false
            }
            // Nothing is ever sent: the thread has ended, in good order or not.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => thread.join().is_ok(),
        }
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Caretaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caretaker")
            .field("condemned", &self.condemned)
            .finish_non_exhaustive()
    }
}

/// What the thread works with.
struct Work {
    directory: GatherDir,
    beat: Option<Duration>,
    condemned: Arc<Mutex<Option<Error>>>,
    counter: u64,
    has_warned: bool,
    /// When to sweep again, and for which job.
    sweep_again: Option<(Instant, Option<String>)>,
}

impl Work {
    fn run(mut self, to_do: &Receiver<Order>) {
        let mut next = Instant::now();
        loop {
            let order = match self.beat {
                None => to_do.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(period) => {
                    if Instant::now() >= next {
                        let is_there = self.renew();
                        self.look_for_condemnation();
                        if !is_there {
                            self.condemn("it has vanished: somebody has removed it".into());
                        }
                        self.sweep_if_due();
                        next = Deadline::after(Instant::now(), period).at();
                    }
                    to_do.recv_timeout(next.saturating_duration_since(Instant::now()))
                }
            };
            match order {
                Ok(Order::Reclaim(name)) => {
                    if let Err(error) = self.directory.reclaim(name) {
                        tracing::warn!("{error}");
                    }
                }
                Ok(Order::ReclaimOf(id)) => {
                    if let Err(error) = self.directory.reclaim_of(id) {
                        tracing::warn!("{error}");
                    }
                }
                Ok(Order::Sweep(job)) => self.sweep(job),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn sweep_if_due(&mut self) {
        if let Some((at, job)) = self.sweep_again.take() {
            if Instant::now() >= at {
                self.sweep(job);
            } else {
                self.sweep_again = Some((at, job));
            }
        }
    }

    fn sweep(&mut self, job: Option<String>) {
        let Some(rendezvous) = self.directory.path().parent() else {
            return;
        };
        let end = Deadline::after(Instant::now(), SWEEPING);
        let is_enough = || end.has_passed(Instant::now());
        let rules = Rules::default();
        let own = Some(self.directory.facts().id);
        match cleaning::sweep(rendezvous, own, job.as_deref(), rules, &is_enough) {
            Ok(false) => {}
            Ok(true) => {
                let at = Deadline::after(Instant::now(), rules.readers).at();
                self.sweep_again = Some((at, job));
            }
            Err(error) => tracing::debug!("cannot sweep: {error}"),
        }
    }

    /// Writes the next beat, then removes the one before; whether the directory is still there.
    fn renew(&mut self) -> bool {
        let path = |counter| {
            self.directory
                .path()
                .join(GatherEntry::Beat(counter).to_string())
        };
        let result = file::write_new(&path(self.counter), self.directory.file_mode(), b"", false)
            .and_then(|()| match self.counter.checked_sub(1) {
                None => Ok(()),
                Some(before) => remove::unlink(&path(before)),
            });
        self.counter += 1;
        let Err(error) = result else {
            return true;
        };
        if !self.has_warned {
            self.has_warned = true;
            tracing::warn!(path = %self.directory.path().display(), %error, "cannot renew the beat");
        }
        // Creating a file is asked of the server, whatever the client remembers.
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        !(is_gone(&error)
            && listing::examine_path(self.directory.path()).is_err_and(|error| is_gone(&error)))
    }

    fn look_for_condemnation(&self) {
        let Some(rendezvous) = self.directory.path().parent() else {
            return;
        };
        let (id, own) = (self.directory.facts().id, self.directory.own());
        let Some((mark, by)) = condemnation::condemned_by(rendezvous, id, own) else {
            return;
        };
        self.condemn(format!(
            "condemned by {by}: it was taken for abandoned ({mark})"
        ));
    }

    fn condemn(&self, why: String) {
        let cause = StorageCause::described(why);
        let error = Error::storage("use", self.directory.path(), cause);
        self.condemned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    use fsgather_core::{ChannelId, Epoch, Rank};

    use super::*;
    use crate::{
        collect::tests::gather_dir,
        layout::RendezvousEntry,
        patience::{Patience, Progress},
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
        let mut patience = Patience::new(Duration::from_secs(30));
        let nobody: &mut Progress<'_> = &mut |_| Ok(());
        while !condition() {
            assert!(patience.pause(nobody).unwrap(), "waited in vain");
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
                crate::CompressionSetting::None,
                |_| Ok(()),
            );
            writer.unwrap().publish().unwrap().name
        };
        publish(1);
        let other = publish(2);
        let caretaker = Caretaker::start(directory.clone(), None).unwrap();
        caretaker.reclaim_of(id(1));
        caretaker.reclaim_of(id(1));
        assert!(caretaker.finish());
        let left = listing::names(&directory.path().join("payloads")).unwrap();
        assert_eq!(left, [other.to_string()]);
    }

    #[test]
    fn the_beat_has_a_new_name_each_time_and_at_most_two_at_once() {
        let (_place, directory) = gather_dir();
        let caretaker =
            Caretaker::start(directory.clone(), Some(Duration::from_millis(5))).unwrap();
        wait_until(|| {
            let counters = beats(&directory);
            assert!(counters.len() <= 2, "{counters:?}");
            counters.last().is_some_and(|&last| last >= 3)
        });
        assert!(caretaker.finish());
        assert_eq!(beats(&directory).len(), 1);
        assert!(directory.remove().is_complete());
    }

    #[test]
    fn members_do_not_beat_but_reclaim() {
        let (_place, directory) = gather_dir();
        let name = PayloadName::new(ChannelId::WORLD, Epoch::FIRST, Rank::ZERO, 9);
        let path = directory.payloads().join(name.to_string());
        std::fs::write(&path, b"").unwrap();
        let caretaker = Caretaker::start(directory.clone(), None).unwrap();
        caretaker.reclaim(name);
        caretaker.reclaim(name);
        // What was asked for before is done before it ends.
        assert!(caretaker.finish());
        assert!(!path.exists());
        assert!(beats(&directory).is_empty());
    }

    #[test]
    fn dropping_ends_it_long_before_the_next_beat() {
        let (_place, directory) = gather_dir();
        let started = Instant::now();
        drop(Caretaker::start(directory, Some(Duration::from_hours(1))).unwrap());
        assert!(started.elapsed() < Duration::from_mins(1));
    }

    #[test]
    fn an_owner_whose_directory_has_vanished_is_told_so() {
        let (_place, directory) = gather_dir();
        let caretaker =
            Caretaker::start(directory.clone(), Some(Duration::from_millis(5))).unwrap();
        caretaker.check().unwrap();
        while !directory.remove().is_complete() {}
        wait_until(|| caretaker.check().is_err());
        let text = caretaker.check().unwrap_err().to_string();
        let path = directory.path().to_str().unwrap();
        assert!(
            text.contains(path) && text.contains("it has vanished"),
            "{text}"
        );
    }

    #[test]
    fn an_owner_whose_directory_was_condemned_is_told_by_whom() {
        let (place, directory) = gather_dir();
        let caretaker =
            Caretaker::start(directory.clone(), Some(Duration::from_millis(5))).unwrap();
        caretaker.check().unwrap();
        let mark = RendezvousEntry::Condemned {
            id: directory.facts().id,
            nonce: 7,
        };
        // Written elsewhere first, so that it is seen whole.
        let draft = place.path().join("draft");
        std::fs::write(&draft, "fsgather clean on n3 (pid 8)\n").unwrap();
        std::fs::rename(draft, place.path().join(mark.to_string())).unwrap();
        wait_until(|| caretaker.check().is_err());
        let text = caretaker.check().unwrap_err().to_string();
        assert!(
            text.contains("condemned by fsgather clean on n3 (pid 8)"),
            "{text}"
        );
    }
}
