//! Instructions with their allocated registers, including the allocator's moves, and spilled values in scratch.
//!
//! Vector registers spill to the thread's private memory, scalar ones to lanes of vector registers beyond the allocated
//! ones.

use super::super::select::{Selected, mir};
use super::super::{File, Inst, Operand, Reg, Target, op, s, ss, v, vs};
use super::CompileError;
use doorbell_codegen::regalloc::{Allocation, Edit, Flow, Kind, Loc, PReg};
use mir::{Code, Opd};
use std::collections::HashMap;

/// A piece of code.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Op(Inst),
    Label(u32),
    /// A jump and its target.
    Jump(Inst, u32),
}

/// Code with registers.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub steps: Vec<Step>,
    pub vgprs: u32,
    pub sgprs: u32,
    pub scratch_bytes: u32,
    pub spill_moves: usize,
}

struct Placer<'a> {
    selected: &'a Selected,
    alloc: &'a Allocation,
    target: Target,
    steps: Vec<Step>,
    /// Lane of the first word of each spilled scalar slot, counted over all lanes of the registers from `bank` on.
    lanes: HashMap<u32, u32>,
    bank: u16,
    labels: u32,
    spill_moves: usize,
}

/// Applies an allocation; `None`: there are no vector registers left for spilled scalar ones.
pub(super) fn place(selected: &Selected, alloc: &Allocation, target: Target) -> Result<Option<Placed>, CompileError> {
    let highest = |file: u8| alloc.written.iter().filter(|p| p.file == file).map(|p| p.index + 1).max().unwrap_or(1);
    let edits = || alloc.edits.iter().map(|e| &e.1).chain(alloc.edge_edits.iter().flat_map(|e| &e.1));
    let (mut lanes, mut lane, mut scratch) = (HashMap::new(), 0u32, false);
    for e in edits() {
        let Edit::Move { class, from, to } = *e else { continue };
        let (file, words) = mir::class_shape(class);
        for slot in [from, to] {
            match slot {
                Loc::Slot(n) if file == mir::SGPR && !lanes.contains_key(&n) => {
                    lanes.insert(n, lane);
                    lane += u32::from(words);
                }
                Loc::Slot(_) if file == mir::VGPR => scratch = true,
                _ => {}
            }
        }
    }
    let width = 32 * u32::from(target.mask_words());
    let bank = highest(mir::VGPR);
    let vgprs = u32::from(bank) + lane.div_ceil(width);
    if vgprs > 256 {
        return Ok(None);
    }
    let labels = selected.func.label_count() as u32;
    let steps = Vec::with_capacity(selected.insts.len() + alloc.edits.len());
    let mut p = Placer { selected, alloc, target, steps, lanes, bank, labels, spill_moves: 0 };
    p.all()?;
    let scratch_bytes = if scratch { alloc.frame.len_bytes } else { 0 };
    let sgprs = u32::from(highest(mir::SGPR)).max(u32::from(mir::SPARE_SGPR) + 2);
    Ok(Some(Placed { steps: p.steps, vgprs, sgprs, scratch_bytes, spill_moves: p.spill_moves }))
}

