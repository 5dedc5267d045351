# `just` lists what there is. Nothing here is needed: each recipe is one command.

_default:
    @just --list

# Everything that must pass before a commit.
check:
    scripts/check.sh

# All tests; arguments go to `cargo test`.
test *arguments:
    scripts/test.sh {{ arguments }}

# Gathers in earnest, on this machine.
demo *arguments:
    cargo run --release -- demo {{ arguments }}

# Formats all code.
fmt:
    cargo fmt --all

# Builds the documentation of all crates.
docs:
    cargo doc --workspace --no-deps
