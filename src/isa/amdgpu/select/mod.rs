//! Linear nodes → instructions on virtual registers, node by node in list order.
//!
//! A value is a list of lanes (the vector lanes of the program, not those of the wave): each lane a constant, a scalar
//! register if all threads have the same value, or a vector register. Bools are lane masks in scalar registers, all
//! ones or all zeros when all threads have the same. Integers below 32 bits are kept extended to 32; f16 and bf16 are
//! in the low half, the upper half is undefined. Lanes of 8 and 16 bits that were loaded together stay packed until
//! they are computed with; f16 arithmetic works on packed lanes.
//!
//! Code is gathered in levels: the body, and each open loop. Addresses are summed in the level where their terms are
//! known, so what a loop does not change precedes it.

mod address;
mod alu;
mod bits64;
mod cast;
mod control;
mod division;
mod emit;
mod entry;
mod float;
mod half;
mod integer;
mod mask;
mod memory;
pub(super) mod mir;
mod pack;
mod plan;
mod wave;
mod wmma;

pub(super) use entry::user_sgprs;

use super::{Chip, Operand, Target, finish::CompileError};
use doorbell_codegen::Program;
use doorbell_codegen::regalloc::{Func, VReg};
use doorbell_uop::{Arg, Op, Scalar, UMap, UOp, to_bits};
use mir::{Inst, Part};
use plan::Plan;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

pub(super) type Res<T> = Result<T, CompileError>;

/// Where one lane's value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Src {
    /// Registers: scalar ones hold the same for all threads.
    Part(Part),
    /// These bits.
    Bits(u64),
    /// `bits` bits of a vector register from bit `shift` on.
    Packed { word: Part, shift: u8, bits: u8 },
}

/// A node's value by lanes.
pub(super) type Val = SmallVec<[Src; 4]>;

/// What a level is.
#[derive(Debug)]
enum LevelKind {
    Body,
    Loop(control::Loop),
}

/// An open level of code.
#[derive(Debug)]
struct Level {
    pub insts: Vec<Inst>,
    pub kind: LevelKind,
    /// Addresses and offsets made in this level, by what they add up.
    pub sums: HashMap<address::Sum, Part>,
}

/// The result: what the allocator and the later passes work on.
#[derive(Debug)]
pub(super) struct Selected {
    pub func: Func,
    pub insts: Vec<Inst>,
    pub lds_bytes: u32,
    /// Highest axis of the workgroup id, and of the thread's id in it, that is read.
    pub group_axes: [bool; 3],
    pub item_axes: u32,
}

struct Select<'a> {
    pub target: Target,
    pub program: &'a Program,
    pub uops: &'a [UOp],
    pub pos: UMap<u32>,
    pub plan: Plan,
    /// By position in the list.
    pub vals: Vec<Option<Val>>,
    /// Level in which each value was made.
    pub made_in: Vec<u32>,
    pub func: Func,
    pub levels: Vec<Level>,
    /// The level that instructions go to now.
    pub cur: usize,
    /// Tuples that some part was written of.
    pub defined: HashSet<VReg>,
    /// Masks that are all ones or all zeros.
    pub agreed: HashSet<VReg>,
    /// Registers that are assigned to again, with the index of the last assignment.
    pub mutable: HashMap<VReg, usize>,
    /// Constants in registers, made in the body: (bits, words, file).
    pub consts: HashMap<(u64, u8, u8), VReg>,
    /// The register requested for the next result.
    pub wanted: Option<Part>,
    pub args: entry::Args,
    pub locals: UMap<u32>,
    pub lds_bytes: u32,
}

/// Selects instructions for a program.
pub(super) fn select(program: &Program, target: Target) -> Res<Selected> {
    let n = program.uops.len();
    let pos: UMap<u32> = program.uops.iter().enumerate().map(|(i, u)| (u.clone(), i as u32)).collect();
    let plan = Plan::new(program, &pos)?;
    let body = Level { insts: Vec::with_capacity(4 * n), kind: LevelKind::Body, sums: HashMap::new() };
    let mut s = Select {
        target,
        program,
        uops: &program.uops,
        pos,
        plan,
        vals: vec![None; n],
        made_in: vec![0; n],
        func: Func::default(),
        levels: vec![body],
        cur: 0,
        defined: HashSet::new(),
        agreed: HashSet::new(),
        mutable: HashMap::new(),
        consts: HashMap::new(),
        wanted: None,
        args: entry::Args::default(),
        locals: UMap::default(),
        lds_bytes: 0,
    };
    s.enter()?;
    for p in 0..n {
        s.node(p)?;
    }
    s.leave()
}

