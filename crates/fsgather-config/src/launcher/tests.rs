//! Recorded environments of real launchers, and every trap among them by itself.

use std::{fs, path::PathBuf};

use proptest::prelude::*;

use super::*;

mod contradictions;
mod incomplete;

/// What is expected of each recorded environment: family, rank/world size, local rank/local size, master,
/// job, attempt.
const RECORDED: &[(&str, &str)] = &[
    ("accelerate", "none 0/1 0/1 - - -"),
    ("gridengine-array", "none 0/1 0/1 - - -"),
    ("gridengine-script", "none 0/1 0/1 - - -"),
    ("intelmpi-in-slurm-rank1", "pmi 1/4 1/2 - 752b0000-837b -"),
    ("intelmpi-in-slurm-rank2", "pmi 2/4 0/2 - 752b0000-837b -"),
    ("intelmpi-rank0", "pmi 0/3 0/2 - 752b0000-837b -"),
    ("intelmpi-rank2", "pmi 2/3 0/1 - 752b0000-837b -"),
    ("mpich-in-gridengine-rank3", "pmi 3/4 1/2 - 5 -"),
    ("mpich-in-slurm-rank1", "pmi 1/4 1/2 - 3 -"),
    ("mpich-in-slurm-rank2", "pmi 2/4 0/2 - 3 -"),
    ("mpich-rank0", "pmi 0/3 0/2 - - -"),
    ("mpich-rank2", "pmi 2/3 0/1 - - -"),
    ("openmpi-4.1-rank0", "openmpi 0/3 0/2 - 2419064833 -"),
    ("openmpi-4.1-rank2", "openmpi 2/3 0/1 - 2419064833 -"),
    (
        "openmpi-5-rank0",
        "openmpi 0/3 0/2 - prterun-head-10990@1 -",
    ),
    (
        "openmpi-5-rank2",
        "openmpi 2/3 0/1 - prterun-head-10990@1 -",
    ),
    ("openmpi-in-slurm-rank0", "openmpi 0/4 ?/? - - -"),
    ("openmpi-in-slurm-rank1", "openmpi 1/4 ?/? - - -"),
    ("openmpi-in-slurm-rank2", "openmpi 2/4 ?/? - - -"),
    ("openmpi-in-slurm-rank3", "openmpi 3/4 ?/? - - -"),
    ("slurm-array-rank1", "slurm 1/2 ?/2 node1 5.0 -"),
    ("slurm-export-none-rank1", "slurm 1/2 ?/2 node1 3.0 -"),
    ("slurm-heterogeneous-rank2", "slurm 2/3 ?/1 node1 3.0 -"),
    ("slurm-interactive-step", "none 0/1 0/1 - - -"),
    ("slurm-overlap-rank1", "slurm 1/2 ?/1 node1 3.2 -"),
    ("slurm-pmi2-rank2", "pmi 2/3 0/1 - 12.0 -"),
    ("slurm-pmix-rank2", "slurm 2/3 0/1 node1 3.0 -"),
    ("slurm-requeued-rank0", "slurm 0/4 ?/? node1 3.0 1"),
    ("slurm-salloc-shell", "none 0/1 0/1 - - -"),
    ("slurm-sbatch-inside-step", "none 0/1 0/1 - - -"),
    ("slurm-sbatch-shell", "none 0/1 0/1 - - -"),
    ("slurm-small-step", "slurm 0/1 0/1 node1 3.1 -"),
    ("slurm-srun-rank0", "slurm 0/4 0/3 node1 2.0 -"),
    ("slurm-srun-rank3", "slurm 3/4 0/1 node1 2.0 -"),
    ("torchrun-c10d-rank2", "torchrun 2/3 0/1 node1:46155 jobx 0"),
    (
        "torchrun-in-slurm-rank3",
        "torchrun 3/4 1/2 node1:41221 joby 0",
    ),
    (
        "torchrun-restarted-rank2",
        "torchrun 2/3 0/1 node1:46155 jobx 1",
    ),
    (
        "torchrun-standalone-rank1",
        "torchrun 1/2 1/2 localhost:43241 5f0c7d0e-3f0b-4c55-9f5e-1f6a3c1f9d52 0",
    ),
    ("torchrun-static-rank1", "torchrun 1/2 0/1 node1:29556 - 0"),
];

fn recordings() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/launchers")
}

