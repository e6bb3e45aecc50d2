//! Registers: the shared allocator's view of the code, and its result applied.
//!
//! The allocator sees a group of glued instructions as one. A write of a part of a register whose rest is wanted, or that a guard
//! may skip, modifies it. Spilled values stand in the thread's frame; predicates go there through a general register.

use super::AsmError;
use super::call::FUNCTIONS;
use super::live::{bundle_start, settle};
use super::mir::{Code, FOUR, Mach, Nature, ONE, PRED, Pred, TWO, Term, WIDEST, Word, width};
use super::select::Selected;
use crate::codegen::regalloc::{
    self, Allocation, Class, Edit, Flow, Func, Kind, Loc, Operand, PReg, RegClass, RegFile, RegInfo, Role as Use, VReg,
};
use crate::isa::ptx::Pos;
use crate::isa::sass::{Guard, Instruction, Role, is_group_multiply, op};
use smallvec::SmallVec;

const PREDICATES: u8 = 0;
const GENERAL: u8 = 1;
/// Reads as zero.
const RZ: u8 = 255;
/// R1 holds the stack pointer.
pub(super) const STACK: u64 = 1;

/// A line of code with its registers.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are instructions
pub(super) enum Line {
    Label(usize),
    /// An instruction, and the label it goes to.
    Inst(Instruction, Option<usize>),
}

pub(super) struct Placed {
    pub lines: Vec<Line>,
    /// Bytes of the frame.
    pub frame_bytes: u32,
    pub spills: usize,
    /// Labels used; the blocks' numbers, then more.
    pub labels: usize,
    /// It has multiplies of warpgroups.
    pub multiplies: bool,
}

/// What an instruction of the allocator is.
enum Step {
    Label(usize),
    /// A block's instructions from one to another, and the first of their register fields in `fields`.
    Group(usize, usize, usize, usize),
    Branch(Pred, usize),
    Jump(usize),
    Exit,
    Undefined,
}

struct Place<'a> {
    code: &'a Code,
    stack: VReg,
    func: Func,
    steps: Vec<Step>,
    labels: Vec<regalloc::Label>,
    /// For each register field of an instruction, in order, which operand of the allocator's instruction it is.
    fields: Vec<u16>,
    work: Work,
}

/// Lists that serve one group after the other.
#[derive(Default)]
struct Work {
    touches: Vec<Touch>,
    written: Vec<Word>,
    /// For each register field the touch that it is, and whether it is written or read behind a write of the group.
    fields: Vec<(u16, bool)>,
    operands: Vec<Operand>,
}

/// The field is the stack pointer.
const ON_STACK: u16 = u16::MAX;

/// Registers that may be given out; with `wide` also long runs of them, for sums of a warpgroup; single ones first from below `low`.
fn info(registers: u16, scratch: bool, (wide, low): (bool, Option<u16>)) -> RegInfo {
    let class = |name, file, words: u16| RegClass {
        name,
        file,
        width: words,
        align: words,
        slot_bytes: 4 * u32::from(words),
        slot_align: 4 * u32::from(words),
    };
    let run = |c| RegClass { align: 8, slot_align: 16, ..class("run", GENERAL, u16::from(width(Class(c)))) };
    let last = registers - u16::from(scratch);
    // Single ones are taken from the end.
    let low = low.unwrap_or(0).min(last);
    let mut order: Vec<u16> = Vec::with_capacity(usize::from(last));
    order.extend(low..last);
    order.extend((0..low).rev());
    if let Some(stack) = order.iter().position(|r| u64::from(*r) == STACK) {
        order.remove(stack);
    }
    RegInfo {
        files: vec![
            RegFile { name: "predicate", count: 7, order: (0..7).collect() },
            RegFile { name: "general", count: registers, order },
        ],
        classes: [
            class("predicate", PREDICATES, 1),
            class("word", GENERAL, 1),
            class("pair", GENERAL, 2),
            class("quad", GENERAL, 4),
        ]
        .into_iter()
        .chain((FOUR.0 + 1..=WIDEST.0).filter(|_| wide).map(run))
        .collect(),
    }
}

