//! Registers as a block sees them while it is made: a vector register is one cell for each half of the wave, a scalar
//! register one word.

use super::super::Chip;
use super::super::inst::{EXEC, Inst, Operand};
use super::global::Load;
use crate::translate::{Block, Builder, Cell, LANES, bits_of, mask_of, splat};
use doorbell_uop::{DType, Op, Scalar, UOp};
use std::collections::HashMap;

/// The buffers of a block: the registers, words that come and go with each call, and LDS.
const VECTORS: u8 = 0;
const SCALARS: u8 = 1;
const FLAGS: u8 = 2;
/// LDS.
pub(super) const LDS: u8 = 3;
/// Buffers of a block.
pub(super) const BUFFERS: usize = 4;

/// Words of [`FLAGS`]: SCC, instructions that were executed, the size of LDS in bytes.
pub(in super::super) const FLAG_SCC: usize = 0;
pub(in super::super) const FLAG_DONE: usize = 1;
pub(in super::super) const FLAG_LDS_BYTES: usize = 2;
/// Of each load of global memory the range's start, and how many bytes of it an access may start at: 64 bits each.
pub(in super::super) const FLAG_RANGES: usize = 3;
pub(in super::super) const FLAG_WORDS: usize = FLAG_RANGES + 4 * LOADS;
/// Most loads of global memory in a block.
pub(in super::super) const LOADS: usize = 12;

/// What a wave's registers look like to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Shape {
    pub chip: Chip,
    /// Halves of a wave: 1 or 2.
    pub halves: usize,
    pub arch: u32,
    pub acc: u32,
}

impl Shape {
    /// Place of a vector register in the file, as `Wave::register_index` has it without checks.
    fn place(&self, n: u32) -> Option<u32> {
        match n.checked_sub(256) {
            Some(n) => (n < self.acc).then_some(n + self.arch),
            None => (n < self.arch + self.acc).then_some(n),
        }
    }
}

/// A block while it is made.
pub(super) struct State {
    cells: Builder,
    pub shape: Shape,
    /// EXEC's halves at the start.
    exec: [UOp; 2],
    /// Whether it is for waves of which only some lanes execute.
    some_lanes: bool,
    /// Vector cells that were written since they were last stored: their half, and what they had then.
    written: Vec<(Cell, usize, UOp)>,
    /// Where a lane of the current instruction is as it has to be, and where not.
    wrong: Option<UOp>,
    /// Loads of global memory.
    pub loads: Vec<Load>,
    /// Instructions before the current one.
    pub count: u32,
    /// Bools of the words that compares wrote.
    masks: HashMap<u8, UOp>,
    /// EXEC was written: the block ends.
    pub ended: bool,
    /// Vector operations.
    pub operations: u32,
    /// It depends on how MODE treats singles.
    pub floats: bool,
}

pub(super) fn word(bits: u32) -> UOp {
    UOp::constant(DType::U32, i64::from(bits))
}

/// The same bits as a signed integer.
pub(super) fn signed(v: &UOp) -> UOp {
    v.bitcast(v.dtype().with_scalar(Scalar::I32))
}

/// The same bits as an unsigned integer.
pub(super) fn unsigned(v: &UOp) -> UOp {
    v.bitcast(v.dtype().with_scalar(Scalar::U32))
}

/// All bits turned over.
pub(super) fn complement(v: &UOp) -> UOp {
    v.binary(Op::Xor, &v.const_like(i64::from(u32::MAX)))
}

/// 64 bits from two words.
pub(super) fn joined([low, high]: &[UOp; 2]) -> UOp {
    let wide = low.dtype().with_scalar(Scalar::U64);
    let up = high.cast(wide).binary(Op::Shl, &UOp::constant(wide, 32i64));
    up.or(&low.cast(wide))
}

/// Two words of 64 bits.
pub(super) fn parted(v: &UOp) -> [UOp; 2] {
    let narrow = v.dtype().with_scalar(Scalar::U32);
    [v.cast(narrow), v.binary(Op::Shr, &v.const_like(32i64)).cast(narrow)]
}

fn scalar_cell(n: u8) -> Cell {
    Cell { buffer: SCALARS, first: n.into(), lanes: 1 }
}

const fn flag(at: usize) -> Cell {
    Cell { buffer: FLAGS, first: at as u32, lanes: 1 }
}

const SCC: Cell = flag(FLAG_SCC);

impl State {
    pub(crate) fn new(shape: Shape, some_lanes: bool) -> Self {
        let cells = Builder::default();
        let exec = [EXEC, EXEC + 1].map(|n| cells.read(scalar_cell(n)));
        Self {
            cells,
            shape,
            exec,
            some_lanes,
            written: Vec::new(),
            wrong: None,
            loads: Vec::new(),
            count: 0,
            masks: HashMap::new(),
            ended: false,
            operations: 0,
            floats: false,
        }
    }

    fn vector_cell(&self, n: u32, half: usize) -> Option<Cell> {
        let first = (self.shape.place(n)? * self.shape.halves as u32 + half as u32) * u32::from(LANES);
        Some(Cell { buffer: VECTORS, first, lanes: LANES })
    }

    /// A vector register's half, so many registers after the operand.
    pub(crate) fn register(&self, o: Operand, after: u32, half: usize) -> Option<UOp> {
        let Operand::V(n) = o else { return None };
        Some(self.cells.read(self.vector_cell(u32::from(n) + after, half)?))
    }

    /// An operand's dword in each lane, without modifiers.
    pub(crate) fn lanes(&self, o: Operand, half: usize) -> Option<UOp> {
        match o {
            Operand::V(_) => self.register(o, 0, half),
            Operand::S(n) => Some(self.scalar(n)?.splat(LANES)),
            Operand::K(v) | Operand::Aperture(v) => Some(splat(v as u32)),
            Operand::Null | Operand::None => Some(splat(0)),
            _ => None,
        }
    }

