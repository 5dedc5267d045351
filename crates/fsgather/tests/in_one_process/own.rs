//! The functions that existing jobs call, in a process that is a world of its own.

use fsgather::{ErrorKind, compat::AllGatherOptions};

#[test]
fn without_a_launcher_every_way_gathers_the_own_value() {
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    for (force_cpu, force_filesys) in ways {
        let place = tempfile::tempdir().unwrap();
        for directory in [None, Some(place.path())] {
            let options = AllGatherOptions {
                force_cpu,
                force_filesys,
                filesys_save_dir: directory.map(Into::into),
            };
            let value = (3, "boxes".to_owned());
            let all = fsgather::compat::all_gather(&value, &options).unwrap();
            assert_eq!(all, [(3, "boxes".to_owned())]);
            for root_only in [false, true] {
                let all =
                    fsgather::compat::all_gather_via_filesys(&value, directory, root_only).unwrap();
                assert_eq!(all, [(3, "boxes".to_owned())]);
            }
        }
        // No rank needs a file for that.
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        fsgather::compat::close().unwrap();
    }
    // A second close does nothing, and a later call begins anew.
    fsgather::compat::close().unwrap();
    let all = fsgather::compat::all_gather(&1, &AllGatherOptions::default()).unwrap();
    assert_eq!(all, [1]);
    // A value that cannot be written as bytes is an error, and no panic.
    let unwritable = std::path::PathBuf::from(std::ffi::OsString::from(
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff"),
    ));
    let error =
        fsgather::compat::all_gather(&unwritable, &AllGatherOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
    let _ = fsgather::compat::close();
}
