//! Machine instructions before register allocation: table operations on virtual registers.
//!
//! One [`Inst`] is what the allocator sees: mostly one operation, or a short bundle that must stay together (a compare
//! and the select that reads SCC, an access under its own EXEC mask). A value of several words is a tuple; instructions
//! may read and write parts of it.

use super::super::{Access, Chip, Modifiers, Op, Operand, Row, Target};
use doorbell_codegen::regalloc::{
    Class, Constraint, Flow, Func, Kind, Label, Operand as RegOperand, PReg, RegClass, RegFile, RegInfo, Role, VReg,
};
use smallvec::{SmallVec, smallvec};

/// Register files of the allocator.
pub(crate) const VGPR: u8 = 0;
pub(crate) const SGPR: u8 = 1;

/// Index of VCC (its low half) in the scalar file.
pub(crate) const VCC_INDEX: u16 = 106;
/// A pair of scalar registers that is never given out: addresses of far spill slots and far jumps.
pub(crate) const SPARE_SGPR: u16 = 100;

/// What code may use; values that do not fit are spilled, branches that reach too little become jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Vector registers of a thread, at least 32 (tuples of 16 must fit).
    pub vgprs: u16,
    /// Scalar registers of a wave, at least 32.
    pub sgprs: u16,
    /// Dwords over which a branch may go, at most 32767.
    pub branch_dwords: u16,
}

impl Default for Limits {
    /// All that the chips have.
    fn default() -> Limits {
        Limits { vgprs: 256, sgprs: SPARE_SGPR, branch_dwords: 0x7fff }
    }
}

/// Words of the classes of each file, in class order.
const WIDTHS: [u8; 6] = [1, 2, 3, 4, 8, 16];

/// The class of a tuple.
pub(crate) fn class_of(file: u8, words: u8) -> Class {
    let at = WIDTHS.iter().position(|w| *w >= words).unwrap_or(WIDTHS.len() - 1);
    Class(file * WIDTHS.len() as u8 + at as u8)
}

/// File and words of a class.
pub(crate) fn class_shape(class: Class) -> (u8, u8) {
    (class.0 / WIDTHS.len() as u8, WIDTHS[usize::from(class.0) % WIDTHS.len()])
}

/// The available registers: this many vector registers, and the scalar ones that are free within the limits.
pub(crate) fn reg_info(target: Target, vgprs: u16, limits: Limits) -> RegInfo {
    let mut classes = Vec::new();
    for (file, name) in [(VGPR, "vgpr"), (SGPR, "sgpr")] {
        for words in WIDTHS {
            let width = u16::from(words);
            let align = match (file, width) {
                (_, 1) => 1,
                (VGPR, _) => 1 + u16::from(target.chip == Chip::Gfx942),
                (_, 2) => 2,
                _ => 4,
            };
            let bytes = 4 * u32::from(width);
            classes.push(RegClass { name, file, width, align, slot_bytes: bytes, slot_align: 4 });
        }
    }
    let scalars =
        (VCC_INDEX..VCC_INDEX + u16::from(target.mask_words())).chain(2..SPARE_SGPR.min(limits.sgprs)).collect();
    RegInfo {
        files: vec![
            RegFile { name: "vgpr", count: 256, order: (0..vgprs).collect() },
            RegFile { name: "sgpr", count: 108, order: scalars },
        ],
        classes,
    }
}

/// Consecutive words of a virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub reg: VReg,
    pub sub: u8,
    pub words: u8,
}

/// An operand of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Opd {
    Part(Part),
    /// A constant, or a register that is not given out.
    Given(Operand),
}

impl From<Part> for Opd {
    fn from(p: Part) -> Opd {
        Opd::Part(p)
    }
}

impl From<Operand> for Opd {
    fn from(o: Operand) -> Opd {
        Opd::Given(o)
    }
}

impl From<i64> for Opd {
    fn from(v: i64) -> Opd {
        Opd::Given(Operand::Int(v))
    }
}

/// One operation with its operands in the order of the assembler's text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Code {
    pub op: Op,
    pub opds: SmallVec<[Opd; 5]>,
    pub mods: Modifiers,
}

impl Code {
    pub(crate) fn new(op: Op, opds: &[Opd]) -> Code {
        Code { op, opds: opds.into(), mods: Modifiers::default() }
    }

    pub(crate) fn offset(mut self, bytes: i32) -> Code {
        self.mods.offset = bytes;
        self
    }

    /// Negates sources by their bits.
    pub(crate) fn neg(mut self, mask: u8) -> Code {
        self.mods.neg = mask;
        self
    }

    /// What the operation does with operand `k`.
    pub(crate) fn access(&self, chip: Chip, k: usize) -> Access {
        let row: Option<&Row> = self.op.rows(chip).next();
        row.and_then(|r| r.slots.get(k)).map_or(Access::Read, |s| s.access)
    }
}

/// The values that the allocator allocates.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub codes: SmallVec<[Code; 1]>,
    /// Operands for the allocator; those that `codes` name, then those that are only implied.
    pub regs: SmallVec<[RegOperand; 4]>,
    pub flow: Flow,
    pub kind: Kind,
}

