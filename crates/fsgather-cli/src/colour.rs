//! Colours text on terminals: [`Hue`] is the meaning of a colour, [`Paint`] the choice to use colours.
//!
//! `--color` takes precedence. Otherwise `NO_COLOR` and `TERM=dumb` turn colours off, `CLICOLOR_FORCE` turns them on everywhere, and by
//! default only terminals have colours. JSON never has any.

use std::io;

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use fsgather::Rank;

use crate::output::Stream;

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hue {
    /// All is well.
    Good,
    /// Stale, or worth a look.
    Stale,
    /// Not proved.
    Doubtful,
    /// Wrong.
    Bad,
    /// Less important than its surroundings.
    Quiet,
    /// The line of a rank.
    Of(Rank),
}

impl Hue {
    fn style(self) -> Style {
        const RANKS: [AnsiColor; 6] = [
            AnsiColor::Cyan,
            AnsiColor::Green,
            AnsiColor::Magenta,
            AnsiColor::Yellow,
            AnsiColor::Blue,
            AnsiColor::Red,
        ];
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Stale => AnsiColor::Yellow.on_default(),
            Self::Doubtful => AnsiColor::Magenta.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Quiet => Style::new().dimmed(),
            Self::Of(rank) => RANKS[rank.get() as usize % RANKS.len()].on_default(),
        }
    }
}

/// True if texts are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint(bool);

impl Paint {
    /// No colours.
    pub(crate) const NONE: Self = Self(false);

    /// Colours on any output.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self(true);

    /// The choice for a stream.
    pub(crate) fn of(stream: Stream) -> Self {
        let choice = match stream {
            Stream::Stdout => AutoStream::choice(&io::stdout()),
            Stream::Stderr => AutoStream::choice(&io::stderr()),
        };
        Self(choice != anstream::ColorChoice::Never)
    }

    /// A text in a colour, if colours are used.
    pub(crate) fn on(self, hue: Hue, text: &str) -> String {
        if self.0 && !text.is_empty() {
            let style = hue.style();
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Returns true if the terminal understands control sequences: `TERM` names one, and it is not `dumb`.
pub(crate) fn has_cursor() -> bool {
    anstyle_query::term_supports_color()
}

/// Sets the choice of the command line, for this process.
pub(crate) fn choose(choice: ColorChoice) {
    let choice = match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_end_where_their_text_ends_and_none_are_none() {
        let painted = Paint::ALL.on(Hue::Good, "live");
        assert!(
            painted.starts_with("\x1b[") && painted.ends_with("live\x1b[0m"),
            "{painted:?}"
        );
        assert_eq!(Paint::ALL.on(Hue::Good, ""), "");
        assert_eq!(Paint::NONE.on(Hue::Bad, "problem"), "problem");
        let of = |rank| Paint::ALL.on(Hue::Of(Rank::new(rank)), "x");
        assert!(of(0) != of(1) && of(0) == of(6));
    }
}
