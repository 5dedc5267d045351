//! Which addresses a rank publishes, and which of them others try.

use std::net::{IpAddr, SocketAddr};

use fsgather_core::Error;

/// Decides by interface name and address whether to publish an address.
pub type InterfaceFilter = dyn Fn(&str, IpAddr) -> bool + Send + Sync;

/// All addresses of this host that `wanted` accepts, loopback ones last.
///
/// # Errors
///
/// [`Error::Config`] when none is left, [`Error::Rendezvous`] when the host does not tell its addresses.
pub(crate) fn publishable(port: u16, wanted: &InterfaceFilter) -> Result<Vec<SocketAddr>, Error> {
    let interfaces = if_addrs::get_if_addrs()
        .map_err(|error| Error::rendezvous(format!("cannot list network interfaces: {error}")))?;
    let mut found: Vec<IpAddr> = Vec::new();
    let mut refused = Vec::new();
    let mut any_wanted = false;
    for interface in interfaces {
        let address = interface.ip();
        // A link-local address means something only together with the sender's own interface.
        if is_link_local(address) {
            continue;
        }
        let is_wanted = wanted(&interface.name, address);
        any_wanted |= is_wanted;
        // Loopback is of use to ranks on this host, and to nobody else.
        if is_wanted || address.is_loopback() {
            found.push(address);
        } else {
            refused.push(format!("{} ({address})", interface.name));
        }
    }
    found.sort_by_key(IpAddr::is_loopback);
    found.dedup();
    if !any_wanted && !refused.is_empty() {
        return Err(Error::config(format!(
            "FSGATHER_INTERFACE leaves no address to publish; this host has {}",
            refused.join(", ")
        )));
    }
    Ok(found
        .into_iter()
        .map(|address| SocketAddr::new(address, port))
        .collect())
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Where a process is, as far as loopback addresses go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network<'a> {
    pub(crate) boot_id: &'a str,
    /// The inode of the network namespace; 0 when unknown.
    pub(crate) namespace: u64,
}

impl Network<'_> {
    /// Whether a loopback address published `there` means the same from here.
    pub(crate) fn shares_loopback_with(self, there: Network<'_>) -> bool {
        self.boot_id == there.boot_id && (self.namespace == there.namespace || there.namespace == 0)
    }
}

/// Those of the addresses published `there` that can mean the same process from here: loopback ones
/// only in the same network namespace of the same host.
pub(crate) fn usable(
    addresses: &[SocketAddr],
    there: Network<'_>,
    here: Network<'_>,
) -> Vec<SocketAddr> {
    let shares_loopback = here.shares_loopback_with(there);
    addresses
        .iter()
        .copied()
        .filter(|address| shares_loopback || !address.ip().is_loopback())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_published_last_and_always() {
        let all = publishable(7, &|_, _| true).unwrap();
        assert!(all.iter().all(|address| address.port() == 7));
        assert!(all.last().unwrap().ip().is_loopback());
    }

    #[test]
    fn loopback_means_a_rank_only_on_its_own_host() {
        let addresses = [
            "10.0.0.1:7".parse().unwrap(),
            "127.0.0.1:7".parse().unwrap(),
        ];
        let there = Network {
            boot_id: "b",
            namespace: 3,
        };
        let from = |boot_id, namespace| {
            let here = Network { boot_id, namespace };
            usable(&addresses, there, here)
        };
        assert_eq!(from("b", 3), addresses);
        assert_eq!(from("b", 4), addresses[..1]);
        assert_eq!(from("c", 3), addresses[..1]);
    }
}
