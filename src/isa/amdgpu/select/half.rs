//! f16 arithmetic: two lanes an instruction.
//!
//! The lanes of a vector are taken in pairs, each pair one register: as it was loaded, or packed first. An instruction
//! selects which half of each source makes which half of the result, so a lane used for both costs nothing. Results
//! stay packed and are stored as they are; a single lane uses the low half. The NaN-propagating maximum is gfx12's
//! alone; elsewhere it is computed in f32.

use super::super::{Op as Mnemonic, Operand, op};
use super::mir::{Code, Opd, Part};
use super::{Chip, Res, Select, Src, Val};
use doorbell_uop::{Op, Scalar, UOp};
use smallvec::SmallVec;

/// The inline constant.
const ONE: Operand = Operand::Float(1.0);

/// A source's half for each half of the result.
type Pair = [Src; 2];

impl Select<'_> {
    /// The packed instruction of an operation on f16.
    fn packed_op(&self, op: Op) -> Option<Mnemonic> {
        match op {
            Op::Add | Op::Sub => Some(op::V_PK_ADD_F16),
            Op::Mul => Some(op::V_PK_MUL_F16),
            Op::MulAcc => Some(op::V_PK_FMA_F16),
            Op::Neg => Some(op::V_XOR_B32),
            Op::Max if self.chip() == Chip::Gfx1201 => Some(op::V_PK_MAXIMUM_F16),
            Op::Max if self.program.fast_math => Some(op::V_PK_MAX_F16),
            _ => None,
        }
    }

    /// Whether a node is done two lanes at a time.
    pub(super) fn is_packed(&self, u: &UOp) -> bool {
        u.dtype().scalar == Scalar::F16 && self.packed_op(u.op()).is_some()
    }

    /// An elementwise operation on a vector of f16.
    pub(super) fn in_pairs(&mut self, u: &UOp) -> Res<Val> {
        let sources: SmallVec<[Val; 3]> = u.src().iter().map(|s| self.val(s)).collect::<Res<_>>()?;
        let lanes = usize::from(u.dtype().lanes);
        let mut out = Val::with_capacity(lanes);
        let mut made: Vec<(SmallVec<[Pair; 3]>, Part)> = Vec::new();
        for first in (0..lanes).step_by(2) {
            let last = (first + 1).min(lanes - 1);
            let pairs: SmallVec<[Pair; 3]> =
                sources.iter().map(|v| [first, last].map(|k| v[k.min(v.len() - 1)])).collect();
            // Lanes of a splat are computed once.
            let word = match made.iter().find(|m| m.0 == pairs) {
                Some(same) => same.1,
                None => self.half_pair(u.op(), &pairs, u)?,
            };
            made.push((pairs, word));
            if last == first {
                out.push(Src::Part(word));
            } else {
                out.extend([0, 16].map(|shift| Src::Packed { word, shift, bits: 16 }));
            }
        }
        Ok(out)
    }

    /// An operation on one lane of f16.
    pub(super) fn half_op(&mut self, op: Op, a: &[Src], u: &UOp) -> Res<Src> {
        if op == Op::Max && self.packed_op(op).is_none() {
            let larger = self.without_home(|s| {
                let (x, y) = (s.cast(Scalar::F16, Scalar::F32, a[0])?, s.cast(Scalar::F16, Scalar::F32, a[1])?);
                s.alu_op(Op::Max, Scalar::F32, &[x, y], u)
            })?;
            return self.cast(Scalar::F32, Scalar::F16, larger);
        }
        let pairs: SmallVec<[Pair; 3]> = a.iter().map(|s| [*s, *s]).collect();
        self.without_home(|s| s.half_pair(op, &pairs, u)).map(Src::Part)
    }

    /// One instruction on a pair of lanes.
    fn half_pair(&mut self, op: Op, pairs: &[Pair], u: &UOp) -> Res<Part> {
        let Some(code) = self.packed_op(op) else { return Err(self.unsupported(u, "f16 computes this in f32")) };
        let to = self.v_part(1);
        if op == Op::Neg {
            let word = self.pack(&pairs[0], Scalar::F16, None)?;
            self.v_to(code, to, &[Src::Bits(0x8000_8000), word])?;
            return Ok(to);
        }
        let mut code = Code::new(code, &[to.into()]);
        let (mut low, mut high) = (0, 0);
        for (k, pair) in pairs.iter().enumerate() {
            let (opd, [l, h]) = self.half_source(*pair)?;
            code.opds.push(opd);
            low |= l << k;
            high |= h << k;
        }
        (code.mods.op_sel, code.mods.op_sel_hi) = (low, Some(high));
        if op == Op::Sub {
            (code.mods.neg, code.mods.neg_hi) = (2, 2);
        }
        self.run(code)?;
        Ok(to)
    }

    /// A register with both lanes, and which of its halves they are.
    fn half_source(&mut self, pair: Pair) -> Res<(Opd, [u8; 2])> {
        let place = |s: Src| match s {
            Src::Packed { word, shift, .. } => Some((word, shift / 16)),
            Src::Part(p) => Some((p, 0)),
            Src::Bits(_) => None,
        };
        if let [Some((a, low)), Some((b, high))] = pair.map(place)
            && a == b
        {
            return Ok((a.into(), [low, high]));
        }
        match self.pack(&pair, Scalar::F16, None)? {
            Src::Bits(0) => Ok((0.into(), [0, 0])),
            Src::Bits(b) => Ok((self.const_reg(b, 1, super::mir::SGPR)?.into(), [0, 1])),
            word => Ok((self.opd(word), [0, 1])),
        }
    }

    /// The high half of a register in f32.
    pub(super) fn high_half_to_f32(&mut self, word: Part) -> Res<Src> {
        let to = self.result(1);
        let mut code = Code::new(op::V_FMA_MIX_F32, &[to.into(), word.into(), ONE.into(), 0.into()]);
        (code.mods.op_sel, code.mods.op_sel_hi, code.mods.neg) = (1, Some(1), 4);
        self.run(code)?;
        Ok(Src::Part(to))
    }

    /// Floats rounded to f16, each into its half of a register.
    pub(super) fn round_to_halves(&mut self, u: &UOp) -> Res<Val> {
        let lanes = self.plain(&u.src()[0])?;
        let mut out = Val::with_capacity(lanes.len());
        for pair in lanes.chunks(2) {
            let to = self.v_part(1);
            self.v_to(op::V_CVT_F16_F32, to, &pair[..1])?;
            let [low, high] = *pair else {
                out.push(Src::Part(to));
                continue;
            };
            if low == high {
                out.extend([Src::Part(to); 2]);
                continue;
            }
            // high * 1 - 0 into the high half, the low one stays.
            let mut code = Code::new(op::V_FMA_MIXHI_F16, &[to.into(), self.opd(high), ONE.into(), 0.into()]);
            (code.mods.op_sel_hi, code.mods.neg) = (Some(0), 4);
            self.run(code)?;
            out.extend([0, 16].map(|shift| Src::Packed { word: to, shift, bits: 16 }));
        }
        Ok(out)
    }
}
