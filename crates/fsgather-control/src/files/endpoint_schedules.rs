//! Tries every order in which a few messages can be left, seen, seen again and taken back.

use fsgather_testkit::explorer::{Counts, Explored, explore, follow};

use super::{
    properties::{Mailing, Step, TURNED_AWAY},
    *,
};

/// Index of rank 0 among the readers.
const ROOT: usize = 3;

/// Two members, one process that is turned away, rank 0, and their remaining messages.
#[derive(Clone, Debug)]
struct Post {
    mailing: Mailing,
    /// Number of messages that each process, and rank 0, will still send.
    says: [u8; 4],
    /// Number of times that a reader sees again a file that it has seen.
    again: u8,
    /// Files that each reader has seen, by their writers and numbers.
    seen: [BTreeSet<(usize, u64)>; 4],
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Say(usize),
    Answer(usize),
    Leave(usize),
    /// A reader sees one file of a process, or of rank 0.
    See {
        reader: usize,
        writer: usize,
        number: u64,
    },
    TakeBack,
}

impl Post {
    fn new(says: [u8; 4], again: u8) -> Self {
        Self {
            mailing: Mailing::new(),
            says,
            again,
            seen: Default::default(),
        }
    }

    /// The processes that take part at all.
    fn processes(&self) -> impl Iterator<Item = usize> + use<> {
        let all = self.mailing.processes.len();
        let takes_part = self.says.map(|says| says > 0);
        let said: Vec<bool> = self
            .mailing
            .processes
            .iter()
            .map(|p| !p.said.is_empty())
            .collect();
        (0..all).filter(move |index| takes_part[*index] || said[*index] || *index == 0)
    }

    /// Numbers of the files of a writer that are there.
    fn files(&self, writer: usize) -> Vec<u64> {
        let numbers = |file: &InboundMessage| file.number;
        match writer {
            ROOT => self
                .mailing
                .files
                .iter()
                .map(|(_, file)| numbers(file))
                .collect(),
            _ => self.mailing.processes[writer]
                .files
                .iter()
                .map(numbers)
                .collect(),
        }
    }

    fn lying(&self) -> usize {
        (0..=ROOT).map(|writer| self.files(writer).len()).sum()
    }

    /// Checks that each reader has received only messages that were sent, in order.
    fn check(&self) -> Result<(), String> {
        for process in &self.mailing.processes {
            let heard = self.mailing.heard.get(&process.nonce);
            let heard = heard.map_or(&[][..], Vec::as_slice);
            if !process.meant.starts_with(&process.heard) {
                return Err(format!("heard {:?} of {:?}", process.heard, process.meant));
            }
            if !process.said.starts_with(heard) {
                return Err(format!("rank 0 heard {heard:?} of {:?}", process.said));
            }
        }
        Ok(())
    }
}

impl Explored for Post {
    type Step = Move;

    fn steps(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        for index in self.processes() {
            let process = &self.mailing.processes[index];
            if self.says[index] > 0 {
                moves.push(Move::Say(index));
            }
            if !process.is_answered {
                moves.push(Move::Answer(index));
            }
            if !process.member.is_empty() {
                moves.push(Move::Leave(index));
            }
        }
        if self.says[ROOT] > 0 {
            moves.push(Move::Say(ROOT));
        }
        if !self.mailing.root.is_empty() {
            moves.push(Move::Leave(ROOT));
        }
        let readers: Vec<usize> = self.processes().collect();
        let pairs = readers
            .iter()
            .flat_map(|member| [(*member, ROOT), (ROOT, *member)]);
        for (reader, writer) in pairs {
            for number in self.files(writer) {
                if self.again > 0 || !self.seen[reader].contains(&(writer, number)) {
                    moves.push(Move::See {
                        reader,
                        writer,
                        number,
                    });
                }
            }
        }
        let mut after = self.clone();
        after.mailing.take_back();
        if after.lying() < self.lying() {
            moves.push(Move::TakeBack);
        }
        moves
    }

    fn take(&mut self, step: Move) -> Result<(), String> {
        match step {
            Move::Say(ROOT) => {
                self.says[ROOT] -= 1;
                let both = vec![Rank::new(1), Rank::new(2)];
                self.mailing.take(Step::Tell(both));
            }
            Move::Say(index) => {
                self.says[index] -= 1;
                self.mailing.take(Step::Say(index));
            }
            Move::Answer(index) => self.mailing.take(Step::Answer(index)),
            Move::Leave(ROOT) => self.mailing.leave_at_rank_0(),
            Move::Leave(index) => self.mailing.leave(index),
            Move::See {
                reader,
                writer,
                number,
            } => {
                if !self.seen[reader].insert((writer, number)) {
                    self.again -= 1;
                }
                let is_it = |file: &InboundMessage| file.number == number;
                if reader == ROOT {
                    let files = self.mailing.processes[writer].files.iter();
                    let found = files.filter(|file| is_it(file)).cloned().collect();
                    self.mailing.look_at_rank_0(found);
                } else {
                    let files = self.mailing.as_seen_by(reader).into_iter();
                    self.mailing.look(reader, files.filter(is_it).collect());
                }
            }
            Move::TakeBack => self.mailing.take_back(),
        }
        self.check()
    }

    fn end(&self) -> Result<Vec<&'static str>, String> {
        let mut post = self.clone();
        post.mailing.finish();
        post.check()?;
        for process in &post.mailing.processes {
            let heard = post.mailing.heard.get(&process.nonce).map_or(0, Vec::len);
            if (process.heard.len(), heard) != (process.meant.len(), process.said.len()) {
                return Err(format!("not all is heard: {post:?}"));
            }
        }
        let turned_away = &post.mailing.processes[TURNED_AWAY];
        let end = if turned_away.said.is_empty() {
            "members"
        } else {
            "one was turned away"
        };
        Ok(vec![end])
    }
}

fn try_out(says: [u8; 4], again: u8) -> Counts {
    let first = Post::new(says, again);
    explore(first.clone()).unwrap_or_else(|found| {
        let (told, _) = follow(first, &found.way);
        panic!("{}\n{told}", found.broken)
    })
}

#[test]
fn every_message_is_read_once_in_order_on_any_schedule() {
    // A file that is seen again; letters that are seen in either order.
    for (says, again) in [([1, 0, 0, 1], 1), ([2, 0, 0, 1], 0)] {
        let counts = try_out(says, again);
        assert!(counts.ends.contains_key("members"), "{counts}");
    }
}
