//! Matrix units: tiles are gathered from the lanes of a wave, multiplied, and scattered again.

use super::program::malformed;
use super::{InterpError, Lanes};
use crate::uop::{Arg, ConstVal, Scalar, UOp, cast_const, from_bits};

/// `acc + a · b` for every wave of a workgroup of `threads` threads; `src` are the values of the three sources, one per
/// thread or one for all. Sums are exact in f64 and rounded once; those of integers wrap around.
pub(super) fn product(u: &UOp, src: &[Vec<Lanes>], threads: usize) -> Result<Vec<Lanes>, InterpError> {
    let (Arg::Wmma(w), [a, b, acc]) = (u.arg(), src) else { return Err(malformed(format!("{u:?} is no matrix unit"))) };
    let (wave, m, n, k) = (w.lanes as usize, w.m as usize, w.n as usize, w.k as usize);
    if !threads.is_multiple_of(wave) {
        return Err(malformed(format!("{u:?} in a workgroup of {threads} threads")));
    }
    let at = |v: &[Lanes], t: usize, e: usize| v[t.min(v.len() - 1)][e];
    let factor = |v: ConstVal| w.factor(element(v, w.a).as_f64());
    let mut out = Vec::with_capacity(threads);
    for first in (0..threads).step_by(wave) {
        let (mut ta, mut tb) = (vec![0.0; m * k], vec![0.0; n * k]);
        for lane in 0..wave {
            for e in 0..w.a_spread.elements() as usize {
                let (row, step) = w.a_spread.place(lane, e);
                ta[row * k + step] = factor(at(a, first + lane, e));
            }
            for e in 0..w.b_spread.elements() as usize {
                let (column, step) = w.b_spread.place(lane, e);
                tb[column * k + step] = factor(at(b, first + lane, e));
            }
        }
        for lane in 0..wave {
            let total = |e: usize| {
                let (row, column) = w.c_spread.place(lane, e);
                let products = (0..k).map(|s| ta[row * k + s] * tb[column * k + s]);
                let sum = at(acc, first + lane, e).as_f64() + products.sum::<f64>();
                cast_const(if w.acc.is_int() { ConstVal::Int(sum as i128) } else { ConstVal::Float(sum) }, w.acc)
            };
            out.push((0..w.c_spread.elements() as usize).map(total).collect());
        }
    }
    Ok(out)
}

/// An element of a factor; lowered programs have fp8 elements as bits.
fn element(v: ConstVal, t: Scalar) -> ConstVal {
    match v {
        ConstVal::Int(bits) if t.is_fp8() => from_bits(bits as u64, t),
        v => v,
    }
}
