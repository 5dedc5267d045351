//! Dictionaries with the same keys in the same order, while encoding: [`Shapes`].

use pyo3::{Bound, PyAny, prelude::*};

use super::{addresses::AddressTable, object::Object, stream::MOST_SHAPES};

/// The keys of earlier dictionaries, so that later ones can refer to them.
///
/// A shape is found by the addresses of the keys, which are mostly the same objects, or else by their text: each line of a JSON file has
/// key objects of its own.
pub(crate) struct Shapes<'py> {
    known: Vec<Shape<'py>>,
    by_address: AddressTable,
    by_content: AddressTable,
    latest: usize,
}

struct Shape<'py> {
    addresses: Vec<usize>,
    /// Holds the keys, so that their addresses are not reused.
    keys: Vec<Bound<'py, PyAny>>,
}

impl<'py> Shapes<'py> {
    pub(crate) fn new() -> Self {
        Self {
            known: Vec::new(),
            by_address: AddressTable::default(),
            by_content: AddressTable::default(),
            latest: 0,
        }
    }

    /// Returns true if another shape can be added.
    pub(crate) fn has_room(&self) -> bool {
        self.known.len() < MOST_SHAPES
    }

    /// Returns the number of the shape with the keys at these addresses.
    #[inline]
    pub(crate) fn find(&mut self, addresses: &[usize]) -> Option<usize> {
        if let Some(latest) = self.known.get(self.latest)
            && latest.addresses == addresses
        {
            return Some(self.latest);
        }
        let number = self.by_address.get(mix(addresses))? as usize;
        let is_it = self.known[number].addresses == addresses;
        is_it.then(|| {
            self.latest = number;
            number
        })
    }

    /// Returns the number of a shape with equal keys, which may be other objects; all of them are strings.
    pub(crate) fn find_equal(&self, keys: &[Bound<'py, PyAny>]) -> PyResult<Option<usize>> {
        let Some(number) = self.by_content.get(mix(&hashes(keys)?)) else {
            return Ok(None);
        };
        let number = number as usize;
        let known = &self.known[number].keys;
        if known.len() != keys.len() {
            return Ok(None);
        }
        let mut pairs = known.iter().zip(keys);
        let equal = pairs.all(|(known, key)| {
            match (
                Object::of(known.as_borrowed()),
                Object::of(key.as_borrowed()),
            ) {
                (Object::Str(known), Object::Str(key)) => known.equals(key),
                _ => false,
            }
        });
        Ok(equal.then_some(number))
    }

    /// Returns a key of a shape.
    pub(crate) fn key(&self, shape: usize, index: usize) -> Option<&Bound<'py, PyAny>> {
        self.known.get(shape)?.keys.get(index)
    }

    /// Adds a shape, and returns its number.
    pub(crate) fn add(
        &mut self,
        addresses: &[usize],
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<usize> {
        let number = self.known.len();
        // It fits, since `has_room` limits the number.
        let short = u32::try_from(number).unwrap_or(u32::MAX);
        self.by_address.insert(mix(addresses), short);
        self.by_content.insert(mix(&hashes(&keys)?), short);
        self.known.push(Shape {
            addresses: addresses.to_vec(),
            keys,
        });
        self.latest = number;
        Ok(number)
    }
}

fn hashes(keys: &[Bound<'_, PyAny>]) -> PyResult<Vec<usize>> {
    let hashes = keys.iter().map(|key| Ok(key.hash()?.cast_unsigned()));
    hashes.collect()
}

/// Mixes many numbers into one that is not 0.
#[inline]
fn mix(values: &[usize]) -> usize {
    let mixed = values.iter().fold(values.len(), |mixed, value| {
        (mixed.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95)
    });
    mixed | 1
}
