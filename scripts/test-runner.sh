#!/bin/sh
# Cargo starts programs with this script (.cargo/config.toml). Test programs run for at most TEST_LIMIT (15 minutes), and without the variables
# of the user's own jobs: settings of fsgather, of launchers and of terminals would change what tests see. Other programs run as they are.
case $1 in
*/deps/* | */rustdoctest*)
    for name in $(env | sed -n 's/^\([A-Z][A-Z0-9_]*\)=.*/\1/p'); do
        case $name in
        FSGATHER_* | MDETR_* | EXP_DIR | RANK | WORLD_SIZE | LOCAL_RANK | LOCAL_WORLD_SIZE | MASTER_ADDR | MASTER_PORT | TORCHELASTIC_* | \
            SLURM_* | OMPI_* | PMI_* | PMIX_* | MV2_* | MPI_* | I_MPI_* | PALS_* | FLUX_* | JSM_* | LWS_* | JOB_COMPLETION_INDEX | \
            CLICOLOR* | NO_COLOR | FORCE_COLOR | COLUMNS | LINES) unset "$name" ;;
        esac
    done
    if command -v timeout >/dev/null; then
        exec timeout --foreground --kill-after=10 "${TEST_LIMIT:-15m}" "$@"
    fi
    ;;
esac
exec "$@"
