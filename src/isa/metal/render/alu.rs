//! Arithmetic and comparisons on one lane.

use super::{Lane, Render, Res};
use doorbell_uop::{Op, Scalar, UOp};

impl Render<'_> {
    /// An operation whose operands and result have the type of `u`.
    pub(super) fn alu(&mut self, u: &UOp, op: Op, a: &[Lane]) -> Res<Lane> {
        let t = u.dtype().scalar;
        self.has_type(u, t)?;
        let text = match t {
            Scalar::Bool => bool_op(op, a),
            Scalar::F32 | Scalar::F16 => self.float_op(op, t, a),
            t if t.is_int() => self.int_op(u, op, a),
            _ => None,
        };
        text.map(|text| self.named(t, &text)).ok_or_else(|| self.unsupported(u))
    }

    fn float_op(&self, op: Op, t: Scalar, a: &[Lane]) -> Option<String> {
        let x = &a[0];
        let single = t == Scalar::F32;
        Some(match op {
            Op::Add => format!("{x} + {}", a[1]),
            Op::Sub => format!("{x} - {}", a[1]),
            Op::Mul => format!("{x} * {}", a[1]),
            Op::MulAcc => format!("fma({x}, {}, {})", a[1], a[2]),
            Op::Neg => format!("-{x}"),
            Op::Max if self.program.fast_math => format!("max({x}, {})", a[1]),
            // NaN wins, whichever operand it is.
            Op::Max => format!("{x} < {y} || {y} != {y} ? {y} : {x}", y = a[1]),
            Op::FDiv if single => format!("{x} / {}", a[1]),
            Op::Sqrt if single => format!("precise::sqrt({x})"),
            Op::Recip if single => format!("1.0f / {x}"),
            Op::Trunc if single => format!("trunc({x})"),
            Op::Sin if single => format!("{}sin({x})", self.exactly()),
            Op::Pow if single => format!("{}pow({x}, {})", self.exactly(), a[1]),
            _ => return None,
        })
    }

    /// The names of functions of full accuracy, unless the program does without.
    fn exactly(&self) -> &'static str {
        if self.program.fast_math { "fast::" } else { "precise::" }
    }

    fn int_op(&self, u: &UOp, op: Op, a: &[Lane]) -> Option<String> {
        let t = u.dtype().scalar;
        let (x, name) = (&a[0], self.type_name(t));
        let wide = t.size_bytes() == 8;
        let unsigned = if wide { "ulong" } else { "uint" };
        // A sum whose bounds are known to fit does not wrap around; of a reduction they say nothing.
        let fits = t.size_bytes() >= 4 && op == u.op() && inside(u);
        let wrapped = |sign: &str| match fits || (t.size_bytes() >= 4 && !t.is_signed()) {
            true => format!("{x} {sign} {}", a[1]),
            false => format!("{name}({unsigned}({x}) {sign} {unsigned}({}))", a[1]),
        };
        let plain = |sign: &str| match t.size_bytes() >= 4 {
            true => format!("{x} {sign} {}", a[1]),
            false => format!("{name}({x} {sign} {})", a[1]),
        };
        Some(match op {
            Op::Trunc => x.to_string(),
            Op::Add => wrapped("+"),
            Op::Sub => wrapped("-"),
            Op::Mul => wrapped("*"),
            Op::MulAcc => format!("{name}({unsigned}({x}) * {unsigned}({}) + {unsigned}({}))", a[1], a[2]),
            Op::Neg => format!("{name}({unsigned}(0) - {unsigned}({x}))"),
            Op::And => plain("&"),
            Op::Or => plain("|"),
            Op::Xor => plain("^"),
            Op::Max => format!("max({x}, {})", a[1]),
            Op::CDiv => plain("/"),
            Op::CMod => plain("%"),
            Op::Shl | Op::Shr => shift(u, op == Op::Shl, (x, &a[1]), (name, unsigned)),
            _ => return None,
        })
    }

    pub(super) fn compare(&mut self, op: Op, t: Scalar, a: &Lane, b: &Lane) -> Lane {
        let sign = match op {
            Op::CmpLt => "<",
            Op::CmpNe => "!=",
            _ => "==",
        };
        let text = match t {
            Scalar::Bool if op == Op::CmpLt => format!("!{a} && {b}"),
            Scalar::BF16 => format!("{} {sign} {}", self.bfloat_to_float(a), self.bfloat_to_float(b)),
            _ => format!("{a} {sign} {b}"),
        };
        self.named(Scalar::Bool, &text)
    }
}

/// Whether a sum's bounds lie within its type with room to spare, which a sum that wraps around never has.
fn inside(u: &UOp) -> bool {
    let limit = 1i128 << (8 * u.dtype().scalar.size_bytes() - 1);
    let whole = |x: &UOp| -limit < x.vmin() && x.vmax() < limit - 1;
    u.dtype().scalar.is_signed() && whole(u) && u.src().iter().all(whole)
}

/// Shifting by the width or more is shifting by one that many times.
fn shift(u: &UOp, left: bool, (x, count): (&Lane, &Lane), (name, unsigned): (&str, &str)) -> String {
    let t = u.dtype().scalar;
    let width = 8 * t.size_bytes();
    let known = u.src().get(1).and_then(UOp::as_int).and_then(|n| usize::try_from(n).ok());
    let by_sign = !left && t.is_signed();
    let shifted = |n: &str| match left {
        true => format!("{name}({unsigned}({x}) << {n})"),
        false => format!("{name}({x} >> {n})"),
    };
    match known {
        Some(n) if n < width => shifted(&n.to_string()),
        Some(_) if by_sign => shifted(&(width - 1).to_string()),
        Some(_) => format!("{name}(0)"),
        None if by_sign => shifted(&format!("min(uint({count}), {}u)", width - 1)),
        None => format!("{unsigned}({count}) < {width} ? {} : {name}(0)", shifted(&format!("uint({count})"))),
    }
}

fn bool_op(op: Op, a: &[Lane]) -> Option<String> {
    let x = &a[0];
    Some(match op {
        Op::Add | Op::Or | Op::Max => format!("{x} || {}", a[1]),
        Op::Mul | Op::And => format!("{x} && {}", a[1]),
        Op::Xor | Op::Sub => format!("{x} != {}", a[1]),
        Op::Neg | Op::Trunc => x.to_string(),
        Op::MulAcc => format!("({x} && {}) || {}", a[1], a[2]),
        _ => return None,
    })
}
