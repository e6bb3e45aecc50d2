//! Analysis of the text's registers before selection: constants, copies, sums, neighbours in vectors.
//!
//! A register with one unguarded definition is equivalent to that definition wherever it is read, if the registers that
//! the definition read have one definition as well.

use crate::ptx::{Imm, Opcode, Space, Type};
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd, Reg, Symbol};
use crate::sass::compile::read::source::Store;
use std::convert::Infallible;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Known {
    Nothing,
    Imm(u64),
    /// The same as another register.
    Copy(Reg),
    /// Bytes at an offset among the parameters.
    Param(u32),
    /// Another register plus a constant; of 32 bits it may wrap around.
    Sum(Reg, i64),
    /// An address in shared memory.
    Shared(u32),
    /// The low or high half of a register of 32 bits.
    Half(Reg, bool),
    /// 64 bits of two words, the low one first.
    Words(Part, Part),
}

/// A word of a register of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Zero,
    Reg(Reg),
    /// Copies of a word's sign.
    Sign(Reg),
}

impl Part {
    fn meaning(self) -> Known {
        match self {
            Part::Zero => Known::Imm(0),
            Part::Reg(r) => Known::Copy(r),
            Part::Sign(_) => Known::Nothing,
        }
    }
}

/// A position in a tuple: the tuple's number, and the first word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    pub tuple: u32,
    pub sub: u8,
}

#[derive(Debug)]
pub(crate) struct RegisterFacts {
    pub known: Vec<Known>,
    /// How often each register is written and read.
    pub writes: Vec<u32>,
    pub reads: Vec<u32>,
    /// The item that writes it, if there is only one.
    pub def: Vec<u32>,
    pub member: Vec<Option<Member>>,
    /// Words of each tuple.
    pub tuples: Vec<u8>,
}

/// Properties of a body that later passes depend on.
#[derive(Default)]
pub(crate) struct Seen {
    /// Plain copies: to, from.
    copies: Vec<(Reg, Reg)>,
    /// Loads of shared memory.
    pub shared_loads: u32,
    /// Vectors of registers.
    pub vectors: bool,
}

/// Calls `f` with each register of an operand.
#[inline]
pub(crate) fn each(o: &Opd, f: &mut impl FnMut(Reg)) {
    match o {
        Opd::Reg(r) => f(*r),
        Opd::Imm(_) => {}
        o => each_part(o, f),
    }
}

fn each_part(o: &Opd, f: &mut impl FnMut(Reg)) {
    match o {
        Opd::Reg(r) | Opd::Not(r) => f(*r),
        Opd::Vector(v) => v.iter().for_each(|o| each(o, f)),
        Opd::Pair(a, b) => {
            each(a, f);
            each(b, f);
        }
        Opd::Address(base, _) => each(base, f),
        _ => {}
    }
}

/// Calls `f` with the registers that are written.
fn written(i: &Flat, f: &mut impl FnMut(Reg)) {
    i.opds.iter().take(i.results()).for_each(|o| each(o, f));
}

/// Calls `f` with the registers that are read.
fn read(i: &Flat, f: &mut impl FnMut(Reg)) {
    // The accumulator is also read.
    let from = if i.op == Opcode::Wgmma { 0 } else { i.results() };
    i.opds.iter().skip(from).for_each(|o| each(o, f));
    if let Some((p, _)) = i.guard {
        f(p);
    }
}

