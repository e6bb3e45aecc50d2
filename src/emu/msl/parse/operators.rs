//! Operators on typed operands: promotion, common types, assignment, pointers.

use super::Parser;
use super::convert::{common, promoted};
use crate::error::{Pos, Res, fail};
use crate::tree::{Binary, Expr, Kind, Lvalue};
use crate::types::{Scalar, Tid, Ty, Types};

pub(super) fn sign_of(op: Binary) -> &'static str {
    match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::Rem => "%",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
        Binary::Shl => "<<",
        Binary::Shr => ">>",
        Binary::Eq => "==",
        Binary::Ne => "!=",
        Binary::Lt => "<",
        Binary::Le => "<=",
        Binary::Gt => ">",
        Binary::Ge => ">=",
    }
}

impl Parser {
    fn invalid<T>(&self, left: &Expr, right: &Expr, at: Pos) -> Res<T> {
        let (a, b) = (self.types.name(left.ty), self.types.name(right.ty));
        fail(at, format!("invalid operands to binary expression ('{a}' and '{b}')"))
    }

    pub(crate) fn operate(&mut self, op: Binary, left: Expr, right: Expr, at: Pos) -> Res<Expr> {
        if let Some(call) = self.overloaded(sign_of(op), &[&left, &right])? {
            return Ok(call);
        }
        let (left, right) = (self.decay(left)?, self.decay(right)?);
        let pointers = [&left, &right].map(|e| matches!(self.types.get(e.ty), Ty::Ptr { .. } | Ty::Void));
        if pointers[0] || pointers[1] {
            return self.pointer_operate(op, left, right, at);
        }
        let flags = self.types.get(left.ty) == Ty::Enum(0) && left.ty == right.ty;
        if flags && matches!(op, Binary::Or | Binary::And) {
            let ty = left.ty;
            let made = match (&left.kind, &right.kind) {
                (Kind::Const(a), Kind::Const(b)) if op == Binary::Or => Kind::Const(a | b),
                (Kind::Const(a), Kind::Const(b)) => Kind::Const(a & b),
                _ => Kind::Binary(op, Box::new(left), Box::new(right)),
            };
            return self.value(made, ty, at);
        }
        let Some(calc) = self.operand_type(op, &left, &right) else { return self.invalid(&left, &right, at) };
        let (scalar, lanes) = self.types.arith(calc).unwrap_or((Scalar::Int, 1));
        let left = self.operand(left, calc)?;
        let right = self.operand(right, calc)?;
        let ty = if op.is_comparison() { self.types.vec(Scalar::Bool, lanes) } else { self.types.vec(scalar, lanes) };
        if let (Kind::Const(a), Kind::Const(b)) = (&left.kind, &right.kind)
            && let Some(bits) = fold(op, *a, *b, scalar)
        {
            return self.value(Kind::Const(bits), ty, at);
        }
        self.value(Kind::Binary(op, Box::new(left), Box::new(right)), ty, at)
    }

    /// An operand in the type of the calculation; enumerations and packed vectors included.
    fn operand(&mut self, expr: Expr, calc: Tid) -> Res<Expr> {
        let mut made = self.converted(expr, calc)?;
        made.lv = None;
        Ok(made)
    }

    /// The type in which an operator computes; `None`: no such operator.
    pub(crate) fn operand_type(&mut self, op: Binary, left: &Expr, right: &Expr) -> Option<Tid> {
        let ((a, n), (b, m)) = (self.types.arith(left.ty)?, self.types.arith(right.ty)?);
        let scoped = |p: &Self, ty| matches!(p.types.get(ty), Ty::Enum(e) if p.types.enums[e as usize].scoped);
        if scoped(self, left.ty) || scoped(self, right.ty) {
            let ok = left.ty == right.ty && op.is_comparison();
            return ok.then_some(Types::scalar_id(a));
        }
        let bitwise = matches!(op, Binary::Rem | Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr);
        if bitwise && (a.is_float() || b.is_float()) {
            return None;
        }
        let shift = matches!(op, Binary::Shl | Binary::Shr);
        match (n, m) {
            (1, 1) if shift => Some(Types::scalar_id(promoted(a))),
            (1, 1) => common(a, b).map(Types::scalar_id),
            _ if n == m => (a == b || shift).then(|| self.types.vec(a, n)),
            (1, _) => self.rank(left, Types::scalar_id(b)).map(|_| self.types.vec(b, m)),
            (_, 1) => self.rank(right, Types::scalar_id(a)).map(|_| self.types.vec(a, n)),
            _ => None,
        }
    }

