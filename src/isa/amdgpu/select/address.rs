//! Addresses: what all threads share goes to a scalar base, what differs to a 32-bit offset, constants to the
//! immediate.
//!
//! An index is a sum of terms. A global address is `base + shared terms` in a scalar pair, plus a vector offset that
//! the hardware adds without sign, plus 13 signed bits. Offsets are computed modulo 2^32 from the low words of the
//! terms: that is exact as long as the offset itself fits in 32 bits, which bounds decide. Each partial sum is in the
//! level where its last term is known and is kept for neighbours.

use super::super::op;
use super::mir::{Code, Part};
use super::{Res, Select, Src};
use doorbell_sort as sort;
use doorbell_uop::{AddrSpace, Arg, Op, UOp};
use smallvec::SmallVec;

/// What a register adds up: nodes with their factors in bytes, and the base (a buffer's slot; none: an offset).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    base: Option<u32>,
    terms: SmallVec<[(u64, i64); 4]>,
    constant: i64,
}

/// The address of an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Addr {
    /// Scalar base, vector offset (none: all threads access one address), immediate.
    Global { base: Part, offset: Option<Part>, imm: i32 },
    /// A 64-bit address a lane.
    Wide { address: Part, imm: i32 },
    /// Offset in workgroup memory.
    Local { offset: Part, imm: i32 },
}

/// A term of an index: a node and its factor in bytes.
#[derive(Clone, Debug)]
struct Term {
    node: UOp,
    scale: i64,
    src: Src,
    level: usize,
}

impl Term {
    fn bounds(&self) -> (i128, i128) {
        let (a, b) = (self.node.vmin() * i128::from(self.scale), self.node.vmax() * i128::from(self.scale));
        (a.min(b), a.max(b))
    }
}

fn total(terms: &[Term]) -> (i128, i128) {
    terms.iter().map(Term::bounds).fold((0, 0), |s, b| (s.0 + b.0, s.1 + b.1))
}

