//! The inputs of a call: [`Input`], and [`Stream`].

use std::{fmt, io::Read};

use bytes::Bytes;
use fsgather_core::Call;
use fsgather_store::Payload;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    build_identity::type_tag,
    codec::{self, Codec},
    parts::Take,
    payload::input::{InputSource, PayloadInput},
    pieces::Pieces,
};

/// The input of a rank in a call.
///
/// | input | what the others get |
/// |---|---|
/// | `&value` | the value, by the communicator's [`Codec`]; a [`String`] for `&str`, a [`Vec`] for `&[T]` |
/// | [`Bytes`], or [`Pieces`] for slices, vectors and several of them | a [`Payload`] |
/// | [`Stream`] | a [`Payload`] of all that it reads |
///
/// All ranks hand in the same type. Other crates cannot implement this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be handed in",
    note = "hand in `&value` with a type that is `Serialize` and `DeserializeOwned`, or bytes as `Bytes`, `Pieces` or `Stream`"
)]
pub trait Input: sealed::Sealed {
    /// The type that receiving ranks get.
    type Output;

    /// Returns the payload.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "nobody else calls it")]
    fn payload<'s>(self, codec: &'s impl Codec) -> PayloadInput<'s>
    where
        Self: 's;

    /// Returns the function that turns a payload into the output.
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "nobody else calls it")]
    fn taking(codec: &impl Codec) -> Take<Self::Output>;

    /// Returns the call with the type of the input, if ranks must compare types.
    #[doc(hidden)]
    fn typed(call: Call, _codec: &impl Codec) -> Call {
        call
    }
}

mod sealed {
    pub trait Sealed {}

    impl<T: ?Sized> Sealed for &T {}
    impl Sealed for bytes::Bytes {}
    impl Sealed for crate::Pieces<'_> {}
    impl Sealed for super::Stream<'_> {}
}

/// The bytes that a reader yields, up to its end, as the input of a call.
///
/// The bytes are not held in memory: unless they travel as a file, all but a few megabytes wait in a nameless file in
/// `/tmp` until they are read. An error of the reader is [`Error::PeerFailed`](crate::Error::PeerFailed) on all ranks.
///
/// ```
/// use fsgather::{Communicator, Stream};
///
/// let communicator = Communicator::solo();
/// let all = communicator.all_gather(Stream::new(&mut "a file, perhaps".as_bytes()))?;
/// assert_eq!(&*all[0], b"a file, perhaps");
/// # Ok::<(), fsgather::Error>(())
/// ```
pub struct Stream<'a>(&'a mut dyn Read);

impl<'a> Stream<'a> {
    /// Returns an input of the bytes that `source` yields.
    pub fn new(source: &'a mut dyn Read) -> Self {
        Self(source)
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// Implements [`Input`] for a reference that the codec encodes, and that arrives as `$output`.
macro_rules! value {
    ($value:ty, $output:ty $(, $item:ident)?) => {
        #[expect(private_interfaces, reason = "nobody else calls it")]
        impl$(<$item: Serialize + DeserializeOwned>)? Input for &$value {
            type Output = $output;

            fn payload<'s>(self, codec: &'s impl Codec) -> PayloadInput<'s>
            where
                Self: 's,
            {
                PayloadInput {
                    encoding: codec::one(codec),
                    uncounted: 0,
                    source: InputSource::Written(Box::new(move |guard, writer| {
                        codec::hand_over::<$output, _>(codec, guard, self, writer)
                    })),
                }
            }

            fn taking(codec: &impl Codec) -> Take<$output> {
                let codec = codec.clone();
                Box::new(move |inner, rank, payload| {
                    codec::decode(&codec, &payload, inner.peer(rank), &inner.me())
                })
            }

            fn typed(call: Call, codec: &impl Codec) -> Call {
                call.with_type(type_tag::<$output>(codec))
            }
        }
    };
}

value!(T, T, T);
value!([T], Vec<T>, T);
value!(str, String);

/// Implements [`Input`] for bytes, which arrive as a [`Payload`].
macro_rules! bytes {
    ($bytes:ty, $payload:expr) => {
        #[expect(private_interfaces, reason = "nobody else calls it")]
        impl Input for $bytes {
            type Output = Payload;

            fn payload<'s>(self, _: &'s impl Codec) -> PayloadInput<'s>
            where
                Self: 's,
            {
                $payload(self)
            }

            fn taking(_: &impl Codec) -> Take<Payload> {
                Box::new(|_, _, payload| Ok(payload))
            }
        }
    };
}

bytes!(Pieces<'_>, PayloadInput::from);
bytes!(Bytes, |bytes| Pieces::from(bytes).into());
bytes!(Stream<'_>, |stream: Self| PayloadInput::stream(stream.0));
