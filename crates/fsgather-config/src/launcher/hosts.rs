//! Slurm's short forms: lists of hosts (`node[1-2,07-09],x3`) and counts for each node (`2(x2),1`).

use fsgather_core::WorldSize;

/// More entries than any world has ranks are no list that Slurm made.
const MAX_ENTRIES: usize = WorldSize::MAX as usize;

/// Writes a list of hosts out, in order; `None` when the text is no such list.
///
/// Several brackets in one name stand for all combinations, the last bracket running fastest; numbers keep
/// their leading zeros.
pub(super) fn expand_hosts(text: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for word in split_outside_brackets(text)? {
        let names = expand_word(word)?;
        if hosts.len() + names.len() > MAX_ENTRIES {
            return None;
        }
        hosts.extend(names);
    }
    Some(hosts)
}

/// Splits at the commas that are not inside brackets; `None` when brackets do not match.
fn split_outside_brackets(text: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return None,
            ',' if !inside => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    (!inside).then_some(words)
}

/// Writes out one word, `rack[1-2]n[01-10]`; `None` for an empty one.
fn expand_word(word: &str) -> Option<Vec<String>> {
    if word.is_empty() || word.contains(char::is_whitespace) {
        return None;
    }
    let mut names = vec![String::new()];
    let mut rest = word;
    while let Some((plain, bracket)) = rest.split_once('[') {
        let (inside, after) = bracket.split_once(']')?;
        let numbers = expand_numbers(inside)?;
        if names.len().checked_mul(numbers.len())? > MAX_ENTRIES {
            return None;
        }
        names = names
            .iter()
            .flat_map(|name| {
                numbers
                    .iter()
                    .map(move |number| format!("{name}{plain}{number}"))
            })
            .collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Some(names)
}

/// Writes out the inside of a bracket, `1-2,07-09`.
fn expand_numbers(text: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        let width = first.len();
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        let more = usize::try_from(last.checked_sub(first)?).ok()?;
        if numbers.len().checked_add(more)? >= MAX_ENTRIES {
            return None;
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

/// Number of tasks that the node with this index has; `None` when the text is no such list or has no such node.
pub(super) fn count_of_node(text: &str, node: usize) -> Option<usize> {
    let mut nodes_before: usize = 0;
    let mut count_found = None;
    for item in text.split(',') {
        let (count, times) = match item.split_once("(x") {
            None => (item, 1),
            Some((count, times)) => (count, times.strip_suffix(')')?.parse::<usize>().ok()?),
        };
        let count = count.parse::<usize>().ok()?;
        nodes_before = nodes_before.checked_add(times)?;
        if node < nodes_before && count_found.is_none() {
            count_found = Some(count);
        }
    }
    count_found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn host_lists_are_written_out_in_order() {
        for (text, hosts) in [
            ("node1", "node1"),
            ("node[1-2]", "node1 node2"),
            ("node[1-2,07-09],x3", "node1 node2 node07 node08 node09 x3"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("n[9-10]", "n9 n10"),
            ("a[3],b-7-c", "a3 b-7-c"),
            ("r[1-2]n[3-4]-ib", "r1n3-ib r1n4-ib r2n3-ib r2n4-ib"),
        ] {
            let expanded = expand_hosts(text).map(|hosts| hosts.join(" "));
            assert_eq!(expanded.as_deref(), Some(hosts), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_list_is_refused() {
        for text in [
            "",
            ",",
            "a,,b",
            "node[",
            "node]",
            "node[1-2",
            "node[]",
            "node[1-]",
            "node[2-1]",
            "node[1-x]",
            "node[[1]]",
            "node[1 -2]",
            "a b",
            "node[0-99999999999999999999]",
            "node[0-18446744073709551615]",
            "a[1-5000]b[1-5000]",
        ] {
            assert_eq!(expand_hosts(text), None, "{text}");
        }
    }

    #[test]
    fn counts_are_found_by_node() {
        for (text, counts) in [
            ("4", vec![4]),
            ("3,1", vec![3, 1]),
            ("2(x2)", vec![2, 2]),
            ("2(x2),1", vec![2, 2, 1]),
            ("1,2(x3),7", vec![1, 2, 2, 2, 7]),
        ] {
            let found: Vec<usize> = (0..).map_while(|node| count_of_node(text, node)).collect();
            assert_eq!(found, counts, "{text}");
        }
        for text in ["", "x", "2(x", "2(x2", "(x2)", "2(x2)3", "2,", "-1"] {
            assert_eq!(count_of_node(text, 0), None, "{text}");
        }
    }

    /// A name, possibly with one bracket, and what it stands for.
    fn word() -> impl Strategy<Value = (String, Vec<String>)> {
        (
            "[a-z][a-z-]{0,5}",
            0..2000_u32,
            0..20_u32,
            0..5_usize,
            "[a-z]{0,2}",
        )
            .prop_map(|(stem, first, more, width, tail)| {
                let last = first + more;
                let hosts = (first..=last).map(|n| format!("{stem}{n:0width$}{tail}"));
                (
                    format!("{stem}[{first:0width$}-{last:0width$}]{tail}"),
                    hosts.collect(),
                )
            })
    }

    proptest! {
        #[test]
        fn short_forms_expand_to_what_they_were_made_of(
            words in prop::collection::vec(word(), 1..4)
        ) {
            let texts: Vec<&str> = words.iter().map(|(text, _)| text.as_str()).collect();
            let hosts: Vec<String> = words.iter().flat_map(|(_, hosts)| hosts.clone()).collect();
            prop_assert_eq!(expand_hosts(&texts.join(",")), Some(hosts));
        }

        #[test]
        fn a_list_written_out_expands_to_itself(text in "[a-z0-9,\\[\\]-]{0,24}") {
            if let Some(hosts) = expand_hosts(&text) {
                prop_assert_eq!(expand_hosts(&hosts.join(",")), Some(hosts));
            }
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC{0,40}", node: usize) {
            let _ = expand_hosts(&text);
            let _ = count_of_node(&text, node);
        }

        #[test]
        fn counts_expand_to_what_they_were_made_of(
            runs in prop::collection::vec((0..300_usize, 1..6_usize), 1..6)
        ) {
            let items: Vec<String> = runs
                .iter()
                .map(|(count, times)| match times {
                    1 => count.to_string(),
                    _ => format!("{count}(x{times})"),
                })
                .collect();
            let counts: Vec<usize> = runs
                .iter()
                .flat_map(|&(count, times)| vec![count; times])
                .collect();
            let text = items.join(",");
            for (node, count) in counts.iter().enumerate() {
                prop_assert_eq!(count_of_node(&text, node), Some(*count));
            }
            prop_assert_eq!(count_of_node(&text, counts.len()), None);
        }
    }
}