fn recorded(name: &str) -> Variables {
    let path = recordings().join(format!("{name}.env"));
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('=').unwrap())
        .collect()
}

/// The environment of a text such as `RANK=1 WORLD_SIZE=2`.
fn variables(text: &str) -> Variables {
    text.split(' ')
        .map(|pair| pair.split_once('=').unwrap())
        .collect()
}

/// A recording with some variables changed, or set to nothing.
fn changed(name: &str, changes: &str) -> Variables {
    let text = fs::read_to_string(recordings().join(format!("{name}.env"))).unwrap();
    let pairs = text.lines().filter(|line| !line.starts_with('#'));
    pairs
        .chain(changes.split(' '))
        .map(|pair| pair.split_once('=').unwrap())
        .collect()
}

fn line(found: &Detection) -> String {
    let number = |n: Option<u32>| n.map_or("?".into(), |n| n.to_string());
    let text = |t: Option<String>| t.unwrap_or_else(|| "-".into());
    format!(
        "{} {}/{} {}/{} {} {} {}",
        found.family.key(),
        found.rank,
        found.world_size,
        number(found.local_rank),
        number(found.local_size),
        text(found.master.as_ref().map(ToString::to_string)),
        text(found.job.clone()),
        text(found.attempt.clone()),
    )
}

fn found(text: &str) -> String {
    line(&detect(&variables(text)).unwrap())
}

fn refused(text: &str) -> String {
    detect(&variables(text)).unwrap_err().to_string()
}

#[test]
fn recorded_environments_are_understood() {
    for (name, expected) in RECORDED {
        let detection = detect(&recorded(name)).unwrap();
        assert_eq!(line(&detection), *expected, "{name}: {detection:#?}");
    }
}

#[test]
fn every_recording_has_an_expectation_and_a_source() {
    let mut names: Vec<String> = fs::read_dir(recordings())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .inspect(|path| {
            let text = fs::read_to_string(path).unwrap();
            let head = text.lines().next().unwrap();
            let version = head.starts_with("# ") && head.contains(char::is_numeric);
            assert!(version, "{}: {head}", path.display());
        })
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let expected: Vec<&str> = RECORDED.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, expected);
}

#[test]
fn every_family_is_understood_by_its_documented_variables() {
    for (text, expected) in [
        ("TERM=dumb", "none 0/1 0/1 - - -"),
        (
            "FSGATHER_RANK=1 FSGATHER_WORLD_SIZE=3 FSGATHER_LOCAL_RANK=1 FSGATHER_LOCAL_WORLD_SIZE=2 FSGATHER_JOB=j",
            "fsgather 1/3 1/2 - - -",
        ),
        (
            "FSGATHER_RANK=1 FSGATHER_WORLD_SIZE=3",
            "fsgather 1/3 ?/? - - -",
        ),
        (
            "RANK=1 WORLD_SIZE=2 MASTER_ADDR=job-master-0 MASTER_PORT=23456",
            "torchrun 1/2 ?/? job-master-0:23456 - -",
        ),
        (
            "MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2",
            "mvapich2 3/4 1/2 - - -",
        ),
        (
            "PALS_RANKID=3 PMI_RANK=3 PMI_SIZE=4 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2 PALS_APID=a-b PBS_JOBID=7.server",
            "pals 3/4 1/2 - 7.server.a-b -",
        ),
        (
            "JSM_NAMESPACE_RANK=3 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_RANK=1 LSB_JOBID=77",
            "jsm 3/4 1/? - 77 -",
        ),
        (
            "FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_ID=f2x9",
            "flux 3/4 1/? - f2x9 -",
        ),
        (
            "LWS_WORKER_INDEX=2 LWS_GROUP_SIZE=3 LWS_LEADER_ADDRESS=eval-0.eval.default",
            "leaderworkerset 2/3 ?/? - eval-0.eval.default -",
        ),
        (
            "JOB_COMPLETION_INDEX=2 FSGATHER_WORLD_SIZE=3 HOSTNAME=eval-2",
            "kubernetes 2/3 ?/? - eval -",
        ),
        (
            "JOB_COMPLETION_INDEX=2 FSGATHER_WORLD_SIZE=3 HOSTNAME=custom",
            "kubernetes 2/3 ?/? - - -",
        ),
    ] {
        assert_eq!(found(text), expected, "{text}");
    }
}

