//! The table of all live nodes: makes equal expressions the identical node, and frees graphs.
//!
//! The table is split into shards by hash, each with a lock; an entry is a hash and a weak handle. A node's shape may
//! need other nodes (sizes are expressions), so the lock is not held while a node with a shape is made. Each shard
//! counts its insertions, so a second lookup is needed only if another thread has inserted something meanwhile.

use super::arg::{Arg, ConstVal};
use super::bounds::Packed;
use super::node::{Node, NodeHasher, Srcs, Value};
use super::{DType, Op, UOp, bounds, shape};
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

const SHARDS: usize = 32;

struct Shard {
    table: HashTable<(u64, Weak<Node>)>,
    /// Number of nodes ever added.
    added: u64,
}

static INTERNER: [Mutex<Shard>; SHARDS] = [const { Mutex::new(Shard { table: HashTable::new(), added: 0 }) }; SHARDS];
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A shard is poisoned only if a comparison panicked while it was locked, which leaves it unchanged.
fn lock(hash: u64) -> MutexGuard<'static, Shard> {
    INTERNER[(hash >> 59) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

/// The identity of a node.
struct Parts {
    op: Op,
    dtype: DType,
    src: Srcs,
    arg: Arg,
    tag: Option<u32>,
}

impl Parts {
    fn hash(&self) -> u64 {
        let d = self.dtype;
        let space = d.space.map_or(0, |s| s as u64 + 1);
        let mut h = NodeHasher::default();
        h.write_u64(self.op as u64 | (d.scalar as u64) << 8 | (d.lanes as u64) << 16 | space << 32);
        for s in &self.src {
            h.write_u64(s.0.id);
        }
        match &self.arg {
            Arg::None => {}
            Arg::Const(ConstVal::Int(i)) => h.write_u64(*i as u64),
            arg => arg.hash(&mut h),
        }
        if let Some(tag) = self.tag {
            h.write_u64(tag as u64);
        }
        h.finish()
    }
    fn are_of(&self, n: &Node) -> bool {
        n.op == self.op && n.dtype == self.dtype && n.src == self.src && n.arg == self.arg && n.tag == self.tag
    }
    /// Whether such a node has neither shape nor device, like all nodes inside a kernel.
    fn is_bare(&self) -> bool {
        let own = matches!(self.op, Op::Buffer | Op::Param | Op::Iota | Op::Copy | Op::Custom) || self.op.is_movement();
        !own && self.src.iter().all(|s| s.0.value.get().is_none_or(|v| v.shape.is_none() && v.device.is_none()))
    }
}

/// The node with these parts; returns the existing one if there is one.
pub(super) fn intern(op: Op, dtype: DType, src: Srcs, arg: Arg, tag: Option<u32>) -> UOp {
    let parts = Parts { op, dtype, src, arg, tag };
    let hash = parts.hash();
    // Handles upgraded while the lock is held are dropped after it is released, because dropping the last handle of a
    // node locks its shard.
    let mut held: SmallVec<[Arc<Node>; 2]> = SmallVec::new();
    let mut shard = lock(hash);
    if let Some(u) = find(&shard, hash, &parts, &mut held) {
        return u;
    }
    if parts.is_bare() {
        return add(&mut shard, hash, parts, OnceLock::new());
    }
    let seen = shard.added;
    drop(shard);
    let shape = shape::infer(parts.op, &parts.src, &parts.arg);
    let device = device_of(parts.op, &parts.src, &parts.arg);
    let value = OnceLock::new();
    if shape.is_some() || device.is_some() {
        value.get_or_init(|| Box::new(Value { shape, device, ..Value::default() }));
    }
    let mut shard = lock(hash);
    if shard.added != seen
        && let Some(u) = find(&shard, hash, &parts, &mut held)
    {
        return u;
    }
    add(&mut shard, hash, parts, value)
}

/// Each thread caches index constants from `FIRST_KEPT` on, because they are frequent in graphs.
const FIRST_KEPT: i64 = -64;
const INTS_KEPT: usize = 1024;

thread_local! {
    static INTS: RefCell<[Option<UOp>; INTS_KEPT]> = const { RefCell::new([const { None }; INTS_KEPT]) };
}

/// An index constant.
pub(super) fn index_constant(i: i64) -> UOp {
    let make = || intern(Op::Const, DType::INDEX, Srcs::new(), Arg::Const(ConstVal::Int(i.into())), None);
    let at = usize::try_from(i.saturating_sub(FIRST_KEPT)).unwrap_or(usize::MAX);
    if at >= INTS_KEPT {
        return make();
    }
    // Fails during thread shutdown.
    let kept = INTS.try_with(|ints| ints.borrow()[at].clone()).ok().flatten();
    kept.unwrap_or_else(|| {
        let made = make();
        let _ = INTS.try_with(|ints| ints.borrow_mut()[at] = Some(made.clone()));
        made
    })
}

fn find(shard: &Shard, hash: u64, parts: &Parts, held: &mut SmallVec<[Arc<Node>; 2]>) -> Option<UOp> {
    let mut found = None;
    shard.table.find(hash, |(h, w)| {
        if *h != hash {
            return false;
        }
        let Some(n) = w.upgrade() else { return false };
        let same = parts.are_of(&n);
        if same {
            found = Some(UOp(n));
        } else {
            held.push(n);
        }
        same
    });
    found
}

fn add(shard: &mut Shard, hash: u64, p: Parts, value: OnceLock<Box<Value>>) -> UOp {
    let bounds = Packed::new(bounds::of(p.op, p.dtype, &p.src, &p.arg));
    let node = Arc::new(Node {
        op: p.op,
        dtype: p.dtype,
        src: p.src,
        arg: p.arg,
        tag: p.tag,
        hash,
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        bounds,
        value,
        simplest: OnceLock::new(),
    });
    shard.table.insert_unique(hash, (hash, Arc::downgrade(&node)), |e| e.0);
    shard.added += 1;
    UOp(node)
}

fn device_of(op: Op, src: &[UOp], arg: &Arg) -> Option<Arc<str>> {
    match (op, arg) {
        (Op::Buffer, Arg::Buffer(b)) => Some(b.0.device.clone()),
        (Op::Copy, Arg::Device(d)) => Some(d.clone()),
        (Op::Shard, _) => {
            let names: Vec<&str> = src.iter().filter_map(|s| s.device().map(|d| &**d)).collect();
            Some(names.join(",").into())
        }
        _ => src.iter().find_map(|s| s.device().cloned()),
    }
}

/// Sources of freed nodes that are still to be freed.
struct Graveyard {
    list: RefCell<Vec<UOp>>,
    /// The list is being emptied.
    drained: Cell<bool>,
}

thread_local! {
    static GRAVEYARD: Graveyard = const { Graveyard { list: RefCell::new(Vec::new()), drained: Cell::new(false) } };
}

/// Above this capacity the list's memory is released once it is empty.
const KEPT: usize = 1 << 12;

impl Drop for Node {
    fn drop(&mut self) {
        let me: *const Node = self;
        if let Ok(e) = lock(self.hash).table.find_entry(self.hash, |(_, w)| std::ptr::eq(w.as_ptr(), me)) {
            e.remove();
        }
        let simplest = self.simplest.take().flatten();
        let realized = self.value.take().and_then(|mut v| v.realized.take());
        // Sources with other owners are dropped immediately: normally that frees nothing.
        self.src.retain(|s| Arc::strong_count(&s.0) == 1);
        if self.src.is_empty() && realized.is_none() && simplest.is_none() {
            return;
        }
        // Fails during thread shutdown; then the sources are freed by recursion.
        let _ = GRAVEYARD.try_with(|g| {
            let mut list = g.list.borrow_mut();
            list.extend(self.src.drain(..));
            list.extend(realized);
            list.extend(simplest);
            if g.drained.replace(true) {
                return;
            }
            while let Some(u) = list.pop() {
                drop(list);
                drop(u);
                list = g.list.borrow_mut();
            }
            if list.capacity() > KEPT {
                *list = Vec::new();
            }
            g.drained.set(false);
        });
    }
}
