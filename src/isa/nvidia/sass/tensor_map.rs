//! Tensor maps: the 128 bytes that describe to Hopper's tensor memory accelerator (TMA) where a tensor is in memory and
//! which tile of it one copy moves.
//!
//! [`FIELDS`] is the only table of the layout; [`TensorMap::emit`] and [`TensorMap::parse`] both use it. All counts are
//! stored minus one. Place in the architecture: NVIDIA's back end writes maps into a kernel's arguments, instructions
//! (and so `emu::sass`) read them; no packet contains one. The address comes first, so that a launch (or a patch of a
//! recorded one) writes a buffer's address there as for any argument. Source: the bits that ptxas changes for
//! `tensormap.replace`, whose meaning is defined by the PTX ISA. The other bits (L2 promotion among them) are zero;
//! they are not published. An H100 copies tiles by these bytes (`nv-first-contact`, steps `tensor` and `map`). Left
//! out: interleaved layouts and im2col, whose fields are not known.

/// Bytes of a map, and its alignment.
pub const BYTES: usize = 128;
pub const ALIGN_BYTES: usize = 64;
/// Maximum number of dimensions.
pub const RANK: usize = 5;
/// Alignment of addresses and strides.
const UNIT_BYTES: u64 = 16;

/// A field: its name, its lowest bit among the 1024, its width, and for arrays the distance between two elements in
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub bit: u16,
    pub width: u8,
    pub step: u16,
}

const fn field(name: &'static str, byte: u16, bit: u16, width: u8, step: u16) -> Field {
    Field { name, bit: 8 * byte + bit, width, step }
}

const ADDRESS: Field = field("address", 0x00, 0, 64, 0);
const RANK_LESS_ONE: Field = field("rank", 0x08, 4, 3, 0);
const ELEMENT: Field = field("element", 0x08, 7, 4, 0);
const INTERLEAVE: Field = field("interleave", 0x08, 11, 2, 0);
const SWIZZLE: Field = field("swizzle", 0x08, 13, 2, 0);
const FILL: Field = field("fill", 0x08, 15, 1, 0);
/// Strides of dimensions 1 to 4, in units of 16 bytes: the low words, and four more bits of each.
const STRIDE_LOW: Field = field("stride", 0x0c, 0, 32, 32);
const STRIDE_HIGH: Field = field("stride_high", 0x1c, 0, 4, 4);
const SIZE: Field = field("size", 0x20, 0, 32, 32);
const STEP: Field = field("element_step", 0x34, 0, 3, 3);
const BOX: Field = field("box", 0x37, 0, 8, 8);

/// All of them.
pub const FIELDS: [Field; 11] =
    [ADDRESS, RANK_LESS_ONE, ELEMENT, INTERLEAVE, SWIZZLE, FILL, STRIDE_LOW, STRIDE_HIGH, SIZE, STEP, BOX];

impl Field {
    /// Element `n`'s value.
    #[must_use]
    pub fn get(&self, map: &[u8; BYTES], n: usize) -> u64 {
        let first = usize::from(self.bit) + n * usize::from(self.step);
        (0..usize::from(self.width)).fold(0, |v, k| {
            let bit = first + k;
            // PANIC: every field ends before bit 1024 (a test holds the table to it).
            v | u64::from(map[bit / 8] >> (bit % 8) & 1) << k
        })
    }

    /// Sets element `n`; a value that does not fit is an error.
    fn set(&self, map: &mut [u8; BYTES], n: usize, value: u64) -> Result<(), MapError> {
        if self.width < 64 && value >> self.width != 0 {
            let max = (1 << self.width) - 1;
            return Err(MapError { field: self.name, dimension: n, value, max });
        }
        let first = usize::from(self.bit) + n * usize::from(self.step);
        for k in 0..usize::from(self.width) {
            let bit = first + k;
            // PANIC: as in `get`.
            map[bit / 8] = map[bit / 8] & !(1 << (bit % 8)) | ((value >> k & 1) as u8) << (bit % 8);
        }
        Ok(())
    }
}

/// A value that has no room in its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tensor map: {field}({dimension}) {value:#x} is over the limit {max:#x}, or no multiple of its unit")]
pub struct MapError {
    pub field: &'static str,
    pub dimension: usize,
    pub value: u64,
    pub max: u64,
}

