//! Blocks of a GPU's instructions as programs on vectors of 32 lanes, which the host's own back end compiles: how plain
//! mode runs code that is executed often.
//!
//! A block reads and writes cells: vector registers of 32 lanes and scalar registers of one, all of them 32-bit words
//! of a few buffers. [`Builder`] keeps the value of each cell while instructions are added one after the other, and
//! makes one list of nodes of it: what is overwritten within the block is never stored. Whoever opens a software GPU
//! gives it a [`Translator`]; without one everything is interpreted.

mod runs;

pub use doorbell_ioctl::port::DeviceView;
use doorbell_uop::{Arg, DType, Memo, Op, UOp};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub(crate) use runs::{Known, LONGEST, Lazy, OFTEN, Runs, range_words};

/// The length that the parameters say: what a program touches is in [`Block::words`].
const BUFFER_WORDS: usize = 1 << 20;

/// Lanes of a vector.
pub(crate) const LANES: u16 = 32;

/// A program over buffers of 32-bit words.
#[derive(Clone, Debug)]
pub struct Block {
    /// The nodes in the order of execution, as `codegen::Program` has them. Buffer `n` is the parameter of slot `n`.
    pub uops: Vec<UOp>,
    /// For each buffer of the caller the words that the program touches at constant places.
    pub words: Vec<usize>,
    /// Ranges of device memory that it reads: the parameters of the slots from [`VIEWS`] on.
    pub views: usize,
}

/// The slot of the first range of device memory.
pub const VIEWS: u32 = 8;

/// Compiles blocks.
pub trait Translator: Send + Sync {
    /// A block's code; `None` where the host has no instructions for some node.
    fn translate(&self, block: &Block) -> Option<Box<dyn Translated>>;
}

/// A block's code.
pub trait Translated: Send + Sync {
    /// Runs it once, on as many buffers as the block has, each at least as long as it says, and as many ranges. What
    /// the block reads of a range is within it, and nothing of one that is not there.
    fn run(&self, buffers: &mut [&mut [u32]], views: &[Option<DeviceView>]);
}

/// Who compiles blocks, if anybody does: equal to another if it is the same.
#[derive(Clone, Default)]
pub struct Translation(pub Option<Arc<dyn Translator>>);

impl fmt::Debug for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Translation" } else { "no Translation" })
    }
}

impl PartialEq for Translation {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        }
    }
}

impl Eq for Translation {}

/// Words that are read and written as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub buffer: u8,
    /// Its first word.
    pub first: u32,
    /// 1 or [`LANES`].
    pub lanes: u16,
}

/// Makes a block, instruction by instruction.
#[derive(Default)]
pub(crate) struct Builder {
    list: List,
    /// The value of each cell that was written; and as how many-th, until it is stored.
    written: HashMap<Cell, (Option<usize>, UOp)>,
    writes: usize,
    /// Conditions under which all that follows runs.
    open: Vec<UOp>,
}

impl Builder {
    /// A cell's value after the instructions so far.
    pub(crate) fn read(&self, cell: Cell) -> UOp {
        self.written.get(&cell).map_or_else(|| at_entry(cell), |(_, value)| value.clone())
    }

    /// Gives a cell a value of type u32, with as many lanes.
    pub(crate) fn write(&mut self, cell: Cell, value: UOp) {
        debug_assert_eq!(value.dtype(), DType::U32.vec(cell.lanes), "a cell holds 32-bit words");
        self.writes += 1;
        self.written.insert(cell, (Some(self.writes), value));
    }

    /// Stores what was written. With `lanes`, bools, a vector keeps its other lanes.
    pub(crate) fn flush(&mut self, lanes: Option<&UOp>) {
        let unsaved = self.written.iter_mut().filter_map(|(cell, (n, value))| Some((n.take()?, *cell, value.clone())));
        let mut unsaved: Vec<(usize, Cell, UOp)> = unsaved.collect();
        unsaved.sort_unstable_by_key(|w| w.0);
        for (_, cell, value) in unsaved {
            let value = match lanes {
                Some(lanes) if cell.lanes == LANES => lanes.select(&value, &at_entry(cell)),
                _ => value,
            };
            self.list.add(&value);
            // Where another value needs what was here at the start, it is read before it is overwritten.
            self.list.add(&at_entry(cell));
            self.list.store(&place(cell).store(&value, &[]));
        }
    }

    /// What follows runs only where a scalar bool is true.
    pub(crate) fn only_if(&mut self, condition: &UOp) {
        let open = UOp::new(Op::If, DType::VOID, [condition.clone()], Arg::None);
        self.list.add(&open);
        self.open.push(open);
    }

