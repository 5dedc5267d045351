//! Selects the addresses that a rank publishes, and those of them that others try.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use fsgather_core::Error;

use crate::tcp::{connection::ListenPlace, interfaces::interfaces};

/// Decides by interface name and address whether to publish an address.
pub type InterfaceFilter = dyn Fn(&str, IpAddr) -> bool + Send + Sync;

/// All addresses of this host that `wanted` accepts, loopback ones last.
///
/// # Errors
///
/// [`Error::Config`] when none is left, [`Error::Rendezvous`] when the addresses of the host cannot be listed.
pub(crate) fn publishable(port: u16, wanted: &InterfaceFilter) -> Result<Vec<SocketAddr>, Error> {
    let all = interfaces()
        .map_err(|error| Error::rendezvous(format!("cannot list network interfaces: {error}")))?;
    let mut found: Vec<IpAddr> = Vec::new();
    let mut refused = Vec::new();
    let mut any_wanted = false;
    for interface in all {
        let address = interface.address;
        // A link-local address means something only together with the sender's own interface.
        if is_link_local(address) {
            continue;
        }
        let is_wanted = wanted(&interface.name, address);
        any_wanted |= is_wanted;
        // Loopback is of use only to ranks on this host.
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

/// The addresses to listen on for a rank that publishes its addresses: everywhere, or, if `wanted` leaves any out, those
/// that it publishes; and if its host is `named` to others, those of that name.
///
/// # Errors
///
/// Those of [`publishable`].
pub(crate) fn to_listen_at(
    wanted: &InterfaceFilter,
    named: Option<&str>,
) -> Result<ListenPlace, Error> {
    if let Some(own) = named.and_then(loopback_meant_by) {
        return Ok(ListenPlace::At(own));
    }
    if !leaves_any_out(wanted) {
        return Ok(ListenPlace::Everywhere);
    }
    let published = publishable(0, wanted)?;
    let mut addresses: Vec<IpAddr> = published.iter().map(SocketAddr::ip).collect();
    for address in named.into_iter().flat_map(resolve) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(ListenPlace::At(addresses))
}

/// Returns true if an address or name can mean only this host, on every host: then no rank of another host is expected. A
/// host's own name may mean a loopback address on that host, and the host on others.
#[must_use]
pub fn means_loopback_only(host: &str) -> bool {
    loopback_meant_by(host).is_some()
}

fn loopback_meant_by(host: &str) -> Option<Vec<IpAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        let address = address.to_canonical();
        return address.is_loopback().then(|| vec![address]);
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if is_number(&host) {
        let found = resolve(&host);
        return (!found.is_empty() && found.iter().all(IpAddr::is_loopback)).then_some(found);
    }
    let is_local = [
        "localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "ip6-loopback",
    ]
    .contains(&&*host)
        || host.ends_with(".localhost");
    if !is_local {
        return None;
    }
    let found = resolve(&host);
    let found = if found.is_empty() {
        vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
    } else {
        found
    };
    found.iter().all(IpAddr::is_loopback).then_some(found)
}

/// Returns true if a host is given as numbers, such as `127.1` or `0x7f000001`: resolvers read these as addresses, and send no query.
fn is_number(host: &str) -> bool {
    let is_part = |part: &str| match part.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit()),
    };
    host.split('.').all(is_part)
}

/// The addresses that a name has here, none if it has none.
fn resolve(host: &str) -> Vec<IpAddr> {
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Returns true if this host has an address that is not wanted; loopback ones always are.
fn leaves_any_out(wanted: &InterfaceFilter) -> bool {
    // Without a list no address is known to be wanted.
    interfaces().map_or(true, |all| {
        let mut others = all.iter().filter(|one| !one.address.is_loopback());
        others.any(|one| !wanted(&one.name, one.address))
    })
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The network of a process, as far as loopback addresses go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network<'a> {
    pub(crate) boot_id: &'a str,
    /// The inode of the network namespace; 0 when unknown.
    pub(crate) namespace: u64,
}

impl Network<'_> {
    /// Returns true if a loopback address published `there` means the same from here.
    pub(crate) fn shares_loopback_with(self, there: Network<'_>) -> bool {
        self.boot_id == there.boot_id && (self.namespace == there.namespace || there.namespace == 0)
    }
}

/// The addresses published `there` that can mean the same process from here: loopback ones only in the same network
/// namespace of the same host.
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
    fn a_name_that_is_said_to_be_this_host_means_loopback_only() {
        let alone = [
            "127.0.0.1",
            "127.9.8.7",
            "::1",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "::ffff:127.0.0.1",
            "127.1",
            "127.0.1",
            "0x7f000001",
            "2130706433",
        ];
        for host in alone {
            assert!(means_loopback_only(host), "{host}");
        }
        for host in [
            "10.0.0.1",
            "0.0.0.0",
            "::",
            "node1",
            "localhost.example.org",
            "::ffff:10.0.0.1",
            "10.1",
            "0",
            "127.1.example.org",
        ] {
            assert!(!means_loopback_only(host), "{host}");
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_listened_at() {
        let loopback: &InterfaceFilter = &|_, address| address.is_loopback();
        let everything: &InterfaceFilter = &|_, _| true;
        let wanted: IpAddr = [127, 0, 0, 1].into();
        assert_eq!(to_listen_at(everything, None), Ok(ListenPlace::Everywhere));
        for spelt in ["127.0.0.1", "127.1", "::ffff:127.0.0.1"] {
            let named = to_listen_at(everything, Some(spelt));
            assert_eq!(named, Ok(ListenPlace::At(vec![wanted])), "{spelt}");
        }
        if leaves_any_out(loopback) {
            let Ok(ListenPlace::At(addresses)) = to_listen_at(loopback, None) else {
                panic!("everywhere");
            };
            assert!(addresses.iter().all(IpAddr::is_loopback));
        }
    }

    #[test]
    fn loopback_addresses_are_left_out_by_nobody() {
        let all_others: &InterfaceFilter = &|_, address| !address.is_loopback();
        assert!(!leaves_any_out(all_others));
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
