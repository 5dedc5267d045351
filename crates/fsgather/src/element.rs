//! The types that arrays can be made of: [`Element`].

use std::io::{self, Read};

/// A number or `bool`, as an element of an array that is gathered.
///
/// Elements travel as they lie in memory.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// What messages call the type, as in numpy.
    const DTYPE: &'static str;

    /// The bytes of elements.
    #[doc(hidden)]
    fn as_bytes(elements: &[Self]) -> &[u8];

    /// Memory for that many elements, which are all zero.
    #[doc(hidden)]
    fn zeroed(count: usize) -> Vec<Self>;

    /// Reads elements from their bytes.
    #[doc(hidden)]
    fn read_exact(from: &mut dyn Read, into: &mut [Self]) -> io::Result<()>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty = $name:literal),* $(,)?) => {
        $(
            impl sealed::Sealed for $number {}

            impl Element for $number {
                const DTYPE: &'static str = $name;

                fn as_bytes(elements: &[Self]) -> &[u8] {
                    bytemuck::cast_slice(elements)
                }

                fn zeroed(count: usize) -> Vec<Self> {
                    bytemuck::allocation::zeroed_vec(count)
                }

                fn read_exact(from: &mut dyn Read, into: &mut [Self]) -> io::Result<()> {
                    from.read_exact(bytemuck::cast_slice_mut(into))
                }
            }
        )*
    };
}

numbers! {
    u8 = "uint8",
    u16 = "uint16",
    u32 = "uint32",
    u64 = "uint64",
    u128 = "uint128",
    i8 = "int8",
    i16 = "int16",
    i32 = "int32",
    i64 = "int64",
    i128 = "int128",
    f32 = "float32",
    f64 = "float64",
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: &'static str = "bool";

    fn as_bytes(elements: &[Self]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn zeroed(count: usize) -> Vec<Self> {
        vec![false; count]
    }

    /// Bytes are looked at, since not every one is a `bool`.
    fn read_exact(from: &mut dyn Read, into: &mut [Self]) -> io::Result<()> {
        let mut bytes = [0; 4096];
        for piece in into.chunks_mut(bytes.len()) {
            let bytes = &mut bytes[..piece.len()];
            from.read_exact(bytes)?;
            for (element, byte) in piece.iter_mut().zip(bytes) {
                *element = match byte {
                    0 => false,
                    1 => true,
                    other => {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            format!("{other} is no bool"),
                        ));
                    }
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<E: Element + PartialEq>(elements: &[E], dtype: &str) {
        assert_eq!(E::DTYPE, dtype);
        let bytes = E::as_bytes(elements);
        assert_eq!(bytes.len(), size_of_val(elements));
        let mut back = E::zeroed(elements.len());
        assert!(E::as_bytes(&back).iter().all(|byte| *byte == 0));
        E::read_exact(&mut &bytes[..], &mut back).unwrap();
        assert!(back == elements);
        let short = &bytes[..bytes.len() - 1];
        assert!(E::read_exact(&mut &short[..], &mut back).is_err());
    }

    #[test]
    fn elements_are_their_bytes() {
        there_and_back(&[1_u8, 255], "uint8");
        there_and_back(&[-1_i16, 300], "int16");
        there_and_back(&[u128::MAX, 3], "uint128");
        there_and_back(&[0.5_f32, -2.0], "float32");
        there_and_back(&[f64::MAX, 1e-300], "float64");
        let many: Vec<bool> = (0..10_000).map(|at| at % 3 == 0).collect();
        there_and_back(&many, "bool");
    }

    #[test]
    fn a_byte_that_is_no_bool_is_told() {
        let mut bytes = vec![1; 5000];
        bytes[4500] = 2;
        let error = bool::read_exact(&mut &bytes[..], &mut [false; 5000]).unwrap_err();
        assert_eq!(error.to_string(), "2 is no bool");
    }
}
