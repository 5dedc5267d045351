//! Trees of processes as launchers, scripts and shells make them.

use super::*;

/// A made-up table of processes.
#[derive(Default)]
struct Tree {
    all: BTreeMap<u32, Seen>,
    variables: BTreeMap<u32, Vec<String>>,
    arguments: BTreeMap<u32, Vec<String>>,
}

impl Tree {
    fn with(mut self, pid: u32, parent: u32, session: u32, name: &str) -> Self {
        let seen = Seen {
            parent,
            session,
            start_time: u64::from(pid),
            name: name.into(),
        };
        self.all.insert(pid, seen);
        self
    }

    fn rank(self, pid: u32, parent: u32, session: u32, rank: u32) -> Self {
        self.rank_of_two(pid, parent, session, rank, "/here")
    }

    fn rank_of_two(mut self, pid: u32, parent: u32, session: u32, rank: u32, dir: &str) -> Self {
        let variables = [
            format!("FSGATHER_RANK={rank}"),
            "FSGATHER_WORLD_SIZE=2".into(),
            format!("FSGATHER_DIR={dir}"),
        ];
        self.variables.insert(pid, variables.into());
        self.with(pid, parent, session, "prog")
    }
}

impl ProcessTable for Tree {
    fn all(&self) -> &BTreeMap<u32, Seen> {
        &self.all
    }

    fn arguments(&self, pid: u32) -> Vec<String> {
        self.arguments.get(&pid).cloned().unwrap_or_default()
    }

    fn variables(&self, pid: u32) -> Vec<String> {
        self.variables.get(&pid).cloned().unwrap_or_default()
    }

    fn working_directory(&self, _: u32) -> Option<PathBuf> {
        None
    }
}

fn claim(rank: u32) -> Claim {
    Claim {
        family: Family::Fsgather,
        rank,
        ranks_here: 2,
        ranks: 2,
        is_named: false,
        rank_name: Some(environment::RANK),
        alike: vec![
            (environment::WORLD_SIZE, Some("2".into())),
            (environment::DIR, Some("/here".into())),
        ],
        working_directory: None,
    }
}

fn by(pid: u32) -> FoundStart {
    started_by(pid, true)
}

fn started_by(pid: u32, is_whole: bool) -> FoundStart {
    FoundStart::Starter {
        starter: Starter {
            pid,
            start_time: pid.into(),
        },
        is_whole,
    }
}

fn found(tree: &Tree, ranks: [(u32, u32); 2]) -> [FoundStart; 2] {
    ranks.map(|(pid, rank)| starter(&claim(rank), pid, true, tree))
}

/// A terminal (5) with a shell (10).
fn shell() -> Tree {
    Tree::default()
        .with(5, 1, 5, "tmux")
        .with(10, 5, 10, "bash")
}

#[test]
fn ranks_of_a_shell_have_it_for_their_starter() {
    let tree = shell().rank(20, 10, 10, 0).rank(21, 10, 10, 1);
    assert_eq!(found(&tree, [(20, 0), (21, 1)]), [by(10), by(10)]);
}

#[test]
fn a_script_for_each_rank_is_not_taken_for_the_starter() {
    let tree = shell()
        .with(15, 10, 10, "run.sh")
        .with(18, 15, 10, "wrap.sh")
        .with(19, 15, 10, "wrap.sh")
        .rank(20, 18, 10, 0)
        .rank(21, 19, 10, 1);
    assert_eq!(found(&tree, [(20, 0), (21, 1)]), [by(15), by(15)]);
}

#[test]
fn two_scripts_of_one_shell_are_two_starters() {
    let tree = shell()
        .with(15, 10, 10, "run.sh")
        .with(16, 10, 10, "run.sh")
        .rank(20, 15, 10, 0)
        .rank(21, 16, 10, 0)
        .rank(22, 15, 10, 1)
        .rank(23, 16, 10, 1);
    assert_eq!(found(&tree, [(20, 0), (22, 1)]), [by(15), by(15)]);
    assert_eq!(found(&tree, [(21, 0), (23, 1)]), [by(16), by(16)]);
    let start = |pid| Start {
        starter: Some(Starter {
            pid,
            start_time: pid.into(),
        }),
        session: 10,
        is_whole: true,
    };
    assert_eq!(twins(&claim(0), start(15), &tree), None);
    assert_eq!(twins(&claim(0), start(16), &tree), None);
}

#[test]
fn a_script_may_start_more_ranks() {
    let tree = shell()
        .with(15, 10, 10, "run.sh")
        .with(16, 10, 10, "run.sh")
        .rank(20, 15, 10, 0)
        .rank(21, 15, 10, 1)
        .rank(22, 16, 10, 1);
    let look = |is_last, tree: &Tree| starter(&claim(1), 22, is_last, tree);
    assert_eq!(look(false, &tree), FoundStart::Nobody);
    assert_eq!(look(true, &tree), by(10));
    assert_eq!(look(false, &tree.rank(23, 16, 10, 0)), by(16));
}

#[test]
fn a_start_that_has_the_ranks_of_its_host_alone_is_not_whole() {
    let tree = shell().rank(20, 10, 10, 0).rank(21, 10, 10, 1);
    let of_two_hosts = Claim {
        ranks: 4,
        ..claim(0)
    };
    assert_eq!(
        starter(&of_two_hosts, 20, true, &tree),
        started_by(10, false)
    );
}

