//! Matrix multiplies of a warpgroup: HGMMA, QGMMA, IGMMA, BGMMA; 64 rows, 16 of each of its four warps, by up to 256
//! columns.
//!
//! B, and A unless it is in registers, are in shared memory as a 64-bit descriptor specifies: bits 13:0 the address,
//! 29:16 the leading and 45:32 the stride offset, all in units of 16 bytes, 51:49 where the swizzle's pattern begins,
//! 63:62 the swizzle. Their rows are of 32 bytes along the depth; 8 rows by 16 bytes are contiguous. Where a
//! descriptor's matrix is transposed (16-bit formats), 8 steps along the depth by 16 bytes along the rows do. Sources:
//! the PTX ISA (strides, swizzle modes, fragments), the canonical layouts in CUTLASS's comments.
//!
//! Each warp multiplies when it issues: the chip does so at some time until the warp waits for the group. Products are
//! exact, summed in double precision and rounded once, where the chip truncates on the way.

use super::core::Core;
use super::fault::{FaultKind, R, fail, not_modelled};
use super::lower::Run;
use super::operand::{Dst, Fields, PSrc};
use super::pack;
use super::soft::{self, BF16, E4M3, E5M2, F16, F32, Format, Round};
use super::warp::Lanes;
use doorbell_ptx::sass::Role;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match f.0.form().mnemonic {
        "HGMMA" | "QGMMA" => float(f)?,
        "IGMMA" => integer(f)?,
        "BGMMA" => bits(f)?,
        // What they order is in order here; strict mode follows the groups.
        "WARPGROUP" => Box::new(|_| Ok(())),
        _ => return Ok(None),
    }))
}

/// Rows of a warp, bytes of a row along the depth.
const ROWS: usize = 16;
const ROW_BYTES: usize = 32;

/// A matrix in shared memory.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    start: u64,
    leading: u64,
    stride: u64,
    base: u64,
    /// Units of 16 bytes in a line of the swizzle: 1, 2, 4 or 8.
    units: u64,
}

impl Descriptor {
    fn parse(bits: u64) -> Descriptor {
        Descriptor {
            start: (bits & 0x3fff) << 4,
            leading: (bits >> 16 & 0x3fff) << 4,
            stride: (bits >> 32 & 0x3fff) << 4,
            base: bits >> 49 & 7,
            units: [1, 8, 4, 2][(bits >> 62) as usize],
        }
    }

    /// Which 16 bytes of a line are swapped depends on the line's number in the pattern.
    fn swizzled(&self, offset: u64) -> u64 {
        let at = self.start + offset;
        let line = (at >> 7).wrapping_sub(self.base);
        at ^ (line & (self.units - 1)) << 4
    }

    /// Where the 16 bytes of a row's half are.
    fn row(&self, row: usize, half: usize) -> u64 {
        let (inner, outer, half) = (row as u64 % 8, row as u64 / 8, half as u64);
        let across = if self.units == 1 { half * self.leading } else { 16 * half };
        self.swizzled(inner * 16 * self.units + outer * self.stride + across)
    }

    /// Transposed: where the 16 bytes of 8 rows of 16 bits are for one step along the depth.
    fn column(&self, unit: usize, depth: usize) -> u64 {
        let (unit, inner, outer) = (unit as u64, depth as u64 % 8, depth as u64 / 8);
        let (rows, steps) = match self.units {
            1 => (unit * self.stride, inner * 16 + outer * self.leading),
            n => (unit % n * 16 + unit / n * self.leading, inner * 16 * n + outer * self.stride),
        };
        self.swizzled(rows + steps)
    }
}

/// Rows of 32 bytes, one after the other, and whether all of them were written.
fn matrix(c: &mut Core, d: Descriptor, first: usize, rows: usize, transposed: bool) -> R<(Vec<u8>, bool)> {
    let (mut all, mut written) = (vec![0; rows * ROW_BYTES], true);
    if !transposed {
        for (number, half) in all.chunks_exact_mut(16).enumerate() {
            let at = d.row(first + number / 2, number % 2);
            written &= c.cta().is_written(at as u32, 16);
            half.copy_from_slice(c.cta().peek(at as u32, 16)?);
        }
        return Ok((all, written));
    }
    for (unit, depth) in (0..rows / 8).flat_map(|unit| (0..16).map(move |depth| (unit, depth))) {
        let at = d.column(first / 8 + unit, depth);
        written &= c.cta().is_written(at as u32, 16);
        for (row, value) in c.cta().peek(at as u32, 16)?.chunks_exact(2).enumerate() {
            let to = (8 * unit + row) * ROW_BYTES + 2 * depth;
            all[to..to + 2].copy_from_slice(value);
        }
    }
    Ok((all, written))
}

