//! Operations over the lanes of a simdgroup, and its 8x8 matrices.

use super::alu::{Lanes, put};
use super::memory::Access;
use super::simd::Simd;
use super::{GroupMemory, Machine, half};
use crate::code::{Memory, Reduce, Row, Shuffle, Vote};
use crate::fault::Run;
use crate::memory::ones;
use crate::types::Scalar;

fn combine(op: Reduce, scalar: Scalar, a: u32, b: u32) -> u32 {
    let round = |v: f32| match scalar {
        Scalar::Half => half::round_half(v.to_bits()),
        Scalar::BFloat => half::round_bfloat(v.to_bits()),
        _ => v.to_bits(),
    };
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let (float, signed) = (scalar.is_float(), scalar.is_signed());
    match op {
        Reduce::Sum | Reduce::InclusiveSum | Reduce::ExclusiveSum if float => round(x + y),
        Reduce::Product | Reduce::InclusiveProduct | Reduce::ExclusiveProduct if float => round(x * y),
        Reduce::Sum | Reduce::InclusiveSum | Reduce::ExclusiveSum => a.wrapping_add(b),
        Reduce::Product | Reduce::InclusiveProduct | Reduce::ExclusiveProduct => a.wrapping_mul(b),
        Reduce::Min if float => x.min(y).to_bits(),
        Reduce::Max if float => x.max(y).to_bits(),
        Reduce::Min if signed => (a as i32).min(b as i32) as u32,
        Reduce::Max if signed => (a as i32).max(b as i32) as u32,
        Reduce::Min => a.min(b),
        Reduce::Max => a.max(b),
        Reduce::And => a & b,
        Reduce::Or => a | b,
        Reduce::Xor => a ^ b,
    }
}

pub(super) fn reduce(regs: &mut [Lanes], op: Reduce, (d, a, n): (Row, Row, u32), scalar: Scalar, mask: u32) {
    let one = if scalar.is_float() { 1_f32.to_bits() } else { 1 };
    for k in 0..n {
        let row = regs[(a + k) as usize];
        let mut out = [0; 32];
        match op {
            Reduce::InclusiveSum | Reduce::InclusiveProduct | Reduce::ExclusiveSum | Reduce::ExclusiveProduct => {
                let inclusive = matches!(op, Reduce::InclusiveSum | Reduce::InclusiveProduct);
                let product = matches!(op, Reduce::InclusiveProduct | Reduce::ExclusiveProduct);
                let mut sum = if product { one } else { 0 };
                for lane in ones(mask) {
                    let next = combine(op, scalar, sum, row[lane]);
                    out[lane] = if inclusive { next } else { sum };
                    sum = next;
                }
            }
            _ => {
                let all = ones(mask).map(|l| row[l]).reduce(|x, y| combine(op, scalar, x, y)).unwrap_or(0);
                out = [all; 32];
            }
        }
        put(&mut regs[(d + k) as usize], &out, mask);
    }
}

pub(super) fn shuffle(regs: &mut [Lanes], op: Shuffle, (d, a, lane, n): (Row, Row, Row, u32), mask: u32) {
    let by = regs[lane as usize];
    let first = mask.trailing_zeros() & 31;
    // A lane that asks for one that does not exist gets its own value.
    let from: [usize; 32] = std::array::from_fn(|l| {
        let (own, by) = (l as u32, by[l] & 0xffff);
        let from = match op {
            Shuffle::To => by,
            Shuffle::Up => own.wrapping_sub(by),
            Shuffle::Down => own + by,
            Shuffle::Xor => own ^ by,
            Shuffle::RotateUp => own.wrapping_sub(by) & 31,
            Shuffle::RotateDown => (own + by) & 31,
            Shuffle::First => first,
        };
        if from < 32 { from as usize } else { l }
    });
    for k in 0..n {
        let row = regs[(a + k) as usize];
        let out = from.map(|l| row[l]);
        put(&mut regs[(d + k) as usize], &out, mask);
    }
}

