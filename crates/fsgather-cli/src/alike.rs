//! Groups rows that are alike and shows each group as one line: [`Alike`].

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fsgather_core::{bytes_text, duration_text};

use crate::{
    colour::Hue,
    table::{Cell, Narrowing, Side, TableStyle, TextTable, plain},
};

/// Up to this number, all rows are shown one by one.
const MAX_SINGLE_ROWS: usize = 12;

/// A group of up to this number of rows is shown one by one, even among many.
const MAX_SMALL_GROUP: usize = 5;

/// One row.
#[derive(Debug)]
pub(crate) struct One<'a> {
    /// The action on the row, if actions are shown.
    pub(crate) fate: Option<&'static str>,
    /// The kind of the row, in one to three words, and the colour of these words.
    pub(crate) what: &'a str,
    pub(crate) hue: Option<Hue>,
    /// The text that it shares with others.
    pub(crate) gist: &'a str,
    /// The host of its owner, if known.
    pub(crate) host: Option<&'a str>,
    /// Its age, if ages are shown.
    pub(crate) age: Option<Duration>,
    /// Its size.
    pub(crate) size: Size,
}

/// The size of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// A size in bytes.
    Of(u64),
    /// A size that cannot be read.
    Unknown,
    /// A size that is not shown.
    Untold,
}

impl<'a> One<'a> {
    fn kind(&self) -> AlikeKey<'a> {
        (self.fate, self.what, self.gist)
    }
}

/// The properties that rows of one group share.
type AlikeKey<'a> = (Option<&'static str>, &'a str, &'a str);

/// Number of rows of each group.
pub(crate) struct Counts<'a>(BTreeMap<AlikeKey<'a>, usize>);

impl<'a> Counts<'a> {
    /// Counts the rows, unless there are few, or the caller asks for all of them.
    pub(crate) fn of<'b>(all: impl Iterator<Item = &'b One<'a>>, is_long: bool) -> Self
    where
        'a: 'b,
    {
        let mut counts = BTreeMap::new();
        let mut total = 0;
        for one in all {
            *counts.entry(one.kind()).or_default() += 1;
            total += 1;
        }
        if is_long || total <= MAX_SINGLE_ROWS {
            counts.clear();
        }
        Self(counts)
    }

    /// Returns true if the group of this row is large enough to be shown as one line.
    pub(crate) fn has_several(&self, one: &One<'_>) -> bool {
        let count = self.0.get(&one.kind());
        count.is_some_and(|count| *count > MAX_SMALL_GROUP)
    }
}

struct Group {
    fate: Option<&'static str>,
    what: String,
    hue: Option<Hue>,
    gist: String,
    hosts: BTreeSet<String>,
    count: u64,
    ages: Option<(Duration, Duration)>,
    bytes: u64,
    /// Number of rows whose size is known, and of those whose size is not.
    sizes: (u64, u64),
}

/// Rows in groups, counted.
#[derive(Default)]
pub(crate) struct Alike {
    groups: Vec<Group>,
}