    fn pointer_operate(&mut self, op: Binary, left: Expr, right: Expr, at: Pos) -> Res<Expr> {
        let is_ptr = |p: &Self, e: &Expr| matches!(p.types.get(e.ty), Ty::Ptr { .. });
        match op {
            Binary::Add if is_ptr(self, &left) => self.pointer_add(left, right, false, at),
            Binary::Add if is_ptr(self, &right) => self.pointer_add(right, left, false, at),
            Binary::Sub if is_ptr(self, &left) && is_ptr(self, &right) => {
                if left.ty != right.ty {
                    return self.invalid(&left, &right, at);
                }
                let long = Types::scalar_id(Scalar::Long);
                self.value(Kind::PtrDiff(Box::new(left), Box::new(right)), long, at)
            }
            Binary::Sub if is_ptr(self, &left) => self.pointer_add(left, right, true, at),
            _ if op.is_comparison() => {
                let (left, right) = if is_ptr(self, &left) {
                    let ty = left.ty;
                    if self.rank(&right, ty).is_none() && self.rank(&left, right.ty).is_none() {
                        return self.invalid(&left, &right, at);
                    }
                    let right =
                        if is_ptr(self, &right) { right } else { self.implicit(right, ty, "comparing a pointer")? };
                    (left, right)
                } else {
                    let ty = right.ty;
                    (self.implicit(left, ty, "comparing a pointer")?, right)
                };
                let bool_id = Types::scalar_id(Scalar::Bool);
                self.value(Kind::Binary(op, Box::new(left), Box::new(right)), bool_id, at)
            }
            _ => self.invalid(&left, &right, at),
        }
    }

    pub(crate) fn pointer_add(&mut self, pointer: Expr, index: Expr, minus: bool, at: Pos) -> Res<Expr> {
        let Ty::Ptr { to, .. } = self.types.get(pointer.ty) else { return self.invalid(&pointer, &index, at) };
        let scalar = self.types.arith(index.ty).filter(|(s, n)| s.is_int() && *n == 1);
        let Some((scalar, _)) = scalar else { return self.invalid(&pointer, &index, at) };
        if to == Types::VOID {
            return fail(at, "arithmetic on a pointer to void");
        }
        let index = self.converted(index, Types::scalar_id(promoted(scalar)))?;
        let ty = pointer.ty;
        self.value(Kind::PtrAdd(Box::new(pointer), Box::new(index), minus), ty, at)
    }

    pub(crate) fn choice(&mut self, test: Expr, yes: Expr, no: Expr, at: Pos) -> Res<Expr> {
        if matches!(self.types.get(test.ty), Ty::Vec(..)) {
            return fail(test.at, "the condition of ?: is a vector: use select");
        }
        let test = self.condition(test)?;
        if yes.ty == no.ty && yes.lv.is_some() && yes.lv == no.lv && self.types.is_aggregate(yes.ty) {
            let (a, b) = (self.address_of(yes)?, self.address_of(no)?);
            let ty = a.ty;
            let pointer = self.value(Kind::Cond(Box::new(test), Box::new(a), Box::new(b)), ty, at)?;
            return self.deref(pointer, at);
        }
        let (yes, no) = (self.decay(yes)?, self.decay(no)?);
        let ty = if yes.ty == no.ty {
            yes.ty
        } else if let Some(calc) = self.operand_type(Binary::Add, &yes, &no) {
            calc
        } else if self.rank(&no, yes.ty).is_some() {
            yes.ty
        } else if self.rank(&yes, no.ty).is_some() {
            no.ty
        } else {
            let (a, b) = (self.types.name(yes.ty), self.types.name(no.ty));
            return fail(at, format!("incompatible operand types ('{a}' and '{b}')"));
        };
        let (yes, no) = (self.implicit(yes, ty, "in ?:")?, self.implicit(no, ty, "in ?:")?);
        self.value(Kind::Cond(Box::new(test), Box::new(yes), Box::new(no)), ty, at)
    }

    /// Fails unless the expression may be stored to.
    pub(crate) fn assignable(&self, place: &Expr, at: Pos) -> Res<Lvalue> {
        let Some(lv) = place.lv else { return fail(at, "expression is not assignable") };
        if lv.constant {
            let name = self.types.name(place.ty);
            return fail(at, format!("cannot assign to a place of const-qualified type 'const {name}'"));
        }
        Ok(lv)
    }

