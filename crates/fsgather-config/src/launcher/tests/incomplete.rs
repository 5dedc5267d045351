//! Variables that name no rank, or do not say everything.

use super::*;

#[test]
fn a_half_set_family_is_passed_over_with_a_note() {
    let detection = detect(&changed("slurm-srun-rank3", "WORLD_SIZE=4")).unwrap();
    assert_eq!((detection.family, detection.rank.get()), (Family::Slurm, 3));
    let summary = detection.summary();
    assert!(
        summary.contains("ignored torchrun: WORLD_SIZE=4 is set without RANK"),
        "{summary}"
    );

    let detection = detect(&changed("openmpi-5-rank2", "FSGATHER_RANK=0")).unwrap();
    assert_eq!(detection.family, Family::OpenMpi);
    let summary = detection.summary();
    assert!(
        summary.contains("FSGATHER_RANK=0 is set without FSGATHER_WORLD_SIZE"),
        "{summary}"
    );
}

#[test]
fn a_half_set_multi_rank_family_fails_without_a_full_one() {
    for (text, named) in [
        ("WORLD_SIZE=4", "RANK"),
        ("FSGATHER_WORLD_SIZE=4", "FSGATHER_RANK"),
        ("FSGATHER_RANK=1", "FSGATHER_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_SIZE=2", "PMI_RANK"),
        ("JOB_COMPLETION_INDEX=2", "FSGATHER_WORLD_SIZE"),
        ("RANK=1", "WORLD_SIZE"),
        // In the batch shell, where srun was forgotten.
        (
            "SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_NTASKS=4 WORLD_SIZE=4",
            "RANK",
        ),
    ] {
        let message = refused(text);
        let half = text.rsplit(' ').next().unwrap();
        assert!(
            message.contains(&format!("{half} is set without {named}")),
            "{message}"
        );
    }
}

#[test]
fn a_half_set_family_that_may_be_of_one_rank_is_no_error() {
    for text in [
        "WORLD_SIZE=1",
        "FSGATHER_WORLD_SIZE=1",
        "FSGATHER_RANK=0",
        "JOB_COMPLETION_INDEX=0",
        "RANK=0",
        // Not a rank in this sense at all.
        "RANK=high",
        "WORLD_SIZE=large",
    ] {
        let detection = detect(&variables(text)).unwrap();
        assert_eq!(detection.family, Family::Alone, "{text}");
        assert!(detection.summary().contains("is set without"), "{text}");
    }
}

#[test]
fn rank_without_any_size_is_an_error_unless_it_is_0() {
    for (text, named) in [
        ("PMIX_RANK=2 PMIX_NAMESPACE=slurm.pmix.3.0", "PMIX_RANK"),
        ("ALPS_APP_PE=1", "ALPS_APP_PE"),
    ] {
        let message = refused(text);
        assert!(
            message.contains("this process is one of several")
                && message.contains(&format!("{named}=")),
            "{message}"
        );
        assert!(message.contains(&format!("unset {named}")), "{message}");
        let alone = detect(&variables(&format!("{text} FSGATHER_WORLD_SIZE=1"))).unwrap();
        assert_eq!(alone.warning, None);
        let complete = detect(&variables(&format!("{text} RANK=1 WORLD_SIZE=3"))).unwrap();
        assert_eq!(complete.family, Family::Torchrun);
    }
    for text in ["PMIX_RANK=0", "ALPS_APP_PE=0", "ALPS_APP_PE=x"] {
        let detection = detect(&variables(text)).unwrap();
        assert_eq!(detection.family, Family::Alone, "{text}");
        assert!(detection.warning.is_some(), "{text}");
    }
}

#[test]
fn partly_passed_variables_of_a_slurm_task_are_refused() {
    for text in [
        "SLURM_PROCID=1",
        "SLURM_LOCALID=2 SLURM_PROCID=0",
        "SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=7 SLURM_PROCID=1",
    ] {
        let message = refused(text);
        for part in ["SLURM_", "is set in what looks like a shell", "is not set"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(
            message.contains("FSGATHER_WORLD_SIZE=1"),
            "names the way out: {message}"
        );
    }
}

#[test]
fn a_world_of_one_that_no_variable_asks_for_is_warned_of() {
    for text in ["HOME=/root", "RANK=0", "SLURM_JOB_ID=7", "LOCAL_RANK=0"] {
        let warning = detect(&variables(text)).unwrap().warning;
        let warning = warning.unwrap_or_else(|| panic!("no warning with {text}"));
        assert!(warning.contains("FSGATHER_WORLD_SIZE=1"), "{warning}");
    }
    for asked in [
        "FSGATHER_WORLD_SIZE=1",
        "FSGATHER_WORLD_SIZE=1 FSGATHER_RANK=0",
        "FSGATHER_WORLD_SIZE=1 SLURM_PROCID=3",
        "RANK=0 WORLD_SIZE=1",
        "RANK=2 WORLD_SIZE=4",
    ] {
        let warning = detect(&variables(asked)).unwrap().warning;
        assert_eq!(warning, None, "{asked}");
    }
    let (rank, size) = (Rank::ZERO, WorldSize::ONE);
    assert_eq!(
        explicit(&variables("A=b"), rank, size).unwrap().warning,
        None
    );
}
