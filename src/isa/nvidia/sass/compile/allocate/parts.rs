//! Allocation with live-range splitting and spilling: presents the code to the shared allocator, and applies its
//! result.
//!
//! The allocator sees a group of glued instructions as one. Values are spilled to the thread's frame; predicates are
//! spilled to general registers.

use super::live::bundle_start;
use super::place::{GENERAL, PREDICATES, STACK};
use super::touch::{ON_STACK, Work};
use crate::ptx::Pos;
use crate::sass::compile::AsmError;
use crate::sass::compile::lines::{End, Lines, ends};
use crate::sass::compile::mir::{Code, FOUR, Mach, Nature, ONE, PRED, Pred, RegField, TWO, width};
use crate::sass::compile::select::Selected;
use crate::sass::{Role, mods, op};
use doorbell_codegen::regalloc::{
    self, Allocation, Class, Edit, Flow, Func, Kind, Loc, Operand, PReg, Role as Use, VReg,
};
use smallvec::SmallVec;

/// What an instruction of the allocator stands for.
enum Step {
    Label(usize),
    /// A range of a block's instructions, and the first of their register fields in `fields`.
    Group(usize, usize, usize, usize),
    End(End),
    Undefined,
}

pub(crate) struct Parts<'a> {
    code: &'a Code,
    stack: VReg,
    pub func: Func,
    steps: Vec<Step>,
    labels: Vec<regalloc::Label>,
    /// For each register field, in order, the operand of the allocator's instruction that it belongs to.
    fields: Vec<u16>,
    work: Work,
}

impl<'a> Parts<'a> {
    /// The code as the allocator sees it. The registers in `undefined` may be read before they are written. With
    /// `calls`, calls clobber all registers.
    pub(crate) fn of(selected: &'a Selected, undefined: &[VReg], calls: bool) -> Parts<'a> {
        let (func, stack) = (Func::default(), selected.stack.reg());
        let (fields, work) = (vec![], Work::default());
        let mut parts = Parts { code: &selected.code, stack, func, steps: vec![], labels: vec![], fields, work };
        parts.build(undefined, calls);
        parts
    }

    fn build(&mut self, undefined: &[VReg], calls: bool) {
        for c in &self.code.classes {
            self.func.vreg(*c);
        }
        self.labels = (0..self.code.blocks.len()).map(|_| self.func.label()).collect();
        let order = self.code.order.clone();
        let of = |file, count| (0..count).map(move |index| PReg { file, index });
        let calls = calls && self.code.calls > 0;
        let all: Vec<PReg> = if calls { of(PREDICATES, 7).chain(of(GENERAL, 255)).collect() } else { vec![] };
        let groups: usize = order.iter().map(|b| self.code.blocks[*b].ops.len() + 3).sum();
        self.steps.reserve(groups);
        self.func.reserve(groups, 4 * groups);
        self.fields.reserve(4 * groups);
        for (k, b) in order.iter().enumerate() {
            self.func.push(Kind::Plain, Flow::Label(self.labels[*b]), &[], &[]);
            self.steps.push(Step::Label(*b));
            if k == 0 {
                for v in undefined {
                    self.func.push(Kind::Plain, Flow::Next, &[Operand::writes(*v)], &[]);
                    self.steps.push(Step::Undefined);
                }
            }
            let ops = &self.code.blocks[*b].ops;
            let mut from = 0;
            while from < ops.len() {
                let mut to = from + 1;
                while to < ops.len() && ops[to].glued {
                    to += 1;
                }
                debug_assert_eq!(bundle_start(ops, to), from);
                self.steps.push(Step::Group(*b, from, to, self.fields.len()));
                let operands = self.work.group(&ops[from..to], &self.code.classes, self.stack, &mut self.fields);
                let kind = kind(&ops[from..to], operands);
                let call = calls && matches!(ops[from].nature, Nature::Call(..));
                let clobbers: &[PReg] = if call { &all } else { &[] };
                self.func.push(kind, Flow::Next, operands, clobbers);
                from = to;
            }
            for end in ends(self.code, *b, order.get(k + 1).copied()) {
                let operands: SmallVec<[Operand; 1]> = match end {
                    End::Branch(p, _) => p.word.map(|w| Operand::reads(w.reg())).into_iter().collect(),
                    _ => SmallVec::new(),
                };
                let flow = match end {
                    End::Branch(_, to) | End::Uniform(_, _, to) => Flow::Branch(self.labels[to]),
                    End::Jump(to) => Flow::Jump(self.labels[to]),
                    End::Exit => Flow::Return,
                };
                self.func.push(Kind::Plain, flow, &operands, &[]);
                self.steps.push(Step::End(end));
            }
        }
    }
}

fn kind(group: &[Mach], operands: &[Operand]) -> Kind {
    let all = |n: Nature| group.iter().all(|m| m.nature == n);
    let clean = operands.first().is_some_and(|o| o.role == Use::Def);
    match operands.len() {
        2 if clean && all(Nature::Copy) => Kind::Copy,
        1 if clean && all(Nature::Constant) => Kind::Remat,
        _ => Kind::Plain,
    }
}

/// Applies an allocation to the code.
pub(super) struct Apply<'a> {
    parts: &'a Parts<'a>,
    alloc: &'a Allocation,
    lines: Lines<'a>,
    parking: Parking,
    /// Where spill slots begin in the frame.
    frame: u32,
    spills: usize,
}

