//! Constant expressions: literals and `WARP_SZ` with C's operators, computed in 64 bits; signed unless an operand is
//! unsigned.
//!
//! Source: PTX ISA 8.8, section 4.6. Two details follow ptxas 13.5.37: remainders are unsigned, and shifts use the
//! lowest six bits of the count. Floating-point constants may have a sign, but no other operator. Division by zero is
//! an error.

use super::lex::Kind;
use super::module::Imm;
use super::number;
use super::parse::{ParseError, Parser};

type Res<T> = Result<T, ParseError>;

/// Threads of a warp, `WARP_SZ`.
const WARP_SZ: i64 = 32;

/// A value of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Int(Int),
    Float(Imm),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Int {
    bits: i64,
    unsigned: bool,
}

impl Value {
    const fn int(bits: i64, unsigned: bool) -> Value {
        Value::Int(Int { bits, unsigned })
    }
}

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Binary {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

use Binary::*;

/// Precedence of an operator, from 1.
const fn strength(op: Binary) -> u8 {
    match op {
        Or => 1,
        And => 2,
        BitOr => 3,
        BitXor => 4,
        BitAnd => 5,
        Equal | NotEqual => 6,
        Less | LessEqual | Greater | GreaterEqual => 7,
        ShiftLeft | ShiftRight => 8,
        Add | Sub => 9,
        Mul | Div | Rem => PRODUCT,
    }
}

/// Products have the highest precedence.
const PRODUCT: u8 = 10;

/// The result; `None`: a division by zero.
fn computed(op: Binary, left: Int, right: Int) -> Option<Value> {
    let unsigned = left.unsigned || right.unsigned;
    let (a, b) = (left.bits, right.bits);
    let (x, y) = (a.cast_unsigned(), b.cast_unsigned());
    let truth = |t: bool| Value::int(i64::from(t), false);
    let less = if unsigned { x < y } else { a < b };
    // The lowest six bits are the shift count.
    let by = y & 63;
    let shifted = match op {
        ShiftLeft => a << by,
        _ if left.unsigned => (x >> by).cast_signed(),
        _ => a >> by,
    };
    Some(match op {
        Or => truth(a != 0 || b != 0),
        And => truth(a != 0 && b != 0),
        BitOr => Value::int(a | b, unsigned),
        BitXor => Value::int(a ^ b, unsigned),
        BitAnd => Value::int(a & b, unsigned),
        Equal => truth(a == b),
        NotEqual => truth(a != b),
        Less => truth(less),
        LessEqual => truth(less || a == b),
        Greater => truth(!less && a != b),
        GreaterEqual => truth(!less),
        ShiftLeft | ShiftRight => Value::int(shifted, left.unsigned),
        Add => Value::int(a.wrapping_add(b), unsigned),
        Sub => Value::int(a.wrapping_sub(b), unsigned),
        Mul => Value::int(a.wrapping_mul(b), unsigned),
        Div if unsigned => Value::int(x.checked_div(y)?.cast_signed(), true),
        // Unsigned, regardless of the operands' signedness.
        Rem => Value::int(x.checked_rem(y)?.cast_signed(), true),
        Div if b != 0 => Value::int(a.wrapping_div(b), false),
        Div => return None,
    })
}

impl Parser<'_> {
    /// A constant: a literal with its sign, or an expression.
    pub(super) fn constant(&mut self) -> Res<Imm> {
        match self.choice()? {
            Value::Int(i) => Ok(Imm::Int(i.bits)),
            Value::Float(value) => Ok(value),
        }
    }

    /// A product or a tighter-binding expression (an operand of a sum): an integer.
    pub(super) fn product(&mut self, what: &str) -> Res<i64> {
        let begins =
            matches!(self.tok.kind, Kind::Number(_) | Kind::Sign(b'-' | b'~' | b'(')) || self.is_word("WARP_SZ");
        let at = self.tok;
        match if begins { self.binary(PRODUCT)? } else { return self.wanted(what) } {
            Value::Int(i) => Ok(i.bits),
            Value::Float(_) => Err(ParseError::expected(at.pos, what, "a floating-point constant")),
        }
    }

    /// Whether the current token is a binary operator.
    pub(super) fn is_operator(&mut self) -> bool {
        self.operator().is_some() || self.is_sign(b'?')
    }

    /// The operator at the current token, and how many tokens it consists of.
    fn operator(&mut self) -> Option<(Binary, usize)> {
        let first = match self.tok.kind {
            Kind::Sign(first) => first,
            // `%` may start a name, but no name can follow a value.
            Kind::Word(word) if word.starts_with('%') => {
                self.lexer.at -= word.len() - 1;
                self.tok.kind = Kind::Sign(b'%');
                b'%'
            }
            _ => return None,
        };
        let second = self.lexer.bytes().get(self.lexer.at).copied().unwrap_or(0);
        Some(match (first, second) {
            (b'|', b'|') => (Or, 2),
            (b'&', b'&') => (And, 2),
            (b'=', b'=') => (Equal, 2),
            (b'!', b'=') => (NotEqual, 2),
            (b'<', b'<') => (ShiftLeft, 2),
            (b'>', b'>') => (ShiftRight, 2),
            (b'<', b'=') => (LessEqual, 2),
            (b'>', b'=') => (GreaterEqual, 2),
            (b'<', _) => (Less, 1),
            (b'>', _) => (Greater, 1),
            (b'|', _) => (BitOr, 1),
            (b'^', _) => (BitXor, 1),
            (b'&', _) => (BitAnd, 1),
            (b'+', _) => (Add, 1),
            (b'-', _) => (Sub, 1),
            (b'*', _) => (Mul, 1),
            (b'/', _) => (Div, 1),
            (b'%', _) => (Rem, 1),
            _ => return None,
        })
    }

    /// `a ? b : c`, or a tighter-binding expression.
    fn choice(&mut self) -> Res<Value> {
        let value = self.binary(1)?;
        let Value::Int(which) = value else { return Ok(value) };
        if !self.sign(b'?')? {
            return Ok(value);
        }
        let yes = self.deeper("expressions", Self::choice)?;
        self.need(b':', "between two values")?;
        let no = self.deeper("expressions", Self::choice)?;
        Ok(if which.bits == 0 { no } else { yes })
    }

    /// An expression whose operators have at least this precedence.
    fn binary(&mut self, least: u8) -> Res<Value> {
        let mut value = self.unary()?;
        while let (Value::Int(left), Some((op, signs))) = (value, self.operator())
            && strength(op) >= least
        {
            let pos = self.tok.pos;
            (0..signs).try_for_each(|_| self.advance())?;
            let Value::Int(right) = self.deeper("expressions", |p| p.binary(strength(op) + 1))? else {
                return Err(ParseError::expected(pos, "integers around an operator", "a floating-point constant"));
            };
            value = computed(op, left, right)
                .ok_or_else(|| ParseError::expected(pos, "a divisor that is not zero", "0"))?;
        }
        Ok(value)
    }

    fn unary(&mut self) -> Res<Value> {
        match self.tok.kind {
            Kind::Sign(sign @ (b'-' | b'+' | b'~' | b'!')) => {
                self.advance()?;
                let value = self.deeper("expressions", Self::unary)?;
                Ok(match (sign, value) {
                    (b'-', Value::Int(i)) => Value::int(i.bits.wrapping_neg(), i.unsigned),
                    (b'~', Value::Int(i)) => Value::int(!i.bits, i.unsigned),
                    (b'!', Value::Int(i)) => Value::int(i64::from(i.bits == 0), false),
                    (b'-', Value::Float(Imm::F32(b))) => Value::Float(Imm::F32(b ^ 1 << 31)),
                    (b'-', Value::Float(Imm::F64(b))) => Value::Float(Imm::F64(b ^ 1 << 63)),
                    (_, value) => value,
                })
            }
            Kind::Sign(b'(') => {
                self.advance()?;
                if let Some(ty @ ("s64" | "u64")) = self.directive() {
                    self.advance()?;
                    self.need(b')', "after a type")?;
                    let value = self.deeper("expressions", Self::unary)?;
                    return Ok(match value {
                        Value::Int(i) => Value::int(i.bits, ty == "u64"),
                        other => other,
                    });
                }
                let value = self.deeper("expressions", Self::choice)?;
                self.need(b')', "after an expression")?;
                Ok(value)
            }
            Kind::Number(text) => {
                let Some(value) = number::constant(text) else { return self.wanted("a number of PTX") };
                self.advance()?;
                Ok(match value {
                    // A literal that does not fit into a signed number is unsigned.
                    Imm::Int(i) => Value::int(i, i < 0 || text.ends_with('U')),
                    other => Value::Float(other),
                })
            }
            Kind::Word("WARP_SZ") => {
                self.advance()?;
                Ok(Value::int(WARP_SZ, false))
            }
            _ => self.wanted("a number"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ptx::{Imm, Operand, Statement, parse};

    /// The value of an expression as an operand.
    fn value(text: &str) -> Result<Imm, String> {
        let body = format!(".entry k() {{ .reg .b64 %r<1>; mov.b64 %r0, {text}; }}");
        let module = parse(&body).map_err(|e| e.to_string())?;
        let statements = module.functions().next().and_then(|f| f.body.clone()).unwrap_or_default();
        match statements.last() {
            Some(Statement::Inst(i)) => match &i.operands[1] {
                Operand::Imm(v) => Ok(*v),
                other => Err(format!("{other:?}")),
            },
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn expressions_have_the_values_that_ptxas_gives_them() {
        // `tests/sass/versus.rs` checks most of them against ptxas.
        let all: &[(&str, i64)] = &[
            ("4*8+1", 33),
            ("1+4*8", 33),
            ("(1+4)*8", 40),
            ("-7/2", -3),
            ("-7 % 3", 0),
            ("7 % -3", 7),
            ("-7/2U", 0x7fff_ffff_ffff_fffc),
            ("1<<70", 64),
            ("1 ? -1 : 2U", -1),
            ("1<<4|3", 19),
            ("~0 & 0xff", 255),
            ("-16>>2", -4),
            ("0xfffffffffffffff0>>2", 0x3fff_ffff_ffff_fffc),
            ("(.u64)-16>>60", 15),
            ("3 > 2 ? 10 : 20", 10),
            ("!5", 0),
            ("1 == 1 && 2 != 2 || 7 >= 7", 1),
            ("6 ^ 3", 5),
            ("-1 < 1", 1),
            ("-1 < 1U", 0),
            ("WARP_SZ*2", 64),
        ];
        for (text, want) in all {
            assert_eq!(value(text), Ok(Imm::Int(*want)), "{text}");
        }
        assert_eq!(value("-0f3f800000"), Ok(Imm::F32(0xbf80_0000)));
    }

    #[test]
    fn what_is_no_expression_is_refused_with_its_place() {
        for (text, says) in [
            ("4/0", "1:45: expected a divisor that is not zero, found 0"),
            ("4*", "1:46: expected a number"),
            ("1.5*2", "expected `,` or `;`"),
            ("2*1.5", "integers around an operator"),
            ("1 ? 2", "`:` between two values"),
        ] {
            let e = value(text).expect_err(text);
            assert!(e.contains(says), "{text}: {e}");
        }
        let deep = format!("{}1{}", "(".repeat(100), ")".repeat(100));
        assert!(value(&format!("2*{deep}")).expect_err("too deep").contains("nested deeper"));
    }
}