#[test]
fn earlier_families_win_over_later_ones() {
    let pairs: Vec<String> = ROWS
        .iter()
        .filter(|row| !matches!(row.family, Family::Slurm | Family::Kubernetes))
        .map(|row| format!("{}=1 {}=2", row.rank, row.world_size))
        .collect();
    for (i, inner) in pairs.iter().enumerate() {
        for outer in &pairs[i + 1..] {
            let together = format!("{inner} {outer} TORCHELASTIC_RUN_ID=none");
            let alone = format!("{inner} TORCHELASTIC_RUN_ID=none");
            let outer_alone = found(outer);
            let (inner_alone, both) = (found(&alone), found(&together));
            assert_eq!(inner_alone, both, "{together}");
            assert_ne!(outer_alone, both, "{together}");
        }
    }
    let mut slurm = recorded("slurm-srun-rank3");
    assert_eq!(detect(&slurm).unwrap().family, Family::Slurm);
    slurm = changed(
        "slurm-srun-rank3",
        "JOB_COMPLETION_INDEX=0 FSGATHER_WORLD_SIZE=2",
    );
    assert_eq!(detect(&slurm).unwrap().family, Family::Slurm);
}

#[test]
fn the_note_says_what_was_chosen_and_what_else_was_there() {
    let detection = detect(&recorded("torchrun-in-slurm-rank3")).unwrap();
    assert_eq!(detection.others, [Family::Slurm]);
    assert_eq!(
        detection.summary(),
        "rank 3 of 4, by torchrun (RANK and WORLD_SIZE); \
         Slurm is there too (SLURM_PROCID) and was not used"
    );
}

#[test]
fn note_on_the_job_names_fsgather_run_and_not_torchrun() {
    let ours =
        "FSGATHER_RANK=1 FSGATHER_WORLD_SIZE=2 RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=run-7";
    for (more, launcher) in [
        (" FSGATHER_JOB=run-7", "fsgather run"),
        (" FSGATHER_JOB=eval", "torchrun"),
    ] {
        let summary = detect(&variables(&format!("{ours}{more}")))
            .unwrap()
            .summary();
        assert!(
            summary.ends_with(&format!("job run-7, by {launcher}")),
            "{summary}"
        );
    }
}

#[test]
fn kubernetes_completes_our_world_size() {
    let detection = detect(&variables("JOB_COMPLETION_INDEX=0 FSGATHER_WORLD_SIZE=3")).unwrap();
    assert_eq!(detection.family, Family::Kubernetes);
    assert_eq!(detection.notes.len(), 1, "{:?}", detection.notes);
}

#[test]
fn master_address_and_port_alone_mean_nothing() {
    assert_eq!(
        found("MASTER_ADDR=node1 MASTER_PORT=29500"),
        "none 0/1 0/1 - - -"
    );
}

#[test]
fn values_of_the_chosen_family_must_make_sense() {
    for (text, named) in [
        ("RANK=x WORLD_SIZE=4", "RANK=\"x\" is not a rank"),
        (
            "RANK=0 WORLD_SIZE=0",
            "WORLD_SIZE=\"0\" is not a world size",
        ),
        ("RANK=0 WORLD_SIZE=100000", "WORLD_SIZE=\"100000\""),
        ("RANK=-1 WORLD_SIZE=4", "RANK=\"-1\" is not a rank"),
        (
            "RANK=4 WORLD_SIZE=4",
            "RANK=\"4\" is outside of the world of WORLD_SIZE=4",
        ),
        (
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=2 FSGATHER_LOCAL_RANK=x",
            "FSGATHER_LOCAL_RANK=\"x\" is not a number",
        ),
        (
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=2 FSGATHER_LOCAL_WORLD_SIZE=3",
            "FSGATHER_LOCAL_WORLD_SIZE=\"3\" must be from 1 to 2 in this world; a right one is FSGATHER_LOCAL_WORLD_SIZE=1",
        ),
        (
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=1 FSGATHER_LOCAL_WORLD_SIZE=2",
            "FSGATHER_LOCAL_WORLD_SIZE=\"2\" must be 1 in this world; a right one is FSGATHER_LOCAL_WORLD_SIZE=1",
        ),
        (
            "FSGATHER_RANK=0 FSGATHER_WORLD_SIZE=4 FSGATHER_LOCAL_WORLD_SIZE=2 FSGATHER_LOCAL_RANK=2",
            "FSGATHER_LOCAL_RANK=\"2\" must be from 0 to 1 in this world; a right one is FSGATHER_LOCAL_RANK=0",
        ),
    ] {
        let message = refused(text);
        assert!(message.contains(named), "{message}");
        assert!(message.contains("a right one is "), "{message}");
    }
}

