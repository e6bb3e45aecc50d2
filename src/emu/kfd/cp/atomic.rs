//! Atomics that packets carry: the texture cache's operations with 32 and 64 bits.
//!
//! Source: `TC_OP` of the kernel driver's `vega10_enum.h`: a returning form 7..25, +32 for 64 bits, +64 for those that
//! return nothing. Left out: float minima and maxima.

use super::super::defect::Defect;
use super::{Cause, Site};

const OP_64: u32 = 0x20;
const OP_NO_RETURN: u32 = 0x40;

/// Old value → new value, or `None` for an operation that is not modelled.
fn apply(op: u32, old: u64, data: u64, compare: u64, bits: u32) -> Option<u64> {
    let mask = if bits == 64 { u64::MAX } else { u64::from(u32::MAX) };
    let signed = |v: u64| if bits == 64 { v.cast_signed() } else { i64::from((v as u32).cast_signed()) };
    Some(match op {
        7 => data,
        8 if old == compare & mask => data,
        8 => old,
        15 => old.wrapping_add(data),
        16 => old.wrapping_sub(data),
        17 => {
            if signed(data) < signed(old) {
                data
            } else {
                old
            }
        }
        18 => old.min(data & mask),
        19 => {
            if signed(data) > signed(old) {
                data
            } else {
                old
            }
        }
        20 => old.max(data & mask),
        21 => old & data,
        22 => old | data,
        23 => old ^ data,
        24 => {
            if old >= data & mask {
                0
            } else {
                old + 1
            }
        }
        25 => {
            if old == 0 || old > data & mask {
                data
            } else {
                old - 1
            }
        }
        _ => return None,
    })
}

/// Executes an atomic; with `until_compare` again and again until it found the compare value.
pub(super) fn run(
    site: Site<'_>,
    packet: &'static str,
    tc_op: u32,
    va: u64,
    operands: (u64, u64),
    until_compare: bool,
) -> Result<(), Cause> {
    let (data, compare) = operands;
    let wide = tc_op & OP_64 != 0;
    let bits = if wide { 64 } else { 32 };
    let op = tc_op & !(OP_64 | OP_NO_RETURN);
    if apply(op, 0, 0, 0, bits).is_none() {
        return Err(Cause::NotModelled { packet, what: format!("atomic operation {tc_op}") });
    }
    if site.gpu.has(Defect::AtomicLost) {
        return Ok(());
    }
    let vm = &site.gpu.vm;
    let once = || {
        let change = |old: u64| apply(op, old, data, compare, bits).unwrap_or(old);
        if wide {
            vm.update_u64(va, change)
        } else {
            vm.update_u32(va, |old| change(u64::from(old)) as u32).map(u64::from)
        }
    };
    if !until_compare {
        once()?;
        return Ok(());
    }
    let wanted = if wide { compare } else { compare & u64::from(u32::MAX) };
    site.wait_until(|| once().map(|old| old == wanted))
}

#[cfg(test)]
mod tests {
    use super::apply;

    #[test]
    fn operations_have_their_width_and_sign() {
        assert_eq!(apply(15, 1, u64::MAX, 0, 64), Some(0));
        assert_eq!(apply(8, 5, 9, 5, 32), Some(9));
        assert_eq!(apply(8, 5, 9, 6, 32), Some(5));
        assert_eq!(apply(17, 1, 0xffff_ffff, 0, 32), Some(0xffff_ffff), "-1 is the smaller one");
        assert_eq!(apply(18, 1, 0xffff_ffff, 0, 32), Some(1));
        assert_eq!((apply(24, 3, 3, 0, 32), apply(24, 2, 3, 0, 32)), (Some(0), Some(3)));
        assert_eq!((apply(25, 0, 3, 0, 32), apply(25, 2, 3, 0, 32)), (Some(3), Some(1)));
        assert_eq!(apply(1, 0, 0, 0, 32), None);
    }
}
