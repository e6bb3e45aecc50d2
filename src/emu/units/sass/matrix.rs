//! Matrix multiplies of a warp: HMMA, QMMA, IMMA, BMMA, DMMA, and MOVM, which transposes.
//!
//! Fragments are those of the PTX ISA: lane `l` is of group `g = l / 4` and thread `t = l % 4`. Register `r` of A holds
//! row `g` (odd registers of shapes with 16 rows: `g + 8`), and with `n` elements a register columns from `t * n + (r /
//! 2) * 4n`; B holds column `g` likewise. Register `c` of the sum holds row `g + 8 (c / 2)`, column `2t + c % 2`; sums
//! of f16 lie two in a register. Products are exact; they are summed in double precision and rounded once, where the
//! chip truncates on the way. Which bits of the metadata of a sparse matrix belong to which row follows CUTLASS's order
//! of it; the PTX ISA shows it in figures alone.

use super::core::Core;
use super::fault::{R, not_modelled};
use super::lower::Run;
use super::operand::{Dst, Fields};
use super::pack;
use super::soft::{self, BF16, E4M3, E5M2, F16, F32, Format, Round};
use super::warp::Lanes;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    let mnemonic = f.0.form().mnemonic;
    if matches!(mnemonic, "HMMA" | "QMMA" | "IMMA" | "BMMA" | "DMMA") && f.psrc("pp").index != 7 {
        return not_modelled(format!("{mnemonic}{} with a predicate", f.text("sh")));
    }
    Ok(Some(match mnemonic {
        "HMMA" => half(f)?,
        "QMMA" => quarter(f)?,
        "IMMA" => integer(f)?,
        "BMMA" => bits(f)?,
        "DMMA" => double(f)?,
        "MOVM" => transpose(f)?,
        _ => return Ok(None),
    }))
}

/// Where the fragments are and how large the matrices.
#[derive(Clone, Copy)]
struct Shape {
    d: u8,
    a: u8,
    b: u8,
    c: u8,
    rows: usize,
    depth: usize,
    /// Bits of an element of A and B.
    bits: u32,
    /// Half of A is zeros that are not there.
    sparse: Option<Sparse>,
}

/// Which elements of A are present. Of every four, or pair of every four pairs with 4 bits, two are; of two with 32
/// bits one is: numbers of two bits each select them. A thread's word has them for rows `g` (low half) and `g + 8`, 16
/// bits along the depth; the selector chooses which threads of each four have the words.
#[derive(Clone, Copy)]
struct Sparse {
    words: u8,
    selector: usize,
}

impl Sparse {
    fn of(f: Fields) -> R<Option<Sparse>> {
        if f.0.form().name != "SP" {
            return Ok(None);
        }
        Ok(Some(Sparse { words: f.register("e")?, selector: f.bits("id") as usize }))
    }

    /// A number of a row that has `count` of them.
    fn number(self, c: &Core, row: usize, number: usize, count: usize) -> usize {
        let threads = count.div_ceil(8);
        let thread = (threads * self.selector + number / 8) % 4;
        let word = register(c, self.words, 0)[4 * (row % 8) + thread];
        (word >> (16 * (row / 8) + 2 * (number % 8)) & 3) as usize
    }

    /// The column of the element `k` of those that are there.
    fn column(self, c: &Core, s: &Shape, row: usize, k: usize) -> usize {
        match s.bits {
            32 => 2 * k + self.number(c, row, 2 * k, s.depth) / 2,
            4 => 8 * (k / 4) + 2 * self.number(c, row, k / 2, s.depth / 4) + k % 2,
            _ => 4 * (k / 2) + self.number(c, row, k, s.depth / 2),
        }
    }
}

impl Shape {
    fn of(f: Fields, bits: u32) -> R<Shape> {
        let digits = f.text("sh").replace(['.', 'x'], "");
        let (rows, depth) = match (digits.strip_prefix("168"), digits.strip_prefix("88")) {
            (Some(depth), _) => (16, depth),
            (None, Some(depth)) => (8, depth),
            _ => return not_modelled(format!("shape {digits}")),
        };
        let Ok(depth) = depth.parse() else { return not_modelled(format!("shape {digits}")) };
        let (register, sparse) = (|slot| f.register(slot), Sparse::of(f)?);
        if sparse.is_some() && rows == 8 {
            return not_modelled(format!("{}.SP{}", f.0.form().mnemonic, f.text("sh")));
        }
        Ok(Shape {
            d: register("d")?,
            a: register("a")?,
            b: register("b")?,
            c: register("c")?,
            rows,
            depth,
            bits,
            sparse,
        })
    }

    /// Elements of a register.
    fn each(&self) -> usize {
        (32 / self.bits) as usize
    }
}

