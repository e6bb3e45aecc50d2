//! Code as a graph: each instruction with its registers and its possible successors.

use super::super::encode::dual_row;
use super::super::format::Format;
use super::super::{Access, Chip, File, Implicit, Inst, Operand, Reg, Row, Target, Unit, decode, op, print, row_of};
use super::CheckError;
use std::collections::{BTreeMap, HashSet};

/// A set of registers with numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bank {
    Vector,
    Accumulation,
    /// By the code in a source operand: VCC 106, M0 124, EXEC 126.
    Scalar,
}

/// Registers that an instruction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Touch {
    pub bank: Bank,
    pub first: u16,
    pub count: u16,
    /// Operand in the order of the text; `None`: not named.
    pub operand: Option<usize>,
}

impl Touch {
    pub(crate) fn overlaps(&self, o: &Touch) -> bool {
        self.bank == o.bank && self.first < o.first + o.count && o.first < self.first + self.count
    }

    pub(crate) fn same_registers(&self, o: &Touch) -> bool {
        (self.bank, self.first, self.count) == (o.bank, o.first, o.count)
    }
}

/// An instruction in its place.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub offset: u32,
    pub inst: Inst,
    pub name: &'static str,
    pub unit: Unit,
    pub reads: Vec<Touch>,
    pub writes: Vec<Touch>,
    /// Indices of what may come next.
    pub next: Vec<usize>,
}

impl At {
    pub(crate) fn is_vector(&self) -> bool {
        matches!(self.unit, Unit::Valu | Unit::Trans | Unit::Matrix)
    }

    /// Uses the vector memory path, LDS not included.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.unit, Unit::Global | Unit::Flat | Unit::Scratch | Unit::Buffer)
    }

    pub(crate) fn reads_any(&self, t: &Touch) -> bool {
        self.reads.iter().any(|r| r.overlaps(t))
    }

    pub(crate) fn writes_any(&self, t: &Touch) -> bool {
        self.writes.iter().any(|r| r.overlaps(t))
    }

    /// The number that the instruction carries (of two operands the second).
    pub(crate) fn immediate(&self) -> u32 {
        let number = |o: &Operand| if let Operand::Int(v) = o { Some(*v as u32 & 0xffff) } else { None };
        self.inst.operands.iter().rev().find_map(number).unwrap_or(0)
    }
}

/// All instructions that can be reached, in order of their index; the first is the entry.
#[derive(Debug)]
pub(crate) struct Code {
    pub all: Vec<At>,
    target: Target,
}

impl Code {
    pub(crate) fn read(target: Target, text: &[u8]) -> Result<Code, CheckError> {
        let words: Vec<u32> = text.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
        let mut found: BTreeMap<usize, (At, Vec<usize>)> = BTreeMap::new();
        let mut open = vec![0usize];
        while let Some(place) = open.pop() {
            if found.contains_key(&place) {
                continue;
            }
            let offset = (4 * place) as u32;
            let rest = words.get(place..).unwrap_or_default();
            let (inst, len) = decode(target, rest).map_err(|error| CheckError::Decode { offset, error })?;
            let next = match inst.op {
                op::S_SETPC_B64 => computed(target, &words, place).map(|to| vec![to]),
                _ => successors(&inst, place, len),
            };
            let next =
                next.ok_or_else(|| CheckError::Jump { offset, text: print(target, &inst).unwrap_or_default() })?;
            open.extend(&next);
            found.insert(place, (at(target, offset, inst), next));
        }
        let index: BTreeMap<usize, usize> = found.keys().enumerate().map(|(k, place)| (*place, k)).collect();
        let linked = found.into_values().map(|(mut at, next)| {
            at.next = next.iter().map(|place| index[place]).collect();
            at
        });
        Ok(Code { all: linked.collect(), target })
    }

    pub(crate) fn text(&self, k: usize) -> String {
        print(self.target, &self.all[k].inst).unwrap_or_else(|_| self.all[k].name.into())
    }

    /// Walks all paths from the successor of instruction `from`. `visit` gets each instruction with the state on the
    /// path and returns how to continue, or that this path is done. No instruction is visited twice in one state.
    pub(crate) fn walk<S: Clone + Eq + std::hash::Hash>(
        &self,
        from: usize,
        start: S,
        mut visit: impl FnMut(usize, &At, S) -> Result<Option<S>, CheckError>,
    ) -> Result<(), CheckError> {
        let mut open: Vec<(usize, S)> = self.all[from].next.iter().map(|n| (*n, start.clone())).collect();
        let mut seen: HashSet<(usize, S)> = open.iter().cloned().collect();
        while let Some((k, state)) = open.pop() {
            let Some(state) = visit(k, &self.all[k], state)? else { continue };
            for n in &self.all[k].next {
                if seen.insert((*n, state.clone())) {
                    open.push((*n, state.clone()));
                }
            }
        }
        Ok(())
    }
}