/// Gives out registers, at most that many.
pub(super) fn place(selected: &mut Selected, registers: u16, local_bytes: u32) -> Result<Placed, AsmError> {
    let undefined = settle(&mut selected.code, selected.stack.reg());
    let wide = selected.code.classes.iter().any(|c| c.0 > FOUR.0);
    let low = selected.pool.map(|p| p.least / 2);
    let info = |registers, scratch| info(registers, scratch, (wide, low));
    let make = |calls: bool| {
        let (func, stack) = (Func::default(), selected.stack.reg());
        let (fields, work) = (vec![], Work::default());
        let mut p = Place { code: &selected.code, stack, func, steps: vec![], labels: vec![], fields, work };
        p.build(&undefined, calls);
        p
    };
    let p = make(true);
    let failed = |e: regalloc::RegAllocError| AsmError::new(Pos::default(), e.to_string());
    let known = regalloc::Analysis::new(&p.func).map_err(failed)?;
    let calls = !selected.calls.is_empty();
    // Calls want all registers for themselves: that is no pressure.
    let need = match calls {
        true => regalloc::pressure(&make(false).func, &info(registers, false)).map_err(failed)?,
        false => known.pressure(&info(registers, false)),
    };
    let (alloc, limit) = allocated(&known, &need, &info, (registers, calls, wide, selected.pool.is_some()))?;
    let mut apply = Apply {
        place: &p,
        alloc: &alloc,
        lines: Vec::with_capacity(selected.code.blocks.iter().map(|b| b.ops.len() + 3).sum::<usize>() + 8),
        scratch: u64::from(limit - 1),
        frame: local_bytes.next_multiple_of(16),
        frame_bytes: local_bytes.next_multiple_of(16) + alloc.frame.len_bytes.next_multiple_of(16),
        spills: 0,
        labels: selected.code.blocks.len() + selected.code.calls,
        multiplies: false,
    };
    apply.all()?;
    let Apply { mut lines, spills, labels, frame_bytes, multiplies, .. } = apply;
    if selected.uses_stack || spills > 0 {
        let load = Mach::new(op::MOV_C).n("d", STACK).c("b", 0, 0x28).n("mask", 15);
        let down = Mach::new(op::IADD3_I).n("d", STACK).n("a", STACK).n("b", u64::from(frame_bytes.wrapping_neg()));
        // A function finds it set, a kernel sets it.
        let first = usize::from(selected.code.returns.is_some());
        let head = [load, down].map(|m| Line::Inst(m.inst, None));
        lines.splice(1..1, head.into_iter().skip(first));
    }
    Ok(Placed { lines, frame_bytes, spills, labels, multiplies })
}

/// As many registers as are wanted at once, more if tuples do not fit between the others; the number of them.
fn allocated(
    known: &regalloc::Analysis,
    need: &[u16],
    info: &dyn Fn(u16, bool) -> RegInfo,
    (registers, calls, wide, pool): (u16, bool, bool, bool),
) -> Result<(Allocation, u16), AsmError> {
    let failed = |e: regalloc::RegAllocError| AsmError::new(Pos::default(), e.to_string());
    let mut limit = (need[usize::from(GENERAL)] + 1).clamp(8, registers);
    // Predicates that go to the frame need a general register for that.
    let mut scratch = need[usize::from(PREDICATES)] > 7;
    let calm = !calls && !wide && !pool && !scratch;
    if pool {
        limit = registers;
    }
    loop {
        let with = info(limit, scratch);
        if calm && limit < registers {
            match known.allocate_without_frame(&with, need).map_err(failed)?.filter(|a| !spills(a, |_| true)) {
                Some(a) => return Ok((a, limit)),
                None => limit = (limit + 2 + limit / 8).min(registers),
            }
            continue;
        }
        match known.allocate(&with) {
            Ok(a) if !scratch && spills(&a, |c| c == PRED) => scratch = true,
            // What is wanted after a call is stored whatever there is.
            Ok(a) if limit == registers || !(spills(&a, |c| c != PRED) || wide && moves_runs(&a)) || calls => {
                return Ok((a, limit));
            }
            Err(e) if limit == registers => return Err(failed(e)),
            _ => limit = (limit + 2 + limit / 8).min(registers),
        }
    }
}

