//! Arguments of nodes: everything that identifies a node besides op, dtype and sources.

use super::{Op, Scalar};
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A constant. Floats compare by bits, so NaN equals itself and -0.0 differs from 0.0.
#[derive(Copy, Clone)]
pub enum ConstVal {
    /// A value of dtype bool.
    Bool(bool),
    /// Any integer type; the value is in the dtype's range.
    Int(i128),
    /// Any float type; already rounded to the dtype.
    Float(f64),
}

impl ConstVal {
    fn key(self) -> (u8, i128) {
        match self {
            ConstVal::Bool(b) => (0, b as i128),
            ConstVal::Int(i) => (1, i),
            ConstVal::Float(f) => (2, f.to_bits() as i128),
        }
    }
    /// The value as an integer (false is 0, true is 1); `None` for a float.
    pub fn as_int(self) -> Option<i128> {
        match self {
            ConstVal::Int(i) => Some(i),
            ConstVal::Bool(b) => Some(b as i128),
            ConstVal::Float(_) => None,
        }
    }
    /// The value as a float (integers converted).
    pub fn as_f64(self) -> f64 {
        match self {
            ConstVal::Bool(b) => b as u8 as f64,
            ConstVal::Int(i) => i as f64,
            ConstVal::Float(f) => f,
        }
    }
    /// Whether it is 0, 0.0, -0.0 or false.
    pub fn is_zero(self) -> bool {
        match self {
            ConstVal::Float(f) => f == 0.0,
            v => v.key().1 == 0,
        }
    }
    /// Whether it is 1, 1.0 or true.
    pub fn is_one(self) -> bool {
        match self {
            ConstVal::Float(f) => f == 1.0,
            v => v.key().1 == 1,
        }
    }
    /// The value -1 (of a signed type).
    pub fn is_minus_one(self) -> bool {
        match self {
            ConstVal::Float(f) => f == -1.0,
            v => v.key().1 == -1,
        }
    }
}
impl PartialEq for ConstVal {
    fn eq(&self, o: &ConstVal) -> bool {
        self.key() == o.key()
    }
}
impl Eq for ConstVal {}
impl Hash for ConstVal {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.key().hash(h)
    }
}
impl fmt::Debug for ConstVal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstVal::Bool(b) => write!(f, "{b}"),
            ConstVal::Int(i) => write!(f, "{i}"),
            ConstVal::Float(x) => write!(f, "{x:?}"),
        }
    }
}
impl From<bool> for ConstVal {
    fn from(b: bool) -> Self {
        ConstVal::Bool(b)
    }
}
impl From<i64> for ConstVal {
    fn from(i: i64) -> Self {
        ConstVal::Int(i as i128)
    }
}
impl From<i32> for ConstVal {
    fn from(i: i32) -> Self {
        ConstVal::Int(i as i128)
    }
}
impl From<f64> for ConstVal {
    fn from(x: f64) -> Self {
        ConstVal::Float(x)
    }
}
impl From<f32> for ConstVal {
    fn from(x: f32) -> Self {
        ConstVal::Float(x as f64)
    }
}

/// What a loop is for. The order is nesting order: earlier kinds are further out.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AxisKind {
    /// Each value is one workgroup (GPU grid).
    Global,
    /// Split over the cores of a CPU.
    Thread,
    /// An ordinary output loop of the kernel that no opt has changed.
    Loop,
    /// Each value is one thread of the workgroup.
    Local,
    /// Threads of a workgroup that share one reduction.
    GroupReduce,
    /// Threads of a wave that together hold one tile of a matrix unit.
    Warp,
    /// A loop of a reduction.
    Reduce,
    /// Unrolled output axis: every value has its own instructions.
    Upcast,
    /// Unrolled reduction axis.
    Unroll,
    /// Lanes of a vector (output or reduction axis).
    Vector,
}

