//! Matrix instructions: WMMA of gfx11 and gfx12, MFMA of gfx942. Operands are gathered by the layouts of
//! docs/amd-isa.md 5.10 into plain matrices, multiplied in double (integers exactly), and scattered.
//!
//! Hardware's order of accumulation is not documented: results may differ in the last bits. Left out: the broadcast and
//! permutation modifiers of MFMA (cbsz, abid, blgp), which are named faults.

use super::Chip;
use super::fault::{FaultKind, R, fail};
use super::float::{self, half_to_f32, to_f32, to_half};
use super::inst::{Inst, Operand};
use super::lanes::Round;
use super::sem_float::fp8_formats;
use super::valu::check_even;
use super::wave::Wave;

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elem {
    F64,
    F32,
    Xf32,
    F16,
    Bf16,
    Fp8,
    Bf8,
    I32,
    I8,
    I4,
}

impl Elem {
    fn bits(self) -> usize {
        match self {
            Self::F64 => 64,
            Self::F32 | Self::Xf32 | Self::I32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::Fp8 | Self::Bf8 | Self::I8 => 8,
            Self::I4 => 4,
        }
    }

    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "f64" => Self::F64,
            "f32" => Self::F32,
            "xf32" => Self::Xf32,
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "fp8" => Self::Fp8,
            "bf8" => Self::Bf8,
            "i32" => Self::I32,
            "i8" | "iu8" => Self::I8,
            "iu4" => Self::I4,
            _ => return None,
        })
    }
}

/// Shape and types of one instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix {
    pub mfma: bool,
    pub m: usize,
    pub k: usize,
    pub blocks: usize,
    pub d: Elem,
    pub a: Elem,
    pub b: Elem,
}

/// Position of an element: lane, bit offset in the lane's register tuple.
type Place = (usize, usize);

impl Matrix {
    /// `v_wmma_f32_16x16x16_fp8_bf8`, `v_mfma_f32_32x32x4_2b_f16`.
    pub(crate) fn find(_chip: Chip, name: &str) -> Option<Self> {
        let (mfma, rest) = match name.strip_prefix("v_mfma_") {
            Some(rest) => (true, rest),
            None => (false, name.strip_prefix("v_wmma_")?),
        };
        let mut parts = rest.split('_');
        let d = Elem::of(parts.next()?)?;
        let shape: Vec<usize> = parts.next()?.split('x').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let mut next = parts.next()?;
        let mut blocks = 1;
        if let Some(n) = next.strip_suffix('b').and_then(|n| n.parse().ok()) {
            blocks = n;
            next = parts.next()?;
        }
        let a = Elem::of(next)?;
        let b = parts.next().map_or(Some(a), Elem::of)?;
        Some(Self { mfma, m: *shape.first()?, k: *shape.get(2)?, blocks, d, a, b })
    }

    /// Place of A(i, k) of a block; B is the same with j for i.
    fn source(&self, w: &Wave, e: Elem, block: usize, i: usize, k: usize) -> Place {
        let bits = e.bits();
        if self.mfma {
            if e == Elem::F64 {
                let lane = if self.blocks == 4 { i + 4 * block + 16 * k } else { i + 16 * k };
                return (lane, 0);
            }
            if self.blocks > 1 {
                return (i + self.m * block, k * bits);
            }
            let each = self.k * self.m / 64;
            return (i + self.m * (k / each), k % each * bits);
        }
        if w.chip == Chip::Gfx1100 {
            return (i, k * bits);
        }
        // gfx12: nothing is duplicated, the lanes beyond 16 hold other k.
        let groups = w.lanes() as usize / 16;
        let each = self.k / groups;
        if bits == 16 && groups == 2 {
            let (half, g) = (k >> 2 & 1, 2 * (k >> 3) + (k >> 1 & 1));
            return (i + 16 * half, 32 * g + 16 * (k & 1));
        }
        (i + 16 * (k / each), k % each * bits)
    }

    /// Place of C/D(i, j).
    fn result(&self, w: &Wave, block: usize, i: usize, j: usize) -> Place {
        if self.mfma {
            return match (self.d, self.m) {
                (Elem::F64, 4) => (j + 4 * block + 16 * i, 0),
                (Elem::F64, _) => (j + 16 * (i % 4), 64 * (i / 4)),
                (_, 32) => (j + 32 * (i / 4 % 2), 32 * (16 * block + 4 * (i / 8) + i % 4)),
                (_, 16) => (j + 16 * (i / 4), 32 * (4 * block + i % 4)),
                _ => (j + 4 * block, 32 * i),
            };
        }
        let wide = self.d.bits() == 32;
        let wave64 = !w.is_wave32();
        match (w.chip, wave64) {
            (Chip::Gfx1100, false) => (j + 16 * (i % 2), 32 * (i / 2)),
            (Chip::Gfx1100, true) => (j + 16 * (i % 4), 32 * (i / 4)),
            (_, false) => (j + 16 * (i / 8), i % 8 * if wide { 32 } else { 16 }),
            (_, true) => (j + 16 * (i / 8) + 32 * (i / 4 % 2), i % 4 * if wide { 32 } else { 16 }),
        }
    }
}