/// The bytes of a warp's rows of A, and of the columns of B.
struct Factors {
    a: Vec<u8>,
    b: Vec<u8>,
    /// All of it was written, as far as strict mode knows.
    written: bool,
}

/// Operands of one multiply.
#[derive(Clone, Copy)]
struct Operands {
    d: u8,
    c: u8,
    /// A in registers: the first of four.
    a: Option<u8>,
    /// Descriptors, of A first.
    u: u8,
    /// The sum is added where it is true.
    adds: PSrc,
    columns: usize,
    transposed_a: bool,
    transposed_b: bool,
}

impl Operands {
    fn of(f: Fields) -> R<Operands> {
        let columns = f.text("sh").split('x').nth(1).and_then(|n| n.parse().ok());
        let Some(columns) = columns else { return not_modelled(format!("shape {}", f.text("sh"))) };
        let a = if f.0.form().position("a", Role::Value).is_some() { Some(f.register("a")?) } else { None };
        Ok(Operands {
            d: f.register("d")?,
            c: f.register("c")?,
            a,
            u: f.uniform("u")?,
            adds: f.psrc("pp"),
            columns,
            transposed_a: f.has("ta"),
            transposed_b: f.has("tb"),
        })
    }

    fn read(&self, c: &mut Core) -> R<Factors> {
        if c.lanes != u32::MAX {
            return fail(FaultKind::NotConverged { lanes: c.lanes });
        }
        let (a, of_a) = match self.a {
            Some(first) => (fragment(c, first), true),
            None => {
                let d = Descriptor::parse(c.uniform_pair(self.u));
                let first = ROWS * (c.warp.number as usize % 4);
                matrix(c, d, first, ROWS, self.transposed_a)?
            }
        };
        // Also where A is in registers.
        let d = Descriptor::parse(c.uniform_pair(self.u.saturating_add(2)));
        let (b, of_b) = matrix(c, d, 0, self.columns, self.transposed_b)?;
        Ok(Factors { a, b, written: of_a && of_b })
    }

    fn adds(&self, c: &Core) -> bool {
        c.pred(self.adds) & 1 == 1 && self.c != 255
    }
}

/// A in registers: lane `4g + t` has bytes `4t` to `4t + 3` of row `g`, of row `g + 8`, and the same 16 bytes on.
fn fragment(c: &Core, first: u8) -> Vec<u8> {
    let mut all = vec![0; ROWS * ROW_BYTES];
    for register in 0..4 {
        let values = &c.warp.registers[usize::from(first) + register];
        for (lane, value) in values.iter().enumerate() {
            let to = (lane / 4 + 8 * (register % 2)) * ROW_BYTES + 4 * (lane % 4) + 16 * (register / 2);
            all[to..to + 4].copy_from_slice(&value.to_le_bytes());
        }
    }
    all
}

/// Lane and number of the accumulator of an element.
fn place(row: usize, column: usize) -> (usize, usize) {
    (4 * (row % 8) + column % 8 / 2, 4 * (column / 8) + 2 * (row / 8) + column % 2)
}

/// The values of rows of bytes.
fn values(bytes: &[u8], format: Format, neg: bool) -> Vec<f64> {
    let sign = |v: f64| if neg { -v } else { v };
    match format {
        E4M3 | E5M2 => bytes.iter().map(|b| sign(pack::widen(u64::from(*b), format))).collect(),
        // The low 13 bits of a tf32 value are ignored.
        F32 => bytes
            .chunks_exact(4)
            .map(|b| {
                let bits = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                sign(f64::from(f32::from_bits(bits & !0x1fff)))
            })
            .collect(),
        _ => bytes
            .chunks_exact(2)
            .map(|b| sign(soft::widen(u64::from(u16::from_le_bytes([b[0], b[1]])), format)))
            .collect(),
    }
}

/// The formats of A and B.
fn formats(f: Fields) -> (Format, Format) {
    let eight = |text: &str| if text == ".E5M2" { E5M2 } else { E4M3 };
    match f.text("st") {
        _ if f.0.form().mnemonic == "QGMMA" => (eight(f.text("at")), eight(f.text("bt"))),
        ".BF16" => (BF16, BF16),
        ".TF32" => (F32, F32),
        _ => (F16, F16),
    }
}