impl Inst {
    /// A label or another place without operands.
    pub(crate) fn bare(flow: Flow) -> Inst {
        Inst { codes: smallvec![], regs: smallvec![], flow, kind: Kind::Plain }
    }

    pub(crate) fn label(l: Label) -> Inst {
        Inst::bare(Flow::Label(l))
    }

    pub(crate) fn kind(mut self, kind: Kind) -> Inst {
        self.kind = kind;
        self
    }

    /// Ties a register operand (or an implied one) to VCC.
    pub(crate) fn in_vcc(mut self, reg: VReg, role: Role) -> Inst {
        let vcc = Constraint::Fixed(PReg { file: SGPR, index: VCC_INDEX });
        match self.regs.iter_mut().find(|r| r.vreg == reg) {
            Some(r) => r.constraint = vcc,
            None => self.regs.push(RegOperand { vreg: reg, role, constraint: vcc }),
        }
        self
    }

    /// The allocator's operand for a part, read or written.
    pub(crate) fn index_of(&self, reg: VReg, writes: bool) -> Option<usize> {
        let same = |r: &RegOperand| r.vreg == reg;
        let exact = |r: &RegOperand| same(r) && if writes { r.role.writes() } else { r.role.reads() };
        self.regs.iter().position(exact).or_else(|| self.regs.iter().position(same))
    }

    /// Whether it does nothing but write registers.
    fn is_pure(&self) -> bool {
        let memory = |c: &Code| {
            let name = c.op.name();
            name.contains("store") || name.contains("write") || name.contains("exec") || name.starts_with("s_barrier")
        };
        self.flow == Flow::Next && !self.codes.is_empty() && !self.codes.iter().any(memory)
    }
}

/// Joins codes as one instruction; `whole` tells whether a part is its whole register, or a first write to it.
pub(crate) fn inst(chip: Chip, codes: SmallVec<[Code; 1]>, whole: &mut dyn FnMut(Part) -> bool) -> Inst {
    let mut regs: SmallVec<[RegOperand; 4]> = smallvec![];
    let bundle = codes.len() > 1;
    let mut add = |part: Part, reads: bool, writes: bool| {
        let fresh = writes && !reads && whole(part);
        let known = regs.iter_mut().find(|r| r.vreg == part.reg && (bundle || writes && !fresh || r.role == Role::Mod));
        let role = match (reads || writes && !fresh, writes) {
            (true, true) => Role::Mod,
            (false, true) if bundle => Role::DefEarly,
            (false, true) => Role::Def,
            _ if bundle => Role::UseLate,
            _ => Role::Use,
        };
        match known {
            None => {
                if !regs.iter().any(|r| r.vreg == part.reg && r.role == role) {
                    regs.push(RegOperand { vreg: part.reg, role, constraint: Constraint::Reg });
                }
            }
            // Written by the bundle itself before it is read: still a result only.
            Some(r) if r.role == Role::DefEarly => {}
            Some(r) if r.role != role => r.role = Role::Mod,
            Some(_) => {}
        }
    };
    for code in &codes {
        for pass in [false, true] {
            for (k, opd) in code.opds.iter().enumerate() {
                let access = code.access(chip, k);
                let Opd::Part(part) = *opd else { continue };
                match (access, pass) {
                    (Access::Read, false) => add(part, true, false),
                    (Access::ReadWrite, true) => add(part, true, true),
                    (Access::Write, true) => add(part, false, true),
                    _ => {}
                }
            }
        }
    }
    Inst { codes, regs, flow: Flow::Next, kind: Kind::Plain }
}

/// Drops instructions whose results are not read.
pub(crate) fn sweep(insts: &mut Vec<Inst>, vregs: usize) {
    let mut reads = vec![0u32; vregs];
    // What an instruction reads of a register that it also writes does not keep it alive.
    let read_by = |inst: &Inst| -> SmallVec<[VReg; 4]> {
        inst.regs.iter().filter(|r| r.role.reads() && r.role != Role::Mod).map(|r| r.vreg).collect()
    };
    for v in insts.iter().flat_map(read_by) {
        reads[v.0 as usize] += 1;
    }
    for r in insts.iter().filter(|i| !i.is_pure()).flat_map(|i| i.regs.iter()).filter(|r| r.role == Role::Mod) {
        reads[r.vreg.0 as usize] += 1;
    }
    loop {
        let mut dead = vec![false; insts.len()];
        for (k, inst) in insts.iter().enumerate().rev() {
            let written = || inst.regs.iter().filter(|r| r.role.writes());
            if inst.is_pure() && written().count() > 0 && written().all(|r| reads[r.vreg.0 as usize] == 0) {
                dead[k] = true;
                for v in read_by(inst) {
                    reads[v.0 as usize] -= 1;
                }
            }
        }
        if !dead.contains(&true) {
            return;
        }
        let mut dead = dead.into_iter();
        insts.retain(|_| dead.next() != Some(true));
    }
}

/// Passes the instructions to the allocator.
pub(crate) fn describe(insts: &[Inst], func: &mut Func) {
    for i in insts {
        func.push(i.kind, i.flow, &i.regs, &[]);
    }
}
