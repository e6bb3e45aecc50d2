//! Waits for loads: before the first instruction that touches a register in flight, for no more than that load.
//!
//! Model (docs/amd-isa.md 5.6): vector memory loads return in order among themselves, LDS operations too; scalar loads
//! in any order, so only a wait for all of them tells anything. On gfx9 and gfx11 LDS and scalar loads share a counter.
//! Stores are never waited for: nothing in a kernel reads what another thread stored to a buffer, and a thread's own
//! accesses to its private memory are in order. Before a barrier the wave's LDS operations must be done.
//!
//! For each register: how many operations of the same counter were issued after its load (its age). Where paths meet,
//! the youngest counts. Ages only fall and registers are only added, so iterating until nothing changes terminates.

use super::super::{Access, Chip, File, Inst, Operand, Row, Target, Unit, op, row_of};
use super::CompileError;
use super::place::Step;
use std::collections::HashMap;

const NONE: u8 = u8::MAX;
/// Ages beyond this are as good as this.
const OLDEST: u8 = 62;

/// Which loads may be in flight at an instruction.
#[derive(Clone, PartialEq)]
struct State {
    /// Age of the load of each vector register from memory, and from LDS.
    memory: [u8; 256],
    lds: [u8; 256],
    /// Scalar registers with a load in flight (VCC from 106 on).
    scalar: u128,
    /// LDS operations (stores too) may be in flight: the age of the youngest.
    lds_any: bool,
}

impl State {
    fn new() -> State {
        State { memory: [NONE; 256], lds: [NONE; 256], scalar: 0, lds_any: false }
    }

    fn merge(&mut self, o: &State) -> bool {
        let before = self.clone();
        for (a, b) in self.memory.iter_mut().zip(&o.memory).chain(self.lds.iter_mut().zip(&o.lds)) {
            *a = (*a).min(*b);
        }
        self.scalar |= o.scalar;
        self.lds_any |= o.lds_any;
        *self != before
    }
}

/// How far counters must have come down.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Need {
    pub memory: u8,
    pub lds: u8,
    pub scalar: bool,
}

impl Need {
    const NOTHING: Need = Need { memory: NONE, lds: NONE, scalar: false };
}

