//! Reads what a rank is told: environment variables, settings, and its place among the ranks that a launcher has started.
//!
//! `fsgather`, its command and its Python package share this crate, so that a variable has one meaning, one default and one error
//! text. Programs need it only to look at settings without joining a world.
//!
//! | module | holds |
//! |---|---|
//! | [`arguments`] | [`arguments::Arguments`]: what the program says, which wins over variables |
//! | `table` | the one table of settings, from which come the names and texts of variables, [`settings::Settings`], [`arguments::Arguments`], the reference page and lists in the command's help |
//! | [`environment`] | the names of all variables, and [`environment::Variables`], what they say |
//! | [`error_file`] | the file that `fsgather run` names for the errors of a rank |
//! | [`path_choice`], [`switches`] | which way the function `all_gather` goes, and who gets its result |
//! | [`launcher`] | rank and world size by the variables of Slurm, MPI, torchrun, Kubernetes and others |
//! | [`settings`] | [`settings::Settings`]: each setting parsed, with its origin |
//! | [`words`] | what a program of another language says of a setting |
//! | [`working_directory`] | relative paths, made absolute when they are read |
//!
//! Everything but [`environment::Variables::of_process`] and [`working_directory`] is a pure function over a set of variables.

#[macro_use]
mod table;

pub mod arguments;
pub mod environment;
pub mod error_file;
pub mod launcher;
pub mod path_choice;
pub mod settings;
pub mod switches;
pub mod words;
pub mod working_directory;
