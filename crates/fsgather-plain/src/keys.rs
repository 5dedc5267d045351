//! Bounds the work of looking keys up, while decoding: [`Effort`], [`Keys`].
//!
//! Sets and dictionaries compare a new key with those of the same hash, so that many keys of one hash take a time that
//! grows with their square: integers that differ by multiples of 2^61 - 1 have one, and tuples of -1 and -2. The hash
//! of a tuple is computed anew each time, from all that lies in it; and as a tuple may lie in another one twice, a few
//! bytes can stand for more elements than there is time for, or for more levels than there is stack. All of that
//! happens within the interpreter, which nothing interrupts. So what it takes is counted beforehand, and bounded by the
//! length of the stream.

use std::collections::HashMap;

use pyo3::{Bound, PyAny, prelude::*};

use super::{
    decode::Decoder,
    object::{Item, Object},
    stream::Bad,
};

/// The steps that keys of a stream may take in any case, of some 10 ns each.
const STEPS_ANYWAY: usize = 1 << 24;

/// And for each byte of the stream.
const STEPS_PER_BYTE: usize = 64;

/// Containers of so many keys are not worth a table: each key counts as compared with all.
const FEW: usize = 64;

/// Number of tuples that a key may have in each other: references allow for more than containers do.
const DEEPEST_KEY: usize = 500;

/// The steps that are left.
pub(crate) struct Effort(usize);

impl Effort {
    /// What a stream of this length may take.
    pub(crate) fn for_stream(length: usize) -> Self {
        Self(length.saturating_mul(STEPS_PER_BYTE) + STEPS_ANYWAY)
    }

    /// None when that is too much.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.0 = self.0.checked_sub(steps)?;
        Some(())
    }

    /// The steps to hash a key that lies in so many tuples, or to compare it with an equal one; none when they are too
    /// many. It takes as many to find out.
    fn steps(&mut self, key: Item<'_, '_>, depth: usize) -> PyResult<Option<usize>> {
        if depth > DEEPEST_KEY || self.spend(1).is_none() {
            return Ok(None);
        }
        let mut steps = 1_usize;
        match Object::of(key) {
            Object::Tuple(tuple) => {
                for index in 0..tuple.len() {
                    let Some(element) = tuple.item(index) else {
                        break;
                    };
                    let Some(more) = self.steps(element, depth + 1)? else {
                        return Ok(None);
                    };
                    steps = steps.saturating_add(more);
                }
            }
            Object::Int(int) if int.get().is_none() => {
                let bits: usize = key.call_method0("bit_length")?.extract()?;
                steps += bits / 64;
            }
            // What lies in it has its hash already.
            Object::FrozenSet => steps += key.len()?,
            _ => {}
        }
        Ok(Some(steps))
    }
}

/// The keys of one set or dictionary so far.
pub(crate) struct Keys {
    /// How many there will be.
    count: usize,
    /// How many have which hash.
    hashes: HashMap<isize, usize>,
}

impl Keys {
    /// The keys of a container that will have so many.
    pub(crate) fn of(count: usize) -> Self {
        Self {
            count,
            hashes: HashMap::new(),
        }
    }
}

impl<'py> Decoder<'_, 'py> {
    /// Counts what it takes to look up one more key, which is about to happen.
    #[inline]
    pub(crate) fn key(&mut self, keys: &mut Keys, key: &Bound<'py, PyAny>) -> Result<(), Bad> {
        match Object::of(key.as_borrowed()) {
            // Their hashes are secret, or few can have the same.
            Object::Str(_)
            | Object::Float(_)
            | Object::Bytes(_)
            | Object::None
            | Object::Bool(_) => Ok(()),
            Object::Int(int) if int.get().is_some() => Ok(()),
            _ => self.costly_key(keys, key),
        }
    }

    fn costly_key(&mut self, keys: &mut Keys, key: &Bound<'py, PyAny>) -> Result<(), Bad> {
        let mut steps = self.effort.steps(key.as_borrowed(), 0)?;
        if let Some(each) = steps {
            let compared = if keys.count <= FEW {
                keys.count
            } else {
                let alike = keys.hashes.entry(key.hash()?).or_default();
                *alike += 1;
                *alike
            };
            steps = each.checked_mul(compared);
        }
        let is_affordable = steps.and_then(|steps| self.effort.spend(steps)).is_some();
        if is_affordable {
            Ok(())
        } else {
            Err(self.reader.bad("keys that would take too long to look up"))
        }
    }
}
