//! Columns that line up, and texts of others that cannot play tricks on a terminal.

use std::fmt::Write;

/// Where a column's texts stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// Rows of columns that line up; each row may have a line of text below it.
#[derive(Debug)]
pub(crate) struct Table {
    sides: Vec<Side>,
    rows: Vec<(Vec<String>, Option<String>)>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new(columns: &[(&str, Side)]) -> Self {
        let heads = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        Self {
            sides: columns.iter().map(|(_, side)| *side).collect(),
            rows: vec![(heads, None)],
        }
    }

    /// Adds a row, and what is to stand below it.
    pub(crate) fn row(&mut self, cells: Vec<String>, below: Option<String>) {
        self.rows.push((cells, below));
    }

    /// The table as text, indented by two.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|(cells, _)| cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        let mut text = String::new();
        for (cells, below) in &self.rows {
            let mut line = String::new();
            for ((cell, side), width) in cells.iter().zip(&self.sides).zip(&widths) {
                let gap = " ".repeat(width - cell.chars().count());
                let (before, after) = match side {
                    Side::Left => ("", gap.as_str()),
                    Side::Right => (gap.as_str(), ""),
                };
                // Writing to a `String` cannot fail.
                let _ = write!(line, "  {before}{cell}{after}");
            }
            let _ = writeln!(text, "{}", line.trim_end());
            if let Some(below) = below {
                let _ = writeln!(text, "      {below}");
            }
        }
        text
    }
}

/// A text that others have written, without control characters and what turns writing round.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        let is_odd = character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if is_odd {
            plain.extend(character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("STATE", Side::Left), ("SIZE", Side::Right)]);
        table.row(vec!["live".into(), "64.0 MiB".into()], None);
        table.row(vec!["finished".into(), "1 KiB".into()], Some("why".into()));
        let expected =
            "  STATE         SIZE\n  live      64.0 MiB\n  finished     1 KiB\n      why\n";
        assert_eq!(table.text(), expected);
    }

    #[test]
    fn texts_of_others_cannot_steer_the_terminal() {
        assert_eq!(
            plain("\x1b[2Jä b\n\u{202e}"),
            "\\u{1b}[2Jä b\\u{a}\\u{202e}"
        );
    }
}