impl AxisKind {
    /// Letter in tables and colours (as in tinygrad: g t L l G w R u r; v is ours).
    pub const fn letter(self) -> char {
        match self {
            AxisKind::Global => 'g',
            AxisKind::Thread => 't',
            AxisKind::Loop => 'L',
            AxisKind::Local => 'l',
            AxisKind::GroupReduce => 'G',
            AxisKind::Warp => 'w',
            AxisKind::Reduce => 'R',
            AxisKind::Upcast => 'u',
            AxisKind::Unroll => 'r',
            AxisKind::Vector => 'v',
        }
    }
}

/// Identity of a range: `id` numbers the axis in its kernel, `sub` the ranges that opts split from it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RangeArg {
    /// Number of the axis in its kernel.
    pub id: u32,
    /// 0: the axis as it was made; other numbers: ranges that a pass made from it.
    pub sub: u32,
    /// What the loop is for.
    pub kind: AxisKind,
}

/// The memory of a `Buffer` node. Equality is identity of `id`. The engine puts the device memory into `memory` when it
/// is first needed; it is freed with the last handle on the node.
pub struct BufferRef {
    /// Unique in the process.
    pub id: u64,
    /// Number of elements; the `Buffer` node has their type.
    pub len: usize,
    /// Name of the device that the memory is on, e.g. `CPU`.
    pub device: Arc<str>,
    /// A single Tensor owns this memory, so it may be assigned to in place. Memory that holds the value of an
    /// expression is not owned: every Tensor built from the same expression shares it.
    owned: AtomicBool,
    /// Attached by the engine (its own type); opaque to `uop`.
    pub memory: OnceLock<Arc<dyn Any + Send + Sync>>,
}

static NEXT_BUFFER: AtomicU64 = AtomicU64::new(1);

impl BufferRef {
    /// A new identity with no memory yet: `len` elements on `device`.
    pub fn new(len: usize, device: Arc<str>) -> Arc<BufferRef> {
        BufferRef::make(len, device, true)
    }
    /// As `new`, for memory that will hold the value of an expression.
    pub fn computed(len: usize, device: Arc<str>) -> Arc<BufferRef> {
        BufferRef::make(len, device, false)
    }
    fn make(len: usize, device: Arc<str>, owned: bool) -> Arc<BufferRef> {
        let id = NEXT_BUFFER.fetch_add(1, Ordering::Relaxed);
        Arc::new(BufferRef { id, len, device, owned: AtomicBool::new(owned), memory: OnceLock::new() })
    }
    /// Whether a single Tensor owns this memory, so that it may be assigned to in place.
    pub fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Relaxed)
    }
    /// Makes it the memory of the only Tensor that has a handle on it.
    pub fn own(&self) {
        self.owned.store(true, Ordering::Relaxed);
    }
    /// A new identity for the memory of `self`, used for the buffer's content after an assignment.
    pub fn next_version(&self) -> Arc<BufferRef> {
        let b = BufferRef::new(self.len, self.device.clone());
        if let Some(m) = self.memory.get() {
            let _ = b.memory.set(m.clone());
        }
        b
    }
}

/// Information about a kernel that its SINK carries into codegen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct KernelInfo {
    /// Empty: codegen names it from its axes.
    pub name: String,
    /// Opts to apply instead of the heuristic's choice (set by BEAM), in codegen's text form.
    pub opts: Option<Vec<String>>,
    /// The kernel is an attention (a product, a softmax of its rows and another product, each reduction inside the
    /// next) or a part of its gradient. Codegen may compute the softmax in one pass ("online"), and keep scores in
    /// registers.
    pub attention: bool,
}

/// An attention, and what a [`Op::Fused`] is of it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Attention {
    /// Which value or gradient of the attention is computed.
    pub part: AttentionPart,
    /// A query does not see the keys after it.
    pub causal: bool,
}