/// Element types, by the PTX ISA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Element {
    U8 = 0,
    U16 = 1,
    U32 = 2,
    S32 = 3,
    U64 = 4,
    S64 = 5,
    F16 = 6,
    F32 = 7,
    F32Flushed = 8,
    F64 = 9,
    Bf16 = 10,
    Tf32 = 11,
    Tf32Flushed = 12,
}

impl Element {
    const ALL: [Element; 13] = [
        Element::U8,
        Element::U16,
        Element::U32,
        Element::S32,
        Element::U64,
        Element::S64,
        Element::F16,
        Element::F32,
        Element::F32Flushed,
        Element::F64,
        Element::Bf16,
        Element::Tf32,
        Element::Tf32Flushed,
    ];

    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Element::U8 => 1,
            Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::U64 | Element::S64 | Element::F64 => 8,
            _ => 4,
        }
    }
}

/// Swizzle of the tile's rows in shared memory: within how many bytes pieces of 16 bytes are permuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Swizzle {
    #[default]
    None = 0,
    Bytes32 = 1,
    Bytes64 = 2,
    Bytes128 = 3,
}

impl Swizzle {
    const ALL: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];
}

/// One dimension of a tensor, the contiguous one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// Elements.
    pub size: u64,
    /// Bytes from an element to the next; of the first dimension an element's.
    pub stride_bytes: u64,
    /// Extent of the tile (NVIDIA's `boxDim`) in elements of the tensor, and the traversal stride.
    pub box_size: u16,
    pub step: u8,
}

/// The contents of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// In the GPU's address space.
    pub address: u64,
    pub element: Element,
    pub swizzle: Swizzle,
    /// Elements outside of the tensor are filled with NaN instead of zero.
    pub fills_nan: bool,
    /// One to five.
    pub dimensions: Vec<Dimension>,
}

/// Why bytes are not a supported map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("a tensor map of rank {rank} and element type {element}")]
    Kind { rank: u64, element: u64 },
    #[error("an interleaved tensor map")]
    Interleaved,
}

impl TensorMap {
    /// The bytes.
    ///
    /// # Errors
    /// A number that its field has no room for, or a stride of no whole units.
    pub fn emit(&self) -> Result<[u8; BYTES], MapError> {
        let mut map = [0; BYTES];
        let rank = self.dimensions.len() as u64;
        // A rank of none is one beyond the largest, less one.
        RANK_LESS_ONE.set(&mut map, 0, if rank > RANK as u64 { 8 } else { rank.wrapping_sub(1) })?;
        ADDRESS.set(&mut map, 0, self.address)?;
        ELEMENT.set(&mut map, 0, self.element as u64)?;
        SWIZZLE.set(&mut map, 0, self.swizzle as u64)?;
        FILL.set(&mut map, 0, self.fills_nan.into())?;
        for (n, d) in self.dimensions.iter().enumerate() {
            SIZE.set(&mut map, n, d.size.wrapping_sub(1))?;
            BOX.set(&mut map, n, u64::from(d.box_size).wrapping_sub(1))?;
            STEP.set(&mut map, n, u64::from(d.step).wrapping_sub(1))?;
            let Some(outer) = n.checked_sub(1) else { continue };
            if !d.stride_bytes.is_multiple_of(UNIT_BYTES) {
                return Err(MapError { field: STRIDE_LOW.name, dimension: n, value: d.stride_bytes, max: u64::MAX });
            }
            let units = d.stride_bytes / UNIT_BYTES;
            STRIDE_LOW.set(&mut map, outer, units & 0xffff_ffff)?;
            STRIDE_HIGH.set(&mut map, outer, units >> 32)?;
        }
        Ok(map)
    }

