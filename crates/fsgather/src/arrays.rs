//! Gathering arrays along an axis.

use std::{panic::Location, path::PathBuf};

use fsgather_core::{Call, Error, Operation, Rank};
use ndarray::{Array, ArrayView, Dimension, IxDyn};
use serde::{Deserialize, Serialize};

use crate::{
    call::{blocking::step_aside, started::StartedCall},
    codec::Codec,
    communicator::Communicator,
    element::Element,
    payload::{retention::Retention, stream::PayloadStream},
    pieces::Pieces,
    setup,
};

/// What a rank says of its array before anything moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Form {
    dtype: String,
    shape: Vec<u64>,
    /// Counted from the front, if there is such an axis.
    axis: Option<u32>,
    is_big_endian: bool,
}

impl Form {
    fn of<T: Element, D: Dimension>(array: &ArrayView<'_, T, D>, axis: isize) -> Self {
        let dimensions = array.ndim();
        let from_front = if axis < 0 {
            dimensions.checked_sub(axis.unsigned_abs())
        } else {
            axis.try_into().ok()
        };
        Self {
            dtype: T::DTYPE.into(),
            shape: array.shape().iter().map(|size| *size as u64).collect(),
            axis: from_front
                .filter(|axis| *axis < dimensions)
                .and_then(|axis| axis.try_into().ok()),
            is_big_endian: cfg!(target_endian = "big"),
        }
    }

    /// The same but for the size along the axis.
    fn fits(&self, other: &Self) -> bool {
        let apart_from_axis = |form: &Self| {
            let mut form = form.clone();
            if let Some(size) = form.axis.and_then(|axis| form.shape.get_mut(axis as usize)) {
                *size = 0;
            }
            form
        };
        apart_from_axis(self) == apart_from_axis(other)
    }

    fn describe(&self) -> String {
        let axis = self.axis.map_or_else(
            || "no such axis".into(),
            |axis| format!("along axis {axis}"),
        );
        let order = if self.is_big_endian {
            " big-endian"
        } else {
            ""
        };
        format!("{}{order} {:?} {axis}", self.dtype, self.shape)
    }

    fn size_along_axis(&self) -> usize {
        let size = self.axis.and_then(|axis| self.shape.get(axis as usize));
        size.and_then(|size| usize::try_from(*size).ok())
            .unwrap_or(0)
    }
}

/// Where the elements of each rank go in the result.
struct ArrayPlan {
    shape: Vec<usize>,
    /// How many blocks of elements lie one after the other, of which each rank has a part.
    blocks: usize,
    /// How many elements a block of the result has.
    block: usize,
    /// Where in a block the part of each rank begins, and how long it is.
    parts: Vec<(usize, usize)>,
}

impl ArrayPlan {
    /// `None` when the result would have more elements than memory can have bytes.
    fn new(forms: &[Form]) -> Option<Self> {
        let first = forms.first()?;
        let axis = first.axis? as usize;
        let mut shape: Vec<usize> = first
            .shape
            .iter()
            .map(|size| usize::try_from(*size).ok())
            .collect::<Option<_>>()?;
        let product = |sizes: &[usize]| {
            sizes
                .iter()
                .try_fold(1_usize, |product, size| product.checked_mul(*size))
        };
        let after = product(shape.get(axis + 1..)?)?;
        let blocks = product(shape.get(..axis)?)?;
        let mut parts = Vec::with_capacity(forms.len());
        let mut block = 0_usize;
        let mut size = 0_usize;
        for form in forms {
            let len = form.size_along_axis().checked_mul(after)?;
            parts.push((block, len));
            block = block.checked_add(len)?;
            size = size.checked_add(form.size_along_axis())?;
        }
        *shape.get_mut(axis)? = size;
        blocks.checked_mul(block)?;
        Some(Self {
            shape,
            blocks,
            block,
            parts,
        })
    }

    /// Fills in the part of one rank, whose elements `next` hands out in order.
    fn fill<T>(
        &self,
        result: &mut [T],
        rank: Rank,
        mut next: impl FnMut(&mut [T]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (offset, len) = self.parts.get(rank.index()).copied().unwrap_or_default();
        if len == 0 {
            return Ok(());
        }
        for block in result.chunks_mut(self.block.max(1)).take(self.blocks) {
            if let Some(part) = block.get_mut(offset..offset + len) {
                next(part)?;
            }
        }
        Ok(())
    }
}

impl<C: Codec> Communicator<C> {
    /// Joins the arrays of all ranks along an axis, in rank order, on every rank.
    ///
    /// Sizes along the axis may differ and may be zero; everything else has to agree: the type of the
    /// elements, the number of dimensions, the other sizes, the axis. A negative axis counts from the end. Any
    /// layout will do; the result is in C order. It is filled in as the elements arrive, without an array
    /// for each rank in between.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] on all ranks, with what each of them has, when arrays do not fit together or
    /// there is no such axis: nothing has been moved then, and the communicator can be used on. Else those of
    /// [`all_gather`](Self::all_gather).
    ///
    /// # Examples
    ///
    /// ```
    /// use ndarray::array;
    ///
    /// let communicator = fsgather::Communicator::solo();
    /// let boxes = array![[0.0, 0.5], [1.0, 1.5]];
    /// assert_eq!(communicator.all_gather_array(&boxes.view(), 0)?, boxes);
    /// assert_eq!(communicator.all_gather_array(&boxes.t(), -1)?, boxes.t());
    /// # Ok::<(), fsgather::Error>(())
    /// ```
    #[track_caller]
    pub fn all_gather_array<T: Element, D: Dimension>(
        &self,
        array: &ArrayView<'_, T, D>,
        axis: isize,
    ) -> Result<Array<T, D>, Error> {
        let joined = self.join(array, axis, None, Location::caller())?;
        joined.ok_or_else(|| Error::config("this rank has received nothing"))
    }