impl Placer<'_> {
    fn all(&mut self) -> Result<(), CompileError> {
        let mut next = self.alloc.edits.iter().peekable();
        let mut stubs: Vec<(u32, u32, u32)> = Vec::new();
        for i in 0..self.selected.insts.len() as u32 {
            while let Some((_, edit)) = next.next_if(|e| e.0 == i) {
                self.edit(edit)?;
            }
            let inst = &self.selected.insts[i as usize];
            let mut target = None;
            match inst.flow {
                Flow::Label(l) => self.steps.push(Step::Label(l.0)),
                Flow::Branch(l) | Flow::Jump(l) => {
                    let stub = self.alloc.edge_edits.iter().any(|e| e.0 == i);
                    target = Some(if stub { self.stub(i, l.0, &mut stubs) } else { l.0 });
                }
                Flow::Next | Flow::Return => {}
            }
            let locs = &self.alloc.operands[self.selected.func.operand_range(i)];
            self.codes(inst, locs, target)?;
        }
        for (branch, label, to) in stubs {
            self.steps.push(Step::Label(label));
            let edits: Vec<Edit> =
                self.alloc.edge_edits.iter().filter(|e| e.0 == branch).flat_map(|e| e.1.clone()).collect();
            for e in &edits {
                self.edit(e)?;
            }
            self.steps.push(Step::Jump(Inst::new(op::S_BRANCH, [Operand::Label(to)]), to));
        }
        Ok(())
    }

    fn stub(&mut self, branch: u32, to: u32, stubs: &mut Vec<(u32, u32, u32)>) -> u32 {
        let label = self.labels;
        self.labels += 1;
        stubs.push((branch, label, to));
        label
    }

    fn codes(&mut self, inst: &mir::Inst, locs: &[Loc], target: Option<u32>) -> Result<(), CompileError> {
        for code in &inst.codes {
            let encoded = self.code(inst, code, locs)?;
            match target {
                Some(to) if encoded.operands.iter().any(|o| matches!(o, Operand::Label(_))) => {
                    let mut jump = encoded;
                    jump.operands[0] = Operand::Label(to);
                    self.steps.push(Step::Jump(jump, to));
                }
                _ => self.push(encoded),
            }
        }
        Ok(())
    }

    /// Appends an instruction, unless it moves a register to itself; accumulating forms are shorter.
    fn push(&mut self, mut inst: Inst) {
        inst.op = super::names::on(self.target.chip, inst.op);
        let moves = [op::V_MOV_B32, op::S_MOV_B32, op::S_MOV_B64].contains(&inst.op);
        if moves && inst.operands[0] == inst.operands[1] && inst.mods.dpp.is_none() {
            return;
        }
        if inst.op == op::V_FMA_F32 && inst.operands[0] == inst.operands[3] && inst.mods == Default::default() {
            let vector = |o: &Operand| matches!(o, Operand::Reg(r) if r.file == File::Vgpr);
            if vector(&inst.operands[1]) && !vector(&inst.operands[2]) {
                inst.operands.swap(1, 2);
            }
            if vector(&inst.operands[2]) {
                inst.op = op::V_FMAC_F32;
                inst.operands.truncate(3);
            }
        }
        self.steps.push(Step::Op(inst));
    }

    fn code(&self, inst: &mir::Inst, code: &Code, locs: &[Loc]) -> Result<Inst, CompileError> {
        let mut out = Inst::new(code.op, []);
        out.mods = code.mods;
        for (k, opd) in code.opds.iter().enumerate() {
            out.operands.push(match *opd {
                Opd::Given(o) => o,
                Opd::Part(part) => {
                    let writes = code.access(self.target.chip, k) != super::super::Access::Read;
                    let at = inst.index_of(part.reg, writes).and_then(|n| locs.get(n));
                    let Some(Loc::Reg(reg)) = at else {
                        return Err(CompileError::Registers(format!("{}: an operand has no register", code.op.name())));
                    };
                    register(*reg, part.sub, part.words)
                }
            });
        }
        Ok(out)
    }

    fn edit(&mut self, edit: &Edit) -> Result<(), CompileError> {
        match *edit {
            Edit::Remat { inst, to } => {
                let inst = &self.selected.insts[inst as usize];
                debug_assert_eq!(inst.kind, Kind::Remat);
                self.codes(inst, &[Loc::Reg(to)], None)
            }
            Edit::Move { class, from, to } => {
                let (file, words) = mir::class_shape(class);
                match (from, to) {
                    (Loc::Reg(a), Loc::Reg(b)) => {
                        self.move_words(file, a, b, words);
                        Ok(())
                    }
                    (Loc::Slot(n), Loc::Reg(r)) | (Loc::Reg(r), Loc::Slot(n)) => {
                        self.spill_moves += 1;
                        let store = matches!(to, Loc::Slot(_));
                        if file == mir::SGPR {
                            self.spill_scalar(n, r, words, store)
                        } else {
                            self.spill(n, r, words, store)
                        }
                        Ok(())
                    }
                    _ => Err(CompileError::Registers("a move from slot to slot".into())),
                }
            }
        }
    }

    /// Word by word, in an order that does not overwrite what is still needed.
    fn move_words(&mut self, file: u8, from: PReg, to: PReg, words: u8) {
        let mov = if file == mir::VGPR { op::V_MOV_B32 } else { op::S_MOV_B32 };
        let mut order: Vec<u8> = (0..words).collect();
        if to.index > from.index {
            order.reverse();
        }
        for k in order {
            self.push(Inst::new(mov, [register(to, k, 1), register(from, k, 1)]));
        }
    }

    fn spill_scalar(&mut self, slot: u32, reg: PReg, words: u8, store: bool) {
        let first = self.lanes.get(&slot).copied().unwrap_or(0);
        let width = 32 * u32::from(self.target.mask_words());
        for k in 0..words {
            let lane = first + u32::from(k);
            let bank = v(self.bank + (lane / width) as u16);
            let (scalar, lane) = (register(reg, k, 1), Operand::Int(i64::from(lane % width)));
            self.push(match store {
                true => Inst::new(op::V_WRITELANE_B32, [bank, scalar, lane]),
                false => Inst::new(op::V_READLANE_B32, [scalar, bank, lane]),
            });
        }
    }

    fn spill(&mut self, slot: u32, reg: PReg, words: u8, store: bool) {
        let offset = self.alloc.frame.slots[slot as usize].offset;
        let mut done = 0;
        while done < words {
            let n = match words - done {
                1 => 1,
                2 => 2,
                3 => 3,
                _ => 4,
            };
            let at = offset + 4 * u32::from(done);
            let (base, imm) = if at < 4096 { (Operand::Off, at as i32) } else { (s(mir::SPARE_SGPR), 0) };
            if at >= 4096 {
                self.push(Inst::new(op::S_MOV_B32, [s(mir::SPARE_SGPR), Operand::Lit(at)]));
            }
            let data = register(reg, done, n);
            let load = [op::SCRATCH_LOAD_B32, op::SCRATCH_LOAD_B64, op::SCRATCH_LOAD_B96, op::SCRATCH_LOAD_B128];
            let save = [op::SCRATCH_STORE_B32, op::SCRATCH_STORE_B64, op::SCRATCH_STORE_B96, op::SCRATCH_STORE_B128];
            let k = usize::from(n - 1);
            self.push(match store {
                true => Inst::new(save[k], [Operand::Off, data, base]).offset(imm),
                false => Inst::new(load[k], [data, Operand::Off, base]).offset(imm),
            });
            done += n;
        }
    }
}

/// Words of a register that was given out.
fn register(reg: PReg, sub: u8, words: u8) -> Operand {
    let first = reg.index + u16::from(sub);
    match reg.file {
        mir::VGPR => vs(first, words),
        _ if first >= mir::VCC_INDEX => Operand::Reg(Reg::new(File::Vcc, first - mir::VCC_INDEX, words)),
        _ => ss(first, words),
    }
}
