//! Functions for the command, and for packages in other languages. A program in Rust needs none of them.

use std::net::IpAddr;

use fsgather_config::settings::InterfaceFilter;
use fsgather_core::Error;

use crate::Communicator;

pub use crate::{
    agreed_groups::{Arrival, group_agreed_on},
    call::nesting::inside_a_call,
    join::{
        exact_path,
        local_context::{LocalContext, local_directory},
        secret_file,
        this_process::process_or_unknown,
    },
};
pub use fsgather_control::host_addresses::interface_of;
pub use fsgather_store::{list_afresh, make_rendezvous};

/// Returns true if this rank has closed or left the group through any handle.
#[must_use]
pub fn has_ended<C>(communicator: &Communicator<C>) -> bool {
    communicator.inner.has_ended()
}

/// Returns the number of calls that this process has begun, and a copy of the file that records the last of them, if
/// they are recorded.
#[must_use]
pub fn last_calls<C>(communicator: &Communicator<C>) -> Option<(u64, Vec<u8>)> {
    communicator.inner.world.observer.last_calls()
}

/// Returns the addresses that a rank of this host would publish for this value of `FSGATHER_INTERFACE`, loopback ones
/// last.
///
/// # Errors
///
/// [`Error::Config`] for a rule that is not valid, or that leaves no address; [`Error::Rendezvous`] if the addresses of
/// the host cannot be read.
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
