//! Loads of words from shared and global memory as nodes. A block ends before a load that it cannot do: one that is a
//! fault, and one of global memory outside of the range that the load was in before.

use super::super::memory::Size;
use super::super::operand::{Address, Dst, Fields, In, Src};
use super::integer::{joined, widened};
use super::state::{Bool, FIRST_RANGE, Load, RANGES, SHARED, SHARED_BYTES, State};
use crate::translate::{LANES, VIEWS, gathered};
use doorbell_uop::{DType, Op, UOp};

/// Adds an instruction; None where it has no nodes, and then nothing was written.
pub(super) fn add(s: &mut State, f: Fields) -> Option<()> {
    let mnemonic = f.0.form().mnemonic;
    if !matches!(mnemonic, "LDG" | "LDS") || s.lanes != LANES {
        return None;
    }
    let (d, m, size) = (f.register("d").ok()?, f.address("m").ok()?, Size::of(f.text("sz")));
    if f.psrc("pp").index != 7 || f.pdst("pu").index != 7 || size.len < 4 {
        return None;
    }
    if mnemonic == "LDS" { shared(s, d, &m, size.len as u32) } else { global(s, d, &m, size.len as u32) }
}

fn register(r: u8) -> In {
    In { src: Src::R(r), neg: false, abs: false, not: false, select: "" }
}

fn uniform(u: u8) -> In {
    In { src: Src::U(u), ..register(255) }
}

fn shared(s: &mut State, d: u8, m: &Address, len: u32) -> Option<()> {
    // Strict mode notes who has written what.
    if s.strict || m.wide && m.base != 255 {
        return None;
    }
    let mut plus = s.word(m.offset as u32);
    if let Some(u) = m.uniform {
        plus = plus.binary(Op::Add, &s.raw(&uniform(u))?);
    }
    let base = s.raw(&register(m.base))?;
    let base = if m.scale == 1 { base } else { base.binary(Op::Mul, &s.word(m.scale)) };
    let at = base.binary(Op::Add, &plus).and(&s.word(0xff_ffff));
    let last = at.binary(Op::Add, &s.word(len - 1));
    let inside = Bool::Lanes(last.lt(&s.extra(SHARED_BYTES).splat(LANES)));
    let aligned = Bool::Lanes(at.and(&s.word(len - 1)).equal(&s.word(0)));
    s.require(inside.and(aligned));
    read(s, d, u32::from(SHARED), &at, len)
}

fn global(s: &mut State, d: u8, m: &Address, len: u32) -> Option<()> {
    let k = s.loads.len();
    if k == RANGES {
        return None;
    }
    let low = s.raw(&register(m.base))?;
    let base = match m.wide && m.base != 255 {
        true => joined(&s.raw_pair(&register(m.base))?),
        false => widened(&low, false).binary(Op::Mul, &wide(i64::from(m.scale)).splat(LANES)),
    };
    let mut at = base.binary(Op::Add, &wide(m.offset).splat(LANES));
    if let Some(u) = m.uniform {
        at = at.binary(Op::Add, &joined(&s.raw_pair(&uniform(u))?));
    }
    s.loads.push(Load { number: s.count, address: *m, len_bytes: len });
    let pair = |s: &State, first: usize| {
        let up = s.extra(first + 1).cast(DType::U64).binary(Op::Shl, &wide(32));
        up.or(&s.extra(first).cast(DType::U64)).splat(LANES)
    };
    let (start, bound) = (pair(s, FIRST_RANGE + 4 * k), pair(s, FIRST_RANGE + 4 * k + 2));
    let within = at.binary(Op::Sub, &start);
    let inside = Bool::Lanes(within.lt(&bound));
    let offset = within.cast(DType::U32.vec(LANES));
    let aligned = Bool::Lanes(at.cast(DType::U32.vec(LANES)).and(&s.word(len - 1)).equal(&s.word(0)));
    s.require(inside.and(aligned));
    read(s, d, VIEWS + k as u32, &offset, len)
}

fn wide(v: i64) -> UOp {
    UOp::constant(DType::U64, v)
}

/// Reads words at a byte offset a lane, which is inside and aligned.
fn read(s: &mut State, d: u8, slot: u32, offset: &UOp, len: u32) -> Option<()> {
    let active = s.active();
    let first = offset.binary(Op::Shr, &s.word(2)).bitcast(DType::I32.vec(LANES));
    if d == 255 {
        return Some(());
    }
    for (k, d) in (0..len / 4).zip(d..=254) {
        let index = match k {
            0 => first.clone(),
            _ => first.binary(Op::Add, &UOp::constant(DType::I32.vec(LANES), i64::from(k))),
        };
        let old = s.raw(&register(d))?;
        let value = match &active {
            Bool::All(_) => gathered(slot, &index, None),
            Bool::Lanes(gate) => gathered(slot, &index, Some((gate, &old))),
        };
        s.write(Dst::R(d), value)?;
    }
    Some(())
}
