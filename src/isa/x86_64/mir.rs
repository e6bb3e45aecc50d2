//! Machine instructions before register allocation: iced-x86 codes on virtual registers.

use super::form::{Form, Width};
use doorbell_codegen::regalloc::{
    Class, Constraint, Flow, Kind, Label, Operand, PReg, RegClass, RegFile, RegInfo, Role, VReg,
};
use iced_x86::Code;
use smallvec::{SmallVec, smallvec};

/// Register files, in the order of [`reg_info`].
pub(crate) const GPR: u8 = 0;
pub(crate) const VEC: u8 = 1;
pub(crate) const MASK: u8 = 2;
pub(crate) const TILE: u8 = 3;

/// Register classes, in the order of [`reg_info`].
pub(crate) const CLASS_G: Class = Class(0);
pub(crate) const CLASS_X: Class = Class(1);
pub(crate) const CLASS_Y: Class = Class(2);
pub(crate) const CLASS_Z: Class = Class(3);
pub(crate) const CLASS_K: Class = Class(4);
pub(crate) const CLASS_T: Class = Class(5);

pub(crate) const RAX: PReg = PReg { file: GPR, index: 0 };
pub(crate) const RDX: PReg = PReg { file: GPR, index: 2 };
pub(crate) const RSI: PReg = PReg { file: GPR, index: 6 };
pub(crate) const RDI: PReg = PReg { file: GPR, index: 7 };

/// rbx, rbp, r12-r15: the caller's (System V ABI).
pub(crate) const CALLEE_SAVED: [u16; 6] = [3, 5, 12, 13, 14, 15];

/// The class of a vector register.
pub(crate) fn vec_class(width: Width) -> Class {
    match width {
        Width::X => CLASS_X,
        Width::Y => CLASS_Y,
        Width::Z => CLASS_Z,
    }
}

/// The machine's registers: 16 or 32 vector registers, rsp and k0 not given out.
pub(crate) fn reg_info(vector_regs: u16) -> RegInfo {
    let class = |name, file, bytes| RegClass { name, file, width: 1, align: 1, slot_bytes: bytes, slot_align: bytes };
    let gprs = vec![0, 1, 2, 6, 7, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15];
    RegInfo {
        files: vec![
            RegFile { name: "gpr", count: 16, order: gprs },
            RegFile { name: "vec", count: vector_regs, order: (0..vector_regs).collect() },
            RegFile { name: "mask", count: 8, order: (1..8).collect() },
            RegFile { name: "tile", count: 8, order: (0..8).collect() },
        ],
        classes: vec![
            class("gpr", GPR, 8),
            class("xmm", VEC, 16),
            class("ymm", VEC, 32),
            class("zmm", VEC, 64),
            class("k", MASK, 8),
            // Spilling one is an error of the opts: nothing moves tiles.
            class("tmm", TILE, 64),
        ],
    }
}

/// What a memory operand starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// A register.
    Reg(VReg),
    /// Bytes into the constants.
    Const(u32),
    /// Bytes into the thread's scratch on the stack.
    Local(u32),
}

/// `[base + index * scale + disp]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mem {
    pub base: Base,
    /// Index register and its kind (q, or X Y Z of a gather).
    pub index: Option<(VReg, u8)>,
    pub scale: u8,
    pub disp: i32,
    /// One element for all lanes.
    pub broadcast: bool,
}

impl Mem {
    pub(crate) fn base(reg: VReg) -> Mem {
        Mem { base: Base::Reg(reg), index: None, scale: 1, disp: 0, broadcast: false }
    }

    pub(crate) fn constant(offset: u32) -> Mem {
        Mem { base: Base::Const(offset), index: None, scale: 1, disp: 0, broadcast: false }
    }

    /// The same address plus some bytes.
    pub(crate) fn plus(self, bytes: i32) -> Mem {
        Mem { disp: self.disp + bytes, ..self }
    }
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Opd {
    /// A register, used as this kind (x y z k d q w b).
    Reg(VReg, u8),
    /// The same register as operand 0 (`vpxor x, x, x`).
    Same(u8),
    Imm(i64),
    Mem(Mem),
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub code: Code,
    /// A shorter encoding, if the registers and operands allow it.
    pub twin: Code,
    pub ops: SmallVec<[Opd; 4]>,
    /// Bit k: operand k is written.
    pub writes: u8,
    /// Bit k: operand k is read (a register operand that is neither would be odd).
    pub reads: u8,
    /// Merge or zero mask.
    pub mask: Option<VReg>,
    pub zeroing: bool,
    /// Index of an operand that may be read from its spill slot; 9: none.
    pub soft: u8,
    /// Sources must not share a register with the destination (gathers).
    pub apart: bool,
    pub flow: Flow,
    pub kind: Kind,
    /// Operands that the code implies.
    pub implied: SmallVec<[Operand; 2]>,
}

impl Inst {
    /// An instruction of a form; operand 0 is written, the others are read.
    pub(crate) fn new((form, twin): (Form, Code), ops: &[Opd]) -> Inst {
        let memory = ops.iter().any(|o| matches!(o, Opd::Mem(_)));
        let soft = if memory || form.mem == 0 || form.mem as usize >= ops.len() || form.kinds[form.mem as usize] == b'k'
        {
            9
        } else {
            form.mem
        };
        Inst {
            code: form.code,
            twin,
            ops: ops.into(),
            writes: 1,
            reads: !1,
            mask: None,
            zeroing: false,
            soft,
            apart: false,
            flow: Flow::Next,
            kind: Kind::Plain,
            implied: SmallVec::new(),
        }
    }

