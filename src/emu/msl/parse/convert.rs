//! Conversions: which are implicit, what they cost in overload resolution, and the common type of two operands.

use super::Parser;
use crate::error::{Pos, Res, fail};
use crate::tree::{Expr, Kind};
use crate::types::{Scalar, Space, Tid, Ty, Types};

/// How good an implicit conversion is: less is better.
pub(super) const EXACT: u32 = 0;
pub(super) const PROMOTION: u32 = 1;
pub(super) const CONVERSION: u32 = 2;
const SPLAT: u32 = 3;

/// The rank of an implicit conversion between scalars.
fn scalar_rank(from: Scalar, to: Scalar) -> Option<u32> {
    use Scalar::{BFloat, Bool, Char, Float, Half, Int, Short, UChar, UShort};
    match (from, to) {
        _ if from == to => Some(EXACT),
        (Half, BFloat) | (Float, BFloat) | (BFloat, Half) => None,
        (Half | BFloat, Float) => Some(PROMOTION),
        (Bool | Char | UChar | Short | UShort, Int) => Some(PROMOTION),
        _ => Some(CONVERSION),
    }
}

/// An integer operand of an operator becomes at least `int`.
pub(super) fn promoted(scalar: Scalar) -> Scalar {
    if scalar.bytes() < 4 && scalar.is_int() { Scalar::Int } else { scalar }
}

/// The type in which two scalars are computed.
pub(super) fn common(a: Scalar, b: Scalar) -> Option<Scalar> {
    use Scalar::{BFloat, Float, Half, Long, UInt, ULong};
    let (a, b) = (promoted(a), promoted(b));
    Some(match (a, b) {
        _ if a == b => a,
        (Half, BFloat) | (BFloat, Half) => return None,
        (Float, _) | (_, Float) => Float,
        (Half | BFloat, _) => a,
        (_, Half | BFloat) => b,
        (ULong, _) | (_, ULong) => ULong,
        (Long, _) | (_, Long) => Long,
        _ => UInt,
    })
}

impl Parser {
    /// The rank of an implicit conversion, if there is one.
    pub(crate) fn rank(&self, expr: &Expr, to: Tid) -> Option<u32> {
        if expr.ty == to {
            return Some(EXACT);
        }
        match (self.types.get(expr.ty), self.types.get(to)) {
            (Ty::Scalar(a), Ty::Scalar(b)) => scalar_rank(a, b),
            (Ty::Scalar(a), Ty::Vec(b, _)) => scalar_rank(a, b).map(|_| SPLAT),
            (Ty::Vec(a, n), Ty::Packed(b, m)) | (Ty::Packed(a, n), Ty::Vec(b, m)) => {
                (a == b && n == m).then_some(PROMOTION)
            }
            (Ty::Enum(e), Ty::Scalar(b)) if !self.types.enums[e as usize].scoped => {
                scalar_rank(self.types.enums[e as usize].under, b).map(|r| r.max(PROMOTION))
            }
            (from, Ty::Ptr { to: pointee, space, constant }) => self.pointer_rank(from, expr, pointee, space, constant),
            _ => None,
        }
    }

    fn pointer_rank(&self, from: Ty, expr: &Expr, pointee: Tid, space: Space, constant: bool) -> Option<u32> {
        match from {
            Ty::Ptr { to, space: own, constant: own_const } => {
                let ok = own == space && (constant || !own_const);
                let same = to == pointee || self.types.get(pointee) == Ty::Void;
                (ok && same).then_some(if to == pointee && constant == own_const { EXACT } else { PROMOTION })
            }
            Ty::Array(of, _) => {
                let lv = expr.lv?;
                let ok = lv.space == space && (constant || !lv.constant) && of == pointee;
                ok.then_some(EXACT)
            }
            // `nullptr`, which is the only zero of type void.
            Ty::Void if matches!(expr.kind, Kind::Zero) => Some(CONVERSION),
            _ => None,
        }
    }

    /// Converts implicitly, or says why it is not possible.
    pub(crate) fn implicit(&mut self, expr: Expr, to: Tid, what: &str) -> Res<Expr> {
        if self.rank(&expr, to).is_none() {
            return self.no_conversion(&expr, to, what);
        }
        self.converted(expr, to)
    }

    pub(crate) fn no_conversion<T>(&self, expr: &Expr, to: Tid, what: &str) -> Res<T> {
        let (from, into) = (self.types.name(expr.ty), self.types.name(to));
        let spaces = match (self.types.get(expr.ty), self.types.get(to)) {
            (Ty::Ptr { space: a, .. }, Ty::Ptr { space: b, .. }) if a != b => " changes address space of pointer",
            _ => "",
        };
        if spaces.is_empty() {
            fail(expr.at, format!("{what}: no implicit conversion from '{from}' to '{into}'"))
        } else {
            fail(expr.at, format!("{what} '{into}' with an expression of type '{from}'{spaces}"))
        }
    }

    /// A conversion known to be possible.
    pub(crate) fn converted(&mut self, expr: Expr, to: Tid) -> Res<Expr> {
        if expr.ty == to {
            return Ok(expr);
        }
        let at = expr.at;
        if let (Kind::Const(bits), Ty::Scalar(b)) = (&expr.kind, self.types.get(to))
            && let Ty::Scalar(a) = self.types.get(expr.ty)
            && let Some(bits) = convert_const(*bits, a, b)
        {
            return self.value(Kind::Const(bits), to, at);
        }
        match (self.types.get(expr.ty), self.types.get(to)) {
            (Ty::Array(..), Ty::Ptr { .. }) => self.decay(expr),
            (Ty::Scalar(a), Ty::Vec(b, _)) if a != b => {
                let scalar = self.converted(expr, Types::scalar_id(b))?;
                self.value(Kind::Cast(Box::new(scalar)), to, at)
            }
            _ => self.value(Kind::Cast(Box::new(expr)), to, at),
        }
    }