/// Dwords where the next instruction may be; `None`: not known.
fn successors(inst: &Inst, place: usize, len: usize) -> Option<Vec<usize>> {
    let name = inst.op.name();
    let jump = || match inst.operands.last() {
        Some(Operand::Int(v)) => place.checked_add_signed(1 + *v as u16 as i16 as isize),
        _ => None,
    };
    match name {
        "s_endpgm" | "s_endpgm_saved" => Some(vec![]),
        "s_branch" => Some(vec![jump()?]),
        _ if name.starts_with("s_cbranch_") && inst.operands.len() == 1 => Some(vec![place + len, jump()?]),
        "s_swappc_b64" | "s_rfe_b64" | "s_call_b64" => None,
        _ => Some(vec![place + len]),
    }
}

/// Target of an `s_setpc` that adds a constant to the program counter right before: `s_getpc`, the addition's two
/// halves and, on gfx1201, a wait.
fn computed(target: Target, words: &[u32], place: usize) -> Option<usize> {
    let start = place.checked_sub(if target.chip == Chip::Gfx1201 { 5 } else { 4 })?;
    let read = |at: usize| decode(target, words.get(at..)?).ok().map(|d| d.0);
    let (get, add, carry, set) = (read(start)?, read(start + 1)?, read(start + 3)?, read(place)?);
    let Some(Operand::Reg(pair)) = get.operands.first() else { return None };
    let half = |k| Operand::Reg(Reg::new(pair.file, pair.first + k, 1));
    let adds = |i: &Inst, k: u16| i.op.name().starts_with("s_add") && i.operands[..2] == [half(k), half(k)];
    let whole = get.op == op::S_GETPC_B64 && set.operands == get.operands && adds(&add, 0) && adds(&carry, 1);
    let bytes = match add.operands.last() {
        Some(Operand::Lit(v)) if whole => v.cast_signed(),
        _ => return None,
    };
    (start + 1).checked_add_signed(isize::try_from(bytes).ok()? / 4)
}

fn at(target: Target, offset: u32, inst: Inst) -> At {
    let (name, chip) = (inst.op.name(), target.chip);
    let halves: Vec<&'static Row> = match inst.dual {
        Some(y) => {
            [dual_row(chip, inst.op, Format::VopdX), dual_row(chip, y, Format::VopdY)].into_iter().flatten().collect()
        }
        None => row_of(target, &inst).into_iter().collect(),
    };
    let unit = halves.first().map_or(Unit::Control, |r| r.unit);
    let mut at = At { offset, name, unit, reads: vec![], writes: vec![], next: vec![], inst };
    let mut operand = 0;
    for row in halves {
        for slot in row.slots {
            if let Some(Operand::Reg(reg)) = at.inst.operands.get(operand)
                && let Some(t) = touch(*reg, operand)
            {
                if slot.access != Access::Write {
                    at.reads.push(t);
                }
                if slot.access != Access::Read {
                    at.writes.push(t);
                }
            }
            operand += 1;
        }
        let mask = u16::from(target.mask_words());
        for (which, first, count) in [(Implicit::VCC, 106, mask), (Implicit::EXEC, 126, mask), (Implicit::M0, 124, 1)] {
            let t = Touch { bank: Bank::Scalar, first, count, operand: None };
            if row.reads.contains(which) {
                at.reads.push(t);
            }
            if row.writes.contains(which) {
                at.writes.push(t);
            }
        }
    }
    at
}

fn touch(reg: Reg, operand: usize) -> Option<Touch> {
    let (bank, base) = match reg.file {
        File::Vgpr => (Bank::Vector, 0),
        File::Agpr => (Bank::Accumulation, 0),
        File::Sgpr => (Bank::Scalar, 0),
        File::Vcc => (Bank::Scalar, 106),
        File::Ttmp => (Bank::Scalar, 108),
        File::M0 => (Bank::Scalar, 124),
        File::Exec => (Bank::Scalar, 126),
        _ => return None,
    };
    Some(Touch { bank, first: base + reg.first, count: reg.words.into(), operand: Some(operand) })
}
