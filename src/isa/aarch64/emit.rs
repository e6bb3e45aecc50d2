//! Machine instructions on virtual registers → words: allocation, frame, branches, constants.
//!
//! Constants follow the code in the same section, so that code and constants need one page right and no relocation; a
//! load of a constant and a branch reach 1 MiB. Frame from sp up: spill slots, the thread's scratch, saved registers.

use super::codec::encode;
use super::mir::{Access, Base, GPR, Inst, Mem, SAVED_GPRS, SAVED_VECS, SCRATCH, SP, VEC, What, reg_info};
use super::rows::{self, Row};
use super::{IselError, MachineCode};
use doorbell_codegen::regalloc::{Allocation, Edit, Flow, Func, Kind, Label, Loc, PReg, allocate};
use doorbell_elf::{Machine, Object};
use smallvec::SmallVec;

type Res<T> = Result<T, IselError>;

/// A function of machine instructions that waits for registers.
pub(crate) struct Unit {
    pub name: String,
    /// Has the classes and labels; `insts` are added here.
    pub func: Func,
    pub insts: Vec<Inst>,
    pub constants: Vec<u8>,
    pub local_bytes: u32,
}

/// Where a word waits for an address.
#[derive(Clone, Copy)]
enum Goal {
    Label(Label),
    Constant(u32),
}

struct Emit<'a> {
    func: &'a Func,
    insts: &'a [Inst],
    alloc: Allocation,
    words: Vec<u32>,
    /// Index of the word that each label stands before.
    labels: Vec<Option<usize>>,
    /// Words that wait: index, row, operands before the distance, goal.
    waiting: Vec<(usize, &'static Row, Option<i64>, Goal)>,
    /// Taken branches with edits: the branch's word and instruction, its goal.
    stubs: Vec<(usize, u32, Label)>,
    local_at: i64,
    saved_at: i64,
    frame_bytes: i64,
    saved: Vec<PReg>,
}

/// Allocates, encodes and wraps a unit.
pub(crate) fn emit(mut unit: Unit) -> Res<MachineCode> {
    for inst in &unit.insts {
        unit.func.push(inst.kind, inst.flow, &inst.operands(), &[]);
    }
    let alloc = allocate(&unit.func, &reg_info())?;
    let is_saved = |r: &&PReg| match r.file {
        GPR => SAVED_GPRS.contains(&r.index),
        _ => SAVED_VECS.contains(&r.index),
    };
    let mut saved: Vec<PReg> = alloc.written.iter().filter(is_saved).copied().collect();
    saved.dedup();
    let local_at = i64::from(alloc.frame.len_bytes.next_multiple_of(64));
    let saved_at = local_at + i64::from(unit.local_bytes.next_multiple_of(16));
    let frame_bytes = (saved_at + 8 * saved.len() as i64 + 15) & !15;
    let mut e = Emit {
        func: &unit.func,
        insts: &unit.insts,
        alloc,
        words: Vec::new(),
        labels: vec![None; unit.func.label_count()],
        waiting: Vec::new(),
        stubs: Vec::new(),
        local_at,
        saved_at,
        frame_bytes,
        saved,
    };
    e.all()?;
    let count = e.words.len();
    let constants_at = (4 * count).next_multiple_of(16);
    e.resolve(constants_at)?;
    let mut text: Vec<u8> = e.words.iter().flat_map(|w| w.to_le_bytes()).collect();
    if !unit.constants.is_empty() {
        text.resize(constants_at, 0);
        text.extend_from_slice(&unit.constants);
    }
    let mut object = Object::new(Machine::Aarch64);
    object.define_function(&unit.name, 0, 4 * count as u64);
    object.text = text;
    let is_spill =
        |e: &&(u32, Edit)| matches!(e.1, Edit::Move { to: Loc::Slot(_), .. } | Edit::Move { from: Loc::Slot(_), .. });
    let spill_moves = e.alloc.edits.iter().filter(is_spill).count();
    Ok(MachineCode { object, instructions: count, spill_moves, frame_bytes: frame_bytes as u32 })
}

