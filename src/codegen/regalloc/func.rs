//! What the allocator reads and writes: a target's registers, a function of neutral instructions, and the allocation.

use std::ops::Range;

/// A virtual register: an index among the function's virtual registers. Not SSA: it may be written more than once, also
/// in loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VReg(pub u32);

/// An index into [`RegInfo::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class(pub u8);

/// A jump target, made by [`Func::label`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(pub u32);

/// A physical register; for a tuple its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PReg {
    /// Index into [`RegInfo::files`].
    pub file: u8,
    /// Number of the register in its file.
    pub index: u16,
}

/// Registers of one kind that can stand for one another (general, vector, mask ...).
#[derive(Clone, Debug)]
pub struct RegFile {
    /// For messages.
    pub name: &'static str,
    /// Number of registers, at most [`RegFile::MAX`].
    pub count: u16,
    /// Registers that may be allocated, best first; the others are reserved.
    pub order: Vec<u16>,
}

impl RegFile {
    /// The largest file: four 64-bit words of bits.
    pub const MAX: u16 = 256;
}

/// What a virtual register needs: `width` consecutive registers of a file, the first a multiple of `align`.
#[derive(Clone, Debug)]
pub struct RegClass {
    /// For messages.
    pub name: &'static str,
    /// Index into [`RegInfo::files`].
    pub file: u8,
    /// Consecutive registers, 1 to 64.
    pub width: u16,
    /// The first register's index is a multiple of this.
    pub align: u16,
    /// Bytes of a spill slot.
    pub slot_bytes: u32,
    /// Alignment of a spill slot, a power of two.
    pub slot_align: u32,
}

/// A target's registers.
#[derive(Clone, Debug)]
pub struct RegInfo {
    /// Register files; a [`PReg`] names one by index.
    pub files: Vec<RegFile>,
    /// Register classes; a [`Class`] names one by index.
    pub classes: Vec<RegClass>,
}

/// When an instruction reads or writes an operand. Reads happen before writes, unless the role says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read before anything is written: may share a register with a `Def`.
    Use,
    /// Read while results are written: may not share a register with a `Def`.
    UseLate,
    /// Written at the end.
    Def,
    /// Written while inputs are still read: may not share a register with an input. The instruction must not read the
    /// same virtual register.
    DefEarly,
    /// Read and written in the same register (two-address forms, accumulators, partial and predicated writes).
    Mod,
}

impl Role {
    /// Whether the old value is read.
    pub fn reads(self) -> bool {
        matches!(self, Role::Use | Role::UseLate | Role::Mod)
    }

    /// Whether a new value is written.
    pub fn writes(self) -> bool {
        matches!(self, Role::Def | Role::DefEarly | Role::Mod)
    }

    /// The points (2·inst: reads, 2·inst + 1: writes) at which the operand holds its register.
    pub(super) fn points(self, inst: u32) -> Range<u32> {
        let (early, late) = (2 * inst, 2 * inst + 1);
        match self {
            Role::Use => early..early + 1,
            Role::Def => late..late + 1,
            Role::UseLate | Role::DefEarly | Role::Mod => early..late + 1,
        }
    }
}

/// Where an operand may be located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Any register of the class.
    Reg,
    /// A register or, if spilled, the slot itself (a memory operand). Only for `Role::Use`.
    RegOrSlot,
    /// This register only.
    Fixed(PReg),
}

/// One operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The value.
    pub vreg: VReg,
    /// Read, written, or both, and when.
    pub role: Role,
    /// Where it may be located.
    pub constraint: Constraint,
}

impl Operand {
    /// A register read.
    pub fn reads(vreg: VReg) -> Self {
        Self { vreg, role: Role::Use, constraint: Constraint::Reg }
    }

    /// A register written.
    pub fn writes(vreg: VReg) -> Self {
        Self { vreg, role: Role::Def, constraint: Constraint::Reg }
    }

    /// A register read and written in place.
    pub fn modifies(vreg: VReg) -> Self {
        Self { vreg, role: Role::Mod, constraint: Constraint::Reg }
    }

    /// The same operand tied to one register.
    pub fn fixed(self, preg: PReg) -> Self {
        Self { constraint: Constraint::Fixed(preg), ..self }
    }
}

/// How control leaves an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// This is a jump target; no operands.
    Label(Label),
    /// Always to the label; no operands.
    Jump(Label),
    /// To the label or to the next instruction; writes nothing.
    Branch(Label),
    /// Out of the function.
    Return,
}

/// What the allocator may assume about an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing special.
    Plain,
    /// Operand 0 receives operand 1 unchanged: worth giving both the same register.
    Copy,
    /// Operand 0 is written from nothing that can change (a constant): rematerialising it is cheaper than spilling.
    Remat,
}

