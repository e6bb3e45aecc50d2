//! What a graph may contain at each boundary: tensor graph, kernel graph, linear program.
//!
//! The contract is documented in `uop/lib.rs` and `codegen/program.rs`; this is its executable form. A check names the
//! node and the rule that it breaks. Level 1 checks the three boundaries, level 2 also every node that a rewrite rule
//! makes (see [`super::checked()`]).

use super::{Arg, DType, Dim, Op, OpSet, Scalar, UOp, USet};

/// The pipeline stage of a graph.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    /// `tensor` → `schedule`.
    Tensor,
    /// Inside `schedule`: values of the tensor graph next to what they are lowered to.
    Scheduling,
    /// `schedule` → `codegen`, and inside codegen until it is linear.
    Kernel,
    /// `codegen` → `isa`: the list in execution order.
    Linear,
}

impl Stage {
    /// The ops that a graph of this stage may contain.
    pub const fn ops(self) -> OpSet {
        match self {
            Stage::Tensor => TENSOR,
            Stage::Scheduling => TENSOR.union(KERNEL),
            Stage::Kernel => KERNEL,
            Stage::Linear => LINEAR,
        }
    }
}

/// How much is checked (`SPEC=0,1,2`).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum SpecLevel {
    /// Nothing is checked.
    #[default]
    Off,
    /// Graphs are checked where they go from stage to stage.
    Boundaries,
    /// As `Boundaries`, and every node that a rewrite rule makes.
    Nodes,
}

impl SpecLevel {
    /// The level of this number; above 2: as 2.
    pub const fn from_number(n: u32) -> SpecLevel {
        match n {
            0 => SpecLevel::Off,
            1 => SpecLevel::Boundaries,
            _ => SpecLevel::Nodes,
        }
    }
}

