//! One rank's membership, as Python sees it: [`Communicator`].

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use fsgather::{Options, Pieces, Rendezvous, bindings, codec::Postcard};
use fsgather_core::{Rank, RankNames};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList},
};

use crate::{
    arrival::Arrival,
    bootstrap::Callables,
    ending::{self, InCall},
    errors,
    how::{Carrying, How, Said, word},
    logging, object,
    parts::{Parts, decode_all},
    payloads::Payloads,
    pending::Pending,
    stacks,
    told::Told,
    waiting::{self, Stop, Waiter},
};

type RustCommunicator = fsgather::Communicator<Postcard>;

/// One rank's membership; `fsgather.Communicator` wraps it.
#[pyclass(frozen, module = "fsgather._fsgather")]
pub(crate) struct Communicator {
    /// `None` after it was closed or left.
    member: RwLock<Option<Arc<RustCommunicator>>>,
    waiting: Waiter,
}

#[pymethods]
impl Communicator {
    /// Joins the world that the launcher and variables describe, or the one in `settings`.
    #[staticmethod]
    #[pyo3(signature = (settings, *, site, publish, fetch, set_up_later=false, stop=None, numbers=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn join(
        py: Python<'_>,
        settings: BTreeMap<String, Option<Said>>,
        site: Told,
        publish: Option<Py<PyAny>>,
        fetch: Option<Py<PyAny>>,
        set_up_later: bool,
        stop: Option<Py<Stop>>,
        numbers: Option<Vec<u32>>,
    ) -> PyResult<Self> {
        logging::install(py)?;
        stacks::register(py);
        let names = numbers.map(|numbers| RankNames::new(numbers.into_iter().map(Rank::new)));
        let names = names.unwrap_or_default();
        let waiting = stop.map_or_else(Waiter::new, |stop| stop.get().waiting());
        let waiting = waiting.naming_ranks(names.clone());
        let mut builder = RustCommunicator::builder()
            .name_ranks(&names)
            .interrupt(waiting.interrupt())
            .made_at(site);
        for (name, said) in settings {
            if let Some(said) = said {
                let taken = builder.argument(&name, said.into());
                builder = taken.map_err(|error| errors::raise(py, &error))?;
            }
        }
        if let (Some(publish), Some(fetch)) = (publish, fetch) {
            builder = builder.rendezvous(Rendezvous::custom(Callables { publish, fetch }));
        }
        if set_up_later {
            builder = builder.set_up_later();
        }
        let member = waiting.run_elsewhere(py, move || builder.build())?;
        Ok(Self::of(member, waiting))
    }

    /// A world of one rank.
    #[staticmethod]
    fn solo() -> Self {
        Self::of(RustCommunicator::solo(), Waiter::new())
    }

    #[getter]
    fn rank(&self) -> PyResult<u32> {
        Ok(self.member()?.rank().get())
    }

    #[getter]
    fn world_size(&self) -> PyResult<u32> {
        Ok(self.member()?.world_size().get())
    }

    /// Returns the rank that messages show for the member at a position.
    fn name_of(&self, place: u32) -> u32 {
        self.waiting.name_of(place.into()).get()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.member().is_err()
    }

    #[getter]
    fn failed(&self) -> bool {
        self.member().is_ok_and(|member| member.has_failed())
    }

    /// Number of calls that this rank has begun, and the file with the last of them; `None` if calls are not recorded.
    fn last_calls<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyBytes>)>> {
        let last = bindings::last_calls(&*self.member()?);
        Ok(last.map(|(count, bytes)| (count, PyBytes::new(py, &bytes))))
    }

    /// Another handle of the same membership, whose large payloads take another path.
    fn with_options(&self, transport: Option<Said>, directory: Option<PathBuf>) -> PyResult<Self> {
        let mut options = Options::new();
        if let Some(transport) = transport {
            options = options.transport(word("transport", transport)?);
        }
        if let Some(directory) = directory {
            options = options.directory(directory);
        }
        let handle = self.member()?.with(options);
        Ok(Self::of(handle, self.waiting.clone()))
    }

    fn barrier(&self, py: Python<'_>, how: How) -> PyResult<()> {
        let (member, (_, options)) = (self.member()?, how.take()?);
        self.waiting.run(py, || member.with(options).barrier())
    }

    fn all_gather<'py>(&self, value: &Bound<'py, PyAny>, how: How) -> PyResult<Bound<'py, PyList>> {
        let _in_call = InCall::begin()?;
        let py = value.py();
        let (member, (carrying, options)) = (self.member()?, how.take()?);
        let payloads = self.hand_in(value, carrying, |pieces| {
            member.with(options).all_gather(pieces)
        })?;
        decode_all(py, payloads, carrying.pickling, &self.waiting)
    }

    /// The same, but each object is decoded on demand.
    fn all_gather_payloads(&self, value: &Bound<'_, PyAny>, how: How) -> PyResult<Payloads> {
        let _in_call = InCall::begin()?;
        let (member, (carrying, options)) = (self.member()?, how.take()?);
        let payloads = self.hand_in(value, carrying, |pieces| {
            member.with(options).all_gather(pieces)
        })?;
        Ok(Payloads::new(
            payloads,
            self.waiting.clone(),
            carrying.pickling,
        ))
    }

    fn broadcast(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        src: u32,
        how: How,
    ) -> PyResult<Py<PyAny>> {
        let _in_call = InCall::begin()?;
        let (member, (carrying, options)) = (self.member()?, how.take()?);
        if member.rank().get() == src {
            self.hand_in(value, carrying, |pieces| {
                member.with(options).broadcast(pieces, src)
            })?;
            return Ok(value.clone().unbind());
        }
        let payload = self.waiting.run(py, || {
            member.with(options).broadcast(Pieces::from(&[]), src)
        })?;
        object::decode(
            py,
            payload,
            carrying.pickling,
            self.waiting.name_of(src.into()),
        )
    }

    /// Returns an iterator over the objects of all ranks on `dst`, `None` elsewhere.
    fn gather(&self, value: &Bound<'_, PyAny>, dst: u32, how: How) -> PyResult<Option<Parts>> {
        let _in_call = InCall::begin()?;
        let (member, (carrying, options)) = (self.member()?, how.take()?);
        let parts = self.hand_in(value, carrying, |pieces| {
            member.with(options).gather(pieces, dst)
        })?;
        Ok(parts.map(|parts| Parts::new(parts, self.waiting.clone(), carrying.pickling)))
    }

    fn start_all_gather(&self, value: &Bound<'_, PyAny>, how: How) -> PyResult<Pending> {
        let (member, (carrying, options)) = (self.member()?, how.take()?);
        let started = self.hand_in(value, carrying, |pieces| {
            member.with(options).start_all_gather(pieces)
        })?;
        Ok(Pending::all_gather(
            started,
            self.waiting.clone(),
            carrying.pickling,
        ))
    }

    fn start_gather(&self, value: &Bound<'_, PyAny>, dst: u32, how: How) -> PyResult<Pending> {
        let (member, (carrying, options)) = (self.member()?, how.take()?);
        let started = self.hand_in(value, carrying, |pieces| {
            member.with(options).start_gather(pieces, dst)
        })?;
        Ok(Pending::gather(
            started,
            self.waiting.clone(),
            carrying.pickling,
        ))
    }

    fn group(&self, py: Python<'_>, ranks: Vec<u32>, how: How) -> PyResult<Self> {
        let (member, (_, options)) = (self.member()?, how.take()?);
        let group = self
            .waiting
            .run(py, move || member.with(options).group(&ranks))?;
        Ok(self.group_of(group))
    }

    /// A group that its members have agreed on by other means; waits for no rank.
    fn group_agreed_on(&self, py: Python<'_>, ranks: Vec<u32>, number: u64) -> PyResult<Self> {
        let member = self.member()?;
        let group = self.waiting.run(py, move || {
            bindings::group_agreed_on(&member, &ranks, number)
        })?;
        Ok(self.group_of(group))
    }

    /// Announces that this rank has arrived where these ranks meet, and waits for none of them.
    fn arrive(&self, py: Python<'_>, ranks: Vec<u32>, number: u64, how: How) -> PyResult<Arrival> {
        let (member, (_, options)) = (self.member()?, how.take()?);
        let arrival = self.waiting.run(py, move || {
            bindings::Arrival::at(&member.with(options), &ranks, number)
        })?;
        Ok(Arrival::new(arrival, self.waiting.clone()))
    }

    fn split(
        &self,
        py: Python<'_>,
        color: Option<u32>,
        key: i64,
        how: How,
    ) -> PyResult<Option<Self>> {
        let (member, (_, options)) = (self.member()?, how.take()?);
        let group = self
            .waiting
            .run(py, || member.with(options).split(color, key))?;
        Ok(group.map(|group| self.group_of(group)))
    }

    /// Ends the communicator together with all other ranks.
    fn close(&self, py: Python<'_>, how: How) -> PyResult<()> {
        let (_, options) = how.take()?;
        let Some(member) = self.take() else {
            return Ok(());
        };
        // Another handle of the same membership, so that calls of other threads need not end before.
        let handle = member.with_codec(Postcard);
        self.waiting.run(py, move || handle.with(options).close())
    }

    /// Leaves without the others, and sends them the reason if there is one. Stays while they read data that only this process holds; a
    /// signal ends that.
    fn leave(&self, py: Python<'_>, reason: Option<Told>) -> PyResult<()> {
        let Some(member) = self.take() else {
            return Ok(());
        };
        let handle = member.with_codec(Postcard);
        self.waiting.run(py, move || {
            match reason {
                Some(reason) => handle.leave_with(reason.as_ref()),
                None => handle.leave(),
            }
            Ok(())
        })
    }
}

