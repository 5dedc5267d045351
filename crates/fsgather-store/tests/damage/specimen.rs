//! A file that the store has written, with the code that reads and damages it: [`Specimen`].

use std::{
    fmt::Display,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, mpsc},
};

use fsgather_core::Error;
use fsgather_testkit::pace::{cases, patience};

use crate::stand_ins::{Outside, StandIn};

/// Runs `work`, which must not take long.
pub(crate) fn within<T: Send + 'static>(
    what: &dyn Display,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (tell, told) = mpsc::channel();
    // The thread is never joined: if it blocks, the test must still be able to report that.
    std::thread::spawn(move || {
        // The receiver is gone if the work was too slow.
        let _ = tell.send(work());
    });
    told.recv_timeout(patience())
        .unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Result of reading a file.
#[derive(Debug)]
pub(crate) enum Reading {
    /// The written content.
    Right,
    /// The complete content of another file of the kind.
    Other,
    /// The file was passed over, or its contents do not count.
    Nothing,
    /// An error.
    Refused(Error),
    /// Anything else.
    Wrong(String),
}

impl Reading {
    /// The result for items that are either returned as they were written or not at all.
    pub(crate) fn of_listed<T: PartialEq + std::fmt::Debug>(found: &[T], right: &T) -> Self {
        match found {
            [] => Self::Nothing,
            [one] if one == right => Self::Right,
            _ => Self::Wrong(format!("{found:?}")),
        }
    }
}

/// Required response of a reader to a damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An error that names it.
    Error,
    /// No item: there may be others, or the file may be visible before it is complete.
    Nothing,
}

/// A file that the store has written.
pub(crate) struct Specimen {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) read: Arc<dyn Fn() -> Reading + Send + Sync>,
    pub(crate) answer: Answer,
    /// The lengths to which it is cut.
    pub(crate) lengths: Vec<usize>,
    /// The bytes of which each bit is flipped.
    pub(crate) bytes: Vec<usize>,
    /// Offset from which on bytes have no meaning.
    pub(crate) meaningless_from: usize,
    /// Other files of its kind.
    pub(crate) others: Vec<Vec<u8>>,
    /// True if another file in its place is accepted: its content names its receiver for the layers above the store.
    pub(crate) is_as_good: bool,
    /// Keeps the directory alive.
    pub(crate) place: Arc<tempfile::TempDir>,
}

impl Specimen {
    /// A specimen of which every length and every bit is tried.
    pub(crate) fn small(
        name: &str,
        path: PathBuf,
        answer: Answer,
        place: &Arc<tempfile::TempDir>,
        read: impl Fn() -> Reading + Send + Sync + 'static,
    ) -> Self {
        let len = fs::read(&path).unwrap().len();
        Self {
            name: name.to_owned(),
            path,
            read: Arc::new(read),
            answer,
            lengths: (0..len).collect(),
            bytes: (0..len).collect(),
            meaningless_from: len,
            others: Vec::new(),
            is_as_good: false,
            place: Arc::clone(place),
        }
    }

    pub(crate) fn with_others(mut self, others: Vec<Vec<u8>>, is_as_good: bool) -> Self {
        (self.others, self.is_as_good) = (others, is_as_good);
        self
    }

    fn whole(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    /// Reads it, with a time limit.
    fn look(&self, after: &dyn Display) -> Reading {
        let read = Arc::clone(&self.read);
        within(&format_args!("{} {after}", self.name), move || read())
    }

    /// Reads it after damage.
    fn is_told(&self, after: &dyn Display, harmless: bool) {
        match self.look(after) {
            Reading::Right if harmless => {}
            Reading::Nothing if self.answer == Answer::Nothing => {}
            Reading::Refused(error) if self.answer == Answer::Error => {
                self.is_precise(&error, after);
            }
            Reading::Wrong(what) => panic!("{} {after}: {what}", self.name),
            other => panic!("{} {after}: {other:?}", self.name),
        }
    }

    fn is_precise(&self, error: &Error, after: &dyn Display) {
        let text = error.to_string();
        let is_of_kind = matches!(
            error,
            Error::Corrupt { .. } | Error::Storage { .. } | Error::Incompatible { .. }
        );
        let names_it = text.contains(&self.path.display().to_string());
        assert!(is_of_kind && names_it, "{} {after}: {text}", self.name);
    }

    pub(crate) fn is_right_again(&self) {
        let reading = self.look(&"as it was");
        assert!(
            matches!(reading, Reading::Right),
            "{}: {reading:?}",
            self.name
        );
    }

    pub(crate) fn cut_everywhere(&self) -> usize {
        let whole = self.whole();
        for &len in self.lengths.iter().step_by(cases(3, 1)) {
            fs::write(&self.path, &whole[..len]).unwrap();
            self.is_told(
                &format_args!("cut to {len} bytes"),
                len >= self.meaningless_from,
            );
        }
        fs::write(&self.path, &whole).unwrap();
        self.lengths.len().div_ceil(cases(3, 1))
    }

    pub(crate) fn flip_bits(&self) -> usize {
        let file = File::options()
            .read(true)
            .write(true)
            .open(&self.path)
            .unwrap();
        for &at in &self.bytes {
            let offset = at as u64;
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).unwrap();
            // In quick runs, one bit of each byte.
            for bit in (0..8).filter(|bit| *bit == at % 8 || cases(false, true)) {
                file.write_all_at(&[byte[0] ^ (1 << bit)], offset).unwrap();
                let after = format_args!("with bit {bit} of byte {at} flipped");
                self.is_told(&after, at >= self.meaningless_from);
            }
            file.write_all_at(&byte, offset).unwrap();
        }
        self.bytes.len() * cases(1, 8)
    }

    pub(crate) fn swap_and_double(&self) -> usize {
        let whole = self.whole();
        for (number, other) in self.others.iter().enumerate() {
            assert!(*other != whole, "{}: another one", self.name);
            fs::write(&self.path, other).unwrap();
            let after = format!("with the contents of other {number}");
            if self.is_as_good {
                let reading = self.look(&after);
                assert!(
                    matches!(reading, Reading::Other),
                    "{} {after}: {reading:?}",
                    self.name
                );
            } else {
                self.is_told(&after, false);
            }
        }
        let is_harmless = self.meaningless_from < whole.len();
        for (what, contents) in [
            ("twice in one", [&whole[..], &whole].concat()),
            ("with a byte more", [&whole[..], b"\0"].concat()),
            ("before nothing", [&whole[..], &[0; 4096]].concat()),
            ("after a byte", [b"\n", &whole[..]].concat()),
        ] {
            fs::write(&self.path, contents).unwrap();
            self.is_told(&what, is_harmless && !what.starts_with("after"));
        }
        fs::write(&self.path, &whole).unwrap();
        self.others.len() + 4
    }

    pub(crate) fn put_others_in_its_place(&self) -> usize {
        let aside = self.place.path().join("aside");
        let outside = Outside::with(&self.whole());
        fs::rename(&self.path, &aside).unwrap();
        let mut count = 0;
        for stand_in in StandIn::ALL {
            if !stand_in.put(&self.path, &outside) {
                continue;
            }
            self.is_told(&format_args!("with {stand_in:?} in its place"), false);
            outside.is_untouched(stand_in);
            stand_in.take_away(&self.path);
            count += 1;
        }
        fs::rename(&aside, &self.path).unwrap();
        count
    }
}
