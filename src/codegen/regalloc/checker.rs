//! Verifies an allocation by symbolic execution of the allocated code. It does not use how the allocation was made.
//!
//! The state maps each register and each slot to the values that it certainly holds (values of tuples part by part).
//! Edits and instructions change the state; where paths join, only what all agree on is kept; at the fixed point, each
//! operand that is read must find its value. A write to a value makes all other copies of it stale. Also checked:
//! classes, alignment, fixed registers, reserved registers, results that share registers, slots that overlap.

use super::{Allocation, Constraint, Edit, Flow, Func, Kind, Loc, Operand, PReg, RegInfo, Role};
use std::collections::BTreeMap;

/// What is wrong with an allocation.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone)]
#[non_exhaustive]
pub enum CheckError {
    /// An operand is read from a register or slot that does not hold its value.
    #[error("instruction {inst} reads v{vreg} from {loc:?}, which does not hold it")]
    WrongValue {
        /// The instruction.
        inst: u32,
        /// The value.
        vreg: u32,
        /// Where it is read.
        loc: Loc,
    },
    /// An operand's location violates its class, its constraint, or the needs of another operand.
    #[error("instruction {inst} may not have v{vreg} in {loc:?}: {why}")]
    WrongPlace {
        /// The instruction.
        inst: u32,
        /// The value.
        vreg: u32,
        /// The location.
        loc: Loc,
        /// The rule that is violated.
        why: &'static str,
    },
    /// An edit that no target can execute.
    #[error("edit before instruction {inst}: {why}")]
    BadEdit {
        /// The instruction.
        inst: u32,
        /// The rule that is violated.
        why: &'static str,
    },
    /// Slots overlap or are outside the frame.
    #[error("slot {slot}: {why}")]
    BadSlot {
        /// The slot.
        slot: u32,
        /// The rule that is violated.
        why: &'static str,
    },
}

/// A register or slot, cut into single registers: `(file, index)` or `(SLOT, slot * 64 + part)`.
type Unit = (u8, u32);
const SLOT: u8 = u8::MAX;
/// A part of a value: `(vreg, part)`.
type Part = (u32, u16);
type State = BTreeMap<Unit, Vec<Part>>;

struct Checker<'a> {
    func: &'a Func,
    regs: &'a RegInfo,
    alloc: &'a Allocation,
    edits: Vec<Vec<Edit>>,
}

/// Verifies that each read of the allocated code finds its value.
///
/// # Errors
/// The first violation found.
pub fn check(func: &Func, regs: &RegInfo, alloc: &Allocation) -> Result<(), CheckError> {
    let mut edits = vec![Vec::new(); func.len() + 1];
    for (i, e) in &alloc.edits {
        let list = edits.get_mut(*i as usize).ok_or(CheckError::BadEdit { inst: *i, why: "beyond the end" })?;
        list.push(*e);
    }
    let c = Checker { func, regs, alloc, edits };
    c.slots()?;
    for i in 0..func.len() as u32 {
        c.places(i)?;
    }
    c.run()
}

