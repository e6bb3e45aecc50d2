//! Linear nodes → instructions on virtual registers, node by node in list order.
//!
//! Code is gathered in levels: the function's body, and each open loop or condition. What does not change in a loop
//! (pointers, constants, index arithmetic) is put into the level where its inputs are known, so it precedes the loop.
//! Constants, index arithmetic and loads that become memory operands are not emitted at their position but where they
//! are used.

mod address;
mod cast;
mod control;
mod gather;
mod mask;
mod memory;
mod plan;
mod scalar;
mod shuffle;
mod tile;
mod vector;

use super::emit::Unit;
use super::form::{Form, Row, Width};
use super::gpr;
use super::mir::{self, Inst, Mem, Opd};
use super::{Arch, IselError, MAX_LOCAL_BYTES};
use doorbell_codegen::Program;
use doorbell_codegen::regalloc::{Class, Flow, Func, Kind, Label, Operand, VReg};
use doorbell_uop::{Arg, ConstVal, DType, Memo, Op, Scalar, UMap, UOp, to_bits};
use hashbrown::HashMap;
use iced_x86::Code;
use plan::Plan;
use smallvec::{SmallVec, smallvec};

pub(super) type Res<T> = Result<T, IselError>;
pub(super) type Regs = SmallVec<[VReg; 4]>;

/// Where a node's value is.
#[derive(Clone, Debug)]
pub(super) enum Val {
    /// An integer, bool (0 or 1) or address in a general register. Bits beyond the type's width are undefined.
    G(VReg),
    /// A scalar float or a vector, in parts. Lanes beyond the value's are undefined.
    V(Regs),
    /// A bool vector in mask registers, so many lanes each. Bits beyond are undefined.
    K(Regs, u16),
    /// A bool vector as all-ones lanes of so many bytes.
    M(Regs, u16),
    /// A tile of AMX.
    T(VReg),
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
    pub width: Width,
}

impl Shape {
    pub(crate) fn of(elem: u16, lanes: u16, arch: Arch) -> Shape {
        let max = arch.vector_bytes();
        let total = elem * lanes;
        let parts = total.div_ceil(max).max(1);
        Shape {
            elem,
            lanes,
            per: if parts > 1 { max / elem } else { lanes },
            parts,
            width: Width::for_bytes(total.min(max)),
        }
    }

    /// Bytes of a part that hold lanes.
    pub(crate) fn part_bytes(&self) -> u16 {
        self.per * self.elem
    }
}

/// An input of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum In {
    R(VReg),
    M(Mem),
    I(i64),
    /// The register of operand 0.
    Same,
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
    /// Pointers and sums made in this level, by what they add up.
    pub sums: HashMap<address::Sum, VReg>,
}

pub(super) struct Select<'a> {
    pub arch: Arch,
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
    pub rodata: Vec<u8>,
    pool: HashMap<(Vec<u8>, u32), u32>,
    /// Constants in registers, made in the body: (bits of a lane, bytes of a lane, class).
    const_regs: HashMap<(u64, u16, u8), VReg>,
    pub args: VReg,
    pub tid: VReg,
    pub locals: UMap<u32>,
    /// Values of nodes that are not in the list: placeholders made during selection.
    bound: UMap<Val>,
    local_bytes: u32,
    /// Whether stores may go around the cache, and the buffers of those that do.
    stream: bool,
    streamed: Vec<u32>,
}

