//! torch's tensors, while encoding.
//!
//! A tensor is a view of a storage: an offset, the lengths of its dimensions, and the strides of its items. Several tensors may view one
//! storage, and still do so after decoding. The part of a storage that must be sent is only known after all tensors have been encoded; so
//! the stream holds their numbers, and ends with two tables: of the storages, and of the view of each tensor.
//!
//! Only the range of a storage that its tensors view is sent. If a single tensor has larger gaps between its items, only the items are
//! sent.

use pyo3::{
    Bound, PyAny, intern,
    prelude::*,
    types::{PyDict, PyString},
};

use super::{
    encode::Encoder,
    known::TensorTypes,
    modes::ModesOff,
    refusal::{Refusal, Refused},
    stream::{HAS_TENSORS, OUT_OF_BAND, tag},
    tensor_bytes,
};
use crate::like::Like;

/// Storages begin at multiples of this, so that items of every type stay aligned.
pub(crate) const ALIGNMENT: usize = 16;

/// The content of a storage is in the stream, or beside it.
pub(crate) const INLINE: u8 = 0;
pub(crate) const BESIDE: u8 = 1;

/// Tensors that were encoded so far.
#[derive(Default)]
pub(crate) struct WrittenTensors<'py> {
    tensors: Vec<Tensor<'py>>,
    storages: Vec<Storage>,
}

/// A view of a storage; positions and strides count items.
struct Tensor<'py> {
    object: Bound<'py, PyAny>,
    storage: usize,
    dtype: String,
    item: usize,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    requires_grad: bool,
}

/// The location of the memory of a storage.
#[derive(PartialEq, Eq)]
struct Lies {
    address: usize,
    device: String,
}

/// A storage, identified by its location.
struct Storage {
    lies: Lies,
    /// The range of bytes that tensors view.
    start: usize,
    end: usize,
    users: usize,
    /// The tensor whose view reaches furthest: its storage is large enough for all of them. There can be several storages of different
    /// sizes at one address if other libraries lend torch their memory.
    furthest: usize,
}

impl Tensor<'_> {
    fn items(&self) -> usize {
        self.shape.iter().product()
    }

    /// The range of bytes of the storage, from the first to the last item.
    fn range(&self) -> (usize, usize) {
        if self.items() == 0 {
            return (self.offset * self.item, self.offset * self.item);
        }
        let steps = self.shape.iter().zip(&self.strides);
        let last = steps.fold(self.offset, |last, (length, step)| {
            last + (length - 1) * step
        });
        (self.offset * self.item, (last + 1) * self.item)
    }
}

impl<'py> Encoder<'py> {
    /// Writes a tensor; returns false if the object is not one.
    pub(crate) fn tensor(
        &mut self,
        held: &Bound<'py, PyAny>,
        types: &TensorTypes,
    ) -> Refused<bool> {
        if !held.get_type().is(&types.tensor) {
            return Ok(false);
        }
        let py = held.py();
        if self.modes.is_none() {
            self.modes = Some(ModesOff::begin(py)?);
        }
        check_plain(held, self.like)?;
        let storage = held.call_method0(intern!(py, "untyped_storage"))?;
        let address: usize = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let size: usize = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
        let dtype = held.getattr(intern!(py, "dtype"))?.str()?.to_string();
        let tensor = Tensor {
            object: held.clone(),
            storage: 0,
            dtype: dtype.trim_start_matches("torch.").into(),
            item: held.call_method0(intern!(py, "element_size"))?.extract()?,
            offset: held
                .call_method0(intern!(py, "storage_offset"))?
                .extract()?,
            shape: held.getattr(intern!(py, "shape"))?.extract()?,
            strides: held.call_method0(intern!(py, "stride"))?.extract()?,
            requires_grad: held.getattr(intern!(py, "requires_grad"))?.extract()?,
        };
        if tensor.range().1 > size {
            return Err(Refusal::because("torch.Tensor beyond its storage"));
        }
        let device = held.getattr(intern!(py, "device"))?.str()?.to_string();
        self.out.byte(tag::TENSOR);
        self.out.length(self.tensors.tensors.len());
        let lies = Lies { address, device };
        self.tensors.enter(tensor, lies, self.like);
        Ok(true)
    }

    /// Writes the tables at the end of the stream, if there are tensors.
    pub(crate) fn tensor_tables(&mut self) -> Refused<()> {
        let WrittenTensors {
            mut tensors,
            mut storages,
        } = std::mem::take(&mut self.tensors);
        if tensors.is_empty() {
            return Ok(());
        }
        self.out.bytes[1] |= HAS_TENSORS;
        let tables = self.out.bytes.len() as u64;
        self.out.length(storages.len());
        for storage in &mut storages {
            self.storage(storage, &mut tensors)?;
        }
        self.out.length(tensors.len());
        for tensor in &tensors {
            let start = storages[tensor.storage].start;
            self.out.length(tensor.storage);
            self.out.counted(tensor.dtype.as_bytes());
            self.out.byte(u8::from(tensor.requires_grad));
            self.out.length(tensor.offset - start / tensor.item);
            self.out.length(tensor.shape.len());
            for (length, step) in tensor.shape.iter().zip(&tensor.strides) {
                self.out.length(*length);
                self.out.length(*step);
            }
        }
        self.out.bytes.extend(tables.to_le_bytes());
        Ok(())
    }