#[test]
fn ranks_in_two_shells_have_no_starter_and_two_sessions() {
    let tree = shell()
        .with(11, 5, 11, "bash")
        .rank(20, 10, 10, 0)
        .rank(21, 11, 11, 1);
    assert_eq!(
        found(&tree, [(20, 0), (21, 1)]),
        [FoundStart::Nobody, FoundStart::Nobody]
    );
}

#[test]
fn orphans_have_no_starter() {
    let tree = Tree::default()
        .with(1, 0, 1, "init")
        .with(7, 1, 7, "systemd")
        .rank(20, 1, 15, 0)
        .rank(21, 7, 15, 1);
    assert_eq!(
        found(&tree, [(20, 0), (21, 1)]),
        [FoundStart::Nobody, FoundStart::Nobody]
    );
}

#[test]
fn a_launcher_that_makes_sessions_is_the_starter() {
    let tree = shell().with(15, 10, 10, "launch").rank(20, 15, 20, 0);
    let named = Claim {
        is_named: true,
        ..claim(0)
    };
    // It is about to start the other one.
    assert_eq!(starter(&named, 20, false, &tree), FoundStart::Nobody);
    assert_eq!(starter(&named, 20, true, &tree), started_by(15, false));
    assert_eq!(starter(&claim(0), 20, false, &tree), started_by(15, false));
    let tree = tree.rank(21, 15, 21, 1);
    assert_eq!(found(&tree, [(20, 0), (21, 1)]), [by(15), by(15)]);
    // In a terminal, the processes above the shell have started others as well.
    let tree = shell().with(11, 5, 11, "bash");
    let tree = tree.rank(20, 10, 10, 0).rank(21, 11, 11, 1);
    assert_eq!(starter(&named, 20, true, &tree), FoundStart::Nobody);
}

#[test]
fn hydra_says_which_job_it_is_and_other_daemons_are_starters() {
    let mut tree = shell()
        .with(15, 10, 10, "hydra_pmi_proxy")
        .rank(20, 15, 20, 0)
        .with(16, 10, 10, "mpispawn")
        .rank(21, 16, 10, 1);
    let line = "hydra_pmi_proxy --control-port n1:36735 --pgid 0 --proxy-id 0";
    let line = line.split(' ').map(str::to_owned).collect();
    tree.arguments.insert(15, line);
    let pmi = |rank| Claim {
        family: Family::Pmi,
        ..claim(rank)
    };
    assert_eq!(
        starter(&pmi(0), 20, true, &tree),
        FoundStart::Job("n1:36735.0".into())
    );
    assert_eq!(starter(&pmi(1), 21, true, &tree), by(16));
    // The variables of another launcher inside of it.
    assert_eq!(starter(&claim(0), 20, true, &tree), started_by(15, false));
    // A shell for each rank, which has the session.
    let tree = tree.with(30, 15, 30, "sh").rank(31, 30, 30, 0);
    assert_eq!(
        starter(&pmi(0), 31, true, &tree),
        FoundStart::Job("n1:36735.0".into())
    );
}

#[test]
fn ranks_numbered_in_the_program_are_known_by_its_name() {
    let explicit = Claim {
        family: Family::Explicit,
        rank_name: None,
        ..claim(0)
    };
    let tree = shell()
        .with(15, 10, 10, "launch")
        .with(20, 15, 10, "prog")
        .with(30, 20, 10, "prog");
    // A process that a rank itself has started is not another rank.
    assert_eq!(starter(&explicit, 20, true, &tree), FoundStart::Nobody);
    let tree = tree.with(21, 15, 10, "prog");
    assert_eq!(starter(&explicit, 20, true, &tree), started_by(15, false));
}

#[test]
fn two_processes_of_one_rank_are_found_below_one_starter() {
    let start = Start {
        starter: Some(Starter {
            pid: 10,
            start_time: 10,
        }),
        session: 10,
        is_whole: true,
    };
    let one = shell().rank(20, 10, 10, 0).rank(21, 10, 10, 1);
    assert_eq!(twins(&claim(0), start, &one), None);
    // Workers and wrappers have the variables of their rank; other directories are other jobs.
    let one = one
        .rank(30, 20, 10, 0)
        .rank(31, 20, 10, 0)
        .rank_of_two(22, 10, 10, 0, "/there")
        .rank_of_two(23, 10, 10, 1, "/there");
    assert_eq!(twins(&claim(0), start, &one), None);
    let two = one.rank(24, 10, 10, 1);
    assert_eq!(twins(&claim(0), start, &two), Some((1, 21, 24)));
    let of_session = Start {
        starter: None,
        ..start
    };
    assert_eq!(twins(&claim(0), of_session, &two), Some((1, 21, 24)));
}

#[test]
fn other_programs_beside_a_rank_claim_nothing() {
    let tree = Tree::default()
        .with(20, 1, 20, "sh")
        .rank(21, 20, 20, 0)
        .rank(22, 20, 20, 1)
        .rank(23, 20, 20, 1)
        .with(23, 20, 20, "sleep");
    let start = Start {
        starter: Some(Starter {
            pid: 20,
            start_time: 20,
        }),
        session: 20,
        is_whole: true,
    };
    assert_eq!(twins(&claim(0), start, &tree), None);
    let again = tree.rank(24, 20, 20, 1);
    assert_eq!(twins(&claim(0), start, &again), Some((1, 22, 24)));
    // A shell may still become a rank.
    let waiting = again.with(24, 20, 20, "sh");
    assert_eq!(twins(&claim(0), start, &waiting), Some((1, 22, 24)));
}
