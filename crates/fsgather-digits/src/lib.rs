//! The demo's work: 1,797 handwritten digits and a classifier for them.
//!
//! The crate knows nothing of how work is spread over processes or how results
//! are brought together. It offers the four steps in between:
//!
//! 1. [`samples`] reads the data set, which is compiled in;
//! 2. [`shard()`] picks the part that one of several workers takes;
//! 3. [`Classifier::classify`] turns each [`Sample`] into a [`Prediction`];
//! 4. [`DigitsReport`] counts predictions, in whatever order they arrive.
//!
//! # Guarantees
//!
//! Every prediction depends on the whole data set and its own sample only, and
//! is computed in integers but for one final division. So the shards' results,
//! computed in different processes, on different machines, equal to the last
//! bit what one process computes alone.
//!
//! # Example
//!
//! ```
//! use fsgather_digits::{Classifier, DigitsReport, samples, shard};
//!
//! let samples = samples()?;
//! let classifier = Classifier::new(&samples)?;
//! let mut report = DigitsReport::default();
//! for sample in shard(&samples, 0, 100) {
//!     report.add(&classifier.classify(sample))?;
//! }
//! assert_eq!(report.total(), 18);
//! println!("{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Data
//!
//! *Optical Recognition of Handwritten Digits*, E. Alpaydin and C. Kaynak, 1998,
//! UCI Machine Learning Repository, doi 10.24432/C50P49, CC BY 4.0. Source,
//! format and checksums are in `data/README.md`.

mod classifier;
mod classifier_error;
mod data_set;
mod neighbour;
mod parse_error;
mod prediction;
mod report;
mod sample;
mod shard;

pub use classifier::Classifier;
pub use classifier_error::ClassifierError;
pub use data_set::samples;
pub use neighbour::NEIGHBOURS;
pub use parse_error::{ParseError, ParseProblem};
pub use prediction::Prediction;
pub use report::{DigitsReport, NotADigit};
pub use sample::{CLASSES, MAX_PIXEL, PIXELS, SAMPLES, Sample};
pub use shard::shard;
