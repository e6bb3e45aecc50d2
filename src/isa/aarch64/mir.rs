//! Machine instructions before register allocation: rows of the table on virtual registers.

use super::rows::{self, Row};
use doorbell_codegen::regalloc::{
    Class, Constraint, Flow, Kind, Label, Operand, PReg, RegClass, RegFile, RegInfo, Role, VReg,
};
use smallvec::{SmallVec, smallvec};

/// Register files, in the order of [`reg_info`].
pub(crate) const GPR: u8 = 0;
pub(crate) const VEC: u8 = 1;

/// Register classes, in the order of [`reg_info`].
pub(crate) const CLASS_G: Class = Class(0);
pub(crate) const CLASS_V: Class = Class(1);

/// x0 and x1: the arguments.
pub(crate) const X0: PReg = PReg { file: GPR, index: 0 };
pub(crate) const X1: PReg = PReg { file: GPR, index: 1 };

/// The caller's registers (AAPCS64): of d8 to d15 the low half.
pub(crate) const SAVED_GPRS: std::ops::RangeInclusive<u16> = 19..=28;
pub(crate) const SAVED_VECS: std::ops::RangeInclusive<u16> = 8..=15;

/// The register in which addresses beyond an instruction's reach are made.
pub(crate) const SCRATCH: i64 = 16;
/// The stack pointer, where a base is wanted.
pub(crate) const SP: i64 = 31;

/// The machine's registers. Not given out: x16 and x17 (for the emitter), x18 (the platform's), x29, x30 and sp.
pub(crate) fn reg_info() -> RegInfo {
    let class = |name, file, bytes| RegClass { name, file, width: 1, align: 1, slot_bytes: bytes, slot_align: bytes };
    RegInfo {
        files: vec![
            RegFile { name: "gpr", count: 32, order: (0..=15).chain(SAVED_GPRS).collect() },
            RegFile { name: "vec", count: 32, order: (0..=7).chain(16..=31).chain(SAVED_VECS).collect() },
        ],
        classes: vec![class("gpr", GPR, 8), class("vec", VEC, 16)],
    }
}

/// What a memory operand starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// A register.
    Reg(VReg),
    /// Bytes into the thread's scratch on the stack.
    Local(u32),
}

/// `[base, #disp]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mem {
    pub base: Base,
    pub disp: i64,
}

impl Mem {
    /// The same address plus some bytes.
    pub(crate) fn plus(self, bytes: i64) -> Mem {
        Mem { disp: self.disp + bytes, ..self }
    }
}

/// The instructions of an access: with an unsigned offset in units of so many bytes, and with a signed one in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub rows: &'static [Row; 2],
    pub bytes: i64,
}

/// What an instruction is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// Nothing but a place: the entry, a label, the return.
    Mark,
    /// A row; its registers in order are the row's, and so are the numbers.
    Row(&'static Row),
    /// Writes a number to a general register.
    Const(i64),
    /// Loads 16 bytes of the constants.
    Literal(u32),
    /// Register 0 from or to memory; register 1 is the address, if it has one.
    Access(Access, Mem),
    /// The address of an offset in the thread's scratch.
    LocalAddress(u32),
    /// A branch under a condition, or always.
    Branch(Option<Cond>),
}

/// Conditions, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cond {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// Unsigned greater or equal.
    Hs = 2,
    /// Unsigned less.
    Lo = 3,
    /// Signed greater or equal.
    Ge = 10,
    /// Signed less.
    Lt = 11,
    /// Signed greater.
    Gt = 12,
    /// Signed less or equal.
    Le = 13,
}

impl Cond {
    /// True where this is false.
    pub(crate) fn opposite(self) -> Cond {
        match self {
            Cond::Eq => Cond::Ne,
            Cond::Ne => Cond::Eq,
            Cond::Hs => Cond::Lo,
            Cond::Lo => Cond::Hs,
            Cond::Ge => Cond::Lt,
            Cond::Lt => Cond::Ge,
            Cond::Gt => Cond::Le,
            Cond::Le => Cond::Gt,
        }
    }
}

