//! A size or number that changes from run to run without a new compilation.

use super::error::Problem;
use super::value::build;
use crate::uop::{Arg, Op, UOp};

/// A named integer with inclusive bounds. Sizes may be expressions over it; each use is bound to a value of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable(UOp);

impl Variable {
    /// A variable between `min` and `max`. Two of one name and the same bounds are one variable.
    pub fn new(name: &str, min: i64, max: i64) -> Variable {
        Variable(UOp::var(name, min, max))
    }
    /// The variable with its value in this run, as a size or a number. A value outside the bounds gives a faulty node,
    /// which whatever is built on it reports.
    #[track_caller]
    pub fn bind(&self, value: i64) -> UOp {
        build("bind", [Ok(self.0.clone())], |[var]| {
            if (var.vmin()..=var.vmax()).contains(&i128::from(value)) {
                return Ok(var.bind(value));
            }
            Err(Problem::argument(format!("{value} is outside {:?}", var.arg())))
        })
    }
    /// The unbound variable's node.
    pub fn uop(&self) -> &UOp {
        &self.0
    }
    /// Splits a bound variable into variable and value; `None` for anything else.
    pub fn unbind(bound: &UOp) -> Option<(Variable, i64)> {
        match (bound.op(), bound.src()) {
            (Op::Bind, [var, value]) if matches!(var.arg(), Arg::Var(..)) => {
                Some((Variable(var.clone()), value.as_int()?))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::*;

    #[test]
    fn binding_keeps_the_bounds_and_unbinding_gives_the_value_back() {
        let n = Variable::new("n", 1, 10);
        assert_eq!(Variable::unbind(&n.bind(4)), Some((n.clone(), 4)));
        assert!(n.bind(11).node().unwrap_err().to_string().contains("11 is outside ('n', 1, 10)"));
        assert_eq!(Variable::unbind(n.uop()), None);
    }
}
