//! Lets unchanged Python programs use fsgather, also with a torch that does not look for it: [`variables`].

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt,
    path::Path,
    process::Command,
};

use fsgather_config::environment::Variables;

use super::variables::Variable;
use crate::failure::Failure;

const WHERE: &str =
    "import sys; from fsgather import _switch; sys.stdout.write(_switch.site_directory())";

/// Returns the variables with which every interpreter of the ranks replaces the functions that `FSGATHER_PATCH` selects: a
/// directory of the Python package, which replaces them, is put in front of `PYTHONPATH`.
///
/// # Errors
///
/// When the interpreter that the ranks will use does not have the package.
pub(super) fn variables(command: &[OsString]) -> Result<Vec<Variable>, Failure> {
    let interpreter = interpreter(command);
    let output = Command::new(interpreter).args(["-c", WHERE]).output();
    let output = output.map_err(|error| {
        Failure::usage(format!(
            "--python-patch: cannot start {}: {error}",
            interpreter.display()
        ))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::usage(format!(
            "--python-patch needs the Python package fsgather where {} looks for packages ({}); install it there",
            interpreter.display(),
            said.lines().last().unwrap_or("no reason was given")
        )));
    }
    let inherited = Variables::of_process();
    let mut path = OsString::from_vec(output.stdout);
    if let Some(old) = inherited.get("PYTHONPATH").filter(|old| !old.is_empty()) {
        path.push(":");
        path.push(old);
    }
    let mut variables = vec![("PYTHONPATH", Some(path))];
    if inherited.get("FSGATHER_PATCH").is_none_or(str::is_empty) {
        variables.push(("FSGATHER_PATCH", Some("torch".into())));
    }
    Ok(variables)
}

/// Returns the command itself if it is an interpreter, else the one that most scripts use.
fn interpreter(command: &[OsString]) -> &OsStr {
    let first = command.first().map(OsString::as_os_str);
    let is_python = |word: &&OsStr| {
        let name = Path::new(word).file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"python")
    };
    first.filter(is_python).unwrap_or(OsStr::new("python3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_the_command_is_asked() {
        let found = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            interpreter(&words).to_owned()
        };
        assert_eq!(found(&["python3.9", "train.py"]), "python3.9");
        assert_eq!(found(&["/opt/env/bin/python"]), "/opt/env/bin/python");
        assert_eq!(found(&["./train.sh"]), "python3");
        assert_eq!(found(&["/python/bin/torchrun", "x.py"]), "python3");
    }

    #[test]
    fn an_interpreter_without_the_package_is_named() {
        let message = variables(&["python-that-is-not-there".into()])
            .unwrap_err()
            .to_string();
        assert!(message.contains("python-that-is-not-there"), "{message}");
    }
}