/// How an instruction uses its register 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Writes,
    Modifies,
    Reads,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub what: What,
    pub regs: SmallVec<[VReg; 4]>,
    pub numbers: SmallVec<[i64; 2]>,
    pub first: First,
    pub flow: Flow,
    pub kind: Kind,
    /// Operands in registers that the instruction fixes.
    pub implied: SmallVec<[Operand; 2]>,
}

impl Inst {
    /// An instruction that writes its register 0 and reads the others.
    pub(crate) fn new(what: What, regs: &[VReg], numbers: &[i64]) -> Inst {
        Inst {
            what,
            regs: regs.into(),
            numbers: numbers.into(),
            first: First::Writes,
            flow: Flow::Next,
            kind: Kind::Plain,
            implied: SmallVec::new(),
        }
    }

    /// A place or a branch.
    pub(crate) fn bare(what: What, flow: Flow) -> Inst {
        Inst { flow, ..Inst::new(what, &[], &[]) }
    }

    pub(crate) fn modify(self) -> Inst {
        Inst { first: First::Modifies, ..self }
    }

    pub(crate) fn read_only(self) -> Inst {
        Inst { first: First::Reads, ..self }
    }

    pub(crate) fn kind(self, kind: Kind) -> Inst {
        Inst { kind, ..self }
    }

    /// Operands for the allocator, in the order of `regs`.
    pub(crate) fn operands(&self) -> SmallVec<[Operand; 6]> {
        let mut list: SmallVec<[Operand; 6]> = smallvec![];
        for (k, vreg) in self.regs.iter().enumerate() {
            let role = match (k, self.first) {
                (0, First::Writes) => Role::Def,
                (0, First::Modifies) => Role::Mod,
                _ => Role::Use,
            };
            list.push(Operand { vreg: *vreg, role, constraint: Constraint::Reg });
        }
        list.extend(self.implied.iter().copied());
        list
    }

    /// Registers that it reads.
    fn reads(&self) -> &[VReg] {
        if self.first == First::Writes { self.regs.get(1..).unwrap_or_default() } else { &self.regs }
    }
}

/// An instruction that only marks a position in the code.
pub(crate) fn label(l: Label) -> Inst {
    Inst::bare(What::Mark, Flow::Label(l))
}

/// A copy between registers of a class.
pub(crate) fn copy(class: Class, to: VReg, from: VReg) -> Inst {
    let inst = if class == CLASS_G {
        Inst::new(What::Row(&rows::ADD_IMM[1]), &[to, from], &[0, 0])
    } else {
        // A shift by nothing: `mov` is an `orr` that names its source twice, which an instruction of two operands
        // cannot.
        Inst::new(What::Row(&rows::SHL[3]), &[to, from], &[0])
    };
    inst.kind(Kind::Copy)
}

/// Drops instructions whose result is not read (unused constants and addresses).
pub(crate) fn sweep(insts: &mut Vec<Inst>, vregs: usize) {
    let mut reads = vec![0u32; vregs];
    for inst in insts.iter() {
        inst.reads().iter().for_each(|v| reads[v.0 as usize] += 1);
        inst.implied.iter().filter(|o| o.role.reads()).for_each(|o| reads[o.vreg.0 as usize] += 1);
    }
    let mut dead = vec![false; insts.len()];
    for (k, inst) in insts.iter().enumerate().rev() {
        let pure = inst.first == First::Writes && inst.flow == Flow::Next && inst.implied.is_empty();
        if pure && inst.regs.first().is_some_and(|dst| reads[dst.0 as usize] == 0) {
            dead[k] = true;
            inst.reads().iter().for_each(|v| reads[v.0 as usize] -= 1);
        }
    }
    let mut dead = dead.into_iter();
    insts.retain(|_| dead.next() != Some(true));
}
