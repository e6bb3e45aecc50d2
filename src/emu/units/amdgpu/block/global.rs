//! Loads of dwords from global memory, by lanes and by the scalar unit, as nodes. A block ends before a load that is
//! not in the range of memory that it was in before, or of which a lane is not aligned.

use super::super::bus::{Access, Tlb};
use super::super::inst::{Inst, Operand};
use super::super::memory::{Kind, MemOp, Space};
use super::super::sem::Sem;
use super::super::wave::Wave;
use super::super::{smem, vmem};
use super::state::{State, joined};
use crate::translate::{DeviceView, LANES, VIEWS, gathered, range_words, splat};
use doorbell_uop::{DType, Op, Scalar, UOp};

/// The last scalar register that loads write here, and one more.
const SCALARS: u32 = 102;

/// A load of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Its number in the block.
    pub number: u32,
    pub len_bytes: u32,
}

/// Memory that a run's loads were in before: for each the first address, and the memory.
#[derive(Default)]
pub(in super::super) struct Ranges {
    epoch: u64,
    pub(super) starts: Vec<u64>,
    pub(super) views: Vec<Option<DeviceView>>,
}

impl Ranges {
    /// Room for so many loads; what was known is dropped when a mapping has changed.
    pub(super) fn prepare(&mut self, loads: usize, tlb: &Tlb) {
        if loads == 0 {
            return;
        }
        let epoch = tlb.bus_epoch();
        if epoch != self.epoch || self.views.len() != loads {
            (self.epoch, self.starts, self.views) = (epoch, vec![0; loads], vec![None; loads]);
        }
    }

    /// The words of a block's flags for some loads: the start of each range, and how many bytes of it an access may
    /// start at.
    pub(super) fn words(&self, first: usize, loads: &[Load], words: &mut [u32]) {
        for ((k, load), out) in (first..).zip(loads).zip(words.chunks_exact_mut(4)) {
            if let Some(view) = &self.views[k] {
                out.copy_from_slice(&range_words(self.starts[k], view, load.len_bytes));
            }
        }
    }

    /// Notes in which memory the load is that the wave is at.
    pub(super) fn note(&mut self, at: usize, w: &Wave, tlb: &mut Tlb, i: &Inst) {
        let Sem::Memory(op) = i.entry.sem else { return };
        let va = match op.space {
            Space::Scalar => smem::first_address(w, i),
            _ => vmem::first_address(w, i, op),
        };
        let Some(window) = va.and_then(|va| tlb.window(va, 4, Access::Read).ok()) else { return };
        let view = window.memory.view().filter(|view| view.len_bytes() <= 1 << 32);
        if let (Some(view), true) = (view, window.va_start.is_multiple_of(4)) {
            (self.starts[at], self.views[at]) = (window.va_start, Some(view));
        }
    }
}

/// Adds an instruction; `None` where it has no nodes.
pub(super) fn add(s: &mut State, i: &Inst, op: MemOp) -> Option<()> {
    let Kind::Load(width) = op.kind else { return None };
    if !width.bytes.is_multiple_of(4) || i.mem.to_lds {
        return None;
    }
    match op.space {
        Space::Global => by_lanes(s, i, width.bytes),
        Space::Scalar => scalar(s, i, width.bytes),
        _ => None,
    }
}

fn wide(v: i64) -> UOp {
    UOp::constant(DType::U64, v)
}

fn by_lanes(s: &mut State, i: &Inst, len_bytes: u32) -> Option<()> {
    let (m, words) = (&i.mem, len_bytes / 4);
    let slot = s.load(len_bytes)?;
    s.operations += 1;
    let mut firsts = Vec::new();
    for half in 0..s.shape.halves {
        let low = s.register(m.addr, 0, half)?;
        let base = match m.base {
            Operand::None | Operand::Null => joined(&[low, s.register(m.addr, 1, half)?]),
            o => {
                let base = joined(&[s.scalar_source(o, 0)?, s.scalar_source(o, 1)?]).splat(LANES);
                base.binary(Op::Add, &low.cast(DType::U64.vec(LANES)))
            }
        };
        let at = base.binary(Op::Add, &wide(m.offset.into()).splat(LANES));
        let (start, bound) = s.range(slot);
        let within = at.binary(Op::Sub, &start.splat(LANES));
        let offset = within.cast(DType::U32.vec(LANES));
        let aligned = offset.and(&splat(3)).equal(&splat(0));
        s.must_hold(half, &within.lt(&bound.splat(LANES)).and(&aligned));
        firsts.push(offset.binary(Op::Shr, &splat(2)).bitcast(DType::I32.vec(LANES)));
    }
    s.require();
    let mut values = Vec::new();
    for (half, first) in firsts.iter().enumerate() {
        for k in 0..words {
            let plus = UOp::constant(DType::I32.vec(LANES), i64::from(k));
            let index = if k == 0 { first.clone() } else { first.binary(Op::Add, &plus) };
            let old = s.register(i.dst, k, half)?;
            let active = s.active(half);
            values.push((k, half, gathered(VIEWS + slot as u32, &index, active.as_ref().map(|gate| (gate, &old)))));
        }
    }
    for (k, half, value) in values {
        s.write(i.dst, k, half, value)?;
    }
    Some(())
}

fn scalar(s: &mut State, i: &Inst, len_bytes: u32) -> Option<()> {
    let (m, words) = (&i.mem, len_bytes / 4);
    let Operand::S(first) = i.dst else { return None };
    if u32::from(first) + words > SCALARS {
        return None;
    }
    let slot = s.load(len_bytes)?;
    let base = joined(&[s.scalar_source(m.base, 0)?, s.scalar_source(m.base, 1)?]);
    let soffset = s.scalar_source(m.soffset, 0)?.cast(DType::U64);
    let at = base.binary(Op::Add, &soffset).binary(Op::Add, &wide(m.offset.into()));
    let (start, bound) = s.range(slot);
    let at = at.and(&wide(!3));
    let within = at.binary(Op::Sub, &start);
    s.require_scalar(&within.lt(&bound));
    let index = within.binary(Op::Shr, &wide(2)).bitcast(DType::of(Scalar::I64));
    let param = UOp::param(VIEWS + slot as u32, DType::U32, 1);
    let loaded = |k: u32| param.index(&index.binary(Op::Add, &UOp::constant(DType::I64, i64::from(k)))).load();
    let values: Vec<UOp> = (0..words).map(loaded).collect();
    for (n, value) in (first..).zip(values) {
        s.set_scalar(n, value)?;
    }
    Some(())
}