    /// Parses the bytes.
    ///
    /// # Errors
    /// An unknown rank, element type or layout.
    pub fn parse(map: &[u8; BYTES]) -> Result<TensorMap, ParseError> {
        let (rank, element) = (RANK_LESS_ONE.get(map, 0) + 1, ELEMENT.get(map, 0));
        let Some(kind) = Element::ALL.get(element as usize).filter(|_| rank <= RANK as u64) else {
            return Err(ParseError::Kind { rank, element });
        };
        if INTERLEAVE.get(map, 0) != 0 {
            return Err(ParseError::Interleaved);
        }
        let stride = |n: usize| match n.checked_sub(1) {
            None => kind.bytes(),
            Some(outer) => (STRIDE_HIGH.get(map, outer) << 32 | STRIDE_LOW.get(map, outer)) * UNIT_BYTES,
        };
        let dimension = |n: usize| Dimension {
            size: SIZE.get(map, n) + 1,
            stride_bytes: stride(n),
            box_size: BOX.get(map, n) as u16 + 1,
            step: STEP.get(map, n) as u8 + 1,
        };
        Ok(TensorMap {
            address: ADDRESS.get(map, 0),
            element: *kind,
            swizzle: Swizzle::ALL[(SWIZZLE.get(map, 0) & 3) as usize], // PANIC: two bits
            fills_nan: FILL.get(map, 0) == 1,
            dimensions: (0..rank as usize).map(dimension).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TensorMap {
        let dimension = |size, stride_bytes, box_size, step| Dimension { size, stride_bytes, box_size, step };
        TensorMap {
            address: 0x12_3456_7890,
            element: Element::Bf16,
            swizzle: Swizzle::Bytes128,
            fills_nan: false,
            dimensions: vec![dimension(4096, 2, 64, 1), dimension(1 << 32, 0x12_3456_7890, 256, 2)],
        }
    }

    #[test]
    fn fields_lie_within_the_map_and_apart() {
        let mut taken = [false; 8 * BYTES];
        let counts = [1, 1, 1, 1, 1, 1, 4, 4, 5, 5, 5];
        for (f, count) in FIELDS.iter().zip(counts) {
            for bit in (0..count).flat_map(|n| (0..usize::from(f.width)).map(move |k| (n, k))) {
                let at = usize::from(f.bit) + bit.0 * usize::from(f.step) + bit.1;
                assert!(!std::mem::replace(&mut taken[at], true), "{} {bit:?}", f.name);
            }
        }
    }

    #[test]
    fn bytes_stand_where_ptxas_replaces_them() {
        let map = sample().emit().unwrap();
        let word = |at: usize| u32::from_le_bytes([map[at], map[at + 1], map[at + 2], map[at + 3]]);
        assert_eq!((word(0), word(4)), (0x3456_7890, 0x12));
        // tensormap.replace: rank at bits 4 to 6, element type 7 to 10, swizzle 13 and 14 of the word at 8.
        assert_eq!(word(8), 1 << 4 | 10 << 7 | 3 << 13);
        assert_eq!((word(0x0c), word(0x1c)), (0x2345_6789, 1));
        assert_eq!((word(0x20), word(0x24)), (4095, u32::MAX));
        assert_eq!((map[0x34], map[0x37], map[0x38]), (1 << 3, 63, 255));
        assert_eq!(map[0x3a..], [0; BYTES - 0x3a]);
    }

    #[test]
    fn what_is_written_is_read_again_and_what_does_not_fit_is_told() {
        assert_eq!(TensorMap::parse(&sample().emit().unwrap()), Ok(sample()));
        let refused = |change: &dyn Fn(&mut TensorMap)| {
            let mut map = sample();
            change(&mut map);
            map.emit().unwrap_err().field
        };
        assert_eq!(refused(&|m| m.dimensions[1].stride_bytes = 24), "stride");
        assert_eq!(refused(&|m| m.dimensions[1].stride_bytes = 1 << 40), "stride_high");
        assert_eq!(refused(&|m| m.dimensions[0].size = 0), "size");
        assert_eq!(refused(&|m| m.dimensions[0].box_size = 257), "box");
        assert_eq!(refused(&|m| m.dimensions[0].step = 9), "element_step");
        assert_eq!(refused(&|m| m.dimensions.clear()), "rank");
        assert_eq!(refused(&|m| m.dimensions = vec![m.dimensions[0]; 6]), "rank");
        let mut map = sample().emit().unwrap();
        map[9] |= 1 << 3;
        assert_eq!(TensorMap::parse(&map), Err(ParseError::Interleaved));
        assert!(matches!(TensorMap::parse(&[0xff; BYTES]), Err(ParseError::Kind { rank: 8, element: 15 })));
    }
}