impl Select<'_> {
    /// The buffer or area of an address.
    pub(super) fn base_of(u: &UOp) -> UOp {
        super::plan::register(u)
    }

    /// Address of element `i` (a scalar index) of what `base` names.
    pub(super) fn address(&mut self, base: &UOp, i: &UOp) -> Res<Addr> {
        let elem = base.dtype().pointee().size_bytes() as i64;
        let base = Self::base_of(base);
        let (terms, constant) = self.terms(i, elem)?;
        if base.dtype().space == Some(AddrSpace::Local) {
            let at = self.locals.get(&base).copied().map(i64::from);
            let at = at.ok_or_else(|| self.malformed(format!("{base:?} is used before it stands in the list")))?;
            return self.local_address(terms, constant + at);
        }
        self.global_address(&base, terms, constant, i, elem)
    }

    /// Splits an index into terms (in bytes) and a constant.
    fn terms(&mut self, i: &UOp, elem: i64) -> Res<(Vec<Term>, i64)> {
        let mut out: Vec<Term> = Vec::new();
        let mut constant = 0i128;
        let mut open = vec![(i.clone(), i128::from(elem))];
        while let Some((u, scale)) = open.pop() {
            let factor = |s: &UOp| s.as_const().and_then(|c| c.as_int());
            match u.op() {
                Op::Const => constant += factor(&u).unwrap_or(0) * scale,
                Op::Add => open.extend(u.src().iter().map(|s| (s.clone(), scale))),
                Op::Sub => open.extend([(u.src()[0].clone(), scale), (u.src()[1].clone(), -scale)]),
                Op::Mul if factor(&u.src()[1]).is_some() => {
                    open.push((u.src()[0].clone(), scale * factor(&u.src()[1]).unwrap_or(1)));
                }
                Op::Shl if factor(&u.src()[1]).is_some_and(|n| (0..32).contains(&n)) => {
                    open.push((u.src()[0].clone(), scale << factor(&u.src()[1]).unwrap_or(0)));
                }
                Op::Cast if u.dtype().size_bytes() == 8 && u.src()[0].dtype().scalar == doorbell_uop::Scalar::I32 => {
                    open.push((u.src()[0].clone(), scale));
                }
                _ => {
                    let scale = i64::try_from(scale).map_err(|_| self.malformed(format!("{i:?} is too far")))?;
                    match out.iter_mut().find(|t| t.node == u) {
                        Some(t) => t.scale += scale,
                        None => {
                            let src = self.plain(&u)?[0];
                            let level = self.pos.get(&u).map_or(0, |p| self.made_in[*p as usize] as usize);
                            out.push(Term { node: u, scale, src, level });
                        }
                    }
                }
            }
        }
        out.retain(|t| t.scale != 0);
        sort::by_key(&mut out, |t| (t.level, !self.is_uniform(t.src), t.node.id()));
        let constant = i64::try_from(constant).map_err(|_| self.malformed(format!("{i:?} is too far")))?;
        Ok((out, constant))
    }

    /// Most bytes that an immediate reaches upwards.
    fn reach(&self) -> i64 {
        if self.chip() == super::Chip::Gfx1201 { 1 << 23 } else { 1 << 12 }
    }

    fn global_address(&mut self, base: &UOp, terms: Vec<Term>, constant: i64, i: &UOp, elem: i64) -> Res<Addr> {
        let Arg::Param(slot, len) = *base.arg() else { return Err(self.unsupported(base, "no buffer")) };
        let (shared, own): (Vec<Term>, Vec<Term>) = terms.into_iter().partition(|t| self.is_uniform(t.src));
        let (low, high) = total(&own);
        let top = i128::from(u32::MAX);
        if high - low <= top {
            // The differing part starts at zero; its start goes to the shared part.
            let start = i64::try_from(low).map_err(|_| self.malformed(format!("{i:?} is too far")))?;
            let start = if (0..=top).contains(&low) && high <= top { 0 } else { start };
            let shift = constant + start;
            let (imm, rest) = match shift {
                0 => (0, 0),
                s if (-self.reach()..self.reach()).contains(&s) => (s, 0),
                s => (s.rem_euclid(self.reach()), s - s.rem_euclid(self.reach())),
            };
            let pointer = self.pointer(base, slot, &shared, rest)?;
            let offset = if own.is_empty() { None } else { Some(self.offset(&own, -start)?) };
            return Ok(Addr::Global { base: pointer, offset, imm: imm as i32 });
        }
        if (len as i128) * i128::from(elem) <= top + 1 {
            // The whole offset is within the buffer, so its low word suffices.
            let all: Vec<Term> = shared.into_iter().chain(own).collect();
            let pointer = self.pointer(base, slot, &[], 0)?;
            let offset = self.offset(&all, constant)?;
            return Ok(Addr::Global { base: pointer, offset: Some(offset), imm: 0 });
        }
        let index = self.plain(i)?[0];
        self.wide_address(base, index, i.dtype().scalar, elem)
    }

    /// Address of the element that a lane's own index names.
    pub(super) fn lane_address(&mut self, base: &UOp, index: Src, i: &UOp) -> Res<Addr> {
        let elem = base.dtype().pointee().size_bytes() as i64;
        let base = Self::base_of(base);
        let low = self.word(index, 0);
        let shift = u64::from(elem.trailing_zeros());
        if base.dtype().space == Some(AddrSpace::Local) {
            let at = self.locals.get(&base).copied().unwrap_or(0);
            let offset = self.scaled(low, elem)?;
            let offset = self.in_vgpr(offset, 1)?;
            return Ok(Addr::Local { offset, imm: at as i32 });
        }
        let Arg::Param(slot, len) = *base.arg() else { return Err(self.unsupported(&base, "no buffer")) };
        if (len as i128) * i128::from(elem) > i128::from(u32::MAX) + 1 {
            return self.wide_address(&base, index, i.dtype().scalar, elem);
        }
        let pointer = self.pointer(&base, slot, &[], 0)?;
        if let Src::Bits(b) = index {
            let imm = i64::try_from(b << shift).unwrap_or(i64::MAX);
            if imm < self.reach() {
                return Ok(Addr::Global { base: pointer, offset: None, imm: imm as i32 });
            }
        }
        let offset = self.scaled(low, elem)?;
        Ok(Addr::Global { base: pointer, offset: Some(self.in_vgpr(offset, 1)?), imm: 0 })
    }

    fn wide_address(&mut self, base: &UOp, index: Src, t: doorbell_uop::Scalar, elem: i64) -> Res<Addr> {
        let pointer = self.val(base)?[0];
        let wide = if t.size_bytes() == 8 { index } else { self.widen(index, t)? };
        let bytes = self.shift_wide_by(true, false, wide, Src::Bits(u64::from(elem.trailing_zeros())))?;
        let sum = self.add_wide(pointer, bytes)?;
        Ok(Addr::Wide { address: self.in_vgpr(sum, 2)?, imm: 0 })
    }

    /// A term's low word times its factor.
    fn scaled(&mut self, x: Src, scale: i64) -> Res<Src> {
        match x {
            _ if scale == 1 => Ok(x),
            Src::Bits(b) => Ok(Src::Bits(b.wrapping_mul(scale as u64) & 0xffff_ffff)),
            x if self.is_uniform(x) && scale > 0 && scale.count_ones() == 1 && scale < 1 << 32 => {
                self.s(op::S_LSHL_B32, &[x, Src::Bits(u64::from(scale.trailing_zeros()))])
            }
            x if self.is_uniform(x) => self.s(op::S_MUL_I32, &[x, Src::Bits(scale as u64 & 0xffff_ffff)]),
            x if scale > 0 && scale.count_ones() == 1 && scale < 1 << 32 => {
                self.v(op::V_LSHLREV_B32, &[Src::Bits(u64::from(scale.trailing_zeros())), x])
            }
            x => self.v(op::V_MUL_LO_U32, &[x, Src::Bits(scale as u64 & 0xffff_ffff)]),
        }
    }

    fn known(&self, key: &Sum) -> Option<Part> {
        self.levels[..=self.cur].iter().find_map(|l| l.sums.get(key).copied())
    }

    /// The terms added up modulo 2^32 in a vector register.
    fn offset(&mut self, terms: &[Term], constant: i64) -> Res<Part> {
        let mut key = Sum { base: None, terms: SmallVec::new(), constant: 0 };
        let mut sum: Option<Src> = None;
        let here = self.cur;
        for t in terms {
            key.terms.push((t.node.id(), t.scale));
            let level = self.levels_of(&key.terms[..key.terms.len()], terms);
            if let Some(part) = self.known(&key) {
                sum = Some(Src::Part(part));
                continue;
            }
            self.cur = level.min(here);
            let next = self.add_term(sum, t)?;
            let part = self.in_vgpr(next, 1)?;
            self.levels[self.cur].sums.insert(key.clone(), part);
            sum = Some(Src::Part(part));
            self.cur = here;
        }
        if constant & 0xffff_ffff != 0 || sum.is_none() {
            key.constant = constant;
            let part = match (self.known(&key), sum) {
                (Some(part), _) => part,
                (None, None) => self.const_reg(constant as u64 & 0xffff_ffff, 1, super::mir::VGPR)?,
                (None, Some(sum)) => {
                    self.cur = self.levels_of(&key.terms, terms).min(here);
                    let r = self.v(op::V_ADD_NC_U32, &[Src::Bits(constant as u64 & 0xffff_ffff), sum])?;
                    let part = self.in_vgpr(r, 1)?;
                    self.levels[self.cur].sums.insert(key, part);
                    part
                }
            };
            self.cur = here;
            return Ok(part);
        }
        match sum {
            Some(Src::Part(part)) => Ok(part),
            _ => self.const_reg(0, 1, super::mir::VGPR),
        }
    }

    /// The level in which all of some terms are known.
    fn levels_of(&self, done: &[(u64, i64)], terms: &[Term]) -> usize {
        terms[..done.len().min(terms.len())].iter().map(|t| t.level).max().unwrap_or(0)
    }

    fn add_term(&mut self, sum: Option<Src>, t: &Term) -> Res<Src> {
        let x = self.word(t.src, 0);
        let Some(sum) = sum else { return self.scaled(x, t.scale) };
        let power = t.scale > 0 && t.scale.count_ones() == 1 && t.scale < 1 << 32;
        if power && t.scale > 1 {
            return self.v(op::V_LSHL_ADD_U32, &[x, Src::Bits(u64::from(t.scale.trailing_zeros())), sum]);
        }
        let short = t.node.vmin() >= 0 && t.node.vmax() < 1 << 24 && (0..1 << 24).contains(&t.scale);
        if short && t.scale > 1 {
            return self.v(op::V_MAD_U32_U24, &[x, Src::Bits(t.scale as u64), sum]);
        }
        let x = self.scaled(x, t.scale)?;
        self.v(op::V_ADD_NC_U32, &[x, sum])
    }

    /// A buffer's address plus terms that all threads share, in a scalar pair.
    fn pointer(&mut self, base: &UOp, slot: u32, terms: &[Term], constant: i64) -> Res<Part> {
        let Src::Part(mut at) = self.val(base)?[0] else { return Err(self.unsupported(base, "no address")) };
        let mut key = Sum { base: Some(slot), terms: SmallVec::new(), constant: 0 };
        let here = self.cur;
        if constant != 0 {
            key.constant = constant;
            at = match self.known(&key) {
                Some(part) => part,
                None => {
                    self.cur = 0;
                    let part = self.add_pair(at, Src::Bits(constant as u64))?;
                    self.levels[0].sums.insert(key.clone(), part);
                    part
                }
            };
            self.cur = here;
        }
        for t in terms {
            key.terms.push((t.node.id(), t.scale));
            let level = self.levels_of(&key.terms, terms).min(here);
            at = match self.known(&key) {
                Some(part) => part,
                None => {
                    self.cur = level;
                    let bytes = self.scaled_wide(t)?;
                    let part = self.add_words(at, bytes)?;
                    self.levels[level].sums.insert(key.clone(), part);
                    part
                }
            };
            self.cur = here;
        }
        Ok(at)
    }

    /// A scalar pair plus two scalar words.
    fn add_words(&mut self, a: Part, b: [Src; 2]) -> Res<Part> {
        let to = self.s_part(2);
        let [lo, hi] = [0, 1].map(|k| Part { sub: k, words: 1, ..to });
        let [al, ah] = [0, 1].map(|k| self.opd(self.word(Src::Part(a), k)));
        let [bl, bh] = b.map(|s| self.opd(s));
        let low = Code::new(op::S_ADD_U32, &[lo.into(), al, bl]);
        self.run_all(vec![low, Code::new(op::S_ADDC_U32, &[hi.into(), ah, bh])])?;
        Ok(to)
    }

    fn add_pair(&mut self, a: Part, b: Src) -> Res<Part> {
        match self.add_wide(Src::Part(a), b)? {
            Src::Part(p) => Ok(p),
            _ => Ok(a),
        }
    }

    /// A shared term in bytes, 64 bits (the high word may be a constant).
    fn scaled_wide(&mut self, t: &Term) -> Res<[Src; 2]> {
        let (low, high) = t.bounds();
        let x = self.word(t.src, 0);
        if low >= 0 && high <= i128::from(u32::MAX) {
            let bytes = self.scaled(x, t.scale)?;
            return Ok([bytes, Src::Bits(0)]);
        }
        if low >= i128::from(i32::MIN) && high <= i128::from(i32::MAX) {
            let bytes = self.scaled(x, t.scale)?;
            let sign = self.s(op::S_ASHR_I32, &[bytes, Src::Bits(31)])?;
            return Ok([bytes, sign]);
        }
        let scalar = t.node.dtype().scalar;
        let wide = if scalar.size_bytes() == 8 { t.src } else { self.widen(t.src, scalar)? };
        let bytes = self.mul_wide(wide, Src::Bits(t.scale as u64))?;
        Ok([self.word(bytes, 0), self.word(bytes, 1)])
    }

    fn local_address(&mut self, terms: Vec<Term>, constant: i64) -> Res<Addr> {
        let (low, _) = total(&terms);
        // An offset and immediate that are both never negative.
        let start = if low >= 0 { 0 } else { low as i64 };
        let imm = constant + start;
        let (imm, rest) = if (0..1 << 16).contains(&imm) { (imm, -start) } else { (0, constant) };
        let offset = self.offset(&terms, rest)?;
        Ok(Addr::Local { offset, imm: imm as i32 })
    }

    /// The same address plus some bytes.
    pub(super) fn further(&mut self, a: Addr, bytes: i32) -> Res<Addr> {
        let top = self.reach() as i32;
        Ok(match a {
            Addr::Local { offset, imm } => Addr::Local { offset, imm: imm + bytes },
            Addr::Global { base, offset, imm } if imm + bytes < top => Addr::Global { base, offset, imm: imm + bytes },
            Addr::Global { base, offset, imm } => {
                let base = self.add_pair(base, Src::Bits(u64::from((imm + bytes).cast_unsigned())))?;
                Addr::Global { base, offset, imm: 0 }
            }
            Addr::Wide { address, imm } => Addr::Wide { address, imm: imm + bytes },
        })
    }

    /// A load's operation with its address operands.
    pub(super) fn load_code(&mut self, load: super::super::Op, to: Part, a: Addr) -> Res<Code> {
        use super::super::Operand::Off;
        Ok(match a {
            Addr::Global { base, offset, imm } => {
                let offset = self.or_zero(offset)?;
                Code::new(load, &[to.into(), offset.into(), base.into()]).offset(imm)
            }
            Addr::Wide { address, imm } => Code::new(load, &[to.into(), address.into(), Off.into()]).offset(imm),
            Addr::Local { offset, imm } => Code::new(load, &[to.into(), offset.into()]).offset(imm),
        })
    }

    pub(super) fn store_code(&mut self, store: super::super::Op, data: Part, a: Addr) -> Res<Code> {
        use super::super::Operand::Off;
        Ok(match a {
            Addr::Global { base, offset, imm } => {
                let offset = self.or_zero(offset)?;
                Code::new(store, &[offset.into(), data.into(), base.into()]).offset(imm)
            }
            Addr::Wide { address, imm } => Code::new(store, &[address.into(), data.into(), Off.into()]).offset(imm),
            Addr::Local { offset, imm } => Code::new(store, &[offset.into(), data.into()]).offset(imm),
        })
    }

    fn or_zero(&mut self, offset: Option<Part>) -> Res<Part> {
        match offset {
            Some(p) => Ok(p),
            None => self.const_reg(0, 1, super::mir::VGPR),
        }
    }
}
