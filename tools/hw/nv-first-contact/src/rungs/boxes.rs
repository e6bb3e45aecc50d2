//! Tiles of a tensor by maps that the runtime writes (`isa::sass::tensor_map`): whether the card reads the bytes
//! as the software GPU does.

use super::kernels::{bench, buffer, expect, not_here};
use crate::code::{BOX_WORDS, box_cubin};
use crate::ladder::Climb;
use doorbell::device::Arg;
use doorbell::isa::sass::tensor_map::{BYTES, Dimension, Element, FIELDS, Swizzle, TensorMap};
use hw_contact::{Failure, fail};

/// A matrix of words, one row after the other, and a tile of it.
pub struct Sizes {
    pub columns: u32,
    pub rows: u32,
    pub across: u16,
    pub down: u16,
}

impl Sizes {
    /// # Errors
    /// A number that a map has no room for.
    pub fn map(&self, va: u64, swizzle: Swizzle) -> Result<[u8; BYTES], Failure> {
        let dimension =
            |size: u32, stride_bytes, box_size| Dimension { size: size.into(), stride_bytes, box_size, step: 1 };
        let rows = dimension(self.rows, u64::from(self.columns) * 4, self.down);
        let dimensions = vec![dimension(self.columns, 4, self.across), rows];
        let map = TensorMap { address: va, element: Element::U32, swizzle, fills_nan: false, dimensions };
        map.emit().map_err(fail)
    }
}

/// Names the field of the map in which two of them differ.
///
/// # Errors
/// They do.
pub fn compare(seen: &[u8], ours: &[u8; BYTES]) -> Result<(), Failure> {
    let Some(at) = (0..BYTES).find(|at| seen.get(*at) != Some(&ours[*at])) else { return Ok(()) };
    let field = FIELDS.iter().rev().find(|f| usize::from(f.bit / 8) <= at).map_or("none", |f| f.name);
    let text = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Err(format!(
        "the card's map differs from ours at byte {at:#x} ({field} or behind it): {} and {}",
        text(seen),
        text(ours)
    )
    .into())
}

/// Columns and rows of a tile of 4 KiB.
const ACROSS: u32 = 32;
const SIZES: Sizes = Sizes { columns: 96, rows: 40, across: 32, down: 32 };

pub fn map(climb: &mut Climb) -> Result<String, Failure> {
    if let Some(why) = not_here(bench(climb)?.device.gpu().chip) {
        return Ok(why);
    }
    let code = box_cubin(climb)?;
    let bench = bench(climb)?;
    let word = |at: u32| at ^ 0x3c00_0000;
    let from = bench.words(&(0..SIZES.columns * SIZES.rows).map(word).collect::<Vec<_>>())?;
    let kernel = bench.load_from(&code, "box")?;
    // Inside; swizzled; with columns and rows beyond the edge, which are zero.
    let cases = [
        (8_i32, 4_i32, Swizzle::None),
        (32, 8, Swizzle::Bytes128),
        (80, 20, Swizzle::None),
        (-4, -3, Swizzle::Bytes128),
    ];
    for (x, y, swizzle) in cases {
        let out = bench.words(&[0xffff_ffff; BOX_WORDS])?;
        let bytes = SIZES.map(from.va(), swizzle)?;
        let mut args = vec![buffer(&out), Arg::Var(x.into()), Arg::Var(y.into()), buffer(&from)];
        let words = bytes.as_chunks::<8>().0.iter().skip(1);
        args.extend(words.map(|word| Arg::Scalar { bits: u64::from_le_bytes(*word), len_bytes: 8 }));
        bench.run(&kernel, args, [1; 3], [32, 1, 1])?;
        let wanted = |at: usize| {
            let (row, inside) = (at as u32 / ACROSS, at as u32 % ACROSS);
            let turned = if swizzle == Swizzle::Bytes128 { row % 8 } else { 0 };
            let column = ((inside / 4) ^ turned) * 4 + inside % 4;
            let (column, row) = (column.cast_signed() + x, row.cast_signed() + y);
            let is_in = |at: i32, of: u32| (0..of.cast_signed()).contains(&at);
            if is_in(column, SIZES.columns) && is_in(row, SIZES.rows) {
                word(row.cast_unsigned() * SIZES.columns + column.cast_unsigned())
            } else {
                0
            }
        };
        expect(&format!("a box at column {x}, row {y}, {swizzle:?}"), &bench.read(&out)?, wanted)?;
    }
    Ok(format!("{} boxes of 32 by 32 words by maps of the runtime, plain, swizzled, beyond the edge", cases.len()))
}
