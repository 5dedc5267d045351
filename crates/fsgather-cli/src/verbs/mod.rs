//! The verbs for ranks: one file each.

pub(crate) mod barrier;
pub(crate) mod broadcast;
pub(crate) mod demo;
pub(crate) mod gather;
