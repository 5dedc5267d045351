//! One call in a file: [`CallRecord`], which takes [`CallRecord::WORDS`] words. Pure.

use fsgather_core::{Rank, Route, ceil_boundary, floor_boundary, hash::Hash64, plain_text};

use crate::trace::cause::Cause;

/// The result of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The call has not ended.
    #[default]
    Open,
    /// It has ended with its result.
    Done,
    /// It has ended with an error.
    Failed,
    /// The program has dropped its result.
    GivenUp,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Open, Self::Done, Self::Failed, Self::GivenUp];

    /// Returns a word for it, for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::GivenUp => "given up",
        }
    }
}

/// One call of one rank. Times are nanoseconds since the file was made, by the rank's clock that only goes forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRecord {
    /// The number of the call in its process, from 1.
    pub count: u64,
    /// The communicator; 0 is that of all ranks.
    pub channel: u64,
    /// The number of the call in the communicator, the same on all ranks.
    pub epoch: u64,
    /// The number of the call in messages.
    pub number: u64,
    /// The number of ranks that take part.
    pub ranks: u32,
    /// The result.
    pub outcome: Outcome,
    /// The reason for which it has failed.
    pub cause: Cause,
    /// The route of this rank's payload to the others.
    pub route: Route,
    /// The time when the call began.
    pub begun: u64,
    /// The time when this rank had handed in its part.
    pub handed_in: Option<u64>,
    /// The time when all ranks had handed in their parts.
    pub decided: Option<u64>,
    /// The time since which a thread of the program waits for all parts, if the call was started before.
    pub awaited: Option<u64>,
    /// The time when the call returned.
    pub ended: Option<u64>,
    /// Number of bytes that this rank has handed in.
    pub bytes: u64,
    /// Number of bytes that it has moved.
    pub moved: u64,
    /// Number of bytes that it has moved in all calls before.
    pub moved_before: u64,
    /// The rank that came last, by its name in the job, if this rank knows it.
    pub last: Option<u32>,
    /// The rank that made the call fail before all had arrived, by its name in the job, if the error names one.
    pub culprit: Option<u32>,
    /// The operation.
    pub operation: String,
    /// The place in the program, shortened if necessary.
    pub site: String,
}

/// Number of bytes for operation and place.
const TEXT_BYTES: usize = 80;
/// The word where they begin.
const TEXT_AT: usize = 13;
/// The last word, the checksum of the others.
const CHECKSUM_AT: usize = CallRecord::WORDS - 1;

/// A record that is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordWords {
    words: [u64; CallRecord::WORDS],
    /// The part of the checksum for the texts, which do not change.
    of_texts: u64,
}

/// A word of a record that changes during its call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    Count = 0,
    Channel = 1,
    Epoch = 2,
    Number = 3,
    Begun = 5,
    HandedIn = 6,
    /// While a thread waits for a call that was started before: since when.
    Decided = 7,
    Ended = 8,
    Bytes = 9,
    Moved = 10,
    MovedBefore = 11,
    /// One more than the rank.
    Last = 12,
}

/// The word that holds the number of ranks, and in these bytes outcome, route, whether it is awaited, and cause.
const PACKED: usize = 4;
const OUTCOME_BYTE: usize = 4;
const ROUTE_BYTE: usize = 5;
const AWAITED_BYTE: usize = 6;
const CAUSE_BYTE: usize = 7;

impl RecordWords {
    /// Returns the record of a call of this number of ranks.
    pub(crate) fn new(operation: &str, site: &str, ranks: u32) -> Self {
        let mut text = [0_u64; TEXT_BYTES / size_of::<u64>()];
        let operation = &operation.as_bytes()[..operation.len().min(TEXT_BYTES / 2)];
        let at = operation.len() + 1;
        let site = short(site, TEXT_BYTES - at).as_bytes();
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut text);
        bytes[..operation.len()].copy_from_slice(operation);
        bytes[at..at + site.len()].copy_from_slice(site);
        let mut words = [0; CallRecord::WORDS];
        words[TEXT_AT..CHECKSUM_AT].copy_from_slice(&text);
        words[PACKED] = u64::from(ranks);
        Self {
            words,
            of_texts: hash(&text),
        }
    }

    pub(crate) fn set(&mut self, field: Field, value: u64) {
        self.words[field as usize] = value;
    }

    pub(crate) fn get(&self, field: Field) -> u64 {
        self.words[field as usize]
    }

    pub(crate) fn set_outcome(&mut self, outcome: Outcome) {
        self.set_byte(OUTCOME_BYTE, outcome as u8);
    }

    /// Sets since when a thread waits for a call that was started before; none if it does not wait any more.
    pub(crate) fn set_awaited(&mut self, since: Option<u64>) {
        self.set_byte(AWAITED_BYTE, u8::from(since.is_some()));
        self.set(Field::Decided, since.unwrap_or_default());
    }

    /// Sets when all ranks had arrived.
    pub(crate) fn set_decided(&mut self, at: u64) {
        self.set_awaited(None);
        self.set(Field::Decided, at);
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.get(Field::Decided) != 0 && self.words[PACKED].to_le_bytes()[AWAITED_BYTE] == 0
    }

    pub(crate) fn set_cause(&mut self, cause: Cause) {
        self.set_byte(CAUSE_BYTE, cause as u8);
    }

    /// Sets the rank that came last, or the one that made the call fail before all had arrived.
    pub(crate) fn set_rank(&mut self, rank: Option<Rank>) {
        self.set(
            Field::Last,
            rank.map_or(0, |rank| u64::from(rank.get()) + 1),
        );
    }

    pub(crate) fn set_route(&mut self, route: Route) {
        self.set_byte(ROUTE_BYTE, route as u8);
    }

    fn set_byte(&mut self, at: usize, value: u8) {
        let mut bytes = self.words[PACKED].to_le_bytes();
        bytes[at] = value;
        self.words[PACKED] = u64::from_le_bytes(bytes);
    }

    /// Returns the record in the words.
    pub(crate) fn to_record(&self) -> CallRecord {
        CallRecord::from_valid(&self.words)
    }

    /// Returns the words with their checksum.
    pub(crate) fn sealed(&mut self) -> &[u64; CallRecord::WORDS] {
        self.words[CHECKSUM_AT] = hash(&self.words[..TEXT_AT]) ^ self.of_texts;
        &self.words
    }
}