/// A node that may not be in a graph of its stage.
#[derive(thiserror::Error, Clone, PartialEq, Eq)]
#[error("{stage:?} graph: {rule}: {node}")]
pub struct SpecError {
    /// The stage of the graph.
    pub stage: Stage,
    /// What is wrong with the node.
    pub rule: &'static str,
    /// The node with its sources, one line.
    pub node: String,
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

const LEAVES: OpSet = OpSet::of(&[Op::Const, Op::Var]);
const VECTORS: OpSet = OpSet::of(&[Op::Splat, Op::Stack, Op::Gep, Op::Cat, Op::VReduce, Op::WaveReduce, Op::Wmma]);
const TENSOR: OpSet = LEAVES.union(OpSet::ELEMENTWISE).union(OpSet::MOVEMENT).union(OpSet::of(&[
    Op::Bind,
    Op::Iota,
    Op::Buffer,
    Op::Param,
    Op::Reduce,
    Op::Contiguous,
    Op::ContiguousBackward,
    Op::Detach,
    Op::Copy,
    Op::Assign,
    Op::Fused,
    Op::Custom,
    Op::Sink,
    Op::After,
]));
const KERNEL: OpSet = LEAVES.union(OpSet::ELEMENTWISE).union(VECTORS).union(OpSet::of(&[
    Op::Param,
    Op::Local,
    Op::Range,
    Op::Special,
    Op::Reduce,
    Op::Sink,
    Op::After,
    Op::Index,
    Op::Load,
    Op::LoadMatrix,
    Op::Store,
    Op::Stage,
    Op::Barrier,
    Op::Commit,
    Op::CopyTile,
    Op::AwaitTile,
    Op::Acc,
    Op::SetAcc,
    Op::End,
    Op::If,
    Op::EndIf,
]));
/// Decomposed before the linear program.
const DECOMPOSED: OpSet = OpSet::of(&[Op::Log2, Op::Threefry, Op::FloorDiv, Op::FloorMod]);
const LINEAR: OpSet = LEAVES.union(OpSet::ELEMENTWISE.minus(DECOMPOSED)).union(VECTORS).union(OpSet::of(&[
    Op::Param,
    Op::Special,
    Op::Local,
    Op::Index,
    Op::Load,
    Op::LoadMatrix,
    Op::Store,
    Op::Range,
    Op::End,
    Op::If,
    Op::EndIf,
    Op::Acc,
    Op::SetAcc,
    Op::After,
    Op::Barrier,
    Op::Commit,
    Op::CopyTile,
    Op::AwaitTile,
]));

type Check = Result<(), &'static str>;

fn need(ok: bool, rule: &'static str) -> Check {
    if ok { Ok(()) } else { Err(rule) }
}

/// Checks a whole graph below `sink`; for [`Stage::Linear`] use [`verify_list`].
///
/// # Errors
/// The first node, sources first, that breaks a rule.
pub fn verify(stage: Stage, sink: &UOp) -> Result<(), SpecError> {
    for u in sink.toposort() {
        verify_node(stage, &u)?;
    }
    Ok(())
}

/// Checks one node (not those below it).
///
/// # Errors
/// The rule it breaks.
pub(crate) fn verify_node(stage: Stage, u: &UOp) -> Result<(), SpecError> {
    let r =
        need(stage.ops().has(u.op()), "op does not belong here").and_then(|()| common(u)).and_then(|()| match stage {
            Stage::Tensor => tensor(u),
            Stage::Scheduling => tensor(u).or_else(|_| kernel(u)),
            Stage::Kernel => kernel(u),
            Stage::Linear => kernel(u).and_then(|()| linear(u)),
        });
    r.map_err(|rule| SpecError { stage, rule, node: describe(u) })
}

fn describe(u: &UOp) -> String {
    let src: Vec<String> = u.src().iter().map(|s| format!("{s:?}")).collect();
    format!("{u:?} ({})", src.join(", "))
}

/// Types of values and the number of sources: the same checks at every stage.
fn common(u: &UOp) -> Check {
    let (s, t) = (u.src(), u.dtype());
    if let Some(n) = u.op().arity() {
        need(s.len() == n, "wrong number of sources")?;
        need(s.iter().all(|x| x.dtype().space.is_none()), "arithmetic on an address")?;
    }
    match u.op() {
        Op::Const if u.is_fault() => Err("a mistake in a call that made a node"),
        Op::Const => need(matches!(u.arg(), Arg::Const(_)) && s.is_empty(), "Const without a value"),
        Op::Var => need(matches!(u.arg(), Arg::Var(..)) && t.is_int(), "Var without name or of a wrong type"),
        Op::Cast => need(s[0].dtype().lanes == t.lanes, "Cast changes the lanes"),
        Op::Bitcast => need(
            s[0].dtype().lanes == t.lanes && s[0].dtype().scalar.size_bytes() == t.scalar.size_bytes(),
            "Bitcast changes the size",
        ),
        Op::Where => {
            need(s[0].dtype().is_bool(), "Where without a bool condition")?;
            need(s[1].dtype() == t && s[2].dtype() == t, "arms of a Where differ in type")?;
            need(s[0].dtype().lanes == t.lanes, "Where whose condition has other lanes")
        }
        op if op.is_comparison() => {
            need(s[0].dtype() == s[1].dtype(), "comparison of different types")?;
            need(t == s[0].dtype().with_scalar(Scalar::Bool), "comparison that is no bool")
        }
        Op::Shl | Op::Shr => {
            need(t == s[0].dtype() && t.is_int() && s[1].dtype().is_int(), "shift of something that is no integer")?;
            need(s[1].dtype().lanes == t.lanes, "shift by other lanes")
        }
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod => {
            need(t.is_int() && s.iter().all(|x| x.dtype() == t), "integer division of other types")
        }
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Recip | Op::FDiv | Op::Ldexp => {
            need(t.is_float() && s.iter().all(|x| x.dtype() == t), "float op on other types")
        }
        op if op.is_alu() => need(s.iter().all(|x| x.dtype() == t), "operands of different types"),
        Op::Splat => need(s.len() == 1 && s[0].dtype().lanes == 1 && s[0].dtype() == t.element(), "Splat of no scalar"),
        Op::Stack => need(
            s.len() == t.lanes as usize && s.iter().all(|x| x.dtype() == t.element()),
            "Stack of other than one scalar a lane",
        ),
        Op::Gep => need(
            s.len() == 1
                && u.axes().len() == t.lanes as usize
                && t.element() == s[0].dtype().element()
                && u.axes().iter().all(|l| *l < s[0].dtype().lanes),
            "Gep beyond the lanes",
        ),
        Op::Cat => need(
            s.iter().map(|x| x.dtype().lanes).sum::<u16>() == t.lanes
                && s.iter().all(|x| x.dtype().element() == t.element()),
            "Cat whose lanes do not add up",
        ),
        Op::VReduce => need(
            s.len() == 1 && t == s[0].dtype().element() && u.reduce_op().is_some_and(Op::is_reduction),
            "VReduce that does not reduce its lanes to one",
        ),
        _ => Ok(()),
    }
}

fn tensor(u: &UOp) -> Check {
    let s = u.src();
    need(u.dtype().lanes == 1 && u.dtype().space.is_none(), "vectors and addresses belong into kernels")?;
    let rank = s.first().map_or(0, |x| x.shape().len());
    let sizes = || need(s.iter().skip(1).all(|x| x.dtype() == DType::INDEX), "a size that is no index");
    match u.op() {
        op if op.is_elementwise() => {
            let mut shaped = s.iter().filter(|x| !x.shape().is_empty());
            let first = shaped.next();
            need(shaped.all(|x| Some(x.shape()) == first.map(UOp::shape)), "elementwise op on different shapes")
        }
        Op::Reshape => {
            sizes()?;
            let numbers = |d: &[Dim]| d.iter().map(Dim::as_int).product::<Option<i64>>();
            let same = match (numbers(s[0].shape()), numbers(u.shape())) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            };
            need(same, "Reshape changes the number of elements")
        }
        Op::Permute => {
            let mut axes = u.axes().to_vec();
            doorbell_sort::by_key(&mut axes, |a| *a);
            need(axes.iter().enumerate().all(|(k, a)| k == *a as usize) && axes.len() == rank, "Permute of other axes")
        }
        Op::Expand => {
            sizes()?;
            let ok = |(a, b): (&Dim, &Dim)| a == b || a.is(1);
            need(
                u.shape().len() == rank && s[0].shape().iter().zip(u.shape()).all(ok),
                "Expand of an axis that is not 1",
            )
        }
        Op::Pad | Op::Shrink => {
            sizes()?;
            need(s.len() == 1 + 2 * rank, "Pad or Shrink without two numbers an axis")?;
            need(u.op() == Op::Shrink || s[1..].iter().all(|x| x.vmax() >= 0), "negative padding")
        }
        Op::Flip => need(u.axes().iter().all(|a| (*a as usize) < rank), "Flip of an axis that is not there"),
        Op::CopyTile => copy_tile(u),
        Op::AwaitTile => need(
            s.len() >= 2 && s[0].op() == Op::Index && s[1].dtype().is_int(),
            "AwaitTile without barrier and parity",
        ),
        Op::Reduce => {
            need(u.reduce_op().is_some_and(Op::is_reduction), "Reduce by an op that does not reduce")?;
            need(s.len() == 1 && u.axes().iter().all(|a| (*a as usize) < rank), "Reduce of an axis that is not there")?;
            need(u.dtype() == s[0].dtype(), "Reduce changes the type")
        }
        Op::Bind => {
            need(s.len() == 2 && s[0].op() == Op::Var && s[1].op() == Op::Const, "Bind without variable and value")
        }
        Op::Buffer => need(u.buffer_ref().is_some() && u.dtype().scalar.size_bytes() > 0, "Buffer without memory"),
        Op::Copy => need(matches!(u.arg(), Arg::Device(_)), "Copy without a device"),
        Op::Fused => {
            need(s.first().is_some_and(|x| x.dtype() == u.dtype()), "Fused without its value")?;
            need(matches!(u.arg(), Arg::Attention(_)), "Fused of nothing")
        }
        Op::Custom => need(
            matches!(u.arg(), Arg::Custom(c) if c.dtype == u.dtype()),
            "Custom without a kernel, or of another type",
        ),
        Op::Assign => need(s.len() == 2 && s[0].dtype() == s[1].dtype(), "Assign of another type"),
        _ => Ok(()),
    }
}