impl Drop for Communicator {
    /// Leaving may take long; other threads of Python continue meanwhile.
    fn drop(&mut self) {
        if let Some(member) = self.take() {
            let mut member = Some(member);
            Python::try_attach(|py| ending::detach(py, || drop(member.take())));
        }
    }
}

impl Communicator {
    fn of(member: RustCommunicator, waiting: Waiter) -> Self {
        Self {
            member: RwLock::new(Some(Arc::new(member))),
            waiting,
        }
    }

    fn group_of(&self, group: RustCommunicator) -> Self {
        let waiting = self.waiting.in_group(group.members());
        Self::of(group, waiting)
    }

    pub(crate) fn member(&self) -> PyResult<Arc<RustCommunicator>> {
        let member = self.member.read().unwrap_or_else(PoisonError::into_inner);
        let member = member
            .as_ref()
            .filter(|member| !bindings::has_ended(member));
        let member = member.map(Arc::clone);
        member.ok_or_else(|| errors::config("this communicator is closed"))
    }

    /// The membership, and the waiter that can end its waits.
    pub(crate) fn for_samples(&self) -> PyResult<(Arc<RustCommunicator>, Waiter)> {
        Ok((self.member()?, self.waiting.clone()))
    }

    fn take(&self) -> Option<Arc<RustCommunicator>> {
        let mut member = self.member.write().unwrap_or_else(PoisonError::into_inner);
        member.take().filter(|member| !bindings::has_ended(member))
    }

    /// Makes a call with a value. If the value cannot be encoded, the call fails on all ranks alike, so that no rank waits. On this rank
    /// the cause of the error is the exception of the encoding.
    fn hand_in<T: Send>(
        &self,
        value: &Bound<'_, PyAny>,
        Carrying { pickling, like }: Carrying,
        call: impl FnOnce(Pieces<'static>) -> Result<T, fsgather::Error> + Send,
    ) -> PyResult<T> {
        let py = value.py();
        let (pieces, raised) =
            match bindings::inside_a_call(|| object::encode(value, pickling, like)) {
                Ok(pieces) => (pieces, None),
                Err(raised) => (
                    Pieces::failing(waiting::reason_of(py, &raised)),
                    Some(raised),
                ),
            };
        let result = self.waiting.run(py, || call(pieces));
        errors::own_reason(py, result, raised)
    }
}