/// Hashes words in the byte order of this host, which alone writes the file.
fn hash(words: &[u64]) -> u64 {
    Hash64::of(bytemuck::cast_slice(words))
}

/// Returns the checksum of all words except the last one; the texts have their own part.
fn checksum(words: &[u64; CallRecord::WORDS]) -> u64 {
    hash(&words[..TEXT_AT]) ^ hash(&words[TEXT_AT..CHECKSUM_AT])
}

/// Shortens a place to `room` bytes: to its end, from a directory on, if it is a line of a file, else to its beginning.
fn short(site: &str, room: usize) -> &str {
    if site.len() <= room {
        return site;
    }
    let from = ceil_boundary(site, site.len() - room);
    let end = &site[from..];
    let line = site.rsplit(':').next().unwrap_or_default();
    let is_of_file = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
    match end.find('/') {
        Some(at) if is_of_file => &end[at + 1..],
        _ => &site[..floor_boundary(site, room)],
    }
}

impl CallRecord {
    /// Number of words of a record.
    pub const WORDS: usize = 24;
    /// Number of bytes of a record.
    pub const SIZE: usize = Self::WORDS * size_of::<u64>();

    /// Reads a record; none if it was never written, or was being written.
    #[must_use]
    pub fn from_words(words: &[u64; Self::WORDS]) -> Option<Self> {
        let is_valid = words[CHECKSUM_AT] == checksum(words) && words[Field::Count as usize] != 0;
        is_valid.then(|| Self::from_valid(words))
    }

    fn from_valid(words: &[u64; Self::WORDS]) -> Self {
        let get = |field: Field| words[field as usize];
        let time = |field| Some(get(field)).filter(|time| *time != 0);
        let several = words[PACKED].to_le_bytes();
        let ranks = several.first_chunk().copied().unwrap_or_default();
        let is_awaited = several[AWAITED_BYTE] != 0;
        let text: Vec<u8> = words[TEXT_AT..CHECKSUM_AT]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let mut texts = text.split(|byte| *byte == 0).map(|part| {
            let part = String::from_utf8_lossy(part);
            plain_text(&part).replace('\n', " ")
        });
        let outcome = known(&Outcome::ALL, several[OUTCOME_BYTE]);
        let decided = time(Field::Decided).filter(|_| !is_awaited);
        let rank = get(Field::Last).checked_sub(1);
        let rank = rank.and_then(|rank| u32::try_from(rank).ok());
        let has_failed_early = outcome == Outcome::Failed && decided.is_none();
        Self {
            count: get(Field::Count),
            channel: get(Field::Channel),
            epoch: get(Field::Epoch),
            number: get(Field::Number),
            ranks: u32::from_le_bytes(ranks),
            outcome,
            route: known(&Route::ALL, several[ROUTE_BYTE]),
            cause: known(&Cause::ALL, several[CAUSE_BYTE]),
            begun: get(Field::Begun),
            handed_in: time(Field::HandedIn),
            decided,
            awaited: time(Field::Decided).filter(|_| is_awaited),
            ended: time(Field::Ended),
            bytes: get(Field::Bytes),
            moved: get(Field::Moved),
            moved_before: get(Field::MovedBefore),
            last: rank.filter(|_| !has_failed_early),
            culprit: rank.filter(|_| has_failed_early),
            operation: texts.next().unwrap_or_default(),
            site: texts.next().unwrap_or_default(),
        }
    }

    /// Returns how long this rank has waited for others, in nanoseconds, if all have arrived.
    #[must_use]
    pub fn waited(&self) -> Option<u64> {
        Some(self.decided?.saturating_sub(self.handed_in?))
    }

