//! Kernel graphs: each Store is run for all values of its ranges; a Reduce is a separate loop.

use super::{InterpError, Lanes, Vars, fold, identity, read_element, value_op};
use crate::uop::{Arg, ConstVal, Op, UMap, UOp, cast_const, to_bits};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// Byte buffers by slot.
pub(super) struct Memory<'a> {
    pub bufs: &'a mut [Vec<u8>],
    pub local: UMap<Vec<u8>>,
}

impl Memory<'_> {
    fn bytes(&mut self, address: &UOp) -> Result<(u32, &mut Vec<u8>), InterpError> {
        match address.arg() {
            Arg::Param(slot, _) => {
                let b = self.bufs.get_mut(*slot as usize);
                Ok((*slot, b.ok_or_else(|| InterpError::Malformed(format!("no buffer for slot {slot}")))?))
            }
            Arg::Local(n, len) => {
                let size = len * address.dtype().scalar.size_bytes();
                Ok((*n, self.local.entry(address.clone()).or_insert_with(|| vec![0xa5; size])))
            }
            _ => Err(InterpError::Malformed(format!("{address:?} is no address"))),
        }
    }
    fn at(&mut self, what: &'static str, address: &UOp, index: i128) -> Result<&mut [u8], InterpError> {
        let n = address.dtype().scalar.size_bytes();
        let (slot, bytes) = self.bytes(address)?;
        let len = bytes.len() / n;
        match usize::try_from(index).ok().filter(|i| *i < len) {
            Some(i) => Ok(&mut bytes[i * n..(i + 1) * n]),
            None => Err(InterpError::OutOfBounds { what, slot, index, len }),
        }
    }

    /// Loads one value; lanes whose gate is false get `alt`.
    pub(crate) fn load(&mut self, to: &UOp, a: &Access, alt: Option<&Lanes>) -> Result<Lanes, InterpError> {
        let t = to.dtype().scalar;
        let lane = |m: &mut Self, k: usize| -> Result<ConstVal, InterpError> {
            if !a.open(k) {
                return Ok(alt.map_or(cast_const(ConstVal::Int(0), t), |l| l[k.min(l.len() - 1)]));
            }
            let stored = a.address.dtype().scalar;
            let v = read_element(m.at("load", a.address, a.element(k))?, stored);
            Ok(if stored == t { v } else { cast_const(v, t) })
        };
        (0..to.dtype().lanes as usize).map(|k| lane(self, k)).collect()
    }
    pub(crate) fn store(&mut self, a: &Access, value: &Lanes) -> Result<(), InterpError> {
        let t = a.address.dtype().scalar;
        let n = t.size_bytes();
        for (k, v) in value.iter().enumerate() {
            if a.open(k) {
                self.at("store", a.address, a.element(k))?.copy_from_slice(&to_bits(*v, t).to_le_bytes()[..n]);
            }
        }
        Ok(())
    }
}

/// One Index with its evaluated sources.
pub(super) struct Access<'a> {
    pub address: &'a UOp,
    pub index: &'a Lanes,
    pub gate: Option<&'a Lanes>,
}
impl Access<'_> {
    pub(crate) fn open(&self, lane: usize) -> bool {
        self.gate.is_none_or(|g| !g[lane.min(g.len() - 1)].is_zero())
    }
    pub(crate) fn element(&self, lane: usize) -> i128 {
        let at = |k: usize| self.index[k].as_int().unwrap_or(-1);
        if self.index.len() > 1 { at(lane) } else { at(0) + lane as i128 }
    }
}

struct Run<'a> {
    mem: Memory<'a>,
    vars: &'a Vars,
    ranges: UMap<i64>,
    vals: UMap<Lanes>,
    /// Nodes to evaluate for a root, in order, without the bodies of the Reduces among them.
    lists: UMap<Rc<Vec<UOp>>>,
    /// Last result of a Reduce with the values its open ranges had.
    reduced: UMap<(Vec<i64>, Lanes)>,
    open: UMap<Vec<UOp>>,
}

