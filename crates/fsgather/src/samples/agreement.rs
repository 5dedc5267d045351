//! Ranks agree on what each has found, or fail alike: [`Agreement`].

use bytes::Bytes;
use fsgather_core::{Activity, Error, Phase, Rank, Site, error_form::SentError};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Communicator, Options,
    codec::{self, Postcard},
};

/// The calls of one collective operation on samples.
pub(crate) struct Agreement {
    calls: Communicator<Postcard>,
}

impl Agreement {
    /// Messages name `site` as the place of all calls, and `purpose` as what they are for.
    pub(crate) fn new<C: Clone>(communicator: &Communicator<C>, site: Site, purpose: &str) -> Self {
        let plain = communicator.handle(communicator.inner.clone(), Postcard);
        Self {
            calls: plain.with(Options::new().at(site).tag(purpose)),
        }
    }

    /// The calls themselves.
    pub(crate) fn calls(&self) -> &Communicator<Postcard> {
        &self.calls
    }

    /// This rank.
    pub(crate) fn rank(&self) -> Rank {
        self.calls.rank()
    }

    /// Returns what every rank has found, in rank order. If one has failed, all return the error of the lowest of these.
    ///
    /// The error names that rank, unless all have failed alike.
    pub(crate) fn agree<T>(&self, own: Result<T, Error>) -> Result<Vec<T>, Error>
    where
        T: Serialize + DeserializeOwned,
    {
        let own = own.map_err(SentError);
        // Into memory everything can be written. Calls that carry bytes have no type, which would mean nothing to users.
        let encoded = postcard::to_allocvec(&own).unwrap_or_default();
        let payloads = self.calls.all_gather(Bytes::from(encoded))?;
        let inner = &self.calls.inner;
        let decoded = (0..).map(Rank::new).zip(payloads).map(|(rank, payload)| {
            codec::decode(&Postcard, &payload, inner.peer(rank), &inner.me())
        });
        let all: Vec<Result<T, SentError>> = decoded.collect::<Result<_, Error>>()?;
        let mut texts = all.iter().map(|result| match result {
            Ok(_) => None,
            Err(SentError(error)) => Some(error.to_string()),
        });
        let first = texts.next().flatten();
        let is_alike = texts.all(|text| text == first);
        let named = |(rank, result): (Rank, Result<T, SentError>)| {
            result.map_err(|SentError(error)| match inner.peer(rank) {
                Some(peer) if matches!(error, Error::Config { .. }) && !is_alike => {
                    Error::config(format!("{peer}: {error}"))
                }
                Some(peer) => error.raised_by(peer, Activity::outside(Phase::Computing)),
                None => error,
            })
        };
        (0..).map(Rank::new).zip(all).map(named).collect()
    }
}