impl Emit<'_> {
    fn all(&mut self) -> Res<()> {
        self.prologue()?;
        let edits = std::mem::take(&mut self.alloc.edits);
        let mut next = edits.iter().peekable();
        for i in 0..self.insts.len() {
            while let Some((_, edit)) = next.next_if(|e| e.0 as usize == i) {
                self.edit(edit)?;
            }
            self.inst(i)?;
        }
        self.alloc.edits = edits;
        for (at, branch, goal) in std::mem::take(&mut self.stubs) {
            let start = Label(self.labels.len() as u32);
            self.labels.push(Some(self.words.len()));
            if let Some(w) = self.waiting.iter_mut().find(|w| w.0 == at) {
                w.3 = Goal::Label(start);
            }
            let edge = self.alloc.edge_edits.iter().filter(|e| e.0 == branch);
            for edit in edge.flat_map(|e| e.1.clone()).collect::<Vec<_>>() {
                self.edit(&edit)?;
            }
            self.wait(&rows::B, None, Goal::Label(goal));
        }
        Ok(())
    }

    /// Fills in the distances.
    fn resolve(&mut self, constants_at: usize) -> Res<()> {
        for (at, row, first, goal) in std::mem::take(&mut self.waiting) {
            let to = match goal {
                Goal::Label(l) => {
                    4 * self.labels[l.0 as usize]
                        .ok_or(IselError::Internal("a branch to a label that is not placed"))?
                }
                Goal::Constant(c) => constants_at + c as usize,
            };
            let distance = to as i64 - 4 * at as i64;
            let values: SmallVec<[i64; 2]> = first.into_iter().chain([distance]).collect();
            self.words[at] =
                encode(row, &values).map_err(|_| IselError::TooLarge { what: "code", len: to.max(4 * at) })?;
        }
        Ok(())
    }

    fn prologue(&mut self) -> Res<()> {
        self.move_sp(&rows::SUB_IMM[0])?;
        self.each_saved(&rows::STR_X, &rows::STR_D)
    }

    fn epilogue(&mut self) -> Res<()> {
        self.each_saved(&rows::LDR_X, &rows::LDR_D)?;
        self.move_sp(&rows::ADD_IMM[1])?;
        self.put(&rows::RET, &[])
    }

    fn move_sp(&mut self, row: &'static Row) -> Res<()> {
        let (high, low) = (self.frame_bytes >> 12, self.frame_bytes & 0xfff);
        if high > 0 {
            self.put(row, &[SP, SP, high, 12])?;
        }
        if low > 0 { self.put(row, &[SP, SP, low, 0]) } else { Ok(()) }
    }

    fn each_saved(&mut self, gpr: &'static [Row; 2], vec: &'static [Row; 2]) -> Res<()> {
        for (k, r) in self.saved.clone().into_iter().enumerate() {
            let rows = if r.file == GPR { gpr } else { vec };
            self.access(Access { rows, bytes: 8 }, i64::from(r.index), SP, self.saved_at + 8 * k as i64)?;
        }
        Ok(())
    }

    fn put(&mut self, row: &'static Row, values: &[i64]) -> Res<()> {
        self.words.push(encode(row, values).map_err(IselError::Encode)?);
        Ok(())
    }

    fn wait(&mut self, row: &'static Row, first: Option<i64>, goal: Goal) {
        self.waiting.push((self.words.len(), row, first, goal));
        self.words.push(row.base);
    }

    fn inst(&mut self, i: usize) -> Res<()> {
        let inst = &self.insts[i];
        match (inst.flow, inst.what) {
            (Flow::Label(l), _) => {
                self.labels[l.0 as usize] = Some(self.words.len());
                Ok(())
            }
            (Flow::Jump(l) | Flow::Branch(l), What::Branch(cond)) => {
                if self.alloc.edge_edits.iter().any(|e| e.0 as usize == i) {
                    self.stubs.push((self.words.len(), i as u32, l));
                }
                let row = if cond.is_some() { &rows::B_COND } else { &rows::B };
                self.wait(row, cond.map(|c| c as i64), Goal::Label(l));
                Ok(())
            }
            (Flow::Return, _) => self.epilogue(),
            (Flow::Next, What::Mark) => Ok(()),
            (Flow::Next, _) => {
                let locs: SmallVec<[Loc; 6]> = self.alloc.operands[self.func.operand_range(i as u32)].into();
                if inst.kind == Kind::Copy && locs[0] == locs[1] {
                    return Ok(());
                }
                let regs = locs.iter().map(|l| register(*l)).collect::<Res<SmallVec<[i64; 4]>>>()?;
                self.placed(inst, &regs)
            }
            _ => Err(IselError::Internal("a jump that is no branch")),
        }
    }

    /// Encodes an instruction with its registers, in the order of [`Inst::operands`].
    fn placed(&mut self, inst: &Inst, regs: &[i64]) -> Res<()> {
        let reg = |k: usize| regs.get(k).copied().ok_or(IselError::Internal("an operand without a place"));
        match inst.what {
            What::Row(row) => {
                let (mut r, mut n) = (regs.iter(), inst.numbers.iter());
                let mut values: SmallVec<[i64; 5]> = SmallVec::new();
                for f in row.fields.iter().filter(|f| f.place().1 > 0) {
                    let v = if f.is_register() { r.next() } else { n.next() };
                    values.push(*v.ok_or(IselError::Internal("an operand without a place"))?);
                }
                self.put(row, &values)
            }
            What::Const(v) => self.constant(reg(0)?, v),
            What::Literal(at) => {
                self.wait(&rows::LDR_LITERAL, Some(reg(0)?), Goal::Constant(at));
                Ok(())
            }
            What::Access(access, Mem { base: Base::Reg(_), disp }) => self.access(access, reg(0)?, reg(1)?, disp),
            What::Access(access, Mem { base: Base::Local(at), disp }) => {
                self.access(access, reg(0)?, SP, self.local_at + i64::from(at) + disp)
            }
            What::LocalAddress(at) => {
                self.constant(SCRATCH, self.local_at + i64::from(at))?;
                self.put(&rows::ADD_SP[0], &[reg(0)?, SP, SCRATCH])
            }
            What::Mark | What::Branch(_) => Err(IselError::Internal("a place with operands")),
        }
    }

    /// A number in a register: 16 bits an instruction, from zeros or from ones.
    fn constant(&mut self, to: i64, v: i64) -> Res<()> {
        let part = |k: i64| v >> (16 * k) & 0xffff;
        let negative = (0..4).filter(|k| part(*k) == 0xffff).count() > (0..4).filter(|k| part(*k) == 0).count();
        let (start, rest, flip) = if negative { (&rows::MOVN[0], 0xffff, 0xffff) } else { (&rows::MOVZ[0], 0, 0) };
        let wanted: SmallVec<[i64; 4]> = (0..4).filter(|k| part(*k) != rest).collect();
        let first = wanted.first().copied().unwrap_or(0);
        self.put(start, &[to, part(first) ^ flip, 16 * first])?;
        wanted.iter().skip(1).try_for_each(|k| self.put(&rows::MOVK[0], &[to, part(*k), 16 * k]))
    }

    /// A load or store, its address made apart if the offset does not fit.
    fn access(&mut self, access: Access, r: i64, base: i64, disp: i64) -> Res<()> {
        let [scaled, unscaled] = access.rows;
        if disp >= 0 && disp % access.bytes == 0 && disp / access.bytes < 4096 {
            return self.put(scaled, &[r, base, disp]);
        }
        if (-256..256).contains(&disp) {
            return self.put(unscaled, &[r, base, disp]);
        }
        self.constant(SCRATCH, disp)?;
        self.put(&rows::ADD_SP[0], &[SCRATCH, base, SCRATCH])?;
        self.put(scaled, &[r, SCRATCH, 0])
    }

    fn edit(&mut self, edit: &Edit) -> Res<()> {
        match *edit {
            Edit::Remat { inst, to } => {
                let inst = &self.insts[inst as usize];
                self.placed(inst, &[i64::from(to.index)])
            }
            Edit::Move { from: Loc::Reg(a), to: Loc::Reg(b), .. } => {
                let (from, to) = (i64::from(a.index), i64::from(b.index));
                if a.file == VEC {
                    self.put(&rows::SHL[3], &[to, from, 0])
                } else {
                    self.put(&rows::ADD_IMM[1], &[to, from, 0, 0])
                }
            }
            Edit::Move { from: Loc::Slot(s), to: Loc::Reg(r), .. } => self.slot(r, s, &rows::LDR_X, &rows::LDR_Q),
            Edit::Move { from: Loc::Reg(r), to: Loc::Slot(s), .. } => self.slot(r, s, &rows::STR_X, &rows::STR_Q),
            Edit::Move { .. } => Err(IselError::Internal("a move from slot to slot")),
        }
    }

    fn slot(&mut self, r: PReg, s: u32, gpr: &'static [Row; 2], vec: &'static [Row; 2]) -> Res<()> {
        let at = i64::from(self.alloc.frame.slots[s as usize].offset);
        let access = if r.file == GPR { Access { rows: gpr, bytes: 8 } } else { Access { rows: vec, bytes: 16 } };
        self.access(access, i64::from(r.index), SP, at)
    }
}

fn register(loc: Loc) -> Res<i64> {
    match loc {
        Loc::Reg(p) => Ok(i64::from(p.index)),
        Loc::Slot(_) => Err(IselError::Internal("an operand in a slot")),
    }
}
