//! Tries whether other ranks can reach rank 0 over TCP, beside a world: [`ReachServer`] and [`dial`].
//!
//! It is tried with what a world is made of: rank 0 listens as it would for its members and publishes the
//! same addresses, and visitors connect and shake hands as members do, with a secret of its own. Nothing
//! is said after that.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use fsgather_core::{Error, ProcessId, Rank, WorldSize};
use tokio::{net::TcpListener, runtime::Runtime, task::JoinSet};
use uuid::Uuid;

use crate::{
    join::{
        addresses::{self, InterfaceFilter, Network},
        job_credentials::{JobCredentials, JobFingerprint},
        record::RendezvousRecord,
    },
    tcp::{
        acceptor,
        connection::{self, Connection},
        interfaces::interfaces,
        noise::Credentials,
        runtime::CallerRuntime,
    },
    thread_call::without_a_thread,
    wire::ConnectionPurpose,
};
use fsgather_system::random::fresh;

/// Where somebody is who listens or dials.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    /// The process.
    pub process: ProcessId,
    /// The inode of its network namespace; 0 when unknown.
    pub network_namespace: u64,
}

/// A door like that of rank 0, open until this is dropped.
pub struct ReachServer {
    record: RendezvousRecord,
    /// Why the ports asked for were not to be had.
    taken: Option<String>,
    _runtime: CallerRuntime,
}

impl ReachServer {
    /// Listens on the first free of `ports`, or on any port when all are taken, and publishes the addresses
    /// that `interfaces` accepts.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when no address is left to publish or no thread can be started,
    /// [`Error::Rendezvous`] when listening is not possible at all.
    pub fn open(
        place: &Whereabouts,
        ports: &RangeInclusive<u16>,
        interfaces: &InterfaceFilter,
    ) -> Result<Self, Error> {
        let runtime = CallerRuntime::new(runtime()?, "fsgather-reach".into())
            .map_err(|error| without_a_thread(&error))?;
        let cannot_listen = |error| {
            let host = &place.process.host;
            Error::rendezvous(format!("cannot listen on {host}: {error}"))
        };
        let listening_at = addresses::to_listen_at(interfaces, None)?;
        let (listeners, port, taken) = runtime
            .run(async {
                match connection::listen(&listening_at, ports.clone()) {
                    Ok((listeners, port)) => Ok((listeners, port, None)),
                    Err(error) if *ports != (0..=0) => connection::listen(&listening_at, 0..=0)
                        .map(|(listeners, port)| (listeners, port, Some(error.to_string()))),
                    Err(error) => Err(error),
                }
            })
            .map_err(cannot_listen)?;
        let record = RendezvousRecord {
            communicator: Uuid::new_v4(),
            secret: fresh(),
            addresses: addresses::publishable(port, interfaces)?,
            markers: None,
            refusal: None,
            refuser: None,
            world_size: WorldSize::ONE,
            host: place.process.host.clone(),
            boot_id: place.process.boot_id.clone(),
            network_namespace: place.network_namespace,
            fingerprint: JobFingerprint::default(),
        };
        runtime.spawn(serve(
            listeners,
            record.credentials(&JobCredentials::default()),
        ));
        Ok(Self {
            record,
            taken,
            _runtime: runtime,
        })
    }

    /// What visitors have to know. It holds a secret that opens this door and no other.
    #[must_use]
    pub fn invitation(&self) -> Vec<u8> {
        self.record.to_bytes()
    }

    /// The addresses that are published, loopback ones last.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let addresses = self.record.addresses.iter();
        addresses.map(SocketAddr::ip).collect()
    }

    /// Why this listens on another port than those asked for, if it does.
    #[must_use]
    pub fn taken(&self) -> Option<&str> {
        self.taken.as_deref()
    }
}

