//! Picks the members of a group out of a world or group: [`chosen`]. Pure.

use fsgather_core::{Error, Peer, Rank};

/// The peers that `members` lists, in that order.
pub(crate) fn chosen(peers: &[Peer], members: &[Rank]) -> Result<Vec<Peer>, Error> {
    let mut is_chosen = vec![false; peers.len()];
    let choose = |member: &Rank| {
        let outside = || {
            Error::config(format!(
                "rank {member} is outside a communicator of {} ranks",
                peers.len()
            ))
        };
        let chosen = is_chosen.get_mut(member.index()).ok_or_else(outside)?;
        if std::mem::replace(chosen, true) {
            return Err(Error::config(format!(
                "rank {member} is in the list of a group twice"
            )));
        }
        peers.get(member.index()).cloned().ok_or_else(outside)
    };
    members.iter().map(choose).collect()
}
