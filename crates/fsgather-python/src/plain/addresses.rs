//! A table from addresses to numbers: [`AddressTable`].

/// Numbers that belong to addresses, or to any other values that are not 0.
///
/// The standard map with its standard hash takes about as long to look a string up as to encode it.
pub(super) struct AddressTable {
    /// A power of two of them, at most half of which are taken; 0 as the address marks a free one.
    slots: Vec<(usize, u32)>,
    taken: usize,
}

impl Default for AddressTable {
    fn default() -> Self {
        Self::new()
    }
}

impl AddressTable {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![(0, 0); 32],
            taken: 0,
        }
    }

    /// The number of `address`.
    #[inline]
    pub(super) fn get(&self, address: usize) -> Option<u32> {
        let (found, number) = self.slots[self.slot_of(address)];
        (found == address).then_some(number)
    }

    /// Sets the number of `address`, which must not be 0.
    #[inline]
    pub(super) fn insert(&mut self, address: usize, number: u32) {
        debug_assert!(address != 0, "0 marks free slots");
        if self.taken * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot_of(address);
        self.taken += usize::from(self.slots[slot].0 == 0);
        self.slots[slot] = (address, number);
    }

    /// Where `address` is, or would be.
    #[inline]
    fn slot_of(&self, address: usize) -> usize {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing: the upper half of the product depends on all bits.
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut slot = usize::try_from(hash).unwrap_or(0) & mask;
        while self.slots[slot].0 != address && self.slots[slot].0 != 0 {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![(0, 0); self.slots.len() * 4];
        for (address, number) in std::mem::replace(&mut self.slots, larger) {
            if address != 0 {
                let slot = self.slot_of(address);
                self.slots[slot] = (address, number);
            }
        }
    }
}
