//! One tensor node at given indices → a kernel expression, by pushing the indices down through the graph.
//!
//! A place is (indices, gate, version). Movement ops change the place; elementwise ops pass it on; a reduce opens new
//! ranges; stored nodes become loads. Results are kept by (node, place), so shared nodes are lowered once a place. The
//! validity of a Pad becomes the gate of every load below it, and a `Where` above. The walk has its own stack: depth
//! costs nothing.

use super::ScheduleError;
use super::collapse::collapse;
use super::index::{self, Idx};
use super::sums::merged;
use crate::uop::{Arg, ConstVal, DType, Dim, Memo, Op, Srcs, UOp};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::rc::Rc;

/// Where a value is read.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct AccessPoint {
    pub idx: Idx,
    /// The value matters only where this is true.
    pub gate: Option<UOp>,
    /// The Assign or After through which memory is read: its content after that.
    pub version: Option<UOp>,
}

/// Why a node is not lowered through.
pub(crate) enum Cut {
    /// The node's value is dense in this graph parameter.
    Stored(UOp),
    /// The value is that of this source at the same indices, read from memory after the node took effect.
    Memory,
    /// No reason: lower its expression.
    Through,
}

/// A load: which memory, at which indices of which node.
#[derive(Clone)]
pub(crate) struct Read {
    /// The stored node, or the graph parameter itself.
    pub node: UOp,
    pub param: UOp,
    pub place: Rc<AccessPoint>,
    /// The element's position.
    pub flat: UOp,
}

/// A reduce as it was lowered: its own ranges and the place it is in.
#[derive(Clone)]
pub(crate) struct Reduced {
    pub ranges: Vec<UOp>,
    pub place: Rc<AccessPoint>,
    /// The summand, if it is nothing but a gated load of this.
    pub of: Option<UOp>,
    /// One sum of products that was a sum of sums.
    pub merged: bool,
}

type Dep = (UOp, Rc<AccessPoint>);
type Deps = SmallVec<[Dep; 3]>;

enum Frame {
    Enter(UOp, Rc<AccessPoint>),
    Build(UOp, Rc<AccessPoint>, Deps, Extra),
}

/// What the way down has found and the way up needs.
enum Extra {
    None,
    /// Condition of a pad.
    Valid(UOp),
    Ranges(Vec<UOp>),
}

/// Lowers expressions of one kernel.
pub(crate) struct Lowerer<'a> {
    cut: &'a dyn Fn(&UOp) -> Cut,
    memo: HashMap<(UOp, Rc<AccessPoint>), UOp, crate::uop::NodeHasher>,
    next_range: u32,
    pub reads: Vec<Read>,
    pub reduces: Vec<Reduced>,
    /// Assigns and Afters through which memory is read, and where.
    pub memory_uses: Vec<(UOp, Rc<AccessPoint>)>,
}

/// The address form of a graph parameter.
pub(crate) fn address(param: &UOp) -> UOp {
    match param.arg() {
        Arg::Param(slot, len) => UOp::param(*slot, param.dtype(), *len),
        _ => param.clone(),
    }
}

/// The value a reduction starts from.
pub(crate) fn identity(op: Op, dtype: DType) -> UOp {
    let v = match op {
        Op::Mul => ConstVal::Int(1),
        Op::Max => dtype.scalar.lowest(),
        _ => ConstVal::Int(0),
    };
    UOp::constant(dtype, v)
}

impl<'a> Lowerer<'a> {
    /// New ranges are numbered from `first_range`.
    pub(crate) fn new(cut: &'a dyn Fn(&UOp) -> Cut, first_range: u32) -> Self {
        Lowerer {
            cut,
            memo: HashMap::default(),
            next_range: first_range,
            reads: Vec::new(),
            reduces: Vec::new(),
            memory_uses: Vec::new(),
        }
    }

    pub(crate) fn next_range(&self) -> u32 {
        self.next_range
    }

    /// The elementwise nodes that were lowered, once for each place.
    pub(crate) fn computed(&self) -> impl Iterator<Item = &UOp> {
        self.memo.keys().map(|k| &k.0).filter(|u| u.op().is_elementwise())
    }

    /// The value of `node` at `idx`; the node itself is computed even if it is stored.
    pub(crate) fn lower_own(&mut self, node: &UOp, idx: &[UOp]) -> Result<UOp, ScheduleError> {
        let place = Rc::new(AccessPoint { idx: idx.into(), gate: None, version: None });
        if let Some(known) = self.memo.get(&(node.clone(), place.clone())) {
            return Ok(known.clone());
        }
        let own = self.expand(node, &place)?;
        self.run(Some((node.clone(), place, own)))
    }

