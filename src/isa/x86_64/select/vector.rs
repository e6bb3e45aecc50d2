//! Arithmetic on floats and vectors, part by part.

use super::super::form::{Row, Width};
use super::super::mir::{Inst, Mem};
use super::super::ops;
use super::super::rows::*;
use super::{In, Regs, Res, Select, Shape, Val, const_of, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{ConstVal, DType, Op, Scalar, UOp, to_bits};

/// A vector operand: registers, or memory that the operation reads itself.
#[derive(Clone, Debug)]
pub(super) enum Src {
    Regs(Regs),
    Mem(Mem),
}

impl Src {
    /// The input of part k.
    pub(crate) fn part(&self, k: usize, shape: &Shape) -> In {
        match self {
            Src::Regs(r) => In::R(r[k]),
            Src::Mem(m) if m.broadcast => In::M(*m),
            Src::Mem(m) => In::M(m.plus(k as i32 * i32::from(shape.width.bytes()))),
        }
    }

    fn is_mem(&self) -> bool {
        matches!(self, Src::Mem(_))
    }
}

impl Select<'_> {
    /// A float's or vector's registers.
    pub(super) fn parts(&mut self, u: &UOp) -> Res<Regs> {
        match self.val(u)? {
            Val::V(r) => Ok(r),
            Val::G(r) => {
                // A scalar integer operand of a vector operation.
                let wide = u.dtype().scalar.size_bytes() == 8;
                Ok(Regs::from_slice(&[self.vec_of_int(r, wide)?]))
            }
            Val::K(..) | Val::M(..) => Err(unsupported(u, "a mask where numbers are wanted")),
            Val::T(_) => Err(unsupported(u, "a tile where vectors are wanted")),
        }
    }

    /// An operand, as memory if the plan folded it into its consumer.
    pub(super) fn src(&mut self, u: &UOp) -> Res<Src> {
        let p = self.pos.get(u).map(|p| *p as usize);
        if p.is_some_and(|p| self.plan.folded[p] && self.vals[p].is_none()) {
            let load = if u.op() == Op::Splat { &u.src()[0] } else { u };
            let mem = self.address(&load.src()[0])?;
            return Ok(Src::Mem(Mem { broadcast: u.op() == Op::Splat, ..mem }));
        }
        Ok(Src::Regs(self.parts(u)?))
    }

    pub(super) fn alu_vector(&mut self, u: &UOp) -> Res<Val> {
        let (dt, s) = (u.dtype(), u.src());
        let t = dt.scalar;
        match u.op() {
            Op::Where => return self.where_vector(u),
            Op::MulAcc if t.is_float() => return self.mul_acc(u),
            Op::CDiv | Op::CMod => return self.by_lanes(u),
            Op::Shl | Op::Shr => return self.shift_vector(u),
            _ => {}
        }
        if matches!(t, Scalar::F16 | Scalar::BF16) {
            return Err(unsupported(u, "half types are computed in f32"));
        }
        let shape = self.shape(dt);
        let (a, b) = (self.src(&s[0])?, s.get(1).map(|b| self.src(b)).transpose()?);
        let one = dt.lanes == 1;
        let Some(b) = b else {
            let Src::Regs(a) = a else { return Err(unsupported(u, "a memory operand")) };
            return a.iter().map(|a| self.unary_vector(u, *a, shape.width, one)).collect::<Res<Regs>>().map(Val::V);
        };
        let (a, b) = if a.is_mem() { (b, a) } else { (a, b) };
        match u.op() {
            Op::MulAcc => {
                let c = self.parts(&s[2])?;
                let p = self.binary(Op::Mul, dt, &a, &b)?;
                return self.binary(Op::Add, dt, &Src::Regs(p), &Src::Regs(c)).map(Val::V);
            }
            Op::Max if t.is_float() => return self.max_float(u, &a, &b),
            _ => {}
        }
        self.binary(u.op(), dt, &a, &b).map(Val::V)
    }

    /// A two-operand operation on all parts.
    pub(super) fn binary(&mut self, op: Op, dt: DType, a: &Src, b: &Src) -> Res<Regs> {
        let shape = self.shape(dt);
        let row = if dt.is_float() { ops::float(op, dt.scalar, dt.lanes == 1) } else { ops::packed(op, dt.scalar) };
        let row = row.filter(|r| self.has(r, shape.width));
        let mut out = Regs::new();
        for k in 0..shape.parts as usize {
            let In::R(x) = a.part(k, &shape) else {
                return Err(super::super::IselError::Internal("a memory operand on the left"));
            };
            let y = b.part(k, &shape);
            out.push(match (&row, op, dt.scalar.size_bytes()) {
                (Some(row), ..) => self.def(row, shape.width, &[In::R(x), y])?,
                (None, Op::Mul, 1) => self.mul_bytes(x, y, shape.width)?,
                (None, Op::Mul, 8) => self.mul_quads(x, y, shape.width)?,
                (None, Op::Max, 8) => self.max_quads(x, y, dt.scalar, shape.width)?,
                _ => {
                    return Err(super::super::IselError::Unsupported { op, dtype: dt, why: "no vector form" });
                }
            });
        }
        Ok(out)
    }

    fn unary_vector(&mut self, u: &UOp, a: VReg, w: Width, one: bool) -> Res<VReg> {
        let t = u.dtype().scalar;
        let ins: &[In] = if one { &[In::R(a), In::R(a)] } else { &[In::R(a)] };
        match (u.op(), t.is_float()) {
            (Op::Sqrt, true) => self.def(&ops::sqrt(t, one), w, ins),
            (Op::Trunc, true) => {
                let with_mode: Vec<In> = ins.iter().copied().chain([In::I(11)]).collect(); // toward zero, no exceptions
                self.def(&ops::round(t, one), w, &with_mode)
            }
            (Op::Recip, true) => {
                let elem = t.size_bytes() as u16;
                let unit = self.const_vec(to_bits(ConstVal::Float(1.0), t), elem, w)?;
                let row = ops::float(Op::FDiv, t, one).ok_or_else(|| unsupported(u, "no division"))?;
                self.def(&row, w, &[In::R(unit), In::R(a)])
            }
            (Op::Neg, true) => {
                let sign = self.const_vec(1 << (8 * t.size_bytes() - 1), t.size_bytes() as u16, w)?;
                self.def(if t == Scalar::F64 { &VXORPD } else { &VXORPS }, w, &[In::R(a), In::R(sign)])
            }
            (Op::Neg, false) => {
                let zero = self.const_vec(0, t.size_bytes() as u16, w)?;
                let row = ops::packed(Op::Sub, t).ok_or_else(|| unsupported(u, "no subtraction"))?;
                self.def(&row, w, &[In::R(zero), In::R(a)])
            }
            (Op::Trunc, false) => Ok(a),
            _ => Err(unsupported(u, "no vector form")),
        }
    }

    /// a·b + c by FMA: over c if nothing else reads it, else over a.
    fn mul_acc(&mut self, u: &UOp) -> Res<Val> {
        let (dt, s) = (u.dtype(), u.src());
        let shape = self.shape(dt);
        let (add, over) = ops::fma(dt.scalar, dt.lanes == 1);
        let (mut a, mut b, c) = (self.src(&s[0])?, self.src(&s[1])?, self.src(&s[2])?);
        if a.is_mem() {
            std::mem::swap(&mut a, &mut b);
        }
        let spare = |me: &Self, k: usize| {
            let p = me.pos.get(&s[k]).map(|p| *p as usize);
            s[k].op() != Op::Const && p.is_some_and(|p| me.plan.uses[p] == 1)
        };
        let over_a = c.is_mem()
            || (!b.is_mem() && !spare(self, 2) && s[2].op() != Op::Acc && (spare(self, 0) || s[2].op() == Op::Const));
        let mut out = Regs::new();
        for k in 0..shape.parts as usize {
            let (x, y, z) = (a.part(k, &shape), b.part(k, &shape), c.part(k, &shape));
            let (row, old, p, q) = if over_a { (&over, x, y, z) } else { (&add, z, x, y) };
            let In::R(old) = old else { return Err(unsupported(u, "two memory operands")) };
            let dst = self.copy(old);
            self.modify(row, shape.width, dst, &[p, q])?;
            out.push(dst);
        }
        Ok(Val::V(out))
    }

    /// NaN wins; of equal zeros the first. `vmax` returns its second operand in both cases, so the first goes there,
    /// and a NaN in the other is put back, unless that is a constant.
    fn max_float(&mut self, u: &UOp, a: &Src, b: &Src) -> Res<Val> {
        let (dt, s) = (u.dtype(), u.src());
        let (shape, t) = (self.shape(dt), dt.scalar);
        let number = |x: &UOp| x.op() == Op::Const && const_of(x).is_ok_and(|c| !c.as_f64().is_nan());
        let (a, b, safe) = if number(&s[0]) && !number(&s[1]) { (b, a, true) } else { (a, b, number(&s[1])) };
        let safe = safe || self.program.fast_math;
        let mut out = Regs::new();
        for k in 0..shape.parts as usize {
            let (In::R(x), In::R(y)) = (a.part(k, &shape), b.part(k, &shape)) else {
                return Err(unsupported(u, "a memory operand"));
            };
            out.push(self.max_part(t, x, y, shape.width, safe)?);
        }
        Ok(Val::V(out))
    }

    /// Maximum of one part; `safe`: b is never NaN.
    pub(super) fn max_part(&mut self, t: Scalar, a: VReg, b: VReg, w: Width, safe: bool) -> Res<VReg> {
        let row = if t == Scalar::F64 { VMAXPD } else { VMAXPS };
        let m = self.def(&row, w, &[In::R(b), In::R(a)])?;
        if safe {
            return Ok(m);
        }
        let cmp = ops::compare_float(t, false);
        let nan = self.def(&cmp, w, &[In::R(b), In::R(b), In::I(3)])?;
        self.blend(nan, b, m, w, t.size_bytes() as u16)
    }

    /// `if mask { a } else { b }` for one part; the mask is a k register or lanes of the element's size.
    pub(super) fn blend(&mut self, mask: VReg, a: VReg, b: VReg, w: Width, elem: u16) -> Res<VReg> {
        if self.wide() {
            let row = ops::sized(elem, [VPBLENDMB, VPBLENDMW, VPBLENDMD, VPBLENDMQ]);
            let dst = self.vec(w);
            let mut inst: Inst = self.inst(&row, w, dst, &[In::R(b), In::R(a)])?;
            inst.mask = Some(mask);
            self.put(inst);
            return Ok(dst);
        }
        let row: Row = match elem {
            4 => VBLENDVPS,
            8 => VBLENDVPD,
            _ => VPBLENDVB,
        };
        self.def(&row, w, &[In::R(b), In::R(a), In::R(mask)])
    }

    /// 8-bit products from 16-bit ones: even and odd bytes apart.
    fn mul_bytes(&mut self, x: VReg, y: In, w: Width) -> Res<VReg> {
        let In::R(y) = y else { return Err(super::super::IselError::Internal("bytes from memory")) };
        let even = self.def(&VPMULLW, w, &[In::R(x), In::R(y)])?;
        let (xh, yh) = (self.def(&VPSRLWI, w, &[In::R(x), In::I(8)])?, self.def(&VPSRLWI, w, &[In::R(y), In::I(8)])?);
        let odd = self.def(&VPMULLW, w, &[In::R(xh), In::R(yh)])?;
        let odd = self.def(&VPSLLWI, w, &[In::R(odd), In::I(8)])?;
        let low = self.const_vec(0x00ff, 2, w)?;
        let even = self.def(&VPAND, w, &[In::R(even), In::R(low)])?;
        self.def(&VPOR, w, &[In::R(even), In::R(odd)])
    }

    /// 64-bit products from three 32-bit ones (AVX2).
    fn mul_quads(&mut self, x: VReg, y: In, w: Width) -> Res<VReg> {
        let In::R(y) = y else { return Err(super::super::IselError::Internal("quads from memory")) };
        let (xh, yh) = (self.def(&VPSRLQI, w, &[In::R(x), In::I(32)])?, self.def(&VPSRLQI, w, &[In::R(y), In::I(32)])?);
        let (a, b) = (self.def(&VPMULUDQ, w, &[In::R(xh), In::R(y)])?, self.def(&VPMULUDQ, w, &[In::R(x), In::R(yh)])?);
        let cross = self.def(&VPADDQ, w, &[In::R(a), In::R(b)])?;
        let cross = self.def(&VPSLLQI, w, &[In::R(cross), In::I(32)])?;
        let low = self.def(&VPMULUDQ, w, &[In::R(x), In::R(y)])?;
        self.def(&VPADDQ, w, &[In::R(low), In::R(cross)])
    }

    /// 64-bit maximum by comparison (AVX2).
    fn max_quads(&mut self, x: VReg, y: In, t: Scalar, w: Width) -> Res<VReg> {
        let In::R(y) = y else { return Err(super::super::IselError::Internal("quads from memory")) };
        let more = self.greater(x, y, t, w)?;
        self.blend(more, x, y, w, 8)
    }

    /// Shifts of vectors: by an immediate if all counts are one constant, else lane by lane; 8-bit (and on AVX2 16-bit)
    /// lanes are widened for it.
    fn shift_vector(&mut self, u: &UOp) -> Res<Val> {
        let (dt, s) = (u.dtype(), u.src());
        let (t, shape) = (dt.scalar, self.shape(dt));
        let bits = 8 * t.size_bytes() as i64;
        let count = Self::known(&s[1]);
        let arithmetic = u.op() == Op::Shr && !t.is_unsigned();
        let count = count.map(|n| if arithmetic { n.clamp(0, bits - 1) } else { n.clamp(0, bits) });
        let imm = ops::shift_imm(u.op(), t).filter(|r| count.is_some() && self.has(r, shape.width));
        if let (Some(row), Some(n)) = (imm, count) {
            let a = self.parts(&s[0])?;
            return a
                .iter()
                .map(|a| self.def(&row, shape.width, &[In::R(*a), In::I(n)]))
                .collect::<Res<Regs>>()
                .map(Val::V);
        }
        let row = ops::packed(u.op(), t).filter(|r| self.has(r, shape.width));
        if let Some(row) = row {
            let (a, b) = (self.parts(&s[0])?, self.parts(&s[1])?);
            return a
                .iter()
                .zip(&b)
                .map(|(a, b)| self.def(&row, shape.width, &[In::R(*a), In::R(*b)]))
                .collect::<Res<Regs>>()
                .map(Val::V);
        }
        if bits == 64 {
            return self.by_lanes(u);
        }
        // Widen, shift, narrow. Counts are unsigned for the instruction: beyond the wide width the result is right too.
        let wide = match (bits, t.is_unsigned()) {
            (8 | 16, true) => Scalar::U32,
            _ => Scalar::I32,
        };
        let unsigned = match bits {
            8 => Scalar::U8,
            _ => Scalar::U16,
        };
        let (a, b) = (self.parts(&s[0])?, self.parts(&s[1])?);
        let a = self.convert(a, t, wide, dt.lanes)?;
        let b = self.convert(b, unsigned, wide, dt.lanes)?;
        let row = ops::packed(u.op(), wide).ok_or_else(|| unsupported(u, "no shift"))?;
        let w = self.shape(DType::of(wide).vec(dt.lanes)).width;
        let r = a.iter().zip(&b).map(|(a, b)| self.def(&row, w, &[In::R(*a), In::R(*b)])).collect::<Res<Regs>>()?;
        self.convert(r, wide, t, dt.lanes).map(Val::V)
    }

    /// An integer operation that only scalars have: lane by lane.
    pub(super) fn by_lanes(&mut self, u: &UOp) -> Res<Val> {
        let dt = u.dtype();
        let sources: Vec<(Regs, DType)> =
            u.src().iter().map(|s| Ok((self.parts(s)?, s.dtype()))).collect::<Res<_>>()?;
        let mut lanes = Vec::new();
        for k in 0..dt.lanes {
            let mut args = Vec::new();
            for (parts, from) in &sources {
                args.push(self.lane_int(parts, *from, k)?);
            }
            lanes.push(self.scalar_of(u, &args)?);
        }
        self.join_ints(&lanes, dt).map(Val::V)
    }

    /// One lane of an integer operation on registers: the node is rebuilt on placeholders for the lanes.
    fn scalar_of(&mut self, u: &UOp, args: &[VReg]) -> Res<VReg> {
        let srcs: Vec<UOp> = u.src().iter().enumerate().map(|(k, s)| stand_in(k, s.dtype().element())).collect();
        let one = UOp::new(u.op(), u.dtype().element(), srcs.clone(), u.arg().clone());
        for (s, r) in srcs.iter().zip(args) {
            self.bind(s, Val::G(*r));
        }
        match self.alu_scalar_int(&one)? {
            Val::G(r) => Ok(r),
            _ => Err(unsupported(u, "no scalar form")),
        }
    }
}

/// A leaf that represents a lane's register.
fn stand_in(k: usize, dt: DType) -> UOp {
    UOp::new(Op::Special, dt, [], doorbell_uop::Arg::Str(format!("lane operand {k}").into()))
}
