//! The types of `datetime`, in their form in pickles.

use pyo3::{
    Bound, PyAny, intern,
    prelude::*,
    types::{PyString, PyTuple},
};

use super::{
    decode::Decoder,
    encode::Encoder,
    known::DateTypes,
    refusal::{Refusal, Refused},
    stream::{Bad, tag},
};

impl<'py> Encoder<'py> {
    /// Writes an object of `datetime`; returns false if it is not one.
    pub(crate) fn date(
        &mut self,
        held: &Bound<'py, PyAny>,
        types: &DateTypes,
        depth: usize,
    ) -> Refused<bool> {
        let kind = held.get_type();
        if kind.is(&types.datetime) {
            self.state(held, types, tag::DATETIME, depth)?;
        } else if kind.is(&types.date) {
            self.out.byte(tag::DATE);
            let state: [u8; 4] = reduced(held)?.get_item(0)?.extract()?;
            self.out.bytes.extend(state);
        } else if kind.is(&types.time) {
            self.state(held, types, tag::TIME, depth)?;
        } else if kind.is(&types.timedelta) {
            self.out.byte(tag::TIMEDELTA);
            self.duration(held)?;
        } else if kind.is(&types.timezone) {
            self.timezone(held, depth)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Writes a state of bytes, and a time zone.
    fn state(
        &mut self,
        held: &Bound<'py, PyAny>,
        types: &DateTypes,
        tag: u8,
        depth: usize,
    ) -> Refused<()> {
        let state = reduced(held)?;
        self.out.byte(tag);
        let bytes = state.get_item(0)?;
        self.out
            .bytes
            .extend_from_slice(bytes.extract().map_err(PyErr::from)?);
        let zone = match state.len() {
            1 => held.py().None().into_bound(held.py()),
            _ => state.get_item(1)?,
        };
        if !zone.is_none() && !zone.get_type().is(&types.timezone) {
            return Err(Refusal::of_type(&zone).below(".tzinfo"));
        }
        self.value(zone.as_borrowed(), depth + 1)
    }

    fn duration(&mut self, duration: &Bound<'py, PyAny>) -> Refused<()> {
        let py = duration.py();
        for name in [
            intern!(py, "days"),
            intern!(py, "seconds"),
            intern!(py, "microseconds"),
        ] {
            let part: i32 = duration.getattr(name)?.extract()?;
            self.out.bytes.extend(part.to_le_bytes());
        }
        Ok(())
    }

    /// Writes an offset, and a name if there is one.
    fn timezone(&mut self, zone: &Bound<'py, PyAny>, depth: usize) -> Refused<()> {
        let arguments = zone.call_method0("__getinitargs__")?;
        let arguments = arguments.cast_into::<PyTuple>().map_err(PyErr::from)?;
        self.out.byte(tag::TIMEZONE);
        self.duration(&arguments.get_item(0)?)?;
        let name = match arguments.len() {
            1 => zone.py().None().into_bound(zone.py()),
            _ => arguments.get_item(1)?,
        };
        self.value(name.as_borrowed(), depth + 1)
    }
}

/// Returns the arguments with which pickle would recreate the object.
fn reduced<'py>(held: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    // From protocol 4 on, the state distinguishes two equal times when clocks are set back.
    let reduced = held.call_method1(intern!(held.py(), "__reduce_ex__"), (4,))?;
    Ok(reduced.get_item(1)?.cast_into::<PyTuple>()?)
}

impl<'py> Decoder<'_, 'py> {
    /// Reads an object of `datetime` after its tag.
    pub(crate) fn date(&mut self, tag: u8, depth: usize) -> Result<Bound<'py, PyAny>, Bad> {
        let py = self.py;
        let module = py.import(intern!(py, "datetime"))?;
        let made = match tag {
            tag::DATE => {
                let state: [u8; 4] = self.reader.array()?;
                self.check_date(state)?;
                module.getattr(intern!(py, "date"))?.call1((&state[..],))
            }
            tag::DATETIME => {
                let state: [u8; 10] = self.reader.array()?;
                // The upper bit of the month belongs to the time.
                self.check_date([state[0], state[1], state[2] & 0x7f, state[3]])?;
                self.check_time(&state[4..])?;
                let zone = self.zone(depth)?;
                let kind = module.getattr(intern!(py, "datetime"))?;
                match zone {
                    None => kind.call1((&state[..],)),
                    Some(zone) => kind.call1((&state[..], zone)),
                }
            }
            tag::TIME => {
                let state: [u8; 6] = self.reader.array()?;
                let mut plain = state;
                plain[0] &= 0x7f;
                self.check_time(&plain)?;
                let zone = self.zone(depth)?;
                let kind = module.getattr(intern!(py, "time"))?;
                match zone {
                    None => kind.call1((&state[..],)),
                    Some(zone) => kind.call1((&state[..], zone)),
                }
            }
            tag::TIMEDELTA => Ok(self.duration(&module)?),
            _ => {
                let offset = self.duration(&module)?;
                let name = self.value(depth + 1)?;
                let kind = module.getattr(intern!(py, "timezone"))?;
                if name.is_none() {
                    kind.call1((offset,))
                } else if name.is_exact_instance_of::<PyString>() {
                    kind.call1((offset, name))
                } else {
                    return Err(self.reader.bad("a time zone with a name that is no string"));
                }
            }
        };
        Ok(made?)
    }

    fn check_date(&self, state: [u8; 4]) -> Result<(), Bad> {
        let year = u16::from_be_bytes([state[0], state[1]]);
        let leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match state[2] {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => 0,
        };
        if (1..=9999).contains(&year) && (1..=days).contains(&state[3]) {
            Ok(())
        } else {
            Err(self.reader.bad("no such date"))
        }
    }

    fn check_time(&self, state: &[u8]) -> Result<(), Bad> {
        match state {
            [0..24, 0..60, 0..60, high, middle, low]
                if u32::from_be_bytes([0, *high, *middle, *low]) < 1_000_000 =>
            {
                Ok(())
            }
            _ => Err(self.reader.bad("no such time")),
        }
    }

    /// Reads a time zone, or none.
    fn zone(&mut self, depth: usize) -> Result<Option<Bound<'py, PyAny>>, Bad> {
        let zone = self.value(depth + 1)?;
        if zone.is_none() {
            return Ok(None);
        }
        let module = self.py.import(intern!(self.py, "datetime"))?;
        if zone
            .get_type()
            .is(&module.getattr(intern!(self.py, "timezone"))?)
        {
            Ok(Some(zone))
        } else {
            Err(self.reader.bad("a time zone of another type"))
        }
    }

    fn duration(&mut self, module: &Bound<'py, PyModule>) -> Result<Bound<'py, PyAny>, Bad> {
        let mut part = || self.reader.array().map(i32::from_le_bytes);
        let parts = (part()?, part()?, part()?);
        Ok(module
            .getattr(intern!(self.py, "timedelta"))?
            .call1(parts)?)
    }
}
