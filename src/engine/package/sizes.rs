//! Sizes of shapes as a package has them.

use super::super::Error;
use super::super::jit_inputs::unbound;
use crate::package::{Element, Size, Term, Variable};
use crate::uop::{Arg, Dim, Op, Scalar, UOp};

/// The variables of a package: numbered as they are met.
#[derive(Default)]
pub(super) struct Variables(pub Vec<Variable>);

impl Variables {
    /// The number of a variable.
    pub(super) fn number(&mut self, u: &UOp) -> Option<u32> {
        let Arg::Var(name, min, max) = u.arg() else { return None };
        let known = self.0.iter().position(|v| *v.name == **name);
        let n = known.unwrap_or_else(|| {
            self.0.push(Variable { name: name.to_string(), min: *min, max: *max });
            self.0.len() - 1
        });
        u32::try_from(n).ok()
    }

    /// A size of a shape.
    pub(super) fn size(&mut self, d: &Dim) -> Result<Size, Error> {
        let u = match d {
            Dim::Int(n) => return Ok(Size::Fixed(u64::try_from(*n).unwrap_or(0))),
            Dim::Sym(u) => unbound(u.clone()),
        };
        let mut terms = Vec::new();
        match self.terms(&u, &mut terms) {
            Some(()) => Ok(Size::Expression(terms)),
            None => Err(Error::Internal(format!("a package has no form for the size {}", u.render()))),
        }
    }

    fn terms(&mut self, u: &UOp, out: &mut Vec<Term>) -> Option<()> {
        if let Some(n) = u.as_int() {
            out.push(Term::Number(n));
            return Some(());
        }
        if let Some(v) = self.number(u) {
            out.push(Term::Variable(v));
            return Some(());
        }
        if u.op() == Op::Cast {
            return self.terms(u.src().first()?, out);
        }
        let [a, b] = u.src() else { return None };
        let never_negative = a.vmin() >= 0 && b.vmin() > 0;
        let term = match u.op() {
            Op::Add => Term::Add,
            Op::Sub => Term::Sub,
            Op::Mul => Term::Mul,
            Op::Max => Term::Max,
            Op::FloorDiv => Term::Div,
            Op::FloorMod => Term::Mod,
            Op::CDiv if never_negative => Term::Div,
            Op::CMod if never_negative => Term::Mod,
            _ => return None,
        };
        self.terms(a, out)?;
        self.terms(b, out)?;
        out.push(term);
        Some(())
    }
}

/// The type of an element.
pub(super) fn element(t: Scalar) -> Result<Element, Error> {
    Element::ALL
        .into_iter()
        .find(|e| e.name() == t.name())
        .ok_or_else(|| Error::Internal(format!("a package has no elements of type {t}")))
}

/// The type of an element, of ours.
pub(super) fn scalar(e: Element) -> Result<Scalar, Error> {
    Scalar::parse(e.name()).ok_or_else(|| Error::Internal(format!("there is no type {}", e.name())))
}

/// The greatest number of elements.
pub(super) fn most(shape: &[Dim]) -> u64 {
    let one = |d: &Dim| match d {
        Dim::Int(n) => u64::try_from(*n).unwrap_or(0),
        Dim::Sym(u) => u64::try_from(unbound(u.clone()).vmax()).unwrap_or(0),
    };
    shape.iter().map(one).fold(1, u64::saturating_mul)
}