#[test]
fn our_local_variables_win_over_any_launchers() {
    let text = "RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1";
    let ours = format!("{text} FSGATHER_LOCAL_RANK=1 FSGATHER_LOCAL_WORLD_SIZE=4");
    assert_eq!(found(&ours), "torchrun 1/4 1/4 - - -");
    assert!(detect(&variables(&ours)).unwrap().is_on_one_host());
    assert!(!detect(&variables(text)).unwrap().is_on_one_host());
}

#[test]
fn arguments_need_no_launcher_and_stumble_over_none() {
    let (rank, world_size) = (Rank::new(1), WorldSize::new(2).unwrap());
    let half = variables("WORLD_SIZE=8 SLURM_PROCID=3 FSGATHER_LOCAL_RANK=1");
    assert!(detect(&half).is_err());
    let detection = explicit(&half, rank, world_size).unwrap();
    assert_eq!(line(&detection), "explicit 1/2 1/? - - -");
    assert_eq!(detection.others, [Family::Slurm]);
    assert!(explicit(&half, Rank::new(2), world_size).is_err());
    let larger = variables("FSGATHER_LOCAL_RANK=3 FSGATHER_LOCAL_WORLD_SIZE=4");
    let detection = explicit(&larger, rank, world_size).unwrap();
    assert_eq!((detection.local_rank, detection.local_size), (None, None));
}

#[test]
fn local_values_that_do_not_fit_are_dropped() {
    for text in [
        "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=8 LOCAL_RANK=1",
        "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=1",
        "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=0",
    ] {
        let detection = detect(&variables(text)).unwrap();
        assert_eq!(line(&detection), "torchrun 1/2 ?/? - - -");
        assert!(detection.summary().contains("was dropped"), "{text}");
    }
}

#[test]
fn leftover_variables_that_contradict_mpi_are_refused() {
    let message = detect(&changed("openmpi-5-rank2", "RANK=0 WORLD_SIZE=4"))
        .unwrap_err()
        .to_string();
    for named in [
        "RANK=0",
        "WORLD_SIZE=4",
        "Open MPI",
        "OMPI_COMM_WORLD_RANK=2",
        "OMPI_COMM_WORLD_SIZE=3",
    ] {
        assert!(message.contains(named), "{message}");
    }
    for (recording, contradiction) in [
        ("mpich-rank2", "RANK=1 WORLD_SIZE=3"),
        ("intelmpi-rank0", "RANK=0 WORLD_SIZE=2"),
    ] {
        assert!(detect(&changed(recording, contradiction)).is_err());
    }
    for family in ROWS.iter().filter(|row| row.family.is_mpi()) {
        let text = format!(
            "RANK=0 WORLD_SIZE=2 {}=1 {}=2",
            family.rank, family.world_size
        );
        assert!(refused(&text).contains(family.rank), "{text}");
    }
}

#[test]
fn agreement_with_mpi_or_torchrun_agents_is_no_conflict() {
    for (recording, more) in [
        ("openmpi-5-rank2", "RANK=2 WORLD_SIZE=3"),
        (
            "openmpi-5-rank2",
            "RANK=5 WORLD_SIZE=6 TORCHELASTIC_RUN_ID=none",
        ),
        ("slurm-srun-rank3", "RANK=5 WORLD_SIZE=8"),
        ("slurm-pmi2-rank2", "RANK=5 WORLD_SIZE=6"),
        // Half-set MPI variables cannot contradict.
        ("accelerate", "RANK=0 WORLD_SIZE=2 PMI_SIZE=3"),
    ] {
        let detection = detect(&changed(recording, more)).unwrap();
        assert_eq!(detection.family, Family::Torchrun, "{recording} {more}");
    }
}

