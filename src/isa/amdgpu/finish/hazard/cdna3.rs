//! gfx942: no hazard in the table of wait states is interlocked. An instruction is one state, `s_nop n` is n + 1.

use super::super::super::{Inst, Operand, Unit, op};
use super::{EXEC, Hazards, InstFacts, M0, Use, VCC};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// What an instruction did that a later one may come too early for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    /// A vector instruction wrote scalar registers.
    Scalar,
    /// A vector instruction (no matrix one) wrote vector registers.
    Vector,
    Trans,
    Half,
    Dot,
    /// A matrix instruction wrote its result.
    Matrix(Passes),
    /// A matrix instruction reads these as C.
    Addend(Passes),
    /// A store or atomic of more than 64 bits reads these.
    Data,
    /// The scalar unit wrote M0.
    M0,
    /// A mode register was written.
    Mode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Passes {
    count: u8,
    kind: Arithmetic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arithmetic {
    Small,
    Single,
    Double,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    deed: Deed,
    regs: (u16, u16),
    /// States since.
    age: u8,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpenHazards {
    open: Vec<Open>,
}

impl Deed {
    /// States after which no instruction conflicts any more.
    fn longest_conflict(self) -> u8 {
        match self {
            Deed::Scalar => 5,
            Deed::Vector | Deed::Data | Deed::Mode => 2,
            Deed::Trans | Deed::Half | Deed::M0 => 1,
            Deed::Dot => 3,
            Deed::Matrix(_) | Deed::Addend(_) => 19,
        }
    }
}

impl Passes {
    fn of(name: &str) -> Passes {
        let kind = match name {
            _ if name.contains("f64") => Arithmetic::Double,
            _ if name.ends_with("_f32") => Arithmetic::Single,
            _ => Arithmetic::Small,
        };
        let count = match name {
            _ if name.contains("f64_16x16x4") => 8,
            _ if name.contains("f64_4x4x4") => 4,
            _ if name.contains("_4x4x") => 2,
            _ if name.contains("_2b_") || name.contains("32x32x2_f32") => 16,
            _ if name.contains("_4b_") || name.contains("32x32x") || name.contains("16x16x4_f32") => 8,
            _ => 4,
        };
        Passes { count, kind }
    }

    /// States before the result is read by anything, or overwritten by a vector instruction.
    fn result(self, memory: bool) -> u8 {
        match (self.kind, self.count) {
            (Arithmetic::Double, 8) => 11 + 7 * u8::from(memory),
            (Arithmetic::Double, _) => 6 + 3 * u8::from(memory),
            (Arithmetic::Single, n) => n + 2,
            (Arithmetic::Small, n) => n + 3,
        }
    }

    /// States before the result is read as C.
    fn as_c(self, same: bool) -> u8 {
        match (self.kind, self.count, same) {
            (_, 2, true) => 2,
            (Arithmetic::Double, 4, true) => 4,
            (_, _, true) => 0,
            (Arithmetic::Double, n, _) => n + if n == 8 { 1 } else { 0 },
            (Arithmetic::Single, n, _) => n,
            (Arithmetic::Small, n, _) => n + 1,
        }
    }
}

impl Open {
    fn regs(&self) -> Range<u16> {
        self.regs.0..self.regs.1
    }

    /// States that must lie between this and the next instruction.
    fn states_before(&self, next: &InstFacts) -> u8 {
        let regs = self.regs();
        let reads = || next.reads.iter().filter(|u| u.overlaps(&regs));
        let valu = next.is_vector();
        match self.deed {
            Deed::Scalar => reads().map(|u| scalar(u, next)).max().unwrap_or(0).max(self.exec(next)),
            Deed::Vector if reads().next().is_some() => match next.unit {
                Unit::Matrix => 2,
                _ if next.permutes => 2,
                _ => u8::from(lane_read(next)),
            },
            Deed::Trans => u8::from(valu && next.unit != Unit::Trans && reads().next().is_some()),
            Deed::Half => u8::from(valu && reads().next().is_some()),
            Deed::Dot => 3 * u8::from(valu && !is_dot(next) && self.touched(next)),
            Deed::Matrix(p) => self.matrix(p, next),
            Deed::Addend(p) if valu && next.unit != Unit::Matrix && self.written(next) => p.count - 1,
            Deed::Data if valu && self.written(next) => 2,
            Deed::M0 => u8::from(reads().next().is_some() && !next.is_scalar_alu()),
            Deed::Mode if valu || next.name.starts_with("s_setreg") || next.name.starts_with("s_getreg") => 2,
            _ => 0,
        }
    }

    fn exec(&self, next: &InstFacts) -> u8 {
        match self.regs.0 {
            EXEC if next.permutes => 5,
            EXEC if next.unit == Unit::Matrix || lane_access(next) => 4,
            _ => 0,
        }
    }

    fn matrix(&self, p: Passes, next: &InstFacts) -> u8 {
        let regs = self.regs();
        let memory = !next.is_vector();
        let read = next.reads.iter().filter(|u| u.overlaps(&regs)).map(|u| match addend_slot(next) {
            Some(slot) if slot == u.slot => p.as_c(u.regs == regs),
            _ => p.result(memory),
        });
        let read = read.max().unwrap_or(0);
        let overwrites = !memory && next.unit != Unit::Matrix && self.written(next);
        if overwrites { read.max(p.result(false)) } else { read }
    }

    fn written(&self, next: &InstFacts) -> bool {
        next.writes.iter().any(|u| u.overlaps(&self.regs()))
    }

    fn touched(&self, next: &InstFacts) -> bool {
        self.written(next) || next.reads.iter().any(|u| u.overlaps(&self.regs()))
    }
}

/// States before a scalar register that a vector instruction wrote is read.
fn scalar(u: &Use, next: &InstFacts) -> u8 {
    match next.unit {
        Unit::Global | Unit::Flat | Unit::Scratch | Unit::Buffer => 5,
        Unit::Valu if lane_access(next) && u.slot == 2 => 4,
        Unit::Valu if next.name.starts_with("v_div_fmas") && u.regs.start == VCC => 4,
        _ if next.is_vector() && u.regs.start < EXEC => 2,
        _ => 0,
    }
}

/// The operand that a matrix instruction adds to.
fn addend_slot(f: &InstFacts) -> Option<usize> {
    let tied = f.name.starts_with("v_smfmac");
    (f.unit == Unit::Matrix).then_some(if tied { 0 } else { 3 })
}

fn is_dot(f: &InstFacts) -> bool {
    f.name.starts_with("v_dot")
}

fn lane_read(f: &InstFacts) -> bool {
    f.op == op::V_READLANE_B32 || f.op == op::V_READFIRSTLANE_B32
}

fn lane_access(f: &InstFacts) -> bool {
    lane_read(f) || f.op == op::V_WRITELANE_B32
}

impl Hazards for OpenHazards {
    fn merge(&mut self, other: &Self) {
        for o in &other.open {
            match self.open.iter_mut().find(|k| k.deed == o.deed && k.regs == o.regs) {
                Some(k) => k.age = k.age.min(o.age),
                None => self.open.push(o.clone()),
            }
        }
        self.open.sort_unstable();
    }

    fn fix(&mut self, next: &InstFacts) -> SmallVec<[Inst; 2]> {
        let mut missing = self.open.iter().map(|o| o.states_before(next).saturating_sub(o.age)).max().unwrap_or(0);
        self.grow(missing);
        let mut out = smallvec![];
        while missing > 0 {
            let n = missing.min(8);
            out.push(Inst::new(op::S_NOP, [Operand::Int(i64::from(n - 1))]));
            missing -= n;
        }
        out
    }

    fn pass(&mut self, inst: &InstFacts) {
        self.grow(if inst.op == op::S_NOP { u8::try_from(inst.imm & 15).unwrap_or(15) + 1 } else { 1 });
        let mut add = |deed: Deed, regs: &Range<u16>| {
            let regs = (regs.start, regs.end);
            self.open.retain(|o| o.deed != deed || o.regs != regs);
            self.open.push(Open { deed, regs, age: 0 });
        };
        let vector = inst.is_vector();
        for u in &inst.writes {
            match inst.unit {
                _ if vector && u.is_scalar() => add(Deed::Scalar, &u.regs),
                Unit::Matrix => add(Deed::Matrix(Passes::of(inst.name)), &u.regs),
                _ if vector && is_dot(inst) => add(Deed::Dot, &u.regs),
                _ if vector => add(Deed::Vector, &u.regs),
                Unit::Salu if u.regs.start == M0 => add(Deed::M0, &u.regs),
                _ => {}
            }
            match inst.unit {
                Unit::Trans if !u.is_scalar() => add(Deed::Trans, &u.regs),
                Unit::Valu if inst.half && !u.is_scalar() => add(Deed::Half, &u.regs),
                _ => {}
            }
        }
        for u in &inst.reads {
            let wide = !u.is_scalar() && u.regs.len() > 2;
            match inst.unit {
                Unit::Matrix if addend_slot(inst) == Some(u.slot) => add(Deed::Addend(Passes::of(inst.name)), &u.regs),
                Unit::Global | Unit::Flat | Unit::Scratch | Unit::Buffer if wide => add(Deed::Data, &u.regs),
                _ => {}
            }
        }
        if inst.name.starts_with("s_setreg") {
            add(Deed::Mode, &(0..0));
        }
        self.open.sort_unstable();
    }
}

impl OpenHazards {
    /// States go by.
    fn grow(&mut self, states: u8) {
        for o in &mut self.open {
            o.age = o.age.saturating_add(states);
        }
        self.open.retain(|o| o.age < o.deed.longest_conflict());
    }
}