    /// The same on `root` alone; `None` elsewhere.
    ///
    /// # Errors
    ///
    /// Those of [`all_gather_array`](Self::all_gather_array), and [`Error::Config`] when `root` is no rank.
    #[track_caller]
    pub fn gather_array<T: Element, D: Dimension>(
        &self,
        array: &ArrayView<'_, T, D>,
        axis: isize,
        root: impl Into<Rank>,
    ) -> Result<Option<Array<T, D>>, Error> {
        let root = self.root(root)?;
        self.join(array, axis, Some(root), Location::caller())
    }
}

impl<C: Codec> Communicator<C> {
    /// Joins them on `root`, or on all.
    fn join<T: Element, D: Dimension>(
        &self,
        array: &ArrayView<'_, T, D>,
        axis: isize,
        root: Option<Rank>,
        location: &Location<'_>,
    ) -> Result<Option<Array<T, D>>, Error> {
        let agreement = Call {
            root,
            ..self.unbounded(Operation::GatherArray, location)?
        };
        let (call, retention) = match root {
            Some(root) => {
                let call = self.made(Operation::Gather, location)?;
                (call.with_root(root), Retention::KeptForReader)
            }
            // So that each rank's elements go straight to where they belong in the result.
            None => (
                self.made(Operation::GatherArray, location)?,
                Retention::Kept,
            ),
        };
        let inner = &self.inner;
        step_aside(|| {
            let forms = self.agree_on_forms(&Form::of(array, axis), agreement)?;
            let plan = ArrayPlan::new(&forms).ok_or_else(|| {
                Error::config("the joined array would be larger than memory can be")
            })?;
            let standard = array.as_standard_layout();
            let own = standard.as_slice().unwrap_or_default();
            let input = Pieces::from(T::as_bytes(own)).into();
            let mut started = StartedCall::new(inner, &self.request(), call, retention, input)?;
            started.finish(|started, received| {
                if received.incoming.is_none() {
                    started.read_streams(received, |_, _| Ok(()))?;
                    return Ok(None);
                }
                let mut result = T::zeroed(plan.blocks * plan.block);
                let mut left = own;
                plan.fill(&mut result, inner.exchange.rank(), |part| {
                    let (these, rest) = left.split_at(part.len().min(left.len()));
                    part[..these.len()].copy_from_slice(these);
                    left = rest;
                    Ok(())
                })?;
                started.read_streams(received, |rank, stream| {
                    plan.fill(&mut result, rank, |part| self.read(rank, stream, part))
                })?;
                shaped(&plan.shape, result).map(Some)
            })
        })
    }

    /// Tells all ranks what this one has; what all have, if it fits together.
    fn agree_on_forms(&self, own: &Form, call: Call) -> Result<Vec<Form>, Error> {
        let inner = &self.inner;
        let table = inner.exchange.exchange(call, setup::encode(own)?)?;
        let bodies = table.map(|table| table.bodies).unwrap_or_default();
        let forms: Vec<Form> = bodies
            .iter()
            .map(|body| setup::decode(Some(body)))
            .collect::<Result<_, _>>()?;
        let fit = forms
            .iter()
            .all(|form| form.axis.is_some() && form.fits(&forms[0]));
        if fit {
            return Ok(forms);
        }
        let table = (0..)
            .zip(&forms)
            .map(|(rank, form)| (inner.in_world(Rank::new(rank)), form.describe()))
            .collect();
        Err(Error::Mismatch {
            what: "arrays".into(),
            table,
        })
    }

    fn read<T: Element>(
        &self,
        rank: Rank,
        stream: &mut PayloadStream,
        part: &mut [T],
    ) -> Result<(), Error> {
        T::read_exact(stream, part).map_err(|error| {
            stream.take_error().unwrap_or_else(|| Error::Corrupt {
                path: PathBuf::from("an array"),
                reason: format!("it does not hold the elements that were announced: {error}"),
                writer: self.inner.peer(rank).cloned(),
                reader: Some(self.inner.me()),
            })
        })
    }
}

/// Elements in C order as an array.
fn shaped<T, D: Dimension>(shape: &[usize], elements: Vec<T>) -> Result<Array<T, D>, Error> {
    let wrong = |error: ndarray::ShapeError| {
        Error::config(format!("the joined array cannot be made: {error}"))
    };
    Array::from_shape_vec(IxDyn(shape), elements)
        .and_then(Array::into_dimensionality::<D>)
        .map_err(wrong)
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn an_axis_that_an_array_does_not_have_is_told_with_what_the_array_is() {
        let communicator = Communicator::solo();
        let array = Array2::<f32>::zeros((2, 3));
        for axis in -2..2 {
            let joined = communicator.all_gather_array(&array.view(), axis);
            assert_eq!(joined.as_ref(), Ok(&array), "{axis}");
        }
        for axis in [-3, 2, 3] {
            let joined = communicator.all_gather_array(&array.view(), axis);
            let text = joined.unwrap_err().to_string();
            assert!(text.contains("float32 [2, 3] no such axis"), "{text}");
        }
    }
}
