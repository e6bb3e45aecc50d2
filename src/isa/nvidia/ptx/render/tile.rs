//! Tiles in shared memory: asynchronous copies (`cp.async`), and fragments loaded from rows (`ldmatrix`).
//!
//! A copy is asynchronous if it is one piece of 4, 8 or 16 bytes on both sides. A gate on the load makes the copy write
//! zeros (its source size becomes 0); a gate on the store guards the instruction.

use super::code::{Code, Opd, R, Reg};
use super::{Render, Res, Src, Val};
use doorbell_codegen::Program;
use doorbell_uop::{Arg, ConstVal, Op, UMap, UOp, USet};

/// Loads that are used only by copies.
pub(super) fn only_copied(program: &Program) -> USet {
    let mut copies: UMap<bool> = UMap::default();
    for u in &program.uops {
        let staged = u.op() == Op::Store && matches!(u.arg(), Arg::Stage(_));
        for s in u.src().iter().filter(|s| s.op() == Op::Load) {
            let only = copies.entry(s.clone()).or_insert(true);
            *only &= staged && u.src()[1] == *s;
        }
    }
    copies.into_iter().filter(|(_, only)| *only).map(|(u, _)| u).collect()
}

impl Render<'_> {
    /// Copies a part of a tile to shared memory.
    pub(super) fn copy_tile(&mut self, u: &UOp) -> Res<()> {
        let value = &u.src()[1];
        if !self.copied.contains(value) {
            return self.store(u);
        }
        if self.copy_later(u, value)? {
            self.in_flight = true;
            return Ok(());
        }
        let v = self.load(value)?;
        if let Some(p) = self.pos.get(value).copied() {
            self.vals[p as usize] = Some(v);
        }
        self.store(u)
    }

    /// One asynchronous copy; `false`: not possible for this access.
    fn copy_later(&mut self, u: &UOp, value: &UOp) -> Res<bool> {
        let (t, lanes) = (value.dtype().scalar, usize::from(value.dtype().lanes));
        let zeros = value.src().get(1).is_none_or(is_zero);
        let bytes = lanes * t.size_bytes();
        if !self.chip.has_sm80() || !self.aligned || !zeros || !matches!(bytes, 4 | 8 | 16) {
            return Ok(false);
        }
        let (to, from) = (self.access(&u.src()[0], lanes, t)?, self.access(&value.src()[0], lanes, t)?);
        let ([a], [b]) = (to.pieces.as_slice(), from.pieces.as_slice()) else { return Ok(false) };
        if a.count != lanes || b.count != lanes {
            return Ok(false);
        }
        let (done, read) = (self.gate(&to, 0), self.gate(&from, 0));
        let guard = match done {
            Some(Src::Bits(_)) => return Ok(true),
            Some(Src::Reg(g)) => Some((false, g)),
            None => None,
        };
        let mut ins =
            vec![Opd::Address(a.at.base, a.at.offset), Opd::Address(b.at.base, b.at.offset), Opd::Int(bytes as i64)];
        if let Some(read) = read.filter(|r| Some(*r) != done) {
            let size = self.choose(doorbell_uop::Scalar::U32, read, Src::Bits(bytes as u64), Src::Bits(0));
            ins.push(self.opd(doorbell_uop::Scalar::U32, size));
        }
        let name = if bytes == 16 { "cp.async.cg.shared.global" } else { "cp.async.ca.shared.global" };
        self.code.push(Code { name, guard, outs: vec![], tuple: false, ins });
        Ok(true)
    }

    pub(super) fn commit(&mut self, _: &UOp) -> Res<()> {
        self.issue_tma_copies();
        if self.in_flight {
            self.run("cp.async.commit_group", &[], vec![]);
        }
        Ok(())
    }

    /// Waits for copies before the barrier after which tiles are read.
    pub(super) fn await_copies(&mut self, u: &UOp) -> Res<()> {
        let Arg::Stage(n) = u.arg() else { return Ok(()) };
        if self.in_flight {
            self.run("cp.async.wait_group", &[], vec![Opd::Int(i64::from(*n))]);
        }
        self.await_products();
        Ok(())
    }

    /// A fragment: four matrices of eight rows of 16 bytes (or fewer).
    pub(super) fn load_matrix(&mut self, u: &UOp) -> Res<Val> {
        let (t, index, transposed) = (u.dtype().scalar, &u.src()[0], matches!(u.arg(), Arg::Transposed(true)));
        let size = t.size_bytes();
        let words = usize::from(u.dtype().lanes) * size / 4;
        let name = match (words, transposed) {
            (1, false) => "ldmatrix.sync.aligned.m8n8.x1.shared.b16",
            (2, false) => "ldmatrix.sync.aligned.m8n8.x2.shared.b16",
            (4, false) => "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
            (1, true) => "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16",
            (2, true) => "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16",
            (4, true) => "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
            _ => return Err(self.unsupported(u, "no fragment of this size")),
        };
        let base = self.memory(&index.src()[0])?;
        let at = self.address(&base, &index.src()[1], size)?;
        let outs: Vec<Reg> = (0..words).map(|_| self.reg(R)).collect();
        let ins = vec![Opd::Address(at.base, at.offset)];
        self.code.push(Code { name, guard: None, outs: outs.clone(), tuple: true, ins });
        let mut lanes = Val::new();
        for word in outs {
            match size {
                4 => lanes.push(word.into()),
                _ => lanes.extend(self.take_apart(word, t, 4 / size)),
            }
        }
        Ok(lanes)
    }
}

fn is_zero(u: &UOp) -> bool {
    let v = if u.op() == Op::Splat { &u.src()[0] } else { u };
    v.as_const().is_some_and(ConstVal::is_zero)
}
