//! Bounds the work of key lookups while decoding: [`Effort`], [`Keys`].
//!
//! Sets and dictionaries compare a new key with those of the same hash, so that many keys with one hash take quadratic time: integers that
//! differ by multiples of 2^61 - 1 have the same hash, and so do tuples of -1 and -2. The hash of a tuple is computed each time, over
//! everything in it; and as a tuple may occur twice in another one, a few bytes can stand for more elements than there is time for, or for
//! more levels than the stack allows. All of that happens within the interpreter, where it cannot be interrupted. So the work is counted
//! beforehand, and bounded by the length of the stream.

use std::collections::HashMap;

use pyo3::{Bound, PyAny, prelude::*};

use super::{
    decode::Decoder,
    object::{Item, Object},
    stream::Bad,
};

/// Number of steps that the keys of any stream may take, of about 10 ns each.
const STEPS_ANYWAY: usize = 1 << 24;

/// Number of additional steps for each byte of the stream.
const STEPS_PER_BYTE: usize = 64;

/// Containers with at most this number of keys need no table of hashes: each key counts as compared with all.
const MAX_COMPARED_KEYS: usize = 64;

/// Maximum nesting depth of tuples in a key: references allow for deeper ones than containers do.
const DEEPEST_KEY: usize = 500;

/// The remaining steps.
pub(crate) struct Effort(usize);

impl Effort {
    /// The steps for a stream of this length.
    pub(crate) fn for_stream(length: usize) -> Self {
        Self(length.saturating_mul(STEPS_PER_BYTE) + STEPS_ANYWAY)
    }

    /// Returns none if too few steps remain.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.0 = self.0.checked_sub(steps)?;
        Some(())
    }

    /// The steps to hash a key inside `depth` tuples, or to compare it with an equal one; none if they are too many. Counting them takes as
    /// many steps.
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
            // The hashes of its elements are stored.
            Object::FrozenSet => steps += key.len()?,
            _ => {}
        }
        Ok(Some(steps))
    }
}

/// The keys of one set or dictionary so far.
pub(crate) struct Keys {
    /// The final number of keys.
    count: usize,
    /// Number of keys with each hash.
    hashes: HashMap<isize, usize>,
}

impl Keys {
    /// The keys of a container that will have `count` of them.
    pub(crate) fn of(count: usize) -> Self {
        Self {
            count,
            hashes: HashMap::new(),
        }
    }
}

impl<'py> Decoder<'_, 'py> {
    /// Counts the work of looking up one more key, which is about to happen.
    #[inline]
    pub(crate) fn key(&mut self, keys: &mut Keys, key: &Bound<'py, PyAny>) -> Result<(), Bad> {
        match Object::of(key.as_borrowed()) {
            // Their hashes are secret, or few of them can share one.
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
            let compared = if keys.count <= MAX_COMPARED_KEYS {
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