pub(super) fn vote(regs: &mut [Lanes], op: Vote, (d, c): (Row, Row), mask: u32) {
    let row = regs[c as usize];
    let yes = ones(mask).filter(|l| row[*l] != 0).fold(0_u32, |bits, l| bits | 1 << l);
    let low = match op {
        Vote::Any => [u32::from(yes != 0); 32],
        Vote::All => [u32::from(yes == mask); 32],
        Vote::Ballot => [yes; 32],
        Vote::Active => [mask; 32],
        Vote::First => std::array::from_fn(|l| u32::from(l as u32 == mask.trailing_zeros())),
    };
    put(&mut regs[d as usize], &low, mask);
    if matches!(op, Vote::Ballot | Vote::Active) {
        put(&mut regs[d as usize + 1], &[0; 32], mask);
    }
}

/// Row and column of an element of a lane.
fn place(lane: usize, element: usize) -> (usize, usize) {
    let row = (lane / 2) % 4 + 4 * (lane / 16);
    let column = 2 * (lane % 2) + 4 * ((lane / 8) % 2) + element;
    (row, column)
}

fn whole(regs: &[Lanes], a: Row) -> [[f32; 8]; 8] {
    let mut out = [[0.0; 8]; 8];
    for (element, lanes) in regs[a as usize..a as usize + 2].iter().enumerate() {
        for (lane, value) in lanes.iter().enumerate() {
            let (row, column) = place(lane, element);
            out[row][column] = f32::from_bits(*value);
        }
    }
    out
}

/// `d = a * b + c`; sums in f32, from the first product on, then rounded to the type of the result.
pub(super) fn multiply(regs: &mut [Lanes], (d, a, b, c): (Row, Row, Row, Row), round: Scalar) {
    let (a, b, mut sums) = (whole(regs, a), whole(regs, b), whole(regs, c));
    for (row, sums) in a.iter().zip(sums.iter_mut()) {
        for (x, right) in row.iter().zip(&b) {
            for (sum, y) in sums.iter_mut().zip(right) {
                *sum += x * y;
            }
        }
    }
    for (element, lanes) in regs[d as usize..d as usize + 2].iter_mut().enumerate() {
        for (lane, value) in lanes.iter_mut().enumerate() {
            let (row, column) = place(lane, element);
            let bits = sums[row][column].to_bits();
            *value = match round {
                Scalar::Half => half::round_half(bits),
                Scalar::BFloat => half::round_bfloat(bits),
                _ => bits,
            };
        }
    }
}

impl Simd {
    pub(super) fn matrix_memory(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (rows, p, args): (Row, Row, Row),
        kind: Memory,
        write: bool,
    ) -> Run<()> {
        self.need_all_lanes()?;
        if self.mask == 0 {
            return Ok(());
        }
        let base = self.pointers(p, 0);
        let wide = |simd: &Self, n: u32, lane: usize| {
            let row = (args + n) as usize;
            u64::from(simd.regs[row][lane]) | u64::from(simd.regs[row + 1][lane]) << 32
        };
        let size = u64::from(kind.bytes());
        for element in 0..2 {
            let mut at = base;
            for (lane, at) in at.iter_mut().enumerate() {
                let (mut row, mut column) = place(lane, element);
                if self.regs[args as usize + 6][lane] != 0 {
                    (row, column) = (column, row);
                }
                let (stride, x, y) = (wide(self, 0, lane), wide(self, 2, lane), wide(self, 4, lane));
                let index = y.wrapping_add(row as u64).wrapping_mul(stride).wrapping_add(x).wrapping_add(column as u64);
                *at = at.wrapping_add(index.wrapping_mul(size));
            }
            let reg = rows + element as u32;
            let access = Access { bytes: size as u32, align: size as u32, write };
            let values = self.regs[reg as usize];
            self.each_memory(m, &at, access, &mut |simd, target, lanes, offsets| {
                if write {
                    let packed = match kind {
                        Memory::Half => values.map(|v| half::half_bits(v).into()),
                        Memory::BFloat => values.map(|v| v >> 16),
                        _ => values,
                    };
                    simd.put_words(m, group, (target, lanes), offsets, size as u32, &packed)?;
                    return Ok(());
                }
                let mut out = [0; 32];
                simd.fetch_words(m, group, (target, lanes), offsets, size as u32, &mut out)?;
                let out = match kind {
                    Memory::Half => out.map(half::half_from_bits),
                    Memory::BFloat => out.map(|v| v << 16),
                    _ => out,
                };
                put(&mut simd.regs[reg as usize], &out, lanes);
                Ok(())
            })?;
        }
        Ok(())
    }
}