/// A part of an attention.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum AttentionPart {
    /// Of each query, the sum of the values, weighted by the softmax of its scores.
    Result,
    /// Of each query, the logarithm to base 2 of the sum of `e^score` over the keys.
    LogSum,
    /// Gradient of the queries.
    QueryGradient,
    /// Gradient of the keys.
    KeyGradient,
    /// Gradient of the values.
    ValueGradient,
}

impl AttentionPart {
    /// Whether one kernel computes both, if they are of the same attention.
    pub fn is_with(self, o: AttentionPart) -> bool {
        let kernel = |part| match part {
            AttentionPart::Result | AttentionPart::LogSum => 0,
            AttentionPart::QueryGradient => 1,
            AttentionPart::KeyGradient | AttentionPart::ValueGradient => 2,
        };
        kernel(self) == kernel(o)
    }
    /// Whether it is a gradient.
    pub fn is_gradient(self) -> bool {
        !self.is_with(AttentionPart::LogSum)
    }
}

/// Description of one matrix-unit instruction: `c[m][n] += Σ_k a[m][k] · b[k][n]` on a tile whose elements are spread
/// over the lanes (threads) of a wave and the elements that each lane holds. Products and sums are computed in the
/// accumulator's type.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct WmmaArg {
    /// The vendor's name of the instruction.
    pub name: &'static str,
    /// Rows of operand a and of the accumulator.
    pub m: u16,
    /// Columns of operand b and of the accumulator.
    pub n: u16,
    /// Reduction steps: columns of a, rows of b.
    pub k: u16,
    /// Type of both operands.
    pub a: Scalar,
    /// Type of the accumulator.
    pub acc: Scalar,
    /// Threads that together hold one tile (1: a CPU's tile registers).
    pub lanes: u16,
    /// Position of row m and column k of operand a.
    pub a_spread: Spread,
    /// Position of column n (as `row`) and row k (as `col`) of operand b.
    pub b_spread: Spread,
    /// Position of row m and column n of the accumulator.
    pub c_spread: Spread,
    /// The unit reads both operands directly from workgroup memory (`Op::LoadMatrix` with Arg::Tile), asynchronously to
    /// the threads.
    pub from_memory: bool,
}

impl WmmaArg {
    /// Whether it truncates its factors: of an f32 it uses the sign, the exponent and the upper ten bits of the
    /// mantissa (tf32). Apple's `simdgroup_` units take the whole f32.
    pub const fn cuts(&self) -> bool {
        matches!(self.a, Scalar::F32) && !matches!(self.name.as_bytes(), [b's', b'i', b'm', b'd', ..])
    }

    /// A factor as truncated by the unit.
    pub fn factor(&self, v: f64) -> f64 {
        if self.cuts() { f64::from(f32::from_bits((v as f32).to_bits() & !0x1fff)) } else { v }
    }
}

/// The layout of a tile in workgroup memory for a matrix unit that reads it directly, with elements of one, two or four
/// bytes: swizzled rows of 128 bytes. Piece p (16 bytes) of row r is at position `r % 8 ^ p`, so that the pieces of one
/// column in eight rows are in different banks.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TileArg {
    /// Which elements (line and reduction step) each thread would hold, for code that evaluates values.
    pub spread: Spread,
    /// Rows are steps and hold lines; otherwise rows are lines and hold steps.
    pub by_steps: bool,
    /// Elements from one run of a row's lines to the next, if rows are steps.
    pub panel: u32,
}

impl TileArg {
    /// Bytes of a row.
    pub const ROW_BYTES: i64 = 128;
    /// Bytes of a piece, which a swizzle moves as a whole.
    pub const PIECE_BYTES: i64 = 16;

    /// Elements of a row.
    pub const fn row(element: Scalar) -> i64 {
        Self::ROW_BYTES / element.size_bytes() as i64
    }

    /// Elements of a piece.
    pub const fn piece(element: Scalar) -> i64 {
        Self::PIECE_BYTES / element.size_bytes() as i64
    }

