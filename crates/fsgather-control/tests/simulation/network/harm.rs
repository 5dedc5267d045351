//! Harms processes and links: crashes, stops, cuts.

use std::time::Duration;

use super::{Service, World, index};
use crate::{
    promises::Checked,
    rank::Health,
    script::{Fault, Harm},
};

impl World {
    pub(super) fn inflict(&mut self, fault: Fault) -> Checked {
        let rank = fault.rank as usize;
        let process = &mut self.processes[rank];
        if !process.is_running() || (process.has_ended() && rank != 0) {
            return Ok(());
        }
        if rank == 0 && self.service == Service::Gone {
            return Ok(());
        }
        self.ledger.suspects(index(rank));
        if rank == 0 {
            self.ledger.disturbs_rank_0();
        }
        let now = self.clock.now;
        self.turns += 1;
        let keep = |frames: usize, turns: usize| turns % (frames + 1);
        match fault.harm {
            Harm::Stop(seconds) => {
                self.ledger.excuses(index(rank));
                process.health = Health::Stopped {
                    since: now,
                    until: now + Duration::from_secs(seconds.into()),
                };
            }
            Harm::Sever if rank > 0 => {
                self.ledger.excuses(index(rank));
                self.links[rank].cut.get_or_insert(now);
            }
            Harm::Vanish if rank > 0 => {
                self.links[rank].cut.get_or_insert(now);
                self.kill(rank);
            }
            Harm::HiddenCrash if rank > 0 => {
                let sibling = (1..self.processes.len()).find(|other| {
                    let other = &self.processes[*other];
                    other.rank != index(rank) && other.is_running() && !other.has_ended()
                });
                self.kill(rank);
                let link = &mut self.links[rank];
                link.down.clear();
                let kept = keep(link.up.frames.len(), self.turns);
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
                    for link in &mut self.links {
                        let kept = keep(link.down.frames.len(), self.turns);
                        link.down.end(now, kept);
                        link.up.clear();
                    }
                } else {
                    let link = &mut self.links[rank];
                    let kept = keep(link.up.frames.len(), self.turns);
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
