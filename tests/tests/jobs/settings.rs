//! Tests that variables reach real processes, are shown with their source, and that wrong ones are refused by name.

use std::process::Command;

use crate::common::{CONFIG, End, Stage, World, build::command_line_tool, everybody, place};

/// The command-line tool on its own, with these variables and no others.
fn alone(arguments: &[&str], variables: &[(&str, &str)]) -> End {
    let mut command = Command::new(command_line_tool());
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied());
    let mut stage = Stage::new();
    stage.start(&mut command);
    stage.end(0)
}

#[test]
fn a_command_that_no_launcher_has_started_says_that_it_is_alone() {
    let forgotten = alone(&["barrier"], &[]);
    let said = forgotten.stderr.join("\n");
    assert!(
        forgotten.code == 0 && said.contains("a world of one"),
        "{forgotten:?}"
    );
    let meant = [("FSGATHER_RANK", "0"), ("FSGATHER_WORLD_SIZE", "1")];
    let meant = alone(&["barrier"], &meant);
    assert_eq!((meant.code, meant.stderr.len()), (0, 0), "{meant:?}");
}

#[test]
fn every_setting_is_shown_with_its_origin_at_creation() {
    let place = place();
    let world = World::new(2, place.path())
        .with("FSGATHER_LOG", "fsgather=debug")
        .with("FSGATHER_DIR", "")
        .with("EXP_DIR", place.path().to_str().expect("text"));
    let mut stage = Stage::new();
    for rank in 0..2 {
        stage.start(&mut world.tool(rank, &["barrier", "--timeout", "50s"]));
    }
    for rank in 0..2 {
        let end = stage.end(rank);
        let said = end.stderr.join("\n");
        for name in fsgather_config::environment::own_names() {
            // It is shown as the source of the secret.
            if name != "FSGATHER_SECRET_FILE" {
                let line = format!("debug: setting {name}: ");
                assert_eq!(said.matches(&line).count(), 1, "{line}\n{said}");
            }
        }
        for line in [
            "setting FSGATHER_TIMEOUT: 50s (argument)".to_owned(),
            "setting FSGATHER_TRANSPORT: memory (argument)".to_owned(),
            "setting FSGATHER_PORT: any (default)".to_owned(),
            format!("setting FSGATHER_DIR: {} (EXP_DIR)", place.path().display()),
            format!("setting FSGATHER_RANK: {rank} (FSGATHER_RANK)"),
        ] {
            assert!(said.contains(&line), "{line}\n{said}");
        }
    }
}

#[test]
fn wrong_values_are_refused_by_variable_text_and_example() {
    for (name, wrong) in [
        ("FSGATHER_TIMEOUT", "30"),
        ("FSGATHER_ENCRYPT", "yes"),
        ("FSGATHER_PORT", "0-99999"),
        ("FSGATHER_INTERFACE", "10.0.0.0/64"),
        ("FSGATHER_PROGRESS", "on"),
        ("FSGATHER_LOG", "fsgather=loud"),
        ("FSGATHER_ROOT_ONLY", "true"),
    ] {
        let end = alone(&["barrier"], &[(name, wrong)]);
        let said = end.stderr.join("\n");
        assert_eq!(end.code, CONFIG, "{said}");
        for part in [name, &format!("{wrong:?}")] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(
            said.contains("a right one is") || said.contains("such as"),
            "{said}"
        );
    }
}

#[test]
fn misspelt_names_warn_once_and_python_names_do_not() {
    let place = place();
    let world = World::new(3, place.path())
        .with("FSGATHER_DRI", "/x")
        .with("FSGATHER_PATCH", "torch")
        .with("FSGATHER_PICKLE", "0");
    let mut stage = Stage::new();
    stage.start_all(&world, |_| "join close".into());
    stage.succeed(everybody(3));
    let ends = stage.end_all(everybody(3));
    let warnings: Vec<&str> = ends.iter().flat_map(End::warnings).collect();
    let [warning] = warnings[..] else {
        panic!("not one warning: {warnings:?}");
    };
    assert!(warning.contains("did you mean FSGATHER_DIR?"), "{warning}");
    let directory = place.path().to_str().expect("text");
    let end = alone(&["inspect", directory], &[("FSGATHER_DRI", "/x")]);
    let said = end.stderr.join("\n");
    assert!(said.contains("did you mean FSGATHER_DIR?"), "{said}");
}
