use std::{env, fs};

use super::*;

fn names(file: &File, addresses: &[u64]) -> io::Result<Vec<Vec<String>>> {
    Symbols(file.try_clone().unwrap()).names_at(addresses)
}

/// A small program or library of this machine.
fn library() -> Vec<u8> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    let own = env::current_exe().unwrap();
    let other = paths.find(|path| *path != own.to_str().unwrap());
    fs::read(other.unwrap()).unwrap()
}

#[test]
fn a_file_that_is_cut_off_or_damaged_anywhere_is_an_error_or_has_other_names() {
    let whole = library();
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&whole, 0).unwrap();
    let addresses: Vec<u64> = (0..64).map(|at| at * 997).collect();
    let sound = names(&file, &addresses).unwrap();
    let sections = u64::from_le_bytes(whole[0x28..0x30].try_into().unwrap());
    // The header, and the table of all parts, each of which has 64 bytes.
    let places = (0..64).chain((sections..whole.len() as u64).step_by(5));
    for place in places {
        let value = [0, 1, 0x7f, 0xff][usize::try_from(place % 4).unwrap()];
        file.write_all_at(&[value], place).unwrap();
        let _ = names(&file, &addresses);
        let byte = whole[usize::try_from(place).unwrap()];
        file.write_all_at(&[byte], place).unwrap();
    }
    assert_eq!(names(&file, &addresses).unwrap(), sound);
    for length in (0..200)
        .chain((200..whole.len()).step_by(whole.len() / 20))
        .rev()
    {
        file.set_len(length as u64).unwrap();
        let _ = names(&file, &addresses);
    }
}
