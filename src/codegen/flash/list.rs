//! A linear program that grows: nodes go into the outermost loop body in which all their sources are known, what
//! touches registers and scratch memory stays where it is written.

use doorbell_uop::{Arg, AxisKind, DType, Op, RangeArg, Scalar, Srcs, UMap, UOp};

struct Body {
    range: Option<UOp>,
    list: Vec<UOp>,
}

pub(super) struct List {
    /// Open loop bodies; the first one is the whole program.
    bodies: Vec<Body>,
    /// The body in which each node was listed.
    level: UMap<usize>,
    serial: u32,
}

/// An index.
pub(super) fn number(n: i64) -> UOp {
    UOp::constant(DType::of(Scalar::I64), n)
}

pub(super) fn sum(a: &UOp, b: &UOp) -> UOp {
    a.binary(Op::Add, b)
}
pub(super) fn times(a: &UOp, n: i64) -> UOp {
    if n == 1 { a.clone() } else { a.binary(Op::Mul, &a.const_like(n)) }
}
pub(super) fn plus(a: &UOp, n: i64) -> UOp {
    if n == 0 { a.clone() } else { a.binary(Op::Add, &a.const_like(n)) }
}
pub(super) fn least(a: &UOp, b: &UOp) -> UOp {
    a.lt(b).select(a, b)
}

impl List {
    pub(super) fn new() -> List {
        List { bodies: vec![Body { range: None, list: Vec::new() }], level: UMap::default(), serial: 0 }
    }

    fn serial(&mut self) -> Option<u32> {
        self.serial += 1;
        Some(self.serial)
    }

    /// Lists a value that is the same wherever it is computed.
    pub(super) fn value(&mut self, u: &UOp) -> usize {
        if let Some(level) = self.level.get(u) {
            return *level;
        }
        let level = u.src().iter().map(|s| self.value(s)).max().unwrap_or(0);
        self.put(u, level)
    }

    fn put(&mut self, u: &UOp, level: usize) -> usize {
        self.bodies[level].list.push(u.clone());
        self.level.insert(u.clone(), level);
        level
    }

    /// Lists a node at this position.
    fn here(&mut self, op: Op, dtype: DType, src: Srcs) -> UOp {
        self.here_with(op, dtype, src, Arg::None)
    }
    fn here_with(&mut self, op: Op, dtype: DType, src: Srcs, arg: Arg) -> UOp {
        src.iter().for_each(|s| {
            self.value(s);
        });
        let serial = self.serial();
        let u = UOp::tagged(op, dtype, src, arg, serial);
        self.put(&u, self.bodies.len() - 1);
        u
    }

    pub(super) fn load(&mut self, address: &UOp, at: &UOp, lanes: u16) -> UOp {
        self.here(Op::Load, address.dtype().pointee().vec(lanes), [address.index(at)].into_iter().collect())
    }
    pub(super) fn store(&mut self, address: &UOp, at: &UOp, value: &UOp) {
        self.here(Op::Store, DType::VOID, [address.index(at), value.clone()].into_iter().collect());
    }
    pub(super) fn store_where(&mut self, address: &UOp, at: &UOp, value: &UOp, gate: Option<&UOp>) {
        let index = gate.map_or_else(|| address.index(at), |g| address.index_gated(at, g));
        self.here(Op::Store, DType::VOID, [index, value.clone()].into_iter().collect());
    }
    /// A register with this value at first.
    pub(super) fn register(&mut self, first: &UOp) -> UOp {
        self.here(Op::Acc, first.dtype(), [first.clone()].into_iter().collect())
    }
    /// An op on what a register holds now.
    pub(super) fn now(&mut self, op: Op, src: impl IntoIterator<Item = UOp>) -> UOp {
        let src: Srcs = src.into_iter().collect();
        let dtype = src[0].dtype();
        self.here(op, dtype, src)
    }
    pub(super) fn set(&mut self, register: &UOp, value: &UOp) {
        self.here(Op::SetAcc, DType::VOID, [register.clone(), value.clone()].into_iter().collect());
    }
    pub(super) fn special(&mut self, chunks: i64) -> UOp {
        UOp::new(Op::Special, DType::of(Scalar::I64), [number(chunks)], Arg::Str("tid".into()))
    }

    /// A matrix-unit fragment from rows in workgroup memory.
    pub(super) fn load_matrix(&mut self, area: &UOp, at: &UOp, lanes: u16, transposed: bool) -> UOp {
        let src = [area.index(at)].into_iter().collect();
        self.here_with(Op::LoadMatrix, area.dtype().pointee().vec(lanes), src, Arg::Transposed(transposed))
    }
    /// Copies an element, or several, to workgroup memory where the gate holds; it is there after the next `arrive`.
    pub(super) fn copy(&mut self, (area, to): (&UOp, &UOp), (from, at): (&UOp, &UOp), lanes: u16, gate: Option<&UOp>) {
        let t = area.dtype().pointee().vec(lanes);
        let index = |memory: &UOp, at: &UOp| gate.map_or_else(|| memory.index(at), |g| memory.index_gated(at, g));
        let mut read: Srcs = [index(from, at)].into_iter().collect();
        read.extend(gate.map(|_| UOp::constant(t, 0.0)));
        let value = self.here(Op::Load, t, read);
        let src = [index(area, to), value].into_iter().collect();
        self.here_with(Op::Store, DType::VOID, src, Arg::Stage(0));
    }
    /// The copies so far are a group.
    pub(super) fn commit(&mut self) {
        self.here(Op::Commit, DType::VOID, Srcs::new());
    }
    /// Waits for all copies, and for all threads of the workgroup.
    pub(super) fn arrive(&mut self) {
        self.here_with(Op::Barrier, DType::VOID, Srcs::new(), Arg::Stage(0));
    }

    /// Waits for all threads of the workgroup, whose copies may go on.
    pub(super) fn meet(&mut self) {
        self.here_with(Op::Barrier, DType::VOID, Srcs::new(), Arg::Stage(1));
    }

    /// Opens a loop and gives its counter.
    pub(super) fn open(&mut self, end: &UOp) -> UOp {
        self.value(end);
        let arg = RangeArg { id: self.serial().unwrap_or(0), sub: 0, kind: AxisKind::Loop };
        let range = UOp::new(Op::Range, end.dtype(), [end.clone()], Arg::Range(arg));
        self.level.insert(range.clone(), self.bodies.len());
        self.bodies.push(Body { range: Some(range.clone()), list: Vec::new() });
        range
    }
    /// Closes the innermost loop.
    pub(super) fn close(&mut self) -> UOp {
        let Some(Body { range: Some(range), list }) = self.bodies.pop() else { return UOp::fault("no loop is open") };
        let end = UOp::new(Op::End, DType::VOID, [range.clone()], Arg::None);
        let level = self.bodies.len() - 1;
        let outer = &mut self.bodies[level].list;
        outer.push(range);
        outer.extend(list);
        self.put(&end, level);
        end
    }
    /// All nodes in order.
    pub(super) fn finish(mut self) -> Vec<UOp> {
        std::mem::take(&mut self.bodies[0].list)
    }
}
