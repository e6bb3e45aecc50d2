//! Loads and stores of buffers and shared memory, split into pieces of up to 16 bytes that are aligned to their size.
//!
//! Elements below 32 bits are accessed in words; `prmt` unpacks and packs them.

use super::code::{Code, H, Opd, R, RD, Reg, class_of};
use super::{Render, Res, Src, Val};
use doorbell_codegen::program::alignment;
use doorbell_uop::{AddrSpace, Arg, Op, Scalar, UOp};

/// A constant term of an index goes into the instruction's offset if it is below so many bytes: the sum of several fits
/// into the 24 bits of an offset.
const LARGEST_TERM_BYTES: u64 = 1 << 21;

/// A base register and a byte offset.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub base: Reg,
    pub offset: i64,
}

/// The lanes that one instruction accesses.
pub(super) struct Piece {
    first: usize,
    pub count: usize,
    pub at: Address,
}

pub(super) struct Access {
    shared: bool,
    /// Type in memory: bools are bytes.
    t: Scalar,
    pub pieces: Vec<Piece>,
    /// No gate, one for all lanes, or one per lane.
    gates: Val,
}

impl Render<'_> {
    pub(super) fn access(&mut self, index: &UOp, lanes: usize, t: Scalar) -> Res<Access> {
        let (base, i) = (self.memory(&index.src()[0])?, &index.src()[1]);
        let gates = match index.src().get(2) {
            Some(g) => self.val(g)?,
            None => Val::new(),
        };
        let shared = base.dtype().space == Some(AddrSpace::Local);
        let size = t.size_bytes();
        let mut pieces = Vec::new();
        if i.dtype().lanes > 1 {
            for (first, lane) in self.val(i)?.into_iter().enumerate() {
                let at = self.lane_address(&base, lane, i.dtype().scalar, size)?;
                pieces.push(Piece { first, count: 1, at });
            }
        } else {
            let at = self.address(&base, i, size)?;
            let known = if shared || self.aligned { (alignment(i) as usize * size).min(16) } else { size };
            let most = if gates.len() > 1 { size } else { known };
            let mut first = 0;
            while first < lanes {
                // Limited by the remaining lanes and by the alignment of this piece's start.
                let mut bytes = most;
                while bytes > size && (bytes > (lanes - first) * size || !(first * size).is_multiple_of(bytes)) {
                    bytes /= 2;
                }
                pieces.push(Piece {
                    first,
                    count: bytes / size,
                    at: Address { offset: at.offset + (first * size) as i64, ..at },
                });
                first += bytes / size;
            }
            if !shared && self.aligned && pieces.iter().any(|p| p.count > 1) {
                let k = self.parameter(&base)?;
                if !self.wide.contains(&k) {
                    self.wide.push(k);
                }
            }
        }
        let t = if t == Scalar::Bool { Scalar::U8 } else { t };
        Ok(Access { shared, t, pieces, gates })
    }

    /// The buffer or scratch area that an address belongs to.
    pub(super) fn memory(&self, address: &UOp) -> Res<UOp> {
        let mut u = address;
        while u.op() == Op::After {
            u = &u.src()[0];
        }
        match u.op() {
            Op::Param | Op::Local => Ok(u.clone()),
            _ => Err(self.malformed(&format!("{u:?} is no buffer or scratch area"))),
        }
    }

    pub(super) fn parameter(&self, base: &UOp) -> Res<usize> {
        let Arg::Param(slot, _) = *base.arg() else { return Err(self.malformed("a buffer has no slot")) };
        let found = self.program.params.iter().position(|p| p.slot == slot);
        found.ok_or_else(|| self.malformed("a buffer is not among the parameters"))
    }

    /// The address of an element; a constant term goes into the offset.
    pub(super) fn address(&mut self, base: &UOp, i: &UOp, size: usize) -> Res<Address> {
        let (mut i, mut elements) = (i.clone(), 0i64);
        if i.op() == Op::Add
            && let Some(c) = i.src()[1].as_int()
            && c.unsigned_abs().saturating_mul(size as u64) < LARGEST_TERM_BYTES
        {
            (elements, i) = (c, i.src()[0].clone());
        }
        let lane = self.val(&i)?[0];
        let mut at = self.lane_address(base, lane, i.dtype().scalar, size)?;
        at.offset += elements * size as i64;
        Ok(at)
    }

    fn lane_address(&mut self, base: &UOp, lane: Src, t: Scalar, size: usize) -> Res<Address> {
        let area = self.areas.get(base).copied();
        let (start, offset) = match area {
            Some(bytes) => (self.shared(), i64::from(bytes)),
            None => (self.argument(self.parameter(base)?)?, 0),
        };
        let (lane, offset) = match lane {
            Src::Reg(r) => {
                match self.sums.get(&r).filter(|s| s.1.unsigned_abs().saturating_mul(size as u64) < LARGEST_TERM_BYTES)
                {
                    Some((root, c)) => (Src::Reg(*root), offset + c * size as i64),
                    None => (lane, offset),
                }
            }
            lane => (lane, offset),
        };
        let i = match lane {
            Src::Bits(b) => {
                let bytes = b.cast_signed().saturating_mul(size as i64);
                if i32::try_from(bytes).is_ok() {
                    return Ok(Address { base: start, offset: offset + bytes });
                }
                self.copy(t, lane)
            }
            Src::Reg(r) => r,
        };
        let key =
            (u64::from(start.class) << 32 | u64::from(start.n), u64::from(i.class) << 32 | u64::from(i.n), size as u64);
        if let Some((known, _)) = self.addresses.get(&key).filter(|_| !self.mutable.contains(&i) || self.is_counter(i))
        {
            return Ok(Address { base: *known, offset });
        }
        let (wide, scale) = (class_of(t) == RD, Opd::Int(size as i64));
        let to = match (area.is_some(), wide) {
            (false, false) => {
                let to = self.reg(RD);
                let name = if t.is_unsigned() { "mad.wide.u32" } else { "mad.wide.s32" };
                self.run(name, &[to], vec![i.into(), scale, start.into()]);
                to
            }
            (false, true) => {
                let to = self.reg(RD);
                self.run("mad.lo.s64", &[to], vec![i.into(), scale, start.into()]);
                to
            }
            (true, _) => {
                let low = if wide { self.op("cvt.u32.u64", R, vec![i.into()]) } else { i.into() };
                let (low, to) = (self.opd(Scalar::U32, low), self.reg(R));
                self.run("mad.lo.s32", &[to], vec![low, scale, start.into()]);
                to
            }
        };
        self.addresses.insert(key, (to, self.loops.len()));
        Ok(Address { base: to, offset })
    }

    pub(super) fn load(&mut self, u: &UOp) -> Res<Val> {
        let t = u.dtype().scalar;
        let a = self.access(&u.src()[0], usize::from(u.dtype().lanes), t)?;
        let alt = match u.src().get(1) {
            Some(alt) => self.val(alt)?,
            None => Val::new(),
        };
        let mut out = Val::new();
        for p in &a.pieces {
            let gate = self.gate(&a, p.first);
            if gate == Some(Src::Bits(0)) {
                out.extend((p.first..p.first + p.count).map(|k| alternative(&alt, k)));
                continue;
            }
            let raw = self.load_piece(&a, p, gate, &alt);
            for (k, lane) in raw.into_iter().enumerate() {
                let lane =
                    if t == Scalar::Bool { self.compare(Op::CmpNe, Scalar::U32, lane, Src::Bits(0)) } else { lane };
                let other = alternative(&alt, p.first + k);
                // Registers that could not be preset to the alternative select it after the load.
                let late = t == Scalar::Bool || a.t.size_bytes() < 4 && p.count > 1;
                out.push(match gate {
                    Some(gate) if late => self.choose(t, gate, lane, other),
                    _ => lane,
                });
            }
        }
        Ok(out)
    }

    /// The gate of the piece that begins at this lane; `None`: unconditional.
    pub(super) fn gate(&self, a: &Access, lane: usize) -> Option<Src> {
        let g = a.gates.get(lane.min(a.gates.len().max(1) - 1)).copied()?;
        if matches!(g, Src::Bits(b) if b != 0) { None } else { Some(g) }
    }

    /// One access. The registers of a gated access are preset to the alternative, or to zeros.
    fn load_piece(&mut self, a: &Access, p: &Piece, gate: Option<Src>, alt: &Val) -> Val {
        let size = a.t.size_bytes();
        let words = size < 4 && p.count * size >= 4;
        let (n, t) = if words { (p.count * size / 4, Scalar::U32) } else { (p.count, a.t) };
        let name = memory_name(true, a.shared, n, if words { None } else { Some(a.t) });
        let outs: Vec<Reg> = (0..n).map(|_| self.reg(class_of(t))).collect();
        if gate.is_some() {
            for (k, to) in outs.iter().enumerate() {
                let other = alternative(alt, p.first + k);
                let fits = !words && !matches!(other, Src::Reg(r) if r.class != to.class);
                self.mov(t, *to, if fits { other } else { Src::Bits(0) });
            }
        }
        let guard = if let Some(Src::Reg(g)) = gate { Some((false, g)) } else { None };
        let ins = vec![Opd::Address(p.at.base, p.at.offset)];
        self.code.push(Code { name, guard, outs: outs.clone(), tuple: n > 1, ins });
        if !words {
            return outs.into_iter().map(Src::Reg).collect();
        }
        let per = 4 / size;
        outs.into_iter().flat_map(|w| self.take_apart(w, a.t, per)).collect()
    }

    /// Unpacks the elements of a word.
    pub(super) fn take_apart(&mut self, word: Reg, t: Scalar, per: usize) -> Vec<Src> {
        if class_of(t) == H {
            let (low, high) = (self.reg(H), self.reg(H));
            self.code.push(Code {
                name: "mov.b32",
                guard: None,
                outs: vec![low, high],
                tuple: true,
                ins: vec![word.into()],
            });
            self.pairs.insert((low, high), (word, 0));
            return vec![low.into(), high.into()];
        }
        let signed = t.is_signed();
        let select = |k: i64| match (per, signed) {
            // A byte, then its sign or bytes of the second operand, which is zero.
            (4, false) => 0x4440 | k,
            (4, true) => 0x8880 | (k * 0x1111),
            (_, false) => {
                if k == 0 {
                    0x4410
                } else {
                    0x4432
                }
            }
            (_, true) => {
                if k == 0 {
                    0x9910
                } else {
                    0xbb32
                }
            }
        };
        let part = |k: i64| vec![word.into(), Opd::Int(0), Opd::Int(select(k))];
        let parts: Vec<Src> = (0..per as i64).map(|k| self.op("prmt.b32", R, part(k))).collect();
        if let [Src::Reg(a), Src::Reg(b), Src::Reg(c), Src::Reg(d)] = parts[..] {
            self.quads.insert([a, b, c, d], word);
        }
        parts
    }

    /// Packs elements into one word.
    pub(super) fn put_together(&mut self, t: Scalar, lanes: &[Src]) -> Reg {
        if let [Src::Reg(a), Src::Reg(b)] = lanes
            && let Some((word, _)) = self.pairs.get(&(*a, *b))
        {
            return *word;
        }
        if class_of(t) == H {
            if let [Src::Reg(a), Src::Reg(b)] = lanes
                && !self.mutable.contains(a)
                && !self.mutable.contains(b)
            {
                let word = self.pair(*a, *b);
                self.pairs.insert((*a, *b), (word, self.loops.len()));
                return word;
            }
            if let [Src::Bits(a), Src::Bits(b)] = lanes {
                return self.copy(Scalar::U32, Src::Bits(b << 16 | a & 0xffff));
            }
            let halves = lanes.iter().map(|s| self.held(t, *s).into()).collect();
            let word = self.reg(R);
            self.run("mov.b32", &[word], vec![Opd::Vector(halves)]);
            return word;
        }
        let ins: Vec<Reg> = lanes.iter().map(|s| self.held(t, *s)).collect();
        match ins.as_slice() {
            [a, b] => self.join(*a, *b, 0x5410),
            [a, b, c, d] => {
                if let Some(word) = self.quads.get(&[*a, *b, *c, *d]) {
                    return *word;
                }
                let low = self.join(*a, *b, 0x0040);
                let high = self.join(*c, *d, 0x0040);
                self.join(low, high, 0x5410)
            }
            _ => ins.first().copied().unwrap_or_else(|| self.copy(Scalar::U32, Src::Bits(0))),
        }
    }

    /// Two halves as a word. If both are rounded f32, one instruction rounds and packs them.
    fn pair(&mut self, low: Reg, high: Reg) -> Reg {
        let word = self.reg(R);
        let f32s = [high, low].map(|half| self.rounded.get(&half).copied());
        match f32s {
            [Some((Scalar::F16, high)), Some((Scalar::F16, low))] if self.chip.has_sm80() => {
                self.run("cvt.rn.f16x2.f32", &[word], vec![high.into(), low.into()]);
            }
            [Some((Scalar::BF16, high)), Some((Scalar::BF16, low))] => {
                self.run("cvt.rn.bf16x2.f32", &[word], vec![high.into(), low.into()]);
            }
            _ => self.run("mov.b32", &[word], vec![Opd::Vector(vec![low.into(), high.into()])]),
        }
        word
    }

    /// Bytes of two words, as selected for `prmt`.
    fn join(&mut self, a: Reg, b: Reg, select: i64) -> Reg {
        let word = self.reg(R);
        self.run("prmt.b32", &[word], vec![a.into(), b.into(), Opd::Int(select)]);
        word
    }

    pub(super) fn store(&mut self, u: &UOp) -> Res<()> {
        let t = u.src()[1].dtype().scalar;
        let mut lanes = self.val(&u.src()[1])?;
        let a = self.access(&u.src()[0], usize::from(u.src()[1].dtype().lanes), t)?;
        if t == Scalar::Bool {
            lanes = lanes.into_iter().map(|s| self.choose(Scalar::U8, s, Src::Bits(1), Src::Bits(0))).collect();
        }
        let size = a.t.size_bytes();
        for p in &a.pieces {
            let gate = self.gate(&a, p.first);
            if gate == Some(Src::Bits(0)) {
                continue;
            }
            let mine: Val = (p.first..p.first + p.count).map(|k| lanes[k.min(lanes.len() - 1)]).collect();
            let words = size < 4 && p.count * size >= 4;
            let data: Vec<Opd> = match words {
                true => mine.chunks(4 / size).map(|c| self.put_together(a.t, c).into()).collect(),
                false => mine.iter().map(|s| self.held(a.t, *s).into()).collect(),
            };
            let n = data.len();
            let name = memory_name(false, a.shared, n, if words { None } else { Some(a.t) });
            let value = if n > 1 { Opd::Vector(data) } else { data.into_iter().next().unwrap_or(Opd::Int(0)) };
            let guard = if let Some(Src::Reg(g)) = gate { Some((false, g)) } else { None };
            let ins = vec![Opd::Address(p.at.base, p.at.offset), value];
            self.code.push(Code { name, guard, outs: vec![], tuple: false, ins });
        }
        Ok(())
    }
}

