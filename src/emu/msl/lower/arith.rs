//! Operators on rows: which operation a type's operator is, and conversions between types.

use super::Lower;
use crate::code::{Bin, Inst, Row, Un};
use crate::error::Res;
use crate::tree::Binary;
use crate::types::Scalar;

/// The operation, and whether the operands change sides.
fn operation(op: Binary, scalar: Scalar) -> (Bin, bool) {
    use Binary as B;
    if scalar.is_float() {
        return match op {
            B::Add => (Bin::AddF, false),
            B::Sub => (Bin::SubF, false),
            B::Mul => (Bin::MulF, false),
            B::Div => (Bin::DivF, false),
            B::Eq => (Bin::EqF, false),
            B::Ne => (Bin::NeF, false),
            B::Lt => (Bin::LtF, false),
            B::Gt => (Bin::LtF, true),
            B::Le => (Bin::LeF, false),
            B::Ge => (Bin::LeF, true),
            // The front end lets no other operator through.
            _ => (Bin::Fmod, false),
        };
    }
    let (wide, signed) = (scalar.is_wide(), scalar.is_signed());
    let pick = |n: Bin, ns: Bin, w: Bin, ws: Bin| match (wide, signed) {
        (false, false) => n,
        (false, true) => ns,
        (true, false) => w,
        (true, true) => ws,
    };
    match op {
        B::Add => (pick(Bin::AddI, Bin::AddI, Bin::AddL, Bin::AddL), false),
        B::Sub => (pick(Bin::SubI, Bin::SubI, Bin::SubL, Bin::SubL), false),
        B::Mul => (pick(Bin::MulI, Bin::MulI, Bin::MulL, Bin::MulL), false),
        B::Div => (pick(Bin::DivU, Bin::DivS, Bin::DivLU, Bin::DivLS), false),
        B::Rem => (pick(Bin::RemU, Bin::RemS, Bin::RemLU, Bin::RemLS), false),
        B::Shl => (pick(Bin::Shl, Bin::Shl, Bin::ShlL, Bin::ShlL), false),
        B::Shr => (pick(Bin::ShrU, Bin::ShrS, Bin::ShrLU, Bin::ShrLS), false),
        B::And => (Bin::And, false),
        B::Or => (Bin::Or, false),
        B::Xor => (Bin::Xor, false),
        B::Eq => (pick(Bin::EqI, Bin::EqI, Bin::EqL, Bin::EqL), false),
        B::Ne => (pick(Bin::NeI, Bin::NeI, Bin::NeL, Bin::NeL), false),
        B::Lt | B::Gt => (pick(Bin::LtU, Bin::LtS, Bin::LtLU, Bin::LtLS), op == B::Gt),
        B::Le | B::Ge => (pick(Bin::LeU, Bin::LeS, Bin::LeLU, Bin::LeLS), op == B::Ge),
    }
}

impl Lower<'_> {
    /// An operator on two values of one type; the result's element is `scalar`, or bool for comparisons.
    pub(crate) fn binary(
        &mut self,
        op: Binary,
        scalar: Scalar,
        n: u32,
        (a, b): (Row, Row),
        d: Option<Row>,
    ) -> Res<Row> {
        let (code, swap) = operation(op, scalar);
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let bitwise = matches!(code, Bin::And | Bin::Or | Bin::Xor);
        let rows = if op.is_comparison() { n } else { n * scalar.rows() };
        let d = d.unwrap_or_else(|| self.alloc(rows));
        self.emit(Inst::Bin { op: code, d, a, b, n: if bitwise { rows } else { n } });
        if !op.is_comparison() && !bitwise {
            self.fit(scalar, d, n);
        }
        Ok(d)
    }

    /// Brings results of 32-bit operations back to what a smaller type can hold.
    pub(crate) fn fit(&mut self, scalar: Scalar, d: Row, n: u32) {
        let op = match scalar {
            Scalar::Char => Un::Char,
            Scalar::UChar => Un::UChar,
            Scalar::Short => Un::Short,
            Scalar::UShort => Un::UShort,
            Scalar::Half => Un::Half,
            Scalar::BFloat => Un::BFloat,
            Scalar::Bool => Un::BoolI,
            _ => return,
        };
        self.emit(Inst::Un { op, d, a: d, n });
    }

    /// `n` elements of one type as another.
    pub(crate) fn convert(&mut self, a: Row, from: Scalar, to: Scalar, n: u32, d: Option<Row>) -> Row {
        if from == to {
            return a;
        }
        if from.is_float() {
            return self.convert_float(a, from, to, n, d);
        }
        let (wide, signed) = (from.is_wide(), from.is_signed());
        let op = match to {
            Scalar::Bool => {
                if wide {
                    Un::BoolL
                } else {
                    Un::BoolI
                }
            }
            Scalar::Float | Scalar::Half => match (wide, signed) {
                (false, true) => Un::IntToFloat,
                (false, false) => Un::UIntToFloat,
                (true, true) => Un::LongToFloat,
                (true, false) => Un::ULongToFloat,
            },
            Scalar::BFloat => match (wide, signed) {
                (false, true) => Un::IntToBFloat,
                (false, false) => Un::UIntToBFloat,
                (true, true) => Un::LongToBFloat,
                (true, false) => Un::ULongToBFloat,
            },
            Scalar::Long | Scalar::ULong if wide => return a,
            Scalar::Long | Scalar::ULong => {
                if signed {
                    Un::IntToLong
                } else {
                    Un::UIntToLong
                }
            }
            _ if wide => {
                let d = self.un(Un::LongToInt, a, n);
                self.fit(to, d, n);
                return d;
            }
            Scalar::Int | Scalar::UInt => return a,
            Scalar::Char => Un::Char,
            Scalar::UChar => Un::UChar,
            Scalar::Short => Un::Short,
            Scalar::UShort => Un::UShort,
        };
        let d = d.unwrap_or_else(|| self.alloc(op.rows().1 * n));
        self.emit(Inst::Un { op, d, a, n });
        if to == Scalar::Half {
            self.fit(to, d, n);
        }
        d
    }

    fn convert_float(&mut self, a: Row, from: Scalar, to: Scalar, n: u32, d: Option<Row>) -> Row {
        let _ = from;
        let op = match to {
            Scalar::Float => return a,
            Scalar::Half => Un::Half,
            Scalar::BFloat => Un::BFloat,
            Scalar::Bool => Un::BoolF,
            Scalar::Long => Un::FloatToLong,
            Scalar::ULong => Un::FloatToULong,
            Scalar::UInt => Un::FloatToUInt,
            _ => Un::FloatToInt,
        };
        let d = d.unwrap_or_else(|| self.alloc(op.rows().1 * n));
        self.emit(Inst::Un { op, d, a, n });
        if to.is_int() && to.bytes() < 4 && to != Scalar::Bool {
            self.fit(to, d, n);
        }
        d
    }
}
