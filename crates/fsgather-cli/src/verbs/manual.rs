//! The verb `manual`: prints manual pages.

use std::{fs, path::PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use super::inspect::is_read;
use crate::{
    exit,
    failure::Failure,
    output::{self, Stream},
};

const EXAMPLES: &str = "\
Examples:
  fsgather manual gather | man -l -
      reads the page of a verb
  fsgather manual --out ~/.local/share/man/man1
      from then on: man fsgather, man fsgather-gather

Without VERB and --out it is the page of the command itself. The directory for
--out must exist.";

/// Print the manual page of the command or of a verb, or write all of them.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ManualArguments {
    /// The verb; without one, the page of the command itself.
    #[arg(value_name = "VERB", conflicts_with = "out")]
    verb: Option<String>,

    /// Write all pages into this directory instead.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints one page, or writes all.
///
/// # Errors
///
/// Returns an error if the verb does not exist, or a page cannot be written.
pub(crate) fn manual(arguments: &ManualArguments, command: Command) -> Result<u8, Failure> {
    let pages = pages(command);
    if let Some(directory) = &arguments.out {
        for (name, page) in &pages {
            let path = directory.join(format!("{name}.1"));
            fs::write(&path, page).map_err(Failure::file("write", &path))?;
        }
        return Ok(exit::DONE);
    }
    let wanted = match &arguments.verb {
        None => "fsgather".to_owned(),
        Some(verb) => format!("fsgather-{verb}"),
    };
    let Some((_, page)) = pages.iter().find(|(name, _)| *name == wanted) else {
        let verbs: Vec<&str> = pages
            .iter()
            .filter_map(|(name, _)| name.strip_prefix("fsgather-"))
            .collect();
        return Err(Failure::usage(format!(
            "no such verb; there are {}",
            verbs.join(", ")
        )));
    };
    is_read(output::write(Stream::Stdout, page))?;
    Ok(exit::DONE)
}

/// All pages, with their names.
fn pages(command: Command) -> Vec<(String, Vec<u8>)> {
    let command = command.disable_help_subcommand(true);
    let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs = visible.map(|verb| {
        let name = format!("fsgather-{}", verb.get_name());
        let said = format!("fsgather {}", verb.get_name());
        let verb = verb.clone().version(env!("CARGO_PKG_VERSION"));
        (name.clone(), verb.display_name(name).bin_name(said))
    });
    let all: Vec<(String, Command)> = verbs.collect();
    std::iter::once(("fsgather".to_owned(), command))
        .chain(all)
        .filter_map(|(name, command)| {
            let mut page = Vec::new();
            // Into memory, so that writing cannot fail.
            let source = concat!("fsgather ", env!("CARGO_PKG_VERSION"));
            let man = Man::new(command).title(name.clone()).source(source);
            man.render(&mut page).ok()?;
            Some((name, page))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_and_verbs_have_manual_pages_with_exit_codes() {
        let pages = pages(crate::arguments::command());
        for name in [
            "fsgather",
            "fsgather-gather",
            "fsgather-run",
            "fsgather-clean",
        ] {
            let page = pages.iter().find(|(its, _)| its == name);
            let text = String::from_utf8(page.unwrap().1.clone()).unwrap();
            assert!(text.contains(".SH NAME"), "{text}");
            assert!(text.contains("Exit codes:"), "{text}");
        }
        assert!(pages.iter().all(|(name, _)| !name.contains("guard-run")));
    }
}