    /// An array as a pointer to its first element; others as they are.
    pub(crate) fn decay(&mut self, expr: Expr) -> Res<Expr> {
        let Ty::Array(of, _) = self.types.get(expr.ty) else { return Ok(expr) };
        let at = expr.at;
        let Some(lv) = expr.lv else { return fail(at, "an array without an address cannot be used here") };
        let ty = self.types.ptr(of, lv.space, lv.constant);
        let expr = self.address_of(expr)?;
        self.value(expr.kind, ty, at)
    }

    /// A pointer to a place; a variable is then kept in memory.
    pub(crate) fn address_of(&mut self, expr: Expr) -> Res<Expr> {
        let at = expr.at;
        let Some(lv) = expr.lv else { return fail(at, "cannot take the address of an rvalue") };
        self.keep_in_memory(&expr)?;
        let ty = self.types.ptr(expr.ty, lv.space, lv.constant);
        self.value(Kind::AddressOf(Box::new(expr)), ty, at)
    }

    fn keep_in_memory(&mut self, place: &Expr) -> Res<()> {
        match &place.kind {
            Kind::Var(var) => {
                self.now.vars[*var as usize].in_memory = true;
                Ok(())
            }
            Kind::Swizzle(..) | Kind::Element(..) => fail(place.at, "address of vector element requested"),
            Kind::Member(of, _) | Kind::ThreadElements(of) => self.keep_in_memory(of),
            _ => Ok(()),
        }
    }

    /// A cast that is written: `(T)x`, `T(x)`, `static_cast<T>(x)`.
    pub(crate) fn explicit(&mut self, expr: Expr, to: Tid, at: Pos) -> Res<Expr> {
        if to == Types::VOID {
            return self.value(Kind::Cast(Box::new(expr)), to, at);
        }
        let expr = if matches!(self.types.get(to), Ty::Ptr { .. }) { self.decay(expr)? } else { expr };
        let ok = match (self.types.get(expr.ty), self.types.get(to)) {
            (Ty::Scalar(_) | Ty::Enum(_), Ty::Scalar(_) | Ty::Enum(_)) => true,
            (Ty::Scalar(_), Ty::Vec(..)) => true,
            (Ty::Vec(_, n) | Ty::Packed(_, n), Ty::Vec(_, m) | Ty::Packed(_, m)) => n == m,
            (Ty::Ptr { space: a, .. }, Ty::Ptr { space: b, .. }) => a == b,
            (Ty::Ptr { .. }, Ty::Scalar(Scalar::Bool)) => true,
            _ => self.rank(&expr, to).is_some(),
        };
        if !ok {
            let (from, into) = (self.types.name(expr.ty), self.types.name(to));
            let pointers = matches!((self.types.get(expr.ty), self.types.get(to)), (Ty::Ptr { .. }, Ty::Ptr { .. }));
            let why = if pointers { " converts between mismatching address spaces" } else { " is not allowed" };
            return fail(at, format!("cast from '{from}' to '{into}'{why}"));
        }
        if expr.ty == to {
            // A cast of a place is a value.
            return self.value(expr.kind, to, at);
        }
        let mut made = self.converted(expr, to)?;
        (made.at, made.lv) = (at, None);
        Ok(made)
    }

    /// A condition: bool, number, pointer.
    pub(crate) fn condition(&mut self, expr: Expr) -> Res<Expr> {
        let bool_id = Types::scalar_id(Scalar::Bool);
        match self.types.get(expr.ty) {
            Ty::Scalar(_) | Ty::Ptr { .. } => {
                let at = expr.at;
                self.explicit(expr, bool_id, at)
            }
            Ty::Enum(e) if !self.types.enums[e as usize].scoped => {
                let at = expr.at;
                self.explicit(expr, bool_id, at)
            }
            _ => {
                let name = self.types.name(expr.ty);
                fail(expr.at, format!("value of type '{name}' is not contextually convertible to 'bool'"))
            }
        }
    }
}

/// Folds the conversion of a constant where the result is plain to see.
fn convert_const(bits: u64, from: Scalar, to: Scalar) -> Option<u64> {
    if from.is_float() || to == Scalar::Bool {
        let zero = if from.is_float() { f32::from_bits(bits as u32) == 0.0 } else { bits == 0 };
        return match to {
            Scalar::Bool => Some(u64::from(!zero)),
            Scalar::Float if from.is_float() => Some(bits),
            _ => None,
        };
    }
    // Integer constants are kept as 64 bits, extended by their type.
    match to {
        Scalar::Float => {
            let value = if from == Scalar::ULong { bits as f32 } else { bits as i64 as f32 };
            Some(value.to_bits().into())
        }
        Scalar::Half | Scalar::BFloat => None,
        _ => Some(fit_int(bits, to)),
    }
}

/// An integer cut to a type and extended again to 64 bits.
pub(crate) fn fit_int(bits: u64, to: Scalar) -> u64 {
    match to {
        Scalar::Bool => u64::from(bits != 0),
        Scalar::Char => bits as i8 as i64 as u64,
        Scalar::UChar => bits as u8 as u64,
        Scalar::Short => bits as i16 as i64 as u64,
        Scalar::UShort => bits as u16 as u64,
        Scalar::Int => bits as i32 as i64 as u64,
        Scalar::UInt => bits as u32 as u64,
        _ => bits,
    }
}