/// Runs a kernel graph (Sink of Stores) on byte buffers, one per slot.
pub fn run_kernel(ast: &UOp, bufs: &mut [Vec<u8>], vars: &Vars) -> Result<(), InterpError> {
    let mut open = UMap::default();
    crate::uop::open_ranges(ast, &mut open);
    let mem = Memory { bufs, local: UMap::default() };
    let mut run = Run {
        mem,
        vars,
        ranges: UMap::default(),
        vals: UMap::default(),
        lists: UMap::default(),
        reduced: UMap::default(),
        open,
    };
    // Stores in equal loops run together: an iteration computes all its values before it stores any.
    for group in ast.src().chunk_by(|a, b| a.src().get(2..) == b.src().get(2..)) {
        if let Some(s) = group.iter().find(|s| s.op() != Op::Store) {
            return Err(InterpError::Unexpected { op: s.op(), stage: "kernel graph's root" });
        }
        let ranges: Vec<UOp> = group[0].src().get(2..).unwrap_or_default().to_vec();
        run.each(&ranges, &mut |run| {
            let mut writes = Vec::with_capacity(group.len());
            for store in group {
                let (index, value) = (&store.src()[0], &store.src()[1]);
                run.eval(index)?;
                let v = run.eval(value)?;
                // Evaluating the value may have changed values that the index depends on.
                run.eval(index)?;
                let i = run.vals[&index.src()[1]].clone();
                writes.push((index, i, index.src().get(2).map(|g| run.vals[g].clone()), v));
            }
            for (index, i, gate, v) in writes {
                run.mem.store(&Access { address: &index.src()[0], index: &i, gate: gate.as_ref() }, &v)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

impl Run<'_> {
    /// Calls `f` for every combination of the ranges' values, the last fastest.
    fn each(
        &mut self,
        ranges: &[UOp],
        f: &mut dyn FnMut(&mut Self) -> Result<(), InterpError>,
    ) -> Result<(), InterpError> {
        let Some((r, rest)) = ranges.split_first() else { return f(self) };
        let end = self.eval(&r.src()[0])?[0].as_int().unwrap_or(0) as i64;
        for i in 0..end {
            self.ranges.insert(r.clone(), i);
            self.each(rest, f)?;
        }
        Ok(())
    }

    fn eval(&mut self, root: &UOp) -> Result<Lanes, InterpError> {
        let list = match self.lists.get(root) {
            Some(l) => l.clone(),
            None => {
                let l = Rc::new(root.toposort_if(|u| u.op() != Op::Reduce && u.op() != Op::Range));
                self.lists.insert(root.clone(), l.clone());
                l
            }
        };
        for u in list.iter() {
            let v = if u.op() == Op::Reduce { self.reduce(u)? } else { self.node(u)? };
            self.vals.insert(u.clone(), v);
        }
        Ok(self.vals[root].clone())
    }

    fn reduce(&mut self, u: &UOp) -> Result<Lanes, InterpError> {
        let outer: Vec<i64> = self.open[u].iter().map(|r| self.ranges.get(r).copied().unwrap_or(-1)).collect();
        if let Some((at, v)) = self.reduced.get(u)
            && *at == outer
        {
            return Ok(v.clone());
        }
        let (t, op) = (u.dtype().scalar, u.reduce_op().unwrap_or(Op::Add));
        let mut acc: Lanes = SmallVec::from_elem(identity(op, t), u.dtype().lanes as usize);
        let ranges: Vec<UOp> = u.src()[1..].to_vec();
        self.each(&ranges, &mut |run| {
            let v = run.eval(&u.src()[0])?;
            for (a, x) in acc.iter_mut().zip(v) {
                *a = fold(op, t, *a, x).ok_or_else(|| InterpError::Malformed(format!("{u:?} is no reduction")))?;
            }
            Ok(())
        })?;
        let v: Lanes = acc.into_iter().map(|a| cast_const(a, t)).collect();
        self.reduced.insert(u.clone(), (outer, v.clone()));
        Ok(v)
    }

    fn node(&mut self, u: &UOp) -> Result<Lanes, InterpError> {
        let src: Vec<Lanes> = u.src().iter().map(|s| self.vals.get(s).cloned().unwrap_or_default()).collect();
        let refs: Vec<&Lanes> = src.iter().collect();
        Ok(match u.op() {
            Op::Range => {
                let i = self
                    .ranges
                    .get(u)
                    .ok_or_else(|| InterpError::Malformed(format!("range {:?} is used outside its loop", u.arg())))?;
                smallvec![ConstVal::from(*i)]
            }
            Op::Var => smallvec![ConstVal::from(var(u, self.vars)?)],
            Op::Bind => src[1].clone(),
            Op::Param | Op::Local | Op::Index => Lanes::new(),
            Op::Load => {
                let index = &u.src()[0];
                let i = self.vals[&index.src()[1]].clone();
                let gate = index.src().get(2).map(|g| self.vals[g].clone());
                let a = Access { address: &index.src()[0], index: &i, gate: gate.as_ref() };
                self.mem.load(u, &a, src.get(1))?
            }
            Op::After => src[0].clone(),
            _ => value_op(u, &refs)?.ok_or(InterpError::Unexpected { op: u.op(), stage: "kernel graph" })?,
        })
    }
}

pub(super) fn var(u: &UOp, vars: &Vars) -> Result<i64, InterpError> {
    match u.arg() {
        Arg::Var(name, ..) => vars.get(name.as_ref()).copied().ok_or_else(|| InterpError::Unbound(name.to_string())),
        _ => Err(InterpError::Malformed(format!("{u:?} has no name"))),
    }
}