/// Whether values of such classes go to the frame.
fn spills(alloc: &Allocation, of: impl Fn(Class) -> bool) -> bool {
    let mut edits = alloc.edits.iter().map(|e| &e.1).chain(alloc.edge_edits.iter().flat_map(|e| &e.1));
    let slot = |l: &Loc| matches!(l, Loc::Slot(_));
    edits.any(|e| matches!(e, Edit::Move { class, from, to } if of(*class) && (slot(from) || slot(to))))
}

/// Whether runs of registers are moved.
fn moves_runs(alloc: &Allocation) -> bool {
    let mut edits = alloc.edits.iter().map(|e| &e.1).chain(alloc.edge_edits.iter().flat_map(|e| &e.1));
    edits.any(|e| matches!(e, Edit::Move { class, .. } if class.0 > FOUR.0))
}

/// How a group uses a register.
#[derive(Clone, Copy)]
struct Touch {
    reg: VReg,
    read: bool,
    late: bool,
    write: bool,
    keep: bool,
    /// The operands that write and read it.
    places: (u16, u16),
}

impl Place<'_> {
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
                match &ops[from..to] {
                    [one] => self.work.single(one, self.stack, &mut self.fields),
                    group => self.operands(group),
                }
                let operands = &self.work.operands;
                let kind = kind(&ops[from..to], operands);
                let call = calls && matches!(ops[from].nature, Nature::Call(..));
                let clobbers: &[PReg] = if call { &all } else { &[] };
                self.func.push(kind, Flow::Next, operands, clobbers);
                from = to;
            }
            self.terminate(*b, order.get(k + 1).copied());
        }
    }

    fn terminate(&mut self, b: usize, next: Option<usize>) {
        match self.code.blocks[b].term {
            Term::Exit => {
                self.func.push(Kind::Plain, Flow::Return, &[], &[]);
                self.steps.push(Step::Exit);
            }
            Term::Jump(to) => self.jump(to, next),
            Term::Branch(_, x, y, _) if x == y => self.jump(x, next),
            Term::Branch(p, x, y, _) => {
                let (p, x, y) = if Some(x) == next { (p.not(), y, x) } else { (p, x, y) };
                let operands: SmallVec<[Operand; 1]> = p.word.map(|w| Operand::reads(w.reg())).into_iter().collect();
                self.func.push(Kind::Plain, Flow::Branch(self.labels[x]), &operands, &[]);
                self.steps.push(Step::Branch(p, x));
                self.jump(y, next);
            }
        }
    }

    fn jump(&mut self, to: usize, next: Option<usize>) {
        if Some(to) != next {
            self.func.push(Kind::Plain, Flow::Jump(self.labels[to]), &[], &[]);
            self.steps.push(Step::Jump(to));
        }
    }

    /// Results first, then sources.
    fn operands(&mut self, group: &[Mach]) {
        let mut w = std::mem::take(&mut self.work);
        w.touches.clear();
        w.written.clear();
        w.fields.clear();
        w.operands.clear();
        for m in group {
            for r in &m.regs {
                let reg = r.word.reg();
                if reg == self.stack {
                    w.fields.push((ON_STACK, false));
                    continue;
                }
                let k = match w.touches.iter().position(|t| t.reg == reg) {
                    Some(k) => k,
                    None => {
                        let (read, late, write, keep) = (false, false, false, false);
                        w.touches.push(Touch { reg, read, late, write, keep, places: (0, 0) });
                        w.touches.len() - 1
                    }
                };
                let inner = !r.write && (0..r.count).all(|n| w.written.contains(&r.word.plus(n)));
                let t = &mut w.touches[k];
                if r.write {
                    (t.write, t.keep) = (true, t.keep | r.keep);
                } else if !inner {
                    (t.read, t.late) = (true, t.late | self.late(r.word, r.count, &w.written));
                }
                w.fields.push((k as u16, r.write || inner));
            }
            for r in m.regs.iter().filter(|r| r.write && r.word.reg() != self.stack) {
                (0..r.count).for_each(|n| w.written.push(r.word.plus(n)));
            }
        }
        w.list();
        for (k, write) in &w.fields {
            let place =
                w.touches.get(usize::from(*k)).map_or(ON_STACK, |t| if *write { t.places.0 } else { t.places.1 });
            self.fields.push(place);
        }
        self.work = w;
    }

    /// Whether a read could find another result of the group in its register: odd words of pairs cannot be hit by even ones.
    fn late(&self, word: Word, count: u8, written: &[Word]) -> bool {
        let class = |w: Word| self.code.classes[w.reg().0 as usize];
        let safe = |w: &Word| {
            let other_file = (class(*w) == PRED) != (class(word) == PRED);
            let apart = width(class(*w)) >= 2
                && width(class(word)) >= 2
                && count == 1
                && !word.sub().is_multiple_of(2)
                && w.sub().is_multiple_of(2);
            other_file || apart
        };
        !written.iter().all(safe)
    }
}