/// Inserts waits.
pub(super) fn insert(steps: Vec<Step>, target: Target) -> Result<Vec<Step>, CompileError> {
    let rows: Vec<Option<&'static Row>> = steps
        .iter()
        .map(|s| match s {
            Step::Op(i) | Step::Jump(i, _) => row_of(target, i).map(Some),
            Step::Label(_) => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    let mut at_label: HashMap<u32, State> = HashMap::new();
    loop {
        let mut changed = false;
        let mut state = State::new();
        for (step, row) in steps.iter().zip(&rows) {
            match step {
                Step::Label(l) => {
                    let known = at_label.entry(*l).or_insert_with(State::new);
                    changed |= known.merge(&state);
                    state = known.clone();
                }
                Step::Op(i) | Step::Jump(i, _) => {
                    let Some(row) = row else { continue };
                    let need = need(&state, i, row, target.chip);
                    settle(&mut state, need);
                    issue(&mut state, i, row, target.chip);
                }
            }
            if let Step::Jump(i, l) = step {
                changed |= at_label.entry(*l).or_insert_with(State::new).merge(&state);
                if i.op == op::S_BRANCH {
                    state = State::new();
                }
            }
        }
        if !changed {
            break;
        }
    }
    Ok(emit(steps, &rows, &at_label, target))
}

fn emit(steps: Vec<Step>, rows: &[Option<&'static Row>], at_label: &HashMap<u32, State>, target: Target) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len() + steps.len() / 4);
    let mut state = State::new();
    for (step, row) in steps.into_iter().zip(rows) {
        if let Step::Label(l) = &step
            && let Some(known) = at_label.get(l)
        {
            state = known.clone();
        }
        if let (Step::Op(i) | Step::Jump(i, _), Some(row)) = (&step, row) {
            let need = need(&state, i, row, target.chip);
            let need = settle(&mut state, need);
            waits(need, target.chip, &mut out);
            issue(&mut state, i, row, target.chip);
        }
        out.push(step);
    }
    out
}

/// What an instruction must wait for.
fn need(state: &State, inst: &Inst, row: &Row, chip: Chip) -> Need {
    let mut need = Need::NOTHING;
    for (index, _) in row.slots.iter().enumerate() {
        let Some(Operand::Reg(reg)) = inst.operands.get(index) else { continue };
        for k in 0..u16::from(reg.words) {
            match reg.file {
                File::Vgpr => {
                    let r = usize::from(reg.first + k);
                    need.memory = need.memory.min(state.memory[r]);
                    need.lds = need.lds.min(state.lds[r]);
                }
                File::Sgpr => need.scalar |= state.scalar >> (reg.first + k) & 1 == 1,
                File::Vcc => need.scalar |= state.scalar >> (106 + reg.first + k) & 1 == 1,
                _ => {}
            }
        }
    }
    let barrier = inst.op.name().starts_with("s_barrier");
    if barrier && state.lds_any {
        need.lds = 0;
    }
    let shared = chip != Chip::Gfx1201;
    if shared && need.lds != NONE && state.scalar != 0 {
        (need.lds, need.scalar) = (0, true);
    }
    need
}

/// What is done after such a wait. Returns the wait as it will be written.
fn settle(state: &mut State, need: Need) -> Need {
    for age in state.memory.iter_mut().filter(|a| **a != NONE && **a >= need.memory) {
        *age = NONE;
    }
    for age in state.lds.iter_mut().filter(|a| **a != NONE && **a >= need.lds) {
        *age = NONE;
    }
    if need.lds == 0 {
        state.lds_any = false;
    }
    if need.scalar {
        state.scalar = 0;
    }
    need
}

/// What an instruction leaves in flight.
fn issue(state: &mut State, inst: &Inst, row: &Row, chip: Chip) {
    let older = |ages: &mut [u8; 256]| {
        for a in ages.iter_mut().filter(|a| **a < OLDEST) {
            *a += 1;
        }
    };
    let name = inst.op.name();
    let stores = name.contains("store");
    match row.unit {
        Unit::Global | Unit::Scratch | Unit::Buffer | Unit::Flat => {
            if !stores || chip.is_gfx9() {
                older(&mut state.memory);
            }
            written(inst, row, |r| state.memory[r] = 0);
        }
        Unit::Lds => {
            older(&mut state.lds);
            state.lds_any = true;
            written(inst, row, |r| state.lds[r] = 0);
        }
        Unit::Smem => {
            for (index, slot) in row.slots.iter().enumerate().filter(|(_, s)| s.access != Access::Read) {
                debug_assert_ne!(slot.access, Access::Read);
                if let Some(Operand::Reg(reg)) = inst.operands.get(index) {
                    let base = if reg.file == File::Vcc { 106 } else { 0 };
                    for k in 0..u16::from(reg.words) {
                        state.scalar |= 1 << (base + reg.first + k);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Vector registers that an instruction writes.
fn written(inst: &Inst, row: &Row, mut f: impl FnMut(usize)) {
    for (index, slot) in row.slots.iter().enumerate() {
        if let Some(Operand::Reg(reg)) = inst.operands.get(index)
            && slot.access != Access::Read
            && reg.file == File::Vgpr
        {
            (reg.first..reg.first + u16::from(reg.words)).for_each(|r| f(usize::from(r)));
        }
    }
}

/// The instructions of a wait.
fn waits(need: Need, chip: Chip, out: &mut Vec<Step>) {
    let mut put = |op, imm: u32| out.push(Step::Op(Inst::new(op, [Operand::Int(i64::from(imm))])));
    let memory = (need.memory != NONE).then_some(u32::from(need.memory));
    let lds = (need.lds != NONE).then_some(u32::from(need.lds));
    if chip == Chip::Gfx1201 {
        if let Some(n) = memory {
            put(op::S_WAIT_LOADCNT, n);
        }
        if let Some(n) = lds {
            put(op::S_WAIT_DSCNT, n);
        }
        if need.scalar {
            put(op::S_WAIT_KMCNT, 0);
        }
        return;
    }
    let lgkm = if need.scalar { Some(0) } else { lds };
    if memory.is_none() && lgkm.is_none() {
        return;
    }
    put(op::S_WAITCNT, waitcnt(chip, memory, lgkm));
}

/// The immediate of `s_waitcnt`; `None`: no wait for that counter.
pub(super) fn waitcnt(chip: Chip, memory: Option<u32>, lgkm: Option<u32>) -> u32 {
    let vm = memory.unwrap_or(63);
    match chip {
        Chip::Gfx942 => {
            let lgkm = lgkm.unwrap_or(15).min(15);
            vm & 15 | 7 << 4 | lgkm << 8 | (vm >> 4 & 3) << 14
        }
        _ => 7 | lgkm.unwrap_or(63) << 4 | vm << 10,
    }
}
