//! Text as a word of a shell: [`shell_word`].

use crate::table::plain;

/// A path or another text as a word that can be pasted into a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let is_simple = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if text.chars().all(is_simple) {
        text.to_owned()
    } else {
        format!("'{}'", plain(text).replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_words_of_a_shell() {
        assert_eq!(shell_word("/shared/scratch"), "/shared/scratch");
        assert_eq!(shell_word("/it's here"), r"'/it'\''s here'");
    }
}
