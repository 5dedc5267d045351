//! Harms processes and links: crashes, stops, cuts.

use std::time::Duration;

use super::{Service, World, index};
use crate::{promises::Checked, rank::Health, script::Harm};

impl World {
    /// Returns true if there is still something that could be harmed.
    pub(crate) fn may_come_to_harm(&self, rank: usize) -> bool {
        let process = &self.processes[rank];
        let is_over = if rank == 0 {
            self.service == Service::Gone
        } else {
            process.has_ended()
        };
        process.is_running() && !is_over
    }

    /// Number of ways in which a harm can leave the frames on their way; 0 if it would be another harm under its name.
    pub(crate) fn ways_to_harm(&self, rank: usize, harm: Harm) -> usize {
        let ways = |frames: usize| frames + 1;
        let link = &self.links[rank];
        let (up, down) = (ways(link.up.frames.len()), ways(link.down.frames.len()));
        match harm {
            Harm::Stop(_) => 1,
            Harm::Sever | Harm::Vanish if rank > 0 && link.cut.is_none() => 1,
            Harm::Reset if rank > 0 && link.cut.is_none() && link.up.open => up * down,
            Harm::HiddenCrash if rank > 0 && self.sibling_of(rank).is_some() => up,
            Harm::Crash if rank > 0 => up,
            Harm::Crash => self.links[1..]
                .iter()
                .map(|link| ways(link.down.frames.len()))
                .product(),
            _ => 0,
        }
    }

    /// Another rank that counts as one of the same host.
    fn sibling_of(&self, rank: usize) -> Option<usize> {
        (1..self.processes.len()).find(|other| {
            let process = &self.processes[*other];
            *other != rank && process.is_running() && !process.has_ended()
        })
    }

    /// Harms a rank. For a number of frames on their way, `keep` returns how many arrive.
    pub(crate) fn inflict(
        &mut self,
        rank: usize,
        harm: Harm,
        mut keep: impl FnMut(usize) -> usize,
    ) -> Checked {
        self.ledger.suspects(index(rank));
        if rank == 0 {
            self.ledger.disturbs_rank_0();
        }
        let now = self.clock.now;
        match harm {
            Harm::Stop(seconds) => {
                self.ledger.excuses(index(rank));
                self.processes[rank].health = Health::Stopped {
                    since: now,
                    until: now + Duration::from_secs(seconds.into()),
                };
            }
            Harm::Sever if rank > 0 => {
                self.ledger.excuses(index(rank));
                self.links[rank].cut.get_or_insert(now);
            }
            Harm::Reset if rank > 0 => {
                self.ledger.excuses(index(rank));
                let link = &mut self.links[rank];
                let kept = [keep(link.up.frames.len()), keep(link.down.frames.len())];
                link.up.end(now, kept[0]);
                link.down.end(now, kept[1]);
            }
            Harm::Vanish if rank > 0 => {
                self.links[rank].cut.get_or_insert(now);
                self.kill(rank);
            }
            Harm::HiddenCrash if rank > 0 => {
                let sibling = self.sibling_of(rank);
                self.kill(rank);
                let link = &mut self.links[rank];
                link.down.clear();
                let kept = keep(link.up.frames.len());
                match sibling {
                    Some(sibling) if link.cut.is_none() => {
                        link.up.frames.truncate(kept);
                        link.up.open = false;
                        self.processes[sibling].member.sibling_exited(index(rank));
                        return self.speak(sibling);
                    }
                    _ => link.up.end(now, kept),
                }
            }
            _ => {
                self.kill(rank);
                if rank == 0 {
                    self.service = Service::Gone;
                    for link in &mut self.links[1..] {
                        let kept = keep(link.down.frames.len());
                        link.down.end(now, kept);
                        link.up.clear();
                    }
                } else {
                    let link = &mut self.links[rank];
                    let kept = keep(link.up.frames.len());
                    link.up.end(now, kept);
                    link.down.clear();
                }
            }
        }
        Ok(())
    }

    fn kill(&mut self, rank: usize) {
        let process = &mut self.processes[rank];
        process.health = Health::Dead;
        process.end();
    }
}