fn operand(vreg: VReg, role: Use) -> Operand {
    Operand { vreg, role, constraint: regalloc::Constraint::Reg }
}

impl Work {
    /// The operands of an instruction that is a group by itself, and the place of each of its fields: none is read behind a write.
    fn single(&mut self, m: &Mach, stack: VReg, fields: &mut Vec<u16>) {
        let (all, first) = (&mut self.operands, fields.len());
        all.clear();
        for r in &m.regs {
            let reg = r.word.reg();
            let place = match all.iter().position(|o| o.vreg == reg) {
                _ if !r.write || reg == stack => usize::from(ON_STACK),
                Some(k) => k,
                None => {
                    all.push(operand(reg, Use::Def));
                    all.len() - 1
                }
            };
            if r.keep
                && let Some(o) = all.get_mut(place)
            {
                o.role = Use::Mod;
            }
            fields.push(place as u16);
        }
        let results = all.len();
        for (r, place) in m.regs.iter().zip(&mut fields[first..]).filter(|(r, _)| !r.write && r.word.reg() != stack) {
            let reg = r.word.reg();
            // One that is kept is read by the same operand.
            let there = |(k, o): (usize, &Operand)| o.vreg == reg && (k >= results || o.role == Use::Mod);
            *place = all.iter().enumerate().position(there).unwrap_or_else(|| {
                all.push(operand(reg, Use::Use));
                all.len() - 1
            }) as u16;
        }
    }