fn kernel(u: &UOp) -> Check {
    let (s, t) = (u.src(), u.dtype());
    match u.op() {
        Op::Param | Op::Local => need(t.space.is_some(), "kernel argument that is no address"),
        Op::Range => {
            need(s.len() == 1 && s[0].dtype().is_int() && u.range_arg().is_some(), "Range without an end")?;
            need(t.is_int() && t.lanes == 1, "Range that is no integer")
        }
        Op::Index => {
            need(s.len() == 2 || s.len() == 3, "Index without address and number")?;
            need(s[0].dtype().space.is_some() && t == s[0].dtype(), "Index of something that is no address")?;
            need(s[1].dtype().is_int(), "Index that is no integer")?;
            need(s.get(2).is_none_or(|g| g.dtype().is_bool()), "gate that is no bool")
        }
        Op::Load => {
            need(s.first().is_some_and(|i| i.op() == Op::Index), "Load from something that is no Index")?;
            need(t.scalar == s[0].dtype().scalar && t.space.is_none(), "Load of another type than the memory's")?;
            let lanes = s[0].src()[1].dtype().lanes;
            need(lanes == 1 || lanes == t.lanes, "gather with other lanes")?;
            let gate = s[0].src().get(2).map_or(1, |g| g.dtype().lanes);
            need(gate == 1 || gate == t.lanes, "gate with other lanes")?;
            need(s.get(1).is_none_or(|a| a.dtype() == t), "alternative of another type")
        }
        Op::LoadMatrix => {
            let local =
                s.first().is_some_and(|i| i.op() == Op::Index && i.dtype().space == Some(crate::AddrSpace::Local));
            need(local, "LoadMatrix from something that is no workgroup memory")?;
            need(t.scalar == s[0].dtype().scalar && t.space.is_none(), "LoadMatrix of another type than the memory's")?;
            need(s.get(1).is_none_or(|r| r.op() == Op::Range), "LoadMatrix over something that is no Range")?;
            need(matches!(u.arg(), Arg::Transposed(_) | Arg::Tile(_)), "LoadMatrix without a direction")
        }
        Op::Store => {
            need(s.len() >= 2 && s[0].op() == Op::Index, "Store to something that is no Index")?;
            need(s[1].dtype().scalar == s[0].dtype().scalar, "Store of another type than the memory's")?;
            let lanes = s[0].src()[1].dtype().lanes;
            need(lanes == 1 || lanes == s[1].dtype().lanes, "scatter with other lanes")?;
            need(s[2..].iter().all(|r| r.op() == Op::Range), "Store over something that is no Range")
        }
        Op::Reduce => {
            need(u.reduce_op().is_some_and(Op::is_reduction), "Reduce by an op that does not reduce")?;
            need(
                u.axes().is_empty() && s[1..].iter().all(|r| r.op() == Op::Range),
                "Reduce over something that is no Range",
            )?;
            need(t.scalar == s[0].dtype().scalar, "Reduce changes the type")
        }
        Op::WaveReduce => {
            need(s.len() <= 2 && s.get(1).is_none_or(|r| r.op() == Op::Range), "WaveReduce over more than a range")?;
            wave_reduce(u)
        }
        Op::SetAcc => need(s.len() == 2 && s[1].dtype() == s[0].dtype(), "SetAcc of another type"),
        Op::Acc => need(s.len() == 1 && s[0].dtype() == t, "Acc whose start has another type"),
        Op::If => need(s.len() == 1 && s[0].dtype() == DType::BOOL, "If without a scalar bool"),
        Op::End => need(s.first().is_some_and(|r| r.op() == Op::Range), "End of something that is no Range"),
        Op::EndIf => need(s.len() == 1 && s[0].op() == Op::If, "EndIf of something that is no If"),
        _ => Ok(()),
    }
}

