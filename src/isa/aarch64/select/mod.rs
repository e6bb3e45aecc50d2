//! Linear nodes → instructions on virtual registers, node by node in list order.
//!
//! Code is gathered in levels: the function's body, and each open loop or condition. What does not change in a loop
//! (pointers, constants, index arithmetic) is put into the level where its inputs are known, so it precedes the loop.
//! Constants and index arithmetic are not emitted at their position but where they are used.

mod address;
mod cast;
mod control;
mod lanes;
mod mask;
mod memory;
mod plan;
mod scalar;
mod vector;

use super::emit::Unit;
use super::mir::{self, Inst, What};
use super::rows::{self, Row};
use super::{IselError, MAX_LOCAL_BYTES};
use doorbell_codegen::Program;
use doorbell_codegen::regalloc::{Flow, Func, Kind, Label, Operand, VReg};
use doorbell_uop::{Arg, ConstVal, DType, Memo, Op, Scalar, UMap, UOp, to_bits};
use hashbrown::HashMap;
use plan::Plan;
use smallvec::{SmallVec, smallvec};

pub(super) type Res<T> = Result<T, IselError>;
pub(super) type Regs = SmallVec<[VReg; 4]>;

/// Bytes of a vector register.
const VECTOR_BYTES: u16 = 16;

/// Where a node's value is.
#[derive(Clone, Debug)]
pub(super) enum Val {
    /// An integer, bool (0 or 1) or address in a general register. Bits beyond the type's width are undefined.
    G(VReg),
    /// A scalar float or a vector, in parts. Lanes beyond the value's are undefined.
    V(Regs),
    /// A bool vector as all-ones lanes of so many bytes.
    M(Regs, u16),
}

/// How a vector is stored in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of a lane.
    pub elem: u16,
    pub lanes: u16,
    /// Lanes of a part.
    pub per: u16,
    pub parts: u16,
}

impl Shape {
    pub(crate) fn new(elem: u16, lanes: u16) -> Shape {
        let parts = (elem * lanes).div_ceil(VECTOR_BYTES).max(1);
        Shape { elem, lanes, per: if parts > 1 { VECTOR_BYTES / elem } else { lanes }, parts }
    }

    pub(crate) fn of(dt: DType) -> Shape {
        Shape::new(dt.scalar.size_bytes() as u16, dt.lanes)
    }

    /// Bytes of a part that hold lanes.
    pub(crate) fn part_bytes(&self) -> u16 {
        self.per * self.elem
    }
}

/// The logarithm of an element's bytes: the index of its row.
pub(super) fn log(elem: u16) -> usize {
    elem.trailing_zeros() as usize & 3
}

/// What a level is.
#[derive(Debug)]
pub(super) enum LevelKind {
    Body,
    Loop(control::Loop),
    If { cond: scalar::Test, end: Label },
}

/// An open level of code.
#[derive(Debug)]
pub(super) struct Level {
    pub insts: Vec<Inst>,
    pub kind: LevelKind,
    /// Pointers made in this level, by what they add up.
    pub sums: HashMap<address::Sum, VReg>,
}

pub(super) struct Select<'a> {
    pub program: &'a Program,
    pub uops: &'a [UOp],
    pub pos: Memo<u32>,
    pub plan: Plan,
    /// By position in the list.
    pub vals: Vec<Option<Val>>,
    /// Level in which each value was made.
    pub made_in: Vec<u32>,
    pub func: Func,
    pub levels: Vec<Level>,
    /// The level that instructions go to now.
    pub cur: usize,
    constants: Vec<u8>,
    pool: HashMap<[u8; 16], u32>,
    const_gprs: HashMap<i64, VReg>,
    const_vecs: HashMap<[u8; 16], VReg>,
    pub args: VReg,
    pub tid: VReg,
    pub locals: UMap<u32>,
    /// Values of nodes that are not in the list: placeholders made during selection.
    bound: UMap<Val>,
    local_bytes: u32,
}

