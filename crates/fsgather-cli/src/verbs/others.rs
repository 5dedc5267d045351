//! Counts the items that only other users can remove, with the command that root needs for them: [`text`].

use std::collections::BTreeSet;

use crate::table::plain;

/// Returns the number of items of other users, and for root the line that runs `command` as each of them; empty if there are none.
pub(super) fn text<'a>(
    users: impl Iterator<Item = &'a str>,
    command: &str,
    is_root: bool,
) -> String {
    let owners: Vec<&str> = users.collect();
    let users: BTreeSet<&str> = owners.iter().copied().collect();
    // The names come from records that other users have written.
    let is_name = |user: &&&str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !user.starts_with('-') && user.chars().all(is_plain)
    };
    let (count, whose) = match (owners.len(), users.len()) {
        (0, _) => return String::new(),
        (1, _) => ("1 belongs to".to_owned(), "another user".to_owned()),
        (count, 1) => (format!("{count} belong to"), "another user".to_owned()),
        (count, users) => (format!("{count} belong to"), format!("{users} other users")),
    };
    let names: Vec<&str> = users.iter().filter(is_name).copied().collect();
    if is_root && !names.is_empty() {
        let names = names.join(" ");
        return format!("{count} {whose}: for u in {names}; do runuser -u $u -- {command}; done\n");
    }
    let all: Vec<String> = users.into_iter().map(plain).collect();
    let who = if all.len() == 1 {
        "who alone can remove it"
    } else {
        "each of whom can remove their own"
    };
    format!("{count} {whose} ({}), {who}\n", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = "fsgather clean /shared --execute";

    #[test]
    fn root_is_told_the_line_that_is_needed() {
        let text = |users: &[&str]| text(users.iter().copied(), COMMAND, true);
        assert_eq!(text(&[]), "");
        assert_eq!(
            text(&["bob", "ada", "bob", "uid 4711"]),
            "4 belong to 3 other users: for u in ada bob; do runuser -u $u -- fsgather clean /shared --execute; done\n"
        );
        // Names from records become part of a command line only if they cannot be anything but a name.
        for odd in ["$(reboot)", "a b", "-u", "uid 4711", "\u{1b}[2J"] {
            assert!(!text(&[odd]).contains("runuser"), "{odd}");
            assert!(!text(&[odd]).contains('\u{1b}'), "{odd}");
        }
    }

    #[test]
    fn others_are_told_whose_it_is() {
        let text = |users: &[&str]| text(users.iter().copied(), COMMAND, false);
        assert_eq!(
            text(&["ada"]),
            "1 belongs to another user (ada), who alone can remove it\n"
        );
        assert_eq!(
            text(&["ada", "bob", "bob"]),
            "3 belong to 2 other users (ada, bob), each of whom can remove their own\n"
        );
    }
}
