//! Variables of one launcher that contradict those of another.

use super::*;
use crate::launcher::family::RANKS_WITHOUT_A_SIZE;

/// Variables that show more than one rank, for each family of launchers and each of its variables that shows so.
fn proofs_of_several() -> Vec<String> {
    let slurm = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1";
    let rows = ROWS.iter().filter(|row| {
        !matches!(
            row.family,
            Family::Fsgather | Family::Torchrun | Family::Kubernetes
        )
    });
    let mut proofs: Vec<String> = rows
        .flat_map(|row| {
            let (rank, world_size) = (row.rank, row.world_size);
            let with_step = |text: String| match row.family {
                Family::Slurm => format!("{slurm} {text}"),
                _ => text,
            };
            let complete = [0, 2].map(|number| format!("{rank}={number} {world_size}=4"));
            let later = [format!("{rank}=2")];
            let size = row.owns_world_size.then(|| format!("{world_size}=4"));
            complete.into_iter().chain(later).chain(size).map(with_step)
        })
        .collect();
    proofs.extend(RANKS_WITHOUT_A_SIZE.map(|name| format!("{name}=2")));
    proofs.push("JOB_COMPLETION_INDEX=2".into());
    proofs.push("SLURM_STEP_NODELIST=n1 SLURM_STEP_NUM_TASKS=4".into());
    proofs
}

#[test]
fn bare_world_of_one_beside_several_ranks_is_refused() {
    for proof in proofs_of_several() {
        let bare = format!("RANK=0 WORLD_SIZE=1 {proof}");
        let message = detect(&variables(&bare))
            .expect_err(&format!("accepted {bare}"))
            .to_string();
        let last = proof.rsplit(' ').next().unwrap();
        for part in [
            "RANK=0",
            "WORLD_SIZE=1",
            "contradict",
            last,
            "FSGATHER_WORLD_SIZE",
        ] {
            assert!(message.contains(part), "{bare}: {message}");
        }
        for allowed in [
            "FSGATHER_WORLD_SIZE=1",
            "FSGATHER_WORLD_SIZE=1 FSGATHER_RANK=0",
            "TORCHELASTIC_RUN_ID=none",
        ] {
            let detection = detect(&variables(&format!("{bare} {allowed}"))).unwrap();
            assert!(detection.world_size.is_solo(), "{bare} {allowed}");
            assert_eq!(detection.warning, None, "{bare} {allowed}");
        }
    }
}

#[test]
fn proof_of_several_ranks_alone_makes_no_world_of_one() {
    for proof in proofs_of_several() {
        if let Ok(detection) = detect(&variables(&proof)) {
            assert_eq!(detection.world_size.get(), 4, "{proof}");
        }
    }
}

#[test]
fn launcher_of_one_rank_inside_several_is_warned_of() {
    let is_launcher = |row: &&LauncherRow| {
        row.owns_world_size
            && !matches!(
                row.family,
                Family::Fsgather | Family::Torchrun | Family::Slurm
            )
    };
    let inside = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4";
    for row in ROWS.iter().filter(is_launcher) {
        if row.family == Family::LeaderWorkerSet {
            // Slurm in a pod is the inner launcher.
            continue;
        }
        let text = format!("{}=0 {}=1 {inside}", row.rank, row.world_size);
        let detection = detect(&variables(&text)).unwrap();
        assert_eq!(detection.family, row.family);
        let warning = detection.warning.expect(&text);
        assert!(
            warning.contains("SLURM_STEP_NUM_TASKS=4") && warning.contains(row.rank),
            "{warning}"
        );
        let silenced = detect(&variables(&format!("{text} FSGATHER_WORLD_SIZE=1"))).unwrap();
        assert_eq!(silenced.warning, None, "{text}");
    }
}

#[test]
fn world_of_one_that_nothing_contradicts_is_accepted() {
    for (recording, more) in [
        // One task inside an allocation of several.
        ("slurm-small-step", "RANK=0 WORLD_SIZE=1"),
        // A batch script that runs the program itself.
        ("slurm-sbatch-shell", "RANK=0 WORLD_SIZE=1"),
        ("slurm-salloc-shell", "RANK=0 WORLD_SIZE=1"),
        ("slurm-interactive-step", "RANK=0 WORLD_SIZE=1"),
        ("slurm-sbatch-inside-step", "RANK=0 WORLD_SIZE=1"),
        ("slurm-sbatch-shell", "PMI_RANK=0 PMI_SIZE=1"),
    ] {
        let detection = detect(&changed(recording, more)).unwrap();
        assert!(detection.world_size.is_solo(), "{recording} {more}");
        assert_eq!(detection.warning, None, "{recording} {more}");
    }
}
