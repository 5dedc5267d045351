//! For packages in other languages, which keep what a program in Rust says call by call.

pub use crate::{call_options::CallOptions, groups::Arrival};
