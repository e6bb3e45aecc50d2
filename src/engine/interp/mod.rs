//! The reference interpreter: slow and simple; tests compare all results with it.
//!
//! Three entry points, one for each stage of a graph: [`eval`] (tensor graph → value), [`run_kernel`] (kernel graph on
//! byte buffers) and [`run_program`] (linear program on byte buffers). All use `uop::eval_alu` for arithmetic, lane by
//! lane. Sums of floats are accumulated in f64 and rounded once, so results are at least as accurate as with any order
//! of additions.

mod kernel;
mod program;
mod schedule;
mod tensor;
mod wmma;
mod workgroup;

pub use kernel::run_kernel;
pub use program::run_program;
pub use schedule::{HostMemory, Mode};
pub use tensor::{eval, eval_with};

use crate::uop::{ConstVal, DType, Op, Scalar, UOp, cast_const, eval_alu, from_bits, to_bits};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use thiserror::Error;

/// Lanes of one value.
pub type Lanes = SmallVec<[ConstVal; 1]>;
/// Values of the variables of a run, by name.
pub type Vars = BTreeMap<String, i64>;

/// A tensor's value: shape in elements, row-major data.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its type.
    pub dtype: Scalar,
    /// Its elements, row-major.
    pub data: Vec<ConstVal>,
}

impl Value {
    /// Little-endian bytes, as in device memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        let n = self.dtype.size_bytes();
        self.data.iter().flat_map(|v| to_bits(*v, self.dtype).to_le_bytes().into_iter().take(n)).collect()
    }
    /// Elements of `dtype` from device bytes; bytes beyond the shape are ignored.
    pub fn from_bytes(shape: Vec<usize>, dtype: Scalar, bytes: &[u8]) -> Value {
        let n = dtype.size_bytes().max(1);
        let len = shape.iter().product();
        Value { shape, dtype, data: bytes.chunks_exact(n).take(len).map(|c| read_element(c, dtype)).collect() }
    }
    /// All elements as floats.
    pub fn to_f64(&self) -> Vec<f64> {
        self.data.iter().map(|v| v.as_f64()).collect()
    }
}

