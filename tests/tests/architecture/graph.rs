//! Keeps the table of dependencies between crates.

use super::{PROGRAM, TEST_SUPPORT};

/// The dependencies of one crate of the workspace.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Crates that its library or program uses: exactly these.
    pub(crate) uses: &'static [&'static str],
    /// Further crates that its tests and examples may use.
    pub(crate) tests_use: &'static [&'static str],
}

/// Dependencies only point down; storage and control plane do not know each other.
pub(crate) const GRAPH: [Row; 13] = [
    Row {
        name: "fsgather-core",
        uses: &[],
        tests_use: &[TEST_SUPPORT],
    },
    Row {
        name: TEST_SUPPORT,
        uses: &["fsgather-core"],
        tests_use: &[],
    },
    Row {
        name: "fsgather-store",
        uses: &["fsgather-core"],
        tests_use: &[TEST_SUPPORT],
    },
    Row {
        name: "fsgather-control",
        uses: &["fsgather-core", "fsgather-arena"],
        tests_use: &[TEST_SUPPORT],
    },
    Row {
        name: "fsgather-arena",
        uses: &["fsgather-core"],
        tests_use: &[TEST_SUPPORT],
    },
    Row {
        name: "fsgather-config",
        uses: &["fsgather-core"],
        tests_use: &[],
    },
    Row {
        name: "fsgather-observe",
        uses: &[
            "fsgather-core",
            "fsgather-arena",
            "fsgather-store",
            "fsgather-config",
        ],
        tests_use: &[TEST_SUPPORT],
    },
    Row {
        name: "fsgather",
        uses: &[
            "fsgather-core",
            "fsgather-store",
            "fsgather-control",
            "fsgather-config",
            "fsgather-arena",
            "fsgather-observe",
        ],
        tests_use: &[TEST_SUPPORT],
    },
    Row {
        name: PROGRAM,
        uses: &[
            "fsgather",
            "fsgather-config",
            "fsgather-control",
            "fsgather-core",
            "fsgather-store",
            "fsgather-observe",
        ],
        tests_use: &[TEST_SUPPORT],
    },
    Row {
        name: "fsgather-bench",
        uses: &[
            "fsgather",
            "fsgather-config",
            "fsgather-control",
            "fsgather-core",
            "fsgather-store",
            "fsgather-observe",
        ],
        tests_use: &[],
    },
    Row {
        name: "fsgather-plain",
        uses: &["fsgather-core"],
        tests_use: &[],
    },
    // The wheel contains the command as well.
    Row {
        name: "fsgather-python",
        uses: &[
            "fsgather",
            "fsgather-config",
            "fsgather-core",
            "fsgather-observe",
            "fsgather-plain",
            PROGRAM,
        ],
        tests_use: &[TEST_SUPPORT],
    },
    // Tests may use all crates.
    Row {
        name: "fsgather-tests",
        uses: &[],
        tests_use: &[
            "fsgather",
            "fsgather-cli",
            "fsgather-config",
            "fsgather-control",
            "fsgather-core",
            "fsgather-store",
            TEST_SUPPORT,
        ],
    },
];