    /// A source with its sign changed as the instruction says.
    pub(crate) fn source(&self, i: &Inst, slot: usize, half: usize) -> Option<UOp> {
        let mut v = self.lanes(i.src[slot], half)?;
        if i.abs >> slot & 1 == 1 {
            v = v.and(&splat(0x7fff_ffff));
        }
        Some(if i.neg >> slot & 1 == 1 { v.binary(Op::Xor, &splat(1 << 31)) } else { v })
    }

    /// Writes a vector register's half; lanes that do not execute keep what they have.
    pub(crate) fn write(&mut self, o: Operand, after: u32, half: usize, value: UOp) -> Option<()> {
        let Operand::V(n) = o else { return None };
        let cell = self.vector_cell(u32::from(n) + after, half)?;
        if !self.written.iter().any(|(known, ..)| *known == cell) {
            self.written.push((cell, half, self.cells.read(cell)));
        }
        self.cells.write(cell, value);
        Some(())
    }

    /// A scalar register.
    pub(crate) fn scalar(&self, n: u8) -> Option<UOp> {
        self.has_scalar(n).then(|| self.cells.read(scalar_cell(n)))
    }

    fn has_scalar(&self, n: u8) -> bool {
        n < 128 && (n != 124 || self.shape.chip == Chip::Gfx942)
    }

    /// A word of a scalar operand.
    pub(crate) fn scalar_source(&self, o: Operand, after: u8) -> Option<UOp> {
        match o {
            Operand::S(n) => self.scalar(n + after),
            Operand::K(v) | Operand::Aperture(v) => Some(word((v >> (32 * after)) as u32)),
            Operand::Null | Operand::None => Some(word(0)),
            _ => None,
        }
    }

    pub(crate) fn set_scalar(&mut self, n: u8, value: UOp) -> Option<()> {
        if !self.has_scalar(n) {
            return None;
        }
        self.ended |= n >= EXEC;
        self.masks.remove(&n);
        self.cells.write(scalar_cell(n), value);
        Some(())
    }

    /// The bools of a lane mask's half.
    pub(crate) fn mask(&self, o: Operand, half: usize) -> Option<UOp> {
        let Operand::S(n) = o else { return None };
        let at = n + half as u8;
        match self.masks.get(&at) {
            Some(known) => Some(known.clone()),
            None => Some(mask_of(&self.scalar(at)?)),
        }
    }

    /// Writes a lane mask's half from the bools of all lanes.
    pub(crate) fn set_mask(&mut self, o: Operand, half: usize, value: UOp) -> Option<()> {
        match o {
            Operand::S(n) => {
                let at = n + half as u8;
                let bits = bits_of(&value).and(&self.exec[half]);
                self.set_scalar(at, bits)?;
                self.masks.insert(at, value);
                Some(())
            }
            Operand::None | Operand::Null => Some(()),
            _ => None,
        }
    }

    pub(crate) fn scc(&self) -> UOp {
        self.cells.read(SCC).ne(&word(0))
    }

    pub(crate) fn set_scc(&mut self, value: &UOp) {
        self.cells.write(SCC, value.select(&word(1), &word(0)));
    }

    /// Whether a vector register or a lane mask depends on EXEC.
    pub(crate) fn is_vector(&self) -> bool {
        self.operations != 0
    }

    pub(crate) fn lds_bytes(&self) -> UOp {
        self.cells.read(flag(FLAG_LDS_BYTES))
    }

    /// A load of global memory; its number among them.
    pub(crate) fn load(&mut self, len_bytes: u32) -> Option<usize> {
        self.loads.push(Load { number: self.count, len_bytes });
        (self.loads.len() <= LOADS).then(|| self.loads.len() - 1)
    }

    /// The start of a load's range, and how many bytes of it an access may start at.
    pub(crate) fn range(&self, load: usize) -> (UOp, UOp) {
        let at = |n: usize| self.cells.read(flag(FLAG_RANGES + 4 * load + n));
        (joined(&[at(0), at(1)]), joined(&[at(2), at(3)]))
    }

    /// The lanes of a half that execute; `None` is all.
    pub(crate) fn active(&self, half: usize) -> Option<UOp> {
        self.some_lanes.then(|| mask_of(&self.exec[half]))
    }

    /// The current instruction can be executed here if this is true in all lanes that execute.
    pub(crate) fn must_hold(&mut self, half: usize, held: &UOp) {
        let wrong = held.not();
        let wrong = self.active(half).map_or_else(|| wrong.clone(), |active| active.and(&wrong));
        self.wrong = Some(self.wrong.take().map_or_else(|| wrong.clone(), |known| known.or(&wrong)));
    }

    /// The current instruction, and what follows, is executed only if what it expects is true.
    pub(crate) fn require(&mut self) {
        self.store();
        if let Some(wrong) = self.wrong.take() {
            self.cells.only_if(&bits_of(&wrong).equal(&word(0)));
        }
    }

    /// The same for a scalar bool.
    pub(crate) fn require_scalar(&mut self, held: &UOp) {
        self.store();
        self.cells.only_if(held);
    }

    /// Stores what was written so far; where only some lanes execute, those alone.
    fn store(&mut self) {
        for (cell, half, old) in std::mem::take(&mut self.written) {
            if let Some(active) = self.active(half) {
                let new = self.cells.read(cell);
                self.cells.write(cell, active.select(&new, &old));
            }
        }
        self.cells.write(flag(FLAG_DONE), word(self.count));
        self.cells.flush(None);
    }

    /// The block.
    pub(crate) fn finish(mut self) -> Block {
        self.store();
        self.cells.finish(BUFFERS, self.loads.len())
    }
}
