//! Lanes: cutting, joining, spreading, picking, reducing.

use super::super::form::Width;
use super::super::mir::Mem;
use super::super::ops;
use super::super::rows::*;
use super::super::{IselError, gpr};
use super::vector::Src;
use super::{In, Regs, Res, Select, Shape, Val, const_of, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{DType, Op, Scalar, UOp, to_bits};

impl Select<'_> {
    /// Some bytes of a register, moved to its low end. The bytes above them are undefined.
    fn extract(&mut self, r: VReg, w: Width, offset: u16, bytes: u16) -> Res<VReg> {
        if offset == 0 {
            return Ok(r);
        }
        if bytes == 32 {
            return self.def(&VEXTRACT256, w, &[In::R(r), In::I(1)]);
        }
        let lane = match offset / 16 {
            0 => r,
            n => self.def(&VEXTRACT128, w, &[In::R(r), In::I(i64::from(n))])?,
        };
        match offset % 16 {
            0 => Ok(lane),
            n => self.def(&VPSRLDQ, Width::X, &[In::R(lane), In::I(i64::from(n))]),
        }
    }

    /// A vector cut into pieces of `step` lanes.
    pub(super) fn pieces(&mut self, regs: &Regs, shape: Shape, step: u16) -> Res<Regs> {
        let mut out = Regs::new();
        for k in 0..shape.lanes.div_ceil(step) {
            let (part, at) = (k * step / shape.per, k * step % shape.per);
            out.push(self.extract(regs[part as usize], shape.width, at * shape.elem, step * shape.elem)?);
        }
        Ok(out)
    }

    /// Pieces of `step` lanes each put together.
    pub(super) fn join(&mut self, pieces: &[VReg], step: u16, shape: Shape) -> Res<Regs> {
        let (mut now, mut bytes) = (Regs::from_slice(pieces), step * shape.elem);
        while bytes < shape.part_bytes() {
            let mut next = Regs::new();
            for pair in now.chunks(2) {
                next.push(match *pair {
                    [low, high] => self.join_two(low, high, bytes)?,
                    _ => pair[0],
                });
            }
            (now, bytes) = (next, bytes * 2);
        }
        Ok(now)
    }

    fn join_two(&mut self, low: VReg, high: VReg, bytes: u16) -> Res<VReg> {
        let (row, w) = match bytes {
            1 => (VPUNPCKLBW, Width::X),
            2 => (VPUNPCKLWD, Width::X),
            4 => (VPUNPCKLDQ, Width::X),
            8 => (VPUNPCKLQDQ, Width::X),
            16 => return self.def(&VINSERT128, Width::Y, &[In::R(low), In::R(high), In::I(1)]),
            32 => return self.def(&VINSERT256, Width::Z, &[In::R(low), In::R(high), In::I(1)]),
            _ => return Err(IselError::Internal("pieces of an odd size")),
        };
        self.def(&row, w, &[In::R(low), In::R(high)])
    }

    /// One lane, at the low end of an xmm register.
    pub(super) fn lane_float(&mut self, parts: &Regs, dt: DType, k: u16) -> Res<VReg> {
        let shape = self.shape(dt);
        let (part, at) = (k / shape.per, k % shape.per);
        self.extract(parts[part as usize], shape.width, at * shape.elem, shape.elem)
    }

    /// One integer lane in a general register.
    pub(super) fn lane_int(&mut self, parts: &Regs, dt: DType, k: u16) -> Res<VReg> {
        let shape = self.shape(dt);
        let (part, at) = (k / shape.per, k % shape.per * shape.elem);
        let x = self.extract(parts[part as usize], shape.width, at / 16 * 16, 16)?;
        let n = at % 16 / shape.elem;
        if n == 0 {
            return self.int_of_vec(x, shape.elem == 8);
        }
        self.def(
            &ops::sized(shape.elem, [VPEXTRB, VPEXTRW, VPEXTRD, VPEXTRQ]),
            Width::X,
            &[In::R(x), In::I(i64::from(n))],
        )
    }

    /// Integers in general registers as a vector.
    pub(super) fn join_ints(&mut self, lanes: &[VReg], dt: DType) -> Res<Regs> {
        let shape = self.shape(dt);
        let step = (16 / shape.elem).min(shape.lanes);
        let row = ops::sized(shape.elem, [VPINSRB, VPINSRW, VPINSRD, VPINSRQ]);
        let mut pieces = Regs::new();
        for chunk in lanes.chunks(step as usize) {
            let mut x = self.vec_of_int(chunk[0], shape.elem == 8)?;
            for (k, g) in chunk.iter().enumerate().skip(1) {
                x = self.def(&row, Width::X, &[In::R(x), In::R(*g), In::I(k as i64)])?;
            }
            pieces.push(x);
        }
        self.join(&pieces, step, shape)
    }

    /// Lanes at the low ends of xmm registers as a vector.
    pub(super) fn join_floats(&mut self, lanes: &[VReg], dt: DType) -> Res<Regs> {
        let shape = self.shape(dt);
        self.join(lanes, 1, shape)
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
            let ones = self.bool_to_ones(g);
            return self.mask_of_gpr(ones, dt.lanes);
        }
        let shape = self.shape(dt);
        let r = self.splat_part(s, shape)?;
        Ok(Val::V(std::iter::repeat_n(r, shape.parts as usize).collect()))
    }

    fn splat_part(&mut self, s: &UOp, shape: Shape) -> Res<VReg> {
        let w = shape.width;
        let row = ops::sized(shape.elem, [VPBROADCASTB, VPBROADCASTW, VPBROADCASTD, VPBROADCASTQ]);
        let p = self.pos.get(s).map(|p| *p as usize);
        if p.is_some_and(|p| self.plan.folded[p] && self.vals[p].is_none()) {
            let Src::Mem(m) = self.src(s)? else { return Err(IselError::Internal("a folded load")) };
            return self.broadcast_load(m, shape);
        }
        match self.val(s)? {
            Val::G(g) if self.wide() => {
                let row = ops::sized(shape.elem, [VPBROADCASTB_G, VPBROADCASTW_G, VPBROADCASTD_G, VPBROADCASTQ_G]);
                self.def(&row, w, &[In::R(g)])
            }
            Val::G(g) => {
                let x = self.vec_of_int(g, shape.elem == 8)?;
                self.def(&row, w, &[In::R(x)])
            }
            Val::V(x) => self.def(&row, w, &[In::R(x[0])]),
            _ => Err(unsupported(s, "a mask spread over lanes")),
        }
    }

    /// An element from memory in every lane.
    fn broadcast_load(&mut self, m: Mem, shape: Shape) -> Res<VReg> {
        let w = shape.width;
        let row = match shape.elem {
            1 => VPBROADCASTB,
            2 => VPBROADCASTW,
            4 => VBROADCASTSS_M,
            _ if self.has(&VBROADCASTSD_M, w) => VBROADCASTSD_M,
            _ => VPBROADCASTQ,
        };
        self.def(&row, w, &[In::M(m)])
    }

    pub(super) fn stack(&mut self, u: &UOp) -> Res<Val> {
        let dt = u.dtype();
        if let Some(first) = u.src().first().filter(|f| u.src().iter().all(|s| s == *f)) {
            return self.splat(&UOp::new(Op::Splat, dt, [first.clone()], doorbell_uop::Arg::None));
        }
        if u.src().iter().all(|s| s.op() == Op::Const) && dt.scalar != Scalar::Bool {
            return self.stack_constants(u);
        }
        if dt.is_float() {
            let lanes: Vec<VReg> = u.src().iter().map(|s| Ok(self.parts(s)?[0])).collect::<Res<_>>()?;
            return self.join_floats(&lanes, dt).map(Val::V);
        }
        let lanes: Vec<VReg> = u.src().iter().map(|s| self.int(s)).collect::<Res<_>>()?;
        if dt.scalar == Scalar::Bool {
            let bytes = dt.with_scalar(Scalar::U8);
            let regs = self.join_ints(&lanes, bytes)?;
            return self.mask_from(&regs, bytes);
        }
        self.join_ints(&lanes, dt).map(Val::V)
    }

    fn stack_constants(&mut self, u: &UOp) -> Res<Val> {
        let (dt, shape) = (u.dtype(), self.shape(u.dtype()));
        let mut bytes = Vec::new();
        for s in u.src() {
            let bits = to_bits(const_of(s)?, dt.scalar);
            bytes.extend_from_slice(&bits.to_le_bytes()[..shape.elem as usize]);
        }
        let w = shape.width.bytes() as usize;
        bytes.resize(bytes.len().next_multiple_of(w), 0);
        bytes.chunks(w).map(|c| self.const_bytes(c, shape.width)).collect::<Res<Regs>>().map(Val::V)
    }

    /// A vector value's parts; bools as bytes of 0 and 1.
    fn lanes_of(&mut self, u: &UOp) -> Res<(Regs, DType)> {
        let dt = u.dtype();
        match self.val(u)? {
            v @ (Val::K(..) | Val::M(..)) => {
                let bytes = dt.with_scalar(Scalar::U8);
                Ok((self.mask_to(v, bytes, 1)?, bytes))
            }
            Val::V(r) => Ok((r, dt)),
            Val::T(_) => Err(unsupported(u, "lanes of a tile")),
            Val::G(r) => Ok((Regs::from_slice(&[self.vec_of_int(r, dt.size_bytes() == 8)?]), dt)),
        }
    }

    /// Lanes as a value of the type: bools back to a mask, single integers to a general register.
    fn value_of(&mut self, regs: Regs, dt: DType) -> Res<Val> {
        match (dt.scalar, dt.lanes) {
            (Scalar::Bool, 1) => {
                let g = self.lane_int(&regs, DType::U8, 0)?;
                Ok(Val::G(self.alu_ri(gpr::AND, g, 1, false)))
            }
            (Scalar::Bool, _) => self.mask_from(&regs, dt.with_scalar(Scalar::U8)),
            (_, 1) if !dt.is_float() => self.lane_int(&regs, dt, 0).map(Val::G),
            _ => Ok(Val::V(regs)),
        }
    }

    pub(super) fn gep(&mut self, u: &UOp) -> Res<Val> {
        let (s, dt, lanes) = (&u.src()[0], u.dtype(), u.axes());
        let (mut regs, from) = self.lanes_of(s)?;
        if super::aliased(s) {
            regs = regs.iter().map(|r| self.copy(*r)).collect();
        }
        if let ([k], false) = (lanes, dt.is_float()) {
            let g = self.lane_int(&regs, from, *k)?;
            return Ok(Val::G(if dt.scalar == Scalar::Bool { self.alu_ri(gpr::AND, g, 1, false) } else { g }));
        }
        let shape = self.shape(from);
        let (n, first) = (lanes.len() as u16, lanes.first().copied().unwrap_or(0));
        let run = lanes.windows(2).all(|p| p[1] == p[0] + 1) && n.is_power_of_two() && first % n == 0;
        let out = if run && n <= shape.per {
            let (part, at) = (first / shape.per, first % shape.per);
            Regs::from_slice(&[self.extract(regs[part as usize], shape.width, at * shape.elem, n * shape.elem)?])
        } else if run {
            regs[(first / shape.per) as usize..][..(n / shape.per) as usize].into()
        } else if let Some(out) = self.permute(&regs, shape, lanes)? {
            out
        } else {
            let picked: Vec<VReg> = lanes.iter().map(|k| self.lane_float(&regs, from, *k)).collect::<Res<_>>()?;
            let to = from.vec(n);
            self.join_floats(&picked, to)?
        };
        self.value_of(out, dt)
    }

    /// Lanes in any order by permutations with constant indexes; `None` where the machine has none for them.
    fn permute(&mut self, regs: &Regs, from: Shape, lanes: &[u16]) -> Res<Option<Regs>> {
        let to = Shape::of(from.elem, lanes.len() as u16, self.arch);
        let w = from.width.max(to.width);
        let mut out = Regs::new();
        for want in lanes.chunks(to.per as usize) {
            let mut parts: Vec<u16> = want.iter().map(|k| k / from.per).collect();
            doorbell_sort::by_key(&mut parts, |k| *k);
            parts.dedup();
            // Bytes of the requested lanes in the source parts, concatenated.
            let side = |k: u16| parts.iter().position(|p| *p == k / from.per).unwrap_or(0) as u16;
            let first = |k: &u16| side(*k) * w.bytes() + k % from.per * from.elem;
            let bytes: Vec<u16> = want.iter().flat_map(|k| (0..from.elem).map(move |b| first(k) + b)).collect();
            let source = |i: usize| regs[parts[i] as usize];
            let r = match (parts.len(), w, from.elem) {
                (1, Width::X, _) => {
                    let index = self.index_bytes(&bytes, 1, w)?;
                    self.def(&VPSHUFB, w, &[In::R(source(0)), In::R(index)])?
                }
                (1, _, 4 | 8) => {
                    let index = self.index_bytes(&bytes, 4, w)?;
                    self.def(&VPERMD, w, &[In::R(index), In::R(source(0))])?
                }
                (1, _, 2) if self.wide() => {
                    let index = self.index_bytes(&bytes, 2, w)?;
                    self.def(&VPERMW, w, &[In::R(index), In::R(source(0))])?
                }
                (2, _, 2 | 4 | 8) if self.wide() => {
                    let unit = from.elem.min(4);
                    let index = self.index_bytes(&bytes, unit, w)?;
                    let row = if unit == 2 { VPERMT2W } else { VPERMT2D };
                    let dst = self.vec(w);
                    self.copy_to(dst, source(0));
                    self.modify(&row, w, dst, &[In::R(index), In::R(source(1))])?;
                    dst
                }
                _ => return Ok(None),
            };
            out.push(r);
        }
        Ok(Some(out))
    }

    /// A register of indexes of `unit` bytes from byte positions.
    fn index_bytes(&mut self, bytes: &[u16], unit: u16, w: Width) -> Res<VReg> {
        let mut index = Vec::new();
        for b in bytes.iter().step_by(unit as usize) {
            index.extend_from_slice(&u64::from(b / unit).to_le_bytes()[..unit as usize]);
        }
        index.resize(w.bytes() as usize, 0);
        self.const_bytes(&index, w)
    }

    pub(super) fn cat(&mut self, u: &UOp) -> Res<Val> {
        let dt = u.dtype();
        let mut sources = Vec::new();
        for s in u.src() {
            let (regs, from) = self.lanes_of(s)?;
            let own = super::aliased(s);
            sources.push((if own { regs.iter().map(|r| self.copy(*r)).collect() } else { regs }, from));
        }
        let whole = sources[0].1.vec(dt.lanes);
        let shape = self.shape(whole);
        let step = sources[0].1.lanes;
        let equal = sources.iter().all(|s| s.1.lanes == step);
        let out = if equal && step >= shape.per {
            sources.into_iter().flat_map(|s| s.0).collect()
        } else if equal {
            let pieces: Vec<VReg> = sources.iter().map(|s| s.0[0]).collect();
            self.join(&pieces, step, shape)?
        } else {
            let mut lanes = Vec::new();
            for (regs, from) in &sources {
                for k in 0..from.lanes {
                    lanes.push(self.lane_float(regs, *from, k)?);
                }
            }
            self.join_floats(&lanes, whole)?
        };
        self.value_of(out, dt)
    }

    pub(super) fn vreduce(&mut self, u: &UOp) -> Res<Val> {
        if let Some(mask) = bits_of(u) {
            return self.mask_bits(mask);
        }
        let op = u.reduce_op().ok_or_else(|| unsupported(u, "no operation"))?;
        let (regs, mut dt) = self.lanes_of(&u.src()[0])?;
        let op = match (op, u.dtype().scalar) {
            (Op::Add | Op::Max, Scalar::Bool) => Op::Or,
            (Op::Mul, Scalar::Bool) => Op::And,
            (op, _) => op,
        };
        let shape = self.shape(dt);
        // Parts pairwise, then halves of the one that is left.
        let mut now = regs;
        while now.len() > 1 {
            let half = now.len() / 2;
            let part = dt.vec(shape.per);
            now = (0..half).map(|k| self.fold(op, part, now[k], now[k + half])).collect::<Res<Regs>>()?;
        }
        dt.lanes = shape.per;
        let mut r = now[0];
        while dt.lanes > 1 {
            let w = self.shape(dt).width;
            let half = dt.size_bytes() as u16 / 2;
            let high = self.extract(r, w, half, half)?;
            dt.lanes /= 2;
            r = self.fold(op, dt, r, high)?;
        }
        self.value_of(Regs::from_slice(&[r]), u.dtype())
    }

    /// A bool vector of 32 lanes as a word with a bit a lane.
    fn mask_bits(&mut self, mask: &UOp) -> Res<Val> {
        let v = self.val(mask)?;
        if self.wide() {
            let k = self.masks(v, 32, 32)?[0];
            return self.def(&KMOVD_GK, Width::X, &[In::R(k)]).map(Val::G);
        }
        let mut word = None;
        for (part, lanes) in self.lane_masks(v, 32, 4)?.into_iter().zip((0..).step_by(8)) {
            let bits = self.def(&VMOVMSKPS, Width::Y, &[In::R(part)])?;
            let bits =
                if lanes == 0 { bits } else { self.unary(gpr::one(gpr::SHL_IMM, false), bits, false, &[In::I(lanes)]) };
            word = Some(word.map_or(bits, |word| self.alu_rr(gpr::OR, word, bits, false)));
        }
        word.map(Val::G).ok_or(IselError::Internal("a mask without parts"))
    }

    /// `a op b` for one part of a reduction.
    fn fold(&mut self, op: Op, dt: DType, a: VReg, b: VReg) -> Res<VReg> {
        let dt = dt.vec(dt.lanes.max(2)); // packed forms, also for the last lane
        let w = self.shape(dt).width;
        if op == Op::Max && dt.is_float() {
            return self.max_part(dt.scalar, a, b, w, self.program.fast_math);
        }
        let regs = |r| Src::Regs(Regs::from_slice(&[r]));
        Ok(self.binary(op, dt, &regs(a), &regs(b))?[0])
    }
}

/// The bool vector of which a sum is the word with a bit a lane: `sum(mask ? 1 << lane : 0)` over 32 lanes of u32.
fn bits_of(u: &UOp) -> Option<&UOp> {
    let where_ = &u.src()[0];
    let (Some(Op::Add), Op::Where, DType { scalar: Scalar::U32, lanes: 32, .. }) =
        (u.reduce_op(), where_.op(), where_.dtype())
    else {
        return None;
    };
    let [mask, bits, zero] = where_.src() else { return None };
    let is_bit = |(lane, bit): (usize, &UOp)| bit.as_int() == Some(1 << lane);
    let all = bits.op() == Op::Stack && bits.src().iter().enumerate().all(is_bit);
    (all && zero.as_const().is_some_and(|c| c.is_zero())).then_some(mask)
}
