//! Reads what a rank is told: environment variables, settings, and its place among the ranks that a launcher has started.
//!
//! `fsgather`, its command and its Python package share this crate, so that a variable has one meaning, one default and one error
//! text. Programs need it only to look at settings without joining a world.
//!
//! | module | holds |
//! |---|---|
//! | [`arguments`] | [`arguments::Arguments`]: what the program says, which wins over variables |
//! | [`environment`] | the table of all variables, from which the reference page is generated, and [`environment::Variables`], what they say |
//! | [`path_choice`], [`switches`] | which way the function `all_gather` goes, and who gets its result |
//! | [`launcher`] | rank and world size by the variables of Slurm, MPI, torchrun, Kubernetes and others |
//! | [`settings`] | [`settings::Settings`]: each setting parsed, with its origin |
//!
//! Everything but [`environment::Variables::of_process`] is a pure function over a set of variables.

pub mod arguments;
pub mod environment;
pub mod launcher;
pub mod path_choice;
pub mod settings;
pub mod switches;