    /// The value of `node` at `idx`.
    pub(crate) fn lower(&mut self, node: &UOp, idx: &[UOp]) -> Result<UOp, ScheduleError> {
        let place = Rc::new(AccessPoint { idx: idx.into(), gate: None, version: None });
        let (deps, extra) = self.enter(node, &place)?;
        self.run(Some((node.clone(), place, (deps, extra))))
    }

    fn run(&mut self, start: Option<(UOp, Rc<AccessPoint>, (Deps, Extra))>) -> Result<UOp, ScheduleError> {
        let mut stack = Vec::new();
        let mut last = None;
        if let Some((u, p, (deps, extra))) = start {
            self.push(&mut stack, u, p, deps, extra);
        }
        while let Some(frame) = stack.pop() {
            match frame {
                Frame::Enter(u, p) => {
                    if !self.memo.contains_key(&(u.clone(), p.clone())) {
                        let (deps, extra) = self.enter(&u, &p)?;
                        self.push(&mut stack, u, p, deps, extra);
                    }
                }
                Frame::Build(u, p, deps, extra) => {
                    // PANIC: the sources were pushed above this frame, so they are done.
                    let src: Srcs = deps.into_iter().map(|d| self.memo[&d].clone()).collect();
                    let v = self.build(&u, &p, src, extra)?;
                    last = Some(v.clone());
                    self.memo.insert((u, p), v);
                }
            }
        }
        last.ok_or(ScheduleError::Malformed { op: Op::Sink, why: "nothing to lower" })
    }

    fn push(&self, stack: &mut Vec<Frame>, u: UOp, p: Rc<AccessPoint>, deps: Deps, extra: Extra) {
        let next: Deps = deps.iter().rev().filter(|d| !self.memo.contains_key(*d)).cloned().collect();
        stack.push(Frame::Build(u, p, deps, extra));
        stack.extend(next.into_iter().map(|(u, p)| Frame::Enter(u, p)));
    }

    fn enter(&mut self, u: &UOp, p: &Rc<AccessPoint>) -> Result<(Deps, Extra), ScheduleError> {
        match (self.cut)(u) {
            Cut::Stored(_) => Ok((Deps::new(), Extra::None)),
            Cut::Memory => {
                self.memory_uses.push((u.clone(), p.clone()));
                let version = p.version.clone().or_else(|| Some(u.clone()));
                let place = Rc::new(AccessPoint { version, ..(**p).clone() });
                Ok((one(u, 0, place), Extra::None))
            }
            Cut::Through => self.expand(u, p),
        }
    }

    /// The sources of `u` and the places at which they are read.
    fn expand(&mut self, u: &UOp, p: &Rc<AccessPoint>) -> Result<(Deps, Extra), ScheduleError> {
        let op = u.op();
        if op.is_elementwise() {
            let deps = u.src().iter().map(|s| (s.clone(), scalar_place(s, p))).collect();
            return Ok((deps, Extra::None));
        }
        match op {
            Op::Const | Op::Var | Op::Param | Op::Buffer | Op::Iota => Ok((Deps::new(), Extra::None)),
            Op::Contiguous | Op::ContiguousBackward | Op::Detach | Op::Copy | Op::After | Op::Fused => {
                Ok((one(u, 0, p.clone()), Extra::None))
            }
            Op::Assign => Ok((one(u, 1, scalar_place(&u.src()[1], p)), Extra::None)),
            Op::Reduce => self.open_reduce(u, p),
            // Padding of nothing: zeros.
            Op::Pad if u.src()[0].shape().iter().any(|d| d.is(0)) => Ok((Deps::new(), Extra::None)),
            _ if op.is_movement() => moved(u, p),
            _ => Err(ScheduleError::Malformed { op, why: "not an op of a tensor graph" }),
        }
    }

