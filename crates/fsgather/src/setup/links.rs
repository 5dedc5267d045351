//! Connects the members of a group to each other, for payloads that go from memory to memory.
//!
//! Every member listens, on one port for all groups, and sends its address. Then each connects to its neighbours and to
//! a few other hosts. If any member cannot, all payloads go through rank 0 instead, with one warning: that works for
//! every communicator, but is slow.
//!
//! An all-gather needs only the neighbours. The root of a gather connects to all ranks when no other path is left, so
//! set-up tests that each host can reach every other one, in either direction. The ranks of one host share these tests.

use std::sync::Arc;

use fsgather_control::mesh::{Mesh, MeshAddress};
use fsgather_core::Error;

use fsgather_config::settings::{Transport, Verify};

use crate::{
    join::sharing::Talk,
    payload::{
        mesh::MeshPath,
        path::PayloadPath,
        ring_order::{RingOrder, numbered},
    },
    setup::{SetUp, checksums, warn_once},
};

/// Maximum number of other hosts that a rank tries, because each takes time and a connection on both sides.
const MOST_TRIED: usize = 32;

impl SetUp<'_> {
    /// Makes payloads go through memory because files cannot be used, unless the settings require files.
    pub(super) fn without_files(
        &self,
        problem: &Error,
        transport: Transport,
        verify: Verify,
    ) -> Result<PayloadPath, Error> {
        if transport == Transport::Filesys {
            return Err(problem.clone());
        }
        if self.is_root() {
            warn_once(format!("{problem}; payloads go through memory instead"));
        }
        self.connect(verify)
    }

    /// Connects all members to each other, or finds out together that this is impossible.
    pub(super) fn connect(&self, verify: Verify) -> Result<PayloadPath, Error> {
        let inner = self.inner;
        if let Some(known) = inner.known_paths.mesh() {
            return Ok(PayloadPath::Mesh(known));
        }
        let world = &inner.world;
        let settings = world.context.links.as_ref();
        let Some(mesh) = settings.and_then(|settings| world.links.listen(world, settings)) else {
            return Ok(PayloadPath::Relay);
        };
        let connected = self.connect_by(mesh, verify);
        if !matches!(connected, Ok(PayloadPath::Mesh(_))) {
            world.links.release();
        }
        connected
    }

    fn connect_by(
        &self,
        mesh: Result<Arc<Mesh>, Error>,
        verify: Verify,
    ) -> Result<PayloadPath, Error> {
        let own = mesh
            .as_ref()
            .map(|mesh| mesh.address().clone())
            .map_err(reason);
        let told: Vec<Result<MeshAddress, String>> = self.gather_all(&own)?;
        let addresses: Result<Vec<MeshAddress>, String> = told.into_iter().collect();
        let (mesh, addresses) = match (mesh, addresses) {
            (Ok(mesh), Ok(addresses)) => (mesh, addresses),
            (_, addresses) => return Ok(self.relay(addresses.err())),
        };
        let hosts: Vec<(String, u64)> = addresses
            .iter()
            .map(|address| (address.boot_id.clone(), address.network_namespace))
            .collect();
        let hosts = numbered(&hosts);
        let order = RingOrder::of(&hosts);
        let me = self.inner.exchange.rank().index();
        let tried = to_try(me, order.after(me), &hosts);
        let reached = self.reach(&mesh, addresses, tried);
        let reached = reached.map_err(|error| reason(&error));
        let reached: Vec<Result<(), String>> = self.gather_all(&reached)?;
        match reached.into_iter().find_map(Result::err) {
            None => Ok(PayloadPath::Mesh(MeshPath {
                connections: mesh,
                hosts: Arc::new(self.inner.members.iter().copied().zip(hosts).collect()),
                has_checksums: checksums::are_needed(
                    verify,
                    checksums::share_a_host(&self.processes),
                ),
            })),
            Some(why) => Ok(self.relay(Some(why))),
        }
    }

    /// Connects to some members, given the address of each, in the order of the group.
    fn reach(
        &self,
        mesh: &Mesh,
        addresses: Vec<MeshAddress>,
        tried: Vec<usize>,
    ) -> Result<(), Error> {
        let members = &self.inner.members;
        // A mesh uses the ranks' numbers in the world, not those in this group.
        for (member, address) in members.iter().zip(addresses) {
            mesh.know(*member, address)?;
        }
        tried
            .into_iter()
            .filter_map(|place| members.get(place))
            .try_for_each(|other| mesh.prepare(*other, &mut |_| self.heed()))
    }

    fn relay(&self, why: Option<String>) -> PayloadPath {
        if self.is_root() {
            let why = why.unwrap_or_else(|| "ranks cannot connect to each other".into());
            fsgather_core::warn!("large payloads go through rank 0, which is slower: {why}");
        }
        PayloadPath::Relay
    }
}

