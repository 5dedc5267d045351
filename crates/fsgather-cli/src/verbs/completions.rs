//! The verb `completions`: prints the script with which a shell completes command lines.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{
    exit,
    failure::Failure,
    output::{self, Stream},
};

const EXAMPLES: &str = "\
Examples:
  fsgather completions bash >~/.local/share/bash-completion/completions/fsgather
  fsgather completions zsh >\"${fpath[1]}/_fsgather\"
  fsgather completions fish >~/.config/fish/completions/fsgather.fish
      from the next shell on, TAB completes verbs and options";

/// Print what a shell needs to complete verbs and options.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script, for the complete command line as it is parsed.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub(crate) fn completions(
    arguments: &CompletionsArguments,
    mut command: Command,
) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "fsgather", &mut script);
    output::write(Stream::Stdout, &script).map_err(Failure::system("write to standard output"))?;
    Ok(exit::DONE)
}
