//! Tensors and their maps for the tests of tensor copies, with a model of what a copy of a tile moves, in plain Rust.

/// A tensor and its tile, as `tensormap.replace` takes them.
#[derive(Clone, Copy)]
pub struct Tensor {
    /// The PTX ISA's number of the element type.
    pub kind: u32,
    pub element_bytes: usize,
    pub sizes: &'static [usize],
    /// Bytes from one element of dimensions 1 and up to the next.
    pub strides: &'static [usize],
    pub counts: &'static [usize],
    pub steps: &'static [usize],
    /// 0 to 3: none, 32, 64, 128 bytes.
    pub swizzle: u32,
    pub fills_nan: bool,
    pub at: &'static [i32],
}

impl Tensor {
    /// The 128 bytes of its map: fields at the positions of `isa::sass::tensor_map`.
    pub fn map(&self, address: u64) -> Vec<u8> {
        let mut bytes = vec![0u8; 128];
        let mut put = |at: usize, v: u64, len: usize| bytes[at..at + len].copy_from_slice(&v.to_le_bytes()[..len]);
        let rank = self.sizes.len();
        put(0, address, 8);
        let kind = (rank as u32 - 1) << 4 | self.kind << 7 | self.swizzle << 13 | u32::from(self.fills_nan) << 15;
        put(8, kind.into(), 4);
        let mut high = 0u64;
        for (k, stride) in self.strides.iter().enumerate() {
            put(12 + 4 * k, (*stride as u64 >> 4) & 0xffff_ffff, 4);
            high |= (*stride as u64 >> 36) << (4 * k);
        }
        put(0x1c, high, 4);
        let mut steps = 0u64;
        for k in 0..rank {
            put(0x20 + 4 * k, self.sizes[k] as u64 - 1, 4);
            put(0x37 + k, self.counts[k] as u64 - 1, 1);
            steps |= (self.steps[k] as u64 - 1) << (3 * k);
        }
        put(0x34, steps, 3);
        bytes
    }

    /// Elements of the tile along a dimension.
    pub fn across(&self, k: usize) -> usize {
        self.counts[k].div_ceil(self.steps[k])
    }

    /// Bytes of the tile in shared memory.
    pub fn box_bytes(&self) -> usize {
        (0..self.sizes.len()).map(|k| self.across(k)).product::<usize>() * self.element_bytes
    }

    /// Offset of each element of the tile at these coordinates in the tensor's bytes, if it is inside, and in shared
    /// memory.
    pub fn elements(&self, at: &[i32]) -> Vec<(Option<usize>, usize)> {
        let rank = self.sizes.len();
        (0..self.box_bytes() / self.element_bytes)
            .map(|number| {
                let (mut rest, mut from) = (number, Some(0));
                for (k, first) in at.iter().enumerate().take(rank) {
                    let place = first + (rest % self.across(k) * self.steps[k]) as i32;
                    rest /= self.across(k);
                    let stride = if k == 0 { self.element_bytes } else { self.strides[k - 1] };
                    let inside = place >= 0 && (place as usize) < self.sizes[k];
                    from = if inside { from.map(|f: usize| f + place as usize * stride) } else { None };
                }
                let linear = number * self.element_bytes;
                (from, linear ^ (linear >> 7 & ((1 << self.swizzle) - 1)) << 4)
            })
            .collect()
    }
}
