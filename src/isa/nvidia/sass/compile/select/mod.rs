//! Instruction selection: the text's instructions → machine instructions on virtual registers, one after the other.
//!
//! 16-bit values are in the low half of a word whose upper half is undefined; predicates are in predicate registers;
//! 64-bit values are in an aligned pair.

mod arrivals;
pub(crate) mod build;
mod bulk;
mod call;
mod cluster;
mod control;
mod convert;
mod copy;
mod divide;
mod double;
mod far;
mod field;
mod float;
mod half;
mod int;
mod logic;
mod matrix;
mod mbarrier;
mod memory;
mod multimem;
mod near;
mod order;
mod packed;
mod retry;
mod steal;
mod tensormap;
mod unpack;
mod warp;
mod wgmma;
mod wide;
mod wmma;
mod words;

use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::allocate::pool::Pool;
use crate::sass::compile::arrange::flight;
use crate::sass::compile::context::Unit;
use crate::sass::compile::mir::{Block, Code, Term, Word};
use crate::sass::compile::optimise::facts::Known;
use crate::sass::compile::read::flat::{Flat, Item, Opd};
use build::Build;
pub(crate) use bulk::GROUPS as BULK_GROUPS;
pub(crate) use cluster::{EXPLICIT, knows_blocks};
pub(crate) use copy::GROUPS as COPY_GROUPS;
pub(crate) use memory::MemOperand;
pub(crate) use words::knows;

/// Selected code, and the resources that it uses.
pub(crate) struct Selected {
    pub code: Code,
    pub stack: Word,
    pub uses_stack: bool,
    pub barriers: u32,
    /// Functions that are called.
    pub calls: Vec<u32>,
    /// The register counts of `setmaxnreg`, if it can be used.
    pub pool: Option<Pool>,
    /// Code after the body that several of its places call.
    pub beside: Vec<Selected>,
}

/// Selects a body's instructions. With `shares`, several places may call one copy of the code that they need.
pub(crate) fn select(unit: &Unit, shares: bool) -> Result<Selected, AsmError> {
    let body = &unit.body;
    let mut b = Build::new(unit);
    b.code.returns = unit.number.map(|_| b.fresh());
    let first = b.code.blocks.len();
    for _ in 0..body.labels {
        b.code.blocks.push(Block { ops: vec![], term: Term::Exit });
    }
    b.reserve(&body.items);
    for (k, item) in body.items.iter().enumerate() {
        match item {
            Item::Label(l) => {
                let next = first + *l as usize;
                b.code.blocks[b.block].term = Term::Jump(next);
                b.start(next);
                b.straight_from = k + 1;
                b.reserve(&body.items[k + 1..]);
            }
            Item::Inst(i) => {
                b.pos = i.pos;
                b.guard = i.guard.map(|(p, not)| if not { b.truth(p).not() } else { b.truth(p) });
                let block = b.block;
                b.inst(i, first)?;
                if b.block != block {
                    b.straight_from = k + 1;
                }
                if i.opds.lacked() {
                    return b.no(i, "it lacks operands");
                }
                if let Some(what) = b.take_fault() {
                    return b.no(i, &what);
                }
            }
        }
    }
    b.guard = None;
    // Reaching the end of a body returns.
    b.return_block();
    // Registers of wgmma instructions are written while other code runs.
    let shares = shares && body.pool.is_none() && !flight::multiplies(&b.code);
    let beside = b.far_code(unit, shares);
    if let Some(what) = b.take_fault() {
        return Err(AsmError::new(unit.pos, what));
    }
    Ok(b.finish(beside))
}

