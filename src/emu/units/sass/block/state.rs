//! Registers, predicates and constants as a block sees them while it is made.

use super::super::operand::{Address, Dst, In, PDst, PSrc, Src};
use super::super::warp::Warp;
use crate::translate::{Block, Builder, Cell, LANES, bits_of, mask_of};
use doorbell_uop::{DType, Op, UOp};

/// The buffers of a block.
pub(super) const REGISTERS: u8 = 0;
pub(super) const UNIFORM: u8 = 1;
pub(super) const PREDICATES: u8 = 2;
pub(super) const UNIFORM_PREDICATES: u8 = 3;
/// What a block is given, and says, beside the warp's state.
pub(super) const EXTRA: u8 = 4;
/// Shared memory.
pub(super) const SHARED: u8 = 5;
pub(super) const BUFFERS: usize = 6;

/// Words of [`EXTRA`]: the lanes that execute; how many instructions were executed; bytes of shared memory; constants;
/// four for each range of global memory.
pub(super) const EXECUTING: usize = 0;
pub(super) const DONE: usize = 1;
pub(super) const SHARED_BYTES: usize = 2;
pub(super) const FIRST_CONSTANT: usize = 3;
pub(super) const FIRST_RANGE: usize = 64;
pub(super) const EXTRA_WORDS: usize = FIRST_RANGE + 4 * RANGES;

/// Most constants of a block.
pub(super) const CONSTANTS: usize = FIRST_RANGE - FIRST_CONSTANT;
/// Most ranges of a block.
pub(super) const RANGES: usize = 16;

/// A bool for each lane.
#[derive(Clone)]
pub(super) enum Bool {
    /// The same in all lanes, known now.
    All(bool),
    Lanes(UOp),
}

impl Bool {
    pub(crate) fn not(self) -> Bool {
        match self {
            Bool::All(b) => Bool::All(!b),
            Bool::Lanes(u) => Bool::Lanes(u.not()),
        }
    }

    pub(crate) fn and(self, other: Bool) -> Bool {
        match (self, other) {
            (Bool::All(true), x) | (x, Bool::All(true)) => x,
            (Bool::All(false), _) | (_, Bool::All(false)) => Bool::All(false),
            (Bool::Lanes(a), Bool::Lanes(b)) => Bool::Lanes(a.and(&b)),
        }
    }

    pub(crate) fn or(self, other: Bool) -> Bool {
        match (self, other) {
            (Bool::All(false), x) | (x, Bool::All(false)) => x,
            (Bool::All(true), _) | (_, Bool::All(true)) => Bool::All(true),
            (Bool::Lanes(a), Bool::Lanes(b)) => Bool::Lanes(a.or(&b)),
        }
    }

    pub(crate) fn xor(self, other: Bool) -> Bool {
        match (self, other) {
            (Bool::All(a), Bool::All(b)) => Bool::All(a != b),
            (Bool::All(true), x) | (x, Bool::All(true)) => x.not(),
            (Bool::All(false), x) | (x, Bool::All(false)) => x,
            (Bool::Lanes(a), Bool::Lanes(b)) => Bool::Lanes(a.binary(Op::Xor, &b)),
        }
    }

    /// `a` where it is true, `b` elsewhere.
    pub(crate) fn pick(&self, a: UOp, b: UOp) -> UOp {
        match self {
            Bool::All(true) => a,
            Bool::All(false) => b,
            Bool::Lanes(u) => u.select(&a, &b),
        }
    }
}

/// A load from global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Its number in the block.
    pub number: u32,
    pub address: Address,
    pub len_bytes: u32,
}

impl Load {
    /// A lane's address.
    pub(crate) fn address_of(&self, warp: &Warp, lane: usize) -> u64 {
        let Address { base, wide, scale, uniform, offset } = self.address;
        let plus = uniform.map_or(0, |u| {
            let word = |u: usize| u64::from(warp.uniform[u & 255]);
            word(usize::from(u)) | word(usize::from(u) + 1) << 32
        });
        let at = match wide && base != 255 {
            true => warp.pair(base, lane),
            false => u64::from(warp.registers[usize::from(base)][lane]) * u64::from(scale),
        };
        at.wrapping_add(plus).wrapping_add_signed(offset)
    }
}

/// A block while it is made.
#[derive(Default)]
pub(super) struct State {
    cells: Builder,
    /// Predicates that were written.
    predicates: [Option<Bool>; 8],
    uniform_predicates: [Option<Bool>; 8],
    /// Those that were not stored yet.
    unsaved: [bool; 8],
    unsaved_uniform: [bool; 8],
    pub constants: Vec<(u8, i64)>,
    /// Loads from global memory.
    pub loads: Vec<Load>,
    /// Whether it is for paths of some lanes.
    some_lanes: bool,
    /// Whether strict mode checks it.
    pub strict: bool,
    /// Instructions so far.
    pub count: u32,
    /// Lanes of the current instruction's values: 1 for the uniform datapath.
    pub lanes: u16,
    /// Where the current instruction writes.
    pub guard: Option<Bool>,
}

