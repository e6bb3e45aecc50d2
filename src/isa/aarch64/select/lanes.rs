//! Lanes: cutting, joining, spreading, picking, reducing.

use super::super::IselError;
use super::super::rows;
use super::{Regs, Res, Select, Shape, Val, const_of, log, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{Arg, DType, Op, Scalar, UOp, to_bits};

impl Select<'_> {
    /// A register from some byte on, moved to its low end. The bytes above are undefined.
    fn extract(&mut self, r: VReg, offset: u16) -> VReg {
        if offset == 0 { r } else { self.v(&rows::EXT, &[r, r], &[i64::from(offset)]) }
    }

    /// A vector cut into pieces of `step` lanes.
    pub(super) fn pieces(&mut self, regs: &Regs, shape: Shape, step: u16) -> Regs {
        (0..shape.lanes.div_ceil(step))
            .map(|k| {
                let (part, at) = (k * step / shape.per, k * step % shape.per);
                self.extract(regs[part as usize], at * shape.elem)
            })
            .collect()
    }

    /// Pieces of `step` lanes each put together.
    pub(super) fn join(&mut self, pieces: &[VReg], step: u16, shape: Shape) -> Res<Regs> {
        let (mut now, mut bytes) = (Regs::from_slice(pieces), step * shape.elem);
        while bytes < shape.part_bytes() {
            if !matches!(bytes, 1 | 2 | 4 | 8) {
                return Err(IselError::Internal("pieces of an odd size"));
            }
            let row = &rows::ZIP1[log(bytes)];
            now = now.chunks(2).map(|p| if let [a, b] = *p { self.v(row, &[a, b], &[]) } else { p[0] }).collect();
            bytes *= 2;
        }
        Ok(now)
    }

    /// One integer lane in a general register.
    pub(super) fn lane_int(&mut self, parts: &Regs, dt: DType, k: u16) -> VReg {
        let shape = Shape::of(dt);
        let (part, at) = (k / shape.per, k % shape.per);
        self.g(&rows::UMOV[log(shape.elem)], &[parts[part as usize]], &[i64::from(at)])
    }

    /// Integers in general registers as a vector.
    pub(super) fn join_ints(&mut self, lanes: &[VReg], shape: Shape) -> Regs {
        let row = &rows::INS_G[log(shape.elem)];
        let mut out = Regs::new();
        for chunk in lanes.chunks(shape.per as usize) {
            let first = self.vec_of_int(chunk[0]);
            let dst = self.copy(first);
            for (k, g) in chunk.iter().enumerate().skip(1) {
                self.modify(row, dst, &[*g], &[k as i64]);
            }
            out.push(dst);
        }
        out
    }

    /// Lanes of vectors as a vector: register and lane of each.
    fn pick(&mut self, lanes: &[(VReg, u16)], shape: Shape) -> Regs {
        let row = &rows::INS_V[log(shape.elem)];
        let mut out = Regs::new();
        for chunk in lanes.chunks(shape.per as usize) {
            let dst = self.vec();
            self.into(&rows::MOVI_0, dst, &[], &[]);
            for (k, (r, lane)) in chunk.iter().enumerate() {
                self.modify(row, dst, &[*r], &[k as i64, i64::from(*lane)]);
            }
            out.push(dst);
        }
        out
    }

    pub(super) fn splat(&mut self, u: &UOp) -> Res<Val> {
        let (s, dt) = (&u.src()[0], u.dtype());
        if s.op() == Op::Const {
            return self.val(&UOp::constant(dt, const_of(s)?));
        }
        if dt.lanes == 1 {
            return self.val(s);
        }
        if dt.scalar == Scalar::Bool {
            let g = self.int(s)?;
            return Ok(self.mask_of_gpr(g, 1, dt.lanes));
        }
        let shape = Shape::of(dt);
        let r = match self.val(s)? {
            Val::G(g) => self.v(&rows::DUP_G[log(shape.elem)], &[g], &[]),
            Val::V(x) => self.v(&rows::DUP_V[log(shape.elem)], &[x[0]], &[0]),
            Val::M(..) => return Err(unsupported(s, "a mask spread over lanes")),
        };
        Ok(Val::V(std::iter::repeat_n(r, shape.parts as usize).collect()))
    }

    pub(super) fn stack(&mut self, u: &UOp) -> Res<Val> {
        let dt = u.dtype();
        let shape = Shape::of(dt);
        if let Some(first) = u.src().first().filter(|f| u.src().iter().all(|s| s == *f)) {
            return self.splat(&UOp::new(Op::Splat, dt, [first.clone()], Arg::None));
        }
        if u.src().iter().all(|s| s.op() == Op::Const) && dt.scalar != Scalar::Bool {
            return self.stack_constants(u);
        }
        if dt.is_float() {
            let lanes: Vec<(VReg, u16)> = u.src().iter().map(|s| Ok((self.parts(s)?[0], 0))).collect::<Res<_>>()?;
            return Ok(Val::V(self.pick(&lanes, shape)));
        }
        let lanes: Vec<VReg> = u.src().iter().map(|s| self.int(s)).collect::<Res<_>>()?;
        let regs = self.join_ints(&lanes, shape);
        Ok(if dt.scalar == Scalar::Bool { self.mask_from(&regs, dt.with_scalar(Scalar::U8)) } else { Val::V(regs) })
    }

    fn stack_constants(&mut self, u: &UOp) -> Res<Val> {
        let (t, elem) = (u.dtype().scalar, u.dtype().scalar.size_bytes());
        let mut bytes = Vec::new();
        for s in u.src() {
            bytes.extend_from_slice(&to_bits(const_of(s)?, t).to_le_bytes()[..elem]);
        }
        let mut out = Regs::new();
        for chunk in bytes.chunks(16) {
            let mut whole = [0; 16];
            whole[..chunk.len()].copy_from_slice(chunk);
            out.push(self.const_bytes(whole));
        }
        Ok(Val::V(out))
    }

    /// A vector value's parts; bools as bytes of 0 and 1.
    pub(super) fn lanes_of(&mut self, u: &UOp) -> Res<(Regs, DType)> {
        let dt = u.dtype();
        match self.val(u)? {
            v @ Val::M(..) => {
                let bytes = dt.with_scalar(Scalar::U8);
                Ok((self.mask_to(v, bytes, 1)?, bytes))
            }
            Val::V(r) => Ok((r, dt)),
            Val::G(r) => Ok((Regs::from_slice(&[self.vec_of_int(r)]), dt)),
        }
    }

    /// Lanes as a value of the type: bools back to a mask, single integers to a general register.
    fn value_of(&mut self, regs: Regs, dt: DType) -> Val {
        match (dt.scalar, dt.lanes) {
            (Scalar::Bool, 1) => {
                let g = self.lane_int(&regs, DType::U8, 0);
                Val::G(self.low_bit(g))
            }
            (Scalar::Bool, _) => self.mask_from(&regs, dt.with_scalar(Scalar::U8)),
            (_, 1) if !dt.is_float() => Val::G(self.lane_int(&regs, dt, 0)),
            _ => Val::V(regs),
        }
    }

    pub(super) fn gep(&mut self, u: &UOp) -> Res<Val> {
        let (s, dt, lanes) = (&u.src()[0], u.dtype(), u.axes());
        let (mut regs, from) = self.lanes_of(s)?;
        if super::aliased(s) {
            regs = regs.iter().map(|r| self.copy(*r)).collect();
        }
        if let ([k], false) = (lanes, dt.is_float()) {
            let g = self.lane_int(&regs, from, *k);
            return Ok(Val::G(if dt.scalar == Scalar::Bool { self.low_bit(g) } else { g }));
        }
        let shape = Shape::of(from);
        let (n, first) = (lanes.len() as u16, lanes.first().copied().unwrap_or(0));
        let run = lanes.windows(2).all(|p| p[1] == p[0] + 1) && n.is_power_of_two() && first % n == 0;
        let out = if run && n <= shape.per {
            let (part, at) = (first / shape.per, first % shape.per);
            Regs::from_slice(&[self.extract(regs[part as usize], at * shape.elem)])
        } else if run {
            regs[(first / shape.per) as usize..][..(n / shape.per) as usize].into()
        } else if shape.parts == 1 && n <= shape.per {
            self.permute(regs[0], shape.elem, lanes)
        } else {
            let picked: Vec<_> = lanes.iter().map(|k| (regs[(k / shape.per) as usize], k % shape.per)).collect();
            self.pick(&picked, Shape::new(shape.elem, n))
        };
        Ok(self.value_of(out, dt))
    }

    /// Lanes of one register in any order.
    fn permute(&mut self, r: VReg, elem: u16, lanes: &[u16]) -> Regs {
        let mut index = [0; 16];
        let bytes = lanes.iter().flat_map(|k| (0..elem).map(move |b| (k * elem + b) as u8));
        index.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        let index = self.const_bytes(index);
        Regs::from_slice(&[self.v(&rows::TBL, &[r, index], &[])])
    }

    pub(super) fn cat(&mut self, u: &UOp) -> Res<Val> {
        let dt = u.dtype();
        let mut lanes = Vec::new();
        let mut scalar = dt.scalar;
        for s in u.src() {
            let (mut regs, from) = self.lanes_of(s)?;
            if super::aliased(s) {
                regs = regs.iter().map(|r| self.copy(*r)).collect();
            }
            scalar = from.scalar;
            let per = Shape::of(from).per;
            lanes.extend((0..from.lanes).map(|k| (regs[(k / per) as usize], k % per)));
        }
        let shape = Shape::of(dt.with_scalar(scalar));
        // Whole registers are taken as they are.
        let whole = |chunk: &[(VReg, u16)]| {
            let first = chunk[0].0;
            chunk.iter().enumerate().all(|(k, (r, lane))| *r == first && *lane as usize == k)
        };
        let mut out = Regs::new();
        for chunk in lanes.chunks(shape.per as usize) {
            out.push(if whole(chunk) { chunk[0].0 } else { self.pick(chunk, shape)[0] });
        }
        Ok(self.value_of(out, dt))
    }

    pub(super) fn vreduce(&mut self, u: &UOp) -> Res<Val> {
        let op = u.reduce_op().ok_or_else(|| unsupported(u, "no operation"))?;
        let (regs, dt) = self.lanes_of(&u.src()[0])?;
        let op = match (op, u.dtype().scalar) {
            (Op::Add | Op::Max, Scalar::Bool) => Op::Or,
            (Op::Mul, Scalar::Bool) => Op::And,
            (op, _) => op,
        };
        // Parts pairwise, then halves of the one that is left.
        let mut now = regs;
        while now.len() > 1 {
            let half = now.len() / 2;
            now = (0..half).map(|k| self.binary(op, dt, now[k], now[k + half])).collect::<Res<Regs>>()?;
        }
        let (mut r, mut bytes) = (now[0], Shape::of(dt).part_bytes());
        while bytes > dt.scalar.size_bytes() as u16 {
            bytes /= 2;
            let high = self.extract(r, bytes);
            r = self.binary(op, dt, r, high)?;
        }
        Ok(self.value_of(Regs::from_slice(&[r]), u.dtype()))
    }
}