#[test]
fn own_variable_without_effect_is_warned_of() {
    let warning = |text: &str| detect(&variables(text)).unwrap().warning;
    let expected = "FSGATHER_WORLD_SIZE=1 has no effect without FSGATHER_RANK: this process is rank 2 of 4, by torchrun \
                    (RANK and WORLD_SIZE). Set FSGATHER_RANK as well, or unset FSGATHER_WORLD_SIZE";
    let of_size = warning("FSGATHER_WORLD_SIZE=1 RANK=2 WORLD_SIZE=4");
    assert_eq!(of_size.as_deref(), Some(expected));
    assert!(warning("FSGATHER_RANK=3 RANK=2 WORLD_SIZE=4").is_some());
    for obeyed in ["FSGATHER_WORLD_SIZE=4", "FSGATHER_RANK=2"] {
        assert_eq!(warning(&format!("{obeyed} RANK=2 WORLD_SIZE=4")), None);
    }
}

#[test]
fn only_torchruns_master_enters_the_key() {
    let torchrun = detect(&recorded("torchrun-c10d-rank2")).unwrap();
    assert_eq!(torchrun.master_for_key().as_deref(), Some("node1:46155"));
    let slurm = detect(&recorded("slurm-srun-rank0")).unwrap();
    assert_eq!(slurm.master_for_key(), None);
}

#[test]
fn slurm_counts_inside_a_step_only() {
    for (change, how) in [
        ("SLURM_STEP_NODELIST=", "SLURM_STEP_NODELIST is not set"),
        ("SLURM_STEP_NUM_TASKS=", "SLURM_STEP_NUM_TASKS is not set"),
        ("SLURM_STEP_ID=", "SLURM_STEP_ID is not set"),
        ("SLURM_STEP_ID=4294967290", "interactive shell"),
        ("SLURM_STEP_ID=4294967295", "interactive shell"),
        (
            "SLURM_NTASKS=5",
            "SLURM_STEP_NUM_TASKS=4 is left over, for SLURM_NTASKS=5",
        ),
        (
            "SLURM_GTIDS=3,4",
            "SLURM_GTIDS has 2 entries where it says 1",
        ),
        (
            "SLURM_NODEID=0",
            "SLURM_GTIDS has 1 entries where it says 3",
        ),
    ] {
        // A shell has number 0.
        let shell = changed("slurm-srun-rank3", &format!("SLURM_PROCID=0 {change}"));
        let detection = detect(&shell).unwrap();
        assert_eq!(detection.family, Family::Alone, "{change}");
        let summary = detection.summary();
        assert!(summary.contains("ignored Slurm"), "{summary}");
        assert!(summary.contains(how), "{summary}");
        let warning = detection.warning.unwrap();
        assert!(
            warning.contains(how) && warning.contains("srun"),
            "{warning}"
        );
    }
    let single = changed(
        "slurm-srun-rank3",
        "SLURM_PROCID=0 SLURM_STEP_ID= SLURM_NTASKS=1",
    );
    let warning = detect(&single).unwrap().warning.unwrap();
    assert!(!warning.contains("SLURM_NTASKS"), "{warning}");
    let last_step = changed("slurm-srun-rank3", "SLURM_STEP_ID=4294967289");
    assert_eq!(detect(&last_step).unwrap().family, Family::Slurm);
}

#[test]
fn slurm_variables_that_are_not_there_at_all_split_no_world() {
    for change in [
        "SLURM_NTASKS=",
        "SLURM_GTIDS=",
        "SLURM_NODEID=",
        "SLURM_STEP_TASKS_PER_NODE=",
        "SLURM_STEP_TASKS_PER_NODE=?",
        "SLURM_HET_SIZE=2 SLURM_NODEID=0",
    ] {
        let detection = detect(&changed("slurm-srun-rank3", change)).unwrap();
        assert_eq!(detection.family, Family::Slurm, "{change}");
    }
}

#[test]
fn hosts_are_those_of_the_step_written_out() {
    let detection = detect(&recorded("slurm-srun-rank3")).unwrap();
    assert_eq!(detection.hosts, ["node1", "node2"]);
    let small = detect(&recorded("slurm-small-step")).unwrap();
    assert_eq!(small.hosts, ["node1"]);
    let strange = detect(&changed("slurm-srun-rank3", "SLURM_STEP_NODELIST=n[1-")).unwrap();
    assert_eq!(strange.family, Family::Slurm);
    assert!(strange.hosts.is_empty() && strange.master.is_none());
    assert!(strange.summary().contains("is no list of hosts"));
}

