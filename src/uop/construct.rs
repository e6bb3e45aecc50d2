//! Constructors for every op, and operator overloads on `&UOp`.

use super::{
    AddrSpace, Arg, Axes, AxisKind, BufArg, BufferRef, ConstVal, DType, IntoSrcs, Op, RangeArg, Scalar, Srcs, UOp,
    intern,
};
use std::sync::Arc;

impl UOp {
    /// Constant of type `dtype` (all lanes): the value is converted to it.
    pub fn constant(dtype: DType, v: impl Into<ConstVal>) -> UOp {
        let v = super::const_as(v.into(), dtype);
        match v {
            ConstVal::Int(i) if dtype == DType::INDEX && i as i64 as i128 == i => intern::index_constant(i as i64),
            _ => UOp::new(Op::Const, dtype, [], Arg::Const(v)),
        }
    }
    /// Index constant (WeakInt).
    pub fn int(i: i64) -> UOp {
        intern::index_constant(i)
    }
    /// Constant of type bool.
    pub fn bool(b: bool) -> UOp {
        UOp::constant(DType::BOOL, b)
    }
    /// A constant of the same dtype as `self`.
    pub fn const_like(&self, v: impl Into<ConstVal>) -> UOp {
        UOp::constant(self.dtype(), v)
    }
    /// Index variable with inclusive bounds.
    pub fn var(name: &str, min: i64, max: i64) -> UOp {
        UOp::new(Op::Var, DType::INDEX, [], Arg::Var(name.into(), min, max))
    }
    /// This variable bound to a value for this run.
    pub fn bind(&self, value: i64) -> UOp {
        UOp::new(Op::Bind, self.dtype(), [self.clone(), UOp::constant(self.dtype(), value)], Arg::None)
    }
    /// 0, 1 .. n-1 without memory: shape (n,).
    pub fn iota(n: impl Into<UOp>) -> UOp {
        UOp::new(Op::Iota, DType::INDEX, [n.into()], Arg::None)
    }
    /// Memory: shape (len,) of `dtype` elements.
    pub fn buffer(dtype: DType, b: Arc<BufferRef>) -> UOp {
        UOp::new(Op::Buffer, dtype, [], Arg::Buffer(BufArg(b)))
    }
    /// Kernel argument: address of `len` elements of `dtype`.
    pub fn param(slot: u32, dtype: DType, len: usize) -> UOp {
        UOp::new(Op::Param, dtype.ptr(AddrSpace::Global), [], Arg::Param(slot, len))
    }
    /// Scratch memory of a workgroup: address of `len` elements.
    pub fn local(n: u32, dtype: DType, len: usize) -> UOp {
        UOp::new(Op::Local, dtype.ptr(AddrSpace::Local), [], Arg::Local(n, len))
    }
    /// Loop 0..end.
    pub fn range(end: impl Into<UOp>, id: u32, kind: AxisKind) -> UOp {
        UOp::new(Op::Range, DType::INDEX, [end.into()], Arg::Range(RangeArg { id, sub: 0, kind }))
    }
    /// Elementwise op; dtype follows from the sources (comparisons: bool with their lanes; Where: the arms). Another
    /// number of sources than the op takes gives a faulty node ([`UOp::fault`]), and so does a faulty source.
    #[track_caller]
    pub fn alu(op: Op, src: impl IntoSrcs) -> UOp {
        let src = src.into_srcs();
        if op.arity() != Some(src.len()) {
            return wrong_arity(op, src.len());
        }
        if let Some(faulty) = src.iter().find(|s| s.is_fault()) {
            return faulty.clone();
        }
        // PANIC: there are as many sources as the op's arity, which is at least one (a Where has three).
        let dt = match op {
            Op::Where => src[1].dtype(),
            _ if op.is_comparison() => src[0].dtype().with_scalar(Scalar::Bool),
            _ => src[0].dtype(),
        };
        UOp::new(op, dt, src, Arg::None)
    }
    /// `op(self, o)` for an op of two sources; dtype and faults as of [`UOp::alu`].
    #[track_caller]
    pub fn binary(&self, op: Op, o: &UOp) -> UOp {
        UOp::alu(op, [self.clone(), o.clone()])
    }
    /// The value converted to `dtype`, which has as many lanes; `self` if it has that type.
    pub fn cast(&self, dtype: impl Into<DType>) -> UOp {
        let dtype = dtype.into();
        if dtype == self.dtype() { self.clone() } else { UOp::new(Op::Cast, dtype, [self.clone()], Arg::None) }
    }
    /// The same bits as a value of `dtype`, which has the same size and lanes; `self` if it has that type.
    pub fn bitcast(&self, dtype: impl Into<DType>) -> UOp {
        let dtype = dtype.into();
        if dtype == self.dtype() { self.clone() } else { UOp::new(Op::Bitcast, dtype, [self.clone()], Arg::None) }
    }
    /// A node that stands for a mistake: whatever is built on it with [`UOp::alu`] and the vocabulary of Tensors is
    /// this node, and realizing, compiling and rewriting report the text.
    pub fn fault(text: &str) -> UOp {
        UOp::new(Op::Const, DType::VOID, [], Arg::Str(text.into()))
    }
    /// Whether this is a node of [`UOp::fault`].
    pub fn is_fault(&self) -> bool {
        self.op() == Op::Const && matches!(self.arg(), Arg::Str(_))
    }
    /// Quotient: of integers rounded down, of floats as floats are divided.
    #[track_caller]
    fn quotient(&self, o: &UOp) -> UOp {
        self.binary(if self.dtype().is_float() { Op::FDiv } else { Op::FloorDiv }, o)
    }
    /// Remainder of integers, with the divisor's sign.
    #[track_caller]
    fn remainder(&self, o: &UOp) -> UOp {
        if self.dtype().is_float() {
            let at = std::panic::Location::caller();
            return UOp::fault(&format!("{self:?} % {o:?}: floats have `Elementwise::modulo` and `fmod`; at {at}"));
        }
        self.binary(Op::FloorMod, o)
    }
    /// `if self { a } else { b }`
    pub fn select(&self, a: &UOp, b: &UOp) -> UOp {
        UOp::alu(Op::Where, [self.clone(), a.clone(), b.clone()])
    }
    /// `self < o`, as bool.
    pub fn lt(&self, o: &UOp) -> UOp {
        self.binary(Op::CmpLt, o)
    }
    /// `self >= o`, as bool. It is the negation of `<`, so it is true where one of them is NaN.
    pub fn ge(&self, o: &UOp) -> UOp {
        self.lt(o).not()
    }
    /// `self != o`, as bool.
    pub fn ne(&self, o: &UOp) -> UOp {
        self.binary(Op::CmpNe, o)
    }
    /// `self == o`, as bool.
    pub fn equal(&self, o: &UOp) -> UOp {
        self.binary(Op::CmpEq, o)
    }
    /// Logical not of a bool: `x != true`.
    pub fn not(&self) -> UOp {
        self.ne(&self.const_like(true))
    }
    /// Bitwise and of integers, logical and of bools.
    pub fn and(&self, o: &UOp) -> UOp {
        self.binary(Op::And, o)
    }
    /// Bitwise or of integers, logical or of bools.
    pub fn or(&self, o: &UOp) -> UOp {
        self.binary(Op::Or, o)
    }
    /// The larger of both; of floats, NaN wins.
    pub fn max(&self, o: &UOp) -> UOp {
        self.binary(Op::Max, o)
    }
    /// Quotient of integers, rounded down.
    pub fn floordiv(&self, o: &UOp) -> UOp {
        self.binary(Op::FloorDiv, o)
    }
    /// Remainder of integers, with the divisor's sign.
    pub fn floormod(&self, o: &UOp) -> UOp {
        self.binary(Op::FloorMod, o)
    }
    /// Address of element `i`.
    pub fn index(&self, i: &UOp) -> UOp {
        UOp::new(Op::Index, self.dtype(), [self.clone(), i.clone()], Arg::None)
    }
    /// Address of element `i` where `gate` holds.
    pub fn index_gated(&self, i: &UOp, gate: &UOp) -> UOp {
        UOp::new(Op::Index, self.dtype(), [self.clone(), i.clone(), gate.clone()], Arg::None)
    }
    /// The element(s) at this address; the value has as many lanes as the index.
    pub fn load(&self) -> UOp {
        // An Index has sources (address, i, ..); the lanes of i are the lanes of the value.
        let lanes = self.src().get(1).map_or(1, |i| i.dtype().lanes);
        UOp::new(Op::Load, self.dtype().pointee().vec(lanes), [self.clone()], Arg::None)
    }
    /// As `load`, with `alt` where the gate is false.
    pub fn load_or(&self, alt: &UOp) -> UOp {
        UOp::new(Op::Load, alt.dtype(), [self.clone(), alt.clone()], Arg::None)
    }
    /// Stores `value` here, in the loops `ranges` (outermost first).
    pub fn store(&self, value: &UOp, ranges: &[UOp]) -> UOp {
        let src: Srcs = [self.clone(), value.clone()].into_iter().chain(ranges.iter().cloned()).collect();
        UOp::new(Op::Store, DType::VOID, src, Arg::None)
    }
    /// Kernel-level reduction over `ranges`.
    pub fn reduce(&self, op: Op, ranges: &[UOp]) -> UOp {
        let src: Srcs = std::iter::once(self.clone()).chain(ranges.iter().cloned()).collect();
        UOp::new(Op::Reduce, self.dtype(), src, Arg::Reduce(op, Axes::new()))
    }
    /// Reduces over `threads` neighbouring threads of a workgroup; `closed` is the range of threads over which the
    /// result is uniform.
    pub fn wave_reduce(&self, op: Op, threads: u16, closed: Option<&UOp>) -> UOp {
        let src: Srcs = std::iter::once(self).chain(closed).cloned().collect();
        UOp::new(Op::WaveReduce, self.dtype(), src, Arg::Reduce(op, Axes::from_slice(&[threads])))
    }
    /// Threads of a [`Op::WaveReduce`]; `None`: not a power of two, or another node.
    pub fn wave_threads(&self) -> Option<u16> {
        match (self.op(), self.arg()) {
            (Op::WaveReduce, Arg::Reduce(_, n)) => {
                n.first().copied().filter(|n| n.is_power_of_two() && n.count_zeros() < 16)
            }
            _ => None,
        }
    }
    /// Tensor-level reduction: the axes become size 1.
    pub fn reduce_axes(&self, op: Op, axes: &[usize]) -> UOp {
        UOp::new(Op::Reduce, self.dtype(), [self.clone()], Arg::Reduce(op, axes.iter().map(|a| *a as u16).collect()))
    }
    /// Root of a graph: a kernel's stores, or the values to compute.
    pub fn sink(src: impl IntoIterator<Item = UOp>) -> UOp {
        UOp::new(Op::Sink, DType::VOID, src.into_iter().collect::<Srcs>(), Arg::None)
    }
    /// This value, once `deps` are done.
    pub fn after(&self, deps: &[UOp]) -> UOp {
        let src: Srcs = std::iter::once(self.clone()).chain(deps.iter().cloned()).collect();
        UOp::new(Op::After, self.dtype(), src, Arg::None)
    }
    /// A scalar in `lanes` lanes.
    pub fn splat(&self, lanes: u16) -> UOp {
        if lanes == 1 {
            return self.clone();
        }
        match self.arg() {
            Arg::Const(c) => UOp::constant(self.dtype().vec(lanes), *c),
            _ => UOp::new(Op::Splat, self.dtype().vec(lanes), [self.clone()], Arg::None),
        }
    }
    /// Lanes `lanes` of a vector.
    pub fn gep(&self, lanes: &[u16]) -> UOp {
        UOp::new(
            Op::Gep,
            self.dtype().vec(lanes.len() as u16),
            [self.clone()],
            Arg::Axes(lanes.iter().copied().collect()),
        )
    }
    /// Tensor-level movement with sizes as sources (Reshape, Expand: new sizes; Pad, Shrink: see [`Op`]).
    pub fn movement(&self, op: Op, sizes: impl IntoIterator<Item = UOp>) -> UOp {
        let src: Srcs = std::iter::once(self.clone()).chain(sizes).collect();
        UOp::new(op, self.dtype(), src, Arg::None)
    }
    /// Tensor-level: output axis k is axis `axes[k]` of this value.
    pub fn permute(&self, axes: &[usize]) -> UOp {
        UOp::new(Op::Permute, self.dtype(), [self.clone()], Arg::Axes(axes.iter().map(|a| *a as u16).collect()))
    }
    /// Tensor-level: this value with these axes reversed.
    pub fn flip(&self, axes: &[usize]) -> UOp {
        UOp::new(Op::Flip, self.dtype(), [self.clone()], Arg::Axes(axes.iter().map(|a| *a as u16).collect()))
    }
    /// One-source identity-like node (Contiguous, Detach ...).
    pub fn wrap(&self, op: Op) -> UOp {
        UOp::new(op, self.dtype(), [self.clone()], Arg::None)
    }