impl Checker<'_> {
    /// Runs over all paths until a fixed point, then once more to check.
    fn run(&self) -> Result<(), CheckError> {
        let n = self.func.len();
        if n == 0 {
            return Ok(());
        }
        let labels: BTreeMap<u32, u32> = (0..n as u32)
            .filter_map(|i| if let Flow::Label(l) = self.func.inst(i).flow { Some((l.0, i)) } else { None })
            .collect();
        // The state at the entry of each point where paths can join: labels, and the instruction after a branch.
        let mut at: BTreeMap<u32, State> = BTreeMap::from([(0, State::new())]);
        let mut work = vec![0];
        while let Some(start) = work.pop() {
            let Some(mut state) = at.get(&start).cloned() else { continue };
            for i in start.. {
                if i as usize >= n {
                    break;
                }
                if i != start || start == 0 {
                    // A jump to a label skips the edits before the label; fallthrough does not.
                    self.edits_before(i, &mut state)?;
                    if i != start && matches!(self.func.inst(i).flow, Flow::Label(_)) {
                        meet(&mut at, &mut work, i, &state);
                        break;
                    }
                }
                self.step(i, &mut state, false)?;
                match self.func.inst(i).flow {
                    Flow::Next | Flow::Label(_) => continue,
                    Flow::Return => {}
                    Flow::Jump(l) => labels.get(&l.0).into_iter().for_each(|t| meet(&mut at, &mut work, *t, &state)),
                    Flow::Branch(l) => {
                        let mut taken = state.clone();
                        for (_, edits) in self.alloc.edge_edits.iter().filter(|e| e.0 == i) {
                            self.apply(i, edits, &mut taken)?;
                        }
                        labels.get(&l.0).into_iter().for_each(|t| meet(&mut at, &mut work, *t, &taken));
                        continue;
                    }
                }
                break;
            }
        }
        self.judge(&at)
    }

    fn judge(&self, at: &BTreeMap<u32, State>) -> Result<(), CheckError> {
        for (start, state) in at {
            let mut state = state.clone();
            for i in *start..self.func.len() as u32 {
                if i != *start || *start == 0 {
                    if matches!(self.func.inst(i).flow, Flow::Label(_)) && i != *start {
                        break;
                    }
                    self.edits_before(i, &mut state)?;
                }
                self.step(i, &mut state, true)?;
                if matches!(self.func.inst(i).flow, Flow::Jump(_) | Flow::Return) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn edits_before(&self, i: u32, state: &mut State) -> Result<(), CheckError> {
        self.apply(i, &self.edits[i as usize], state)
    }

    fn apply(&self, at: u32, edits: &[Edit], state: &mut State) -> Result<(), CheckError> {
        for e in edits {
            match *e {
                Edit::Move { class, from, to } => {
                    if matches!((from, to), (Loc::Slot(_), Loc::Slot(_))) {
                        return Err(CheckError::BadEdit { inst: at, why: "slot to slot" });
                    }
                    let c = &self.regs.classes[class.0 as usize];
                    for loc in [from, to] {
                        match loc {
                            Loc::Reg(r) if r.file != c.file => {
                                return Err(CheckError::BadEdit { inst: at, why: "wrong register file" });
                            }
                            Loc::Slot(s)
                                if self
                                    .alloc
                                    .frame
                                    .slots
                                    .get(s as usize)
                                    .is_none_or(|s| s.len_bytes < c.slot_bytes) =>
                            {
                                return Err(CheckError::BadEdit { inst: at, why: "slot too small" });
                            }
                            _ => {}
                        }
                    }
                    let old: Vec<Vec<Part>> =
                        units(from, c.width).map(|u| state.get(&u).cloned().unwrap_or_default()).collect();
                    units(to, c.width).zip(old).for_each(|(u, parts)| {
                        state.insert(u, parts);
                    });
                }
                Edit::Remat { inst, to } => {
                    let [op] = self.func.operands(inst) else {
                        return Err(CheckError::BadEdit { inst: at, why: "repeats an instruction with inputs" });
                    };
                    if self.func.inst(inst).kind != Kind::Remat || self.writers(op) != 1 {
                        return Err(CheckError::BadEdit { inst: at, why: "repeats what is not constant" });
                    }
                    let width = self.regs.classes[self.func.class(op.vreg).0 as usize].width;
                    for (k, u) in units(Loc::Reg(to), width).enumerate() {
                        // Every copy of a constant is equally valid.
                        state.insert(u, vec![(op.vreg.0, k as u16)]);
                    }
                }
            }
        }
        Ok(())
    }

    fn writers(&self, op: &Operand) -> usize {
        self.func.operands.iter().filter(|o| o.vreg == op.vreg && o.role.writes()).count()
    }

    fn width(&self, op: &Operand) -> u16 {
        self.regs.classes[self.func.class(op.vreg).0 as usize].width
    }

    /// Executes one instruction on the state; with `judge`, wrong reads are errors.
    fn step(&self, i: u32, state: &mut State, judge: bool) -> Result<(), CheckError> {
        let range = self.func.operand_range(i);
        let ops = || self.func.operands(i).iter().zip(&self.alloc.operands[range.clone()]);
        for (op, loc) in ops().filter(|(op, _)| judge && op.role.reads()) {
            let holds = |(k, u)| state.get(&u).is_some_and(|parts: &Vec<Part>| parts.contains(&(op.vreg.0, k as u16)));
            if !units(*loc, self.width(op)).enumerate().all(holds) {
                return Err(CheckError::WrongValue { inst: i, vreg: op.vreg.0, loc: *loc });
            }
        }
        for r in self.func.clobbers(i) {
            state.remove(&(r.file, u32::from(r.index)));
        }
        for (op, loc) in ops().filter(|(op, _)| op.role.writes()) {
            for parts in state.values_mut() {
                parts.retain(|p| p.0 != op.vreg.0);
            }
            for (k, u) in units(*loc, self.width(op)).enumerate() {
                state.insert(u, vec![(op.vreg.0, k as u16)]);
            }
        }
        Ok(())
    }

    /// Checks one instruction's locations on their own.
    fn places(&self, i: u32) -> Result<(), CheckError> {
        let ops: Vec<(&Operand, Loc)> =
            self.func.operands(i).iter().zip(self.alloc.operands[self.func.operand_range(i)].iter().copied()).collect();
        for (k, (op, loc)) in ops.iter().enumerate() {
            let wrong = |why| Err(CheckError::WrongPlace { inst: i, vreg: op.vreg.0, loc: *loc, why });
            let class = &self.regs.classes[self.func.class(op.vreg).0 as usize];
            match (*loc, op.constraint) {
                (Loc::Slot(_), Constraint::RegOrSlot) if op.role == Role::Use => {}
                (Loc::Slot(_), _) => return wrong("needs a register"),
                (Loc::Reg(r), Constraint::Fixed(f)) if r != f => return wrong("fixed to another register"),
                (Loc::Reg(r), c) => {
                    let file = &self.regs.files[class.file as usize];
                    let order = |k| file.order.contains(&k);
                    if r.file != class.file || r.index + class.width > file.count || r.index % class.align != 0 {
                        return wrong("outside its class");
                    }
                    if !matches!(c, Constraint::Fixed(_)) && !(r.index..r.index + class.width).all(order) {
                        return wrong("a reserved register");
                    }
                }
            }
            let mine = |loc: Loc, op: &Operand| units(loc, self.width(op)).collect::<Vec<Unit>>();
            for (other, at) in &ops[k + 1..] {
                let share = mine(*loc, op).iter().any(|u| mine(*at, other).contains(u));
                if share && clash(op, other) {
                    return wrong("shares a register with another operand");
                }
            }
            let destroyed = |r: &PReg| mine(*loc, op).contains(&(r.file, u32::from(r.index)));
            if op.role != Role::Use && self.func.clobbers(i).iter().any(destroyed) {
                return wrong("destroyed by the instruction");
            }
        }
        Ok(())
    }

    fn slots(&self) -> Result<(), CheckError> {
        let slots = &self.alloc.frame.slots;
        for (k, s) in slots.iter().enumerate() {
            if s.offset + s.len_bytes > self.alloc.frame.len_bytes {
                return Err(CheckError::BadSlot { slot: k as u32, why: "outside the frame" });
            }
            if slots[..k].iter().any(|o| o.offset < s.offset + s.len_bytes && s.offset < o.offset + o.len_bytes) {
                return Err(CheckError::BadSlot { slot: k as u32, why: "overlaps another" });
            }
        }
        Ok(())
    }
}

/// Whether two operands of one instruction may not share a register: their times overlap, and they are not reads of one
/// value.
fn clash(a: &Operand, b: &Operand) -> bool {
    let (early, late) = (|r: Role| r != Role::Def, |r: Role| r != Role::Use);
    let together = (early(a.role) && early(b.role)) || (late(a.role) && late(b.role));
    let both_read = a.vreg == b.vreg && a.role.reads() && b.role.reads() && !a.role.writes() && !b.role.writes();
    let other_reads = !a.role.writes() && !b.role.writes();
    together && !both_read && !other_reads
}

/// Joins a state into the one recorded at `i`; queues `i` if that changed it.
fn meet(at: &mut BTreeMap<u32, State>, work: &mut Vec<u32>, i: u32, state: &State) {
    let Some(known) = at.get_mut(&i) else {
        at.insert(i, state.clone());
        work.push(i);
        return;
    };
    let mut changed = false;
    known.retain(|u, parts| {
        let before = parts.len();
        match state.get(u) {
            Some(other) => parts.retain(|p| other.contains(p)),
            None => parts.clear(),
        }
        changed |= parts.len() != before;
        !parts.is_empty()
    });
    if changed && !work.contains(&i) {
        work.push(i);
    }
}

fn units(loc: Loc, width: u16) -> impl Iterator<Item = Unit> {
    let (file, first) = match loc {
        Loc::Reg(r) => (r.file, u32::from(r.index)),
        Loc::Slot(s) => (SLOT, s * 64),
    };
    (0..u32::from(width)).map(move |k| (file, first + k))
}
