//! Arithmetic on floats and vectors, part by part. One float is lane 0.

use super::super::mir::{Inst, What};
use super::super::rows;
use super::{Regs, Res, Select, Shape, Val, const_bits, const_of, log, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{ConstVal, DType, Op, Scalar, UOp, to_bits};

/// The index of a float type's rows.
pub(super) fn precision(t: Scalar) -> usize {
    usize::from(t == Scalar::F64)
}

impl Select<'_> {
    /// A float's or vector's registers.
    pub(super) fn parts(&mut self, u: &UOp) -> Res<Regs> {
        match self.val(u)? {
            Val::V(r) => Ok(r),
            Val::G(r) => Ok(Regs::from_slice(&[self.vec_of_int(r)])),
            Val::M(..) => Err(unsupported(u, "a mask where numbers are wanted")),
        }
    }

    pub(super) fn alu_vector(&mut self, u: &UOp) -> Res<Val> {
        let (dt, s) = (u.dtype(), u.src());
        let t = dt.scalar;
        match u.op() {
            Op::Where => return self.where_vector(u),
            Op::CDiv | Op::CMod => return self.by_lanes(u),
            Op::Shl | Op::Shr => return self.shift_vector(u),
            _ => {}
        }
        if matches!(t, Scalar::F16 | Scalar::BF16) {
            return Err(unsupported(u, "half types are computed in f32"));
        }
        let sources: Vec<Regs> = s.iter().map(|s| self.parts(s)).collect::<Res<_>>()?;
        let mut out = Regs::new();
        for k in 0..sources[0].len() {
            let x = sources[0][k];
            out.push(match sources[..] {
                [_] => self.unary(u, x)?,
                [_, ref b] if u.op() == Op::Max && t.is_float() => {
                    let safe = self.program.fast_math || is_number(&s[1]);
                    self.max_float(t, x, b[k], safe)
                }
                [_, ref b] => self.binary(u.op(), dt, x, b[k])?,
                [_, ref b, ref c] if t.is_float() => {
                    let dst = self.copy(c[k]);
                    self.modify(&rows::FMLA[precision(t)], dst, &[x, b[k]], &[]);
                    dst
                }
                [_, ref b, ref c] => {
                    let p = self.binary(Op::Mul, dt, x, b[k])?;
                    self.binary(Op::Add, dt, p, c[k])?
                }
                _ => return Err(unsupported(u, "no vector form")),
            });
        }
        Ok(Val::V(out))
    }

    /// A two-operand operation on one part.
    pub(super) fn binary(&mut self, op: Op, dt: DType, a: VReg, b: VReg) -> Res<VReg> {
        let (t, n) = (dt.scalar, log(dt.scalar.size_bytes() as u16));
        let row = if t.is_float() {
            let p = precision(t);
            match op {
                Op::Add => &rows::FADD[p],
                Op::Sub => &rows::FSUB[p],
                Op::Mul => &rows::FMUL[p],
                Op::FDiv => &rows::FDIV[p],
                Op::Max => return Ok(self.max_float(t, a, b, self.program.fast_math)),
                _ => return Err(no_form(op, dt)),
            }
        } else {
            match op {
                Op::Add => &rows::ADD_V[n],
                Op::Sub => &rows::SUB_V[n],
                Op::Mul if n < 3 => &rows::MUL_V[n],
                Op::Mul => return Ok(self.mul_doublewords(a, b)),
                Op::Max if n < 3 && t.is_unsigned() => &rows::UMAX[n],
                Op::Max if n < 3 => &rows::SMAX[n],
                Op::Max => {
                    let row = if t.is_unsigned() { &rows::CMHI[3] } else { &rows::CMGT[3] };
                    let more = self.v(row, &[a, b], &[]);
                    return Ok(self.blend(more, a, b));
                }
                Op::And => &rows::AND_V,
                Op::Or => &rows::ORR_V,
                Op::Xor => &rows::EOR_V,
                _ => return Err(no_form(op, dt)),
            }
        };
        Ok(self.v(row, &[a, b], &[]))
    }

    fn unary(&mut self, u: &UOp, a: VReg) -> Res<VReg> {
        let t = u.dtype().scalar;
        let (p, n) = (precision(t), log(t.size_bytes() as u16));
        Ok(match (u.op(), t.is_float()) {
            (Op::Sqrt, true) => self.v(&rows::FSQRT[p], &[a], &[]),
            (Op::Trunc, true) => self.v(&rows::FRINTZ[p], &[a], &[]),
            (Op::Neg, true) => self.v(&rows::FNEG[p], &[a], &[]),
            (Op::Recip, true) => {
                let one = self.const_vec(to_bits(ConstVal::Float(1.0), t), t.size_bytes() as u16);
                self.v(&rows::FDIV[p], &[one, a], &[])
            }
            (Op::Neg, false) => self.v(&rows::NEG_V[n], &[a], &[]),
            (Op::Trunc, false) => a,
            _ => return Err(unsupported(u, "no vector form")),
        })
    }

    /// NaN wins; of equal zeros the first. `safe`: b is never NaN.
    fn max_float(&mut self, t: Scalar, a: VReg, b: VReg, safe: bool) -> VReg {
        let p = precision(t);
        let less = self.v(&rows::FCMGT[p], &[b, a], &[]);
        let m = self.blend(less, b, a);
        if safe {
            return m;
        }
        let number = self.v(&rows::FCMEQ[p], &[b, b], &[]);
        self.blend(number, m, b)
    }

    /// `if mask { a } else { b }`, bit by bit.
    pub(super) fn blend(&mut self, mask: VReg, a: VReg, b: VReg) -> VReg {
        let dst = self.copy(mask);
        self.modify(&rows::BSL, dst, &[a, b], &[]);
        dst
    }

    /// 64-bit products, lane by lane.
    fn mul_doublewords(&mut self, a: VReg, b: VReg) -> VReg {
        let zero = self.const_gpr(0);
        let lanes: Vec<VReg> = (0..2)
            .map(|k| {
                let (x, y) = (self.g(&rows::UMOV[3], &[a], &[k]), self.g(&rows::UMOV[3], &[b], &[k]));
                self.g(&rows::MADD[1], &[x, y, zero], &[])
            })
            .collect();
        self.join_ints(&lanes, Shape::new(8, 2))[0]
    }

    /// Shifts of vectors: by a constant if all counts are one, else by the register form, whose counts are signed
    /// bytes; they are limited to the width first.
    fn shift_vector(&mut self, u: &UOp) -> Res<Val> {
        let (dt, s) = (u.dtype(), u.src());
        let (t, shape) = (dt.scalar, Shape::of(dt));
        let (n, bits) = (log(shape.elem), i64::from(8 * shape.elem));
        let right = u.op() == Op::Shr;
        let a = self.parts(&s[0])?;
        if let Some(c) = s[1].as_const() {
            let c = const_bits(c, s[1].dtype().scalar);
            let row = match (right, t.is_unsigned()) {
                (false, _) => &rows::SHL[n],
                (true, true) => &rows::USHR[n],
                (true, false) => &rows::SSHR[n],
            };
            let c = if right && !t.is_unsigned() { c.clamp(0, bits) } else { c };
            return Ok(Val::V(match c {
                0 => a,
                c if (1..bits).contains(&c) || (right && c == bits) => {
                    a.iter().map(|a| self.v(row, &[*a], &[c])).collect()
                }
                _ => a.iter().map(|_| self.const_vec(0, 8)).collect(),
            }));
        }
        let b = self.parts(&s[1])?;
        let limit = self.const_vec(bits as u64, shape.elem);
        let row = if right && !t.is_unsigned() { &rows::SSHL[n] } else { &rows::USHL[n] };
        let mut out = Regs::new();
        for (a, b) in a.iter().zip(b) {
            let mut count = if n < 3 {
                self.v(&rows::UMIN[n], &[b, limit], &[])
            } else {
                let beyond = self.v(&rows::CMHI[n], &[b, limit], &[]);
                self.blend(beyond, limit, b)
            };
            if right {
                count = self.v(&rows::NEG_V[n], &[count], &[]);
            }
            out.push(self.v(row, &[*a, count], &[]));
        }
        Ok(Val::V(out))
    }

    /// An integer operation that only scalars have: lane by lane.
    fn by_lanes(&mut self, u: &UOp) -> Res<Val> {
        let dt = u.dtype();
        let sources: Vec<Regs> = u.src().iter().map(|s| self.parts(s)).collect::<Res<_>>()?;
        let mut lanes = Vec::new();
        for k in 0..dt.lanes {
            let args: Vec<VReg> = sources.iter().map(|s| self.lane_int(s, dt, k)).collect();
            lanes.push(self.int_op(u, &args)?);
        }
        Ok(Val::V(self.join_ints(&lanes, Shape::of(dt))))
    }

    /// A general register in the low lane of a vector register.
    pub(super) fn vec_of_int(&mut self, r: VReg) -> VReg {
        let dst = self.vec();
        self.put(Inst::new(What::Row(&rows::FMOV_DX), &[dst, r], &[]));
        dst
    }
}

fn no_form(op: Op, dtype: DType) -> super::super::IselError {
    super::super::IselError::Unsupported { op, dtype, why: "no vector form" }
}

/// A constant that is no NaN.
fn is_number(u: &UOp) -> bool {
    u.op() == Op::Const && const_of(u).is_ok_and(|c| !c.as_f64().is_nan())
}
