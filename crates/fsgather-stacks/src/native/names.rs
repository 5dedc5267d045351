//! Names as the program's language has them: [`Name`]. Pure.

use std::fmt::{self, Write};

/// How much of a name is kept, in bytes.
const LONGEST: usize = 1024;

/// How deep names may be nested.
const DEEPEST: u32 = 96;

/// The name of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) is_rust: bool,
}

impl Name {
    /// That of a function which may have several, as long as they say the same: linkers give one to functions that only look alike.
    pub(super) fn of(symbols: &[String]) -> Option<Self> {
        let mut names = symbols.iter().filter_map(|symbol| Self::demangle(symbol));
        let first = names.next()?;
        names.try_fold(first, |best, other| {
            if bare(&best.text) != bare(&other.text) {
                return None;
            }
            let is_shorter = other.text.len() < best.text.len();
            Some(if is_shorter { other } else { best })
        })
    }

    fn demangle(symbol: &str) -> Option<Self> {
        let is_rust = is_rust(symbol);
        let text = if is_rust {
            let demangled = rustc_demangle::try_demangle(symbol).ok()?;
            bounded(format_args!("{demangled:#}"))
        } else {
            // What follows a dot tells of a part of it, or a copy for some arguments; what follows an at sign is a version.
            let mut marks = symbol.match_indices(['.', '@']).filter(|(at, _)| *at > 0);
            let symbol = marks.next().map_or(symbol, |(at, _)| &symbol[..at]);
            of_cpp(symbol).unwrap_or_else(|| symbol.to_owned())
        };
        (!text.is_empty()).then_some(Self { text, is_rust })
    }

    /// The crate or outermost namespace of a function, or of what it is a method of; nothing where it is in none.
    pub(super) fn root(&self) -> Option<&str> {
        let mut text = self.text.trim_start_matches(['<', '&', '*', '(', '[']);
        for word in ["dyn ", "mut ", "const ", "impl "] {
            text = text.strip_prefix(word).unwrap_or(text);
        }
        let end = text.find(|character: char| !(character.is_alphanumeric() || character == '_'));
        let (first, rest) = text.split_at(end.unwrap_or(text.len()));
        if rest.starts_with("::") || rest.starts_with('[') {
            return Some(first);
        }
        // A type of the language, or one that stands for any: what counts is the trait.
        let (_, of_trait) = rest.split_once(" as ").filter(|_| self.is_rust)?;
        let (first, _) = of_trait.split_once("::")?;
        Some(first)
    }

    /// Whether it is a function of the language, which says nothing of the program.
    pub(super) fn is_of_language(&self) -> bool {
        let roots: &[&str] = if self.is_rust {
            &["std", "core", "alloc", "test"]
        } else {
            &["std", "__gnu_cxx"]
        };
        self.root().is_some_and(|root| roots.contains(&root)) || self.text.starts_with("__rust")
    }

    /// Whether it is a function of this library.
    pub(super) fn is_of_fsgather(&self) -> bool {
        self.is_rust && self.root().is_some_and(|root| root.starts_with("fsgather"))
    }
}

/// A name without what those of one function differ in: underscores before it, and the letter that the names of MPI have for tools.
fn bare(text: &str) -> &str {
    let text = text.trim_start_matches('_');
    text.strip_prefix('P')
        .filter(|text| text.starts_with("MPI_"))
        .unwrap_or(text)
}

/// Whether the compiler of Rust has made a symbol; other languages have the same marks at the beginning of theirs, but no digest at
/// the end.
fn is_rust(symbol: &str) -> bool {
    let is_digest = |digest: &str| {
        let digest = digest.as_bytes();
        let (Some(digits), Some(after)) = (digest.get(..16), digest.get(16)) else {
            return false;
        };
        *after == b'E' && digits.iter().all(u8::is_ascii_hexdigit)
    };
    symbol.starts_with("_R")
        || symbol.starts_with("_ZN")
            && symbol
                .rfind("17h")
                .is_some_and(|at| is_digest(&symbol[at + 3..]))
}

fn of_cpp(symbol: &str) -> Option<String> {
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(DEEPEST);
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(DEEPEST);
    let parsed = cpp_demangle::Symbol::new_with_options(symbol, &parse).ok()?;
    let mut text = Bounded::default();
    match parsed.structured_demangle(&mut text, &options) {
        Ok(()) => Some(text.text),
        Err(_) => text.is_full.then_some(text.text),
    }
}

fn bounded(arguments: fmt::Arguments<'_>) -> String {
    let mut text = Bounded::default();
    // It fails where it is full.
    let _ = text.write_fmt(arguments);
    text.text
}

/// A text that takes no more than its bound.
#[derive(Default)]
struct Bounded {
    text: String,
    is_full: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for character in part.chars() {
            if self.text.len() >= LONGEST {
                self.is_full = true;
                return Err(fmt::Error);
            }
            self.text.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