impl Alike {
    /// Adds one more row.
    pub(crate) fn add(&mut self, one: &One<'_>) {
        let is_like =
            |group: &Group| (group.fate, group.what.as_str(), group.gist.as_str()) == one.kind();
        let at = self.groups.iter().position(is_like).unwrap_or_else(|| {
            self.groups.push(Group {
                fate: one.fate,
                what: one.what.to_owned(),
                hue: one.hue,
                gist: one.gist.to_owned(),
                hosts: BTreeSet::new(),
                count: 0,
                ages: None,
                bytes: 0,
                sizes: (0, 0),
            });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        group.count += 1;
        group.hosts.extend(one.host.map(plain));
        group.ages = match (group.ages, one.age) {
            (None, age) => age.map(|age| (age, age)),
            (ages, None) => ages,
            (Some((least, most)), Some(age)) => Some((least.min(age), most.max(age))),
        };
        match one.size {
            Size::Of(bytes) => {
                group.bytes = group.bytes.saturating_add(bytes);
                group.sizes.0 += 1;
            }
            Size::Unknown => group.sizes.1 += 1,
            Size::Untold => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Renders two lines for each group, the counts and the shared text, in the order of first appearance.
    pub(crate) fn text(&self, look: &TableStyle) -> String {
        let mut table = TextTable::new(&[
            ("PLAN", Side::Left),
            ("COUNT", Side::Right),
            ("WHAT", Side::Left),
            ("AGE", Side::Left),
            ("SIZE", Side::Right),
        ]);
        for group in &self.groups {
            let what = match group.hue {
                Some(hue) => Cell::painted(&group.what, hue),
                None => group.what.clone().into(),
            };
            let cells = vec![
                group.fate.unwrap_or_default().to_owned().into(),
                group.count.to_string().into(),
                what,
                group.ages.map_or_else(String::new, between).into(),
                group.size().into(),
            ];
            table.row(cells, Some(plain(&group.gist) + &group.places()));
        }
        let mut ways = Vec::new();
        if self.groups.iter().all(|group| group.fate.is_none()) {
            ways.push(Narrowing::Drop("PLAN"));
        }
        if self.groups.iter().all(|group| group.ages.is_none()) {
            ways.push(Narrowing::Drop("AGE"));
        }
        for way in ways {
            table.go(way);
        }
        table.fitted(look, &[Narrowing::Drop("AGE")])
    }
}

impl Group {
    fn size(&self) -> String {
        let bytes = bytes_text(self.bytes);
        match self.sizes {
            (0, 0) => String::new(),
            (0, _) => "?".to_owned(),
            (_, 0) => bytes,
            _ => format!("at least {bytes}"),
        }
    }

    /// Names the hosts of the group, as far as they fit into a line.
    fn places(&self) -> String {
        const NAMED: usize = 3;
        let named: Vec<&str> = self.hosts.iter().map(String::as_str).take(NAMED).collect();
        match (named.join(", "), self.hosts.len()) {
            (_, 0) => String::new(),
            (named, count) if count <= NAMED => format!(" ({named})"),
            (named, count) => format!(" ({named} and {} more hosts)", count - NAMED),
        }
    }
}

/// Renders a range of ages, each in its largest unit.
fn between((least, most): (Duration, Duration)) -> String {
    let largest = |age: Duration| {
        let text = duration_text(Duration::from_secs(age.as_secs()));
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    };
    let (least, most) = (largest(least), largest(most));
    if least == most {
        least
    } else {
        format!("{least} to {most}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(host: &'static str, age: u64, size: Size) -> One<'static> {
        One {
            fate: None,
            what: "stale",
            hue: None,
            gist: "its owner has ended",
            host: Some(host),
            age: Some(Duration::from_secs(60 * age)),
            size,
        }
    }

    #[test]
    fn what_is_alike_is_counted_and_its_sizes_added() {
        let mut alike = Alike::default();
        for host in ["n1", "n2", "n1", "n3", "n4", "n5"] {
            alike.add(&one(host, 60 * (host.len() as u64) + 61, Size::Of(1 << 20)));
        }
        alike.add(&one("n1", 3 * 24 * 60 + 5, Size::Of(1 << 20)));
        alike.add(&One {
            what: "record",
            gist: "its writer has ended",
            host: None,
            ..one("n1", 5, Size::Of(431))
        });
        assert_eq!(
            alike.text(&TableStyle::PLAIN),
            "  COUNT  WHAT    AGE              SIZE\n      7  stale   3 h to 3 d    7.0 MiB\n      \
             its owner has ended (n1, n2, n3 and 2 more hosts)\n      1  record  5 min       431 bytes\n      \
             its writer has ended\n"
        );
    }

    #[test]
    fn few_are_told_one_by_one_and_of_many_those_that_are_not_alike() {
        let dead = one("n1", 5, Size::Untold);
        let strange = One {
            what: "stranger",
            ..one("n1", 5, Size::Untold)
        };
        let counts = |dead_ones: usize, is_long| {
            let all = std::iter::repeat_n(&dead, dead_ones).chain([&strange]);
            let counts = Counts::of(all, is_long);
            [counts.has_several(&dead), counts.has_several(&strange)]
        };
        assert_eq!(counts(MAX_SINGLE_ROWS - 1, false), [false, false]);
        assert_eq!(counts(MAX_SINGLE_ROWS, false), [true, false]);
        assert_eq!(counts(MAX_SINGLE_ROWS, true), [false, false]);
    }

    #[test]
    fn what_cannot_be_measured_is_not_nothing() {
        let mut alike = Alike::default();
        alike.add(&one("n1", 5, Size::Unknown));
        assert!(alike.text(&TableStyle::PLAIN).contains("  ?\n"));
        alike.add(&one("n1", 5, Size::Of(1 << 20)));
        assert!(
            alike
                .text(&TableStyle::PLAIN)
                .contains("at least 1.0 MiB\n")
        );
    }
}