/// A TMA tile is copied from a buffer to workgroup memory of the same type.
fn copy_tile(u: &UOp) -> Check {
    let [to, bar, from, column, row] = u.src() else { return Err("CopyTile takes five sources") };
    let local = |i: &UOp| i.op() == Op::Index && i.dtype().space == Some(crate::AddrSpace::Local);
    need(local(to) && local(bar), "CopyTile to something that is no workgroup memory")?;
    need(from.op() == Op::Param && from.dtype().scalar == to.dtype().scalar, "CopyTile from another type of memory")?;
    need(column.dtype().is_int() && row.dtype().is_int(), "CopyTile at a place that is no integer")?;
    need(matches!(u.arg(), Arg::Tma(_)), "CopyTile without a box")
}

/// A reduction over the threads of a wave names their number and keeps the type.
pub fn wave_reduce(u: &UOp) -> Check {
    let (s, t) = (u.src(), u.dtype());
    need(u.reduce_op().is_some_and(Op::is_reduction), "WaveReduce by an op that does not reduce")?;
    need(u.wave_threads().is_some(), "WaveReduce over no power of two of threads")?;
    need(s.first().is_some_and(|x| x.dtype() == t), "WaveReduce changes the type")?;
    need(t.space.is_none() && !t.is_bool(), "WaveReduce of an address or a bool")
}

