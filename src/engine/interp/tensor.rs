//! Tensor graphs: every node is evaluated to a whole array, sources first.

use super::{InterpError, Lanes, Value, Vars, fold, identity, run_kernel, value_op};
use crate::uop::{Arg, BufferRef, ConstVal, CustomCode, Op, UMap, UOp, cast_const};
use smallvec::smallvec;

type Read<'a> = &'a dyn Fn(&BufferRef) -> Option<Vec<u8>>;

/// Value of a tensor graph; `read` returns the bytes of a Buffer.
pub fn eval_with(root: &UOp, read: Read) -> Result<Value, InterpError> {
    let mut vals: UMap<Value> = UMap::default();
    let mut vars = Vars::new();
    // A bound variable's value applies to every use of the variable.
    for bind in root.toposort().iter().filter(|u| u.op() == Op::Bind) {
        if let (Some(Arg::Var(name, ..)), Some(value)) =
            (bind.src().first().map(UOp::arg), bind.src().get(1).and_then(UOp::as_int))
        {
            vars.insert(name.to_string(), value);
        }
    }
    // A node and, once its sources were pushed, the buffer it was found in. Looked up only once, since another thread
    // may realize the node.
    let mut seen = crate::uop::USet::default();
    let mut stack: Vec<(UOp, Option<Option<UOp>>)> = vec![(root.clone(), None)];
    while let Some((u, entered)) = stack.pop() {
        if let Some(known) = entered {
            let v = match &known {
                Some(b) => vals[b].clone(),
                None => node(&u, &vals, &mut vars, read)?,
            };
            vals.insert(u, v);
        } else if seen.insert(u.clone()) {
            let known = u.realized().cloned();
            stack.push((u.clone(), Some(known.clone())));
            match known {
                Some(b) => stack.push((b, None)),
                None => stack.extend(read_by(&u).iter().rev().map(|s| (s.clone(), None))),
            }
        }
    }
    vals.remove(root).ok_or_else(|| InterpError::Malformed("empty graph".into()))
}

/// Value of a tensor graph without buffers (or whose buffers are realized by host bytes: see [`eval_with`]).
pub fn eval(root: &UOp) -> Result<Value, InterpError> {
    eval_with(root, &|_| None)
}

/// The sources whose values a node needs: an Assign not what its target held before, which may never have been written.
fn read_by(u: &UOp) -> &[UOp] {
    if u.op() == Op::Assign { &u.src()[1..] } else { u.src() }
}

fn node(u: &UOp, vals: &UMap<Value>, vars: &mut Vars, read: Read) -> Result<Value, InterpError> {
    let src: Vec<&Value> = read_by(u).iter().map(|s| &vals[s]).collect();
    let t = u.dtype().scalar;
    let bad = |what: &str| InterpError::Malformed(format!("{u:?}: {what}"));
    let size = |v: &Value| v.data.first().and_then(|d| d.as_int()).and_then(|i| usize::try_from(i).ok());
    let sizes = |from: usize| -> Result<Vec<usize>, InterpError> {
        src[from..].iter().map(|v| size(v).ok_or_else(|| bad("a size is not a natural number"))).collect()
    };
    Ok(match u.op() {
        Op::Var => {
            let Arg::Var(name, ..) = u.arg() else { return Err(bad("no name")) };
            let v = vars.get(name.as_ref()).ok_or_else(|| InterpError::Unbound(name.to_string()))?;
            Value { shape: vec![], dtype: t, data: vec![ConstVal::from(*v)] }
        }
        Op::Bind => src[1].clone(),
        Op::Buffer => {
            let b = u.buffer_ref().ok_or_else(|| bad("no buffer"))?;
            let bytes = read(b).ok_or(InterpError::NoData(b.id))?;
            Value::from_bytes(vec![b.len], t, &bytes)
        }
        Op::Iota => {
            let n = sizes(0)?[0];
            Value { shape: vec![n], dtype: t, data: (0..n as i64).map(|i| cast_const(i.into(), t)).collect() }
        }
        Op::Contiguous | Op::ContiguousBackward | Op::Detach | Op::Copy | Op::After | Op::Assign | Op::Fused => {
            src[0].clone()
        }
        Op::Custom => custom(u, &src)?,
        Op::Reshape => Value { shape: sizes(1)?, ..src[0].clone() },
        Op::Expand => {
            let (to, x) = (sizes(1)?, src[0]);
            gather(&to, x, |i, k| if x.shape[k] == 1 { Some(0) } else { Some(i) })
        }
        Op::Permute => permute(u, src[0]),
        Op::Flip => {
            let x = src[0];
            gather(&x.shape.clone(), x, |i, k| {
                Some(if u.axes().contains(&(k as u16)) { x.shape[k] - 1 - i } else { i })
            })
        }
        Op::Shrink => {
            let (x, s) = (src[0], sizes(1)?);
            let n = x.shape.len();
            let to: Vec<usize> = (0..n).map(|k| s[n + k].saturating_sub(s[k])).collect();
            gather(&to, x, |i, k| Some(i + s[k]))
        }
        Op::Pad => {
            let (x, s) = (src[0], sizes(1)?);
            let n = x.shape.len();
            let to: Vec<usize> = (0..n).map(|k| s[k] + x.shape[k] + s[n + k]).collect();
            gather(&to, x, |i, k| i.checked_sub(s[k]).filter(|j| *j < x.shape[k]))
        }
        Op::Reduce => reduce(u, src[0]).ok_or_else(|| bad("not a reduction"))?,
        _ => elementwise(u, &src, vars)?,
    })
}

