//! A table from addresses to numbers: [`AddressTable`].

/// Numbers of addresses, or of any other values except 0.
///
/// The standard map with its standard hash takes about as long to look up a string as to encode it.
#[derive(Default)]
pub(crate) struct AddressTable {
    /// Empty at first, then a power of two, at most half of which are taken; the address 0 marks a free slot.
    slots: Vec<(usize, u32)>,
    taken: usize,
}

/// Initial number of slots of a table that is not empty.
const FIRST_SLOTS: usize = 128;

impl AddressTable {
    /// Returns the number of `address`.
    #[inline]
    pub(crate) fn get(&self, address: usize) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let (found, number) = self.slots[self.slot_of(address)];
        (found == address).then_some(number)
    }

    /// Sets the number of `address`, which must not be 0.
    #[inline]
    pub(crate) fn insert(&mut self, address: usize, number: u32) {
        debug_assert!(address != 0, "0 marks free slots");
        if self.taken * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot_of(address);
        self.taken += usize::from(self.slots[slot].0 == 0);
        self.slots[slot] = (address, number);
    }

    /// Returns the slot of `address`, which may be free; there must be slots.
    #[inline]
    fn slot_of(&self, address: usize) -> usize {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing: the upper bits of the product depend on all bits.
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.slots.len().trailing_zeros();
        let mut slot = usize::try_from(hash >> (64 - bits)).unwrap_or(0) & mask;
        while self.slots[slot].0 != address && self.slots[slot].0 != 0 {
            slot = (slot + 1) & mask;
        }
        slot
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![(0, 0); (self.slots.len() * 4).max(FIRST_SLOTS)];
        for (address, number) in std::mem::replace(&mut self.slots, larger) {
            if address != 0 {
                let slot = self.slot_of(address);
                self.slots[slot] = (address, number);
            }
        }
    }
}