    /// Offset of an element from the tile's first one, before pieces are swizzled.
    pub fn place(&self, element: Scalar, line: i64, step: i64) -> i64 {
        let row = Self::row(element);
        match self.by_steps {
            true => line / row * i64::from(self.panel) + step * row + line % row,
            false => line * row + step,
        }
    }

    /// Swizzled offset of the element that has this offset in an area of such elements.
    pub fn swizzled(element: Scalar, place: i64) -> i64 {
        place ^ (place / Self::row(element) % 8 * Self::piece(element))
    }
}

/// A buffer as a matrix from which TMA tiles are copied. Elements of a tile outside of the matrix are zero.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tensor2 {
    /// Columns (contiguous in the buffer) and rows.
    pub sizes: [u32; 2],
    /// Elements from a row to the next.
    pub pitch: i64,
    /// Columns and rows of a TMA tile.
    pub shape: [u16; 2],
}

/// A TMA tile that is copied to workgroup memory in one operation, with the row layout of [`TileArg`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TmaArg {
    /// The buffer that is read, as a matrix, and the size of the tile.
    pub tensor: Tensor2,
    /// For the first tile of a group, the bytes of all its tiles; 0 for the others.
    pub expects: u32,
}

/// The distribution of a tile's elements: the bits of both coordinates, lowest first, as bits of lane and element
/// numbers. If a lane bit occurs in neither coordinate, the lanes that differ in it hold the same elements.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Spread {
    /// Bits of the row's number, lowest first.
    pub row: &'static [TileBit],
    /// Bits of the column's number, lowest first.
    pub col: &'static [TileBit],
}

/// One bit of a tile's coordinate.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum TileBit {
    /// This bit of the lane's number in its wave.
    L(u8),
    /// This bit of the number of the element in its lane.
    E(u8),
}

impl Spread {
    /// Elements that each lane holds.
    pub fn elements(&self) -> u16 {
        let bits = self.row.iter().chain(self.col).filter(|b| matches!(b, TileBit::E(_)));
        1 << bits.count()
    }
    /// The coordinates of element `e` of lane `l`.
    pub fn place(&self, l: usize, e: usize) -> (usize, usize) {
        let number = |bits: &[TileBit]| {
            let bit = |b: &TileBit| match b {
                TileBit::L(k) => l >> k & 1,
                TileBit::E(k) => e >> k & 1,
            };
            bits.iter().enumerate().map(|(j, b)| bit(b) << j).sum()
        };
        (number(self.row), number(self.col))
    }
}

/// Numbers of axes or lanes. An empty list, as in most reductions, takes no memory.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Axes(Box<[u16]>);

impl Axes {
    /// No axes.
    pub fn new() -> Axes {
        Axes::default()
    }
    /// These axes, in this order.
    pub fn from_slice(axes: &[u16]) -> Axes {
        Axes(axes.into())
    }
}
impl std::ops::Deref for Axes {
    type Target = [u16];
    fn deref(&self) -> &[u16] {
        &self.0
    }
}
impl FromIterator<u16> for Axes {
    fn from_iter<I: IntoIterator<Item = u16>>(axes: I) -> Axes {
        Axes(axes.into_iter().collect())
    }
}
impl<'a> IntoIterator for &'a Axes {
    type Item = &'a u16;
    type IntoIter = std::slice::Iter<'a, u16>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// A variable's name: one word, so that every argument stays small.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Name(Arc<Arc<str>>);

impl Name {
    /// The text as others share it.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}
impl From<&str> for Name {
    fn from(s: &str) -> Name {
        Name(Arc::new(s.into()))
    }
}
impl std::ops::Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}
impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self
    }
}
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

// Every node contains an Arg.
const _: () = assert!(size_of::<Arg>() <= 32);

