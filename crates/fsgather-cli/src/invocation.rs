//! The call of this command: [`Invocation`].

use std::{ffi::OsString, io, process::Command, sync::mpsc::Sender};

/// The command line of this process, with the means to run the command again or to end it early.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The words that start this program again.
    program: Vec<OsString>,
    /// The arguments after them.
    words: Vec<OsString>,
    /// Takes the exit code from threads that cannot wait for the verb.
    early_end: Sender<u8>,
    /// Converts results that Python has added to JSON.
    result_as_json: Option<ResultAsJson>,
}

/// Converts the encoded result of a sample to JSON; an error is a reason for the user.
pub type ResultAsJson = fn(Vec<u8>) -> Result<String, String>;

impl Invocation {
    pub(crate) const fn new(
        program: Vec<OsString>,
        words: Vec<OsString>,
        early_end: Sender<u8>,
        result_as_json: Option<ResultAsJson>,
    ) -> Self {
        Self {
            program,
            words,
            early_end,
            result_as_json,
        }
    }

    /// Converts results that Python has added to JSON, in a Python process.
    pub(crate) const fn result_as_json(&self) -> Option<ResultAsJson> {
        self.result_as_json
    }

    /// The words that start this program again.
    pub(crate) fn program(&self) -> &[OsString] {
        &self.program
    }

    /// This program with other arguments, as a new process.
    ///
    /// # Errors
    ///
    /// Returns an error if the words to start it are unknown.
    pub(crate) fn again(&self) -> io::Result<Command> {
        let Some((program, words)) = self.program.split_first() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not known how to start this program again",
            ));
        };
        let mut command = Command::new(program);
        command.args(words);
        Ok(command)
    }

    /// The command line of this rank, for messages on other ranks.
    pub(crate) fn command_line(&self) -> String {
        const MAX_CHARS: usize = 200;
        let words: Vec<String> = self
            .words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let line = words.join(" ");
        let cut: String = line.chars().take(MAX_CHARS).collect();
        let more = if cut.len() < line.len() { " ..." } else { "" };
        format!("`fsgather {cut}{more}`")
    }

    /// Takes the exit code if the command ends before its verb is done.
    pub(crate) const fn early_end(&self) -> &Sender<u8> {
        &self.early_end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn called(program: &[&str], words: &[&str]) -> Invocation {
        let of = |words: &[&str]| words.iter().map(OsString::from).collect();
        Invocation::new(of(program), of(words), mpsc::channel().0, None)
    }

    #[test]
    fn a_program_of_several_words_is_started_with_all_of_them() {
        let command = called(&["python", "-m", "fsgather"], &[]).again().unwrap();
        assert_eq!(command.get_program(), "python");
        assert!(command.get_args().eq(["-m", "fsgather"]));
        assert!(called(&[], &[]).again().is_err());
    }

    #[test]
    fn long_command_lines_are_cut() {
        let long = "x".repeat(500);
        let line = called(&["fsgather"], &["gather", &long]).command_line();
        assert!(line.starts_with("`fsgather gather xxx") && line.ends_with(" ...`"));
        let short = called(&["fsgather"], &["barrier"]).command_line();
        assert_eq!(short, "`fsgather barrier`");
    }
}
