//! Functions of the library that compute: each becomes a few instructions.

use super::Lower;
use crate::code::{Bin, Inst, Math, Row, Un};
use crate::error::{Res, fail};
use crate::tree::{Binary, Expr};
use crate::types::Scalar;

fn math(name: &str) -> Option<Math> {
    Some(match name {
        "sin" => Math::Sin,
        "cos" => Math::Cos,
        "tan" => Math::Tan,
        "asin" => Math::Asin,
        "acos" => Math::Acos,
        "atan" => Math::Atan,
        "sinh" => Math::Sinh,
        "cosh" => Math::Cosh,
        "tanh" => Math::Tanh,
        "asinh" => Math::Asinh,
        "acosh" => Math::Acosh,
        "atanh" => Math::Atanh,
        "sinpi" => Math::SinPi,
        "cospi" => Math::CosPi,
        "tanpi" => Math::TanPi,
        "exp" => Math::Exp,
        "exp2" => Math::Exp2,
        "exp10" => Math::Exp10,
        "log" => Math::Log,
        "log2" => Math::Log2,
        "log10" => Math::Log10,
        "sqrt" => Math::Sqrt,
        "rsqrt" => Math::Rsqrt,
        "floor" => Math::Floor,
        "ceil" => Math::Ceil,
        "round" => Math::Round,
        "rint" => Math::Rint,
        "trunc" => Math::Trunc,
        "fract" => Math::Fract,
        "sign" => Math::Sign,
        "saturate" => Math::Saturate,
        _ => return None,
    })
}

/// Two operands: the operation by signedness and width.
fn two(name: &str, scalar: Scalar) -> Option<Bin> {
    let signed = scalar.is_signed();
    let pick = |s: Bin, u: Bin| Some(if signed { s } else { u });
    let by = |s: Bin, u: Bin, ls: Bin, lu: Bin| if scalar.is_wide() { pick(ls, lu) } else { pick(s, u) };
    Some(match name {
        "pow" | "powr" => Bin::Pow,
        "atan2" => Bin::Atan2,
        "fmod" => Bin::Fmod,
        "fmin" => Bin::MinF,
        "fmax" => Bin::MaxF,
        "min" if scalar.is_float() => Bin::MinF,
        "max" if scalar.is_float() => Bin::MaxF,
        "copysign" => Bin::CopySign,
        "fdim" => Bin::Fdim,
        "step" => Bin::Step,
        "nextafter" if scalar == Scalar::Float => Bin::NextAfter,
        "divide" => Bin::DivF,
        "min" => return by(Bin::MinS, Bin::MinU, Bin::MinLS, Bin::MinLU),
        "max" => return by(Bin::MaxS, Bin::MaxU, Bin::MaxLS, Bin::MaxLU),
        _ => return None,
    })
}

