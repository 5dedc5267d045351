//! The verbs: one file or directory each.

pub(crate) mod barrier;
pub(crate) mod bench;
pub(crate) mod broadcast;
mod calls_search;
pub(crate) mod clean;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod gather;
pub(crate) mod inspect;
pub(crate) mod licences;
pub(crate) mod manual;
mod others;
pub(crate) mod ps;
pub(crate) mod samples;
pub(crate) mod trace;