#[test]
fn only_slurms_job_id_enters_the_job_of_other_families() {
    for name in ["mpich-in-slurm-rank1", "openmpi-in-slurm-rank2"] {
        let plain = detect(&recorded(name)).unwrap();
        let requeued = detect(&changed(name, "SLURM_STEP_ID=9 SLURM_RESTART_COUNT=3")).unwrap();
        assert_eq!((plain.job, plain.attempt), (requeued.job, requeued.attempt));
    }
}

#[test]
fn a_requeued_step_of_pmi2_is_another_attempt() {
    let again = changed("slurm-pmi2-rank2", "SLURM_RESTART_COUNT=1");
    assert_eq!(line(&detect(&again).unwrap()), "pmi 2/3 0/1 - 12.0 1");
}

#[test]
fn mpiexec_inside_a_pmi2_step_goes_by_its_own_variables() {
    let inside = changed(
        "slurm-pmi2-rank2",
        "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
    );
    assert_eq!(line(&detect(&inside).unwrap()), "pmi 1/2 1/2 - 12 -");
}

#[test]
fn pmi_variables_of_the_job_that_called_sbatch_are_passed_over() {
    let shell = changed(
        "slurm-sbatch-inside-step",
        "PMI_RANK=0 PMI_SIZE=2 PMI_JOBID=2.0",
    );
    let detection = detect(&shell).unwrap();
    assert_eq!(detection.family, Family::Alone);
    let summary = detection.summary();
    assert!(summary.contains("PMI_JOBID=2.0 is left over"), "{summary}");
}

#[test]
fn array_tasks_of_grid_engine_are_jobs_of_their_own() {
    let task = changed("mpich-in-gridengine-rank3", "SGE_TASK_ID=3");
    assert_eq!(detect(&task).unwrap().job.as_deref(), Some("5.3"));
}

#[test]
fn a_fixed_run_id_of_none_is_no_job() {
    let detection = detect(&recorded("torchrun-static-rank1")).unwrap();
    assert_eq!(detection.job, None);
    assert_eq!(detection.master_for_key().as_deref(), Some("node1:29556"));
}

/// Any variables out of those that the code reads, with values that are often plausible.
fn any_variables() -> impl Strategy<Value = Variables> {
    const MORE: [&str; 9] = [
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_STEP_NODELIST",
        "SLURM_NTASKS",
        "SLURM_GTIDS",
        "SLURM_NODEID",
        "SLURM_STEP_TASKS_PER_NODE",
        "PMI_JOBID",
        "TORCHELASTIC_RUN_ID",
    ];
    let names: Vec<&str> = ROWS
        .iter()
        .flat_map(|row| {
            [
                Some(row.rank),
                Some(row.world_size),
                row.local_rank,
                row.local_size,
            ]
        })
        .flatten()
        .chain(MORE)
        .collect();
    let value = prop_oneof![4 => "[0-4]", 1 => "\\PC{0,8}", 1 => "n\\[[0-9]-[0-9]\\]"];
    prop::collection::btree_map(prop::sample::select(names), value, 0..12)
        .prop_map(Variables::from_iter)
}

proptest! {
    #[test]
    fn whatever_is_found_makes_sense(variables in any_variables()) {
        if let Ok(found) = detect(&variables) {
            prop_assert!(found.world_size.contains(found.rank));
            let size = found.local_size.unwrap_or(found.world_size.get());
            prop_assert!((1..=found.world_size.get()).contains(&size));
            prop_assert!(found.local_rank.is_none_or(|rank| rank < size));
            prop_assert!(!found.notes.is_empty());
        }
    }
}

#[test]
fn ranks_of_a_torchrun_inside_of_a_run_are_refused() {
    let run = "FSGATHER_RANK=1 FSGATHER_WORLD_SIZE=2 FSGATHER_JOB=run-7 FSGATHER_ERROR_FILE=/x";
    let inner = format!("{run} TORCHELASTIC_RUN_ID=abc RANK=0 WORLD_SIZE=2");
    let text = detect(&variables(&inner)).unwrap_err().to_string();
    assert!(
        text.contains("rank 1 of `fsgather run`, and also rank 0 of 2"),
        "{text}"
    );
    for accepted in [
        "TORCHELASTIC_RUN_ID=run-7 RANK=1 WORLD_SIZE=2",
        "TORCHELASTIC_RUN_ID=abc RANK=0 WORLD_SIZE=1",
    ] {
        assert!(detect(&variables(&format!("{run} {accepted}"))).is_ok());
    }
}
