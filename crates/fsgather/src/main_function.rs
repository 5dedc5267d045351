//! The end of a program: [`main`].

use std::{
    error::Error as StdError,
    io::{self, Write},
    process::ExitCode,
};

use fsgather_core::Error;

use fsgather_config::error_file;

/// Runs a program, and ends it as the command line ends: for an [`Error`] of this library, prints the sentence that
/// names the rank concerned to standard error, and returns [the code of its kind](crate::ErrorKind::exit_code).
///
/// Other errors end with code 1. An error of this library is found anywhere in the chain of sources. The output is the
/// error and its sources, never a dump of fields. `fsgather run` adds the name of the rank, if it was the first to
/// fail.
///
/// ```
/// use std::{error::Error, process::ExitCode};
///
/// use fsgather::Communicator;
///
/// fn main() -> ExitCode {
///     fsgather::main(evaluate)
/// }
///
/// fn evaluate() -> Result<(), Box<dyn Error>> {
///     let world = Communicator::from_env()?;
///     world.barrier()?;
///     Ok(world.close()?)
/// }
/// ```
pub fn main<E>(program: impl FnOnce() -> Result<(), E>) -> ExitCode
where
    E: Into<Box<dyn StdError>>,
{
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.into();
            let (text, ours) = ending(&*error);
            match ours {
                Some(ours) => error_file::record(ours),
                None => error_file::record_own(&text),
            }
            // If standard error is closed, the exit code still reports the failure.
            let _ = writeln!(io::stderr(), "Error: {text}");
            ExitCode::from(ours.map_or(1, Error::exit_code))
        }
    }
}

/// Returns the final message, and the error of this library that it contains.
fn ending<'a>(error: &'a (dyn StdError + 'static)) -> (String, Option<&'a Error>) {
    let mut text = error.to_string();
    let mut ours = None;
    let mut next = Some(error);
    while let Some(error) = next {
        ours = ours.or_else(|| error.downcast_ref());
        next = error.source();
        let source = next.map(ToString::to_string).unwrap_or_default();
        // Many errors repeat their source.
        if !text.contains(&source) {
            text = format!("{text}: {source}");
        }
    }
    (text, ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("evaluation of the test set")]
    struct Outer(#[source] Error);

    #[test]
    fn a_program_ends_with_text_and_code_of_a_nested_error() {
        let inner = Error::rendezvous("rank 1 never joined");
        let sentence = "ranks could not meet: rank 1 never joined";
        assert_eq!(ending(&inner), (sentence.into(), Some(&inner)));
        let outer = Outer(inner.clone());
        let within = format!("evaluation of the test set: {sentence}");
        assert_eq!(ending(&outer), (within, Some(&inner)));
        let other = io::Error::other("no such model");
        assert_eq!(ending(&other), ("no such model".into(), None));
    }
}