    /// The block, with so many buffers and ranges of device memory; what was flushed is all that it stores.
    pub(crate) fn finish(mut self, buffers: usize, views: usize) -> Block {
        while let Some(open) = self.open.pop() {
            self.list.add(&UOp::new(Op::EndIf, DType::VOID, [open], Arg::None));
        }
        self.list.add(&UOp::sink([]));
        self.list.words.resize(buffers, 0);
        Block { uops: self.list.uops, words: self.list.words, views }
    }
}

/// The nodes so far.
#[derive(Default)]
struct List {
    uops: Vec<UOp>,
    has: Memo<()>,
    words: Vec<usize>,
}

impl List {
    /// Adds a node after its sources.
    fn add(&mut self, root: &UOp) {
        let mut todo = vec![(root.clone(), false)];
        while let Some((u, ready)) = todo.pop() {
            if self.has.has(&u) || u.op() == Op::Const && u.dtype().lanes == 1 {
                continue;
            }
            if ready {
                self.has.insert(&u, ());
                self.touch(&u);
                self.uops.push(u);
                continue;
            }
            let sources: Vec<UOp> = u.src().iter().rev().cloned().collect();
            todo.push((u, true));
            todo.extend(sources.into_iter().map(|s| (s, false)));
        }
    }

    /// Adds a store, even one that was there before: the cell may have had another value in between.
    fn store(&mut self, store: &UOp) {
        store.src().iter().for_each(|source| self.add(source));
        self.touch(store);
        self.uops.push(store.clone());
    }

    /// Notes which words a node touches.
    fn touch(&mut self, u: &UOp) {
        if let (Op::Param, Arg::Param(slot @ ..VIEWS, _)) = (u.op(), u.arg()) {
            self.reach(*slot as usize, 0);
        }
        let (Op::Load | Op::Store, [index, value @ ..]) = (u.op(), u.src()) else { return };
        let lanes = value.first().map_or(u.dtype(), UOp::dtype).lanes;
        let (Arg::Param(slot, _), Some(first)) = (index.src()[0].arg(), index.src()[1].as_int()) else { return };
        self.reach(*slot as usize, first as usize + usize::from(lanes));
    }

    /// A buffer has so many words at least.
    fn reach(&mut self, buffer: usize, words: usize) {
        if self.words.len() <= buffer {
            self.words.resize(buffer + 1, 0);
        }
        self.words[buffer] = self.words[buffer].max(words);
    }
}

/// A cell's address.
fn place(cell: Cell) -> UOp {
    let index = UOp::constant(DType::I64, i64::from(cell.first));
    UOp::param(u32::from(cell.buffer), DType::U32, BUFFER_WORDS).index(&index)
}

/// A cell's value at the start of the block.
fn at_entry(cell: Cell) -> UOp {
    UOp::new(Op::Load, DType::U32.vec(cell.lanes), [place(cell)], Arg::None)
}

/// The words of a vector's lanes with a bit each.
fn lane_bits() -> UOp {
    let bits: Vec<UOp> = (0..LANES).map(|lane| UOp::constant(DType::U32, 1i64 << lane)).collect();
    UOp::new(Op::Stack, DType::U32.vec(LANES), bits, Arg::None)
}

/// A constant in each lane, of type u32.
pub(crate) fn splat(bits: u32) -> UOp {
    UOp::constant(DType::U32.vec(LANES), i64::from(bits))
}

/// Words at an index a lane of a parameter; `old` where the gate is false.
pub(crate) fn gathered(slot: u32, index: &UOp, gate: Option<(&UOp, &UOp)>) -> UOp {
    let param = UOp::param(slot, DType::U32, BUFFER_WORDS);
    match gate {
        None => UOp::new(Op::Load, DType::U32.vec(LANES), [param.index(index)], Arg::None),
        Some((gate, old)) => param.index_gated(index, gate).load_or(old),
    }
}

/// A bool a lane from a scalar with a bit a lane.
pub(crate) fn mask_of(bits: &UOp) -> UOp {
    (bits.splat(LANES) & lane_bits()).ne(&splat(0))
}

/// A scalar with a bit a lane from bools.
pub(crate) fn bits_of(mask: &UOp) -> UOp {
    let bits = mask.select(&lane_bits(), &splat(0));
    UOp::new(Op::VReduce, DType::U32, [bits], Arg::Reduce(Op::Add, Default::default()))
}