    /// A label, jump or other instruction without operands.
    pub(crate) fn bare(code: Code, flow: Flow) -> Inst {
        Inst { flow, ..Inst::new((Form { code, ..Form::NONE }, Code::INVALID), &[]) }
    }

    /// Operand 0 is read too.
    pub(crate) fn modify(mut self) -> Inst {
        self.reads |= 1;
        self
    }

    /// Operand 0 is read, not written (stores, comparisons).
    pub(crate) fn read_only(mut self) -> Inst {
        self.writes = 0;
        self.reads = !0;
        self
    }

    /// Lanes whose mask bit is 0 keep operand 0's old value.
    pub(crate) fn merge(mut self, k: VReg) -> Inst {
        self.mask = Some(k);
        if self.writes & 1 != 0 {
            self.reads |= 1;
        }
        self
    }

    /// Lanes whose mask bit is 0 become zero.
    pub(crate) fn zero(mut self, k: VReg) -> Inst {
        self.mask = Some(k);
        self.zeroing = true;
        self
    }

    pub(crate) fn kind(mut self, kind: Kind) -> Inst {
        self.kind = kind;
        self
    }

    /// Calls `f` with each register that is read, as often as it is.
    fn each_read(&self, mut f: impl FnMut(VReg)) {
        for (k, op) in self.ops.iter().enumerate() {
            match *op {
                Opd::Reg(v, _) if self.writes >> k & 1 == 0 || self.reads >> k & 1 == 1 => f(v),
                Opd::Mem(m) => {
                    if let Base::Reg(b) = m.base {
                        f(b);
                    }
                    if let Some((i, _)) = m.index {
                        f(i);
                    }
                }
                _ => {}
            }
        }
        self.mask.into_iter().for_each(&mut f);
        self.implied.iter().filter(|o| o.role.reads()).for_each(|o| f(o.vreg));
    }

    /// Operands for the allocator, in the order in which [`Inst::registers`] lists them.
    pub(crate) fn operands(&self) -> SmallVec<[Operand; 6]> {
        let mut list: SmallVec<[Operand; 6]> = smallvec![];
        let read = if self.apart { Role::UseLate } else { Role::Use };
        for (k, op) in self.ops.iter().enumerate() {
            match *op {
                Opd::Reg(vreg, _) => {
                    let role = match (self.writes >> k & 1, self.reads >> k & 1) {
                        (1, 1) => Role::Mod,
                        (1, _) if self.apart => Role::DefEarly,
                        (1, _) => Role::Def,
                        _ => read,
                    };
                    let soft = self.soft as usize == k && role == Role::Use;
                    let constraint = if soft { Constraint::RegOrSlot } else { Constraint::Reg };
                    list.push(Operand { vreg, role, constraint });
                }
                Opd::Mem(m) => {
                    let mut reg = |vreg| list.push(Operand { vreg, role: read, constraint: Constraint::Reg });
                    if let Base::Reg(b) = m.base {
                        reg(b);
                    }
                    if let Some((i, _)) = m.index {
                        reg(i);
                    }
                }
                Opd::Same(_) | Opd::Imm(_) => {}
            }
        }
        if let Some(k) = self.mask {
            let role = if self.apart { Role::Mod } else { Role::Use };
            list.push(Operand { vreg: k, role, constraint: Constraint::Reg });
        }
        list.extend(self.implied.iter().copied());
        list
    }
}

/// An instruction that only marks a position in the code.
pub(crate) fn label(l: Label) -> Inst {
    Inst::bare(Code::INVALID, Flow::Label(l))
}

/// Drops instructions whose result is not read (unused constants and addresses).
pub(crate) fn sweep(insts: &mut Vec<Inst>, vregs: usize) {
    let mut reads = vec![0u32; vregs];
    let count = |inst: &Inst, reads: &mut [u32], by: i32| {
        inst.each_read(|v| {
            let r = &mut reads[v.0 as usize];
            *r = r.wrapping_add_signed(by);
        });
    };
    insts.iter().for_each(|i| count(i, &mut reads, 1));
    let mut dead = vec![false; insts.len()];
    for (k, inst) in insts.iter().enumerate().rev() {
        let [Opd::Reg(dst, _), ..] = inst.ops[..] else { continue };
        let pure = inst.writes == 1 && inst.reads & 1 == 0 && inst.flow == Flow::Next && inst.implied.is_empty();
        if pure && reads[dst.0 as usize] == 0 {
            dead[k] = true;
            count(inst, &mut reads, -1);
        }
    }
    let mut dead = dead.into_iter();
    insts.retain(|_| dead.next() != Some(true));
}
