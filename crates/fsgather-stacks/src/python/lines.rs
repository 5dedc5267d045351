//! Tables that tell the line of an instruction, as each version packs them. Pure.
//!
//! `Objects/lnotab_notes.txt` and `InternalDocs/code_objects.md` of Python describe them. A table that ends early has no line.

/// `co_lnotab`: pairs of steps, of the address and of the line.
pub(super) fn of_lnotab(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    let (mut line, mut address) = (first, 0);
    for step in table.chunks_exact(2) {
        address += i64::from(step[0]);
        if address > offset {
            break;
        }
        line = line.checked_add(i32::from(step[1].cast_signed()))?;
    }
    Some(line)
}

/// `co_linetable` of 3.10: ranges of addresses, each with a step of the line before it; -128 stands for none.
pub(super) fn of_ranges(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    let (mut line, mut end) = (first, 0);
    for range in table.chunks_exact(2) {
        end += i64::from(range[0]);
        let step = range[1].cast_signed();
        if step != -128 {
            line = line.checked_add(i32::from(step))?;
        }
        if offset < end {
            return (step != -128).then_some(line);
        }
    }
    None
}

/// `co_linetable` from 3.11: locations of some instructions each.
pub(super) fn of_locations(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    const NONE: u8 = 15;
    let (mut line, mut end) = (first, 0);
    let mut bytes = table.iter().copied().peekable();
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None;
        }
        let code = head >> 3 & 15;
        end += (i64::from(head & 7) + 1) * 2;
        line = line.checked_add(match code {
            13 | 14 => signed(&mut bytes)?,
            10..=12 => i32::from(code) - 10,
            _ => 0,
        })?;
        if offset < end {
            return (code != NONE).then_some(line);
        }
        // Columns: up to the next head.
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    None
}

/// A number of six bits to a byte, the lowest first, whose lowest bit is its sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let (mut number, mut shift) = (0_u32, 0);
    loop {
        let byte = bytes.next()?;
        number |= u32::from(byte & 63).checked_shl(shift)?;
        if byte & 64 == 0 {
            break;
        }
        shift += 6;
    }
    let size = i32::try_from(number >> 1).ok()?;
    Some(if number & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_addresses_and_lines_are_added_up() {
        let table = [6, 1, 50, 255, 4, 3];
        let lines = [0, 5, 6, 55, 56, 60, 900].map(|offset| of_lnotab(&table, 10, offset));
        assert_eq!(lines, [10, 10, 11, 11, 10, 13, 13].map(Some));
    }

    #[test]
    fn ranges_have_lines_or_none() {
        let table = [4, 1, 2, 0x80, 6, 2];
        let lines = [0, 3, 4, 6, 11, 12].map(|offset| of_ranges(&table, 10, offset));
        let expected = [Some(11), Some(11), None, Some(13), Some(13), None];
        assert_eq!(lines, expected);
    }

    #[test]
    fn locations_of_all_forms_are_read() {
        let head = |code: u8, units: u8| 0x80 | code << 3 | (units - 1);
        let table = [
            head(14, 2),
            5,
            0,
            1,
            2, // -2, then columns
            head(11, 1),
            3,
            4, // 1
            head(3, 1),
            0x11,        // 0
            head(15, 1), // none
            head(13, 1),
            0x42,
            1, // 1 + 32 = 33
        ];
        let lines = [0, 3, 4, 6, 8, 10, 12].map(|offset| of_locations(&table, 10, offset));
        let expected = [Some(8), Some(8), Some(9), Some(9), None, Some(42), None];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_is_no_table_has_no_line_and_does_no_harm() {
        assert_eq!(of_locations(&[1, 2, 3], 1, 0), None);
        assert_eq!(of_locations(&[0xf0; 3], 1, 0), None);
        assert_eq!(of_locations(&[0xff], i32::MAX, 100), None);
        let endless = [0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f];
        assert_eq!(of_locations(&endless, 1, 0), None);
        assert_eq!(of_ranges(&[1], 1, 0), None);
    }
}
