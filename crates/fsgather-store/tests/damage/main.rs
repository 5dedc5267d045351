//! Damages each kind of file that the store writes, as a disk, a script or another user might, and reads it. The result must be
//! the original content, an error that names the file and its problem, or nothing for files that are ignored.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of a test fail it, and say what was tried"
)]

mod messages;
mod payloads;
mod places;
mod records;
mod specimen;
mod stand_ins;

use specimen::Specimen;

/// Damages the contents of a file, and then puts other entries in its place.
fn damage(specimen: &Specimen) {
    let (mut contents, mut places) = (0, 0);
    contents += specimen.cut_everywhere();
    contents += specimen.flip_bits();
    contents += specimen.swap_and_double();
    places += specimen.put_others_in_its_place();
    specimen.is_right_again();
    println!(
        "{}: {contents} contents, {places} things in its place",
        specimen.name
    );
}

#[test]
fn no_damaged_payload_is_read_as_another() {
    payloads::all().iter().for_each(damage);
}

#[test]
fn no_damaged_record_is_read_as_another() {
    records::all().iter().for_each(damage);
}

#[test]
fn no_damaged_message_is_read_as_another() {
    messages::all().iter().for_each(damage);
}