/// What a user's kernel gives.
fn custom(u: &UOp, src: &[&Value]) -> Result<Value, InterpError> {
    let bad = |what: &str| InterpError::Malformed(format!("{u:?}: {what}"));
    let Arg::Custom(custom) = u.arg() else { return Err(bad("no kernel")) };
    let CustomCode::Graph(ast) = &custom.code else { return Err(bad("its text is the device's to run")) };
    let sizes = custom.shape.iter().map(|d| d.as_int().and_then(|n| usize::try_from(n).ok()));
    let shape = sizes.collect::<Option<Vec<usize>>>().ok_or_else(|| bad("a size is not known"))?;
    let t = custom.dtype.scalar;
    let mut memory = vec![vec![0xa5; shape.iter().product::<usize>() * t.size_bytes()]];
    memory.extend(src.iter().map(|v| v.to_bytes()));
    run_kernel(ast, &mut memory, &Vars::new())?;
    Ok(Value::from_bytes(shape, t, &memory[0]))
}

/// Output element at `i` is the source element at `pick(i[k], k)` on each axis, zero where that is `None`.
fn gather(to: &[usize], x: &Value, pick: impl Fn(usize, usize) -> Option<usize>) -> Value {
    let total: usize = to.iter().product();
    let zero = cast_const(ConstVal::Int(0), x.dtype);
    let mut data = Vec::with_capacity(total);
    for flat in 0..total {
        let (mut rest, mut at, mut stride) = (flat, Some(0), 1);
        for k in (0..to.len()).rev() {
            let i = rest % to[k];
            rest /= to[k];
            at = at.zip(pick(i, k)).map(|(a, j)| a + j * stride);
            stride *= x.shape[k];
        }
        data.push(at.and_then(|a: usize| x.data.get(a).copied()).unwrap_or(zero));
    }
    Value { shape: to.to_vec(), dtype: x.dtype, data }
}

fn permute(u: &UOp, x: &Value) -> Value {
    let axes: Vec<usize> = u.axes().iter().map(|a| *a as usize).collect();
    let to: Vec<usize> = axes.iter().map(|a| x.shape[*a]).collect();
    let mut strides = vec![1; x.shape.len()];
    for k in (0..x.shape.len().saturating_sub(1)).rev() {
        strides[k] = strides[k + 1] * x.shape[k + 1];
    }
    let total: usize = to.iter().product();
    let at = |flat: usize| {
        let (mut rest, mut sum) = (flat, 0);
        for k in (0..to.len()).rev() {
            sum += rest % to[k] * strides[axes[k]];
            rest /= to[k];
        }
        x.data[sum]
    };
    Value { data: (0..total).map(at).collect(), shape: to, dtype: x.dtype }
}

fn reduce(u: &UOp, x: &Value) -> Option<Value> {
    let (op, t) = (u.reduce_op()?, u.dtype().scalar);
    let shape: Vec<usize> =
        x.shape.iter().enumerate().map(|(k, n)| if u.axes().contains(&(k as u16)) { 1 } else { *n }).collect();
    let mut acc = vec![identity(op, t); shape.iter().product()];
    for (flat, v) in x.data.iter().enumerate() {
        let (mut rest, mut to, mut stride) = (flat, 0, 1);
        for k in (0..x.shape.len()).rev() {
            to += (rest % x.shape[k]).min(shape[k] - 1) * stride;
            rest /= x.shape[k];
            stride *= shape[k];
        }
        acc[to] = fold(op, t, acc[to], *v)?;
    }
    Some(Value { shape, dtype: t, data: acc.into_iter().map(|v| cast_const(v, t)).collect() })
}

fn elementwise(u: &UOp, src: &[&Value], _vars: &Vars) -> Result<Value, InterpError> {
    // A Const, like any other scalar operand, has an empty shape and is used for every element.
    let shape = src.iter().map(|v| &v.shape).max_by_key(|s| s.len()).cloned().unwrap_or_default();
    let total: usize = shape.iter().product();
    let t = u.dtype().scalar;
    if u.op() == Op::Bitcast && u.src()[0].dtype().scalar.size_bytes() != t.size_bytes() {
        return Err(InterpError::Malformed(format!("{u:?} changes the element size")));
    }
    let mut data = Vec::with_capacity(total);
    for k in 0..total {
        let args: Vec<Lanes> = src.iter().map(|v| smallvec![v.data[k.min(v.data.len() - 1)]]).collect();
        let refs: Vec<&Lanes> = args.iter().collect();
        let r = value_op(u, &refs)?.ok_or(InterpError::Unexpected { op: u.op(), stage: "tensor graph" })?;
        data.push(r[0]);
    }
    Ok(Value { shape, dtype: t, data })
}
