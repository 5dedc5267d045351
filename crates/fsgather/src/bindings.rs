//! For the command, and for packages in other languages. A program in Rust needs none of it.

use std::net::IpAddr;

use fsgather_config::settings::InterfaceFilter;
use fsgather_core::Error;

use crate::Communicator;

pub use crate::{
    agreed_groups::{Arrival, group_agreed_on},
    join::{
        exact_path,
        local_context::{LocalContext, local_directory},
        secret_file,
        this_process::process_or_unknown,
    },
};
pub use fsgather_control::host_addresses::interface_of;
pub use fsgather_store::{list_afresh, make_rendezvous};

/// Whether this rank has closed or left the group through any handle.
#[must_use]
pub fn has_ended<C>(communicator: &Communicator<C>) -> bool {
    communicator.inner.has_ended()
}

/// Returns how many calls this process has begun, and the file that has the last of them as it is now, if they are kept.
#[must_use]
pub fn last_calls<C>(communicator: &Communicator<C>) -> Option<(u64, Vec<u8>)> {
    communicator.inner.world.observer.last_calls()
}

/// The addresses that a rank of this host would publish where `FSGATHER_INTERFACE` says this, loopback ones last.
///
/// # Errors
///
/// [`Error::Config`] for a rule that is none, or that leaves no address; [`Error::Rendezvous`] when the host does not tell
/// its addresses.
pub fn own_addresses(rule: &str) -> Result<Vec<IpAddr>, Error> {
    let filter = if rule.is_empty() {
        Some(InterfaceFilter::any())
    } else {
        InterfaceFilter::parse(rule)
    };
    let filter = filter
        .ok_or_else(|| Error::config(format!("FSGATHER_INTERFACE={rule} names no interfaces")))?;
    fsgather_control::host_addresses::own_addresses(&move |name: &str, address| {
        filter.matches(name, address)
    })
}