/// A matrix unit's vectors have the number of elements that its instruction needs; fp8 values are bits once they have
/// been lowered.
pub fn wmma(u: &UOp) -> Check {
    let Arg::Wmma(w) = u.arg() else { return Err("Wmma without an instruction") };
    let is = |x: &UOp, t: Scalar| x.dtype().scalar == t || t.is_fp8() && x.dtype().scalar == Scalar::U8;
    let holds = |x: &UOp, t: Scalar, n: u16| is(x, t) && x.dtype().lanes == n;
    let [a, b, acc] = u.src() else { return Err("Wmma of other than two tiles and a sum") };
    need(holds(a, w.a, w.a_spread.elements()) && holds(b, w.a, w.b_spread.elements()), "Wmma of other tiles")?;
    need(holds(u, w.acc, w.c_spread.elements()) && acc.dtype() == u.dtype(), "Wmma to another tile")
}

fn linear(u: &UOp) -> Check {
    let (s, t) = (u.src(), u.dtype());
    need(!t.scalar.is_weak(), "weak type")?;
    need(!t.scalar.is_fp8(), "fp8 value that is not U8 bits")?;
    match u.op() {
        Op::Load => need(s[0].src().len() < 3 || s.len() == 2, "gated Load without an alternative"),
        Op::Store => need(s.len() == 2, "Store with ranges"),
        Op::CDiv | Op::CMod => {
            let divisor = if s[1].op() == Op::Splat { &s[1].src()[0] } else { &s[1] };
            let guarded = divisor.op() == Op::Where && divisor.src()[1].op() == Op::Const;
            let bounded = s[1].vmin() > 0 || s[1].vmax() < 0;
            // A reduction's bounds were known when the division was lowered; its register has none, so this is not
            // checked.
            let reduced = || divisor.any(|x| x.op() == Op::Acc);
            need(bounded || guarded || reduced(), "integer division by what may be zero")
        }
        Op::Index | Op::CopyTile | Op::AwaitTile => Ok(()),
        Op::LoadMatrix => need(s.len() == 1, "LoadMatrix with a range"),
        Op::Wmma => wmma(u),
        Op::Exp2 => need(t.scalar == DType::F32.scalar, "Exp2 of another type than f32"),
        Op::WaveReduce => need(s.len() == 1, "WaveReduce with a range"),
        _ => need(s.iter().all(|x| x.op() != Op::Index || matches!(u.op(), Op::Store)), "Index used as a value"),
    }
}