/// A register tuple's bits, read after checks.
struct Tuple {
    first: Option<u16>,
    constant: u64,
}

impl Tuple {
    fn open(w: &Wave, operand: Operand, dwords: usize, lanes: u64) -> R<Self> {
        match operand {
            Operand::V(n) => {
                check_even(w, n, dwords as u32)?;
                for r in 0..dwords as u32 {
                    w.readable(u32::from(n) + r, lanes)?;
                }
                Ok(Self { first: Some(n), constant: 0 })
            }
            other => Ok(Self { first: None, constant: w.scalar_operand(other, 1)? }),
        }
    }

    fn bits(&self, w: &Wave, (lane, bit): Place, len: usize) -> R<u64> {
        let Some(n) = self.first else { return Ok(self.constant) };
        let at = w.register_index(u32::from(n) + (bit / 32) as u32)?;
        let lo = u64::from(w.lane(at, lane));
        if len == 64 {
            let hi = w.register_index(u32::from(n) + (bit / 32) as u32 + 1)?;
            return Ok(lo | u64::from(w.lane(hi, lane)) << 32);
        }
        Ok(lo >> (bit % 32) & ((1 << len) - 1))
    }
}

fn value(chip: Chip, e: Elem, bits: u64, signed: bool) -> f64 {
    let (e4m3, e5m2) = fp8_formats(chip == Chip::Gfx942);
    let b = bits as u32;
    match e {
        Elem::F64 => f64::from_bits(bits),
        Elem::F32 => f32::from_bits(b).into(),
        // The products use the upper 19 bits.
        Elem::Xf32 => f32::from_bits(b & !0x1fff).into(),
        Elem::F16 => half_to_f32(b).into(),
        Elem::Bf16 => float::bf16_to_f32(b).into(),
        Elem::Fp8 => e4m3.widen(b),
        Elem::Bf8 => e5m2.widen(b),
        Elem::I32 => f64::from(b as i32),
        Elem::I8 if signed => f64::from(b as i8),
        Elem::I4 if signed => f64::from((b << 28) as i32 >> 28),
        Elem::I8 | Elem::I4 => f64::from(b),
    }
}

/// Negation of an f16 or bf16 element by the modifiers of its half.
fn sign_of(i: &Inst, slot: usize, k: usize) -> f64 {
    let bits = if k % 2 == 1 { i.neg_hi } else { i.neg };
    if bits >> slot & 1 == 1 { -1.0 } else { 1.0 }
}

pub(super) fn execute(w: &mut Wave, i: &Inst, m: Matrix) -> R<()> {
    if m.mfma && i.imm & if m.d == Elem::F64 { 0x7f } else { 0x3ff } != 0 {
        return fail(FaultKind::NotModelled { name: format!("{} with cbsz, abid or blgp", i.entry.name) });
    }
    if !m.mfma && w.exec() != w.full() {
        return fail(FaultKind::BadOperand { what: format!("EXEC {:#x} for WMMA", w.exec()) });
    }
    let lanes = w.full();
    let dwords = |e: Elem, count: usize| (e.bits() * count).div_ceil(32);
    let wave = w.lanes() as usize;
    // gfx11 duplicates A and B in wave32 and holds them four times in wave64.
    let copies = if m.mfma {
        1
    } else if w.chip == Chip::Gfx1100 {
        wave / 16
    } else {
        1
    };
    let each = m.m * m.k * m.blocks * copies / wave;
    let a = Tuple::open(w, i.src[0], dwords(m.a, each), lanes)?;
    let b = Tuple::open(w, i.src[1], dwords(m.b, each), lanes)?;
    let results = result_dwords(w, &m);
    let c = Tuple::open(w, i.src[2], results, lanes)?;
    let Operand::V(dst) = i.dst else { return Ok(()) };
    check_even(w, dst, results as u32)?;
    let mut out = Vec::with_capacity(m.blocks * m.m * m.m);
    for block in 0..m.blocks {
        multiply(w, i, &m, block, [&a, &b, &c], &mut out)?;
    }
    for (place, bits) in out {
        store(w, i, &m, dst, place, bits)?;
    }
    for r in 0..results as u32 {
        let at = w.writable(u32::from(dst) + r)?;
        w.set_known(at, lanes);
    }
    w.lane_operations += (2 * m.m * m.m * m.k * m.blocks / 64) as u64 * u64::from(w.lanes()) / 32;
    Ok(())
}

