//! Lists the network interfaces of this host: [`interfaces`].

use std::{io, net::IpAddr};

use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};

/// One address of a network interface. An interface with several addresses occurs several times.
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
}

/// Returns all IPv4 and IPv6 addresses of this host's network namespace.
pub(crate) fn interfaces() -> io::Result<Vec<Interface>> {
    let found = getifaddrs()?.filter_map(|entry| {
        let address = ip_of(&entry.address?)?;
        Some(Interface {
            name: entry.interface_name,
            address,
        })
    });
    Ok(found.collect())
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|found| found.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|found| found.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_interface_has_its_address() {
        let all = interfaces().unwrap();
        let own = all.iter().find(|one| one.address.is_loopback()).unwrap();
        assert_eq!(own.name, "lo");
    }
}
