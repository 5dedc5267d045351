//! Which addresses rank 0 publishes, and which of them a member tries.

use std::net::{IpAddr, SocketAddr};

use fsgather_core::Error;

use crate::record::Record;

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

/// The addresses of a record that can mean rank 0 from here: loopback ones only in the same network
/// namespace of the same host.
pub(crate) fn usable(record: &Record, boot_id: &str, network_namespace: u64) -> Vec<SocketAddr> {
    let same_host = record.boot_id == boot_id
        && (record.network_namespace == network_namespace || record.network_namespace == 0);
    record
        .addresses
        .iter()
        .copied()
        .filter(|address| same_host || !address.ip().is_loopback())
        .collect()
}

#[cfg(test)]
mod tests {
    use fsgather_core::WorldSize;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn loopback_is_published_last_and_always() {
        let all = publishable(7, &|_, _| true).unwrap();
        assert!(all.iter().all(|address| address.port() == 7));
        assert!(all.last().unwrap().ip().is_loopback());
    }

    #[test]
    fn loopback_means_rank_0_only_on_its_own_host() {
        let record = Record {
            communicator: Uuid::nil(),
            secret: [0; 32],
            addresses: vec![
                "10.0.0.1:7".parse().unwrap(),
                "127.0.0.1:7".parse().unwrap(),
            ],
            markers: None,
            refusal: None,
            world_size: WorldSize::ONE,
            host: "n1".into(),
            boot_id: "b".into(),
            network_namespace: 3,
        };
        assert_eq!(usable(&record, "b", 3).len(), 2);
        assert_eq!(usable(&record, "b", 4), ["10.0.0.1:7".parse().unwrap()]);
        assert_eq!(usable(&record, "c", 3), ["10.0.0.1:7".parse().unwrap()]);
    }
}