/// Selects instructions for a program; with `stream`, large outputs are stored around the cache.
pub(crate) fn select(program: &Program, arch: Arch, stream: bool) -> Res<Unit> {
    let mut func = Func::default();
    let (args, tid) = (func.vreg(mir::CLASS_G), func.vreg(mir::CLASS_G));
    let n = program.uops.len();
    let mut pos = Memo::new();
    program.uops.iter().enumerate().for_each(|(i, u)| pos.insert(u, i as u32));
    let plan = Plan::new(program, &pos, arch)?;
    let mut s = Select {
        arch,
        program,
        uops: &program.uops,
        pos,
        plan,
        vals: vec![None; n],
        made_in: vec![0; n],
        func,
        levels: vec![Level { insts: Vec::with_capacity(4 * n), kind: LevelKind::Body, sums: HashMap::new() }],
        cur: 0,
        rodata: Vec::new(),
        pool: HashMap::new(),
        const_regs: HashMap::new(),
        args,
        tid,
        locals: UMap::default(),
        bound: UMap::default(),
        local_bytes: 0,
        stream,
        streamed: Vec::new(),
    };
    let mut entry = Inst::bare(Code::INVALID, Flow::Next);
    entry.implied = smallvec![Operand::writes(args).fixed(mir::RDI), Operand::writes(tid).fixed(mir::RSI)];
    s.put(entry);
    let tiles = program.uops.iter().any(|u| u.op() == Op::Wmma);
    if tiles {
        s.configure_tiles();
    }
    for p in 0..n {
        s.node(p)?;
    }
    if s.levels.len() != 1 {
        return Err(IselError::Malformed("a loop or condition is not closed".into()));
    }
    if tiles {
        s.release_tiles();
    }
    s.put(Inst::bare(Code::INVALID, Flow::Return));
    let mut insts = std::mem::take(&mut s.levels[0].insts);
    mir::sweep(&mut insts, s.func.vreg_count());
    let name = program.name.clone();
    let (func, rodata, local_bytes, streamed) = (s.func, s.rodata, s.local_bytes, s.streamed);
    Ok(Unit { name, arch, func, insts, rodata, local_bytes, streamed })
}