    fn open_reduce(&mut self, u: &UOp, p: &Rc<AccessPoint>) -> Result<(Deps, Extra), ScheduleError> {
        let shape = u.src()[0].shape();
        if u.axes().iter().any(|a| shape.get(*a as usize).is_some_and(|d| d.is(0))) {
            return Ok((Deps::new(), Extra::None));
        }
        let mut idx = p.idx.clone();
        let mut ranges = Vec::new();
        for a in u.axes() {
            let (Some(slot), Some(d)) = (idx.get_mut(*a as usize), shape.get(*a as usize)) else {
                return Err(ScheduleError::Malformed { op: Op::Reduce, why: "an axis beyond the rank" });
            };
            if d.is(1) {
                continue;
            }
            let r = UOp::range(d.uop(), self.next_range, crate::uop::AxisKind::Reduce);
            self.next_range += 1;
            *slot = r.clone();
            ranges.push(r);
        }
        let place = Rc::new(AccessPoint { idx, ..(**p).clone() });
        Ok((one(u, 0, place), Extra::Ranges(ranges)))
    }

    fn build(&mut self, u: &UOp, p: &Rc<AccessPoint>, src: Srcs, extra: Extra) -> Result<UOp, ScheduleError> {
        let op = u.op();
        if src.is_empty() {
            return self.leaf(u, p);
        }
        if op.is_elementwise() {
            if op == Op::Bitcast && u.dtype().size_bytes() != src[0].dtype().size_bytes() {
                return Err(ScheduleError::Malformed { op, why: "source and result differ in size" });
            }
            return Ok(folded(u, src));
        }
        let x = src[0].clone();
        Ok(match extra {
            Extra::Ranges(ranges) if ranges.is_empty() => x,
            Extra::Ranges(ranges) => {
                let (x, ranges) = collapse(u.reduce_op().unwrap_or(Op::Add), x, ranges);
                if ranges.is_empty() {
                    return Ok(x);
                }
                let op = u.reduce_op().unwrap_or(Op::Add);
                let one = (op == Op::Add).then(|| merged(&x, &ranges, p.gate.as_ref())).flatten();
                if let Some((_, all)) = &one {
                    self.reduces.retain(|r| r.ranges != all[ranges.len()..]);
                }
                let is_merged = one.is_some();
                let (x, ranges) = one.unwrap_or((x, ranges));
                let v = x.reduce(op, &ranges);
                let gated = x.op() == Op::Load && x.src()[0].src().len() > 2;
                let of = (op == Op::Add && gated).then(|| x.src()[0].src()[0].clone());
                self.reduces.push(Reduced { ranges, place: p.clone(), merged: is_merged && of.is_none(), of });
                v
            }
            // A load below already carries the condition in its gate and gives zero without it.
            Extra::Valid(_) if x.op() == Op::Load || x.as_const().is_some_and(ConstVal::is_zero) => x,
            Extra::Valid(valid) => valid.select(&x, &x.const_like(0)),
            Extra::None => x,
        })
    }

    /// Nodes without sources to lower: leaves, stored nodes, reduces of nothing.
    fn leaf(&mut self, u: &UOp, p: &Rc<AccessPoint>) -> Result<UOp, ScheduleError> {
        if let Cut::Stored(param) = (self.cut)(u) {
            return Ok(self.load(u, &param, p, index::flatten(&p.idx, u.shape())));
        }
        match u.op() {
            Op::Param | Op::Buffer => {
                let flat = p.idx.first().cloned().unwrap_or_else(|| UOp::int(0));
                Ok(self.load(u, u, p, flat))
            }
            Op::Iota => Ok(p.idx.first().cloned().unwrap_or_else(|| UOp::int(0))),
            Op::Pad => Ok(UOp::constant(u.dtype(), 0i64)),
            Op::Reduce => Ok(identity(u.reduce_op().unwrap_or(Op::Add), u.dtype())),
            _ => Ok(u.clone()),
        }
    }

    fn load(&mut self, node: &UOp, param: &UOp, p: &Rc<AccessPoint>, flat: UOp) -> UOp {
        self.reads.push(Read { node: node.clone(), param: param.clone(), place: p.clone(), flat: flat.clone() });
        let at = address(param);
        match &p.gate {
            None => at.index(&flat).load(),
            Some(g) => at.index_gated(&flat, g).load_or(&UOp::constant(param.dtype(), 0i64)),
        }
    }
}

fn one(u: &UOp, k: usize, p: Rc<AccessPoint>) -> Deps {
    let mut d = Deps::new();
    d.push((u.src()[k].clone(), p));
    d
}

/// Scalars broadcast: they are read without an index.
fn scalar_place(s: &UOp, p: &Rc<AccessPoint>) -> Rc<AccessPoint> {
    if s.shape().is_empty() && !p.idx.is_empty() {
        Rc::new(AccessPoint { idx: Idx::new(), ..(**p).clone() })
    } else {
        p.clone()
    }
}

