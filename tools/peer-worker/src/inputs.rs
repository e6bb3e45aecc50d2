//! Inputs that are the same bits in every peer's language.

fn hash(i: u32, seed: u32) -> u32 {
    let mut x = i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503).wrapping_add(12_345));
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// f32 in [-0.5, 0.5) times `scale`.
pub fn fill(n: usize, seed: u32, scale: f32) -> Vec<f32> {
    (0..n as u32).map(|i| ((hash(i, seed) >> 8) as f32 * 2f32.powi(-24) - 0.5) * scale).collect()
}

/// Integers in 0..below.
pub fn ints(n: usize, seed: u32, below: u32) -> Vec<i32> {
    (0..n as u32).map(|i| ((hash(i, seed) >> 8) % below) as i32).collect()
}

/// Mean of the absolute values: the number that must agree between peers.
pub fn mean_abs(v: &[f64]) -> f64 {
    v.iter().map(|x| x.abs()).sum::<f64>() / v.len().max(1) as f64
}
