//! Dictionaries, while encoding.
//!
//! Dictionaries with string keys have a shape, which is written once. Their keys and values are recorded in one pass, by address. The
//! recorded values are used as long as [`Encoder::disturbed`] shows that they still exist.
#![expect(
    unsafe_code,
    reason = "elements are borrowed from their dictionaries; `super::encode` has the argument"
)]

use std::fmt;

use pyo3::{Borrowed, Bound, PyAny, prelude::*};

use super::{
    encode::Encoder,
    object::{Dict, Object},
    refusal::{Refusal, Refused},
    stream::{LARGEST_SHAPE, tag},
};

impl<'py> Encoder<'py> {
    /// Writes a dictionary, by its shape if it can have one.
    pub(crate) fn dict(&mut self, dict: Dict<'_, 'py>, depth: usize) -> Refused<()> {
        let length = dict.len();
        let below = self.keys.len();
        let shape = if length <= LARGEST_SHAPE && self.record(dict) {
            self.shape(dict, below)?
        } else {
            None
        };
        match shape {
            Some(shape) => self.noted(dict, below, shape, depth)?,
            None => self.items(dict, length, depth)?,
        }
        self.keys.truncate(below);
        self.values.truncate(below);
        Ok(())
    }

    /// Records all keys and values. Returns true if there are any, and all keys are strings.
    #[inline]
    fn record(&mut self, dict: Dict<'_, 'py>) -> bool {
        let mut position = 0;
        let mut found = false;
        // SAFETY: no Python code runs in this loop.
        while let Some((key, value)) = unsafe { dict.next(&mut position) } {
            let Object::Str(_) = Object::of(key) else {
                return false;
            };
            found = true;
            self.keys.push(key.as_ptr().addr());
            self.values.push(value.as_ptr());
        }
        found
    }

    /// Writes the shape of the dictionary whose keys are recorded from `below` on, and returns its number; none if there are too many
    /// shapes already.
    #[inline]
    fn shape(&mut self, dict: Dict<'_, 'py>, below: usize) -> Refused<Option<usize>> {
        let known = self.shapes.find(&self.keys[below..]);
        let Some(number) = known else {
            return self.unknown_shape(dict, below);
        };
        self.out.byte(tag::DICT_OF_SHAPE);
        self.out.length(number);
        Ok(known)
    }

    fn unknown_shape(&mut self, dict: Dict<'_, 'py>, below: usize) -> Refused<Option<usize>> {
        let noted_by = self.disturbances;
        let mut keys = Vec::with_capacity(self.keys.len() - below);
        let mut position = 0;
        // SAFETY: no Python code runs in this loop.
        while let Some((key, _)) = unsafe { dict.next(&mut position) } {
            keys.push(key.to_owned());
        }
        if let Some(number) = self.shapes.find_equal(&keys)? {
            self.out.byte(tag::DICT_OF_SHAPE);
            self.out.length(number);
            return Ok(Some(number));
        }
        if !self.shapes.has_room() {
            return Ok(None);
        }
        self.out.byte(tag::DICT_NEW_SHAPE);
        self.out.length(keys.len());
        for key in &keys {
            if let Object::Str(text) = Object::of(key.as_borrowed()) {
                self.text(text)?;
            }
        }
        if self.disturbances != noted_by {
            // A key with surrogates has run Python code: the values must be read again.
            self.values.truncate(below);
        }
        Ok(Some(self.shapes.add(&self.keys[below..], keys)?))
    }

    /// Writes the values of a dictionary whose shape is written, and which is recorded from `below` on.
    #[inline]
    fn noted(
        &mut self,
        dict: Dict<'_, 'py>,
        below: usize,
        shape: usize,
        depth: usize,
    ) -> Refused<()> {
        let noted_by = self.disturbances;
        for index in below..self.keys.len() {
            let value = match self.values.get(index) {
                Some(value) if self.disturbances == noted_by => *value,
                _ => return self.disturbed_values(dict, below, index - below, shape, depth),
            };
            // SAFETY: the dictionary held it when it was recorded, and no Python code has run since.
            let value = unsafe { Borrowed::from_ptr(dict.0.py(), value) };
            self.value(value, depth + 1)
                .map_err(|refusal| refusal.below(KeyStep(self.shapes.key(shape, index - below))))?;
        }
        Ok(())
    }

    /// The same from the value `done` on, if the recorded values cannot be trusted any more.
    fn disturbed_values(
        &mut self,
        dict: Dict<'_, 'py>,
        below: usize,
        done: usize,
        shape: usize,
        depth: usize,
    ) -> Refused<()> {
        let mut position = 0;
        let mut index = 0;
        // SAFETY: used up before the next one is asked for; `value` holds what may run code.
        while let Some((key, value)) = unsafe { dict.next(&mut position) } {
            if self.keys.get(below + index) != Some(&key.as_ptr().addr()) {
                return Err(Refusal::changed("dictionary"));
            }
            if index >= done {
                self.value(value, depth + 1)
                    .map_err(|refusal| refusal.below(KeyStep(self.shapes.key(shape, index))))?;
            }
            index += 1;
        }
        // Nested dictionaries have removed their keys again.
        if below + index == self.keys.len() {
            Ok(())
        } else {
            Err(Refusal::changed("dictionary"))
        }
    }

    /// Writes a dictionary with all its keys.
    fn items(&mut self, dict: Dict<'_, 'py>, length: usize, depth: usize) -> Refused<()> {
        self.out.byte(tag::DICT);
        self.out.length(length);
        let mut position = 0;
        let mut count = 0;
        loop {
            let mut before = position;
            // SAFETY: the key is used up first, the value before the next pair is asked for; `value` holds what may
            // run code.
            let Some((key, mut value)) = (unsafe { dict.next(&mut position) }) else {
                break;
            };
            let seen_by = self.disturbances;
            self.value(key, depth + 1)
                .map_err(|refusal| refusal.below(" in a key"))?;
            if self.disturbances != seen_by {
                // SAFETY: as above; the key is only compared.
                let now = unsafe { dict.next(&mut before) };
                let same = now.filter(|(same, _)| same.as_ptr() == key.as_ptr());
                value = same.ok_or_else(|| Refusal::changed("dictionary"))?.1;
            }
            let key = key.to_owned();
            self.value(value, depth + 1)
                .map_err(|refusal| refusal.below(KeyStep(Some(&key))))?;
            count += 1;
        }
        if count != length || dict.len() != length {
            return Err(Refusal::changed("dictionary"));
        }
        Ok(())
    }
}

/// A key as a step of the path to a value.
struct KeyStep<'a, 'py>(Option<&'a Bound<'py, PyAny>>);

impl fmt::Display for KeyStep<'_, '_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.and_then(|key| key.repr().ok()) {
            Some(text) => write!(to, "[{text}]"),
            None => to.write_str("[?]"),
        }
    }
}