    pub(crate) fn assign(&mut self, place: Expr, value: Expr, at: Pos) -> Res<Expr> {
        let lv = self.assignable(&place, at)?;
        let ty = place.ty;
        if matches!(self.types.get(ty), Ty::Array(..)) {
            return fail(at, "array type is not assignable");
        }
        if matches!(self.types.get(ty), Ty::Atomic(_)) {
            return fail(at, "an atomic is stored by atomic_store_explicit");
        }
        let value = if matches!(self.types.get(ty), Ty::Ptr { .. }) { self.decay(value)? } else { value };
        let value = self.implicit(value, ty, "assigning")?;
        self.node(Kind::Assign(Box::new(place), Box::new(value)), ty, at, Some(lv))
    }

    pub(crate) fn compound(&mut self, place: Expr, op: Binary, value: Expr, at: Pos) -> Res<Expr> {
        if let Some(call) = self.overloaded(&format!("{}=", sign_of(op)), &[&place, &value])? {
            return Ok(call);
        }
        let lv = self.assignable(&place, at)?;
        let ty = place.ty;
        if matches!(self.types.get(ty), Ty::Ptr { .. }) && matches!(op, Binary::Add | Binary::Sub) {
            let moved = self.pointer_add(place, value, op == Binary::Sub, at)?;
            let Kind::PtrAdd(place, index, minus) = moved.kind else { return fail(at, "invalid pointer operation") };
            return self.node(Kind::PtrMove(place, index, minus), ty, at, Some(lv));
        }
        let Some(calc) = self.operand_type(op, &place, &value) else { return self.invalid(&place, &value, at) };
        // The result goes back implicitly: not from float into bfloat, nor from a vector into a scalar.
        let back = self.value(Kind::Zero, calc, at)?;
        if self.rank(&back, ty).is_none() && !matches!(self.types.get(ty), Ty::Packed(..)) {
            return self.no_conversion(&back, ty, "assigning");
        }
        let value = self.operand(value, calc)?;
        self.node(Kind::Compound(Box::new(place), op, Box::new(value), calc), ty, at, Some(lv))
    }

    pub(crate) fn step(&mut self, place: Expr, up: bool, prefix: bool, at: Pos) -> Res<Expr> {
        let lv = self.assignable(&place, at)?;
        let ty = place.ty;
        match self.types.get(ty) {
            Ty::Scalar(Scalar::Bool) => return fail(at, "cannot increment a value of type 'bool'"),
            Ty::Scalar(_) | Ty::Vec(..) | Ty::Ptr { .. } => {}
            _ => return fail(at, format!("cannot increment a value of type '{}'", self.types.name(ty))),
        }
        let lv = prefix.then_some(lv);
        self.node(Kind::Step { place: Box::new(place), up, prefix }, ty, at, lv)
    }
}

/// Folds integer constants, so that array lengths and the like are plain.
fn fold(op: Binary, a: u64, b: u64, scalar: Scalar) -> Option<u64> {
    if scalar.is_float() {
        return None;
    }
    let bits = u64::from(scalar.bytes() * 8);
    let fit = |v| Some(super::convert::fit_int(v, scalar));
    let less = if scalar.is_signed() { (a as i64) < (b as i64) } else { a < b };
    match op {
        Binary::Add => fit(a.wrapping_add(b)),
        Binary::Sub => fit(a.wrapping_sub(b)),
        Binary::Mul => fit(a.wrapping_mul(b)),
        Binary::Div if b != 0 && scalar.is_signed() => fit((a as i64).wrapping_div(b as i64) as u64),
        Binary::Rem if b != 0 && scalar.is_signed() => fit((a as i64).wrapping_rem(b as i64) as u64),
        Binary::Div => a.checked_div(b).and_then(fit),
        Binary::Rem => a.checked_rem(b).and_then(fit),
        Binary::And => fit(a & b),
        Binary::Or => fit(a | b),
        Binary::Xor => fit(a ^ b),
        Binary::Shl if b < bits => fit(a << b),
        Binary::Shr if b < bits && scalar.is_signed() => fit(((a as i64) >> b) as u64),
        Binary::Shr if b < bits => fit(a >> b),
        Binary::Shl | Binary::Shr => None,
        Binary::Eq => Some(u64::from(a == b)),
        Binary::Ne => Some(u64::from(a != b)),
        Binary::Lt => Some(u64::from(less)),
        Binary::Ge => Some(u64::from(!less)),
        Binary::Le => Some(u64::from(less || a == b)),
        Binary::Gt => Some(u64::from(!less && a != b)),
    }
}
