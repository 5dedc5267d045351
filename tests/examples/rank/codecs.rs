//! Steps in which ranks choose how values become bytes.
#![expect(clippy::panic, reason = "a wrong script has to be mended")]

use std::io::Write;

use fsgather::{
    Communicator,
    codec::{Codec, CodecError, Postcard},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value as Json, json};

use crate::{
    Failure,
    values::{check_values, check_values_of, receive, value},
};

/// Postcard backwards: a codec of the program's own.
#[derive(Clone, Debug)]
struct Backwards;

impl Codec for Backwards {
    fn name(&self) -> &'static str {
        "backwards"
    }

    fn encode<T: Serialize + ?Sized>(
        &self,
        value: &T,
        into: &mut dyn Write,
    ) -> Result<(), CodecError> {
        let mut bytes = Vec::new();
        Postcard.encode(value, &mut bytes)?;
        bytes.reverse();
        into.write_all(&bytes).map_err(CodecError::new)
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, CodecError> {
        let bytes: Vec<u8> = bytes.iter().rev().copied().collect();
        Postcard.decode(&bytes)
    }
}

/// A codec that describes values.
#[derive(Clone, Debug)]
struct JsonCodec;

impl Codec for JsonCodec {
    fn name(&self) -> &'static str {
        "json"
    }

    fn encode<T: Serialize + ?Sized>(
        &self,
        value: &T,
        into: &mut dyn Write,
    ) -> Result<(), CodecError> {
        serde_json::to_writer(into, value).map_err(CodecError::new)
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, CodecError> {
        serde_json::from_slice(bytes).map_err(CodecError::new)
    }
}

/// Calls in the codec that a script names.
pub(crate) fn speak(communicator: &Communicator, codec: &str, what: &str) -> Result<(), Failure> {
    match codec {
        "postcard" => exchange(communicator, what),
        "json" => exchange(&communicator.with_codec(JsonCodec), what),
        "backwards" => exchange(&communicator.with_codec(Backwards), what),
        _ => panic!("no such codec: {codec}"),
    }
}

/// One that only codecs carry that describe values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(u32),
    Text(String),
}

fn exchange<C: Codec>(communicator: &Communicator<C>, what: &str) -> Result<(), Failure> {
    let me = communicator.rank().get();
    let ranks = communicator.world_size().get();
    let json = |rank: u32| json!({"rank": rank, "boxes": [1, 2.5, null], "name": "x".repeat(100)});
    match what {
        "json" => {
            let all = communicator.all_gather(&json(me))?;
            right(all, (0..ranks).map(json))
        }
        "gather_json" => {
            let gathered = communicator.gather(&json(me), 0)?;
            receive(gathered, "", |rank, value: Json| {
                right([value], [json(rank)])
            })
        }
        "untagged" => {
            let of = |rank| match rank % 2 {
                0 => Untagged::Number(rank),
                _ => Untagged::Text("odd".into()),
            };
            let all = communicator.broadcast(&of(me), 0)?;
            right([all], [of(0)])
        }
        len => {
            let values = communicator.all_gather(&value(me, len))?;
            check_values(ranks, &values, len)?;
            let gathered = communicator.gather(&value(me, len), ranks - 1)?;
            receive(gathered, "", |rank, value| {
                check_values_of(rank, &value, len)
            })?;
            let pending = communicator.start_all_gather(&value(me, len))?;
            check_values(ranks, &pending.wait()?, len)
        }
    }
}

fn right<T: PartialEq + std::fmt::Debug>(
    got: impl IntoIterator<Item = T>,
    expected: impl IntoIterator<Item = T>,
) -> Result<(), Failure> {
    let (got, expected): (Vec<T>, Vec<T>) =
        (got.into_iter().collect(), expected.into_iter().collect());
    if got == expected {
        return Ok(());
    }
    Err(Failure::Wrong(format!("{got:?} instead of {expected:?}")))
}
