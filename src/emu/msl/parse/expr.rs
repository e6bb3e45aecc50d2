//! Expressions: precedence, assignment, prefix and postfix forms.

use super::Parser;
use crate::error::{Pos, Res, fail};
use crate::lex::Tok;
use crate::tree::{Binary, Expr, Kind, Lvalue, Unary};
use crate::types::{Scalar, Space, Ty, Types};

/// Binding power of a binary operator; more binds closer.
fn power(sign: &str) -> Option<u32> {
    Some(match sign {
        "||" => 1,
        "&&" => 2,
        "|" => 3,
        "^" => 4,
        "&" => 5,
        "==" | "!=" => 6,
        "<" | ">" | "<=" | ">=" => 7,
        "<<" | ">>" => 8,
        "+" | "-" => 9,
        "*" | "/" | "%" => 10,
        _ => return None,
    })
}

pub(super) fn operator(sign: &str) -> Option<Binary> {
    Some(match sign {
        "|" => Binary::Or,
        "^" => Binary::Xor,
        "&" => Binary::And,
        "==" => Binary::Eq,
        "!=" => Binary::Ne,
        "<" => Binary::Lt,
        ">" => Binary::Gt,
        "<=" => Binary::Le,
        ">=" => Binary::Ge,
        "<<" => Binary::Shl,
        ">>" => Binary::Shr,
        "+" => Binary::Add,
        "-" => Binary::Sub,
        "*" => Binary::Mul,
        "/" => Binary::Div,
        "%" => Binary::Rem,
        _ => return None,
    })
}

impl Parser {
    /// With commas.
    pub(crate) fn expression(&mut self) -> Res<Expr> {
        let mut left = self.assignment()?;
        while self.is(",") {
            let at = self.next().at;
            let right = self.assignment()?;
            let (ty, lv) = (right.ty, right.lv);
            left = self.node(Kind::Comma(Box::new(left), Box::new(right)), ty, at, lv)?;
        }
        Ok(left)
    }

    /// Without commas: an argument, an initialiser.
    pub(crate) fn assignment(&mut self) -> Res<Expr> {
        self.enter()?;
        let left = self.conditional()?;
        let at = self.at();
        let made = if self.eat("=") {
            let right = if self.is("{") { self.braced(left.ty)? } else { self.assignment()? };
            self.assign(left, right, at)?
        } else if let Some(op) = self.eat_compound() {
            let right = self.assignment()?;
            self.compound(left, op, right, at)?
        } else {
            left
        };
        self.leave();
        Ok(made)
    }

    /// `+=` and its like.
    fn eat_compound(&mut self) -> Option<Binary> {
        if self.is(">") && self.peek_at(1).is(">=") && !self.peek_at(1).spaced {
            self.p += 2;
            return Some(Binary::Shr);
        }
        let Tok::Sign(sign) = self.peek().tok else { return None };
        let op = sign.strip_suffix('=').filter(|_| !matches!(sign, "==" | "<=" | ">=" | "!="))?;
        let op = operator(op)?;
        self.p += 1;
        Some(op)
    }

    fn conditional(&mut self) -> Res<Expr> {
        let test = self.binary(0)?;
        if !self.is("?") {
            return Ok(test);
        }
        let at = self.next().at;
        let yes = self.expression()?;
        self.require(":")?;
        let no = self.assignment()?;
        self.choice(test, yes, no, at)
    }

    /// The operator that is next, and its tokens.
    fn next_operator(&self) -> Option<(&'static str, usize)> {
        let Tok::Sign(sign) = self.peek().tok else { return None };
        let next = self.peek_at(1);
        if sign == ">" && !next.spaced && !next.first {
            if next.is(">") {
                return Some((">>", 2));
            }
            if next.is(">=") {
                return None;
            }
        }
        Some((sign, 1))
    }

