//! What the heuristics look at: the loops of a kernel, how every access moves along each of them, and the amount of
//! work.

use super::kind_of;
use crate::affine::AffineMemo;
use doorbell_uop::{AxisKind, DType, Memo, Op, Order, UOp, open_numbers};
use smallvec::SmallVec;

/// How the address of an access changes from one iteration of a loop to the next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Move {
    /// It does not depend on the loop.
    Invariant,
    /// By this many elements.
    Step(i64),
    /// Irregularly: a division, a remainder, an index from memory.
    Irregular,
}

/// One Load or Store.
pub(super) struct Access {
    pub node: UOp,
    pub index: UOp,
    pub store: bool,
}

/// One loop nest: a Store, or a Reduce with the loops around it.
pub(super) struct Site {
    pub node: UOp,
    /// Output loops around it, outermost first, and the loops it closes (for a Reduce).
    pub outer: Vec<UOp>,
    pub inner: Vec<UOp>,
    /// The accesses of its innermost body.
    pub accesses: Vec<Access>,
    /// Elementwise operations of that body.
    pub ops: usize,
    /// Bytes of the widest value in it.
    pub widest: usize,
}

pub(super) struct KernelAnalysis {
    pub sites: Vec<Site>,
    /// The number of each node, and for each number the numbers of the ranges that are open in the node.
    numbers: Memo<u32>,
    open: Vec<SmallVec<[u32; 6]>>,
    affine: AffineMemo,
}

impl KernelAnalysis {
    pub(crate) fn of(sink: &UOp) -> KernelAnalysis {
        let order = Order::of(sink);
        let (open, mut numbers) = (open_numbers(&order), Memo::new());
        let mut sites = vec![];
        for (k, u) in order.nodes().iter().enumerate() {
            numbers.insert(u, k as u32);
            let first = match u.op() {
                Op::Reduce => 1,
                Op::Store => 2,
                _ => continue,
            };
            let inner = u.src()[first..].to_vec();
            let around = || open[k].iter().map(|r| order.nodes()[*r as usize].clone()).collect();
            let (outer, inner) = if u.op() == Op::Store { (inner, vec![]) } else { (around(), inner) };
            sites.push(site((*u).clone(), outer, inner));
        }
        KernelAnalysis { sites, numbers, open, affine: AffineMemo::default() }
    }

    /// How index expression `i` moves along `r`.
    pub(crate) fn motion(&mut self, i: &UOp, r: &UOp) -> Move {
        if i.dtype() != DType::INDEX {
            return if self.depends(i, r) { Move::Irregular } else { Move::Invariant };
        }
        let sum = self.affine.of(i).clone();
        let mut step = 0;
        for (t, c) in &sum.terms {
            if t == r {
                step = *c;
            } else if self.depends(t, r) {
                return Move::Irregular;
            }
        }
        if step == 0 { Move::Invariant } else { Move::Step(step) }
    }

    pub(crate) fn depends(&self, u: &UOp, r: &UOp) -> bool {
        match (self.numbers.get(u), self.numbers.get(r)) {
            (Some(u), Some(r)) => self.open[*u as usize].contains(r),
            _ => false,
        }
    }
}

impl Site {
    /// Product of the trip counts of all its loops; unknown sizes count with their maximum.
    pub(crate) fn trips(&self) -> f64 {
        self.outer.iter().chain(&self.inner).map(|r| (r.vmax() + 1) as f64).product()
    }
    /// The index expressions of its loads.
    pub(crate) fn reads(&self) -> Vec<UOp> {
        self.accesses.iter().filter(|a| !a.store).map(|a| a.index.clone()).collect()
    }
    pub(crate) fn loops(&self) -> impl Iterator<Item = &UOp> {
        self.outer.iter().chain(&self.inner)
    }
}

pub(super) fn size(r: &UOp) -> i64 {
    (r.vmax() + 1) as i64
}

fn site(node: UOp, outer: Vec<UOp>, inner: Vec<UOp>) -> Site {
    let (mut accesses, mut ops, mut widest) = (vec![], 0, 1);
    let roots = if node.op() == Op::Store { &node.src()[..2] } else { &node.src()[..1] };
    if node.op() == Op::Store {
        widest = node.src()[1].dtype().scalar.size_bytes();
        accesses.push(Access { node: node.clone(), index: node.src()[0].src()[1].clone(), store: true });
    }
    // Stop at nested reductions: they are loop nests of their own.
    for u in Order::many(roots, |u| u.op() != Op::Reduce).nodes() {
        let d = u.dtype();
        match u.op() {
            Op::Load => {
                accesses.push(Access { node: (*u).clone(), index: u.src()[0].src()[1].clone(), store: false });
                widest = widest.max(d.scalar.size_bytes());
            }
            _ if d.space.is_none() && d != DType::INDEX && !d.is_bool() => {
                widest = widest.max(d.scalar.size_bytes());
                ops += instructions(u.op());
            }
            // Comparisons of indices are computed in lanes of four bytes.
            op if op.is_comparison() && u.src()[0].dtype() == DType::INDEX => {
                widest = widest.max(4);
                ops += 1;
            }
            _ => {}
        }
    }
    Site { node, outer, inner, accesses, ops, widest }
}

/// Number of instructions of an operation that is far more than one instruction.
fn instructions(op: Op) -> usize {
    match op {
        // Twenty rounds, each an addition, a rotation and an exclusive or.
        Op::Threefry => 120,
        _ => usize::from(op.is_alu()),
    }
}

/// Whether opts may still change this loop.
pub(super) fn is_free(r: &UOp) -> bool {
    matches!(kind_of(r), AxisKind::Loop | AxisKind::Reduce)
}
