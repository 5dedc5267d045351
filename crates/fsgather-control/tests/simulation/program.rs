//! What one rank makes of the program that all share: [`Task`]s.

use std::collections::VecDeque;

use fsgather_core::Rank;

use crate::script::{PATIENCE, Script, Verb, What};

/// One thing to do, with all that is special about it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    Call { verb: Verb, what: Option<What> },
    Start { leaves: bool },
    Settle,
    Compute(u64),
    Close,
    Leave { raise: bool },
    Interrupt,
}

/// What this rank makes of the shared program.
pub(crate) fn program(script: &Script, rank: Rank) -> VecDeque<Task> {
    let mut tasks = VecDeque::new();
    let twist = |line| {
        let mut twists = script.twists.iter();
        twists.find_map(|twist| {
            (twist.rank == rank.get() && twist.line == line).then_some(twist.what)
        })
    };
    for line in 0..=script.program.len().max(6) {
        let what = twist(line);
        match what {
            Some(What::Close) => {
                tasks.push_back(Task::Close);
                return tasks;
            }
            Some(What::Leave | What::Raise) => {
                let raise = what == Some(What::Raise);
                tasks.push_back(Task::Leave { raise });
                return tasks;
            }
            Some(What::Interrupt) => tasks.push_back(Task::Interrupt),
            Some(What::Stray) => tasks.push_back(Task::Compute(10 * PATIENCE)),
            Some(What::Skip) => continue,
            _ => {}
        }
        let Some(verb) = script.program.get(line) else {
            continue;
        };
        tasks.push_back(match (*verb, what) {
            (Verb::Barrier, Some(What::Differ)) => Task::Call {
                verb: Verb::Gather { root: 0, leaves: 0 },
                what: None,
            },
            (_, Some(What::Differ)) => Task::Call {
                verb: Verb::Barrier,
                what: None,
            },
            (Verb::Compute(seconds), _) => Task::Compute(seconds.into()),
            (Verb::Settle, _) => Task::Settle,
            (Verb::Start { leaves }, _) => Task::Start {
                leaves: leaves >> (rank.get() % 8) & 1 == 1,
            },
            (verb, what) => Task::Call { verb, what },
        });
    }
    tasks.extend([Task::Settle, Task::Close]);
    tasks
}
