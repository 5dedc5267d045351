//! Turns the program that all ranks share into the tasks of one: [`Task`]s.

use std::collections::VecDeque;

use fsgather_core::Rank;

use crate::script::{Group, Script, TIME_LIMIT, Verb, What};

/// A group by the line that makes it; `None` is the world.
pub(crate) type Slot = Option<usize>;

/// One thing to do, with all that is special about it.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Call {
        verb: Verb,
        what: Option<What>,
        slot: Slot,
    },
    /// An `all_gather` that is not waited for.
    Start {
        verb: Verb,
        slot: Slot,
    },
    Open {
        line: usize,
        group: Group,
    },
    DropGroup(Slot),
    DropGroups,
    Settle,
    Abandon,
    Compute(u64),
    Close,
    Leave {
        raise: bool,
    },
    Interrupt,
}

/// The tasks of this rank in the shared program.
pub(crate) fn program(script: &Script, rank: Rank) -> VecDeque<Task> {
    let mut tasks = VecDeque::new();
    let twist = |line| {
        let mut twists = script.twists.iter();
        twists.find_map(|twist| {
            (twist.rank == rank.get() && twist.line == line).then_some(twist.what)
        })
    };
    let bit = |bits: u8| bits >> (rank.get() % 8) & 1 == 1;
    let lines = script.placed();
    for number in 0..=lines.len().max(7) {
        let what = twist(number);
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
            Some(What::Stray) => tasks.push_back(Task::Compute(10 * TIME_LIMIT)),
            Some(What::DropGroups) => tasks.push_back(Task::DropGroups),
            Some(What::Skip) => continue,
            _ => {}
        }
        let Some(line) = lines.get(number) else {
            continue;
        };
        let slot = line.group;
        let call = |verb, what| Task::Call { verb, what, slot };
        match (line.verb, what) {
            (Verb::Barrier, Some(What::Differ)) => {
                let verb = Verb::Gather {
                    root: 0,
                    leaves: 0,
                    by_owner: false,
                };
                tasks.push_back(call(verb, None));
            }
            (_, Some(What::Differ)) => tasks.push_back(call(Verb::Barrier, None)),
            (Verb::Compute(seconds), _) => tasks.push_back(Task::Compute(seconds.into())),
            (Verb::Settle, _) => tasks.push_back(Task::Settle),
            (Verb::Abandon(who), _) => {
                if bit(who) {
                    tasks.push_back(Task::Abandon);
                }
            }
            (verb @ (Verb::Start { .. } | Verb::StartKeeping { .. }), _) => {
                tasks.push_back(Task::Start { verb, slot });
            }
            (Verb::Split { .. }, _) => {
                let group = script.group(number, rank);
                tasks.extend(group.map(|group| Task::Open {
                    line: number,
                    group,
                }));
            }
            (Verb::DropGroup, _) => tasks.push_back(Task::DropGroup(slot)),
            // A rank that still has to read keeps the end waiting.
            (Verb::EndGroup, what) => tasks.extend([Task::Settle, call(Verb::EndGroup, what)]),
            (verb, what) => tasks.push_back(call(verb, what)),
        }
    }
    tasks.extend([Task::Settle, Task::Close]);
    tasks
}