    /// The operands of what is touched: results, then sources.
    fn list(&mut self) {
        for t in self.touches.iter_mut().filter(|t| t.write) {
            let place = self.operands.len() as u16;
            // One that is kept is read by the same operand.
            t.places = (place, place);
            self.operands.push(operand(t.reg, if t.keep { Use::Mod } else { Use::Def }));
        }
        for t in self.touches.iter_mut().filter(|t| t.read && !(t.write && t.keep)) {
            t.places.1 = self.operands.len() as u16;
            self.operands.push(operand(t.reg, if t.late { Use::UseLate } else { Use::Use }));
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

struct Apply<'a> {
    place: &'a Place<'a>,
    alloc: &'a Allocation,
    lines: Vec<Line>,
    scratch: u64,
    /// Where spill slots begin in the frame.
    frame: u32,
    frame_bytes: u32,
    spills: usize,
    labels: usize,
    multiplies: bool,
}

impl Apply<'_> {
    fn all(&mut self) -> Result<(), AsmError> {
        let mut next = self.alloc.edits.iter().peekable();
        let mut stubs = vec![];
        for (i, step) in self.place.steps.iter().enumerate() {
            let i = i as u32;
            while let Some((_, edit)) = next.next_if(|e| e.0 == i) {
                self.edit(edit)?;
            }
            match step {
                Step::Label(b) => self.lines.push(Line::Label(*b)),
                Step::Group(b, from, to, fields) => {
                    let group = &self.place.code.blocks[*b].ops[*from..*to];
                    self.group(i, group, *fields)?;
                }
                Step::Undefined if self.place.code.calls > 0 || self.is_frail(i) => self.define(i)?,
                Step::Undefined => {}
                Step::Exit if self.returned() => {}
                Step::Exit => self.add(Mach::new(op::EXIT_N), None)?,
                Step::Branch(p, to) => {
                    let to = self.target(i, *to, &mut stubs);
                    let mut m = Mach::new(op::BRA_I).n("pp", 7);
                    if p.word.is_some() {
                        let range = self.place.func.operand_range(i);
                        m.inst.guard =
                            Guard { index: self.register(self.alloc.operands[range.start])? as u8, not: p.not };
                    } else {
                        m.inst.guard.not = p.not;
                    }
                    self.add(m, Some(to))?;
                }
                Step::Jump(to) => {
                    let to = self.target(i, *to, &mut stubs);
                    self.add(Mach::new(op::BRA_I).n("pp", 7), Some(to))?;
                }
            }
        }
        for (branch, label, to) in stubs {
            self.lines.push(Line::Label(label));
            let edits: Vec<Edit> =
                self.alloc.edge_edits.iter().filter(|e| e.0 == branch).flat_map(|e| e.1.clone()).collect();
            for e in &edits {
                self.edit(e)?;
            }
            self.add(Mach::new(op::BRA_I).n("pp", 7), Some(to))?;
        }
        Ok(())
    }

    fn target(&mut self, i: u32, to: usize, stubs: &mut Vec<(u32, usize, usize)>) -> usize {
        if !self.alloc.edge_edits.iter().any(|e| e.0 == i) {
            return to;
        }
        let label = self.labels;
        self.labels += 1;
        stubs.push((i, label, to));
        label
    }

    fn register(&self, loc: Loc) -> Result<u64, AsmError> {
        match loc {
            Loc::Reg(PReg { index, .. }) => Ok(u64::from(index)),
            Loc::Slot(_) => Err(AsmError::new(Pos::default(), "an operand has no register".into())),
        }
    }

    /// Adds an instruction.
    fn add(&mut self, m: Mach, target: Option<usize>) -> Result<(), AsmError> {
        match m.fault() {
            Some(e) => Err(AsmError::new(m.pos, e.to_string())),
            None => {
                self.line(m.inst, target);
                Ok(())
            }
        }
    }

    /// Adds an instruction, unless it copies a register to itself.
    fn line(&mut self, inst: Instruction, target: Option<usize>) {
        let value = |slot| inst.get(slot, Role::Value);
        if !(std::ptr::eq(inst.form(), op::MOV_R) && value("d") == value("b")) {
            self.lines.push(Line::Inst(inst, target));
        }
    }

    fn group(&mut self, i: u32, group: &[Mach], fields: usize) -> Result<(), AsmError> {
        let place = self.place;
        let locs = &self.alloc.operands[place.func.operand_range(i)];
        let mut fields = place.fields[fields..].iter();
        for m in group {
            let mut inst = m.inst;
            for (r, k) in m.regs.iter().zip(fields.by_ref()) {
                let index = match *k {
                    ON_STACK => STACK,
                    k => self.register(locs[usize::from(k)])? + u64::from(r.word.sub()),
                };
                Mach::placed(&mut inst, r, index).map_err(|e| AsmError::new(m.pos, e.to_string()))?;
            }
            if m.above {
                self.raise(&mut inst, m.pos)?;
            }
            let calls = self.place.code.blocks.len();
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
                self.lines.push(Line::Label(calls + call as usize));
            }
        }
        Ok(())
    }