fn register(r: u8) -> Cell {
    Cell { buffer: REGISTERS, first: u32::from(r) * u32::from(LANES), lanes: LANES }
}

fn scalar(buffer: u8, first: usize) -> Cell {
    Cell { buffer, first: first as u32, lanes: 1 }
}

impl State {
    /// A constant in each lane.
    pub(crate) fn word(&self, bits: u32) -> UOp {
        UOp::constant(DType::U32.vec(self.lanes), i64::from(bits))
    }

    /// The bits of a source, no modifier applied. None: it cannot be read here.
    pub(crate) fn raw(&mut self, i: &In) -> Option<UOp> {
        Some(match i.src {
            Src::R(255) | Src::U(255) => self.word(0),
            Src::R(r) if self.lanes == LANES => self.cells.read(register(r)),
            Src::R(_) => return None,
            Src::U(u) => self.cells.read(scalar(UNIFORM, usize::from(u))).splat(self.lanes),
            Src::Imm(low, _) => self.word(low),
            Src::Const { bank, offset } => self.constant(bank, offset)?,
        })
    }

    /// A pair's low and high words.
    pub(crate) fn raw_pair(&mut self, i: &In) -> Option<[UOp; 2]> {
        let next = match i.src {
            Src::R(255) | Src::U(255) => i.src,
            Src::R(r) => Src::R(r + 1),
            Src::U(u) => Src::U(u + 1),
            Src::Imm(_, high) => Src::Imm(high, 0),
            Src::Const { bank, offset } => Src::Const { bank, offset: offset + 4 },
        };
        Some([self.raw(i)?, self.raw(&In { src: next, ..*i })?])
    }

    /// A word of a constant bank.
    pub(crate) fn constant(&mut self, bank: u8, offset: i64) -> Option<UOp> {
        let known = self.constants.iter().position(|c| *c == (bank, offset));
        let at = known.unwrap_or(self.constants.len());
        if known.is_none() {
            self.constants.push((bank, offset));
        }
        (at < CONSTANTS).then(|| self.cells.read(scalar(EXTRA, FIRST_CONSTANT + at)).splat(self.lanes))
    }

    /// An integer source: negated or complemented according to its modifiers.
    pub(crate) fn int(&mut self, i: &In) -> Option<UOp> {
        let raw = self.raw(i)?;
        Some(match (i.neg, i.not) {
            (true, _) => self.word(0).binary(Op::Sub, &raw),
            (_, true) => raw.binary(Op::Xor, &self.word(u32::MAX)),
            _ => raw,
        })
    }

    /// Writes where the guard is true. None: not possible here.
    pub(crate) fn write(&mut self, d: Dst, value: UOp) -> Option<()> {
        let cell = match d {
            Dst::R(255) | Dst::U(255) => return Some(()),
            Dst::R(r) if self.lanes == LANES => register(r),
            Dst::U(u) if self.lanes == 1 => scalar(UNIFORM, usize::from(u)),
            _ => return None,
        };
        let value = match &self.guard {
            None => value,
            Some(guard) => guard.pick(value, self.cells.read(cell)),
        };
        self.cells.write(cell, value);
        Some(())
    }

    /// Writes a pair of registers.
    pub(crate) fn write_pair(&mut self, d: Dst, [low, high]: [UOp; 2]) -> Option<()> {
        self.write(d, low)?;
        match d {
            Dst::R(255) | Dst::U(255) => Some(()),
            Dst::R(r) => self.write(Dst::R(r + 1), high),
            Dst::U(u) => self.write(Dst::U(u + 1), high),
        }
    }

    /// A predicate in the current instruction's lanes. None: a vector's predicate in the uniform datapath.
    pub(crate) fn predicate(&mut self, p: PSrc) -> Option<Bool> {
        let value = match p {
            PSrc { index: 7, .. } => Bool::All(true),
            PSrc { uniform: false, index, .. } if self.lanes == LANES => self.vector_predicate(index),
            PSrc { uniform: false, .. } => return None,
            PSrc { uniform: true, index, .. } => match self.uniform_predicate(index) {
                Bool::Lanes(u) if self.lanes == LANES => Bool::Lanes(u.splat(LANES)),
                other => other,
            },
        };
        Some(if p.not { value.not() } else { value })
    }

