//! The rule that decides if payloads may be in files, which are never encrypted: [`goes_over_a_network`]. Pure.

use fsgather_store::Class;

/// Returns true if files in a directory of this class would show payloads to a network that must not see them.
pub(super) fn goes_over_a_network(encrypt: bool, class: Class) -> bool {
    encrypt && class != Class::Local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_encrypted_lies_on_local_disks_only() {
        for class in [Class::Network, Class::Unknown] {
            assert!(goes_over_a_network(true, class));
            assert!(!goes_over_a_network(false, class));
        }
        assert!(!goes_over_a_network(true, Class::Local));
    }
}
