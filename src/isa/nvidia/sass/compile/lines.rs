//! Code with physical registers, line by line.

use super::AsmError;
use super::mir::{Code, Mach, Nature, Pred, RegField, Term};
use super::read::call::FUNCTIONS;
use crate::ptx::Pos;
use crate::sass::{Guard, Instruction, Role, is_group_multiply, op};
use smallvec::{SmallVec, smallvec};

/// Reads as zero.
const RZ: u8 = 255;

/// A line of code with its registers.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are instructions
pub(super) enum Line {
    Label(usize),
    /// An instruction, and the label it goes to.
    Inst(Instruction, Option<usize>),
}

/// How a block ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    Branch(Pred, usize),
    /// A branch where that uniform predicate is set; if true, where it is not.
    Uniform(u8, bool, usize),
    Jump(usize),
    Exit,
}

/// The branches at a block's end if `next` is the next block in the layout.
pub(super) fn ends(code: &Code, b: usize, next: Option<usize>) -> SmallVec<[End; 2]> {
    let jump = |to| Some(End::Jump(to)).filter(|_| Some(to) != next);
    match code.blocks[b].term {
        Term::Exit => smallvec![End::Exit],
        Term::Jump(to) => jump(to).into_iter().collect(),
        Term::Branch(_, x, y, _) | Term::Uniform(_, _, x, y) if x == y => jump(x).into_iter().collect(),
        Term::Branch(p, x, y, _) => {
            let (p, x, y) = if Some(x) == next { (p.not(), y, x) } else { (p, x, y) };
            std::iter::once(End::Branch(p, x)).chain(jump(y)).collect()
        }
        Term::Uniform(p, not, x, y) => {
            let (not, x, y) = if Some(x) == next { (!not, y, x) } else { (not, x, y) };
            std::iter::once(End::Uniform(p, not, x)).chain(jump(y)).collect()
        }
    }
}

/// A place where code beside the body is called.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The label that stands for it.
    pub label: usize,
    /// Number of the code.
    pub code: usize,
    /// The first register of its result, and of each operand.
    pub registers: SmallVec<[u64; 3]>,
}

pub(super) struct Lines<'a> {
    code: &'a Code,
    /// Bytes of the frame.
    pub frame_bytes: u32,
    pub all: Vec<Line>,
    /// Number of labels: the blocks' numbers, then more.
    pub labels: usize,
    /// It contains wgmma instructions.
    pub multiplies: bool,
    pub places: Vec<Place>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(code: &'a Code, frame_bytes: u32) -> Lines<'a> {
        let room = code.blocks.iter().map(|b| b.ops.len() + 3).sum::<usize>() + 8;
        let labels = code.blocks.len() + code.calls + code.places;
        Lines { code, frame_bytes, all: Vec::with_capacity(room), labels, multiplies: false, places: vec![] }
    }

    pub(crate) fn label(&mut self, label: usize) {
        self.all.push(Line::Label(label));
    }

    /// Adds an instruction that already has physical registers.
    pub(crate) fn add(&mut self, m: Mach, target: Option<usize>) -> Result<(), AsmError> {
        match m.fault() {
            Some(e) => Err(AsmError::new(m.pos, e.to_string())),
            None => {
                self.line(m.inst, target);
                Ok(())
            }
        }
    }

    /// Adds an instruction, unless it copies a register to itself.
    pub(crate) fn line(&mut self, inst: Instruction, target: Option<usize>) {
        let value = |slot| inst.get(slot, Role::Value);
        if !(std::ptr::eq(inst.form(), op::MOV_R) && value("d") == value("b")) {
            self.all.push(Line::Inst(inst, target));
        }
    }

    /// Adds an instruction; `of` gives the registers for its fields, once each and in order.
    #[inline]
    pub(crate) fn place(
        &mut self,
        m: &Mach,
        mut register: impl FnMut(&RegField) -> Result<u64, AsmError>,
    ) -> Result<(), AsmError> {
        let calls = self.code.blocks.len();
        if let Nature::Beside(code, place) = m.nature {
            let label = calls + self.code.calls + place as usize;
            let registers = m.regs.iter().map(register).collect::<Result<_, _>>()?;
            self.places.push(Place { label, code: code as usize, registers });
            self.label(label);
            return Ok(());
        }
        let mut inst = m.inst;
        for r in &m.regs {
            let index = register(r)?;
            Mach::placed(&mut inst, r, index).map_err(|e| AsmError::new(m.pos, e.to_string()))?;
        }
        if m.above {
            self.raise(&mut inst, m.pos)?;
        }
        let target = match m.nature {
            Nature::Converge(_, to) => Some(to as usize),
            Nature::Address(call) => Some(calls + call as usize),
            Nature::Call(f, _) => Some(FUNCTIONS + f as usize),
            _ => None,
        };
        if is_group_multiply(&inst) {
            self.multiplies = true;
            if ![Some(u64::from(RZ)), inst.get("d", Role::Value)].contains(&inst.get("c", Role::Value)) {
                return Err(AsmError::new(m.pos, "sums are added to in other registers".into()));
            }
        }
        self.line(inst, target);
        if let Nature::Call(_, call) = m.nature {
            self.label(calls + call as usize);
        }
        Ok(())
    }

    /// A branch if the predicate, in that register if it has one, is set.
    pub(crate) fn branch(&mut self, p: Pred, register: Option<u64>, to: usize) -> Result<(), AsmError> {
        let mut m = Mach::new(op::BRA_I).n("pp", 7);
        m.inst.guard.not = p.not;
        if let Some(r) = register {
            m.inst.guard = Guard { index: r as u8, not: p.not };
        }
        self.add(m, Some(to))
    }

    /// A branch if the uniform predicate of that number is set, or not set.
    pub(super) fn uniform_branch(&mut self, register: u8, not: bool, to: usize) -> Result<(), AsmError> {
        let mut m = Mach::new(op::BRA_U).n("pp", 7).n("up", register.into());
        if not && let Err(e) = m.inst.set("up", Role::Not, 1) {
            return Err(AsmError::new(m.pos, e.to_string()));
        }
        self.add(m, Some(to))
    }

    pub(super) fn jump(&mut self, to: usize) -> Result<(), AsmError> {
        self.add(Mach::new(op::BRA_I).n("pp", 7), Some(to))
    }

    /// The exit, unless control flow has already left.
    pub(crate) fn exit(&mut self) -> Result<(), AsmError> {
        match self.all.last() {
            Some(Line::Inst(i, _)) if i.form().mnemonic == "RET" => Ok(()),
            _ => self.add(Mach::new(op::EXIT_N), None),
        }
    }

    /// Resolves an offset, or a constant, that is relative to the end of the frame.
    fn raise(&self, inst: &mut Instruction, pos: Pos) -> Result<(), AsmError> {
        let offset = inst.form().position("m", Role::Offset).is_some();
        let (slot, role) = if offset { ("m", Role::Offset) } else { ("b", Role::Value) };
        let value = inst.get(slot, role).unwrap_or(0) + u64::from(self.frame_bytes);
        inst.set(slot, role, value).map(|_| ()).map_err(|e| AsmError::new(pos, e.to_string()))
    }
}