    fn vector_predicate(&mut self, index: u8) -> Bool {
        let at = usize::from(index);
        let bits = self.cells.read(scalar(PREDICATES, at));
        self.predicates[at].clone().unwrap_or_else(|| Bool::Lanes(mask_of(&bits)))
    }

    fn uniform_predicate(&mut self, index: u8) -> Bool {
        let at = usize::from(index);
        let bits = self.cells.read(scalar(UNIFORM_PREDICATES, at));
        let zero = UOp::constant(DType::U32, 0i64);
        self.uniform_predicates[at].clone().unwrap_or_else(|| Bool::Lanes(bits.ne(&zero)))
    }

    /// Writes a predicate where the guard is true. None: not possible here.
    pub(crate) fn set_predicate(&mut self, p: PDst, value: Bool) -> Option<()> {
        if p.index == 7 {
            return Some(());
        }
        if p.uniform != (self.lanes == 1) {
            return None;
        }
        let at = usize::from(p.index);
        let value = match self.guard.clone() {
            None => value,
            Some(guard) => {
                let old = if p.uniform { self.uniform_predicate(p.index) } else { self.vector_predicate(p.index) };
                guard.clone().and(value).or(guard.not().and(old))
            }
        };
        let (file, unsaved) = match p.uniform {
            true => (&mut self.uniform_predicates, &mut self.unsaved_uniform),
            false => (&mut self.predicates, &mut self.unsaved),
        };
        (file[at], unsaved[at]) = (Some(value), true);
        Some(())
    }

    /// Of a block for whole warps, or for paths of some lanes; to be checked by strict mode or not.
    pub(crate) fn new(some_lanes: bool, strict: bool) -> State {
        State { some_lanes, strict, ..State::default() }
    }

    /// Whether a predicate was written in the block.
    pub(crate) fn has_written(&self, p: PSrc) -> bool {
        let file = if p.uniform { &self.uniform_predicates } else { &self.predicates };
        p.index != 7 && file[usize::from(p.index)].is_some()
    }

    /// Whether another instruction may have too many constants or loads.
    pub(crate) fn is_full(&self) -> bool {
        self.constants.len() + 4 > CONSTANTS || self.loads.len() == RANGES
    }

    /// A word of [`EXTRA`].
    pub(crate) fn extra(&self, at: usize) -> UOp {
        self.cells.read(scalar(EXTRA, at))
    }

    /// The lanes in which the current instruction is executed.
    pub(crate) fn active(&self) -> Bool {
        let executing = if self.some_lanes { Bool::Lanes(mask_of(&self.extra(EXECUTING))) } else { Bool::All(true) };
        executing.and(self.guard.clone().unwrap_or(Bool::All(true)))
    }

    /// The instruction is executed, and what follows it, if this is true in all lanes where it is active; else the
    /// block ends before it.
    pub(crate) fn require(&mut self, held: Bool) {
        let wrong = self.active().and(held.not());
        self.store();
        if let Bool::Lanes(wrong) = wrong {
            self.cells.only_if(&bits_of(&wrong).equal(&UOp::constant(DType::U32, 0i64)));
        }
    }

    /// Stores what was written so far.
    fn store(&mut self) {
        let word = |bits: u32| UOp::constant(DType::U32, i64::from(bits));
        let executing = self.extra(EXECUTING);
        for at in 0..7 {
            if let Some(value) = self.unsaved[at].then(|| self.predicates[at].clone()).flatten() {
                let bits = match value {
                    Bool::All(b) => word(if b { u32::MAX } else { 0 }),
                    Bool::Lanes(u) => bits_of(&u),
                };
                let cell = scalar(PREDICATES, at);
                let kept = self.cells.read(cell).and(&executing.binary(Op::Xor, &word(u32::MAX)));
                self.cells.write(cell, if self.some_lanes { bits.and(&executing).or(&kept) } else { bits });
            }
            if let Some(value) = self.unsaved_uniform[at].then(|| self.uniform_predicates[at].clone()).flatten() {
                let bits = match value {
                    Bool::All(b) => word(if b { u32::MAX } else { 0 }),
                    Bool::Lanes(u) => u.select(&word(u32::MAX), &word(0)),
                };
                self.cells.write(scalar(UNIFORM_PREDICATES, at), bits);
            }
        }
        (self.unsaved, self.unsaved_uniform) = Default::default();
        self.cells.write(scalar(EXTRA, DONE), word(self.count));
        let lanes = self.some_lanes.then(|| mask_of(&executing));
        self.cells.flush(lanes.as_ref());
    }

    /// The block.
    pub(crate) fn finish(mut self) -> Block {
        self.store();
        self.cells.finish(BUFFERS, self.loads.len())
    }
}
