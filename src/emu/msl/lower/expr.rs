//! Expressions → rows.

use super::{Loc, Lower};
use crate::code::{Bin, Inst, Row, Un};
use crate::error::{Res, fail};
use crate::tree::{Binary, Expr, Kind, Unary};
use crate::types::{Scalar, Tid, Ty, Types};

impl Lower<'_> {
    /// The rows of a value; they may be a variable's own and must not be written to.
    pub(crate) fn value(&mut self, e: &Expr) -> Res<Row> {
        self.value_to(e, None)
    }

    /// For its effects only.
    pub(crate) fn discard(&mut self, e: &Expr) -> Res<()> {
        if self.types.is_aggregate(e.ty) {
            self.aggregate(e).map(|_| ())
        } else if e.ty == Types::VOID && matches!(e.kind, Kind::Zero) {
            Ok(())
        } else if e.lv.is_some() && matches!(self.types.get(e.ty), Ty::Atomic(_)) {
            self.place(e).map(|_| ())
        } else if e.lv.is_some() {
            // A name alone reads nothing.
            self.place(e).map(|_| ())
        } else {
            self.value(e).map(|_| ())
        }
    }

    /// The rows of a value, computed into `d` where the expression's last step allows it. The rows are `d` or others.
    pub(crate) fn value_to(&mut self, e: &Expr, d: Option<Row>) -> Res<Row> {
        self.check_size()?;
        let made = match &e.kind {
            Kind::Const(bits) => {
                self.at = e.at;
                if self.types.rows(e.ty) == 2 { self.constant64(*bits) } else { self.constant(*bits as u32) }
            }
            Kind::Zero => {
                let rows = self.types.rows(e.ty);
                let d = self.alloc(rows);
                for n in 0..rows {
                    self.emit(Inst::Const { d: d + n, v: 0 });
                }
                d
            }
            Kind::Unary(op, a) => self.unary(*op, a, d)?,
            Kind::Binary(op, a, b) => {
                let (left, right) = (self.value(a)?, self.value(b)?);
                self.at = e.at;
                let (scalar, n) = self.parts(a.ty);
                self.binary(*op, scalar, n, (left, right), d)?
            }
            Kind::PtrAdd(p, i, minus) => self.pointer_add(p, i, *minus, e)?,
            Kind::PtrDiff(a, b) => {
                let (left, right) = (self.value(a)?, self.value(b)?);
                let Ty::Ptr { to, .. } = self.types.get(a.ty) else { return fail(e.at, "not a pointer") };
                let d = self.alloc(2);
                let size = self.types.size(to) as u32;
                self.emit(Inst::PtrDiff { d, a: left, b: right, size });
                d
            }
            Kind::Logic(and, a, b) => self.logic(*and, a, b)?,
            Kind::Cond(c, a, b) => self.choice(c, a, b, e.ty)?,
            Kind::Cast(a) => self.cast(a, e.ty, d)?,
            Kind::Bits(a) => self.bits(a, e.ty)?,
            Kind::AddressOf(place) => {
                let place = self.place(place)?;
                self.address(&place)?
            }
            Kind::Call(function, args) => self.call(*function, args, e)?,
            Kind::Builtin(name, args) => self.builtin(name, args, e, d)?,
            Kind::Make(items) => self.make(items, e.ty)?,
            Kind::Comma(a, b) => {
                self.discard(a)?;
                self.value_to(b, d)?
            }
            Kind::Step { place, up, prefix: false } => self.step_after(place, *up)?,
            Kind::Swizzle(of, lanes, n) if of.lv.is_none() => self.swizzled(of, &lanes[..*n as usize], e.ty)?,
            Kind::List(_) => return fail(e.at, "a list in braces is not a value"),
            Kind::Var(var) if self.known(*var).is_some() => {
                let bits = self.known(*var).unwrap_or(0);
                if self.types.rows(e.ty) == 2 { self.constant64(bits) } else { self.constant(bits as u32) }
            }
            _ => {
                let place = self.place(e)?;
                self.at = e.at;
                self.read(&place, e.ty)?
            }
        };
        Ok(made)
    }

    /// The value of a variable that is a constant, where it is not a row of its own.
    fn known(&self, var: u32) -> Option<u64> {
        let frame = self.frames.last()?;
        match self.functions.get(frame.function) {
            Some(function) if frame.vars.get(var as usize).is_none_or(Option::is_none) => {
                function.vars.get(var as usize)?.value
            }
            None => self.outer.get(var as usize)?.value,
            _ => None,
        }
    }

    fn swizzled(&mut self, of: &Expr, lanes: &[u8], ty: Tid) -> Res<Row> {
        let base = self.value(of)?;
        let (scalar, _) = self.parts(ty);
        let step = scalar.rows();
        let first = u32::from(lanes[0]);
        if lanes.iter().enumerate().all(|(n, lane)| u32::from(*lane) == first + n as u32) {
            return Ok(base + first * step);
        }
        let d = self.alloc(lanes.len() as u32 * step);
        for (n, lane) in lanes.iter().enumerate() {
            self.emit(Inst::Mov { d: d + n as u32 * step, a: base + u32::from(*lane) * step, n: step });
        }
        Ok(d)
    }

    fn unary(&mut self, op: Unary, a: &Expr, d: Option<Row>) -> Res<Row> {
        let (scalar, n) = self.parts(a.ty);
        let a = self.value(a)?;
        let wide = scalar.is_wide();
        let op = match op {
            Unary::Not => Un::Not,
            Unary::BitNot => Un::BitNot,
            Unary::Neg if scalar.is_float() => Un::NegF,
            Unary::Neg if wide => Un::NegL,
            Unary::Neg => Un::NegI,
        };
        let count = if op == Un::BitNot { n * scalar.rows() } else { n };
        let d = d.unwrap_or_else(|| self.alloc(n * scalar.rows()));
        self.emit(Inst::Un { op, d, a, n: count });
        self.fit(scalar, d, n);
        Ok(d)
    }

    fn pointer_add(&mut self, p: &Expr, i: &Expr, minus: bool, e: &Expr) -> Res<Row> {
        let Ty::Ptr { to, .. } = self.types.get(e.ty) else { return fail(e.at, "not a pointer") };
        let size = self.types.size(to) as i64;
        let scale = if minus { -size } else { size };
        let p = self.value(p)?;
        if let Kind::Const(by) = i.kind {
            let d = self.alloc(2);
            self.emit(Inst::PtrOffset { d, p, by: (by as i64).wrapping_mul(scale) });
            return Ok(d);
        }
        let (index, _) = self.parts(i.ty);
        let i = self.value(i)?;
        self.at = e.at;
        let d = self.alloc(2);
        self.emit(Inst::PtrAdd { d, p, i, scale, index });
        Ok(d)
    }

    /// Whether computing it costs little and can have no effect and no fault.
    fn is_simple(&self, e: &Expr, budget: &mut u32) -> bool {
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        match &e.kind {
            Kind::Const(_) | Kind::Zero => true,
            Kind::Var(var) => {
                let loc = self.frames.last().and_then(|f| f.vars.get(*var as usize));
                matches!(loc, Some(Some(Loc::Reg { defined: None, .. })))
            }
            Kind::Unary(_, a) | Kind::Cast(a) | Kind::Bits(a) | Kind::Swizzle(a, ..) => self.is_simple(a, budget),
            Kind::Binary(_, a, b) | Kind::PtrAdd(a, b, _) => self.is_simple(a, budget) && self.is_simple(b, budget),
            Kind::Logic(_, a, b) => self.is_simple(a, budget) && self.is_simple(b, budget),
            Kind::Cond(a, b, c) => self.is_simple(a, budget) && self.is_simple(b, budget) && self.is_simple(c, budget),
            Kind::Make(items) => items.iter().all(|e| self.is_simple(e, budget)),
            _ => false,
        }
    }

    fn logic(&mut self, and: bool, a: &Expr, b: &Expr) -> Res<Row> {
        let left = self.value(a)?;
        if self.is_simple(b, &mut 12) {
            let right = self.value(b)?;
            return Ok(self.bin(if and { Bin::And } else { Bin::Or }, left, right, 1));
        }
        let d = self.alloc(1);
        self.emit(Inst::Mov { d, a: left, n: 1 });
        let test = if and { left } else { self.un(Un::Not, left, 1) };
        let top = self.top;
        self.open_if(test);
        let right = self.value(b)?;
        self.emit(Inst::Mov { d, a: right, n: 1 });
        self.close_if();
        self.top = top;
        Ok(d)
    }

    fn choice(&mut self, c: &Expr, a: &Expr, b: &Expr, ty: Tid) -> Res<Row> {
        let test = self.value(c)?;
        let rows = self.types.rows(ty);
        if rows > 0 && self.is_simple(a, &mut 12) && self.is_simple(b, &mut 12) {
            let (a, b) = (self.value(a)?, self.value(b)?);
            let d = self.alloc(rows);
            self.emit(Inst::Select { d, c: test, a, b, n: rows, step: 0 });
            return Ok(d);
        }
        let d = self.alloc(rows);
        let top = self.top;
        self.open_if(test);
        self.branch(a, d, rows)?;
        self.turn_if();
        self.branch(b, d, rows)?;
        self.close_if();
        self.top = top;
        Ok(d)
    }

    fn branch(&mut self, e: &Expr, d: Row, rows: u32) -> Res<()> {
        if rows == 0 {
            return self.discard(e);
        }
        let a = self.value_to(e, Some(d))?;
        if a != d {
            self.emit(Inst::Mov { d, a, n: rows });
        }
        Ok(())
    }

    /// A vector from parts.
    fn make(&mut self, items: &[Expr], ty: Tid) -> Res<Row> {
        let d = self.alloc_for(ty);
        let mut at = d;
        for item in items {
            let rows = self.types.rows(item.ty);
            let a = self.value_to(item, Some(at))?;
            if a != at {
                self.emit(Inst::Mov { d: at, a, n: rows });
            }
            at += rows;
        }
        Ok(d)
    }

    fn splat(&mut self, a: Row, scalar: Scalar, n: u32) -> Row {
        let rows = scalar.rows();
        let d = self.alloc(rows * n);
        self.emit(Inst::Splat { d, a, n, rows });
        d
    }

    fn cast(&mut self, a: &Expr, to: Tid, d: Option<Row>) -> Res<Row> {
        if to == Types::VOID {
            self.discard(a)?;
            return Ok(0);
        }
        let (from, n) = self.parts(a.ty);
        let (into, m) = self.parts(to);
        let pointer = |ty: Tid| matches!(self.types.get(ty), Ty::Ptr { .. });
        if pointer(to) {
            return if pointer(a.ty) {
                self.value(a)
            } else {
                self.value(&Expr { ty: to, kind: Kind::Zero, ..a.clone() })
            };
        }
        if pointer(a.ty) {
            let row = self.value(a)?;
            return Ok(self.un(Un::BoolL, row, 1));
        }
        let row = self.value(a)?;
        if n == 1 && m > 1 {
            let row = self.convert(row, from, into, 1, None);
            return Ok(self.splat(row, into, m));
        }
        Ok(self.convert(row, from, into, n, d))
    }

    /// `as_type`: through memory's form of the elements.
    fn bits(&mut self, a: &Expr, to: Tid) -> Res<Row> {
        let (from, n) = self.parts(a.ty);
        let (into, m) = self.parts(to);
        let row = self.value(a)?;
        if from == into {
            return Ok(row);
        }
        if from.bytes() == into.bytes() && from.bytes() >= 4 {
            return Ok(row);
        }
        let words = self.words_of(row, from, n);
        Ok(self.elements_of(words, into, m))
    }

    /// Elements packed into words of 32 bits.
    fn words_of(&mut self, row: Row, from: Scalar, n: u32) -> Row {
        let plain = match from {
            Scalar::Half => self.un(Un::HalfBits, row, n),
            Scalar::BFloat => self.un(Un::BFloatBits, row, n),
            _ => row,
        };
        let per = 4 / from.bytes().min(4);
        if per == 1 {
            return plain;
        }
        let words = n.div_ceil(per);
        let d = self.alloc(words);
        let (bits, mask) = (from.bytes() * 8, self.constant((1_u64 << (from.bytes() * 8)) as u32 - 1));
        for word in 0..words {
            for part in 0..per.min(n - word * per) {
                let cut = self.bin(Bin::And, plain + word * per + part, mask, 1);
                let by = self.constant(part * bits);
                let moved = self.bin(Bin::Shl, cut, by, 1);
                if part == 0 {
                    self.emit(Inst::Mov { d: d + word, a: moved, n: 1 });
                } else {
                    self.emit(Inst::Bin { op: Bin::Or, d: d + word, a: d + word, b: moved, n: 1 });
                }
            }
        }
        d
    }

    fn elements_of(&mut self, words: Row, into: Scalar, m: u32) -> Row {
        let per = 4 / into.bytes().min(4);
        if per == 1 {
            return words;
        }
        let d = self.alloc(m);
        let (bits, mask) = (into.bytes() * 8, self.constant((1_u64 << (into.bytes() * 8)) as u32 - 1));
        for n in 0..m {
            let by = self.constant((n % per) * bits);
            let moved = self.bin(Bin::ShrU, words + n / per, by, 1);
            self.emit(Inst::Bin { op: Bin::And, d: d + n, a: moved, b: mask, n: 1 });
        }
        let op = match into {
            Scalar::Half => Un::HalfFromBits,
            Scalar::BFloat => Un::BFloatFromBits,
            _ => {
                self.fit(into, d, m);
                return d;
            }
        };
        self.emit(Inst::Un { op, d, a: d, n: m });
        d
    }

    /// Assignments, as statements and as values.
    pub(crate) fn assigned_place(&mut self, e: &Expr) -> Res<Loc> {
        match &e.kind {
            Kind::Assign(place, value) => self.assign(place, value),
            Kind::Compound(place, op, value, calc) => self.compound(place, *op, value, *calc, e),
            Kind::PtrMove(place, index, minus) => {
                let index = (**index).clone();
                let to = self.place(place)?;
                let old = self.read(&to, place.ty)?;
                let Ty::Ptr { to: of, .. } = self.types.get(place.ty) else { return fail(e.at, "not a pointer") };
                let size = self.types.size(of) as i64;
                let (scalar, _) = self.parts(index.ty);
                let i = self.value(&index)?;
                let d = self.alloc(2);
                let scale = if *minus { -size } else { size };
                self.emit(Inst::PtrAdd { d, p: old, i, scale, index: scalar });
                self.write(&to, place.ty, d)?;
                Ok(to)
            }
            Kind::Step { place, up, .. } => {
                let to = self.place(place)?;
                let old = self.read(&to, place.ty)?;
                let new = self.stepped(old, place.ty, *up)?;
                self.write(&to, place.ty, new)?;
                Ok(to)
            }
            _ => fail(e.at, "not a place"),
        }
    }

    fn assign(&mut self, place: &Expr, value: &Expr) -> Res<Loc> {
        if self.types.is_aggregate(place.ty) {
            let from = self.aggregate(value)?;
            let to = self.place(place)?;
            self.at = place.at;
            self.copy(&to, &from, place.ty)?;
            return Ok(to);
        }
        let to = self.place(place)?;
        let direct = match &to {
            Loc::Reg { row, .. } if self.is_whole(place) => Some(*row),
            _ => None,
        };
        let row = self.value_to(value, direct)?;
        self.at = place.at;
        self.write(&to, place.ty, row)?;
        Ok(to)
    }

    /// Whether computing into the place's rows cannot overwrite what is still to be read: lanes of a vector may move.
    fn is_whole(&self, place: &Expr) -> bool {
        !matches!(place.kind, Kind::Swizzle(..)) || self.parts(place.ty).1 == 1
    }

    fn compound(&mut self, place: &Expr, op: Binary, value: &Expr, calc: Tid, e: &Expr) -> Res<Loc> {
        let right = self.value(value)?;
        let to = self.place(place)?;
        self.at = e.at;
        let old = self.read(&to, place.ty)?;
        let (from, n) = self.parts(place.ty);
        let (scalar, m) = self.parts(calc);
        let direct = match &to {
            Loc::Reg { row, .. } if from == scalar && self.is_whole(place) => Some(*row),
            _ => None,
        };
        let mut left = self.convert(old, from, scalar, n, None);
        if n == 1 && m > 1 {
            left = self.splat(left, scalar, m);
        }
        let made = self.binary(op, scalar, m, (left, right), direct)?;
        let made = self.convert(made, scalar, from, n, None);
        self.write(&to, place.ty, made)?;
        Ok(to)
    }

    fn step_after(&mut self, place: &Expr, up: bool) -> Res<Row> {
        let to = self.place(place)?;
        let old = self.read(&to, place.ty)?;
        let rows = self.types.rows(place.ty);
        let kept = self.alloc(rows);
        self.emit(Inst::Mov { d: kept, a: old, n: rows });
        let new = self.stepped(kept, place.ty, up)?;
        self.write(&to, place.ty, new)?;
        Ok(kept)
    }

    fn stepped(&mut self, old: Row, ty: Tid, up: bool) -> Res<Row> {
        if let Ty::Ptr { to, .. } = self.types.get(ty) {
            let size = self.types.size(to) as i64;
            let d = self.alloc(2);
            self.emit(Inst::PtrOffset { d, p: old, by: if up { size } else { -size } });
            return Ok(d);
        }
        let (scalar, n) = self.parts(ty);
        let one = match scalar {
            _ if scalar.is_float() => self.constant(1_f32.to_bits()),
            _ if scalar.is_wide() => self.constant64(1),
            _ => self.constant(1),
        };
        let one = if n > 1 { self.splat(one, scalar, n) } else { one };
        self.binary(if up { Binary::Add } else { Binary::Sub }, scalar, n, (old, one), None)
    }
}