    /// The constant's value, if this is one.
    pub fn as_const(&self) -> Option<ConstVal> {
        match self.arg() {
            Arg::Const(c) if self.op() == Op::Const => Some(*c),
            _ => None,
        }
    }
    /// The value of an integer or bool constant, if it fits an i64.
    pub fn as_int(&self) -> Option<i64> {
        self.as_const().and_then(ConstVal::as_int).and_then(|i| i64::try_from(i).ok())
    }
    /// Numbers and kind, if this is a Range.
    pub fn range_arg(&self) -> Option<RangeArg> {
        match self.arg() {
            Arg::Range(r) => Some(*r),
            _ => None,
        }
    }
    /// The numbers in [`Arg::Axes`] or [`Arg::Reduce`]: axes, lanes or threads, as the op says. Empty for other
    /// arguments.
    pub fn axes(&self) -> &[u16] {
        match self.arg() {
            Arg::Axes(a) | Arg::Reduce(_, a) => a,
            _ => &[],
        }
    }
    /// The op of a Reduce, VReduce or WaveReduce.
    pub fn reduce_op(&self) -> Option<Op> {
        match self.arg() {
            Arg::Reduce(op, _) => Some(*op),
            _ => None,
        }
    }
}

impl From<i64> for UOp {
    fn from(i: i64) -> UOp {
        UOp::int(i)
    }
}

