//! The hash of a whole Tensor. A program of its own: a MiB is hashed, which software GPUs take long for.

use doorbell::tensor::prelude::*;

/// The reference is Python's `hashlib.shake_128` over the same tree of pieces.
#[test]
fn the_hash_of_a_tensor_is_that_of_its_padded_bytes() {
    let want = [239, 174, 149, 246, 34, 51, 175, 203, 134, 254, 15, 51, 71, 0, 30, 174];
    assert_eq!(Tensor::new([0.0f32, 1.0, 2.0, 3.0, 4.0]).hash().to_vec::<u8>().unwrap(), want);
}
