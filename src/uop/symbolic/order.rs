//! A total order of nodes by structure. It does not depend on when nodes were made, so operands of commutative ops are
//! in the same order in every process. Interning makes it cheap: equal sources are identical and skipped, so a
//! comparison follows one path down to the first difference.

use crate::{Arg, ConstVal, Op, UOp};
use std::cmp::Ordering;

/// Ranges first (outer before inner), then variables, then everything else by op; constants last.
const fn rank(op: Op) -> u8 {
    match op {
        Op::Range => 0,
        Op::Special => 1,
        Op::Var => 2,
        Op::Bind => 3,
        Op::Const => 255,
        o => 4 + o as u8,
    }
}

pub(crate) fn cmp(a: &UOp, b: &UOp) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        if a == b {
            return Ordering::Equal;
        }
        let head = rank(a.op())
            .cmp(&rank(b.op()))
            .then_with(|| cmp_arg(a.arg(), b.arg()))
            .then_with(|| a.dtype().cmp(&b.dtype()))
            .then_with(|| a.src().len().cmp(&b.src().len()));
        if head != Ordering::Equal {
            return head;
        }
        match a.src().iter().zip(b.src()).find(|(x, y)| x != y) {
            Some((x, y)) => (a, b) = (x, y),
            // Only the tag is left to differ.
            None => return a.tag().cmp(&b.tag()).then(a.id().cmp(&b.id())),
        }
    }
}

fn cmp_arg(a: &Arg, b: &Arg) -> Ordering {
    match (a, b) {
        (Arg::Range(x), Arg::Range(y)) => x.id.cmp(&y.id).then(x.sub.cmp(&y.sub)).then(x.kind.cmp(&y.kind)),
        (Arg::Const(x), Arg::Const(y)) => match (x, y) {
            (ConstVal::Float(p), ConstVal::Float(q)) => p.total_cmp(q),
            _ => x.as_int().cmp(&y.as_int()),
        },
        (Arg::Var(n, lo, hi), Arg::Var(m, lo2, hi2)) => n.cmp(m).then(lo.cmp(lo2)).then(hi.cmp(hi2)),
        (Arg::Param(s, n), Arg::Param(t, m)) | (Arg::Local(s, n), Arg::Local(t, m)) => s.cmp(t).then(n.cmp(m)),
        (Arg::Buffer(x), Arg::Buffer(y)) => x.0.id.cmp(&y.0.id),
        (Arg::Axes(x), Arg::Axes(y)) => x.cmp(y),
        (Arg::None, Arg::None) => Ordering::Equal,
        _ if a == b => Ordering::Equal,
        _ => format!("{a:?}").cmp(&format!("{b:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AxisKind;

    #[test]
    fn order_follows_structure_and_not_age() {
        let late = UOp::range(4, 1, AxisKind::Loop);
        let early = UOp::range(4, 0, AxisKind::Loop);
        let v = UOp::var("a", 0, 3);
        assert_eq!(cmp(&early, &late), Ordering::Less);
        assert_eq!(cmp(&v, &early), Ordering::Greater);
        assert_eq!(cmp(&(&early / 2), &v), Ordering::Greater);
        assert_eq!(cmp(&(&late / 2), &(&early / 3)), Ordering::Greater);
        assert_eq!(cmp(&(&early / 2), &(&early / 2)), Ordering::Equal);
    }
}
