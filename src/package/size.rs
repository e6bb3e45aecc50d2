//! Sizes of shapes: numbers, or expressions of variables.

use std::fmt;

/// A size of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// The same in all runs.
    Fixed(u64),
    /// An expression in postfix order: each item takes its operands from a stack and leaves its value there.
    Expression(Vec<Term>),
}

/// An item of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// A number.
    Number(i64),
    /// The value of a variable, by number.
    Variable(u32),
    /// The sum of two.
    Add,
    /// The first minus the second.
    Sub,
    /// The product of two.
    Mul,
    /// The first divided by the second, rounded down.
    Div,
    /// What that division leaves.
    Mod,
    /// The larger of two.
    Max,
    /// The smaller of two.
    Min,
}

impl Size {
    /// Its value; `None` for a malformed expression, an overflow, a division by zero, or less than zero.
    #[must_use]
    pub fn value(&self, variable: impl Fn(u32) -> Option<i64>) -> Option<u64> {
        let terms = match self {
            Size::Fixed(n) => return Some(*n),
            Size::Expression(terms) => terms,
        };
        let mut stack: Vec<i64> = Vec::with_capacity(4);
        for term in terms {
            let value = match term {
                Term::Number(n) => *n,
                Term::Variable(v) => variable(*v)?,
                operation => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    operation.of(a, b)?
                }
            };
            stack.push(value);
        }
        match stack[..] {
            [value] => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = u32> {
        let terms = if let Size::Expression(terms) = self { &terms[..] } else { &[] };
        terms.iter().filter_map(|t| if let Term::Variable(v) = t { Some(*v) } else { None })
    }
}

impl Term {
    fn of(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Term::Add => a.checked_add(b),
            Term::Sub => a.checked_sub(b),
            Term::Mul => a.checked_mul(b),
            Term::Div => a.checked_div_euclid(b).filter(|_| b > 0),
            Term::Mod => a.checked_rem_euclid(b).filter(|_| b > 0),
            Term::Max => Some(a.max(b)),
            Term::Min => Some(a.min(b)),
            Term::Number(_) | Term::Variable(_) => None,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Fixed(n) => write!(f, "{n}"),
            Size::Expression(_) => f.write_str("?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_takes_its_operands_from_the_stack() {
        let e = Size::Expression(vec![Term::Variable(0), Term::Number(3), Term::Mul, Term::Number(2), Term::Div]);
        assert_eq!(e.value(|_| Some(5)), Some(7));
        assert_eq!(e.value(|_| None), None);
        assert_eq!(e.variables().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn what_has_no_value_is_none() {
        for terms in [
            vec![],
            vec![Term::Add],
            vec![Term::Number(1), Term::Number(2)],
            vec![Term::Number(-1)],
            vec![Term::Number(1), Term::Number(0), Term::Div],
            vec![Term::Number(i64::MAX), Term::Number(1), Term::Add],
        ] {
            assert_eq!(Size::Expression(terms.clone()).value(|_| None), None, "{terms:?}");
        }
    }
}