/// Elementwise op on lowered sources; what is constant folds.
pub(crate) fn folded(u: &UOp, src: Srcs) -> UOp {
    let consts: Option<SmallVec<[ConstVal; 3]>> = src.iter().map(UOp::as_const).collect();
    if let Some(v) = consts {
        let t = if u.op().is_comparison() { src[0].dtype().scalar } else { u.dtype().scalar };
        let value = match u.op() {
            Op::Cast => Some(crate::uop::cast_const(v[0], t)),
            Op::Bitcast => None,
            op => crate::uop::eval_alu(op, t, &v),
        };
        if let Some(c) = value {
            return UOp::constant(u.dtype(), c);
        }
    }
    if u.op() == Op::Where {
        if src[1] == src[2] {
            return src[1].clone();
        }
        if let Some(c) = src[0].as_const() {
            return src[if c.is_zero() { 2 } else { 1 }].clone();
        }
    }
    u.with_src(src)
}

/// The place of a movement op's source.
fn moved(u: &UOp, p: &Rc<AccessPoint>) -> Result<(Deps, Extra), ScheduleError> {
    let x = &u.src()[0];
    let from = x.shape();
    let bad = |why| Err(ScheduleError::Malformed { op: u.op(), why });
    if p.idx.len() != u.shape().len() {
        return bad("rank differs from the place it is wanted in");
    }
    let mut extra = Extra::None;
    let mut gate = p.gate.clone();
    let idx: Idx = match u.op() {
        Op::Reshape => index::reshape(&p.idx, u.shape(), from),
        Op::Expand => {
            let keep = |(k, d): (usize, &Dim)| if d.is(1) { UOp::int(0) } else { p.idx[k].clone() };
            from.iter().enumerate().map(keep).collect()
        }
        Op::Permute => {
            let mut idx: Idx = smallvec::smallvec![UOp::int(0); from.len()];
            for (k, a) in u.axes().iter().enumerate() {
                match idx.get_mut(*a as usize) {
                    Some(slot) => *slot = p.idx[k].clone(),
                    None => return bad("an axis beyond the rank"),
                }
            }
            idx
        }
        Op::Flip => {
            let mut idx = p.idx.clone();
            for a in u.axes() {
                let (Some(i), Some(d)) = (idx.get_mut(*a as usize), from.get(*a as usize)) else {
                    return bad("an axis beyond the rank");
                };
                *i = index::add(&index::add(&d.uop(), &UOp::int(-1)), &index::mul(i, &UOp::int(-1)));
            }
            idx
        }
        Op::Shrink => p.idx.iter().enumerate().map(|(k, i)| index::add(i, &u.src()[1 + k])).collect(),
        Op::Pad => {
            let mut idx = Idx::new();
            let mut valid = None;
            for (k, d) in from.iter().enumerate() {
                let i = index::add(&p.idx[k], &index::mul(&u.src()[1 + k], &UOp::int(-1)));
                // Without a gate, every index is inside.
                if *d != u.shape()[k] || u.src()[1 + k].as_int() != Some(0) {
                    valid = index::both(valid, index::within(&i, d));
                }
                idx.push(i);
            }
            for (k, d) in from.iter().enumerate() {
                if let Some(n) = d.as_int() {
                    let i = idx[k].clone();
                    index::unwrap(&mut idx, &i, n);
                }
            }
            gate = index::both(gate, valid.clone());
            extra = valid.map_or(Extra::None, Extra::Valid);
            idx
        }
        _ => return bad("not a movement op"),
    };
    let place = Rc::new(AccessPoint { idx, gate, version: p.version.clone() });
    Ok((one(u, 0, place), extra))
}

/// The ranges an index expression is made of, in order of first appearance.
pub(crate) fn ranges_in<'u>(exprs: impl IntoIterator<Item = &'u UOp>) -> Vec<UOp> {
    let mut found = Vec::new();
    let mut seen = Memo::new();
    let mut todo: SmallVec<[&UOp; 16]> = exprs.into_iter().collect();
    todo.reverse();
    while let Some(u) = todo.pop() {
        if u.src().is_empty() || seen.has(u) {
            continue;
        }
        seen.insert(u, ());
        if u.op() == Op::Range {
            found.push(u.clone());
        } else {
            todo.extend(u.src().iter().rev());
        }
    }
    found
}