impl RegisterFacts {
    /// Counts definitions and reads, and joins copies. Also returns which further passes the body needs.
    pub(crate) fn new<'a>(body: &mut Body<'a>, store: &'a Store<'a>) -> (RegisterFacts, Seen) {
        let n = body.regs.len();
        let mut f = RegisterFacts {
            known: vec![Known::Nothing; n],
            writes: vec![0; n],
            reads: vec![0; n],
            def: vec![u32::MAX; n],
            member: vec![None; n],
            tuples: vec![],
        };
        let seen = f.count(body);
        if seen.copies.iter().any(|(to, from)| f.may_join(*to, *from)) && f.join_copies(body, store) {
            f.recount(body);
        }
        f.know(body);
        (f, seen)
    }

    /// Recomputes everything for a changed body.
    pub(crate) fn recount(&mut self, body: &Body) {
        self.writes.fill(0);
        self.reads.fill(0);
        self.count(body);
    }

    /// Adds the writes and reads of the body to the counts.
    fn count(&mut self, body: &Body) -> Seen {
        let mut seen = Seen::default();
        for (k, item) in body.items.iter().enumerate() {
            let Item::Inst(i) = item else { continue };
            let results = i.results();
            let (to, from) = i.opds.split_at(results);
            let mut read = |r: Reg| self.reads[r as usize] += 1;
            from.iter().for_each(|o| each(o, &mut read));
            if let Some((p, _)) = i.guard {
                read(p);
            }
            // The accumulator is also read.
            if i.op == Opcode::Wgmma {
                to.iter().for_each(|o| each(o, &mut read));
            }
            to.iter().for_each(|o| {
                each(o, &mut |r| {
                    self.writes[r as usize] += 1;
                    self.def[r as usize] = k as u32;
                });
            });
            match i.op {
                Opcode::Mov => seen.copies.extend(copied(i, &body.regs)),
                Opcode::Ld if matches!(i.space(), Some(Space::Shared | Space::SharedCta)) => seen.shared_loads += 1,
                _ => {}
            }
            seen.vectors |= wants_neighbours(i) && i.opds.iter().any(|o| matches!(o, Opd::Vector(_)));
        }
        seen
    }

    /// Whether the first register may replace the second, of which it is a copy.
    fn may_join(&self, to: Reg, from: Reg) -> bool {
        let (t, r) = (from as usize, to as usize);
        self.writes[t] == 1 && self.reads[t] == 1 && self.writes[r] > 1
    }

    /// `t = f(..); r = t` becomes `r = f(..)` if t has no other use and r is not touched between; returns whether there
    /// was such a case.
    fn join_copies<'a>(&mut self, body: &mut Body<'a>, store: &'a Store<'a>) -> bool {
        let mut last = vec![0u32; body.regs.len()];
        let mut defined = vec![u32::MAX; body.regs.len()];
        let mut start = 0u32;
        let mut dead = vec![];
        for k in 0..body.items.len() as u32 {
            let found = match &body.items[k as usize] {
                Item::Label(_) => {
                    start = k + 1;
                    None
                }
                Item::Inst(i) => copied(i, &body.regs).filter(|(to, from)| {
                    let (t, r) = (*from as usize, *to as usize);
                    self.may_join(*to, *from) && defined[t] != u32::MAX && defined[t] >= start && last[r] <= defined[t]
                }),
            };
            if let Some((to, from)) = found {
                let at = defined[from as usize];
                if let Item::Inst(d) = &mut body.items[at as usize] {
                    let n = d.results();
                    d.opds.iter_mut().take(n).for_each(|o| rename(o, store, from, to));
                }
                (last[to as usize], defined[to as usize]) = (k, at);
                dead.push(k);
                continue;
            }
            let Item::Inst(i) = &body.items[k as usize] else { continue };
            if matches!(i.op, Opcode::Bra | Opcode::Brx | Opcode::Call) {
                start = k + 1;
            }
            read(i, &mut |r| last[r as usize] = k);
            let guarded = i.guard.is_some();
            written(i, &mut |r| {
                last[r as usize] = k;
                defined[r as usize] = if guarded { u32::MAX } else { k };
            });
        }
        if dead.is_empty() {
            return false;
        }
        let mut next = dead.into_iter().peekable();
        let mut k = 0u32;
        body.items.retain(|_| {
            let gone = next.next_if_eq(&k).is_some();
            k += 1;
            !gone
        });
        true
    }

    fn know(&mut self, body: &Body) {
        for item in &body.items {
            let Item::Inst(i) = item else { continue };
            let Some(Opd::Reg(d)) = i.opds.first().filter(|_| i.results() == 1 && i.guard.is_none()) else {
                self.halves(i);
                continue;
            };
            if self.writes[*d as usize] == 1 {
                self.known[*d as usize] = match self.meaning(i, body) {
                    Known::Nothing => self.words(i, body),
                    known => known,
                };
            }
        }
    }

    fn halves(&mut self, i: &Flat) {
        let (Opcode::Mov, None, [Opd::Vector(v), Opd::Reg(s)]) = (i.op, i.guard, &*i.opds) else { return };
        if self.writes[*s as usize] != 1 {
            return;
        }
        if let ([a, b], Known::Words(low, high), 64) = (v, self.known[*s as usize], i.ty().bits()) {
            for (o, part) in [(a, low), (b, high)] {
                if let Opd::Reg(r) = o
                    && self.writes[*r as usize] == 1
                {
                    self.known[*r as usize] = part.meaning();
                }
            }
        }
        if i.ty().bits() != 32 {
            return;
        }
        if let [a, b] = v {
            for (o, high) in [(a, false), (b, true)] {
                if let Opd::Reg(r) = o
                    && self.writes[*r as usize] == 1
                {
                    self.known[*r as usize] = Known::Half(*s, high);
                }
            }
        }
    }

    fn meaning(&self, i: &Flat, body: &Body) -> Known {
        let ty = i.ty();
        let once = |r: &Reg| self.writes[*r as usize] == 1;
        match (i.op, &i.opds[1..]) {
            (Opcode::Mov, [Opd::Imm(v)]) if ty != Type::Pred => Known::Imm(bits_of(*v, ty)),
            (Opcode::Mov, [Opd::Symbol(Symbol::Shared(at), o)]) => {
                Known::Shared(SHARED_START.wrapping_add(*at).wrapping_add(*o as u32))
            }
            (Opcode::Mov, [Opd::Reg(s)]) if once(s) => self.copy(*s),
            (Opcode::Cvta, [Opd::Reg(s)]) if once(s) && i.space() == Some(Space::Global) => self.copy(*s),
            (Opcode::Ld, [Opd::Address(base, o)]) if matches!(i.space(), Some(Space::Param | Space::ParamEntry)) => {
                let Opd::Symbol(Symbol::Param(at, _), more) = **base else { return Known::Nothing };
                let register = body.regs[match i.opds[0] {
                    Opd::Reg(r) => r as usize,
                    _ => return Known::Nothing,
                }];
                let same = register.bits() == ty.bits() && ty.bits() >= 32;
                if same { Known::Param(at.wrapping_add((more + o) as u32)) } else { Known::Nothing }
            }
            (_, sources) if is_word(ty) => self.computed(i, ty, sources),
            _ => Known::Nothing,
        }
    }

    /// What is known about 64-bit values made of words, and about words extracted from them.
    fn words(&self, i: &Flat, body: &Body) -> Known {
        use Type::*;
        match i.op {
            Opcode::Cvt => {}
            Opcode::Mov | Opcode::Or | Opcode::Xor | Opcode::Add | Opcode::Shl | Opcode::Shr | Opcode::And
                if i.ty().bits() == 64 => {}
            _ => return Known::Nothing,
        }
        let types: smallvec::SmallVec<[Type; 2]> = i.types().collect();
        let ways = [i.opds.get(1), i.opds.get(2)].map(|o| o.and_then(|o| self.parts(o)));
        let joint = |a: Part, b: Part| match (a, b) {
            (Part::Zero, x) | (x, Part::Zero) => Some(x),
            _ => None,
        };
        let word = |o: &Opd| match o {
            Opd::Reg(s) if body.regs[self.root(*s) as usize].bits() == 32 => self.word(*s),
            Opd::Imm(Imm::Int(0)) => Some(Part::Zero),
            _ => None,
        };
        let known = match (i.op, types.as_slice(), &*i.opds, ways) {
            (Opcode::Cvt, [U64 | S64, U32], [_, o], _) => word(o).map(|p| Known::Words(p, Part::Zero)),
            (Opcode::Cvt, [U64 | S64, S32], [_, o], _) => match word(o) {
                Some(Part::Reg(r)) => Some(Known::Words(Part::Reg(r), Part::Sign(r))),
                _ => None,
            },
            (Opcode::Cvt, [U32 | S32, U64 | S64], _, [Some((low, _)), _]) => Some(low.meaning()),
            (Opcode::Mov, [B64 | U64 | S64], [_, Opd::Vector(v)], _) => match v {
                [a, b] => word(a).zip(word(b)).map(|(a, b)| Known::Words(a, b)),
                _ => None,
            },
            (Opcode::Or | Opcode::Xor | Opcode::Add, [B64 | U64 | S64], _, [Some(a), Some(b)]) => {
                joint(a.0, b.0).zip(joint(a.1, b.1)).map(|(low, high)| Known::Words(low, high))
            }
            (Opcode::Shl, [B64], [_, _, Opd::Imm(Imm::Int(32))], [Some(a), _]) => Some(Known::Words(Part::Zero, a.0)),
            (Opcode::Shr, [B64 | U64], [_, _, Opd::Imm(Imm::Int(32))], [Some(a), _]) => {
                Some(Known::Words(a.1, Part::Zero))
            }
            (Opcode::And, [B64], [_, _, Opd::Imm(Imm::Int(0xffff_ffff))], [Some(a), _]) => {
                Some(Known::Words(a.0, Part::Zero))
            }
            _ => None,
        };
        known.filter(|_| i.is_plain()).unwrap_or(Known::Nothing)
    }

    /// A register of 32 bits as a word.
    fn word(&self, s: Reg) -> Option<Part> {
        let r = self.root(s);
        let plain = matches!(self.known[r as usize], Known::Nothing | Known::Sum(..) | Known::Half(..));
        (self.writes[s as usize] == 1 && self.writes[r as usize] == 1 && plain).then_some(Part::Reg(r))
    }

    /// The words of an operand of 64 bits.
    pub(crate) fn parts(&self, o: &Opd) -> Option<(Part, Part)> {
        let Opd::Reg(r) = o else { return None };
        match self.known[self.root(*r) as usize] {
            Known::Words(low, high) => Some((low, high)),
            _ => None,
        }
    }

    /// The value of an operand that is a constant.
    fn constant(&self, o: &Opd) -> Option<i64> {
        match o {
            Opd::Imm(Imm::Int(v)) => Some(*v),
            Opd::Reg(r) => match self.known[*r as usize] {
                Known::Imm(v) => Some(v.cast_signed()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Integer arithmetic with constants.
    fn computed(&self, i: &Flat, ty: Type, sources: &[Opd]) -> Known {
        if !matches!(i.op, Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Mad | Opcode::Shl) {
            return Known::Nothing;
        }
        let bits = |v: i64| if ty.bits() == 64 { v.cast_unsigned() } else { u64::from(v as u32) };
        if i.has("wide") && matches!(i.op, Opcode::Mul | Opcode::Mad) {
            return self.wide_product(i, ty, sources);
        }
        let low = i.is_plain() || i.has("lo") && i.words().count() == 1;
        if !i.has_one_type() || !low {
            return Known::Nothing;
        }
        let of = |k: usize| sources.get(k).and_then(|o| self.constant(o));
        let product = || Some(of(0)?.wrapping_mul(of(1)?));
        match (i.op, sources) {
            (Opcode::Add, [a, b]) => match (a, of(0), b, of(1)) {
                (_, Some(x), _, Some(y)) => Known::Imm(bits(x.wrapping_add(y))),
                (Opd::Reg(s), None, _, Some(c)) | (_, Some(c), Opd::Reg(s), None) => self.plus(*s, c, ty),
                _ => Known::Nothing,
            },
            (Opcode::Sub, [a, _]) => match (a, of(0), of(1)) {
                (_, Some(x), Some(y)) => Known::Imm(bits(x.wrapping_sub(y))),
                (Opd::Reg(s), None, Some(c)) => self.plus(*s, c.wrapping_neg(), ty),
                _ => Known::Nothing,
            },
            (Opcode::Mul, [_, _]) => product().map_or(Known::Nothing, |v| Known::Imm(bits(v))),
            (Opcode::Mad, [_, _, c]) => match (product(), of(2), c) {
                (Some(v), Some(c), _) => Known::Imm(bits(v.wrapping_add(c))),
                (Some(v), None, Opd::Reg(s)) => self.plus(*s, v, ty),
                _ => Known::Nothing,
            },
            (Opcode::Shl, [_, _]) => match (of(0), of(1)) {
                (Some(v), Some(n @ 0..32)) => Known::Imm(bits(v.wrapping_shl(n as u32))),
                _ => Known::Nothing,
            },
            _ => Known::Nothing,
        }
    }

    /// A product of two 32-bit constants with 64-bit result, and a sum with it.
    fn wide_product(&self, i: &Flat, ty: Type, sources: &[Opd]) -> Known {
        if ty.bits() != 32 || !i.has_one_type() || i.words().count() != 1 {
            return Known::Nothing;
        }
        let extended = |v: i64| if ty.is_signed() { i64::from(v as i32) } else { i64::from(v as u32) };
        let of = |k: usize| sources.get(k).and_then(|o| self.constant(o)).map(extended);
        let Some(product) = of(0).zip(of(1)).map(|(a, b)| a.wrapping_mul(b)) else { return Known::Nothing };
        match sources.get(2) {
            None => Known::Imm(product.cast_unsigned()),
            Some(o) => match (self.constant(o), o) {
                (Some(c), _) => Known::Imm(product.wrapping_add(c).cast_unsigned()),
                (None, Opd::Reg(s)) => self.plus(*s, product, Type::U64),
                _ => Known::Nothing,
            },
        }
    }

    /// A register plus a constant.
    fn plus(&self, s: Reg, c: i64, ty: Type) -> Known {
        let short = |v: i64| if ty.bits() == 64 { v } else { i64::from(v as i32) };
        if self.writes[s as usize] != 1 {
            return Known::Nothing;
        }
        match self.known[s as usize] {
            Known::Shared(at) if ty.bits() == 32 => Known::Shared(at.wrapping_add(c as u32)),
            Known::Nothing | Known::Half(..) | Known::Words(..) if short(c) == 0 => Known::Copy(s),
            Known::Sum(root, before) => Known::Sum(root, short(before.wrapping_add(c))),
            Known::Copy(root) if short(c) == 0 => Known::Copy(root),
            Known::Copy(root) => Known::Sum(root, short(c)),
            Known::Param(_) if ty.bits() == 32 => Known::Nothing,
            _ => Known::Sum(s, short(c)),
        }
    }

    fn copy(&self, s: Reg) -> Known {
        match self.known[s as usize] {
            Known::Nothing | Known::Sum(..) | Known::Half(..) | Known::Words(..) => Known::Copy(s),
            known => known,
        }
    }

    /// The register that an operand's register is a copy of.
    pub(crate) fn root(&self, r: Reg) -> Reg {
        match self.known[r as usize] {
            Known::Copy(s) => s,
            _ => r,
        }
    }

    /// Assigns registers that are read or written as one vector to tuples.
    pub(crate) fn group(&mut self, body: &Body) {
        let multiplies = |i: &Flat| i.op == Opcode::Wgmma && i.results() == 1;
        for item in &body.items {
            if let Item::Inst(i) = item
                && let (true, Some(Opd::Vector(sums))) = (multiplies(i), i.opds.first())
            {
                self.tuple(sums, body, true);
            }
        }
        for item in &body.items {
            let Item::Inst(i) = item else { continue };
            if !wants_neighbours(i) {
                continue;
            }
            for o in i.opds.iter() {
                if let Opd::Vector(v) = o {
                    self.tuple(v, body, false);
                }
            }
        }
    }

    /// Wide ones are wgmma accumulators.
    fn tuple(&mut self, v: &[Opd], body: &Body, wide: bool) {
        let mut regs: smallvec::SmallVec<[Reg; 4]> = smallvec::SmallVec::new();
        for o in v {
            let Opd::Reg(r) = o else { return };
            let r = self.root(*r);
            let plain = matches!(self.known[r as usize], Known::Nothing | Known::Sum(..) | Known::Words(..));
            if !plain || self.member[r as usize].is_some() || regs.contains(&r) {
                return;
            }
            regs.push(r);
        }
        let Some(first) = regs.first() else { return };
        let bits = body.regs[*first as usize].bits();
        let words = (bits / 32) as u8;
        let total = words as usize * regs.len();
        let same = regs.iter().all(|r| body.regs[*r as usize].bits() == bits);
        if !same || words == 0 || !wide && ![2, 4].contains(&total) || total > 128 {
            return;
        }
        let tuple = self.tuples.len() as u32;
        self.tuples.push(if wide { total.max(8) as u8 } else { total as u8 });
        for (k, r) in regs.iter().enumerate() {
            self.member[*r as usize] = Some(Member { tuple, sub: k as u8 * words });
        }
    }
}

/// Whether the registers of its vectors should be neighbours.
#[inline]
fn wants_neighbours(i: &Flat) -> bool {
    match i.op {
        Opcode::Wgmma | Opcode::Ld | Opcode::St | Opcode::Mma | Opcode::Ldmatrix | Opcode::Stmatrix => true,
        Opcode::Mov => i.ty().bits() == 64,
        _ => false,
    }
}

/// On sm_90 a block's own shared memory begins at this address.
pub(crate) const SHARED_START: u32 = 0x400;

/// Destination and source of a plain copy.
fn copied(i: &Flat, regs: &[Type]) -> Option<(Reg, Reg)> {
    match (i.op, i.guard, &*i.opds) {
        (Opcode::Mov, None, [Opd::Reg(to), Opd::Reg(from)]) if to != from => {
            (regs[*to as usize].bits() == regs[*from as usize].bits()).then_some((*to, *from))
        }
        _ => None,
    }
}

fn rename<'a>(o: &mut Opd<'a>, store: &'a Store<'a>, from: Reg, to: Reg) {
    let Ok(()) = o.map::<Infallible>(store, &mut |o| {
        if *o == Opd::Reg(from) {
            *o = Opd::Reg(to);
        }
        Ok(())
    });
}

/// Integer types that wrap around at 32 or 64 bits.
pub(crate) fn is_word(ty: Type) -> bool {
    use Type::*;
    matches!(ty, B32 | U32 | S32 | B64 | U64 | S64)
}

/// A constant's bits in a type.
pub(crate) fn bits_of(v: Imm, ty: Type) -> u64 {
    let bits = match (v, ty) {
        (Imm::F64(b), Type::F32) => u64::from((f64::from_bits(b) as f32).to_bits()),
        (Imm::F32(b), Type::F64) => f64::from(f32::from_bits(b)).to_bits(),
        (Imm::Int(i), _) => i.cast_unsigned(),
        (Imm::F32(b), _) => u64::from(b),
        (Imm::F64(b), _) => b,
    };
    if ty.bits() >= 64 { bits } else { bits & ((1 << ty.bits()) - 1) }
}