#[track_caller]
fn wrong_arity(op: Op, have: usize) -> UOp {
    let at = std::panic::Location::caller();
    let sources = |n: usize| format!("{n} source{}", if n == 1 { "" } else { "s" });
    UOp::fault(&match op.arity() {
        Some(n) => format!("UOp::alu: {op:?} takes {}, {have} given; at {at}", sources(n)),
        None => format!("UOp::alu: {op:?} is no elementwise op (UOp::new makes others); at {at}"),
    })
}

macro_rules! sugar {
    ($($tr:ident $f:ident $make:expr;)*) => {$(
        impl std::ops::$tr<&UOp> for &UOp {
            type Output = UOp;
            #[track_caller]
            fn $f(self, o: &UOp) -> UOp { $make(self, o) }
        }
        impl std::ops::$tr<i64> for &UOp {
            type Output = UOp;
            #[track_caller]
            fn $f(self, o: i64) -> UOp { $make(self, &self.const_like(o)) }
        }
        impl std::ops::$tr<UOp> for UOp {
            type Output = UOp;
            #[track_caller]
            fn $f(self, o: UOp) -> UOp { $make(&self, &o) }
        }
        impl std::ops::$tr<i64> for UOp {
            type Output = UOp;
            #[track_caller]
            fn $f(self, o: i64) -> UOp { $make(&self, &self.const_like(o)) }
        }
    )*};
}
/// The binary op as a function.
macro_rules! of {
    ($op:ident) => {
        |a: &UOp, b: &UOp| UOp::alu(Op::$op, [a.clone(), b.clone()])
    };
}
// Of integers `/` and `%` are the floor forms: index arithmetic never wants the C ones.
sugar! {
    Add add of!(Add); Sub sub of!(Sub); Mul mul of!(Mul); Div div UOp::quotient; Rem rem UOp::remainder;
    Shl shl of!(Shl); Shr shr of!(Shr); BitAnd bitand of!(And); BitOr bitor of!(Or); BitXor bitxor of!(Xor);
}
impl std::ops::Neg for &UOp {
    type Output = UOp;
    fn neg(self) -> UOp {
        UOp::alu(Op::Neg, [self.clone()])
    }
}
