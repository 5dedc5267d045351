//! The call of this command: [`Invocation`].

use std::{ffi::OsString, io, process::Command, sync::mpsc::Sender};

/// How this command was called, and what it takes to call it again or to end it early.
#[derive(Debug)]
pub(crate) struct Invocation {
    /// The words that start this very command again.
    program: Vec<OsString>,
    /// The words that came after them.
    words: Vec<OsString>,
    /// Takes the code to end with, from whoever cannot wait for the verb.
    early_end: Sender<u8>,
    /// Makes JSON of results that Python has added.
    result_as_json: Option<ResultAsJson>,
}

/// Makes JSON of the encoded result of a sample; an error is the reason, for people.
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

    /// Makes JSON of results that Python has added, inside of a Python process.
    pub(crate) const fn result_as_json(&self) -> Option<ResultAsJson> {
        self.result_as_json
    }

    /// The words that start this very command again.
    pub(crate) fn program(&self) -> &[OsString] {
        &self.program
    }

    /// This very command with other words, as another process.
    ///
    /// # Errors
    ///
    /// When nobody has said how to start it.
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

    /// What this rank was asked to do, for messages on other ranks.
    pub(crate) fn command_line(&self) -> String {
        const LONGEST: usize = 200;
        let words: Vec<String> = self
            .words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let line = words.join(" ");
        let cut: String = line.chars().take(LONGEST).collect();
        let more = if cut.len() < line.len() { " ..." } else { "" };
        format!("`fsgather {cut}{more}`")
    }

    /// Takes the code with which the command ends before its verb is done.
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