    /// Writes the content of a storage.
    fn storage(&mut self, storage: &mut Storage, tensors: &mut [Tensor<'py>]) -> Refused<()> {
        let tensor = &mut tensors[storage.furthest];
        let py = tensor.object.py();
        let bare = tensor.object.call_method0(intern!(py, "detach"))?;
        let seen =
            if storage.users == 1 && tensor.items() * tensor.item < storage.end - storage.start {
                let options = PyDict::new(py);
                options.set_item(
                    "memory_format",
                    tensor_bytes::torch(py)?.getattr("contiguous_format")?,
                )?;
                let copy = bare.call_method("clone", (), Some(&options))?;
                tensor.strides = copy.call_method0("stride")?.extract()?;
                tensor.offset = 0;
                (storage.start, storage.end) = (0, tensor.items() * tensor.item);
                copy
            } else {
                storage.start -= storage.start % ALIGNMENT;
                bare
            };
        let buffer = tensor_bytes::of_storage(&seen, storage.start, storage.end)?;
        if buffer.len() >= OUT_OF_BAND {
            self.beside(BESIDE, buffer);
        } else {
            self.out.byte(INLINE);
            self.out.counted(buffer.as_ref());
        }
        Ok(())
    }
}

impl<'py> WrittenTensors<'py> {
    fn enter(&mut self, mut tensor: Tensor<'py>, lies: Lies, like: Like) {
        let (start, end) = tensor.range();
        let is_empty = start == end;
        // Empty storages may all be at the same address.
        let may_share = !is_empty && !like.is_pickle();
        let known = may_share.then(|| {
            let mut known = self.storages.iter();
            known.position(|known| known.end > known.start && known.lies == lies)
        });
        let known = known.flatten();
        tensor.storage = known.unwrap_or(self.storages.len());
        match known {
            Some(known) => {
                let known = &mut self.storages[known];
                known.start = known.start.min(start);
                if end > known.end {
                    (known.end, known.furthest) = (end, self.tensors.len());
                }
                known.users += 1;
            }
            None => self.storages.push(Storage {
                lies,
                start,
                end,
                users: 1,
                furthest: self.tensors.len(),
            }),
        }
        self.tensors.push(tensor);
    }
}

/// Refuses tensors with more state than their items.
fn check_plain(held: &Bound<'_, PyAny>, like: Like) -> Refused<()> {
    let py = held.py();
    let refused = |why: &str| Err(Refusal::because(format!("torch.Tensor {why}")));
    let is = |name: &Bound<'_, PyString>| -> PyResult<bool> { held.call_method0(name)?.extract() };
    let layout = held.getattr(intern!(py, "layout"))?.str()?.to_string();
    if layout != "torch.strided" {
        return refused(&format!("of layout {layout}"));
    }
    let kind = held
        .getattr(intern!(py, "device"))?
        .getattr(intern!(py, "type"))?;
    let kind: String = kind.extract()?;
    if kind != "cpu" && (kind != "cuda" || like.is_pickle()) {
        return refused(&format!("on device {kind}"));
    }
    // Releases of torch up to about 2.x have names.
    let has_names = match held.getattr_opt(intern!(py, "has_names"))? {
        Some(has_names) => has_names.call0()?.extract()?,
        None => false,
    };
    let state = held.getattr(intern!(py, "__dict__"))?;
    let checks = [
        (
            held.getattr(intern!(py, "is_quantized"))?.extract()?,
            "that is quantised",
        ),
        (
            held.getattr(intern!(py, "is_nested"))?.extract()?,
            "that is nested",
        ),
        (
            !held.getattr(intern!(py, "is_leaf"))?.extract::<bool>()?,
            "with a history (grad_fn)",
        ),
        (is(intern!(py, "is_conj"))?, "that is conjugated"),
        (is(intern!(py, "is_neg"))?, "that is negated"),
        (has_names, "with names"),
        (
            is(intern!(py, "_is_zerotensor"))?,
            "of zeros without memory",
        ),
        (
            !held.getattr(intern!(py, "_backward_hooks"))?.is_none(),
            "with hooks",
        ),
        (state.len()? > 0, "with attributes of its own"),
        (
            !held.hasattr(intern!(py, "untyped_storage"))?,
            "of torch before 2.0",
        ),
    ];
    match checks.iter().find(|(holds, _)| *holds) {
        Some((_, why)) => refused(why),
        None => Ok(()),
    }
}
