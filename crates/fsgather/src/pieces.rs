//! A payload that is bytes already, in pieces: [`Pieces`].

use bytes::Bytes;
use fsgather_store::Encoding;

use crate::{
    codec,
    payload::input::{InputSource, PayloadInput},
};

/// The bytes that a rank hands over in a call: a slice, [`Bytes`], or several of these.
///
/// Slices are borrowed for the call, and copied if they must be kept longer; [`Bytes`] are never copied. The payload of
/// a root in its own gather is not sent: [`Bytes`] are kept as they are, and up to 8 MiB of other pieces are copied
/// rather than written to a file. Several pieces that go to a file are not joined: recipients get one
/// [`Payload`](crate::Payload) of all pieces one after the other, and only the rest of a piece after its whole
/// mebibytes is copied on the way. A payload that travels with the control messages is joined in them. A payload that
/// goes from memory to memory is joined first if it has more than one piece that is not empty, and otherwise kept as it
/// is.
///
/// ```
/// use bytes::Bytes;
/// use fsgather::{Communicator, Pieces};
///
/// let communicator = Communicator::solo();
/// let all = communicator.all_gather(Pieces::from(b"a slice"))?;
/// assert_eq!(&*all[0], b"a slice");
///
/// let head = Bytes::from_static(b"shape 2,2;");
/// let values = Bytes::from(vec![0; 16]); // or Bytes::from_owner(their owner)
/// let all = communicator.all_gather(Pieces::new(128, vec![head, values]))?;
/// assert!(all[0].starts_with(b"shape 2,2;"));
/// assert_eq!(all[0].len(), 26);
/// # Ok::<(), fsgather::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    encoding: Encoding,
    content: Content<'a>,
    /// The number of leading bytes that do not count against a bound.
    uncounted: u64,
}

#[derive(Clone, Debug)]
enum Content<'a> {
    Slice(&'a [u8]),
    Shared(Bytes),
    List(Vec<Bytes>),
    /// The reason why there is no payload.
    Failure(String),
}

impl Pieces<'_> {
    /// The encoding of payloads of the Python package: values of Python, by its own codec.
    #[doc(hidden)]
    pub const PYTHON: u8 = 32;

    /// Returns a payload of these pieces, in this order.
    ///
    /// `encoding` is the number in the header of a payload's file that says how its bytes must be read, for programs
    /// that find the file; ranks do not compare it. Programs use 128 to 191, as a
    /// [`Codec`](crate::codec::Codec::number) of theirs does; 32 to 63 are for packages in other languages.
    #[must_use]
    pub const fn new(encoding: u8, pieces: Vec<Bytes>) -> Self {
        Self {
            encoding: Encoding(encoding),
            content: Content::List(pieces),
            uncounted: 0,
        }
    }

    /// Returns the same payload, with the first `bytes` not counted as the program's own, as for a header: neither a
    /// [bound](crate::Options::bound) nor the error that names it counts them.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use fsgather::{Communicator, Error, Options, Pieces};
    ///
    /// let communicator = Communicator::solo();
    /// let call = communicator.with(Options::new().bound(4));
    /// let of = |own: &'static [u8]| {
    ///     let head = Bytes::from_static(b"version 1;");
    ///     Pieces::new(128, vec![head, Bytes::from_static(own)]).not_counting(10)
    /// };
    /// assert_eq!(&*call.all_gather(of(b"four"))?[0], b"version 1;four");
    /// let error = call.all_gather(of(b"eleven more")).unwrap_err();
    /// assert!(matches!(error, Error::TooLarge { size: 11, bound: 4, .. }));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn not_counting(mut self, bytes: u64) -> Self {
        self.uncounted = bytes;
        self
    }

    /// Returns no payload at all: its call fails on all ranks with [`Error::PeerFailed`](crate::Error::PeerFailed),
    /// which names this rank and gives the reason.
    ///
    /// For a value that cannot be turned into bytes: no rank is left waiting, and all ranks get the same error.
    ///
    /// ```
    /// use fsgather::{Communicator, Pieces};
    ///
    /// let failing = Pieces::failing("TypeError: a generator cannot be pickled");
    /// let error = Communicator::solo().all_gather(failing).unwrap_err();
    /// assert!(error.to_string().contains("generator"), "{error}");
    /// ```
    #[must_use]
    pub fn failing(reason: impl Into<String>) -> Self {
        Self {
            encoding: codec::BYTES,
            content: Content::Failure(reason.into()),
            uncounted: 0,
        }
    }

    /// Returns the length of the payload in bytes.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        match &self.content {
            Content::Slice(slice) => slice.len() as u64,
            Content::Shared(bytes) => bytes.len() as u64,
            Content::List(list) => list.iter().map(|piece| piece.len() as u64).sum(),
            Content::Failure(_) => 0,
        }
    }
}

impl<'a> From<Pieces<'a>> for PayloadInput<'a> {
    fn from(pieces: Pieces<'a>) -> Self {
        Self {
            encoding: pieces.encoding,
            uncounted: pieces.uncounted,
            source: match pieces.content {
                Content::Slice(slice) => InputSource::Slice(slice),
                Content::Shared(bytes) => InputSource::Shared(bytes),
                Content::List(list) => InputSource::Pieces(list),
                Content::Failure(reason) => InputSource::Failure(reason),
            },
        }
    }
}

impl<'a> From<&'a [u8]> for Pieces<'a> {
    fn from(slice: &'a [u8]) -> Self {
        Self {
            encoding: codec::BYTES,
            content: Content::Slice(slice),
            uncounted: 0,
        }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Pieces<'a> {
    fn from(array: &'a [u8; N]) -> Self {
        array.as_slice().into()
    }
}

impl<'a> From<&'a Vec<u8>> for Pieces<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl From<Bytes> for Pieces<'_> {
    fn from(bytes: Bytes) -> Self {
        Self {
            encoding: codec::BYTES,
            content: Content::Shared(bytes),
            uncounted: 0,
        }
    }
}

impl From<Vec<u8>> for Pieces<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_as_long_as_all_together() {
        let bytes = || Bytes::from_static(b"abc");
        let list = Pieces::new(200, vec![bytes(), Bytes::new(), bytes()]);
        assert_eq!(list.total_len(), 6);
        assert_eq!(Pieces::from(b"four").total_len(), 4);
        assert_eq!(Pieces::from(&vec![0; 5]).total_len(), 5);
        assert_eq!(Pieces::from(vec![0; 7]).total_len(), 7);
        assert_eq!(Pieces::from(bytes()).total_len(), 3);
        assert_eq!(Pieces::failing("why").total_len(), 0);
    }

    #[test]
    fn they_say_what_their_bytes_are() {
        let encoding = |pieces: Pieces<'_>| PayloadInput::from(pieces).encoding;
        assert_eq!(encoding(Pieces::new(200, Vec::new())), Encoding(200));
        for plain in [
            Pieces::from(b"x"),
            Pieces::from(vec![1]),
            Pieces::failing("why"),
        ] {
            assert_eq!(encoding(plain), codec::BYTES);
        }
    }
}