impl Lower<'_> {
    pub(crate) fn builtin(&mut self, name: &str, args: &[Expr], e: &Expr, d: Option<Row>) -> Res<Row> {
        if crate::parse::has_effect(name) || name.starts_with("make_filled") {
            return self.effect(name, args, e);
        }
        let (scalar, n) = self.parts(args[0].ty);
        let mut rows = Vec::new();
        for arg in args {
            rows.push(self.value(arg)?);
        }
        self.at = e.at;
        if let Some(op) = math(name) {
            let d = d.unwrap_or_else(|| self.alloc(n));
            self.emit(Inst::Un { op: Un::Math(op), d, a: rows[0], n });
            self.fit(scalar, d, n);
            return Ok(d);
        }
        if let Some(op) = two(name, scalar) {
            let d = d.unwrap_or_else(|| self.alloc(n * scalar.rows()));
            self.emit(Inst::Bin { op, d, a: rows[0], b: rows[1], n });
            self.fit(scalar, d, n);
            return Ok(d);
        }
        if scalar.is_int() && name != "select" && !matches!(name, "any" | "all" | "clamp" | "min3" | "max3" | "median3")
        {
            return self.integer(name, scalar, n, &rows, e.at);
        }
        self.composed(name, scalar, n, &rows, e)
    }

    fn op(&mut self, op: Binary, scalar: Scalar, n: u32, a: Row, b: Row) -> Res<Row> {
        self.binary(op, scalar, n, (a, b), None)
    }

    fn named(&mut self, name: &str, scalar: Scalar, n: u32, a: Row, b: Row) -> Res<Row> {
        let Some(op) = two(name, scalar) else { return fail(self.at, "unknown operation") };
        Ok(self.bin(op, a, b, n))
    }

    fn floats(&mut self, v: f32, n: u32) -> Row {
        let a = self.constant(v.to_bits());
        let d = self.alloc(n);
        self.emit(Inst::Splat { d, a, n, rows: 1 });
        d
    }

    /// Functions that are made of others.
    fn composed(&mut self, name: &str, scalar: Scalar, n: u32, r: &[Row], e: &Expr) -> Res<Row> {
        use Binary::{Add, Div, Mul, Sub};
        match name {
            "fabs" | "abs" => Ok(self.un(Un::AbsF, r[0], n)),
            "fma" => {
                let d = self.alloc(n);
                self.emit(Inst::Fma { d, a: r[0], b: r[1], c: r[2], n });
                self.fit(scalar, d, n);
                Ok(d)
            }
            "mix" => {
                let span = self.op(Sub, scalar, n, r[1], r[0])?;
                let part = self.op(Mul, scalar, n, span, r[2])?;
                self.op(Add, scalar, n, r[0], part)
            }
            "smoothstep" => {
                let (above, span) = (self.op(Sub, scalar, n, r[2], r[0])?, self.op(Sub, scalar, n, r[1], r[0])?);
                let part = self.op(Div, scalar, n, above, span)?;
                let t = self.un(Un::Math(Math::Saturate), part, n);
                let (two, three) = (self.floats(2.0, n), self.floats(3.0, n));
                let twice = self.op(Mul, scalar, n, two, t)?;
                let rest = self.op(Sub, scalar, n, three, twice)?;
                let square = self.op(Mul, scalar, n, t, t)?;
                self.op(Mul, scalar, n, square, rest)
            }
            "clamp" => {
                let low = self.named("max", scalar, n, r[0], r[1])?;
                self.named("min", scalar, n, low, r[2])
            }
            "min3" | "fmin3" | "max3" | "fmax3" => {
                let which = if name.contains("min") { "min" } else { "max" };
                let pair = self.named(which, scalar, n, r[0], r[1])?;
                self.named(which, scalar, n, pair, r[2])
            }
            "median3" | "fmedian3" => {
                let low = self.named("min", scalar, n, r[0], r[1])?;
                let high = self.named("max", scalar, n, r[0], r[1])?;
                let cut = self.named("min", scalar, n, high, r[2])?;
                self.named("max", scalar, n, low, cut)
            }
            "isnan" => Ok(self.un(Un::IsNan, r[0], n)),
            "isinf" => Ok(self.un(Un::IsInf, r[0], n)),
            "isfinite" => Ok(self.un(Un::IsFinite, r[0], n)),
            "isnormal" => Ok(self.un(if scalar == Scalar::Half { Un::HalfIsNormal } else { Un::IsNormal }, r[0], n)),
            "signbit" => Ok(self.un(Un::SignBit, r[0], n)),
            "ilogb" => Ok(self.un(Un::Ilogb, r[0], n)),
            "any" | "all" => {
                let op = if name == "any" { Bin::Or } else { Bin::And };
                let mut d = r[0];
                for lane in 1..n {
                    d = self.bin(op, d, r[0] + lane, 1);
                }
                Ok(d)
            }
            "select" => {
                let (rows, step) = (n * scalar.rows(), scalar.rows());
                let d = self.alloc(rows);
                self.emit(Inst::Select { d, c: r[2], a: r[1], b: r[0], n: rows, step });
                Ok(d)
            }
            "ldexp" => {
                let d = self.bin(Bin::Ldexp, r[0], r[1], n);
                self.fit(scalar, d, n);
                Ok(d)
            }
            _ => self.geometric(name, scalar, n, r, e),
        }
    }

    fn dot(&mut self, scalar: Scalar, n: u32, a: Row, b: Row) -> Res<Row> {
        let parts = self.op(Binary::Mul, scalar, n, a, b)?;
        let mut sum = parts;
        for lane in 1..n {
            sum = self.op(Binary::Add, scalar, 1, sum, parts + lane)?;
        }
        Ok(sum)
    }

    fn splatted(&mut self, a: Row, n: u32) -> Row {
        let d = self.alloc(n);
        self.emit(Inst::Splat { d, a, n, rows: 1 });
        d
    }

    fn root(&mut self, op: Math, scalar: Scalar, a: Row) -> Row {
        let d = self.un(Un::Math(op), a, 1);
        self.fit(scalar, d, 1);
        d
    }

    fn geometric(&mut self, name: &str, scalar: Scalar, n: u32, r: &[Row], e: &Expr) -> Res<Row> {
        match name {
            "dot" => self.dot(scalar, n, r[0], r[1]),
            "length_squared" => self.dot(scalar, n, r[0], r[0]),
            "length" => {
                let square = self.dot(scalar, n, r[0], r[0])?;
                Ok(self.root(Math::Sqrt, scalar, square))
            }
            "distance" | "distance_squared" => {
                let by = self.op(Binary::Sub, scalar, n, r[0], r[1])?;
                let square = self.dot(scalar, n, by, by)?;
                Ok(if name == "distance" { self.root(Math::Sqrt, scalar, square) } else { square })
            }
            "normalize" => {
                let square = self.dot(scalar, n, r[0], r[0])?;
                let scale = self.root(Math::Rsqrt, scalar, square);
                let scale = self.splatted(scale, n);
                self.op(Binary::Mul, scalar, n, r[0], scale)
            }
            "reflect" => {
                let cos = self.dot(scalar, n, r[1], r[0])?;
                let two = self.floats(2.0, 1);
                let twice = self.op(Binary::Mul, scalar, 1, two, cos)?;
                let twice = self.splatted(twice, n);
                let part = self.op(Binary::Mul, scalar, n, twice, r[1])?;
                self.op(Binary::Sub, scalar, n, r[0], part)
            }
            "cross" => {
                let turned = |p: &mut Self, a: Row, by: [u32; 3]| {
                    let d = p.alloc(3);
                    for (k, lane) in by.into_iter().enumerate() {
                        p.emit(Inst::Mov { d: d + k as u32, a: a + lane, n: 1 });
                    }
                    d
                };
                let (a1, b2) = (turned(self, r[0], [1, 2, 0]), turned(self, r[1], [2, 0, 1]));
                let (a2, b1) = (turned(self, r[0], [2, 0, 1]), turned(self, r[1], [1, 2, 0]));
                let (x, y) = (self.op(Binary::Mul, scalar, 3, a1, b2)?, self.op(Binary::Mul, scalar, 3, a2, b1)?);
                self.op(Binary::Sub, scalar, 3, x, y)
            }
            _ => fail(e.at, format!("'{name}' is not supported")),
        }
    }

    /// Functions of integers.
    fn integer(&mut self, name: &str, scalar: Scalar, n: u32, r: &[Row], at: crate::error::Pos) -> Res<Row> {
        let (signed, wide, bits) = (scalar.is_signed(), scalar.is_wide(), scalar.bytes() * 8);
        let small = bits < 32;
        let pick = |s: Bin, u: Bin| if signed { s } else { u };
        let d = match name {
            "abs" if !signed => r[0],
            "abs" => self.un(if wide { Un::AbsL } else { Un::AbsI }, r[0], n),
            "popcount" | "clz" | "ctz" | "reverse_bits" => self.count_bits(name, scalar, n, r[0]),
            "rotate" if wide => self.bin(Bin::RotateL, r[0], r[1], n),
            "rotate" if !small => self.bin(Bin::Rotate, r[0], r[1], n),
            "rotate" => self.rotate_small(scalar, n, r[0], r[1])?,
            "mulhi" if wide => self.bin(pick(Bin::MulHiLS, Bin::MulHiLU), r[0], r[1], n),
            "mulhi" if !small => self.bin(pick(Bin::MulHiS, Bin::MulHiU), r[0], r[1], n),
            "mulhi" => {
                let product = self.bin(Bin::MulI, r[0], r[1], n);
                let by = self.uints(bits, n);
                self.bin(pick(Bin::ShrS, Bin::ShrU), product, by, n)
            }
            "mad24" | "mul24" if !wide && !small => {
                let product = self.bin(Bin::MulI, r[0], r[1], n);
                if name == "mul24" { product } else { self.bin(Bin::AddI, product, r[2], n) }
            }
            "madhi" => {
                let high = self.integer("mulhi", scalar, n, &r[..2], at)?;
                self.op(Binary::Add, scalar, n, high, r[2])?
            }
            "absdiff" if !wide => self.bin(pick(Bin::AbsDiffS, Bin::AbsDiffU), r[0], r[1], n),
            "hadd" if !wide => self.bin(pick(Bin::HaddS, Bin::HaddU), r[0], r[1], n),
            "rhadd" if !wide => self.bin(pick(Bin::RhaddS, Bin::RhaddU), r[0], r[1], n),
            "addsat" | "subsat" if small => self.saturate_small(name == "addsat", scalar, n, r),
            "addsat" if wide => self.bin(pick(Bin::AddSatLS, Bin::AddSatLU), r[0], r[1], n),
            "subsat" if wide => self.bin(pick(Bin::SubSatLS, Bin::SubSatLU), r[0], r[1], n),
            "addsat" => self.bin(pick(Bin::AddSatS, Bin::AddSatU), r[0], r[1], n),
            "subsat" => self.bin(pick(Bin::SubSatS, Bin::SubSatU), r[0], r[1], n),
            "extract_bits" => self.extract(scalar, n, r)?,
            "insert_bits" => self.insert(scalar, n, r)?,
            _ => return fail(at, format!("'{name}' is not supported for '{}'", scalar.name())),
        };
        self.fit(scalar, d, if d == r[0] { 0 } else { n });
        Ok(d)
    }

    fn uints(&mut self, v: u32, n: u32) -> Row {
        let a = self.constant(v);
        let d = self.alloc(n);
        self.emit(Inst::Splat { d, a, n, rows: 1 });
        d
    }

    /// Bits above the type's width do not count.
    fn count_bits(&mut self, name: &str, scalar: Scalar, n: u32, a: Row) -> Row {
        if scalar.is_wide() {
            let op = match name {
                "popcount" => Un::PopcountL,
                "clz" => Un::ClzL,
                "ctz" => Un::CtzL,
                _ => Un::ReverseL,
            };
            return self.un(op, a, n);
        }
        let bits = scalar.bytes() * 8;
        let mut a = a;
        if bits < 32 {
            let mask = self.uints((1 << bits) - 1, n);
            a = self.bin(Bin::And, a, mask, n);
        }
        match name {
            "popcount" => self.un(Un::Popcount, a, n),
            "clz" => {
                let all = self.un(Un::Clz, a, n);
                let rest = self.uints(32 - bits, n);
                self.bin(Bin::SubI, all, rest, n)
            }
            "ctz" => {
                let all = self.un(Un::Ctz, a, n);
                let most = self.uints(bits, n);
                self.bin(Bin::MinU, all, most, n)
            }
            _ => {
                let all = self.un(Un::Reverse, a, n);
                let by = self.uints(32 - bits, n);
                self.bin(Bin::ShrU, all, by, n)
            }
        }
    }

    fn rotate_small(&mut self, scalar: Scalar, n: u32, a: Row, by: Row) -> Res<Row> {
        let bits = scalar.bytes() * 8;
        let (mask, width, most) = (self.uints((1 << bits) - 1, n), self.uints(bits, n), self.uints(bits - 1, n));
        let a = self.bin(Bin::And, a, mask, n);
        let by = self.bin(Bin::And, by, most, n);
        let left = self.bin(Bin::Shl, a, by, n);
        let rest = self.bin(Bin::SubI, width, by, n);
        let right = self.bin(Bin::ShrU, a, rest, n);
        Ok(self.bin(Bin::Or, left, right, n))
    }

    fn saturate_small(&mut self, add: bool, scalar: Scalar, n: u32, r: &[Row]) -> Row {
        let bits = scalar.bytes() * 8;
        let (low, high) = if scalar.is_signed() {
            (-(1_i32 << (bits - 1)), (1_i32 << (bits - 1)) - 1)
        } else {
            (0, (1_i32 << bits) - 1)
        };
        let sum = self.bin(if add { Bin::AddI } else { Bin::SubI }, r[0], r[1], n);
        let (low, high) = (self.uints(low as u32, n), self.uints(high as u32, n));
        let cut = self.bin(Bin::MaxS, sum, low, n);
        self.bin(Bin::MinS, cut, high, n)
    }

    /// `extract_bits(x, offset, bits)`
    fn extract(&mut self, scalar: Scalar, n: u32, r: &[Row]) -> Res<Row> {
        let (offset, bits) = (self.splatted(r[1], n), self.splatted(r[2], n));
        let width = self.uints(32, n);
        let used = self.bin(Bin::AddI, offset, bits, n);
        let up = self.bin(Bin::SubI, width, used, n);
        let down = self.bin(Bin::SubI, width, bits, n);
        let moved = self.bin(Bin::Shl, r[0], up, n);
        let right = if scalar.is_signed() { Bin::ShrS } else { Bin::ShrU };
        let made = self.bin(right, moved, down, n);
        // No bits: zero, where shifts by the whole width would not be.
        let zero = self.uints(0, n);
        let none = self.bin(Bin::EqI, bits, zero, n);
        Ok(self.select(none, zero, made, n))
    }

    /// `insert_bits(base, insert, offset, bits)`
    fn insert(&mut self, _scalar: Scalar, n: u32, r: &[Row]) -> Res<Row> {
        let (offset, bits) = (self.splatted(r[2], n), self.splatted(r[3], n));
        let (ones, width, zero) = (self.uints(u32::MAX, n), self.uints(32, n), self.uints(0, n));
        let rest = self.bin(Bin::SubI, width, bits, n);
        let low = self.bin(Bin::ShrU, ones, rest, n);
        let none = self.bin(Bin::EqI, bits, zero, n);
        let low = self.select(none, zero, low, n);
        let mask = self.bin(Bin::Shl, low, offset, n);
        let moved = self.bin(Bin::Shl, r[1], offset, n);
        let inside = self.bin(Bin::And, moved, mask, n);
        let outside = self.un(Un::BitNot, mask, n);
        let kept = self.bin(Bin::And, r[0], outside, n);
        Ok(self.bin(Bin::Or, kept, inside, n))
    }
}