/// A register of a fragment; zero if the operand is RZ.
fn register<'a>(c: &'a Core<'_>, first: u8, k: usize) -> &'a Lanes {
    &c.warp.registers[if first == 255 { 255 } else { usize::from(first) + k }]
}

/// Lane, register and place of element (`row`, `k`) of A, in matrices of `rows` rows.
fn place(s: &Shape, row: usize, k: usize) -> (usize, usize, u32) {
    let each = s.each();
    let (block, within) = (k / (4 * each), k % (4 * each));
    let lane = 4 * (row % 8) + within / each;
    let register = if s.rows == 16 { 2 * block + row / 8 } else { block };
    (lane, register, (within % each) as u32)
}

/// Elements of A (rows by depth) and of B (columns by depth) as bits.
fn elements(c: &Core, s: &Shape) -> (Vec<u32>, Vec<u32>) {
    let mask = if s.bits == 32 { u32::MAX } else { (1 << s.bits) - 1 };
    let of_b = Shape { rows: 8, ..*s };
    let read = |s: &Shape, first: u8, row: usize, k: usize| {
        let (lane, number, part) = place(s, row, k);
        register(c, first, number)[lane] >> (part * s.bits) & mask
    };
    let each = |s: &Shape, first: u8, rows: usize| {
        (0..rows * s.depth).map(|i| read(s, first, i / s.depth, i % s.depth)).collect()
    };
    let Some(sparse) = s.sparse else { return (each(s, s.a, s.rows), each(&of_b, s.b, 8)) };
    let kept = Shape { depth: s.depth / 2, ..*s };
    let mut a = vec![0; s.rows * s.depth];
    for (row, k) in (0..s.rows * kept.depth).map(|i| (i / kept.depth, i % kept.depth)) {
        a[row * s.depth + sparse.column(c, s, row, k)] = read(&kept, s.a, row, k);
    }
    (a, each(&of_b, s.b, 8))
}

/// Lane and register of element (`row`, `column`) of a sum of 32 bits.
fn sum_place(row: usize, column: usize) -> (usize, usize) {
    (4 * (row % 8) + column / 2, 2 * (row / 8) + column % 2)
}

fn half(f: Fields) -> R<Run> {
    let (format, bits) = match f.text("st") {
        ".BF16" => (BF16, 16),
        // The low 13 bits of a tf32 value are ignored.
        ".TF32" => (F32, 32),
        _ => (F16, 16),
    };
    let (s, wide) = (Shape::of(f, bits)?, f.text("dt") == ".F32");
    let (neg_a, neg_b) = (f.src("a")?.neg, f.src("b")?.neg);
    let value = move |v: u32, neg: bool| {
        let v = if format == F32 { f64::from(f32::from_bits(v & !0x1fff)) } else { soft::widen(v.into(), format) };
        if neg { -v } else { v }
    };
    Ok(floats(s, wide, move |v| value(v, neg_a), move |v| value(v, neg_b)))
}

/// QMMA: bytes of either format of eight bits.
fn quarter(f: Fields) -> R<Run> {
    let (s, wide) = (Shape::of(f, 8)?, f.text("dt") == ".F32");
    let value = |text: &str| {
        let format = if text == ".E5M2" { E5M2 } else { E4M3 };
        move |v: u32| pack::widen(v.into(), format)
    };
    Ok(floats(s, wide, value(f.text("at")), value(f.text("bt"))))
}

/// Sums of products of floats, in single precision or in f16.
fn floats(
    s: Shape,
    wide: bool,
    of_a: impl Fn(u32) -> f64 + Send + Sync + 'static,
    of_b: impl Fn(u32) -> f64 + Send + Sync + 'static,
) -> Run {
    Box::new(move |c| {
        let (a, b) = elements(c, &s);
        let a: Vec<f64> = a.into_iter().map(&of_a).collect();
        let b: Vec<f64> = b.into_iter().map(&of_b).collect();
        let mut out = vec![[0u32; 32]; if wide { s.rows / 4 } else { s.rows / 8 }];
        for (row, column) in (0..s.rows * 8).map(|i| (i / 8, i % 8)) {
            let products: f64 = (0..s.depth).map(|k| a[row * s.depth + k] * b[column * s.depth + k]).sum();
            let (lane, number) = sum_place(row, column);
            if wide {
                let addend = f64::from(f32::from_bits(register(c, s.c, number)[lane]));
                out[number][lane] = canonical(addend + products, F32);
            } else {
                let shift = 16 * (number % 2);
                let addend = soft::widen(u64::from(register(c, s.c, number / 2)[lane] >> shift & 0xffff), F16);
                out[number / 2][lane] |= canonical(addend + products, F16) << shift;
            }
        }
        store(c, s.d, &out);
        Ok(())
    })
}