    /// Gives a register that nothing has written yet a value: a call may make it go to the frame.
    fn define(&mut self, i: u32) -> Result<(), AsmError> {
        let Some(o) = self.place.func.operands(i).first() else { return Ok(()) };
        let Loc::Reg(r) = self.alloc.operands[self.place.func.operand_range(i).start] else { return Ok(()) };
        let (class, first) = (self.place.code.classes[o.vreg.0 as usize], u64::from(r.index));
        if class == PRED {
            return self.add(Mach::new(op::ISETP_R).n("pu", first).m("cmp", ".EQ").p("pp", Pred::TRUE), None);
        }
        for k in 0..u64::from(width(class)) {
            self.add(Mach::new(op::MOV_R).n("d", first + k).n("mask", 15), None)?;
        }
        Ok(())
    }

    /// Whether a register that nothing has written yet is a predicate which may have to go to the frame: other registers may go there as they are.
    fn is_frail(&self, i: u32) -> bool {
        let pred = |o: &Operand| self.place.code.classes[o.vreg.0 as usize] == PRED;
        self.place.func.operands(i).first().is_some_and(pred) && spills(self.alloc, |c| c == PRED)
    }

    /// Whether control has gone back already.
    fn returned(&self) -> bool {
        matches!(self.lines.last(), Some(Line::Inst(i, _)) if i.form().mnemonic == "RET")
    }

    /// An offset, or a constant, above the frame.
    fn raise(&self, inst: &mut Instruction, pos: Pos) -> Result<(), AsmError> {
        let offset = inst.form().position("m", Role::Offset).is_some();
        let (slot, role) = if offset { ("m", Role::Offset) } else { ("b", Role::Value) };
        let value = inst.get(slot, role).unwrap_or(0) + u64::from(self.frame_bytes);
        inst.set(slot, role, value).map(|_| ()).map_err(|e| AsmError::new(pos, e.to_string()))
    }

    fn edit(&mut self, edit: &Edit) -> Result<(), AsmError> {
        match *edit {
            Edit::Remat { inst, to } => {
                let Step::Group(b, from, end, _) = self.place.steps[inst as usize] else { return Ok(()) };
                for m in &self.place.code.blocks[b].ops[from..end] {
                    let mut inst = m.inst;
                    for r in m.regs.iter().filter(|r| r.write) {
                        let index = u64::from(to.index) + u64::from(r.word.sub());
                        Mach::placed(&mut inst, r, index).map_err(|e| AsmError::new(m.pos, e.to_string()))?;
                    }
                    self.line(inst, None);
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
            return self.add(m.n("lut", 0xf0).n("lut2", 0), None);
        }
        for k in 0..u64::from(width(class)) {
            self.add(Mach::new(op::MOV_R).n("d", to + k).n("b", from + k).n("mask", 15), None)?;
        }
        Ok(())
    }

    fn spill(&mut self, class: Class, slot: u32, reg: u64, store: bool) -> Result<(), AsmError> {
        self.spills += 1;
        let offset = i64::from(self.frame + self.alloc.frame.slots[slot as usize].offset);
        let size = match class {
            TWO => ".64",
            PRED | ONE => "",
            _ => ".128",
        };
        let pred = class == PRED;
        let r = if pred { self.scratch } else { reg };
        if store && pred {
            // 0 where it is set.
            let m = Mach::new(op::SEL_I).n("d", r).n("b", 1).n("pp", reg);
            self.add(m, None)?;
        }
        for k in 0..u64::from(width(class).div_ceil(4)) {
            let r = r + 4 * k;
            let m = if store { Mach::new(op::STL_R).n("b", r) } else { Mach::new(op::LDL_R).n("d", r) };
            let mut m = m.m("sz", size).m("ev", "").at(None, 0, offset + 16 * k.cast_signed());
            if let Err(e) = m.inst.set("m", Role::Register, STACK) {
                return Err(AsmError::new(m.pos, e.to_string()));
            }
            self.add(m, None)?;
        }
        if !store && pred {
            let m = Mach::new(op::ISETP_R).n("pu", reg).n("a", r).m("cmp", ".EQ").p("pp", Pred::TRUE);
            self.add(m, None)?;
        }
        Ok(())
    }
}
