//! The node: immutable, interned, shared between threads.
//!
//! Equal means identical: a node is looked up by (op, dtype, sources, argument, tag) before it is made. The table holds
//! only weak handles, so unreferenced graphs are freed; freeing is iterative, so the depth does not matter (see
//! `intern`). Derived properties (shape, device, integer bounds, whether a range is open below) are computed when a
//! node is made: the sources already have theirs, so nothing here recurses.

use super::arg::{Arg, BufArg, BufferRef};
use super::bounds::{Bounds, Packed};
use super::shape::Dim;
use super::{DType, Op, intern};
use smallvec::SmallVec;
use std::any::Any;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::Location;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Sources of a node; up to three are stored inline.
pub type Srcs = SmallVec<[UOp; 3]>;

/// Anything that lists sources: arrays, Vecs, `Srcs`.
pub trait IntoSrcs {
    /// The sources, in their order.
    fn into_srcs(self) -> Srcs;
}
impl<const N: usize> IntoSrcs for [UOp; N] {
    fn into_srcs(self) -> Srcs {
        let mut src = Srcs::new();
        for u in self {
            src.push(u);
        }
        src
    }
}
impl IntoSrcs for Vec<UOp> {
    fn into_srcs(self) -> Srcs {
        self.into()
    }
}
impl IntoSrcs for &[UOp] {
    fn into_srcs(self) -> Srcs {
        self.into()
    }
}
impl IntoSrcs for Srcs {
    fn into_srcs(self) -> Srcs {
        self
    }
}

/// A node's content, accessed through [`UOp`]'s methods. Kept small: kernels' graphs are made and freed by the ten
/// thousand.
pub(crate) struct Node {
    pub(super) op: Op,
    pub(super) dtype: DType,
    pub(super) src: Srcs,
    pub(super) arg: Arg,
    pub(super) tag: Option<u32>,
    pub(super) hash: u64,
    pub(super) id: u64,
    pub(super) bounds: Packed,
    /// Additional properties of values in tensor graphs; unset for nodes inside a kernel.
    pub(super) value: OnceLock<Box<Value>>,
    /// The simplified form of this node, once computed; `None` inside: the node itself. Not part of the identity.
    pub(super) simplest: OnceLock<Option<UOp>>,
}

// A node with its two reference counts takes two and a half cache lines.
const _: () = assert!(size_of::<Node>() <= 144);

/// Additional properties of a value in a tensor graph.
#[derive(Default)]
pub(super) struct Value {
    pub shape: Option<Arc<[Dim]>>,
    pub device: Option<Arc<str>>,
    /// Set by the engine: the buffer (or view of one) that holds this value. Not part of the identity.
    pub realized: OnceLock<UOp>,
    /// Handles in `tensor` that need this value's gradient. Not part of the identity.
    pub watchers: OnceLock<Mutex<Vec<Watcher>>>,
    /// Not part of the identity.
    pub made: OnceLock<Made>,
}

/// The method that a user called for a value, and the line of the call.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Name of the method.
    pub op: &'static str,
    /// Where it was called.
    pub at: &'static Location<'static>,
}

/// An observer outside the graph that a node refers to; opaque to `uop`.
pub type Watcher = Weak<dyn Any + Send + Sync>;

/// A handle to one node. Cloning is cheap; `==` is identity, which interning makes equality.
#[derive(Clone)]
pub struct UOp(pub(super) Arc<Node>);

