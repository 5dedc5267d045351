//! Lists the network interfaces of this host: [`interfaces`].

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use nix::{errno::Errno, ifaddrs::getifaddrs, sys::socket::SockaddrStorage};

/// One address of a network interface. An interface with several addresses occurs several times.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// Returns all IPv4 and IPv6 addresses of this host's network namespace.
///
/// A sandbox that denies netlink sockets is answered with the tables of `/proc/net`.
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    getifaddrs().map_or_else(without_netlink, |found| {
        let found = found.filter_map(|entry| {
            let address = ip_of(&entry.address?)?;
            Some(Interface {
                name: entry.interface_name,
                address,
            })
        });
        Ok(found.collect())
    })
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|found| found.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|found| found.ip().into()))
}

fn without_netlink(errno: Errno) -> io::Result<Vec<Interface>> {
    let read = |table: &str| fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
    let found = of_tables(&read("fib_trie"), &read("route"), &read("if_inet6"));
    if found.is_empty() {
        let cause = io::Error::from(errno);
        let text = format!("getifaddrs, which needs a netlink socket, fails ({cause})");
        return Err(io::Error::new(cause.kind(), text));
    }
    tracing::debug!(%errno, "getifaddrs fails; the addresses of this host are those in /proc/net");
    Ok(found)
}

/// Collects the addresses in the kernel's tables. The one with IPv4 addresses has no names: an address has the name of the most
/// specific route to it, or `?`.
fn of_tables(fib_trie: &str, route: &str, if_inet6: &str) -> Vec<Interface> {
    let routes: Vec<_> = route.lines().filter_map(route_of).collect();
    let lines = fib_trie.lines().map(str::trim);
    let pairs = lines.clone().zip(lines.skip(1));
    let mut v4: Vec<Ipv4Addr> = pairs
        .filter(|(_, kind)| *kind == "/32 host LOCAL")
        .filter_map(|(leaf, _)| leaf.strip_prefix("|-- ")?.parse().ok())
        .collect();
    // Each address is in the table of the host and in that of all routes.
    v4.sort_unstable();
    v4.dedup();
    let v4 = v4.into_iter().map(|address| {
        let leads_to =
            |(_, network, mask): &&(&str, u32, u32)| address.to_bits() & mask == *network;
        let nearest = routes
            .iter()
            .filter(leads_to)
            .max_by_key(|(.., mask)| *mask);
        let name = match nearest {
            _ if address.is_loopback() => "lo",
            Some((name, _, mask)) if *mask != 0 => name,
            _ => "?",
        };
        Interface {
            name: name.to_owned(),
            address: address.into(),
        }
    });
    let v6 = if_inet6.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let bits = u128::from_str_radix(fields.next()?, 16).ok()?;
        Some(Interface {
            name: fields.last()?.to_owned(),
            address: Ipv6Addr::from_bits(bits).into(),
        })
    });
    v4.chain(v6).collect()
}

/// Reads interface, network and mask from a line of `/proc/net/route`, whose numbers have the bytes of the network in the
/// order of the host.
fn route_of(line: &str) -> Option<(&str, u32, u32)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| {
        let number = u32::from_str_radix(fields.get(at)?, 16).ok()?;
        Some(u32::from_be(number))
    };
    Some((fields.first()?, number(1)?, number(7)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_interface_has_its_address() {
        for all in [interfaces(), without_netlink(Errno::EPERM)] {
            let all = all.unwrap();
            let own = all.iter().find(|one| one.address.is_loopback()).unwrap();
            assert_eq!(own.name, "lo");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn addresses_in_tables_have_the_name_of_their_route() {
        let fib_trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.1.2.3\n        \
            /32 host LOCAL\n     |-- 10.1.2.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n     \
            |-- 198.51.100.7\n        /32 host LOCAL\nLocal:\n     |-- 10.1.2.3\n        /32 host LOCAL\n";
        let route = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0102010A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            ib0\t0002010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let if_inet6 = "fd000000000000000000000000000002 04 40 00 82     eth0\n";
        let found = of_tables(fib_trie, route, if_inet6);
        let expected = [
            ("ib0", "10.1.2.3"),
            ("lo", "127.0.0.1"),
            ("?", "198.51.100.7"),
            ("eth0", "fd00::2"),
        ];
        let expected = expected.map(|(name, address)| Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
        });
        assert_eq!(found, expected);
        assert_eq!(of_tables("", "", ""), []);
    }
}
