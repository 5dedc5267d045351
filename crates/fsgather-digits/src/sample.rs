//! One image of the data set: [`Sample`].

/// The number of samples in the data set.
pub const SAMPLES: usize = 1797;

/// The number of pixels of a sample: 8 rows of 8.
pub const PIXELS: usize = 64;

/// The number of classes: the digits 0 to 9.
pub const CLASSES: usize = 10;

/// The value of a pixel that is full of ink; an empty one is 0.
pub const MAX_PIXEL: u8 = 16;

/// One handwritten digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The sample's place in the data set, counted from 0.
    pub id: u32,
    /// The image, row by row from the top left, each pixel 0 to [`MAX_PIXEL`].
    pub pixels: [u8; PIXELS],
    /// The digit that was written, 0 to 9.
    pub label: u8,
}
