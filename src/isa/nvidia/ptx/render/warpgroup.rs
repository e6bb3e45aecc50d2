//! Products of a warpgroup: `wgmma` on tiles in shared memory, and its synchronisation with the threads.
//!
//! The unit reads shared memory and accumulates into registers asynchronously. The products of an iteration form a
//! group: `wgmma.fence` before the first, `commit_group` at the loop's end. At the pipelined loop's barrier a thread
//! first makes its copies visible to the unit (`fence.proxy.async`) and waits for all groups but the newest; after the
//! loop it waits for all. Accumulators are updated in place, in the registers of the loop's Acc.
//!
//! A descriptor contains where a tile begins, the distance from one group of eight rows to the next, and (if rows are
//! steps) the distance from 64 lines to the next 64. Factors of one or four bytes always have rows along the steps,
//! because the unit can transpose only two-byte elements. Sources: PTX ISA 8.8, asynchronous warpgroup-level matrix
//! instructions: matrix descriptor, strides, swizzling modes.

use super::code::{Code, Opd, R, RD, Reg};
use super::{Render, Res, Src, Val};
use doorbell_codegen::Program;
use doorbell_uop::{Arg, Op, TileArg, UOp, USet, WmmaArg};

/// Bytes after which the swizzle pattern repeats; areas are aligned to this.
pub(super) const PATTERN: usize = 1024;
/// Unit of a descriptor's addresses and strides, in bytes.
const UNIT: i64 = 16;
/// Bits 63:62 of a descriptor: 128-byte swizzle.
const SWIZZLE_128: i64 = 1 << 30;

/// State of the asynchronous products.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Products {
    /// The program has such products.
    pub any: bool,
    /// There were products since the last commit.
    open: bool,
    /// There were products in the loop that have not been waited for.
    flying: bool,
}

impl Products {
    pub(crate) fn of(program: &Program) -> Products {
        Products { any: program.uops.iter().any(|u| unit_of(u).is_some()), ..Products::default() }
    }
}

/// The matrix unit of an asynchronous product.
pub(super) fn unit_of(u: &UOp) -> Option<&WmmaArg> {
    match u.arg() {
        Arg::Wmma(w) if u.op() == Op::Wmma && w.from_memory => Some(w),
        _ => None,
    }
}

/// Areas that the unit reads.
pub(super) fn areas(program: &Program) -> USet {
    let tiles = program.uops.iter().filter(|u| u.op() == Op::LoadMatrix && matches!(u.arg(), Arg::Tile(_)));
    tiles.map(|u| u.src()[0].src()[0].clone()).collect()
}

impl Render<'_> {
    /// One product; returns the accumulator registers.
    pub(super) fn group_product(&mut self, u: &UOp, unit: &WmmaArg) -> Res<Val> {
        if !unit.name.starts_with("wgmma.") || !self.chip.has_warpgroups() {
            return Err(self.unsupported(u, "the chip has no such matrix unit"));
        }
        let sums = self.val(&u.src()[2])?;
        let outs = sums.iter().map(|s| match s {
            Src::Reg(r) if self.mutable.contains(r) => Some(*r),
            _ => None,
        });
        let outs = outs.collect::<Option<Vec<Reg>>>().filter(|_| !self.loops.is_empty());
        let Some(outs) = outs else { return Err(self.unsupported(u, "a warpgroup's product outside of a loop's sum")) };
        let (a, by_steps_a) = self.descriptor(&u.src()[0])?;
        let (b, by_steps_b) = self.descriptor(&u.src()[1])?;
        if !std::mem::replace(&mut self.products.open, true) {
            self.run("wgmma.fence.sync.aligned", &[], vec![]);
        }
        self.products.flying = true;
        // The accumulate flag; signs for floats; for two-byte types, whether each factor is by lines or by steps.
        let mut ins = vec![a.into(), b.into(), Opd::Int(1)];
        if unit.acc.is_float() {
            ins.extend([Opd::Int(1), Opd::Int(1)]);
        }
        match unit.a.size_bytes() {
            2 => ins.extend([by_steps_a, by_steps_b].map(|t| Opd::Int(t.into()))),
            _ if by_steps_a || by_steps_b => {
                return Err(self.unsupported(u, "factors of other than two bytes whose rows are steps"));
            }
            _ => {}
        }
        self.code.push(Code { name: unit.name, guard: None, outs, tuple: true, ins });
        Ok(sums)
    }

    /// The descriptor of a tile, and whether its rows are steps.
    fn descriptor(&mut self, u: &UOp) -> Res<(Reg, bool)> {
        let (Op::LoadMatrix, Arg::Tile(tile)) = (u.op(), u.arg()) else {
            return Err(self.unsupported(u, "a warpgroup's unit reads shared memory: PIPE comes after TC"));
        };
        let size = u.dtype().scalar.size_bytes();
        let index = &u.src()[0];
        let base = self.memory(&index.src()[0])?;
        let at = self.address(&base, &index.src()[1], size)?;
        let start = self.in_units(at.base);
        let bytes = |elements: i64| elements * size as i64;
        let leading = if tile.by_steps { bytes(tile.panel.into()) / UNIT } else { 1 };
        let low = self.reg(R);
        self.run("add.s32", &[low], vec![start.into(), Opd::Int(at.offset / UNIT + (leading << 16))]);
        let high = self.upper_half((8 * TileArg::ROW_BYTES / UNIT) | SWIZZLE_128);
        let to = self.reg(RD);
        self.run("mov.b64", &[to], vec![Opd::Vector(vec![low.into(), high.into()])]);
        Ok((to, tile.by_steps))
    }

    /// An address of shared memory in the descriptor's units.
    fn in_units(&mut self, base: Reg) -> Reg {
        if let Some((known, _)) = self.units.get(&base) {
            return *known;
        }
        let to = self.reg(R);
        self.run("shr.u32", &[to], vec![base.into(), Opd::Int(4)]);
        self.units.insert(base, (to, self.loops.len()));
        to
    }

    /// The upper half that all descriptors share.
    fn upper_half(&mut self, bits: i64) -> Reg {
        if let Some(r) = self.upper_half {
            return r;
        }
        let to = self.reg(R);
        self.at_start("mov.b32", to, Opd::Int(bits));
        self.upper_half = Some(to);
        to
    }

    /// Before the pipelined loop's barrier: makes copies visible to the unit, and waits until the buffer that the
    /// second-last iteration has read may be overwritten.
    pub(super) fn await_products(&mut self) {
        if self.products.any {
            if self.tma.leave_copies() {
                self.run("fence.proxy.async.shared::cta", &[], vec![]);
            }
            self.run("wgmma.wait_group.sync.aligned", &[], vec![Opd::Int(1)]);
        }
    }

    /// At the end of an iteration.
    pub(super) fn commit_products(&mut self) {
        if std::mem::take(&mut self.products.open) {
            self.run("wgmma.commit_group.sync.aligned", &[], vec![]);
        }
    }

    /// After a loop, before its accumulators are read.
    pub(super) fn finish_products(&mut self) {
        if std::mem::take(&mut self.products.flying) {
            self.run("wgmma.wait_group.sync.aligned", &[], vec![Opd::Int(0)]);
        }
    }
}
