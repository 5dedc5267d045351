//! The functions of a stack that say something of the program: [`frames`].

use std::{collections::BTreeMap, fs};

use fsgather_core::{MOST_FRAMES, StackFrame};

use super::{names::Name, symbols::Symbols, walk::Step};

/// Of how many functions the names are looked for.
const MOST_NAMED: usize = 64;

/// How names of files begin of libraries that only carry out what they are told: those of the languages, and of this one.
const OF_SYSTEM: [&str; 16] = [
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-2.",
    "ld-musl",
    "libc.musl",
    "libpthread",
    "libm.so",
    "librt.so",
    "librt-",
    "libdl",
    "libgcc_s.",
    "libstdc++.",
    "libc++.",
    "libffi.",
    "_fsgather.",
];

/// How names of Python's extensions begin that call functions of any library.
const CALLERS: [&str; 2] = ["_ctypes.", "_cffi_backend."];

/// Where Python's own extensions lie.
const OF_PYTHON: &str = "/lib-dynload/";

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Program,
    Library,
    /// Of the system, or of a language.
    System,
    Interpreter,
}

impl Kind {
    fn of(path: &str, program: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let begins = |part: &&str| name.starts_with(*part);
        let version = name.strip_prefix("python");
        let is_version = |rest: &str| {
            let is_part = |character: char| character.is_ascii_digit() || ".dt".contains(character);
            rest.chars().all(is_part)
        };
        if name.starts_with("libpython") || version.is_some_and(is_version) {
            Self::Interpreter
        } else if OF_SYSTEM.iter().chain(&CALLERS).any(begins) || path.contains(OF_PYTHON) {
            Self::System
        } else if path == program {
            Self::Program
        } else {
            Self::Library
        }
    }
}

/// A function of the program or of a library.
#[derive(Debug)]
struct Function {
    kind: Kind,
    path: String,
    name: Option<Name>,
}

/// What is told of a stack, the innermost last.
pub(super) fn frames(steps: &[Step<'_>], of_python: bool) -> Vec<StackFrame> {
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let program = program.to_string_lossy();
    let kind = |step: &Step<'_>| Kind::of(undeleted(&step.mapping.path), &program);
    let counts = |step: &&Step<'_>| matches!(kind(step), Kind::Program | Kind::Library);
    let called: Vec<&Step<'_>> = if of_python {
        let called = steps
            .iter()
            .take_while(|step| kind(step) != Kind::Interpreter);
        let mut called = called.filter(counts).peekable();
        let innermost = called.peek().map(|step| &step.mapping.path);
        called
            .take_while(|step| Some(&step.mapping.path) == innermost)
            .take(MOST_NAMED)
            .collect()
    } else {
        steps.iter().filter(counts).take(MOST_NAMED).collect()
    };
    let names = names_of(&called);
    let functions = called.iter().zip(names).map(|(step, name)| Function {
        kind: kind(step),
        path: undeleted(&step.mapping.path).to_owned(),
        name,
    });
    let mut told = choose(functions.collect());
    let callers = told.len().saturating_sub(1);
    told.drain(..if of_python { callers } else { 0 });
    told
}

/// The names of functions, each file of which is read once.
fn names_of(steps: &[&Step<'_>]) -> Vec<Option<Name>> {
    let mut names = vec![None; steps.len()];
    let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        files.entry(&step.mapping.path).or_default().push(place);
    }
    for places in files.values() {
        let addresses: Vec<u64> = places
            .iter()
            .map(|place| steps[*place].module.in_file(steps[*place].at))
            .collect();
        let first = steps[places[0]];
        let found = Symbols::open(first.mapping, &first.module)
            .ok()
            .and_then(|symbols| symbols.names_at(&addresses).ok())
            .unwrap_or_default();
        for (place, found) in places.iter().zip(found) {
            names[*place] = Name::of(&found);
        }
    }
    names
}

/// A path without what the kernel puts after those that are no more.
fn undeleted(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

/// Of functions, the innermost first, those that are told, the innermost last.
fn choose(mut functions: Vec<Function>) -> Vec<StackFrame> {
    functions.retain(|function| match &function.name {
        Some(name) => !name.is_of_language(),
        // The program itself need not be told that it is in it.
        None => function.kind == Kind::Library,
    });
    // Where a library does not name a function, the one of it that was called is.
    let has_caller = |at: usize| {
        let rest = functions.get(at..).unwrap_or_default();
        let [function, caller, ..] = rest else {
            return false;
        };
        function.name.is_none() && function.path == caller.path
    };
    let vague: Vec<bool> = (0..functions.len()).map(has_caller).collect();
    let mut vague = vague.into_iter();
    functions.retain(|_| vague.next() != Some(true));
    // The crate that has called all others, in a program in Rust; what the language needs around it is not of it.
    let of_rust = functions
        .iter()
        .rev()
        .filter(|function| function.kind == Kind::Program);
    let mut of_rust =
        of_rust.filter_map(|function| function.name.as_ref().filter(|name| name.is_rust));
    let root = of_rust.find_map(Name::root).map(str::to_owned);
    if root.is_some() {
        let is_around =
            |name: &Name| !name.is_rust && ["main", "_start"].contains(&name.text.as_str());
        functions.retain(|function| {
            function.kind != Kind::Program || !function.name.as_ref().is_some_and(is_around)
        });
    }
    let is_own = |function: &Function| match (&function.kind, &root, &function.name) {
        (Kind::Program, Some(root), Some(name)) => name.is_rust && name.root() == Some(root),
        (Kind::Program, ..) => true,
        _ => is_own_library(&function.path),
    };
    // What this library does within a call is not of interest, as long as nothing of the program is called by it.
    let own = functions.iter().position(is_own).unwrap_or(functions.len());
    let is_ours = |function: &Function| function.name.as_ref().is_some_and(Name::is_of_fsgather);
    let call = functions[..own]
        .iter()
        .rposition(is_ours)
        .unwrap_or_default();
    let told = functions[call..].iter().take(MOST_FRAMES).rev();
    told.map(|function| StackFrame {
        is_own: is_own(function),
        // Of the program there is only one, and everybody knows its name.
        file: match function.kind {
            Kind::Program => String::new(),
            _ => function.path.clone(),
        },
        line: None,
        function: function
            .name
            .as_ref()
            .map(|name| name.text.clone())
            .unwrap_or_default(),
    })
    .collect()
}

/// Whether a library is a part of the program, as far as its place tells, and not of the system or something that was installed.
fn is_own_library(path: &str) -> bool {
    let of_system = ["/usr/", "/lib/", "/lib64/", "/opt/", "/nix/", "/gnu/"];
    let of_packages = ["/site-packages/", "/dist-packages/", "/lib/python"];
    !of_system.iter().any(|part| path.starts_with(part))
        && !of_packages.iter().any(|part| path.contains(part))
}

#[cfg(test)]
#[path = "chosen_tests.rs"]
mod tests;