impl Build<'_> {
    /// All that was selected.
    fn finish(mut self, beside: Vec<Selected>) -> Selected {
        let entry = std::mem::take(&mut self.entry);
        self.code.blocks[0].ops.splice(0..0, entry);
        let Build { code, stack, uses_stack, barriers, calls, .. } = self;
        Selected { code, stack, uses_stack, barriers, calls, pool: self.body.pool, beside }
    }

    /// Continues in a block, which is appended to the layout.
    pub(crate) fn start(&mut self, block: usize) {
        self.block = block;
        self.code.order.push(block);
    }

    /// Reserves space for the code up to the next label or jump.
    fn reserve(&mut self, items: &[Item]) {
        let straight = |item: &&Item| matches!(item, Item::Inst(i) if i.op != Opcode::Bra);
        let count = items.iter().take_while(straight).count();
        self.code.blocks[self.block].ops.reserve(count + count / 4 + 4);
    }

    /// A new block, appended to the layout.
    pub(super) fn fresh(&mut self) -> usize {
        self.code.blocks.push(Block { ops: vec![], term: Term::Exit });
        self.code.blocks.len() - 1
    }

    fn inst(&mut self, i: &Flat, labels: usize) -> Result<(), AsmError> {
        use Opcode::*;
        if let (Some(Opd::Reg(d)), 1, None) = (i.opds.first(), i.results(), i.guard) {
            // Readers use the value it is known to hold.
            let known = self.facts.known[*d as usize];
            if matches!(known, Known::Imm(_) | Known::Copy(_) | Known::Param(_) | Known::Shared(_)) {
                return Ok(());
            }
        }
        if !i.is_known() {
            let w = i.words().find(|w| !words::knows(i.op, w)).unwrap_or_default();
            return self.no(i, &format!(".{w} is not assembled here"));
        }
        match i.op {
            Call => self.call(i),
            Cp => self.copy(i),
            Tensormap => self.tensormap(i),
            Vabsdiff2 => self.half_differences(i),
            Vabsdiff4 => self.byte_differences(i),
            Mbarrier if self.chip.is_before_hopper() => self.counted_mbarrier(i),
            Mbarrier => self.mbarrier(i),
            Brx => self.table_branch(i, labels),
            Bra | Ret | Exit | Trap | Brkpt | Bar | Barrier | Membar | Fence | Nanosleep | Griddepcontrol | Pmevent => {
                self.control(i, labels)
            }
            St if i.has("async") => self.store_async(i),
            Red if i.has("async") => self.reduce_async(i),
            Ld | Ldu | St | Prefetch | Prefetchu | Applypriority | Discard | Cvta | Createpolicy => {
                self.ordered(i, Build::memory)
            }
            Atom | Red => self.ordered(i, Build::atomic),
            Multimem => self.multimem(i),
            Clusterlaunchcontrol => self.steal(i),
            Mov => self.mov_inst(i),
            Wmma => self.wmma(i),
            Wgmma => self.wgmma(i),
            Elect | Mapa | Getctarank | Isspacep | Setmaxnreg => self.cluster(i),
            Mma | Ldmatrix | Stmatrix | Movmatrix => self.matrix(i),
            Shfl | Vote | Activemask | Match | Redux => self.warp(i),
            And | Or | Xor | Not | Cnot | Shl | Shr | Shf | Lop3 | Prmt | Bfe | Bfi | Brev | Clz | Popc | Bfind
            | Bmsk | Szext => self.logic(i),
            Setp | Set | Selp | Slct => self.compare_inst(i),
            Cvt => self.convert(i),
            Add | Sub | Mul | Mad | Fma | Div | Rem | Neg | Abs | Min | Max | Sad | Mul24 | Mad24 | Addc | Subc
            | Dp4a | Dp2a | Rcp | Sqrt | Rsqrt | Ex2 | Lg2 | Sin | Cos | Tanh | Copysign | Testp | Madc => match i.ty()
            {
                Type::F32 => self.float(i),
                Type::F32x2 => self.float_pairs(i),
                Type::F64 => self.double(i),
                Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 => self.half(i),
                t if t.bits() == 64 => self.wide_int(i),
                _ => self.int(i),
            },
            _ => self.no(i, "the assembler has no such instruction yet"),
        }
    }
}