impl Select<'_> {
    fn node(&mut self, p: usize) -> Res<()> {
        let u = self.uops[p].clone();
        match u.op() {
            Op::Sink | Op::Const | Op::Index | Op::Param | Op::Var | Op::Special => Ok(()),
            Op::After if u.dtype().space.is_some() => Ok(()), // an address: read through
            Op::Local => self.local(&u),
            Op::Range => self.open_loop(p, &u),
            Op::End => self.close_loop(&u),
            Op::Acc => self.acc(p, &u),
            Op::SetAcc => self.set_acc(&u),
            Op::Store => self.store(&u),
            Op::Barrier => self.barrier(),
            // Its copies are done when they are stores.
            Op::Commit | Op::CopyTile | Op::AwaitTile => Ok(()),
            Op::If | Op::EndIf => Err(self.unsupported(&u, "threads do not branch apart")),
            _ if self.plan.into[p] => Ok(()),
            _ => self.make(p).map(|_| ()),
        }
    }

    /// Emits a node's value into the current level.
    pub(crate) fn make(&mut self, p: usize) -> Res<Val> {
        let u = self.uops[p].clone();
        let home = self.home(p, &u);
        let v = self.compute(&u, home.as_deref())?;
        let v = self.settle(p, &u, v, home.as_deref())?;
        self.vals[p] = Some(v.clone());
        self.made_in[p] = self.cur as u32;
        Ok(v)
    }

    /// Copies lanes that must not stay where they are: a register that changes later, or a requested tuple.
    pub(crate) fn settle(&mut self, p: usize, u: &UOp, mut v: Val, home: Option<&[Part]>) -> Res<Val> {
        if matches!(u.op(), Op::Acc | Op::After) {
            return Ok(v);
        }
        for (k, lane) in v.iter_mut().enumerate() {
            if let Some(to) = home.and_then(|h| h.get(k)) {
                if *lane != Src::Part(*to) {
                    self.copy_to(*to, *lane)?;
                    *lane = Src::Part(*to);
                }
                continue;
            }
            if let Src::Part(part) = *lane
                && self.mutable.get(&part.reg).is_some_and(|last| *last > p)
            {
                *lane = Src::Part(self.copy(part)?);
            }
        }
        Ok(v)
    }

    /// Registers for the lanes of a node whose value is needed in tuples.
    pub(crate) fn home(&mut self, p: usize, u: &UOp) -> Option<Vec<Part>> {
        if !self.plan.tuple[p] || matches!(u.op(), Op::Load | Op::After | Op::Const) {
            return None;
        }
        let words = self.words(u.dtype().scalar);
        let lanes = u.dtype().lanes;
        let most = if self.plan.whole[p] { 16 } else { 4 / u16::from(words) };
        let mut out = Vec::new();
        while out.len() < usize::from(lanes) {
            let n = (lanes - out.len() as u16).min(most);
            let reg = self.vgpr((n * u16::from(words)) as u8);
            out.extend((0..n as u8).map(|k| Part { reg, sub: k * words, words }));
        }
        Some(out)
    }

    /// A node's value.
    pub(crate) fn val(&mut self, u: &UOp) -> Res<Val> {
        if u.op() == Op::Const {
            return self.constant(u);
        }
        if matches!(u.op(), Op::Param | Op::Var | Op::Special) {
            return self.argument(u);
        }
        let Some(p) = self.pos.get(u).map(|p| *p as usize) else {
            return Err(self.malformed(format!("{u:?} is used but does not stand in the list")));
        };
        match self.vals[p].clone() {
            Some(v) => Ok(v),
            None => Err(self.malformed(format!("{u:?} is used before it stands in the list"))),
        }
    }

    /// A node's value with no lane packed.
    pub(crate) fn plain(&mut self, u: &UOp) -> Res<Val> {
        let v = self.val(u)?;
        if !v.iter().any(|s| matches!(s, Src::Packed { .. })) {
            return Ok(v);
        }
        let Some(p) = self.pos.get(u).map(|p| *p as usize) else { return Ok(v) };
        // Unpacked where it was loaded, so that all users find it.
        let back = std::mem::replace(&mut self.cur, self.made_in[p] as usize);
        let wanted = self.wanted.take();
        let t = u.dtype().scalar;
        let v: Val = v.into_iter().map(|s| self.unpack(s, t)).collect::<Res<_>>()?;
        (self.cur, self.wanted) = (back, wanted);
        self.vals[p] = Some(v.clone());
        Ok(v)
    }

    fn compute(&mut self, u: &UOp, home: Option<&[Part]>) -> Res<Val> {
        match u.op() {
            Op::After => self.val(&u.src()[0]),
            Op::Load => self.load(u),
            Op::Splat => {
                let x = self.plain(&u.src()[0])?;
                Ok(std::iter::repeat_n(x[0], usize::from(u.dtype().lanes)).collect())
            }
            Op::Stack | Op::Cat => {
                let mut out = Val::new();
                for s in u.src() {
                    out.extend(self.val(s)?);
                }
                Ok(out)
            }
            Op::Gep => self.gep(u),
            Op::VReduce => self.vreduce(u),
            Op::WaveReduce => self.wave_reduce(u),
            Op::Cast if u.dtype().lanes > 1 && rounds_to_halves(u) => self.round_to_halves(u),
            Op::Cast => self.lanewise(u, home, |s, u, a| s.cast(u.src()[0].dtype().scalar, u.dtype().scalar, a[0])),
            Op::Bitcast => {
                self.lanewise(u, home, |s, u, a| s.bitcast(u.src()[0].dtype().scalar, u.dtype().scalar, a[0]))
            }
            Op::Wmma => self.wmma(u, home),
            _ if u.dtype().lanes > 1 && self.is_packed(u) => self.in_pairs(u),
            op if op.is_alu() => self.lanewise(u, home, |s, u, a| s.alu(u, a)),
            _ => Err(self.unsupported(u, "not part of a linear program")),
        }
    }

    /// One lane after the other; each result goes to its home if there is one.
    fn lanewise(
        &mut self,
        u: &UOp,
        home: Option<&[Part]>,
        f: impl Fn(&mut Self, &UOp, &[Src]) -> Res<Src>,
    ) -> Res<Val> {
        let reads_packed = matches!(u.op(), Op::Cast);
        let sources: SmallVec<[Val; 3]> =
            u.src().iter().map(|s| if reads_packed { self.val(s) } else { self.plain(s) }).collect::<Res<_>>()?;
        let lanes = usize::from(u.dtype().lanes);
        let mut out = Val::with_capacity(lanes);
        let mut made: Vec<(SmallVec<[Src; 3]>, Src)> = Vec::new();
        for k in 0..lanes {
            let a: SmallVec<[Src; 3]> = sources.iter().map(|v| v[k.min(v.len() - 1)]).collect();
            // Lanes of a splat are computed once.
            if let Some(same) = made.iter().find(|m| m.0 == a)
                && home.is_none()
            {
                out.push(same.1);
                continue;
            }
            self.wanted = home.and_then(|h| h.get(k)).copied();
            let r = f(self, u, &a)?;
            self.wanted = None;
            if home.is_none() {
                made.push((a, r));
            }
            out.push(r);
        }
        Ok(out)
    }

    fn gep(&mut self, u: &UOp) -> Res<Val> {
        let v = self.val(&u.src()[0])?;
        let Arg::Axes(lanes) = u.arg() else { return Err(self.unsupported(u, "no lanes")) };
        lanes
            .iter()
            .map(|k| v.get(*k as usize).or(v.first().filter(|_| v.len() == 1)).copied())
            .collect::<Option<Val>>()
            .ok_or_else(|| self.malformed(format!("{u:?} takes a lane that is not there")))
    }

    fn vreduce(&mut self, u: &UOp) -> Res<Val> {
        let Arg::Reduce(op, _) = u.arg() else { return Err(self.unsupported(u, "no operation")) };
        let v = self.plain(&u.src()[0])?;
        let mut sum = v[0];
        for x in &v[1..] {
            sum = self.alu_op(*op, u.dtype().scalar, &[sum, *x], u)?;
        }
        Ok(smallvec::smallvec![sum])
    }

    fn constant(&mut self, u: &UOp) -> Res<Val> {
        let (Some(c), dt) = (u.as_const(), u.dtype()) else {
            return Err(self.malformed(format!("{u:?} has no value")));
        };
        let bits = match dt.scalar {
            Scalar::Bool if c.is_zero() => 0,
            Scalar::Bool => u64::MAX,
            t => extend(to_bits(c, t), t),
        };
        Ok(std::iter::repeat_n(Src::Bits(bits), usize::from(dt.lanes)).collect())
    }

    /// 32-bit registers of a value; a bool's are those of a mask.
    pub(crate) fn words(&self, t: Scalar) -> u8 {
        match t {
            Scalar::Bool => self.target.mask_words(),
            t if t.size_bytes() == 8 => 2,
            _ => 1,
        }
    }

    pub(crate) fn chip(&self) -> Chip {
        self.target.chip
    }

    pub(crate) fn exec(&self) -> Operand {
        self.target.exec()
    }

    pub(crate) fn unsupported(&self, u: &UOp, why: &'static str) -> CompileError {
        let dtype = if u.op().is_comparison() { u.src()[0].dtype() } else { u.dtype() };
        CompileError::Unsupported { op: u.op(), dtype, why }
    }

    pub(crate) fn malformed(&self, why: String) -> CompileError {
        CompileError::Malformed(why)
    }
}

/// Whether a node rounds floats to f16.
fn rounds_to_halves(u: &UOp) -> bool {
    u.dtype().scalar == Scalar::F16 && u.src()[0].dtype().scalar == Scalar::F32
}

/// Bits of a type as they are in registers: small integers extended to 32 bits.
fn extend(bits: u64, t: Scalar) -> u64 {
    match t {
        Scalar::I8 => u64::from(i32::from(bits as i8).cast_unsigned()),
        Scalar::I16 => u64::from(i32::from(bits as i16).cast_unsigned()),
        Scalar::U8 => bits & 0xff,
        Scalar::U16 | Scalar::F16 | Scalar::BF16 => bits & 0xffff,
        t if t.size_bytes() <= 4 => bits & 0xffff_ffff,
        _ => bits,
    }
}