/// Checks a linear program: every node, their order, and that loops and conditions nest and close.
///
/// # Errors
/// The first node that breaks a rule.
pub fn verify_list(list: &[UOp]) -> Result<(), SpecError> {
    let mut seen = USet::default();
    let mut open: Vec<&UOp> = Vec::new();
    for u in list {
        verify_node(Stage::Linear, u)?;
        let order = (|| {
            need(u.src().iter().all(|s| seen.contains(s)), "a source stands behind its user")?;
            need(seen.insert(u.clone()), "the same node twice")?;
            match u.op() {
                Op::Range | Op::If => open.push(u),
                Op::End | Op::EndIf => {
                    need(open.pop() == u.src().first(), "a loop or condition closes before what it contains")?;
                }
                _ => {}
            }
            Ok(())
        })();
        order.map_err(|rule| SpecError { stage: Stage::Linear, rule, node: describe(u) })?;
    }
    match open.last() {
        None => Ok(()),
        Some(u) => {
            Err(SpecError { stage: Stage::Linear, rule: "a loop or condition that never closes", node: describe(u) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AxisKind, BufferRef};

    fn rule(r: Result<(), SpecError>) -> &'static str {
        r.unwrap_err().rule
    }
    fn buffer(n: usize) -> UOp {
        UOp::buffer(DType::F32, BufferRef::new(n, "CPU".into()))
    }

    #[test]
    fn a_well_formed_tensor_graph_passes_and_mixed_shapes_do_not() {
        let (a, b) = (buffer(6), buffer(5));
        let x = a.movement(Op::Reshape, [UOp::int(2), UOp::int(3)]);
        let sum = (&x * &x).reduce_axes(Op::Add, &[1]);
        verify(Stage::Tensor, &UOp::sink([sum.clone()])).unwrap();
        assert_eq!(rule(verify(Stage::Tensor, &(&a + &b))), "elementwise op on different shapes");
        let bad = a.movement(Op::Reshape, [UOp::int(2), UOp::int(4)]);
        assert_eq!(rule(verify(Stage::Tensor, &bad)), "Reshape changes the number of elements");
        assert_eq!(rule(verify(Stage::Kernel, &sum)), "op does not belong here");
    }

    #[test]
    fn mixed_types_are_named() {
        let a = buffer(4);
        let e = verify(Stage::Tensor, &UOp::alu(Op::Add, [a.clone(), a.cast(DType::F64)])).unwrap_err();
        assert_eq!(e.rule, "operands of different types");
        assert!(e.to_string().contains("Add"), "{e}");
    }

    #[test]
    fn a_kernel_graph_passes_and_a_store_of_another_type_does_not() {
        let r = UOp::range(8, 0, AxisKind::Loop);
        let load = UOp::param(1, DType::F32, 8).index(&r).load();
        let out = UOp::param(0, DType::F32, 8).index(&r);
        verify(Stage::Kernel, &UOp::sink([out.store(&load, std::slice::from_ref(&r))])).unwrap();
        let bad = out.store(&load.cast(DType::F64), &[r]);
        assert_eq!(rule(verify(Stage::Kernel, &bad)), "Store of another type than the memory's");
    }

    #[test]
    fn a_list_must_be_ordered_closed_and_decomposed() {
        let end = UOp::constant(DType::I64, 8i64);
        let r = UOp::range(&end, 0, AxisKind::Loop).with_dtype(DType::I64);
        let p = UOp::param(0, DType::F32, 8);
        let i = p.index(&r);
        let x = i.load();
        let st = i.store(&x, &[]);
        let close = UOp::new(Op::End, DType::VOID, [r.clone(), st.clone()], Arg::None);
        let list = [end.clone(), p.clone(), r.clone(), i.clone(), x.clone(), st.clone(), close.clone()];
        verify_list(&list).unwrap();
        assert_eq!(rule(verify_list(&list[..6])), "a loop or condition that never closes");
        assert_eq!(rule(verify_list(&[p, i.clone()])), "a source stands behind its user");
        assert_eq!(rule(verify_node(Stage::Linear, &UOp::alu(Op::Log2, [x]))), "op does not belong here");
        assert_eq!(rule(verify_node(Stage::Linear, &UOp::int(3))), "weak type");
    }
}