/// Why a graph has no value.
#[derive(Clone, Error, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text of each variant says what it means and holds")]
pub enum InterpError {
    #[error("interpreter: {op:?} is not allowed in a {stage}")]
    Unexpected { op: Op, stage: &'static str },
    #[error("interpreter: variable '{0}' has no value")]
    Unbound(String),
    #[error("interpreter: {what} of element {index} in buffer {slot} of {len} elements")]
    OutOfBounds { what: &'static str, slot: u32, index: i128, len: usize },
    #[error("interpreter: threads of a workgroup disagree about {0}")]
    Diverged(String),
    #[error("interpreter: {0}")]
    Race(String),
    #[error("interpreter: buffer {0} has no data")]
    NoData(u64),
    #[error("interpreter: {0}")]
    Malformed(String),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for InterpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn read_element(bytes: &[u8], t: Scalar) -> ConstVal {
    let mut w = [0u8; 8];
    w[..bytes.len()].copy_from_slice(bytes);
    from_bits(u64::from_le_bytes(w), t)
}

/// Result lanes of an elementwise, vector or constant node from the lanes of its sources; `None`: not such a node.
fn value_op(u: &UOp, src: &[&Lanes]) -> Result<Option<Lanes>, InterpError> {
    let bad = || InterpError::Malformed(format!("{u:?} has sources that do not fit"));
    let t = u.dtype().scalar;
    Ok(Some(match u.op() {
        Op::Const => std::iter::repeat_n(u.as_const().ok_or_else(bad)?, u.dtype().lanes as usize).collect(),
        Op::Splat => std::iter::repeat_n(src[0][0], u.dtype().lanes as usize).collect(),
        Op::Stack | Op::Cat => src.iter().flat_map(|l| l.iter().copied()).collect(),
        Op::Gep => {
            let lane = |a: &u16| src[0].get(*a as usize).copied().ok_or_else(bad);
            u.axes().iter().map(lane).collect::<Result<_, _>>()?
        }
        Op::VReduce => {
            let op = u.reduce_op().ok_or_else(bad)?;
            let mut acc = identity(op, t);
            for v in src[0].iter() {
                acc = fold(op, t, acc, *v).ok_or_else(bad)?;
            }
            SmallVec::from_elem(cast_const(acc, t), 1)
        }
        Op::Cast => src[0].iter().map(|v| cast_const(*v, t)).collect(),
        Op::Bitcast => bitcast(src[0], u.src()[0].dtype(), t),
        op if op.is_alu() => {
            let lanes = src.iter().map(|l| l.len()).max().ok_or_else(bad)?;
            let one = |k: usize| {
                let args: SmallVec<[ConstVal; 3]> = src.iter().map(|l| l[k.min(l.len() - 1)]).collect();
                // Comparisons are evaluated in the operands' type.
                eval_alu(op, if op.is_comparison() { u.src()[0].dtype().scalar } else { t }, &args).ok_or_else(bad)
            };
            (0..lanes).map(one).collect::<Result<_, _>>()?
        }
        _ => return Ok(None),
    }))
}

/// The same bits as elements of another type; element sizes may differ if the total sizes agree.
fn bitcast(v: &[ConstVal], from: DType, to: Scalar) -> Lanes {
    let from = from.scalar;
    let bytes: Vec<u8> =
        v.iter().flat_map(|x| to_bits(*x, from).to_le_bytes().into_iter().take(from.size_bytes())).collect();
    bytes.chunks(to.size_bytes().max(1)).map(|c| read_element(c, to)).collect()
}

/// The initial value of a reduction.
pub fn identity(op: Op, t: Scalar) -> ConstVal {
    let v = match op {
        Op::Mul => ConstVal::Int(1),
        Op::Max => t.lowest(),
        _ => ConstVal::Int(0),
    };
    cast_const(v, t)
}

/// One step of a reduction; float sums and products stay in f64 (the caller rounds at the end).
fn fold(op: Op, t: Scalar, acc: ConstVal, v: ConstVal) -> Option<ConstVal> {
    let wide = if t.is_float() { Scalar::F64 } else { t };
    eval_alu(op, wide, &[acc, v])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Program;
    use crate::uop::AxisKind;

    fn f32s(v: &[f32]) -> Vec<u8> {
        v.iter().flat_map(|x| x.to_le_bytes()).collect()
    }
    fn nums(b: &[u8]) -> Vec<f32> {
        b.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
    }

    #[test]
    fn a_padded_reversed_sum_of_iota_matches_hand_arithmetic() {
        let iota = UOp::new(Op::Iota, DType::INDEX, [UOp::int(6)], crate::uop::Arg::None).cast(DType::F32);
        let m = iota.movement(Op::Reshape, [UOp::int(2), UOp::int(3)]);
        let p = m.flip(&[1]).movement(Op::Pad, [0, 1, 0, 0].map(UOp::int));
        assert_eq!(eval(&p).unwrap().to_f64(), [0., 2., 1., 0., 0., 5., 4., 3.]);
        assert_eq!(eval(&p.reduce_axes(Op::Add, &[1])).unwrap().to_f64(), [3., 12.]);
        assert_eq!(eval(&p.permute(&[1, 0]).reduce_axes(Op::Max, &[1])).unwrap().to_f64(), [0., 5., 4., 3.]);
    }

    #[test]
    fn a_kernel_graph_normalises_rows_with_a_reduce_inside_the_row_loop() {
        let (r, c, k) =
            (UOp::range(2, 0, AxisKind::Loop), UOp::range(3, 1, AxisKind::Loop), UOp::range(3, 2, AxisKind::Reduce));
        let x = UOp::param(1, DType::F32, 6);
        let at = |j: &UOp| x.index(&(&(&r * 3) + j)).load();
        let s = at(&k).reduce(Op::Add, std::slice::from_ref(&k));
        let st = UOp::param(0, DType::F32, 6).index(&(&(&r * 3) + &c)).store(&at(&c).binary(Op::FDiv, &s), &[r, c]);
        let mut bufs = vec![vec![0; 24], f32s(&[1., 2., 1., 5., 0., 5.])];
        run_kernel(&UOp::sink([st]), &mut bufs, &Vars::new()).unwrap();
        assert_eq!(nums(&bufs[0]), [0.25, 0.5, 0.25, 0.5, 0., 0.5]);
    }

    #[test]
    fn an_access_beyond_the_buffer_is_an_error_and_a_gated_one_is_not() {
        let r = UOp::range(4, 0, AxisKind::Loop);
        let (out, x) = (UOp::param(0, DType::F32, 4), UOp::param(1, DType::F32, 3));
        let run = |v: UOp| {
            let mut bufs = vec![vec![0; 16], f32s(&[1., 2., 3.])];
            run_kernel(&UOp::sink([out.index(&r).store(&v, std::slice::from_ref(&r))]), &mut bufs, &Vars::new())
                .map(|_| nums(&bufs[0]))
        };
        assert!(matches!(run(x.index(&r).load()), Err(InterpError::OutOfBounds { index: 3, len: 3, .. })));
        let gated = x.index_gated(&r, &r.lt(&UOp::int(3))).load_or(&UOp::constant(DType::F32, 9.0));
        assert_eq!(run(gated).unwrap(), [1., 2., 3., 9.]);
    }

    #[test]
    fn a_linear_program_accumulates_vectors_and_reads_the_register_after_its_loop() {
        let (out, x) = (UOp::param(0, DType::F32, 1), UOp::param(1, DType::F32, 8));
        let two = UOp::constant(DType::I64, 2);
        let r = UOp::range(two.clone(), 0, AxisKind::Reduce).with_dtype(DType::I64);
        let four = UOp::constant(DType::I64, 4);
        let i = r.binary(Op::Mul, &four);
        let idx = x.index(&i);
        let v = UOp::new(Op::Load, DType::F32.vec(4), [idx.clone()], crate::uop::Arg::None);
        let zero = UOp::constant(DType::F32.vec(4), 0.0);
        let acc = UOp::new(Op::Acc, DType::F32.vec(4), [zero.clone()], crate::uop::Arg::None);
        let add = acc.binary(Op::Add, &v);
        let set = UOp::new(Op::SetAcc, DType::VOID, [acc.clone(), add.clone()], crate::uop::Arg::None);
        let end = UOp::new(Op::End, DType::VOID, [r.clone(), set.clone()], crate::uop::Arg::None);
        let after = acc.after(std::slice::from_ref(&end));
        let total = UOp::new(
            Op::VReduce,
            DType::F32,
            [after.clone()],
            crate::uop::Arg::Reduce(Op::Add, crate::uop::Axes::new()),
        );
        let z = UOp::constant(DType::I64, 0);
        let o = out.index(&z);
        let st = o.store(&total, &[]);
        let p = Program {
            name: "r_2_4".into(),
            display_name: String::new(),
            uops: vec![out, x, two, four, zero, acc, r, i, idx, v, add, set, end, after, total, z, o, st],
            params: vec![],
            vars: vec![],
            tensors: vec![],
            threads: 1,
            global: [1; 3],
            local: [1; 3],
            local_bytes: 0,
            estimates: Default::default(),
            opts: vec![],
            fast_math: false,
        };
        let mut bufs = vec![vec![0; 4], f32s(&[1., 2., 3., 4., 5., 6., 7., 8.])];
        run_program(&p, &mut bufs, &Vars::new()).unwrap();
        assert_eq!(nums(&bufs[0]), [36.]);
    }
}
