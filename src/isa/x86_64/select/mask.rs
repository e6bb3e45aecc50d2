//! Bool vectors: mask registers on AVX-512, all-ones lanes on AVX2; comparisons, logic and selection.
//!
//! A producer makes a mask in the layout of what it compared; a consumer requests the layout of what it selects, and
//! the mask is cut, joined, widened or narrowed then.

use super::super::IselError;
use super::super::form::{Row, Width};
use super::super::mir::Inst;
use super::super::ops;
use super::super::rows::*;
use super::{In, Regs, Res, Select, Shape, Val, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{DType, Op, Scalar, UOp};

/// Mask operations of 8, 16, 32, 64 bits.
fn krow(per: u16, rows: [Row; 4]) -> Row {
    match per {
        0..=8 => rows[0],
        9..=16 => rows[1],
        17..=32 => rows[2],
        _ => rows[3],
    }
}

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
    /// A mask whose lanes are all the low bit of a register that is 0 or -1.
    pub(super) fn mask_of_gpr(&mut self, ones: VReg, lanes: u16) -> Res<Val> {
        if self.wide() {
            let per = lanes.min(64);
            let k = self.def(&KMOVQ_KG, Width::X, &[In::R(ones)])?;
            return Ok(Val::K(std::iter::repeat_n(k, lanes.div_ceil(per) as usize).collect(), per));
        }
        let x = self.vec_of_int(ones, true)?;
        let shape = Shape::of(1, lanes, self.arch);
        let r = self.def(&VPBROADCASTB, shape.width, &[In::R(x)])?;
        Ok(Val::M(std::iter::repeat_n(r, shape.parts as usize).collect(), 1))
    }

    /// Mask registers of `per` lanes each.
    pub(super) fn masks(&mut self, v: Val, lanes: u16, per: u16) -> Res<Regs> {
        let Val::K(mut regs, mut have) = v else { return Err(IselError::Internal("not a mask register")) };
        let per = per.min(lanes);
        while have > per {
            // Cut: the upper halves are shifted down.
            let half = have / 2;
            let mut cut = Regs::new();
            for r in regs {
                cut.push(r);
                let row = krow(have, [KSHIFTRB, KSHIFTRW, KSHIFTRD, KSHIFTRQ]);
                cut.push(self.def(&row, Width::X, &[In::R(r), In::I(i64::from(half))])?);
            }
            (regs, have) = (cut, half);
        }
        while have < per {
            let mut joined = Regs::new();
            for pair in regs.chunks(2) {
                joined.push(match *pair {
                    [low, high] => self.join_masks(low, high, have)?,
                    _ => pair[0],
                });
            }
            (regs, have) = (joined, have * 2);
        }
        Ok(regs)
    }

    fn join_masks(&mut self, low: VReg, high: VReg, have: u16) -> Res<VReg> {
        match have {
            8 => self.def(&KUNPCKBW, Width::X, &[In::R(high), In::R(low)]),
            16 => self.def(&KUNPCKWD, Width::X, &[In::R(high), In::R(low)]),
            32 => self.def(&KUNPCKDQ, Width::X, &[In::R(high), In::R(low)]),
            _ => {
                // Below 8 bits the bits above are cleared first.
                let up = self.def(&KSHIFTLB, Width::X, &[In::R(low), In::I(8 - i64::from(have))])?;
                let low = self.def(&KSHIFTRB, Width::X, &[In::R(up), In::I(8 - i64::from(have))])?;
                let high = self.def(&KSHIFTLB, Width::X, &[In::R(high), In::I(i64::from(have))])?;
                self.def(&KORB, Width::X, &[In::R(low), In::R(high)])
            }
        }
    }

    /// All-ones lanes of `elem` bytes.
    pub(super) fn lane_masks(&mut self, v: Val, lanes: u16, elem: u16) -> Res<Regs> {
        let Val::M(regs, have) = v else { return Err(IselError::Internal("not lane masks")) };
        if have == elem { Ok(regs) } else { self.convert(regs, int_of(have), int_of(elem), lanes) }
    }

    /// A condition's mask for values of a shape, part by part.
    pub(super) fn mask_for(&mut self, cond: &UOp, shape: &Shape) -> Res<Regs> {
        let v = self.val(cond)?;
        let v = match v {
            Val::G(r) => {
                let ones = self.bool_to_ones(r);
                self.mask_of_gpr(ones, shape.lanes)?
            }
            v => v,
        };
        let mut regs = if self.wide() {
            self.masks(v, shape.lanes, shape.per)?
        } else {
            self.lane_masks(v, shape.lanes, shape.elem)?
        };
        if regs.len() < shape.parts as usize {
            let all = regs[0];
            regs.resize(shape.parts as usize, all);
        }
        Ok(regs)
    }

    pub(super) fn compare_vector(&mut self, u: &UOp) -> Res<Val> {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let dt = a.dtype();
        match dt.scalar {
            Scalar::Bool => return self.logic(u),
            Scalar::F16 | Scalar::BF16 => return Err(unsupported(u, "half types are compared in f32")),
            _ => {}
        }
        let shape = self.shape(dt);
        let (x, y) = (self.parts(a)?, self.parts(b)?);
        let mut out = Regs::new();
        for (x, y) in x.into_iter().zip(y) {
            out.push(if dt.is_float() {
                let row = ops::compare_float(dt.scalar, dt.lanes == 1);
                self.def(&row, shape.width, &[In::R(x), In::R(y), In::I(ops::float_predicate(u.op()))])?
            } else if self.wide() {
                let row = ops::compare_int(dt.scalar).ok_or_else(|| unsupported(u, "no comparison"))?;
                let predicate = match u.op() {
                    Op::CmpLt => 1,
                    Op::CmpEq => 0,
                    _ => 4,
                };
                self.def(&row, shape.width, &[In::R(x), In::R(y), In::I(predicate)])?
            } else {
                self.compare_lanes(u.op(), x, y, dt.scalar, shape.width)?
            });
        }
        if dt.lanes == 1 {
            // A scalar's result is 0 or 1.
            let g = if self.wide() {
                self.def(&KMOVB_GK, Width::X, &[In::R(out[0])])?
            } else {
                self.int_of_vec(out[0], false)?
            };
            return Ok(Val::G(self.alu_ri(super::super::gpr::AND, g, 1, false)));
        }
        Ok(if self.wide() { Val::K(out, shape.per) } else { Val::M(out, shape.elem) })
    }

    /// Integer comparison into lanes (AVX2).
    fn compare_lanes(&mut self, op: Op, x: VReg, y: VReg, t: Scalar, w: Width) -> Res<VReg> {
        let elem = t.size_bytes() as u16;
        if op == Op::CmpLt {
            return self.greater(y, x, t, w);
        }
        let eq = self.def(&ops::sized(elem, [VPCMPEQB, VPCMPEQW, VPCMPEQD, VPCMPEQQ]), w, &[In::R(x), In::R(y)])?;
        if op == Op::CmpEq { Ok(eq) } else { self.not_lanes(eq, w) }
    }

    /// `x > y` lane by lane (AVX2); unsigned lanes have their sign bits flipped.
    pub(super) fn greater(&mut self, x: VReg, y: VReg, t: Scalar, w: Width) -> Res<VReg> {
        let elem = t.size_bytes() as u16;
        let (mut x, mut y) = (x, y);
        if t.is_unsigned() {
            let sign = self.const_vec(1 << (8 * elem - 1), elem, w)?;
            x = self.def(&VPXOR, w, &[In::R(x), In::R(sign)])?;
            y = self.def(&VPXOR, w, &[In::R(y), In::R(sign)])?;
        }
        self.def(&ops::sized(elem, [VPCMPGTB, VPCMPGTW, VPCMPGTD, VPCMPGTQ]), w, &[In::R(x), In::R(y)])
    }

    fn not_lanes(&mut self, m: VReg, w: Width) -> Res<VReg> {
        let ones = self.const_vec(u64::MAX, 8, w)?;
        self.def(&VPXOR, w, &[In::R(m), In::R(ones)])
    }

    pub(super) fn alu_mask(&mut self, u: &UOp) -> Res<Val> {
        match u.op() {
            Op::Neg => self.val(&u.src()[0]),
            _ => self.logic(u),
        }
    }

    /// Logic on bool vectors.
    fn logic(&mut self, u: &UOp) -> Res<Val> {
        let lanes = u.dtype().lanes;
        if let (Op::CmpNe | Op::Xor, [x, y]) = (u.op(), u.src())
            && y.as_const().is_some_and(|c| !c.is_zero())
        {
            return self.not(x, lanes);
        }
        let vals: Vec<Val> = u.src().iter().map(|s| self.val(s)).collect::<Res<_>>()?;
        // The layout of the first that is no constant: it most likely comes from a comparison near the consumer.
        let lead = u.src().iter().position(|s| s.op() != Op::Const).unwrap_or(0);
        let (mut cols, layout) = (Vec::new(), vals[lead].clone());
        for v in vals {
            cols.push(match layout {
                Val::K(_, per) => self.masks(v, lanes, per)?,
                Val::M(_, elem) => self.lane_masks(v, lanes, elem)?,
                _ => return Err(unsupported(u, "not a mask")),
            });
        }
        let mut out = Regs::new();
        for k in 0..cols[0].len() {
            let regs: Regs = cols.iter().map(|c| c[k]).collect();
            out.push(match layout {
                Val::K(_, per) => self.logic_k(u, &regs, per)?,
                Val::M(_, elem) => {
                    let w = Shape::of(elem, lanes, self.arch).width;
                    self.logic_m(u, &regs, w)?
                }
                _ => return Err(unsupported(u, "not a mask")),
            });
        }
        Ok(match layout {
            Val::K(_, per) => Val::K(out, per),
            Val::M(_, elem) => Val::M(out, elem),
            v => v,
        })
    }

    /// The opposite of a bool vector.
    fn not(&mut self, x: &UOp, lanes: u16) -> Res<Val> {
        Ok(match self.val(x)? {
            Val::K(regs, per) => {
                let row = krow(per, [KNOTB, KNOTW, KNOTD, KNOTQ]);
                Val::K(regs.iter().map(|r| self.def(&row, Width::X, &[In::R(*r)])).collect::<Res<_>>()?, per)
            }
            Val::M(regs, elem) => {
                let w = Shape::of(elem, lanes, self.arch).width;
                Val::M(regs.iter().map(|r| self.not_lanes(*r, w)).collect::<Res<_>>()?, elem)
            }
            _ => return Err(unsupported(x, "not a mask")),
        })
    }

    fn logic_k(&mut self, u: &UOp, r: &[VReg], per: u16) -> Res<VReg> {
        let and = krow(per, [KANDB, KANDW, KANDD, KANDQ]);
        let or = krow(per, [KORB, KORW, KORD, KORQ]);
        let mut two = |row: Row, a: VReg, b: VReg| self.def(&row, Width::X, &[In::R(a), In::R(b)]);
        match u.op() {
            Op::And | Op::Mul => two(and, r[0], r[1]),
            Op::Or | Op::Add | Op::Max => two(or, r[0], r[1]),
            Op::Xor | Op::Sub | Op::CmpNe => two(krow(per, [KXORB, KXORW, KXORD, KXORQ]), r[0], r[1]),
            Op::CmpEq => two(krow(per, [KXNORB, KXNORW, KXNORD, KXNORQ]), r[0], r[1]),
            Op::CmpLt => two(krow(per, [KANDNB, KANDNW, KANDND, KANDNQ]), r[0], r[1]),
            Op::MulAcc => {
                let p = two(and, r[0], r[1])?;
                two(or, p, r[2])
            }
            Op::Where => {
                let a = two(and, r[0], r[1])?;
                let b = two(krow(per, [KANDNB, KANDNW, KANDND, KANDNQ]), r[0], r[2])?;
                two(or, a, b)
            }
            _ => Err(unsupported(u, "no mask form")),
        }
    }

    fn logic_m(&mut self, u: &UOp, r: &[VReg], w: Width) -> Res<VReg> {
        let mut two = |row: Row, a: VReg, b: VReg| self.def(&row, w, &[In::R(a), In::R(b)]);
        match u.op() {
            Op::And | Op::Mul => two(VPAND, r[0], r[1]),
            Op::Or | Op::Add | Op::Max => two(VPOR, r[0], r[1]),
            Op::Xor | Op::Sub | Op::CmpNe => two(VPXOR, r[0], r[1]),
            Op::CmpEq => {
                let x = two(VPXOR, r[0], r[1])?;
                self.not_lanes(x, w)
            }
            Op::CmpLt => two(VPANDN, r[0], r[1]),
            Op::MulAcc => {
                let p = two(VPAND, r[0], r[1])?;
                two(VPOR, p, r[2])
            }
            Op::Where => self.def(&VPBLENDVB, w, &[In::R(r[2]), In::R(r[1]), In::R(r[0])]),
            _ => Err(unsupported(u, "no mask form")),
        }
    }

    /// Selection between floats or vectors.
    pub(super) fn where_vector(&mut self, u: &UOp) -> Res<Val> {
        let (dt, s) = (u.dtype(), u.src());
        let shape = self.shape(dt);
        if let Some(v) = self.lesser_or_greater(u)? {
            return Ok(v);
        }
        let mask = self.mask_for(&s[0], &shape)?;
        let (a, b) = (self.parts(&s[1])?, self.parts(&s[2])?);
        let mut out = Regs::new();
        for k in 0..a.len() {
            out.push(self.blend(mask[k], a[k], b[k], shape.width, shape.elem)?);
        }
        Ok(Val::V(out))
    }

    /// `a < b ? b : a` and `a < b ? a : b` as one instruction: `vmax` and `vmin` return their second operand for NaN
    /// and for equal zeros, which is what the comparison selects too.
    fn lesser_or_greater(&mut self, u: &UOp) -> Res<Option<Val>> {
        let (dt, s) = (u.dtype(), u.src());
        let [a, b] = s[0].src() else { return Ok(None) };
        let greater = (&s[1], &s[2]) == (b, a);
        if s[0].op() != Op::CmpLt || !(greater || (&s[1], &s[2]) == (a, b)) {
            return Ok(None);
        }
        let (first, second) = (&s[1], &s[2]);
        let row = if greater { ops::packed(Op::Max, dt.scalar) } else { ops::minimum(dt.scalar) };
        let w = self.shape(dt).width;
        let Some(row) = row.filter(|r| self.has(r, w)) else { return Ok(None) };
        let (x, y) = (self.parts(first)?, self.parts(second)?);
        let regs = x.iter().zip(&y).map(|(x, y)| self.def(&row, w, &[In::R(*x), In::R(*y)])).collect::<Res<Regs>>()?;
        Ok(Some(Val::V(regs)))
    }

    /// A mask as numbers: `one` (its bits) where true, zero elsewhere.
    pub(super) fn mask_to(&mut self, v: Val, dt: DType, one: u64) -> Res<Regs> {
        let shape = self.shape(dt);
        let unit = self.const_vec(one, shape.elem, shape.width)?;
        if self.wide() {
            let masks = self.masks(v, dt.lanes, shape.per)?;
            let row = ops::sized(shape.elem, [VMOVDQU8, VMOVDQU16, VMOVDQU32, VMOVDQU64]);
            let mut out = Regs::new();
            for k in masks {
                let dst = self.vec(shape.width);
                let inst: Inst = self.inst(&row, shape.width, dst, &[In::R(unit)])?.zero(k);
                self.put(inst);
                out.push(dst);
            }
            return Ok(out);
        }
        let masks = self.lane_masks(v, dt.lanes, shape.elem)?;
        masks.iter().map(|m| self.def(&VPAND, shape.width, &[In::R(*m), In::R(unit)])).collect()
    }

    /// Integers as a mask: true where not zero.
    pub(super) fn mask_from(&mut self, regs: &Regs, dt: DType) -> Res<Val> {
        let shape = self.shape(dt);
        if self.wide() {
            let row = ops::sized(shape.elem, [VPTESTMB, VPTESTMW, VPTESTMD, VPTESTMQ]);
            let out =
                regs.iter().map(|r| self.def(&row, shape.width, &[In::R(*r), In::R(*r)])).collect::<Res<Regs>>()?;
            return Ok(Val::K(out, shape.per));
        }
        let zero = self.const_vec(0, 8, shape.width)?;
        let mut out = Regs::new();
        for r in regs {
            out.push(self.compare_lanes(Op::CmpNe, *r, zero, dt.scalar, shape.width)?);
        }
        Ok(Val::M(out, shape.elem))
    }
}