/// An instruction: ranges into the function's operand and clobber lists.
#[derive(Clone, Copy, Debug)]
pub struct Inst {
    pub(super) operands: (u32, u32),
    pub(super) clobbers: (u32, u32),
    /// Where control goes.
    pub flow: Flow,
    /// Copy, constant or neither.
    pub kind: Kind,
}

/// A function in linear order.
#[derive(Clone, Debug, Default)]
pub struct Func {
    pub(super) vregs: Vec<Class>,
    pub(super) insts: Vec<Inst>,
    pub(super) operands: Vec<Operand>,
    pub(super) clobbers: Vec<PReg>,
    /// Some operand is fixed to a register.
    pub(super) fixes: bool,
    labels: u32,
}

impl Func {
    /// A new virtual register.
    pub fn vreg(&mut self, class: Class) -> VReg {
        self.vregs.push(class);
        VReg(self.vregs.len() as u32 - 1)
    }

    /// Reserves room for that many more instructions and operands.
    pub fn reserve(&mut self, insts: usize, operands: usize) {
        self.insts.reserve(insts);
        self.operands.reserve(operands);
    }

    /// A new jump target; place it with [`Flow::Label`].
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Appends an instruction and returns its index. `clobbers` are registers that are overwritten when results are
    /// written; the registers of fixed results need not be repeated there.
    pub fn push(&mut self, kind: Kind, flow: Flow, operands: &[Operand], clobbers: &[PReg]) -> u32 {
        let (o, c) = (self.operands.len() as u32, self.clobbers.len() as u32);
        self.operands.extend_from_slice(operands);
        self.fixes |= operands.iter().any(|o| matches!(o.constraint, Constraint::Fixed(_)));
        self.clobbers.extend_from_slice(clobbers);
        let (oe, ce) = (self.operands.len() as u32, self.clobbers.len() as u32);
        self.insts.push(Inst { operands: (o, oe), clobbers: (c, ce), flow, kind });
        self.insts.len() as u32 - 1
    }

    /// Number of instructions.
    pub fn len(&self) -> usize {
        self.insts.len()
    }

    /// Whether there are no instructions.
    pub fn is_empty(&self) -> bool {
        self.insts.is_empty()
    }

    /// The class of a virtual register.
    pub fn class(&self, v: VReg) -> Class {
        self.vregs[v.0 as usize]
    }

    /// An instruction.
    pub fn inst(&self, i: u32) -> &Inst {
        &self.insts[i as usize]
    }

    /// Indexes of an instruction's operands in [`Allocation::operands`].
    pub fn operand_range(&self, i: u32) -> Range<usize> {
        let (from, to) = self.insts[i as usize].operands;
        from as usize..to as usize
    }

    /// An instruction's operands.
    pub fn operands(&self, i: u32) -> &[Operand] {
        &self.operands[self.operand_range(i)]
    }

    /// Registers that an instruction clobbers.
    pub fn clobbers(&self, i: u32) -> &[PReg] {
        let (from, to) = self.insts[i as usize].clobbers;
        &self.clobbers[from as usize..to as usize]
    }

    /// Number of virtual registers.
    pub fn vreg_count(&self) -> usize {
        self.vregs.len()
    }

    /// Number of labels made.
    pub fn label_count(&self) -> usize {
        self.labels as usize
    }
}

/// Where a value is located.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Loc {
    /// In a register (the first of a tuple).
    Reg(PReg),
    /// In a slot of the frame: an index into [`Frame::slots`].
    Slot(u32),
}

/// An instruction that the allocator inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Copy between registers, store to a slot or load from it; never slot to slot.
    Move {
        /// Decides width and slot size.
        class: Class,
        /// Source.
        from: Loc,
        /// Destination.
        to: Loc,
    },
    /// Rematerialise: repeat a [`Kind::Remat`] instruction into another register.
    Remat {
        /// The instruction to repeat.
        inst: u32,
        /// Its new destination.
        to: PReg,
    },
}

/// A spill slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Bytes from the frame's start.
    pub offset: u32,
    /// Its length.
    pub len_bytes: u32,
}

/// The spill area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Slots by index.
    pub slots: Vec<Slot>,
    /// Length of the area, a multiple of `align`.
    pub len_bytes: u32,
    /// Alignment that the area's start needs.
    pub align: u32,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Allocation {
    /// A location for each operand; [`Func::operand_range`] gives an instruction's range.
    pub operands: Vec<Loc>,
    /// Instructions to insert: `(i, edit)` goes before instruction `i`, in list order. Before a label it means: only on
    /// fallthrough into the label.
    pub edits: Vec<(u32, Edit)>,
    /// Edits that run only if the branch `i` is taken: retarget the branch to a stub that contains them and then jumps
    /// on.
    pub edge_edits: Vec<(u32, Vec<Edit>)>,
    /// The spill area.
    pub frame: Frame,
    /// Registers that the function writes.
    pub written: Vec<PReg>,
}
