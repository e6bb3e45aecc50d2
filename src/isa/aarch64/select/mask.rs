//! Bool vectors as all-ones lanes; comparisons, logic and selection.
//!
//! A producer makes a mask in the layout of what it compared; a consumer requests the layout of what it selects, and
//! the mask is widened or narrowed then.

use super::super::IselError;
use super::super::rows;
use super::vector::precision;
use super::{Regs, Res, Select, Shape, Val, log, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{DType, Op, Scalar, UOp};

/// A signed integer type of so many bytes.
pub(super) fn int_of(elem: u16) -> Scalar {
    match elem {
        1 => Scalar::I8,
        2 => Scalar::I16,
        4 => Scalar::I32,
        _ => Scalar::I64,
    }
}

impl Select<'_> {
    /// A mask whose lanes, of so many bytes, are all a register that is 0 or 1.
    pub(super) fn mask_of_gpr(&mut self, bool: VReg, elem: u16, lanes: u16) -> Val {
        let zero = self.const_gpr(0);
        let ones = self.g(&rows::SUB[1], &[zero, bool], &[]);
        let r = self.v(&rows::DUP_G[3], &[ones], &[]);
        Val::M(std::iter::repeat_n(r, Shape::new(elem, lanes).parts as usize).collect(), elem)
    }

    /// All-ones lanes of `elem` bytes.
    pub(super) fn lane_masks(&mut self, v: Val, lanes: u16, elem: u16) -> Res<Regs> {
        let Val::M(regs, have) = v else { return Err(IselError::Internal("not lane masks")) };
        if have == elem { Ok(regs) } else { self.convert(regs, int_of(have), int_of(elem), lanes) }
    }

    /// A condition's mask for values of a shape, part by part.
    fn mask_for(&mut self, cond: &UOp, shape: &Shape) -> Res<Regs> {
        let v = match self.val(cond)? {
            Val::G(r) => self.mask_of_gpr(r, shape.elem, shape.lanes),
            v => v,
        };
        self.lane_masks(v, shape.lanes, shape.elem)
    }

    pub(super) fn compare_vector(&mut self, u: &UOp) -> Res<Val> {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let dt = a.dtype();
        match dt.scalar {
            Scalar::Bool => return self.logic(u),
            Scalar::F16 | Scalar::BF16 => return Err(unsupported(u, "half types are compared in f32")),
            _ => {}
        }
        let (x, y) = (self.parts(a)?, self.parts(b)?);
        let out: Regs = x.into_iter().zip(y).map(|(x, y)| self.compare_part(u.op(), x, y, dt.scalar)).collect();
        let elem = dt.scalar.size_bytes() as u16;
        if dt.lanes == 1 {
            let g = self.g(&rows::UMOV[log(elem)], &[out[0]], &[0]);
            return Ok(Val::G(self.low_bit(g)));
        }
        Ok(Val::M(out, elem))
    }

    /// Comparison of one part into lanes. Unordered floats are not equal and not less.
    fn compare_part(&mut self, op: Op, x: VReg, y: VReg, t: Scalar) -> VReg {
        let n = log(t.size_bytes() as u16);
        match (op, t.is_float()) {
            (Op::CmpLt, true) => self.v(&rows::FCMGT[precision(t)], &[y, x], &[]),
            (Op::CmpLt, false) if t.is_unsigned() => self.v(&rows::CMHI[n], &[y, x], &[]),
            (Op::CmpLt, false) => self.v(&rows::CMGT[n], &[y, x], &[]),
            (_, is_float) => {
                let row = if is_float { &rows::FCMEQ[precision(t)] } else { &rows::CMEQ[n] };
                let equal = self.v(row, &[x, y], &[]);
                if op == Op::CmpEq { equal } else { self.v(&rows::NOT, &[equal], &[]) }
            }
        }
    }

    pub(super) fn alu_mask(&mut self, u: &UOp) -> Res<Val> {
        match u.op() {
            Op::Neg => self.val(&u.src()[0]),
            _ => self.logic(u),
        }
    }

    /// Logic on bool vectors.
    fn logic(&mut self, u: &UOp) -> Res<Val> {
        let lanes = u.src()[0].dtype().lanes.max(u.dtype().lanes);
        let mut vals = Vec::new();
        for s in u.src() {
            vals.push(match self.val(s)? {
                Val::G(r) => self.mask_of_gpr(r, 1, lanes),
                v => v,
            });
        }
        // The layout of the first that is no constant: it most likely comes from a comparison near the consumer.
        let lead = u.src().iter().position(|s| s.op() != Op::Const).unwrap_or(0);
        let Val::M(_, elem) = vals[lead] else { return Err(unsupported(u, "not a mask")) };
        let cols: Vec<Regs> = vals.into_iter().map(|v| self.lane_masks(v, lanes, elem)).collect::<Res<_>>()?;
        let mut out = Regs::new();
        for k in 0..cols[0].len() {
            let regs: Regs = cols.iter().map(|c| c[k]).collect();
            out.push(self.logic_part(u, &regs)?);
        }
        Ok(Val::M(out, elem))
    }

    fn logic_part(&mut self, u: &UOp, r: &[VReg]) -> Res<VReg> {
        Ok(match u.op() {
            Op::And | Op::Mul => self.v(&rows::AND_V, &[r[0], r[1]], &[]),
            Op::Or | Op::Add | Op::Max => self.v(&rows::ORR_V, &[r[0], r[1]], &[]),
            Op::Xor | Op::Sub | Op::CmpNe => self.v(&rows::EOR_V, &[r[0], r[1]], &[]),
            Op::CmpEq => {
                let x = self.v(&rows::EOR_V, &[r[0], r[1]], &[]);
                self.v(&rows::NOT, &[x], &[])
            }
            Op::CmpLt => self.v(&rows::BIC_V, &[r[1], r[0]], &[]),
            Op::MulAcc => {
                let p = self.v(&rows::AND_V, &[r[0], r[1]], &[]);
                self.v(&rows::ORR_V, &[p, r[2]], &[])
            }
            Op::Where => self.blend(r[0], r[1], r[2]),
            _ => return Err(unsupported(u, "no mask form")),
        })
    }

    /// Selection between floats or vectors.
    pub(super) fn where_vector(&mut self, u: &UOp) -> Res<Val> {
        let s = u.src();
        let mask = self.mask_for(&s[0], &Shape::of(u.dtype()))?;
        let (a, b) = (self.parts(&s[1])?, self.parts(&s[2])?);
        Ok(Val::V((0..a.len()).map(|k| self.blend(mask[k], a[k], b[k])).collect()))
    }

    /// A mask as numbers: `one` (its bits) where true, zero elsewhere.
    pub(super) fn mask_to(&mut self, v: Val, dt: DType, one: u64) -> Res<Regs> {
        let elem = dt.scalar.size_bytes() as u16;
        let unit = self.const_vec(one, elem);
        let masks = self.lane_masks(v, dt.lanes, elem)?;
        Ok(masks.iter().map(|m| self.v(&rows::AND_V, &[*m, unit], &[])).collect())
    }

    /// Integers as a mask: true where not zero.
    pub(super) fn mask_from(&mut self, regs: &Regs, dt: DType) -> Val {
        let elem = dt.scalar.size_bytes() as u16;
        let mut out = Regs::new();
        for r in regs {
            let zero = self.v(&rows::CMEQ_0[log(elem)], &[*r], &[]);
            out.push(self.v(&rows::NOT, &[zero], &[]));
        }
        Val::M(out, elem)
    }
}
