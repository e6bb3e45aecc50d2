//! Loads from LDS as nodes. A block ends before a load of which a lane is outside of LDS or not aligned.

use super::super::inst::{Inst, Operand};
use super::super::memory::{Kind, MemOp, Space};
use super::state::{LDS, State};
use crate::translate::{LANES, gathered, splat};
use doorbell_uop::{DType, Op, UOp};

/// Adds an instruction; `None` where it has no nodes.
pub(super) fn add(s: &mut State, i: &Inst, op: MemOp) -> Option<()> {
    if op.space != Space::Lds {
        return None;
    }
    // Byte offsets of the parts, and the dwords of each.
    let (offsets, words) = match op.kind {
        Kind::Load(width) if width.bytes.is_multiple_of(4) && !width.by_lane => {
            ([Some(i.mem.offset as u32), None], width.bytes / 4)
        }
        Kind::Load2 { bytes, stride } => {
            let at = |unit: u32| Some(unit.wrapping_mul(stride));
            ([at(i.mem.offset as u32), at(i.mem.offset1)], bytes / 4)
        }
        _ => return None,
    };
    let Operand::V(_) = i.mem.addr else { return None };
    s.operations += 1;
    let parts: Vec<u32> = offsets.into_iter().flatten().collect();
    let mut firsts = Vec::new();
    for half in 0..s.shape.halves {
        let base = s.register(i.mem.addr, 0, half)?;
        for offset in &parts {
            let at = base.binary(Op::Add, &splat(*offset));
            let last = at.binary(Op::Add, &splat(4 * words - 1));
            let size = s.lds_bytes().splat(LANES);
            let aligned = at.and(&splat(3)).equal(&splat(0));
            s.must_hold(half, &at.lt(&size).and(&last.lt(&size)).and(&aligned));
            firsts.push((half, at.binary(Op::Shr, &splat(2)).bitcast(DType::I32.vec(LANES))));
        }
    }
    s.require();
    let mut values = Vec::new();
    for (n, (half, first)) in firsts.iter().enumerate() {
        let part = (n % parts.len()) as u32;
        for k in 0..words {
            let after = part * words + k;
            let index = first.binary(Op::Add, &UOp::constant(DType::I32.vec(LANES), i64::from(k)));
            let index = if k == 0 { first.clone() } else { index };
            let old = s.register(i.dst, after, *half)?;
            let value = match s.active(*half) {
                None => gathered(LDS.into(), &index, None),
                Some(gate) => gathered(LDS.into(), &index, Some((&gate, &old))),
            };
            values.push((after, *half, value));
        }
    }
    for (after, half, value) in values {
        s.write(i.dst, after, half, value)?;
    }
    Some(())
}