impl Select<'_> {
    /// Emits the node at a position, unless it waits until it is used.
    fn node(&mut self, p: usize) -> Res<()> {
        let u = self.uops[p].clone();
        match u.op() {
            Op::Sink | Op::Barrier | Op::Const | Op::Index | Op::Special | Op::Var => Ok(()),
            Op::Param => Ok(()),
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
            self.note_counter(p);
            return Ok(v);
        }
        if matches!(u.op(), Op::Range | Op::Acc | Op::Store | Op::Index) {
            return Err(IselError::Malformed(format!("{u:?} is used before it stands in the list")));
        }
        let back = self.cur;
        let stands_in = self.plan.depth[p] as usize;
        self.cur = stands_in.min(self.cur);
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
            Op::Cat if tile::is_tile(u.dtype()) => self.tile_of_rows(u),
            Op::Cat => self.cat(u),
            Op::Wmma => self.product(u),
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
        let dst = self.gpr();
        let mem = Mem::base(self.args).plus(8 * i as i32);
        self.put(Inst::new((gpr::two(gpr::MOV, true), Code::INVALID), &[Opd::Reg(dst, b'q'), Opd::Mem(mem)]));
        self.cur = back;
        dst
    }

    fn local(&mut self, u: &UOp) -> Res<()> {
        let Arg::Local(_, len) = u.arg() else { return Err(unsupported(u, "no size")) };
        let bytes = (len * u.dtype().scalar.size_bytes()).next_multiple_of(64);
        let at = self.scratch(bytes)?;
        self.locals.insert(u.clone(), at);
        Ok(())
    }

    /// Offset of so many bytes of scratch.
    fn scratch(&mut self, bytes: usize) -> Res<u32> {
        let at = self.local_bytes as usize;
        if at + bytes > MAX_LOCAL_BYTES {
            return Err(IselError::TooLarge { what: "scratch", len: at + bytes });
        }
        self.local_bytes = (at + bytes) as u32;
        Ok(at as u32)
    }

    // --- registers and instructions ---

    pub(crate) fn put(&mut self, inst: Inst) {
        self.levels[self.cur].insts.push(inst);
    }

    pub(crate) fn gpr(&mut self) -> VReg {
        self.func.vreg(mir::CLASS_G)
    }

    pub(crate) fn vec(&mut self, w: Width) -> VReg {
        self.func.vreg(mir::vec_class(w))
    }

    pub(crate) fn shape(&self, dt: DType) -> Shape {
        Shape::of(dt.scalar.size_bytes() as u16, dt.lanes, self.arch)
    }

    /// Whether this level has AVX-512.
    pub(crate) fn wide(&self) -> bool {
        self.arch == Arch::Avx512
    }

    /// The operands of a form from inputs, in order.
    pub(crate) fn operands(form: &Form, dst: Option<VReg>, ins: &[In]) -> SmallVec<[Opd; 4]> {
        let mut kinds = form.kinds.iter().copied();
        let mut ops: SmallVec<[Opd; 4]> = smallvec![];
        let all = dst.map(In::R).into_iter().chain(ins.iter().copied());
        for i in all {
            ops.push(match i {
                In::R(r) => Opd::Reg(r, kinds.next().unwrap_or(b'x')),
                In::Same => Opd::Same(kinds.next().unwrap_or(b'x')),
                In::M(m) => {
                    kinds.next();
                    Opd::Mem(m)
                }
                In::I(v) => Opd::Imm(v),
            });
        }
        ops
    }

    /// The form of a row for this level.
    pub(crate) fn form(&self, row: &Row, w: Width) -> Res<(Form, Code)> {
        row.form(self.arch, w).ok_or(IselError::Internal("an operation that the feature level lacks"))
    }

    /// Whether this level has the operation at this width.
    pub(crate) fn has(&self, row: &Row, w: Width) -> bool {
        row.form(self.arch, w).is_some()
    }

    /// An instruction of a row with a destination.
    pub(crate) fn inst(&self, row: &Row, w: Width, dst: VReg, ins: &[In]) -> Res<Inst> {
        let form = self.form(row, w)?;
        Ok(Inst::new(form, &Self::operands(&form.0, Some(dst), ins)))
    }

    /// Emits an operation into a new register.
    pub(crate) fn def(&mut self, row: &Row, w: Width, ins: &[In]) -> Res<VReg> {
        let (form, _) = self.form(row, w)?;
        let dst = self.func.vreg(class_of(form.kinds[0]));
        let inst = self.inst(row, w, dst, ins)?;
        self.put(inst);
        Ok(dst)
    }

    /// Emits an operation that overwrites a register.
    pub(crate) fn into(&mut self, row: &Row, w: Width, dst: VReg, ins: &[In]) -> Res<()> {
        let inst = self.inst(row, w, dst, ins)?;
        self.put(inst);
        Ok(())
    }

    /// Emits an operation that reads and writes its first operand.
    pub(crate) fn modify(&mut self, row: &Row, w: Width, dst: VReg, ins: &[In]) -> Res<()> {
        let inst = self.inst(row, w, dst, ins)?.modify();
        self.put(inst);
        Ok(())
    }

    /// A copy of a register of a class.
    pub(crate) fn copy(&mut self, from: VReg) -> VReg {
        let class = self.func.class(from);
        let to = self.func.vreg(class);
        self.copy_to(to, from);
        to
    }

    pub(crate) fn copy_to(&mut self, to: VReg, from: VReg) {
        let class = self.func.class(to);
        let inst = if class == mir::CLASS_G {
            Inst::new((gpr::two(gpr::MOV, true), Code::INVALID), &[Opd::Reg(to, b'q'), Opd::Reg(from, b'q')])
        } else {
            let (row, w) = match class {
                mir::CLASS_K => (super::rows::KMOVQ, Width::X),
                mir::CLASS_X => (super::rows::VMOVAPS, Width::X),
                mir::CLASS_Y => (super::rows::VMOVAPS, Width::Y),
                _ => (super::rows::VMOVAPS, Width::Z),
            };
            // PANIC: the tables have these rows at these widths for every level; the zmm class exists on AVX-512 only.
            let Some(form) = row.form(self.arch, w) else { unreachable!("a move of every class exists") };
            Inst::new(form, &Self::operands(&form.0, Some(to), &[In::R(from)]))
        };
        let mut inst = inst.kind(Kind::Copy);
        inst.soft = 9;
        self.put(inst);
    }

    // --- constants ---

    /// A constant's value in registers, made in the body so that it is outside of all loops.
    fn constant(&mut self, u: &UOp) -> Res<Val> {
        let (c, dt) = (const_of(u)?, u.dtype());
        if dt.scalar == Scalar::Bool && dt.lanes > 1 {
            let g = self.const_gpr(-i64::from(!c.is_zero()));
            return self.mask_of_gpr(g, dt.lanes);
        }
        if dt.lanes == 1 && !dt.is_float() {
            return Ok(Val::G(self.const_gpr(const_bits(c, dt.scalar))));
        }
        let shape = self.shape(dt);
        let r = self.const_vec(to_bits(c, dt.scalar), shape.elem, shape.width)?;
        Ok(Val::V(smallvec![r; shape.parts as usize]))
    }

    /// A general register with a constant.
    pub(crate) fn const_gpr(&mut self, v: i64) -> VReg {
        let key = (v as u64, 0, 0);
        if let Some(r) = self.const_regs.get(&key) {
            return *r;
        }
        let dst = self.gpr();
        let (code, kind) = match v {
            0..=0x7fff_ffff => (Code::Mov_r32_imm32, b'd'),
            _ if i32::try_from(v).is_ok() => (Code::Mov_rm64_imm32, b'q'),
            _ => (Code::Mov_r64_imm64, b'q'),
        };
        let inst =
            Inst::new((Form::gpr(code, b"q", 9), Code::INVALID), &[Opd::Reg(dst, kind), Opd::Imm(v)]).kind(Kind::Remat);
        let back = std::mem::replace(&mut self.cur, 0);
        self.put(inst);
        self.cur = back;
        self.const_regs.insert(key, dst);
        dst
    }

    /// A vector register with the same bits in each lane.
    pub(crate) fn const_vec(&mut self, bits: u64, elem: u16, w: Width) -> Res<VReg> {
        let class = mir::vec_class(w);
        let key = (bits, elem, class.0);
        if let Some(r) = self.const_regs.get(&key) {
            return Ok(*r);
        }
        let dst = self.vec(w);
        let back = std::mem::replace(&mut self.cur, 0);
        let inst = self.const_inst(dst, bits, elem, w)?.kind(Kind::Remat);
        self.put(inst);
        self.cur = back;
        self.const_regs.insert(key, dst);
        Ok(dst)
    }

    /// The instruction that writes a constant to every lane of a register.
    pub(crate) fn const_inst(&mut self, dst: VReg, bits: u64, elem: u16, w: Width) -> Res<Inst> {
        use super::rows::*;
        let all = if elem == 8 { u64::MAX } else { (1 << (8 * elem)) - 1 };
        if bits & all == 0 {
            return self.inst(&VPXOR, w, dst, &[In::Same, In::Same]);
        }
        if bits & all == all {
            return if self.wide() {
                self.inst(&VPTERNLOGD, w, dst, &[In::Same, In::Same, In::I(0xff)])
            } else {
                self.inst(&VPCMPEQD, w, dst, &[In::Same, In::Same])
            };
        }
        let at = self.pooled(&bits.to_le_bytes()[..elem as usize], u32::from(elem));
        let row = super::ops::sized(elem, [VPBROADCASTB, VPBROADCASTW, VPBROADCASTD, VPBROADCASTQ]);
        self.inst(&row, w, dst, &[In::M(Mem::constant(at))])
    }

    /// A vector register with these bytes.
    pub(crate) fn const_bytes(&mut self, bytes: &[u8], w: Width) -> Res<VReg> {
        let at = self.pooled(bytes, bytes.len() as u32);
        let key = (u64::from(at), u16::MAX, mir::vec_class(w).0);
        if let Some(r) = self.const_regs.get(&key) {
            return Ok(*r);
        }
        let dst = self.vec(w);
        let inst = self.inst(&super::rows::VMOVUPS, w, dst, &[In::M(Mem::constant(at))])?.kind(Kind::Remat);
        let back = std::mem::replace(&mut self.cur, 0);
        self.put(inst);
        self.cur = back;
        self.const_regs.insert(key, dst);
        Ok(dst)
    }

    /// Offset of bytes among the constants.
    fn pooled(&mut self, bytes: &[u8], align: u32) -> u32 {
        let key = (bytes.to_vec(), align);
        if let Some(at) = self.pool.get(&key) {
            return *at;
        }
        while !self.rodata.len().is_multiple_of(align as usize) {
            self.rodata.push(0);
        }
        let at = self.rodata.len() as u32;
        self.rodata.extend_from_slice(bytes);
        self.pool.insert(key, at);
        at
    }
}

/// The allocator's class of an operand kind.
pub(super) fn class_of(kind: u8) -> Class {
    match kind {
        b'x' => mir::CLASS_X,
        b'y' => mir::CLASS_Y,
        b'z' => mir::CLASS_Z,
        b'k' => mir::CLASS_K,
        b't' => mir::CLASS_T,
        _ => mir::CLASS_G,
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