/// Returns the reason why there are no connections. The prefix of [`Error::Rendezvous`], that ranks could not meet,
/// would be wrong: they have met.
fn reason(error: &Error) -> String {
    match error {
        Error::Rendezvous { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Returns the ranks that one rank tries to reach before anything is moved, given the host of each: the `next` ranks,
/// and one rank of every other host. The ranks of its own host share the other hosts.
fn to_try<H: PartialEq>(me: usize, next: Vec<usize>, hosts: &[H]) -> Vec<usize> {
    let count = hosts.len();
    let of = |host: &H| (0..count).filter(|rank| hosts[*rank] == *host).collect();
    let own: Vec<usize> = of(&hosts[me]);
    let turn = own.iter().position(|rank| *rank == me).unwrap_or(0);
    // Each host begins with the one after it, so that they do not all connect to one host at the same time.
    let first = own.first().copied().unwrap_or(me);
    let mut others: Vec<&H> = Vec::new();
    for host in (1..count).map(|distance| &hosts[(first + distance) % count]) {
        if *host != hosts[me] && !others.contains(&host) {
            others.push(host);
        }
    }
    let its_turn = others.into_iter().skip(turn).step_by(own.len().max(1));
    let tried = its_turn.take(MOST_TRIED).filter_map(|host| {
        let ranks: Vec<usize> = of(host);
        ranks.get(turn % ranks.len().max(1)).copied()
    });
    let tried: Vec<usize> = tried.filter(|rank| !next.contains(rank)).collect();
    next.into_iter().chain(tried).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranks_of_a_host_share_the_other_hosts() {
        let hosts = [1, 1, 2, 2, 3, 3, 4, 4];
        assert_eq!(to_try(0, vec![1], &hosts), [1, 2, 6]);
        assert_eq!(to_try(1, vec![2, 0], &hosts), [2, 0, 5]);
        assert_eq!(to_try(7, vec![0, 6], &hosts), [0, 6, 3]);
        assert_eq!(to_try(0, vec![1], &[1, 1, 1]), [1]);
    }

    #[test]
    fn reason_for_no_links_does_not_say_ranks_could_not_meet() {
        assert_eq!(
            reason(&Error::rendezvous("no route to 10.0.0.1")),
            "no route to 10.0.0.1"
        );
        let other = Error::config("a port is taken");
        assert_eq!(reason(&other), other.to_string());
    }

    proptest! {
        #[test]
        fn every_host_tries_every_other_one(hosts in prop::collection::vec(0..20_u8, 2..60)) {
            let mut pairs = BTreeSet::new();
            for me in 0..hosts.len() {
                let next = RingOrder::of(&hosts).after(me);
                let tried = to_try(me, next.clone(), &hosts);
                prop_assert!(tried.starts_with(&next));
                prop_assert!(!tried.contains(&me) && tried.len() <= MOST_TRIED + 2);
                pairs.extend(tried.iter().map(|other| (hosts[me], hosts[*other])));
            }
            for one in &hosts {
                for other in hosts.iter().filter(|other| *other != one) {
                    prop_assert!(pairs.contains(&(*one, *other)), "{one} to {other}");
                }
            }
        }
    }
}
