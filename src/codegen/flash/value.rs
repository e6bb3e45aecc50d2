//! Scores and indices of the kernel graph as values of the list: in lanes where they depend on the query, else scalars.

use super::list::{List, number};
use doorbell_uop::{Arg, DType, Op, Scalar, Srcs, UMap, UOp};

/// What loops of the graph are in the list.
#[derive(Clone, Default)]
pub(super) struct Place {
    /// Loop of the graph → its position as a scalar.
    pub scalars: UMap<UOp>,
}

/// What differs between lanes: nodes of the graph (loops, the product) and their values. Positions are I32.
pub(super) struct Lanes<'a> {
    pub given: &'a [(&'a UOp, &'a UOp)],
    pub lanes: u16,
}

impl Place {
    /// A value without the loop over queries; `None`: an op that has no form here.
    pub(super) fn scalar(&self, u: &UOp) -> Option<UOp> {
        if let Some(known) = self.scalars.get(u) {
            return Some(known.clone());
        }
        let weak = |t: DType| t.scalar == Scalar::WeakInt;
        match u.op() {
            Op::Const if weak(u.dtype()) => Some(number(u.as_int()?)),
            Op::Const | Op::Param => Some(u.clone()),
            Op::Load if u.src().len() == 1 => {
                let [address, at] = u.src()[0].src() else { return None };
                Some(address.index(&self.scalar(at)?).load())
            }
            Op::Cast if weak(u.dtype()) => self.scalar(&u.src()[0]).map(|x| x.cast(Scalar::I64)),
            Op::Cast => self.scalar(&u.src()[0]).map(|x| x.cast(u.dtype())),
            Op::FloorDiv | Op::FloorMod => {
                let [a, b] = u.src() else { return None };
                let plain = a.vmin() >= 0 && b.as_int().is_some_and(|n| n > 0);
                let op = if u.op() == Op::FloorDiv { Op::CDiv } else { Op::CMod };
                plain.then_some(())?;
                Some(self.scalar(a)?.binary(op, &self.scalar(b)?))
            }
            op if op.is_alu() => {
                let src = u.src().iter().map(|s| self.scalar(s)).collect::<Option<Srcs>>()?;
                through_f32(op, src)
            }
            _ => None,
        }
    }

    /// A value for each lane.
    pub(super) fn lanes(&self, u: &UOp, l: &Lanes, known: &mut UMap<UOp>) -> Option<UOp> {
        if let Some((_, value)) = l.given.iter().find(|(node, _)| *node == u) {
            return Some((*value).clone());
        }
        if let Some(done) = known.get(u) {
            return Some(done.clone());
        }
        let narrow =
            |x: UOp| if x.dtype().scalar == Scalar::I64 && u.dtype().is_int() { x.cast(Scalar::I32) } else { x };
        let weak = u.dtype().scalar == Scalar::WeakInt;
        let fits = u.vmin() >= i128::from(i32::MIN) && u.vmax() <= i128::from(i32::MAX);
        let made = if !l.given.iter().any(|(node, _)| u.contains(node)) {
            if weak && !fits {
                return None;
            }
            let x = self.scalar(u)?;
            let x = if weak { narrow(x) } else { x };
            x.splat(l.lanes)
        } else {
            match (u.op(), u.src()) {
                (Op::Load, [at]) if at.src().len() == 2 => {
                    let to = self.lanes(&at.src()[1], l, known)?;
                    at.src()[0].index(&to).load()
                }
                (Op::Cast, [x]) => {
                    let t = if weak { Scalar::I32 } else { u.dtype().scalar };
                    let x = self.lanes(x, l, known)?;
                    x.cast(x.dtype().with_scalar(t))
                }
                // A quotient as a product, which differs in the last bit at most.
                (Op::FDiv, [x, c]) if c.as_const().is_some() && u.dtype().scalar == Scalar::F32 => {
                    let inverse = 1.0 / c.as_const()?.as_f64();
                    let x = self.lanes(x, l, known)?;
                    x.binary(Op::Mul, &x.const_like(inverse))
                }
                (op, src) if op.is_alu() && !matches!(op, Op::FloorDiv | Op::FloorMod | Op::CDiv | Op::CMod) => {
                    (!weak || fits).then_some(())?;
                    let src = src.iter().map(|s| self.lanes(s, l, known)).collect::<Option<Srcs>>()?;
                    through_f32(op, src)?
                }
                _ => return None,
            }
        };
        known.insert(u.clone(), made.clone());
        Some(made)
    }
}

/// An op on half types as an op on f32.
fn through_f32(op: Op, src: Srcs) -> Option<UOp> {
    let decomposed = matches!(op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow | Op::Threefry | Op::Recip | Op::Trunc);
    if decomposed || src.iter().any(|s| s.dtype().scalar.is_fp8()) {
        return None;
    }
    let half = |u: &UOp| matches!(u.dtype().scalar, Scalar::F16 | Scalar::BF16);
    if !src.iter().any(half) {
        return Some(UOp::alu(op, src));
    }
    let narrow = src.iter().find(|s| half(s)).map(|s| s.dtype().scalar)?;
    let wide = src.iter().map(|s| if half(s) { s.cast(s.dtype().with_scalar(Scalar::F32)) } else { s.clone() });
    let made = UOp::alu(op, wide.collect::<Srcs>());
    Some(if made.dtype().is_float() { made.cast(made.dtype().with_scalar(narrow)) } else { made })
}

/// `0, 1, 2, ...` times `step`, in lanes of I32.
pub(super) fn steps(lanes: u16, step: i64) -> UOp {
    let one = |k: u16| UOp::constant(DType::of(Scalar::I32), i64::from(k) * step);
    let src: Srcs = (0..lanes).map(one).collect();
    UOp::new(Op::Stack, DType::of(Scalar::I32).vec(lanes), src, Arg::None)
}

/// A scalar index in lanes of I32.
pub(super) fn spread(x: &UOp, lanes: u16) -> UOp {
    x.cast(Scalar::I32).splat(lanes)
}

impl List {
    /// Lists a value and gives it back.
    pub(super) fn listed(&mut self, u: UOp) -> UOp {
        self.value(&u);
        u
    }
}
