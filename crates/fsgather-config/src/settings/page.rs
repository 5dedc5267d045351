//! The page `docs/reference/environment.md`, written from the tables that the code itself uses.

use std::{fmt::Write, fs, path::Path};

use super::{Variable, Variables, variables};
use crate::launcher::ROWS;

/// Where the page is, from this crate's directory.
const PAGE: &str = "../../docs/reference/environment.md";

const HEAD: &str = "\
# Environment variables

This page is generated from the tables in the code. To write it anew: `UPDATE_DOCS=1 cargo test --workspace --lib -- page`.

Arguments win over variables, our variables over older ones of the Python original, and those over the launcher's. Variables are read when a
communicator is made; an empty one counts as not set. An invalid value is an error with a valid example, an unknown name that begins with
`FSGATHER_` a warning with the nearest known one.

- A duration is a number with a unit, such as `30s`, `5m`, `2h` or `1h 30m`, above 0.
- A size is a number of bytes, or a number with a unit, such as `4096`, `64KiB` or `1GiB`.
- The older switches (`MDETR_...`) count only with the exact value `1`.
- `FSGATHER_PATCH` ([replaces functions of existing jobs](../guide/switching.md)) and `FSGATHER_PICKLE` ([`0` rejects pickles, `1` allows them
  even if foreign processes could have joined](../guide/python.md#trust)) belong to Python programs.

`fsgather doctor --verbose`, and any program with `FSGATHER_LOG=debug`, shows the value and origin of each variable.

## Variables

| variable | older names | values | default | meaning |
|---|---|---|---|---|
";

const LAUNCHERS: &str = "
## What launchers set

Without arguments the first of these launchers counts that sets both rank and world size. A launcher that sets one of them is ignored, or an error if
there is no other and it has more than one rank.

| launcher | rank | world size | local rank | local size |
|---|---|---|---|---|
";

const FOOT: &str = "
- Slurm's local size is the number of entries in `SLURM_GTIDS`.
- Slurm counts inside a step only (`srun`), not in the shell of `sbatch` or `salloc`.
- `RANK` and `WORLD_SIZE` without `torchrun` (no `TORCHELASTIC_RUN_ID`) are an error if they contradict an MPI launcher, or if `WORLD_SIZE` is 1 and
  variables of any other launcher show several ranks. Another launcher of one rank inside such a launcher is used with a warning.
  `FSGATHER_WORLD_SIZE=1` allows one process, without error or warning.
- `MASTER_ADDR` and `MASTER_PORT` alone have no effect.
";

fn render() -> String {
    let code = |name: &&str| format!("`{name}`");
    let optional = |name: Option<&str>| name.map_or_else(String::new, |name| code(&name));
    let mut page = HEAD.to_owned();
    for variable in variables() {
        let Variable {
            name,
            also,
            meaning,
            ..
        } = variable;
        let (values, default) = (variable.values(), variable.default());
        let also = also.iter().map(code).collect::<Vec<_>>().join(", ");
        writeln!(
            page,
            "| `{name}` | {also} | {values} | {default} | {meaning} |"
        )
        .unwrap();
    }
    page.push_str(LAUNCHERS);
    for row in ROWS {
        writeln!(
            page,
            "| {} | `{}` | `{}` | {} | {} |",
            row.family,
            row.rank,
            row.world_size,
            optional(row.local_rank),
            optional(row.local_size),
        )
        .unwrap();
    }
    page.push_str(FOOT);
    page
}

#[test]
fn the_reference_page_says_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = render();
    if Variables::of_process().is_exactly_one("UPDATE_DOCS") {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        written, page,
        "docs/reference/environment.md is out of date; run UPDATE_DOCS=1 cargo test --workspace --lib -- page"
    );
}

#[test]
fn no_cell_breaks_the_table() {
    for line in render().lines().filter(|line| line.starts_with('|')) {
        let columns = line.matches('|').count() - 1;
        assert_eq!(columns, 5, "{line}");
    }
}
