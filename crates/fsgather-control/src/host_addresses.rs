//! The addresses and network interfaces of this host: [`own_addresses`] and [`interface_of`].

use std::net::{IpAddr, SocketAddr};

use fsgather_core::Error;

use crate::{
    join::addresses::{self, InterfaceFilter},
    tcp::interfaces::interfaces,
};

/// Returns the addresses that a rank of this host would publish, loopback ones last.
///
/// # Errors
///
/// [`Error::Config`] if `interfaces` accepts none, [`Error::Rendezvous`] if the system does not list addresses.
pub fn own_addresses(interfaces: &InterfaceFilter) -> Result<Vec<IpAddr>, Error> {
    let addresses = addresses::publishable(0, interfaces)?;
    Ok(addresses.iter().map(SocketAddr::ip).collect())
}

/// Returns the name of the interface that has this address.
#[must_use]
pub fn interface_of(address: IpAddr) -> Option<String> {
    let mut all = interfaces().ok()?.into_iter();
    let found = all.find(|interface| interface.address == address);
    found.map(|interface| interface.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_belongs_to_an_interface() {
        let loopback = interface_of("127.0.0.1".parse().unwrap());
        assert!(loopback.is_some_and(|name| name.starts_with("lo")));
        // For documentation only.
        assert_eq!(interface_of("192.0.2.1".parse().unwrap()), None);
    }
}