    fn binary(&mut self, least: u32) -> Res<Expr> {
        let mut left = self.unary()?;
        while let Some((sign, tokens)) = self.next_operator() {
            let Some(power) = power(sign).filter(|p| *p > least) else { break };
            let at = self.at();
            self.p += tokens;
            let right = self.binary(power)?;
            left = match sign {
                "&&" | "||" => {
                    let (left, right) = (self.condition(left)?, self.condition(right)?);
                    let bool_id = Types::scalar_id(Scalar::Bool);
                    self.value(Kind::Logic(sign == "&&", Box::new(left), Box::new(right)), bool_id, at)?
                }
                // PANIC: every sign with a power but the two above has an operator.
                _ => self.operate(operator(sign).expect("an operator"), left, right, at)?,
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Res<Expr> {
        self.enter()?;
        let at = self.at();
        let made = match self.peek().tok {
            Tok::Sign(sign @ ("+" | "-" | "!" | "~")) => {
                self.p += 1;
                let operand = self.unary()?;
                self.prefix(sign, operand, at)?
            }
            Tok::Sign(sign @ ("++" | "--")) => {
                self.p += 1;
                let place = self.unary()?;
                self.step(place, sign == "++", true, at)?
            }
            Tok::Sign("*") => {
                self.p += 1;
                let pointer = self.unary()?;
                self.deref(pointer, at)?
            }
            Tok::Sign("&") => {
                self.p += 1;
                let place = self.unary()?;
                let mut made = self.address_of(place)?;
                made.at = at;
                made
            }
            Tok::Sign("(") if self.is_type_at(1) && !self.peek_at(2).is("(") => {
                self.p += 1;
                let to = self.type_name()?;
                self.require(")")?;
                let operand = self.unary()?;
                self.explicit(operand, to, at)?
            }
            _ => {
                let made = self.primary()?;
                self.postfix(made)?
            }
        };
        self.leave();
        Ok(made)
    }

    fn prefix(&mut self, sign: &str, operand: Expr, at: Pos) -> Res<Expr> {
        if let Some(call) = self.overloaded(sign, &[&operand])? {
            return Ok(call);
        }
        let bad = |p: &Self, e: &Expr| {
            fail(at, format!("invalid argument type '{}' to unary expression", p.types.name(e.ty)))
        };
        let Some((scalar, lanes)) = self.types.arith(operand.ty) else {
            if sign == "!" && matches!(self.types.get(operand.ty), Ty::Ptr { .. }) {
                let test = self.condition(operand)?;
                return self.value(Kind::Unary(Unary::Not, Box::new(test)), Types::scalar_id(Scalar::Bool), at);
            }
            return bad(self, &operand);
        };
        if sign == "!" {
            let to = self.types.vec(Scalar::Bool, lanes);
            let test = self.explicit(operand, to, at)?;
            return self.value(Kind::Unary(Unary::Not, Box::new(test)), to, at);
        }
        if sign == "~" && scalar.is_float() {
            return bad(self, &operand);
        }
        let scalar = if lanes == 1 { super::convert::promoted(scalar) } else { scalar };
        let to = self.types.vec(scalar, lanes);
        let operand = self.converted(operand, to)?;
        let op = match sign {
            "+" => return self.value(operand.kind, to, at),
            "-" => Unary::Neg,
            _ => Unary::BitNot,
        };
        if let (Kind::Const(bits), Unary::Neg) = (&operand.kind, op) {
            let bits = if scalar.is_float() {
                u64::from((-f32::from_bits(*bits as u32)).to_bits())
            } else {
                super::convert::fit_int(bits.wrapping_neg(), scalar)
            };
            return self.value(Kind::Const(bits), to, at);
        }
        self.value(Kind::Unary(op, Box::new(operand)), to, at)
    }

    pub(crate) fn deref(&mut self, pointer: Expr, at: Pos) -> Res<Expr> {
        let pointer = self.decay(pointer)?;
        let Ty::Ptr { to, space, constant } = self.types.get(pointer.ty) else {
            let name = self.types.name(pointer.ty);
            return fail(at, format!("indirection requires pointer operand ('{name}' invalid)"));
        };
        if to == Types::VOID {
            return fail(at, "a pointer to void cannot be dereferenced");
        }
        if let Kind::AddressOf(place) = &pointer.kind
            && place.ty == to
        {
            return Ok((**place).clone());
        }
        self.node(Kind::Deref(Box::new(pointer)), to, at, Some(Lvalue { space, constant }))
    }

    fn postfix(&mut self, mut made: Expr) -> Res<Expr> {
        loop {
            let at = self.at();
            if self.eat("[") {
                let index = self.expression()?;
                self.require("]")?;
                made = self.index(made, index, at)?;
            } else if self.eat(".") {
                made = self.member(made, at)?;
            } else if self.eat("->") {
                let object = self.deref(made, at)?;
                made = self.member(object, at)?;
            } else if self.is("++") || self.is("--") {
                let up = self.next().is("++");
                made = self.step(made, up, false, at)?;
            } else if self.is("(") {
                made = self.call_object(made, at)?;
            } else {
                return Ok(made);
            }
        }
    }

    fn index(&mut self, of: Expr, index: Expr, at: Pos) -> Res<Expr> {
        if let Some(call) = self.overloaded("[]", &[&of, &index])? {
            return Ok(call);
        }
        let Some((scalar, 1)) = self.types.arith(index.ty) else {
            return fail(at, "array subscript is not an integer");
        };
        if scalar.is_float() {
            return fail(at, "array subscript is not an integer");
        }
        if let Ty::Vec(element, lanes) | Ty::Packed(element, lanes) = self.types.get(of.ty) {
            let (ty, lv) = (Types::scalar_id(element), of.lv);
            if let Kind::Const(n) = index.kind {
                if n >= u64::from(lanes) {
                    return fail(at, format!("vector element {n} is out of range"));
                }
                return self.node(Kind::Swizzle(Box::new(of), [n as u8, 0, 0, 0], 1), ty, at, lv);
            }
            return self.node(Kind::Element(Box::new(of), Box::new(index)), ty, at, lv);
        }
        let pointer = self.decay(of)?;
        if !matches!(self.types.get(pointer.ty), Ty::Ptr { .. }) {
            let name = self.types.name(pointer.ty);
            return fail(at, format!("subscripted value of type '{name}' is not an array, pointer, or vector"));
        }
        let moved = self.pointer_add(pointer, index, false, at)?;
        self.deref(moved, at)
    }

    fn member(&mut self, of: Expr, at: Pos) -> Res<Expr> {
        let (name, name_at) = self.word()?;
        match self.types.get(of.ty) {
            Ty::Vec(scalar, lanes) | Ty::Packed(scalar, lanes) => self.swizzle(of, (scalar, lanes), &name, name_at),
            Ty::Simd(scalar) if &*name == "thread_elements" => {
                self.require("(")?;
                self.require(")")?;
                let (ty, lv) = (self.types.vec(scalar, 2), of.lv);
                self.node(Kind::ThreadElements(Box::new(of)), ty, at, lv)
            }
            Ty::Struct(index) => {
                if self.is("(") && self.methods.contains_key(&(index, name.clone())) {
                    return self.call_method(index, of, &name, name_at);
                }
                let fixed = self.statics.iter().find(|(of, own, _)| *of == index && *own == name);
                if let Some((_, _, value)) = fixed {
                    return Ok(Expr { at, ..value.clone() });
                }
                let info = &self.types.structs[index as usize];
                let Some(field) = info.fields.iter().find(|f| f.name == name) else {
                    return fail(name_at, format!("no member named '{name}' in '{}'", info.name));
                };
                let (ty, lv, offset) = (field.ty, of.lv, field.offset);
                self.node(Kind::Member(Box::new(of), offset), ty, at, lv)
            }
            _ => {
                let of = self.types.name(of.ty);
                fail(name_at, format!("member reference base type '{of}' is not a structure or vector"))
            }
        }
    }

    fn swizzle(&mut self, of: Expr, (scalar, lanes): (Scalar, u8), name: &str, at: Pos) -> Res<Expr> {
        let set = if name.starts_with(['r', 'g', 'b', 'a']) { "rgba" } else { "xyzw" };
        let picked: Option<Vec<u8>> =
            name.chars().map(|c| set.find(c).filter(|n| *n < lanes as usize).map(|n| n as u8)).collect();
        let Some(picked) = picked.filter(|p| p.len() <= 4) else {
            let of = self.types.name(of.ty);
            return fail(at, format!("illegal vector component name '{name}' of '{of}'"));
        };
        let twice = (1..picked.len()).any(|n| picked[..n].contains(&picked[n]));
        let mut lanes4 = [0; 4];
        lanes4[..picked.len()].copy_from_slice(&picked);
        let ty = self.types.vec(scalar, picked.len() as u8);
        let lv = of.lv.map(|lv| Lvalue { constant: lv.constant || twice, ..lv });
        self.node(Kind::Swizzle(Box::new(of), lanes4, picked.len() as u8), ty, at, lv)
    }

    /// An integer that is known now: of an array's length, a case, a template's argument.
    pub(crate) fn constant_int(&mut self) -> Res<i64> {
        let at = self.at();
        // In a template's arguments `>` ends the list, so only what binds closer than a comparison.
        let expr = self.binary(7)?;
        let expr = if self.is("?") { self.rest_of_choice(expr)? } else { expr };
        self.int_value(&expr, at)
    }

    fn rest_of_choice(&mut self, test: Expr) -> Res<Expr> {
        let at = self.next().at;
        let yes = self.expression()?;
        self.require(":")?;
        let no = self.binary(7)?;
        self.choice(test, yes, no, at)
    }

    pub(crate) fn int_value(&mut self, expr: &Expr, at: Pos) -> Res<i64> {
        let scalar = self.types.arith(expr.ty).filter(|(s, n)| s.is_int() && *n == 1);
        let Some((scalar, _)) = scalar else { return fail(at, "expression is not an integral constant expression") };
        let Some(bits) = self.evaluate(expr).and_then(|rows| rows.first().copied()) else {
            return fail(at, "expression is not an integral constant expression");
        };
        Ok(super::convert::fit_int(bits, scalar) as i64)
    }

    /// The place of `this`-less objects: values get a temporary in thread memory.
    pub(crate) fn temporary_lvalue() -> Lvalue {
        Lvalue { space: Space::Thread, constant: false }
    }
}