/// Where predicates are spilled to.
enum Parking {
    /// Through that general register to the frame, since calls clobber all others.
    Frame(u64),
    /// To general registers from that one on, one for each slot.
    Registers(u64, Vec<u32>),
}

/// Slots that predicates are spilled to.
pub(super) fn parked(alloc: &Allocation) -> Vec<u32> {
    let mut slots: Vec<u32> = vec![];
    for e in edits(alloc) {
        let Edit::Move { class: PRED, from, to } = e else { continue };
        for l in [from, to] {
            if let Loc::Slot(n) = l
                && !slots.contains(n)
            {
                slots.push(*n);
            }
        }
    }
    slots
}

fn edits(alloc: &Allocation) -> impl Iterator<Item = &Edit> {
    alloc.edits.iter().map(|e| &e.1).chain(alloc.edge_edits.iter().flat_map(|e| &e.1))
}

/// Whether values of such classes are spilled.
pub(crate) fn spills(alloc: &Allocation, of: impl Fn(Class) -> bool) -> bool {
    let slot = |l: &Loc| matches!(l, Loc::Slot(_));
    edits(alloc).any(|e| matches!(e, Edit::Move { class, from, to } if of(*class) && (slot(from) || slot(to))))
}

/// Whether register tuples of wgmma accumulators are moved.
pub(super) fn moves_runs(alloc: &Allocation) -> bool {
    edits(alloc).any(|e| matches!(e, Edit::Move { class, .. } if class.0 > FOUR.0))
}