/// Selects instructions for a program.
pub(crate) fn select(program: &Program) -> Res<Unit> {
    let mut func = Func::default();
    let (args, tid) = (func.vreg(mir::CLASS_G), func.vreg(mir::CLASS_G));
    let n = program.uops.len();
    let mut pos = Memo::new();
    program.uops.iter().enumerate().for_each(|(i, u)| pos.insert(u, i as u32));
    let plan = Plan::new(program, &pos)?;
    let mut s = Select {
        program,
        uops: &program.uops,
        pos,
        plan,
        vals: vec![None; n],
        made_in: vec![0; n],
        func,
        levels: vec![Level { insts: Vec::with_capacity(4 * n), kind: LevelKind::Body, sums: HashMap::new() }],
        cur: 0,
        constants: Vec::new(),
        pool: HashMap::new(),
        const_gprs: HashMap::new(),
        const_vecs: HashMap::new(),
        args,
        tid,
        locals: UMap::default(),
        bound: UMap::default(),
        local_bytes: 0,
    };
    let mut entry = Inst::bare(What::Mark, Flow::Next);
    entry.implied = smallvec![Operand::writes(args).fixed(mir::X0), Operand::writes(tid).fixed(mir::X1)];
    s.put(entry);
    for p in 0..n {
        s.node(p)?;
    }
    if s.levels.len() != 1 {
        return Err(IselError::Malformed("a loop or condition is not closed".into()));
    }
    s.put(Inst::bare(What::Mark, Flow::Return));
    let mut insts = std::mem::take(&mut s.levels[0].insts);
    mir::sweep(&mut insts, s.func.vreg_count());
    let name = program.name.clone();
    let (func, constants, local_bytes) = (s.func, s.constants, s.local_bytes);
    Ok(Unit { name, func, insts, constants, local_bytes })
}

