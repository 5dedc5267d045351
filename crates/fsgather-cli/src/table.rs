//! Aligned columns that fit a terminal, and text from other sources, made safe to print.

use std::fmt::Write;

use fsgather_core::steers;

use crate::{
    colour::{Hue, Paint},
    output::{self, Stream},
};

/// The style of texts, which depends on their output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableStyle {
    /// Number of columns; none if lines may have any length.
    pub(crate) width: Option<usize>,
    /// The colours to use.
    pub(crate) paint: Paint,
}

impl TableStyle {
    /// A style for any output: without a width limit and without colours.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self {
        width: None,
        paint: Paint::NONE,
    };

    /// The style of standard output: fitted to a terminal, unlimited elsewhere.
    pub(crate) fn of_output() -> Self {
        Self {
            width: output::size().map(|(columns, _)| columns),
            paint: Paint::of(Stream::Stdout),
        }
    }
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A step that makes a table narrower if it does not fit the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrowing {
    /// Shows the short texts of this column.
    Shorten(&'static str),
    /// Leaves this column out.
    Drop(&'static str),
}

/// One cell of a row.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    short: Option<String>,
    hue: Option<Hue>,
}

impl Cell {
    /// A text with a short form.
    pub(crate) fn or(text: String, short: String) -> Self {
        Self {
            short: Some(short),
            ..text.into()
        }
    }

    /// A word with a colour.
    pub(crate) fn painted(text: &str, hue: Hue) -> Self {
        Self {
            hue: Some(hue),
            ..text.to_owned().into()
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text,
            short: None,
            hue: None,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

struct Column {
    head: &'static str,
    side: Side,
    is_short: bool,
}

/// Rows of aligned columns; each row may have a line of text below it.
pub(crate) struct TextTable {
    columns: Vec<Column>,
    rows: Vec<(Vec<Cell>, Option<String>)>,
}

impl TextTable {
    /// A table with these columns.
    pub(crate) fn new(columns: &[(&'static str, Side)]) -> Self {
        let column = |(head, side): &(&'static str, Side)| Column {
            head,
            side: *side,
            is_short: false,
        };
        let heads = columns
            .iter()
            .map(|(head, _)| Cell::from((*head).to_owned()));
        Self {
            columns: columns.iter().map(column).collect(),
            rows: vec![(heads.collect(), None)],
        }
    }

    /// Adds a row, and the text below it.
    pub(crate) fn row(&mut self, cells: Vec<impl Into<Cell>>, below: Option<String>) {
        let cells = cells.into_iter().map(Into::into).collect();
        self.rows.push((cells, below));
    }

    /// Renders the table without a width limit and without colours.
    pub(crate) fn text(self) -> String {
        let look = TableStyle {
            width: None,
            paint: Paint::NONE,
        };
        self.fitted(&look, &[])
    }

    /// Renders the table, indented by two. If it is too wide, the steps in `ways` are applied one after the other until it fits.
    pub(crate) fn fitted(mut self, look: &TableStyle, ways: &[Narrowing]) -> String {
        for way in ways {
            let width = self.widths().iter().map(|width| width + 2).sum::<usize>();
            if look.width.is_none_or(|most| width <= most) {
                break;
            }
            self.go(*way);
        }
        let widths = self.widths();
        let mut text = String::new();
        for (cells, below) in &self.rows {
            let mut line = String::new();
            let mut gap = String::new();
            for ((cell, column), width) in cells.iter().zip(&self.columns).zip(&widths) {
                let shown = column.shown(cell);
                let blank = " ".repeat(width - shown.chars().count());
                let painted = match cell.hue {
                    Some(hue) => look.paint.on(hue, shown),
                    None => shown.to_owned(),
                };
                let (before, after) = match column.side {
                    Side::Left => (String::new(), blank),
                    Side::Right => (blank, String::new()),
                };
                // Writing to a `String` cannot fail.
                let _ = write!(line, "{gap}  {before}{painted}");
                gap = after;
            }
            let _ = writeln!(text, "{}", line.trim_end());
            if let Some(below) = below {
                text += &wrapped("      ", "      ", below, look.width);
            }
        }
        text
    }

    /// Applies a narrowing step.
    pub(crate) fn go(&mut self, way: Narrowing) {
        match way {
            Narrowing::Shorten(head) => {
                let named = self.columns.iter_mut().filter(|column| column.head == head);
                named.for_each(|column| column.is_short = true);
            }
            Narrowing::Drop(head) => {
                while let Some(at) = self.columns.iter().position(|column| column.head == head) {
                    self.columns.remove(at);
                    for (cells, _) in &mut self.rows {
                        cells.remove(at);
                    }
                }
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let width = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|(cells, _)| cells.get(at));
            let widths = cells.map(|cell| column.shown(cell).chars().count());
            widths.max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(width).collect()
    }
}

impl Column {
    fn shown<'a>(&self, cell: &'a Cell) -> &'a str {
        match &cell.short {
            Some(short) if self.is_short => short,
            _ => &cell.text,
        }
    }
}

/// Breaks a text between words into lines of at most `width` columns; the first begins with `first`, the others with `later`. Words are
/// never broken.
pub(crate) fn wrapped(first: &str, later: &str, text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return format!("{first}{text}\n");
    };
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines += line.trim_end();
            lines.push('\n');
            later.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

/// A text from another source, with control characters and characters that change the writing direction escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        if steers(character) || matches!(character, '\n' | '\t') {
            plain.extend(character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> TextTable {
        let mut table = TextTable::new(&[
            ("NAME", Side::Left),
            ("STATE", Side::Left),
            ("SIZE", Side::Right),
        ]);
        let name = |of: &str| Cell::or(format!("gather-20261121-{of}"), format!("..{of}"));
        let size = |of: &str| Cell::from(of.to_owned());
        table.row(
            vec![
                name("5f3a"),
                Cell::painted("live", Hue::Good),
                size("64.0 MiB"),
            ],
            None,
        );
        let why = "its owner, pid 4242 on n7, has ended".to_owned();
        table.row(
            vec![
                name("77"),
                Cell::painted("finished", Hue::Stale),
                size("1 KiB"),
            ],
            Some(why),
        );
        table
    }

    fn fitted(width: Option<usize>) -> String {
        let look = TableStyle {
            width,
            paint: Paint::NONE,
        };
        example().fitted(
            &look,
            &[Narrowing::Shorten("NAME"), Narrowing::Drop("SIZE")],
        )
    }

    #[test]
    fn columns_line_up() {
        let whole = "  NAME                  STATE         SIZE\n  gather-20261121-5f3a  live      64.0 MiB\n  \
                     gather-20261121-77    finished     1 KiB\n      its owner, pid 4242 on n7, has ended\n";
        assert_eq!(example().text(), whole);
        assert_eq!(fitted(Some(42)), whole);
    }

    #[test]
    fn narrow_terminals_drop_columns_in_order_and_cut_no_word() {
        assert_eq!(
            fitted(Some(41)),
            "  NAME    STATE         SIZE\n  ..5f3a  live      64.0 MiB\n  ..77    finished     1 KiB\n      \
             its owner, pid 4242 on n7, has\n      ended\n"
        );
        assert_eq!(
            fitted(Some(20)),
            "  NAME    STATE\n  ..5f3a  live\n  ..77    finished\n      its owner, pid\n      4242 on n7,\n      has ended\n"
        );
    }

    #[test]
    fn colours_take_no_room() {
        let look = TableStyle {
            width: None,
            paint: Paint::ALL,
        };
        let painted = example().fitted(&look, &[]);
        assert!(
            painted.contains("\x1b[32mlive\x1b[0m      64.0 MiB"),
            "{painted:?}"
        );
        let bare = anstream::adapter::strip_str(&painted).to_string();
        assert_eq!(bare, fitted(None));
    }

    #[test]
    fn texts_of_others_cannot_steer_the_terminal() {
        assert_eq!(
            plain("\x1b[2Jä b\n\u{202e}"),
            "\\u{1b}[2Jä b\\u{a}\\u{202e}"
        );
    }

    proptest! {
        #[test]
        fn what_is_wrapped_keeps_its_words(text in "[a-z]{1,9}( [a-z]{1,9}){0,20}", width in 1..60_usize) {
            let lines = wrapped("- ", "  ", &text, Some(width));
            let words = lines.strip_prefix("- ").unwrap().split_whitespace();
            prop_assert_eq!(words.collect::<Vec<_>>().join(" "), text);
            for line in lines.lines() {
                let is_one_word = line[2..].split(' ').count() == 1;
                prop_assert!(line.len() <= width || is_one_word, "{}", line);
            }
        }
    }
}