impl<'a> Apply<'a> {
    /// `first` is the first register reserved for predicates; the frame has `local_bytes` besides spill slots.
    pub(crate) fn new(parts: &'a Parts<'a>, alloc: &'a Allocation, first: u16, local_bytes: u32) -> Apply<'a> {
        let frame = local_bytes.next_multiple_of(16);
        let calls = parts.code.calls > 0;
        let slots = if spills(alloc, |c| calls || c != PRED) { alloc.frame.len_bytes.next_multiple_of(16) } else { 0 };
        let lines = Lines::new(parts.code, frame + slots);
        let first = u64::from(first);
        let parking = if calls { Parking::Frame(first) } else { Parking::Registers(first, parked(alloc)) };
        Apply { parts, alloc, lines, parking, frame, spills: 0 }
    }

    /// All lines, and how many of them are spill stores and reloads.
    pub(crate) fn all(mut self) -> Result<(Lines<'a>, usize), AsmError> {
        let mut next = self.alloc.edits.iter().peekable();
        let mut stubs = vec![];
        for (i, step) in self.parts.steps.iter().enumerate() {
            let i = i as u32;
            while let Some((_, edit)) = next.next_if(|e| e.0 == i) {
                self.edit(edit)?;
            }
            match step {
                Step::Label(b) => self.lines.label(*b),
                Step::Group(b, from, to, fields) => {
                    let group = &self.parts.code.blocks[*b].ops[*from..*to];
                    self.group(i, group, *fields)?;
                }
                Step::Undefined if self.parts.code.calls > 0 || self.is_frail(i) => self.define(i)?,
                Step::Undefined => {}
                Step::End(End::Exit) => self.lines.exit()?,
                Step::End(End::Branch(p, to)) => {
                    let to = self.target(i, *to, &mut stubs);
                    let first = self.parts.func.operand_range(i).start;
                    let guard = p.word.map(|_| register(self.alloc.operands[first])).transpose()?;
                    self.lines.branch(*p, guard, to)?;
                }
                Step::End(End::Uniform(p, not, to)) => {
                    let to = self.target(i, *to, &mut stubs);
                    self.lines.uniform_branch(*p, *not, to)?;
                }
                Step::End(End::Jump(to)) => {
                    let to = self.target(i, *to, &mut stubs);
                    self.lines.jump(to)?;
                }
            }
        }
        for (branch, label, to) in stubs {
            self.lines.label(label);
            for (_, edits) in self.alloc.edge_edits.iter().filter(|e| e.0 == branch) {
                edits.iter().try_for_each(|e| self.edit(e))?;
            }
            self.lines.jump(to)?;
        }
        Ok((self.lines, self.spills))
    }

    fn target(&mut self, i: u32, to: usize, stubs: &mut Vec<(u32, usize, usize)>) -> usize {
        if !self.alloc.edge_edits.iter().any(|e| e.0 == i) {
            return to;
        }
        let label = self.lines.labels;
        self.lines.labels += 1;
        stubs.push((i, label, to));
        label
    }

    fn group(&mut self, i: u32, group: &[Mach], fields: usize) -> Result<(), AsmError> {
        let parts = self.parts;
        let locs = &self.alloc.operands[parts.func.operand_range(i)];
        let mut fields = parts.fields[fields..].iter();
        for m in group {
            let of = |r: &RegField| match fields.next() {
                Some(&ON_STACK) | None => Ok(STACK),
                Some(k) => Ok(register(locs[usize::from(*k)])? + u64::from(r.word.sub())),
            };
            self.lines.place(m, of)?;
        }
        Ok(())
    }

    /// Gives an undefined register a value, if a call may cause it to be spilled.
    fn define(&mut self, i: u32) -> Result<(), AsmError> {
        let Some(o) = self.parts.func.operands(i).first() else { return Ok(()) };
        let Loc::Reg(r) = self.alloc.operands[self.parts.func.operand_range(i).start] else { return Ok(()) };
        let (class, first) = (self.parts.code.classes[o.vreg.0 as usize], u64::from(r.index));
        if class == PRED {
            return self.lines.add(Mach::new(op::ISETP_R).n("pu", first).m(mods::cmp::EQ).p("pp", Pred::TRUE), None);
        }
        for k in 0..u64::from(width(class)) {
            self.lines.add(Mach::new(op::MOV_R).n("d", first + k).n("mask", 15), None)?;
        }
        Ok(())
    }

    /// Whether an undefined register is a predicate that may be spilled to the frame; other registers can be spilled
    /// undefined.
    fn is_frail(&self, i: u32) -> bool {
        let pred = |o: &Operand| self.parts.code.classes[o.vreg.0 as usize] == PRED;
        self.parts.func.operands(i).first().is_some_and(pred) && spills(self.alloc, |c| c == PRED)
    }

    fn edit(&mut self, edit: &Edit) -> Result<(), AsmError> {
        match *edit {
            Edit::Remat { inst, to } => {
                let Step::Group(b, from, end, _) = self.parts.steps[inst as usize] else { return Ok(()) };
                for m in &self.parts.code.blocks[b].ops[from..end] {
                    let mut inst = m.inst;
                    for r in m.regs.iter().filter(|r| r.write) {
                        let index = u64::from(to.index) + u64::from(r.word.sub());
                        Mach::placed(&mut inst, r, index).map_err(|e| AsmError::new(m.pos, e.to_string()))?;
                    }
                    self.lines.line(inst, None);
                }
                Ok(())
            }
            Edit::Move { class, from, to } => match (from, to) {
                (Loc::Reg(a), Loc::Reg(b)) => self.copy(class, a.index.into(), b.index.into()),
                (Loc::Slot(n), Loc::Reg(r)) => self.spill(class, n, r.index.into(), false),
                (Loc::Reg(r), Loc::Slot(n)) => self.spill(class, n, r.index.into(), true),
                _ => Err(AsmError::new(Pos::default(), "a move from slot to slot".into())),
            },
        }
    }

    fn copy(&mut self, class: Class, from: u64, to: u64) -> Result<(), AsmError> {
        if class == PRED {
            let m = Mach::new(op::PLOP3_P).n("pu", to).n("pa", from).n("pb", 7).n("pc", 14);
            return self.lines.add(m.n("lut", 0xf0).n("lut2", 0), None);
        }
        for k in 0..u64::from(width(class)) {
            self.lines.add(Mach::new(op::MOV_R).n("d", to + k).n("b", from + k).n("mask", 15), None)?;
        }
        Ok(())
    }

    /// A move between a register and a slot, which is in the frame, or in a register for predicates.
    fn spill(&mut self, class: Class, slot: u32, reg: u64, store: bool) -> Result<(), AsmError> {
        if class != PRED {
            return self.frame(class, slot, reg, store);
        }
        let (r, frame) = match &self.parking {
            Parking::Frame(r) => (*r, true),
            Parking::Registers(r, all) => (*r + all.iter().position(|s| *s == slot).unwrap_or(0) as u64, false),
        };
        if !store && frame {
            self.frame(ONE, slot, r, false)?;
        }
        // 0 if the predicate is set.
        let m = match store {
            true => Mach::new(op::SEL_I).n("d", r).n("b", 1).n("pp", reg),
            false => Mach::new(op::ISETP_R).n("pu", reg).n("a", r).m(mods::cmp::EQ).p("pp", Pred::TRUE),
        };
        self.lines.add(m, None)?;
        if store && frame { self.frame(ONE, slot, r, true) } else { Ok(()) }
    }

    fn frame(&mut self, class: Class, slot: u32, reg: u64, store: bool) -> Result<(), AsmError> {
        self.spills += 1;
        let offset = i64::from(self.frame + self.alloc.frame.slots[slot as usize].offset);
        let size = match class {
            TWO => mods::sz::_64,
            ONE => mods::sz::NONE,
            _ => mods::sz::_128,
        };
        for k in 0..u64::from(width(class).div_ceil(4)) {
            let r = reg + 4 * k;
            let m = if store { Mach::new(op::STL_R).n("b", r) } else { Mach::new(op::LDL_R).n("d", r) };
            let mut m = m.m(size).m(mods::ev::NONE).at(None, 0, offset + 16 * k.cast_signed());
            if let Err(e) = m.inst.set("m", Role::Register, STACK) {
                return Err(AsmError::new(m.pos, e.to_string()));
            }
            self.lines.add(m, None)?;
        }
        Ok(())
    }
}

fn register(loc: Loc) -> Result<u64, AsmError> {
    match loc {
        Loc::Reg(PReg { index, .. }) => Ok(u64::from(index)),
        Loc::Slot(_) => Err(AsmError::new(Pos::default(), "an operand has no register".into())),
    }
}
