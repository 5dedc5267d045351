//! Rings.

use crate::bed::{Bed, call, check, ring};

#[test]
fn a_ring_brings_everything_to_everybody() {
    let meshes = Bed::new(4).meshes();
    let lens = [3 << 20, 0, 1, (1 << 20) + 5];
    for epoch in 0..3 {
        for (rank, got) in ring(&meshes, call(epoch), &lens).into_iter().enumerate() {
            check(rank, &lens, &got.unwrap());
        }
    }
    // One link from each left neighbour, used again and again.
    for mesh in &meshes {
        assert_eq!(mesh.links_accepted(), 1);
    }
}