/// Shakes hands with whoever comes, and lets them go.
async fn serve(listeners: Vec<TcpListener>, credentials: Credentials) {
    let credentials = Arc::new(credentials);
    loop {
        match acceptor::accept(&listeners).await {
            Ok(stream) => {
                let credentials = Arc::clone(&credentials);
                tokio::spawn(async move {
                    if let Err(error) = Connection::accept(stream, &credentials, Rank::ZERO).await {
                        tracing::debug!("a visitor was turned away: {error}");
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: those who are served give theirs back.
                tracing::debug!("cannot accept a visitor: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// What came of trying one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialedAddress {
    /// The address.
    pub address: SocketAddr,
    /// How long it took to be let in, or why that did not come about.
    pub outcome: Result<Duration, String>,
}

/// Tries all addresses in an invitation that can mean its [`ReachServer`] from here, all at the same time.
///
/// Takes as long as the slowest, at most the 2 seconds that members give an address.
///
/// # Errors
///
/// [`Error::Incompatible`] and [`Error::Rendezvous`] for an invitation that cannot be read, [`Error::Config`] when
/// the network cannot be used at all.
pub fn dial(invitation: &[u8], place: &Whereabouts) -> Result<Vec<DialedAddress>, Error> {
    let record = RendezvousRecord::from_bytes(invitation)?;
    let here = Network {
        boot_id: &place.process.boot_id,
        namespace: place.network_namespace,
    };
    let usable = addresses::usable(&record.addresses, record.network(), here);
    let credentials = record.credentials(&JobCredentials::default());
    let mut dialed = runtime()?.block_on(async {
        let mut tries = JoinSet::new();
        for address in usable {
            let credentials = credentials.clone();
            tries.spawn(async move {
                let since = Instant::now();
                let connected = Connection::open(
                    address,
                    &credentials,
                    ConnectionPurpose::Control,
                    Rank::ZERO,
                )
                .await;
                DialedAddress {
                    address,
                    outcome: match connected {
                        Ok(_) => Ok(since.elapsed()),
                        Err(error) => Err(error.to_string()),
                    },
                }
            });
        }
        let mut dialed = Vec::new();
        while let Some(ended) = tries.join_next().await {
            dialed.extend(ended.ok());
        }
        dialed
    });
    let order = |dialed: &DialedAddress| {
        let mut addresses = record.addresses.iter();
        addresses.position(|address| *address == dialed.address)
    };
    dialed.sort_by_key(order);
    Ok(dialed)
}

/// The addresses that a rank of this host would publish, loopback ones last.
///
/// # Errors
///
/// [`Error::Config`] when `interfaces` accepts none, [`Error::Rendezvous`] when the host does not tell its
/// addresses.
pub fn own_addresses(interfaces: &InterfaceFilter) -> Result<Vec<IpAddr>, Error> {
    let addresses = addresses::publishable(0, interfaces)?;
    Ok(addresses.iter().map(SocketAddr::ip).collect())
}

/// The interface that has this address.
#[must_use]
pub fn interface_of(address: IpAddr) -> Option<String> {
    let mut all = interfaces().ok()?.into_iter();
    let found = all.find(|interface| interface.address == address);
    found.map(|interface| interface.name)
}

fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::config(format!("cannot start the network runtime: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(boot: &str) -> Whereabouts {
        Whereabouts {
            process: ProcessId {
                host: "n1".into(),
                boot_id: boot.into(),
                ..ProcessId::default()
            },
            network_namespace: 3,
        }
    }

    fn loopback_only(_: &str, address: IpAddr) -> bool {
        address.is_loopback()
    }

    #[test]
    fn visitors_of_the_same_host_get_in_by_every_address() {
        let server = ReachServer::open(&here("a"), &(0..=0), &|_, _| true).unwrap();
        assert_eq!(server.taken(), None);
        let dialed = dial(&server.invitation(), &here("a")).unwrap();
        assert_eq!(dialed.len(), server.addresses().len());
        assert!(
            dialed.iter().all(|dialed| dialed.outcome.is_ok()),
            "{dialed:?}"
        );
        assert!(dialed.last().unwrap().address.ip().is_loopback());
        // Twice, because the door stays open.
        assert_eq!(
            dial(&server.invitation(), &here("a")).unwrap().len(),
            dialed.len()
        );
    }

    #[test]
    fn loopback_addresses_of_another_host_are_not_tried() {
        let server = ReachServer::open(&here("a"), &(0..=0), &loopback_only).unwrap();
        assert_eq!(dial(&server.invitation(), &here("b")).unwrap(), []);
    }

    #[test]
    fn an_address_of_this_host_belongs_to_an_interface() {
        let loopback = interface_of("127.0.0.1".parse().unwrap());
        assert!(loopback.is_some_and(|name| name.starts_with("lo")));
        // For documentation only.
        assert_eq!(interface_of("192.0.2.1".parse().unwrap()), None);
    }

    #[test]
    fn a_door_that_is_shut_is_told() {
        let server = ReachServer::open(&here("a"), &(0..=0), &loopback_only).unwrap();
        let invitation = server.invitation();
        drop(server);
        let dialed = dial(&invitation, &here("a")).unwrap();
        assert!(!dialed.is_empty());
        assert!(
            dialed.iter().all(|dialed| dialed.outcome.is_err()),
            "{dialed:?}"
        );
    }

    #[test]
    fn where_the_port_is_taken_another_one_is_used_and_that_is_told() {
        let first = ReachServer::open(&here("a"), &(0..=0), &loopback_only).unwrap();
        let port = first.record.addresses[0].port();
        let second = ReachServer::open(&here("a"), &(port..=port), &loopback_only).unwrap();
        assert!(second.taken().is_some_and(|why| why.contains("in use")));
        assert_ne!(second.record.addresses[0].port(), port);
        let dialed = dial(&second.invitation(), &here("a")).unwrap();
        assert!(
            dialed.iter().all(|dialed| dialed.outcome.is_ok()),
            "{dialed:?}"
        );
    }

    #[test]
    fn cards_that_are_none_are_refused() {
        assert!(dial(b"nonsense", &here("a")).is_err());
        assert!(dial(b"", &here("a")).is_err());
    }
}
