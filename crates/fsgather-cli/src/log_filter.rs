//! The filter in `FSGATHER_LOG`: [`parse`]. Pure.

use fsgather::Error;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Parses a log filter: a level, or pairs such as `fsgather=debug`, joined by commas.
///
/// A word alone must be a level or a module of fsgather. Any other word would be taken for a module of that name, and would turn off all
/// warnings without saying so. `warning`, the name in Python, means `warn`.
///
/// # Errors
///
/// [`Error::Config`] that names the word and shows valid filters.
///
/// ```
/// assert!(fsgather_cli::log_filter::parse("info,fsgather=debug").is_ok());
/// assert!(fsgather_cli::log_filter::parse("verbose").is_err());
/// ```
pub fn parse(text: &str) -> Result<Targets, Error> {
    let invalid = |reason: String| {
        Error::config(format!(
            "FSGATHER_LOG: {text:?} is not a valid log filter ({reason}); write one such as warn or fsgather=debug"
        ))
    };
    let mut directives = Vec::new();
    for word in text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let is_alone = !word.contains('=');
        if is_alone && word.eq_ignore_ascii_case("warning") {
            directives.push("warn");
        } else if !is_alone || word.parse::<LevelFilter>().is_ok() || word.starts_with("fsgather") {
            directives.push(word);
        } else {
            return Err(invalid(format!("{word:?} is not a level")));
        }
    }
    if directives.is_empty() || directives.contains(&"=") {
        return Err(invalid("it names no level".into()));
    }
    let parsed = directives.join(",").parse::<Targets>();
    parsed.map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows_warnings(text: &str) -> bool {
        let filter = parse(text).unwrap();
        filter.would_enable("fsgather_control::node", &tracing::Level::WARN)
    }

    #[test]
    fn levels_and_pairs_are_filters() {
        for text in [
            "warn",
            "warning",
            "WARNING",
            "info,x=off",
            "4",
            "fsgather",
            "error,fsgather_control=warn",
        ] {
            assert!(shows_warnings(text), "{text}");
        }
        for text in ["error", "off", "x=debug"] {
            assert!(!shows_warnings(text), "{text}");
        }
    }

    #[test]
    fn words_that_would_silence_warnings_are_refused() {
        for text in [
            "bogus",
            "none",
            "=",
            ",",
            "",
            "info,verbose",
            "fsgather=loud",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("write one such as"), "{error}");
        }
    }
}