fn result_dwords(w: &Wave, m: &Matrix) -> usize {
    let count = m.m * m.m * m.blocks / w.lanes() as usize;
    match (m.d.bits(), w.chip) {
        (64, _) => 2 * count,
        (16, Chip::Gfx1201) => count / 2,
        _ => count,
    }
}

/// One block: reads A and B once, then every element of D.
fn multiply(
    w: &Wave,
    i: &Inst,
    m: &Matrix,
    block: usize,
    [a, b, c]: [&Tuple; 3],
    out: &mut Vec<(Place, u64)>,
) -> R<()> {
    let halves = matches!(m.a, Elem::F16 | Elem::Bf16) && !m.mfma;
    let signed = |slot: usize| m.mfma || i.neg >> slot & 1 == 1;
    let load = |t: &Tuple, e: Elem, slot: usize| -> R<Vec<f64>> {
        let mut v = Vec::with_capacity(m.m * m.k);
        for row in 0..m.m {
            for k in 0..m.k {
                let x = value(w.chip, e, t.bits(w, m.source(w, e, block, row, k), e.bits())?, signed(slot));
                v.push(if halves { x * sign_of(i, slot, k) } else { x });
            }
        }
        Ok(v)
    };
    let (av, bv) = (load(a, m.a, 0)?, load(b, m.b, 1)?);
    let negate_f64 = |slot: usize| if m.d == Elem::F64 && i.imm >> (7 + slot) & 1 == 1 { -1.0 } else { 1.0 };
    for row in 0..m.m {
        for col in 0..m.m {
            let place = m.result(w, block, row, col);
            let (ar, br) = (&av[row * m.k..(row + 1) * m.k], &bv[col * m.k..(col + 1) * m.k]);
            let at = half_place(w, i, m, place);
            let bits = c.bits(w, if c.first.is_some() { at } else { place }, m.d.bits())?;
            let c = value(w.chip, m.d, bits, true);
            if m.d == Elem::F64 {
                let (sa, sc) = (negate_f64(0) * negate_f64(1), negate_f64(2));
                let sum = ar.iter().zip(br).fold(sc * c, |s, (x, y)| (sa * x).mul_add(*y, s));
                out.push((place, sum.to_bits()));
                continue;
            }
            let c = if i.neg_hi >> 2 & 1 == 1 && !m.mfma { c.abs() } else { c };
            let c = if i.neg >> 2 & 1 == 1 && !m.mfma && halves { -c } else { c };
            let sum = ar.iter().zip(br).map(|(x, y)| x * y).sum::<f64>() + c;
            out.push((place, narrow(m.d, sum, i.clamp)));
        }
    }
    Ok(())
}

fn narrow(e: Elem, v: f64, clamp: bool) -> u64 {
    match e {
        Elem::F16 => to_half(v, Round::Nearest).into(),
        Elem::Bf16 => float::BF16.narrow(v, Round::Nearest, false).into(),
        // Sums of products of bytes are exact in a double; they wrap unless clamped.
        Elem::I32 if clamp => u64::from(v as i32 as u32),
        Elem::I32 => u64::from(v as i64 as u32),
        _ => to_f32(v, Round::Nearest).into(),
    }
}

/// On gfx11 a 16-bit result is in one half of a register, chosen by opsel's third bit.
fn half_place(w: &Wave, i: &Inst, m: &Matrix, (lane, bit): Place) -> Place {
    let high = m.d.bits() == 16 && w.chip == Chip::Gfx1100 && i.opsel & 4 != 0;
    (lane, bit + if high { 16 } else { 0 })
}

fn store(w: &mut Wave, i: &Inst, m: &Matrix, dst: u16, place: Place, bits: u64) -> R<()> {
    let (lane, bit) = half_place(w, i, m, place);
    let at = w.writable(u32::from(dst) + (bit / 32) as u32)?;
    match m.d.bits() {
        64 => {
            w.put_lane(at, lane, bits as u32);
            let hi = w.writable(u32::from(dst) + (bit / 32) as u32 + 1)?;
            w.put_lane(hi, lane, (bits >> 32) as u32);
        }
        32 => w.put_lane(at, lane, bits as u32),
        _ => {
            let keep = !(0xffff << (bit % 32));
            let old = w.lane(at, lane);
            w.put_lane(at, lane, old & keep | (bits as u32 & 0xffff) << (bit % 32));
        }
    }
    Ok(())
}