fn float(f: Fields) -> R<Run> {
    let (o, (of_a, of_b), wide) = (Operands::of(f)?, formats(f), f.text("dt") == ".F32");
    let neg_a = f.has("na") || f.0.operand("a").is_some_and(|a| a.signs.neg);
    let neg_b = f.has("nb");
    Ok(Box::new(move |c| {
        let factors = o.read(c)?;
        let (a, b) = (values(&factors.a, of_a, neg_a), values(&factors.b, of_b, neg_b));
        let depth = a.len() / ROWS;
        let mut across = vec![0.0; b.len()];
        b.iter().enumerate().for_each(|(i, v)| across[i % depth * o.columns + i / depth] = *v);
        let adds = o.adds(c);
        let mut out = vec![[0u32; 32]; o.columns / if wide { 2 } else { 4 }];
        for row in 0..ROWS {
            let mut sums = vec![0.0f64; o.columns];
            for (a, b) in a[row * depth..(row + 1) * depth].iter().zip(across.chunks_exact(o.columns)) {
                sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
            }
            for (column, sum) in sums.into_iter().enumerate() {
                put(c, &o, &mut out, (row, column, wide), if adds { sum } else { sum + 0.0 }, adds);
            }
        }
        store(c, o.d, &out, factors.written);
        Ok(())
    }))
}

/// Adds what the accumulator has, rounds, and puts the element into its place.
fn put(c: &Core, o: &Operands, out: &mut [Lanes], (row, column, wide): (usize, usize, bool), sum: f64, adds: bool) {
    let (lane, number) = place(row, column);
    let (number, shift) = if wide { (number, 0) } else { (number / 2, 16 * (number % 2)) };
    let old = c.warp.registers[usize::from(o.c) + if adds { number } else { 0 }][lane];
    let (format, addend) = match wide {
        true => (F32, f64::from(f32::from_bits(old))),
        false => (F16, soft::widen(u64::from(old >> shift & 0xffff), F16)),
    };
    let value = soft::narrow(if adds { addend + sum } else { sum }, format, Round::Nearest) as u32;
    out[number][lane] |= value << shift;
}

/// Stores sums; those of unwritten memory count as unwritten: code that is not optimised makes such
/// multiplies and drops their sums.
fn store(c: &mut Core, d: u8, rows: &[Lanes], written: bool) {
    if d == 255 {
        return;
    }
    rows.iter().zip(d..).for_each(|(row, d)| c.write(Dst::R(d), row));
    if let (false, Some(shadow)) = (written, &mut c.warp.shadow) {
        shadow.forget(d, rows.len());
    }
}

/// Sums of 32-bit integers, of products that a function returns for two rows.
fn integers(o: Operands, saturates: bool, dot: impl Fn(&[u8], &[u8]) -> i64 + Send + Sync + 'static) -> Run {
    Box::new(move |c| {
        let Factors { a, b, written } = o.read(c)?;
        let adds = o.adds(c);
        let mut out = vec![[0u32; 32]; o.columns / 2];
        for (row, a) in a.chunks_exact(ROW_BYTES).enumerate() {
            for (column, b) in b.chunks_exact(ROW_BYTES).enumerate() {
                let (lane, number) = place(row, column);
                let addend = if adds { c.warp.registers[usize::from(o.c) + number][lane].cast_signed() } else { 0 };
                let sum = dot(a, b) + i64::from(addend);
                let clamped = sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
                out[number][lane] = if saturates { clamped as u32 } else { sum as u32 };
            }
        }
        store(c, o.d, &out, written);
        Ok(())
    })
}

fn integer(f: Fields) -> R<Run> {
    let (signed_a, signed_b) = (f.text("at") == ".S8", f.text("bt") == ".S8");
    let value = |v: u8, signed: bool| if signed { i64::from(v.cast_signed()) } else { i64::from(v) };
    Ok(integers(Operands::of(f)?, f.has("sat"), move |a, b| {
        a.iter().zip(b).map(|(a, b)| value(*a, signed_a) * value(*b, signed_b)).sum()
    }))
}

/// Counts of the ones that both have.
fn bits(f: Fields) -> R<Run> {
    if f.text("op") != ".AND.POPC" {
        return not_modelled(format!("BGMMA{}", f.text("op")));
    }
    Ok(integers(Operands::of(f)?, false, |a, b| a.iter().zip(b).map(|(a, b)| i64::from((a & b).count_ones())).sum()))
}