/// The mnemonic of an access to `n` elements of a type, or words.
fn memory_name(load: bool, shared: bool, n: usize, t: Option<Scalar>) -> &'static str {
    macro_rules! forms {
        ($t:literal) => {
            [
                [
                    [concat!("ld.global.", $t), concat!("ld.global.v2.", $t), concat!("ld.global.v4.", $t)],
                    [concat!("ld.shared.", $t), concat!("ld.shared.v2.", $t), concat!("ld.shared.v4.", $t)],
                ],
                [
                    [concat!("st.global.", $t), concat!("st.global.v2.", $t), concat!("st.global.v4.", $t)],
                    [concat!("st.shared.", $t), concat!("st.shared.v2.", $t), concat!("st.shared.v4.", $t)],
                ],
            ]
        };
    }
    let forms = match t {
        Some(Scalar::I8) => forms!("s8"),
        Some(Scalar::I16) => forms!("s16"),
        Some(Scalar::U16) => forms!("u16"),
        Some(Scalar::F16 | Scalar::BF16) => forms!("b16"),
        Some(Scalar::F32) => forms!("f32"),
        Some(Scalar::F64) => forms!("f64"),
        Some(Scalar::I64 | Scalar::U64) => forms!("b64"),
        Some(Scalar::I32 | Scalar::U32) | None => forms!("b32"),
        Some(_) => forms!("u8"),
    };
    forms[usize::from(!load)][usize::from(shared)][n.trailing_zeros().min(2) as usize]
}

/// The value of a gated lane that is not loaded.
fn alternative(alt: &Val, lane: usize) -> Src {
    alt.get(lane.min(alt.len().max(1) - 1)).copied().unwrap_or(Src::Bits(0))
}