/// What a node needs besides op, dtype and sources. Each [`Op`] says which of these it has.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Arg {
    /// No argument.
    None,
    /// Value of a Const, in all lanes.
    Const(ConstVal),
    /// Name, smallest and largest value (inclusive).
    Var(Name, i64, i64),
    /// Slot; number of elements.
    Param(u32, usize),
    /// Number of the scratch area in its kernel; number of elements.
    Local(u32, usize),
    /// Memory of a Buffer.
    Buffer(BufArg),
    /// Numbers and kind of a Range.
    Range(RangeArg),
    /// Numbers of a Permute, Flip, Gep, Shard or Part: axes, lanes or devices, as the op says.
    Axes(Axes),
    /// The op of a reduction, and its axes. A Reduce in a kernel and a VReduce have no axes; a WaveReduce has its
    /// number of threads there.
    Reduce(Op, Axes),
    /// Name of the device that a Copy goes to.
    Device(Arc<str>),
    /// Name of a Special; the message of a faulty node ([`super::UOp::fault`]).
    Str(Arc<str>),
    /// What a Sink says about its kernel.
    Kernel(Arc<KernelInfo>),
    /// Of a Store: 0, or 1 if a CopyTile does the same copy. Of a Barrier: the number of newest groups of copies that
    /// it does not wait for.
    Stage(u32),
    /// The instruction of a matrix unit.
    Wmma(Arc<WmmaArg>),
    /// Whether lanes take columns of data stored in rows.
    Transposed(bool),
    /// Layout of the tile of a LoadMatrix for a unit that reads workgroup memory.
    Tile(Arc<TileArg>),
    /// What a CopyTile copies.
    Tma(Arc<TmaArg>),
    /// Which attention, and which part of it, a Fused is.
    Attention(Attention),
    /// Code and result of a user's kernel.
    Custom(Arc<super::CustomArg>),
}

/// `Arc<BufferRef>` that compares by id.
#[derive(Clone)]
pub struct BufArg(pub Arc<BufferRef>);
impl PartialEq for BufArg {
    fn eq(&self, o: &BufArg) -> bool {
        self.0.id == o.0.id
    }
}
impl Eq for BufArg {}
impl Hash for BufArg {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.id.hash(h)
    }
}

impl fmt::Debug for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::None => write!(f, "None"),
            Arg::Const(c) => write!(f, "{c:?}"),
            Arg::Var(n, lo, hi) => write!(f, "('{n}', {lo}, {hi})"),
            Arg::Param(slot, len) => write!(f, "({slot}, {len})"),
            Arg::Local(n, len) => write!(f, "({n}, {len})"),
            Arg::Buffer(b) => write!(f, "(#{}, {}, '{}')", b.0.id, b.0.len, b.0.device),
            Arg::Range(r) if r.sub == 0 => write!(f, "({}, {:?})", r.id, r.kind),
            Arg::Range(r) => write!(f, "({}.{}, {:?})", r.id, r.sub, r.kind),
            Arg::Axes(a) => write!(f, "{:?}", &a[..]),
            Arg::Reduce(op, a) if a.is_empty() => write!(f, "{op:?}"),
            Arg::Reduce(op, a) => write!(f, "({op:?}, {:?})", &a[..]),
            Arg::Device(d) => write!(f, "'{d}'"),
            Arg::Str(s) => write!(f, "'{s}'"),
            Arg::Kernel(k) => write!(f, "'{}'", k.name),
            Arg::Stage(n) => write!(f, "{n}"),
            Arg::Wmma(w) => write!(f, "{}", w.name),
            Arg::Transposed(t) => write!(f, "{t}"),
            Arg::Tile(t) => write!(f, "{}", if t.by_steps { "tile by steps" } else { "tile by lines" }),
            Arg::Attention(a) => write!(f, "{:?}{}", a.part, if a.causal { ", causal" } else { "" }),
            Arg::Custom(c) => write!(f, "{c:?}"),
            Arg::Tma(b) => {
                let Tensor2 { sizes: [w, h], pitch, shape: [columns, rows] } = b.tensor;
                write!(f, "{columns} x {rows} of {w} x {h} by {pitch}, expects {}", b.expects)
            }
        }
    }
}
