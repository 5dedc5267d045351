//! The end of a program: [`main`].

use std::{
    error::Error as StdError,
    io::{self, Write},
    process::ExitCode,
};

use fsgather_core::Error;

/// Runs a program, and ends it as the command line ends: for an [`Error`] of this library with the sentence that
/// names the rank concerned on standard error, and with [the code of its kind](crate::ErrorKind::exit_code).
///
/// Errors of others end with code 1. An error of this library counts wherever it lies in the chain of sources.
/// What is printed is the error and its sources, never a dump of fields.
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
            let (text, code) = ending(&*error.into());
            // Where nobody hears it the code is left.
            let _ = writeln!(io::stderr(), "Error: {text}");
            ExitCode::from(code)
        }
    }
}

/// What to say at the end, and the code to end with.
fn ending(error: &(dyn StdError + 'static)) -> (String, u8) {
    let mut text = error.to_string();
    let mut code = None;
    let mut next = Some(error);
    while let Some(error) = next {
        code = code.or_else(|| Some(error.downcast_ref::<Error>()?.exit_code()));
        next = error.source();
        let source = next.map(ToString::to_string).unwrap_or_default();
        // Many errors repeat their source.
        if !text.contains(&source) {
            text = format!("{text}: {source}");
        }
    }
    (text, code.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("evaluation of the test set")]
    struct Outer(#[source] Error);

    #[test]
    fn a_program_ends_with_the_sentence_and_the_code_of_our_error_wherever_it_lies() {
        let inner = Error::rendezvous("rank 1 never joined");
        assert_eq!(
            ending(&inner),
            ("ranks could not meet: rank 1 never joined".into(), 15)
        );
        assert_eq!(
            ending(&Outer(inner)),
            (
                "evaluation of the test set: ranks could not meet: rank 1 never joined".into(),
                15
            )
        );
        let other = io::Error::other("no such model");
        assert_eq!(ending(&other), ("no such model".into(), 1));
    }
}