/// Multiply-rotate hasher: nodes hash small integers, where SipHash would dominate interning.
#[derive(Default, Clone, Copy)]
pub struct NodeHasher(u64);
impl Hasher for NodeHasher {
    fn finish(&self) -> u64 {
        let x = self.0 ^ (self.0 >> 32);
        let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^ (x >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        for c in bytes.chunks(8) {
            let mut w = [0u8; 8];
            w[..c.len()].copy_from_slice(c);
            self.write_u64(u64::from_le_bytes(w));
        }
    }
    fn write_u64(&mut self, x: u64) {
        self.0 = (self.0.rotate_left(5) ^ x).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    fn write_u8(&mut self, x: u8) {
        self.write_u64(x as u64)
    }
    fn write_u16(&mut self, x: u16) {
        self.write_u64(x as u64)
    }
    fn write_u32(&mut self, x: u32) {
        self.write_u64(x as u64)
    }
    fn write_usize(&mut self, x: usize) {
        self.write_u64(x as u64)
    }
    fn write_i128(&mut self, x: i128) {
        self.write_u64(x as u64);
        self.write_u64((x >> 64) as u64)
    }
}
impl BuildHasher for NodeHasher {
    type Hasher = NodeHasher;
    fn build_hasher(&self) -> NodeHasher {
        NodeHasher::default()
    }
}
/// Maps keyed by nodes.
pub type UMap<V> = hashbrown::HashMap<UOp, V, NodeHasher>;
/// Sets of nodes.
pub type USet = hashbrown::HashSet<UOp, NodeHasher>;

impl UOp {
    /// The node with these parts; returns the existing one if there is one.
    pub fn new(op: Op, dtype: DType, src: impl IntoSrcs, arg: Arg) -> UOp {
        UOp::tagged(op, dtype, src, arg, None)
    }

    /// As [`UOp::new`], with a tag that makes otherwise equal nodes distinct.
    pub fn tagged(op: Op, dtype: DType, src: impl IntoSrcs, arg: Arg, tag: Option<u32>) -> UOp {
        intern::intern(op, dtype, src.into_srcs(), arg, tag)
    }

    /// Its operation.
    pub fn op(&self) -> Op {
        self.0.op
    }
    /// Type of its value; Void if it has only an effect.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// Its sources, in the order that the op documents.
    pub fn src(&self) -> &[UOp] {
        &self.0.src
    }
    /// Its argument, of the form that the op documents.
    pub fn arg(&self) -> &Arg {
        &self.0.arg
    }
    /// What makes it distinct from otherwise equal nodes; mostly `None`.
    pub fn tag(&self) -> Option<u32> {
        self.0.tag
    }
    /// Unique in the process; sources always have smaller ids than their users.
    pub fn id(&self) -> u64 {
        self.0.id
    }
    /// Sizes of the axes; empty for scalars and for everything inside a kernel.
    pub fn shape(&self) -> &[Dim] {
        self.0.value.get().and_then(|v| v.shape.as_deref()).unwrap_or(&[])
    }
    pub(super) fn shape_handle(&self) -> Option<Arc<[Dim]>> {
        self.0.value.get()?.shape.clone()
    }
    /// Device of the buffers below, if any (constants have none).
    pub fn device(&self) -> Option<&Arc<str>> {
        self.0.value.get()?.device.as_ref()
    }
    /// Smallest and largest value of an integer or bool node (inclusive); the full range for everything else.
    pub fn bounds(&self) -> Bounds {
        self.0.bounds.of(self.0.dtype)
    }
    /// Smallest value, as in [`UOp::bounds`].
    pub fn vmin(&self) -> i128 {
        self.bounds().min
    }
    /// Largest value, as in [`UOp::bounds`].
    pub fn vmax(&self) -> i128 {
        self.bounds().max
    }
    /// The same node with other sources (returned unchanged if they are the same).
    pub fn with_src(&self, src: impl IntoSrcs) -> UOp {
        let src = src.into_srcs();
        if src == self.0.src {
            self.clone()
        } else {
            UOp::tagged(self.op(), self.dtype(), src, self.arg().clone(), self.tag())
        }
    }
    /// The same node with another argument.
    pub fn with_arg(&self, arg: Arg) -> UOp {
        UOp::tagged(self.op(), self.dtype(), self.0.src.clone(), arg, self.tag())
    }
    /// The same node with another dtype.
    pub fn with_dtype(&self, dtype: DType) -> UOp {
        UOp::tagged(self.op(), dtype, self.0.src.clone(), self.arg().clone(), self.tag())
    }
    /// The same node with another tag.
    pub fn with_tag(&self, tag: Option<u32>) -> UOp {
        UOp::tagged(self.op(), self.dtype(), self.0.src.clone(), self.arg().clone(), tag)
    }
    /// The buffer (or view of one) that holds this value, once it has been computed.
    pub fn realized(&self) -> Option<&UOp> {
        self.0.value.get()?.realized.get()
    }
    /// Records where this value is stored now. Later records are ignored.
    pub fn set_realized(&self, buffer: UOp) {
        let _ = self.value().realized.set(buffer);
    }
    /// Attaches `who` to this node for as long as both live.
    pub fn watch(&self, who: Watcher) {
        let list = self.value().watchers.get_or_init(Default::default);
        let mut list = list.lock().unwrap_or_else(|e| e.into_inner());
        list.retain(|w| w.strong_count() > 0 && !w.ptr_eq(&who));
        list.push(who);
    }
    /// The observers attached by `watch`, including dead ones.
    pub fn watchers(&self) -> Vec<Watcher> {
        let list = self.0.value.get().and_then(|v| v.watchers.get());
        list.map_or_else(Vec::new, |l| l.lock().unwrap_or_else(|e| e.into_inner()).clone())
    }
    /// Who asked for this value, if it has a shape or a device and a user's call made it.
    pub fn made(&self) -> Option<Made> {
        self.0.value.get()?.made.get().copied()
    }
    /// Records who asked for this value. The first record stays; a node without shape and device keeps none.
    pub fn set_made(&self, made: Made) {
        if let Some(value) = self.0.value.get() {
            let _ = value.made.set(made);
        }
    }
    fn value(&self) -> &Value {
        self.0.value.get_or_init(Default::default)
    }
    /// What the simplifier made of this node, if it has run on it.
    pub(super) fn simplest(&self) -> Option<UOp> {
        self.0.simplest.get().map(|s| s.as_ref().unwrap_or(self).clone())
    }
    /// Whether the simplifier has run on this node.
    pub(super) fn knows_simplest(&self) -> bool {
        self.0.simplest.get().is_some()
    }
    /// Whether the simplifier has run on this node and left it as it is.
    pub(super) fn is_simplest(&self) -> bool {
        matches!(self.0.simplest.get(), Some(None))
    }
    pub(super) fn set_simplest(&self, s: &UOp) {
        let _ = self.0.simplest.set((s != self).then(|| s.clone()));
    }
    /// The buffer of a Buffer node.
    pub fn buffer_ref(&self) -> Option<&Arc<BufferRef>> {
        match self.arg() {
            Arg::Buffer(BufArg(b)) => Some(b),
            _ => None,
        }
    }
    /// Handles on this node, this one included: those of nodes above it, of Tensors, of callers.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl PartialEq for UOp {
    fn eq(&self, o: &UOp) -> bool {
        Arc::ptr_eq(&self.0, &o.0)
    }
}
impl Eq for UOp {}
impl Hash for UOp {
    fn hash<H: Hasher>(&self, h: &mut H) {
        h.write_u64(self.0.id)
    }
}
impl From<&UOp> for UOp {
    fn from(u: &UOp) -> UOp {
        u.clone()
    }
}
impl std::fmt::Debug for UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}#{}:{} {:?}", self.op(), self.id(), self.dtype(), self.arg())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_are_the_same_node() {
        let (a, b) = (UOp::var("a", 0, 10), UOp::var("b", 0, 10));
        assert_eq!(&a + &b, &a + &b);
        assert_ne!(&a + &b, &b + &a);
    }

    #[test]
    fn a_million_additions_are_built_walked_and_freed_without_recursion() {
        let x = UOp::var("million", 0, 1);
        let mut chain = x.clone();
        for _ in 0..1_000_000 {
            chain = &chain + &x;
        }
        assert_eq!(chain.toposort().len(), 1_000_001);
        let id = chain.id();
        drop(chain);
        let again = &x + &x;
        assert!(again.id() > id, "the first addition was freed and made anew");
    }

    #[test]
    fn threads_share_one_table() {
        let made: Vec<UOp> = std::thread::scope(|s| {
            let hs: Vec<_> = (0..4)
                .map(|_| {
                    s.spawn(|| {
                        let mut u = UOp::var("shared", 0, 5);
                        for i in 0..1000 {
                            u = &u + &UOp::int(i % 7);
                        }
                        u
                    })
                })
                .collect();
            hs.into_iter().map(|h| h.join().unwrap()).collect()
        });
        assert!(made.windows(2).all(|w| w[0] == w[1]));
    }
}