    /// Returns its result in a few words, with the cause if there is one.
    #[must_use]
    pub fn ending(&self) -> String {
        match (self.outcome.word(), self.cause.words()) {
            (outcome, "") => outcome.to_owned(),
            (outcome, cause) => format!("{outcome}: {cause}"),
        }
    }

    /// Returns true if a thread of the program waits in this call for other ranks, or for a call that continues beside the
    /// program.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let is_open = self.outcome == Outcome::Open && self.handed_in.is_some();
        let is_beside = self.is_beside() && self.awaited.is_none();
        is_open && self.decided.is_none() && !is_beside
    }

    /// Returns true if it was started to continue beside the program.
    #[must_use]
    pub fn is_beside(&self) -> bool {
        self.operation.starts_with("start_")
    }

    /// Returns true if it has failed before all ranks had arrived.
    #[must_use]
    pub fn failed_waiting(&self) -> bool {
        self.outcome == Outcome::Failed && self.handed_in.is_some() && self.decided.is_none()
    }

    /// Returns the operation with its number, as messages name it: `all_gather #2`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.operation.as_str() {
            "set-up" | "first call" | "group" | "close" => self.operation.clone(),
            operation => format!("{operation} #{}", self.number),
        }
    }
}

fn known<T: Copy + Default>(all: &[T], number: u8) -> T {
    all.get(usize::from(number)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> RecordWords {
        let mut words = RecordWords::new("all_gather", "/home/ada/eval.py:42", 4);
        words.set(Field::Count, 7);
        words.set(Field::Begun, 1_000);
        words.set(Field::HandedIn, 3_000);
        words.set(Field::Decided, 9_000);
        words.set(Field::Last, 3);
        words.set_route(Route::SharedMemory);
        words.set_outcome(Outcome::Done);
        words.set_cause(Cause::Other);
        words
    }

    #[test]
    fn record_of_an_early_failure_has_a_culprit_and_no_last_rank() {
        let mut words = words();
        words.set(Field::Decided, 0);
        words.set_outcome(Outcome::Failed);
        words.set_rank(Some(Rank::new(3)));
        let record = CallRecord::from_words(words.sealed()).unwrap();
        assert_eq!((record.last, record.culprit), (None, Some(3)));
    }

    #[test]
    fn what_was_written_is_read() {
        let record = CallRecord::from_words(words().sealed()).unwrap();
        assert_eq!(record.operation, "all_gather");
        assert_eq!(record.site, "/home/ada/eval.py:42");
        assert_eq!((record.ranks, record.last), (4, Some(2)));
        assert_eq!(record.culprit, None);
        assert_eq!(
            (record.route, record.outcome),
            (Route::SharedMemory, Outcome::Done)
        );
        assert_eq!((record.waited(), record.ended), (Some(6_000), None));
        assert_eq!(record.cause, Cause::Other);
    }

    #[test]
    fn call_is_awaited_until_it_is_decided() {
        let mut words = RecordWords::new("start_gather", "eval.py:42", 4);
        words.set(Field::Count, 7);
        words.set(Field::HandedIn, 3_000);
        let read = |words: &RecordWords| CallRecord::from_words(words.clone().sealed()).unwrap();
        assert!(!read(&words).is_waiting());
        words.set_awaited(Some(5_000));
        let awaited = read(&words);
        assert_eq!((awaited.awaited, awaited.decided), (Some(5_000), None));
        assert!(awaited.is_waiting() && !words.is_decided());
        words.set_awaited(None);
        assert!(!read(&words).is_waiting());
        words.set_awaited(Some(6_000));
        words.set_decided(9_000);
        let decided = read(&words);
        assert_eq!((decided.awaited, decided.decided), (None, Some(9_000)));
    }

    #[test]
    fn a_torn_record_and_an_empty_one_are_none() {
        let old = *words().sealed();
        let mut changed = words();
        changed.set(Field::Ended, 12_000);
        let new = *changed.sealed();
        for cut in 1..CallRecord::WORDS {
            let mut torn = old;
            torn[..cut].copy_from_slice(&new[..cut]);
            let is_old_or_torn = match CallRecord::from_words(&torn) {
                Some(record) => record.ended.is_none(),
                None => cut > Field::Ended as usize,
            };
            assert!(is_old_or_torn, "{cut}");
        }
        assert_eq!(CallRecord::from_words(&[0; CallRecord::WORDS]), None);
    }

    #[test]
    fn long_places_keep_their_end_and_commands_their_beginning() {
        let deep = format!("{}/eval.py:42", "/directory".repeat(20));
        let kept = short(&deep, 40);
        assert!(
            kept.ends_with("directory/eval.py:42") && kept.len() <= 40,
            "{kept}"
        );
        let line = format!("`fsgather gather {} --all`", "x".repeat(100));
        assert_eq!(short(&line, 20), &line[..20]);
        for room in 0..12 {
            assert!(short("äöüäöü/ä", room).len() <= room);
        }
        let long = RecordWords::new(&"o".repeat(200), &"s".repeat(200), 1);
        let mut long = long;
        long.set(Field::Count, 1);
        assert!(CallRecord::from_words(long.sealed()).is_some());
    }
}