fn canonical(v: f64, format: Format) -> u32 {
    soft::narrow(v, format, Round::Nearest) as u32
}

fn store(c: &mut Core, d: u8, rows: &[Lanes]) {
    if d != 255 {
        rows.iter().zip(d..).for_each(|(row, d)| c.write(Dst::R(d), row));
    }
}

/// Sums of 32-bit integers, of products that a function returns.
fn integers(s: Shape, saturates: bool, product: impl Fn(u32, u32) -> i64 + Send + Sync + 'static) -> Run {
    Box::new(move |c| {
        let (a, b) = elements(c, &s);
        let mut out = vec![[0u32; 32]; s.rows / 4];
        for (row, column) in (0..s.rows * 8).map(|i| (i / 8, i % 8)) {
            let (lane, number) = sum_place(row, column);
            let products: i64 = (0..s.depth).map(|k| product(a[row * s.depth + k], b[column * s.depth + k])).sum();
            let sum = i64::from(register(c, s.c, number)[lane].cast_signed()) + products;
            let limits = (i64::from(i32::MIN), i64::from(i32::MAX));
            out[number][lane] = if saturates { sum.clamp(limits.0, limits.1) as u32 } else { sum as u32 };
        }
        store(c, s.d, &out);
        Ok(())
    })
}

fn integer(f: Fields) -> R<Run> {
    let (at, bt) = (f.text("at"), f.text("bt"));
    let bits = if at.ends_with('4') { 4 } else { 8 };
    let value = move |v: u32, signed: bool| {
        if signed { i64::from((v << (32 - bits)).cast_signed() >> (32 - bits)) } else { i64::from(v) }
    };
    let (signed_a, signed_b) = (at.starts_with(".S"), bt.starts_with(".S"));
    let s = Shape::of(f, bits)?;
    Ok(integers(s, f.has("sat"), move |a, b| value(a, signed_a) * value(b, signed_b)))
}

/// Counts of the ones that both have, or that one has.
fn bits(f: Fields) -> R<Run> {
    let s = Shape::of(f, 1)?;
    match f.text("op") {
        ".AND.POPC" => Ok(integers(s, false, |a, b| i64::from(a & b))),
        ".XOR.POPC" => Ok(integers(s, false, |a, b| i64::from(a ^ b))),
        other => not_modelled(format!("BMMA{other}")),
    }
}

/// Each element is a pair of registers.
fn double(f: Fields) -> R<Run> {
    let s = Shape::of(f, 32)?;
    if !f.text("rnd").is_empty() {
        return not_modelled(format!("DMMA{}", f.text("rnd")));
    }
    let (a, b, e) = (f.src("a")?, f.src("b")?, f.src("c")?);
    let sign = |v: f64, i: super::operand::In| {
        let v = if i.abs { v.abs() } else { v };
        if i.neg { -v } else { v }
    };
    let value = |c: &Core, first: u8, number: usize, lane: usize| match first {
        255 => 0.0,
        first => f64::from_bits(c.warp.pair(first + 2 * number as u8, lane)),
    };
    Ok(Box::new(move |c| {
        let of_b = Shape { rows: 8, ..s };
        let mut out = vec![[0u64; 32]; s.rows / 4];
        for (row, column) in (0..s.rows * 8).map(|i| (i / 8, i % 8)) {
            let (lane, number) = sum_place(row, column);
            let mut sum = sign(value(c, s.c, number, lane), e);
            for k in 0..s.depth {
                let (la, ra, _) = place(&s, row, k);
                let (lb, rb, _) = place(&of_b, column, k);
                sum = sign(value(c, s.a, ra, la), a).mul_add(sign(value(c, s.b, rb, lb), b), sum);
            }
            out[number][lane] = sum.to_bits();
        }
        if s.d != 255 {
            out.iter().zip((s.d..).step_by(2)).for_each(|(row, d)| c.write_pairs(Dst::R(d), row));
        }
        Ok(())
    }))
}

/// An 8 by 8 matrix of halves, two in a register of each lane.
fn transpose(f: Fields) -> R<Run> {
    let (d, a) = (f.dst()?, f.src("a")?);
    if f.text("md") != ".MT88" {
        return not_modelled(format!("MOVM.16{}", f.text("md")));
    }
    Ok(Box::new(move |c| {
        let v = c.raw(&a)?;
        let half = |row: usize, column: usize| v[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
        let r = std::array::from_fn(|lane| {
            let (row, column) = (lane / 4, 2 * (lane % 4));
            half(column, row) | half(column + 1, row) << 16
        });
        c.write(d, &r);
        Ok(())
    }))
}
