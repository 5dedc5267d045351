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

# Gathers on real shared file systems; root, Debian. Arguments as of the script.
filesystems *arguments:
    scripts/test-filesystems.sh {{ arguments }}

# NFS that is full, hangs or is cut off; root, Debian.
faulty-nfs *arguments="all":
    scripts/test-faulty-nfs.sh {{ arguments }}

# Ranks by real launchers; root, Debian.
launchers *arguments:
    scripts/test-launchers.sh {{ arguments }}

# Links between hosts that are cut; root, 4 minutes.
cut-links:
    scripts/test-cut-links.sh

# Lints of each combination of the library's cargo features.
features:
    scripts/check-features.sh

# The MPI example under mpirun.
mpi:
    scripts/test-mpi.sh

# Unmodified jobs of torch and MMEngine under torchrun; installs torch once, 5 GB. Arguments name proofs.
torch *arguments:
    scripts/test-torch.sh {{ arguments }}
