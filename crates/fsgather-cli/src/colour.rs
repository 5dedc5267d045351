//! Colours text on terminals: [`Hue`] says what for, [`Paint`] whether.
//!
//! `--color` goes before everything. Else `NO_COLOR` and `TERM=dumb` mean none, `CLICOLOR_FORCE` means everywhere, and
//! where nothing is said terminals alone have colours. JSON has none ever.

use std::io;

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::ColorChoice;
use fsgather::Rank;

use crate::output::Stream;

/// What a colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hue {
    /// It is well.
    Good,
    /// It is over, or wants a look.
    Stale,
    /// Nothing is proved.
    Doubtful,
    /// It is wrong.
    Bad,
    /// It goes with something else.
    Quiet,
    /// Whose line it is.
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

/// Whether texts are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint(bool);

impl Paint {
    /// No colours.
    pub(crate) const NONE: Self = Self(false);

    /// Colours, wherever it goes.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self(true);

    /// As it is to be on a stream.
    pub(crate) fn of(stream: Stream) -> Self {
        let choice = match stream {
            Stream::Stdout => AutoStream::choice(&io::stdout()),
            Stream::Stderr => AutoStream::choice(&io::stderr()),
        };
        Self(choice != anstream::ColorChoice::Never)
    }

    /// A text in a colour, if there are any.
    pub(crate) fn on(self, hue: Hue, text: &str) -> String {
        if self.0 && !text.is_empty() {
            let style = hue.style();
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// Whether terminals here understand more than letters: `TERM` names one, and it is not `dumb`.
pub(crate) fn has_cursor() -> bool {
    anstyle_query::term_supports_color()
}

/// Notes what the command line says of colours, for this process.
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