impl Select<'_> {
    /// Emits the node at a position, unless it waits until it is used.
    fn node(&mut self, p: usize) -> Res<()> {
        let u = self.uops[p].clone();
        match u.op() {
            Op::Sink | Op::Barrier | Op::Const | Op::Index | Op::Special | Op::Var | Op::Param => Ok(()),
            Op::After if u.dtype().space.is_some() => Ok(()), // an address: read through
            Op::Local => self.local(&u),
            Op::Range => self.open_loop(p, &u),
            Op::End => self.close_loop(&u),
            Op::If => self.open_if(&u),
            Op::EndIf => self.close_if(),
            Op::Acc => self.acc(p, &u),
            Op::SetAcc => self.set_acc(&u),
            Op::Store => self.store(&u),
            _ if self.plan.waits(p) => Ok(()),
            _ => self.make(p).map(|_| ()),
        }
    }

    /// Emits a node's value into the current level.
    fn make(&mut self, p: usize) -> Res<Val> {
        let u = self.uops[p].clone();
        let v = self.compute(&u)?;
        self.vals[p] = Some(v.clone());
        self.made_in[p] = self.cur as u32;
        Ok(v)
    }

    /// A node's value, emitted now if it waited; then into the level of the node, before the open levels above it.
    pub(crate) fn val(&mut self, u: &UOp) -> Res<Val> {
        if let Op::Const = u.op() {
            return self.constant(u);
        }
        if let Some(v) = self.bound.get(u) {
            return Ok(v.clone());
        }
        let Some(p) = self.pos.get(u).map(|p| *p as usize) else {
            return Err(IselError::Malformed(format!("{u:?} is used but does not stand in the list")));
        };
        if let Some(v) = self.vals[p].clone() {
            return Ok(v);
        }
        if matches!(u.op(), Op::Range | Op::Acc | Op::Store | Op::Index) {
            return Err(IselError::Malformed(format!("{u:?} is used before it stands in the list")));
        }
        let back = self.cur;
        self.cur = (self.plan.depth[p] as usize).min(self.cur);
        let v = self.make(p);
        self.cur = back;
        v
    }

    /// Gives a node that is not in the list a value.
    pub(crate) fn bind(&mut self, u: &UOp, v: Val) {
        self.bound.insert(u.clone(), v);
    }

    fn compute(&mut self, u: &UOp) -> Res<Val> {
        match u.op() {
            Op::Param => self.param(u),
            Op::Var => self.var(u),
            Op::Special => Ok(Val::G(self.tid)),
            Op::After => self.val(&u.src()[0]),
            Op::Load => self.load(u),
            Op::Splat => self.splat(u),
            Op::Stack => self.stack(u),
            Op::Gep => self.gep(u),
            Op::Cat => self.cat(u),
            Op::VReduce => self.vreduce(u),
            Op::Cast => self.cast(u),
            Op::Bitcast => self.bitcast(u),
            op if op.is_alu() => self.alu(u),
            _ => Err(unsupported(u, "not part of a linear program")),
        }
    }

    /// Scalar integers and bools go through general registers, everything else through vector registers.
    fn alu(&mut self, u: &UOp) -> Res<Val> {
        let t = u.src()[u.src().len() - 1].dtype();
        let scalar_int = t.lanes == 1 && !t.is_float();
        match (u.op(), scalar_int) {
            (Op::CmpLt | Op::CmpNe | Op::CmpEq, true) => self.compare_scalar_int(u),
            (Op::CmpLt | Op::CmpNe | Op::CmpEq, false) => self.compare_vector(u),
            (_, true) => self.alu_scalar_int(u),
            (_, false) if u.dtype().scalar == Scalar::Bool => self.alu_mask(u),
            (_, false) => self.alu_vector(u),
        }
    }

    fn param(&mut self, u: &UOp) -> Res<Val> {
        let Arg::Param(slot, _) = u.arg() else { return Err(unsupported(u, "no slot")) };
        let index = self.program.params.iter().position(|p| p.slot == *slot).unwrap_or(*slot as usize);
        Ok(Val::G(self.argument(index)))
    }

    fn var(&mut self, u: &UOp) -> Res<Val> {
        let index = self.program.vars.iter().position(|v| v == u || v.arg() == u.arg());
        let index = index.ok_or_else(|| IselError::Malformed(format!("{u:?} is not among the program's variables")))?;
        Ok(Val::G(self.argument(self.program.params.len() + index)))
    }

    /// `args[i]`, loaded in the body.
    fn argument(&mut self, i: usize) -> VReg {
        let back = std::mem::replace(&mut self.cur, 0);
        let mem = mir::Mem { base: mir::Base::Reg(self.args), disp: 8 * i as i64 };
        let dst = self.load_int(Scalar::I64, mem);
        self.cur = back;
        dst
    }

    fn local(&mut self, u: &UOp) -> Res<()> {
        let Arg::Local(_, len) = u.arg() else { return Err(unsupported(u, "no size")) };
        let bytes = (len * u.dtype().scalar.size_bytes()).next_multiple_of(64);
        let at = self.local_bytes as usize;
        if at + bytes > MAX_LOCAL_BYTES {
            return Err(IselError::TooLarge { what: "scratch", len: at + bytes });
        }
        self.local_bytes = (at + bytes) as u32;
        self.locals.insert(u.clone(), at as u32);
        Ok(())
    }

    // --- registers and instructions ---

    pub(crate) fn put(&mut self, inst: Inst) {
        self.levels[self.cur].insts.push(inst);
    }

    pub(crate) fn gpr(&mut self) -> VReg {
        self.func.vreg(mir::CLASS_G)
    }

    pub(crate) fn vec(&mut self) -> VReg {
        self.func.vreg(mir::CLASS_V)
    }

    /// Emits a row into a new general register.
    pub(crate) fn g(&mut self, row: &'static Row, sources: &[VReg], numbers: &[i64]) -> VReg {
        let dst = self.gpr();
        self.into(row, dst, sources, numbers);
        dst
    }

    /// Emits a row into a new vector register.
    pub(crate) fn v(&mut self, row: &'static Row, sources: &[VReg], numbers: &[i64]) -> VReg {
        let dst = self.vec();
        self.into(row, dst, sources, numbers);
        dst
    }

    /// Emits a row that writes a register.
    pub(crate) fn into(&mut self, row: &'static Row, dst: VReg, sources: &[VReg], numbers: &[i64]) {
        let regs: Regs = [dst].iter().chain(sources).copied().collect();
        self.put(Inst::new(What::Row(row), &regs, numbers));
    }

    /// Emits a row that reads and writes its first register.
    pub(crate) fn modify(&mut self, row: &'static Row, dst: VReg, sources: &[VReg], numbers: &[i64]) {
        let regs: Regs = [dst].iter().chain(sources).copied().collect();
        self.put(Inst::new(What::Row(row), &regs, numbers).modify());
    }

    /// A copy of a register.
    pub(crate) fn copy(&mut self, from: VReg) -> VReg {
        let to = self.func.vreg(self.func.class(from));
        self.copy_to(to, from);
        to
    }

    pub(crate) fn copy_to(&mut self, to: VReg, from: VReg) {
        let class = self.func.class(to);
        self.put(mir::copy(class, to, from));
    }

    // --- constants ---

    /// A constant's value in registers, made in the body so that it is outside of all loops.
    fn constant(&mut self, u: &UOp) -> Res<Val> {
        let (c, dt) = (const_of(u)?, u.dtype());
        let shape = Shape::of(dt);
        if dt.scalar == Scalar::Bool && dt.lanes > 1 {
            let r = self.const_vec(if c.is_zero() { 0 } else { u64::MAX }, 8);
            return Ok(Val::M(smallvec![r; shape.parts as usize], 1));
        }
        if dt.lanes == 1 && !dt.is_float() {
            return Ok(Val::G(self.const_gpr(const_bits(c, dt.scalar))));
        }
        let r = self.const_vec(to_bits(c, dt.scalar), shape.elem);
        Ok(Val::V(smallvec![r; shape.parts as usize]))
    }

    /// A general register with a constant.
    pub(crate) fn const_gpr(&mut self, v: i64) -> VReg {
        if let Some(r) = self.const_gprs.get(&v) {
            return *r;
        }
        let dst = self.gpr();
        self.put_in_body(Inst::new(What::Const(v), &[dst], &[]).kind(Kind::Remat));
        self.const_gprs.insert(v, dst);
        dst
    }

    /// A vector register with the same bits in each lane.
    pub(crate) fn const_vec(&mut self, bits: u64, elem: u16) -> VReg {
        let mut bytes = [0; 16];
        for lane in bytes.chunks_exact_mut(elem as usize) {
            lane.copy_from_slice(&bits.to_le_bytes()[..elem as usize]);
        }
        self.const_bytes(bytes)
    }

    /// A vector register with these bytes.
    pub(crate) fn const_bytes(&mut self, bytes: [u8; 16]) -> VReg {
        if let Some(r) = self.const_vecs.get(&bytes) {
            return *r;
        }
        let dst = self.vec();
        let what = if bytes == [0; 16] { What::Row(&rows::MOVI_0) } else { What::Literal(self.pooled(bytes)) };
        self.put_in_body(Inst::new(what, &[dst], &[]).kind(Kind::Remat));
        self.const_vecs.insert(bytes, dst);
        dst
    }

    fn put_in_body(&mut self, inst: Inst) {
        self.levels[0].insts.push(inst);
    }

    /// Offset of 16 bytes among the constants.
    fn pooled(&mut self, bytes: [u8; 16]) -> u32 {
        if let Some(at) = self.pool.get(&bytes) {
            return *at;
        }
        let at = self.constants.len() as u32;
        self.constants.extend_from_slice(&bytes);
        self.pool.insert(bytes, at);
        at
    }
}

pub(super) fn const_of(u: &UOp) -> Res<ConstVal> {
    u.as_const().ok_or_else(|| IselError::Malformed(format!("{u:?} has no value")))
}

/// An integer constant as a sign-extended 64-bit word (unsigned types: zero-extended).
pub(super) fn const_bits(c: ConstVal, t: Scalar) -> i64 {
    match c.as_int() {
        Some(i) => i as i64,
        None => to_bits(c, t) as i64,
    }
}

pub(super) fn unsupported(u: &UOp, why: &'static str) -> IselError {
    let dtype = if u.op().is_comparison() { u.src()[0].dtype() } else { u.dtype() };
    IselError::Unsupported { op: u.op(), dtype, why }
}

/// Whether a node's value is a mutable register itself, not a copy: a user that keeps it must copy it.
pub(super) fn aliased(u: &UOp) -> bool {
    let mut u = u;
    loop {
        match u.op() {
            Op::Acc | Op::After => return true,
            Op::Trunc | Op::Neg | Op::Splat | Op::Cast => u = &u.src()[0],
            _ => return false,
        }
    }
}
