# Each recipe is one command; nothing here is needed. `just` lists the recipes and the beds.

_default:
    @just --list
    @echo
    @scripts/prove --list

# The quick and the full tests, or one of them.
test *tier:
    scripts/test.sh {{ tier }}

# A bed: what the other tests cannot show without root, torch, many minutes or a quiet machine.
prove *arguments:
    scripts/prove {{ arguments }}

# All checks of continuous integration, or some of them.
ci *steps:
    .ci/run {{ steps }}

# Runs real gathers on this machine.
demo *arguments:
    cargo run --release -- demo {{ arguments }}

# Formats all code.
fmt:
    cargo fmt --all

# Builds the documentation of all crates.
docs:
    cargo doc --workspace --no-deps

# Lints each combination of the library's cargo features.
features:
    scripts/check-features.sh
