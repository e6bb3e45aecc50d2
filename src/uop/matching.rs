//! Backtracking search for the assignments of nodes to a pattern. It does not allocate: the remaining work is a linked
//! list on the stack.

use super::pattern::{Pat, SrcPat};
use super::{ConstVal, UOp};
use std::cell::OnceCell;
use std::ops::Index;

/// Maximum number of captures in a pattern.
pub const MAX_CAPTURES: usize = 8;

pub(super) type Captures<'a> = [Option<&'a UOp>; MAX_CAPTURES];

/// A node that matched a pattern, and the captured nodes.
pub struct Match<'a> {
    pub(super) root: &'a UOp,
    pub(super) names: &'a [&'static str],
    pub(super) caps: &'a Captures<'a>,
    /// Set when a name was asked for that the pattern lacks.
    pub(super) missing: OnceCell<UOp>,
}

impl Match<'_> {
    /// The node that the whole pattern matched.
    pub fn root(&self) -> &UOp {
        self.root
    }
    /// The node captured by this name; `None` if the pattern lacks the name.
    pub fn get(&self, name: &str) -> Option<&UOp> {
        self.names.iter().position(|n| *n == name).and_then(|k| self.caps[k])
    }
    /// Value of a captured constant.
    pub fn value(&self, name: &str) -> Option<ConstVal> {
        self.get(name).and_then(UOp::as_const)
    }
    /// Value of a captured integer constant.
    pub fn int(&self, name: &str) -> Option<i128> {
        self.value(name).and_then(ConstVal::as_int)
    }
}
/// A name that the pattern lacks gives a faulty node; the rewrite then fails with the rule's name and this one.
impl Index<&str> for Match<'_> {
    type Output = UOp;
    fn index(&self, name: &str) -> &UOp {
        self.get(name).unwrap_or_else(|| {
            let known: Vec<String> = self.names.iter().map(|n| format!("'{n}'")).collect();
            let known = if known.is_empty() { "nothing".into() } else { known.join(", ") };
            self.missing.get_or_init(|| UOp::fault(&format!("the pattern captures no '{name}', but {known}")))
        })
    }
}

/// The remaining work, as a linked list on the stack.
pub(super) enum Next<'a, 'n> {
    Done,
    /// Patterns and nodes to match pairwise.
    Row {
        pats: &'a [Pat],
        nodes: &'a [UOp],
        next: &'n Next<'a, 'n>,
    },
    /// Patterns that may match any node whose bit in `used` is clear.
    Free {
        pats: &'a [Pat],
        nodes: &'a [UOp],
        used: u32,
        next: &'n Next<'a, 'n>,
    },
    All {
        pat: &'a Pat,
        nodes: &'a [UOp],
        next: &'n Next<'a, 'n>,
    },
}

pub(super) struct Search<'a, 'f> {
    pub caps: Captures<'a>,
    /// Called with complete captures; returning true ends the search.
    pub found: &'f mut dyn FnMut(&Captures<'a>) -> bool,
}

fn same_value(a: ConstVal, b: ConstVal) -> bool {
    match (a, b) {
        (ConstVal::Float(x), ConstVal::Float(y)) => x.to_bits() == y.to_bits(),
        (ConstVal::Float(x), o) | (o, ConstVal::Float(x)) => x.to_bits() == o.as_f64().to_bits(),
        _ => a.as_int() == b.as_int(),
    }
}

impl<'a> Search<'a, '_> {
    pub(crate) fn node(&mut self, p: &'a Pat, u: &'a UOp, next: &Next<'a, '_>) -> bool {
        if !p.ops.has(u.op()) || !p.scalars.has(u.dtype().scalar) {
            return false;
        }
        if let Some(v) = p.value
            && !u.as_const().is_some_and(|c| same_value(c, v))
        {
            return false;
        }
        if p.arg.as_ref().is_some_and(|a| a != u.arg()) {
            return false;
        }
        if p.name.is_none() {
            return self.sources(p, u, next);
        }
        let slot = p.slot as usize;
        match self.caps[slot] {
            Some(seen) => seen == u && self.sources(p, u, next),
            None => {
                self.caps[slot] = Some(u);
                let hit = self.sources(p, u, next);
                if !hit {
                    self.caps[slot] = None;
                }
                hit
            }
        }
    }
    fn sources(&mut self, p: &'a Pat, u: &'a UOp, next: &Next<'a, '_>) -> bool {
        let nodes = u.src();
        match &p.src {
            SrcPat::Any => self.go(next),
            SrcPat::Fixed { pats, extra } => {
                (nodes.len() == pats.len() || *extra && nodes.len() > pats.len())
                    && self.go(&Next::Row { pats, nodes, next })
            }
            SrcPat::AnyOrder(pats) => nodes.len() == pats.len() && self.go(&Next::Free { pats, nodes, used: 0, next }),
            SrcPat::Repeat(pat) => self.go(&Next::All { pat, nodes, next }),
        }
    }
    fn go(&mut self, next: &Next<'a, '_>) -> bool {
        match next {
            Next::Done => (self.found)(&self.caps),
            Next::Row { pats, nodes, next } => match (pats.split_first(), nodes.split_first()) {
                (Some((p, pats)), Some((u, nodes))) => self.node(p, u, &Next::Row { pats, nodes, next }),
                _ => self.go(next),
            },
            Next::Free { pats, nodes, used, next } => match pats.split_first() {
                None => self.go(next),
                Some((p, pats)) => nodes.iter().enumerate().take(32).any(|(k, u)| {
                    used >> k & 1 == 0 && self.node(p, u, &Next::Free { pats, nodes, used: used | 1 << k, next })
                }),
            },
            Next::All { pat, nodes, next } => match nodes.split_first() {
                None => self.go(next),
                Some((u, nodes)) => self.node(pat, u, &Next::All { pat, nodes, next }),
            },
        }
    }
}
