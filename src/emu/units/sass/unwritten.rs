//! Unwritten registers, where strict mode allows reading them: moved, saved, combined with a value that decides alone.

use super::operand::{Fields, PSrc};
use super::strict::place;
use super::warp::Warp;
use doorbell_ptx::sass::{self, Access, Effects, Instruction, Pipe, RegFile, Slot};

/// How a result depends on unwritten sources.
pub(super) enum Depends {
    /// They must not be read.
    Plainly,
    /// A move: its result is written where its source, the register of that place, is.
    Moves(u16),
    /// A comparison combined with a predicate: where that decides the result, the comparison does not matter. (The
    /// predicate; false is what decides an AND.)
    Joins(PSrc, bool),
    /// A choice by a predicate: only what is chosen matters, and the result is written where the predicate is.
    Chooses(PSrc),
    /// A table of three predicates: each result is written where the table gives the same for all values of the
    /// unwritten ones.
    Table([PSrc; 3], [u8; 2]),
}

fn place_of(p: PSrc) -> usize {
    place(if p.uniform { RegFile::UniformPredicate } else { RegFile::Predicate }, p.index)
}

fn value(p: PSrc, warp: &Warp) -> u32 {
    let file = if p.uniform { &warp.uniform_predicates } else { &warp.predicates };
    file[usize::from(p.index)] ^ if p.not { u32::MAX } else { 0 }
}

/// The slot of the register that a move copies.
fn copied(inst: &Instruction) -> Option<&'static str> {
    let form = inst.form();
    let is = |slot: &str, wanted: Option<u64>| inst.get(slot, sass::Role::Value) == wanted;
    let register = |slot: &str| {
        let kind = form.position(slot, sass::Role::Value).map(|i| form.fields[i].kind);
        matches!(kind, Some(sass::Kind::R | sass::Kind::UR))
    };
    match (form.mnemonic, form.name) {
        ("MOV", "R" | "U") => Some("b"),
        // IMAD.MOV, IMAD.U32: a product with RZ.
        ("IMAD", name) if name.starts_with("LO") && register("c") && !inst.flag("x", sass::Role::Value) => {
            let none = |slot: &str| register(slot) && is(slot, Some(255));
            (none("a") || none("b")).then_some("c")
        }
        _ => None,
    }
}

/// Functions save registers that their caller may never have written, shuffles read lanes whose result is not used,
/// PRMT puts halves, chosen by its selector, into registers that are unwritten yet, selects by unwritten predicates are
/// dropped; the first multiply of a chain may overwrite its sums.
pub(super) fn spreads(inst: &Instruction, access: &Access) -> bool {
    let sums = inst.form().pipe == Pipe::Gmma && access.slot == Slot::C;
    sums || copied(inst).map(Slot::of) == Some(access.slot)
        || matches!(
            (inst.form().mnemonic, access.slot),
            ("STL", Slot::B)
                | ("SHFL", Slot::A)
                | ("PRMT" | "UPRMT", Slot::A | Slot::C)
                | ("SEL" | "FSEL" | "USEL" | "UFSEL", Slot::PP)
        )
        || inst.form().name == "P" && matches!(inst.form().mnemonic, "PLOP3" | "UPLOP3") && access.slot != Slot::GUARD
}

impl Depends {
    pub(crate) fn of(inst: &Instruction, effects: &Effects) -> Depends {
        let f = Fields(inst);
        let form = inst.form();
        let has = |slot| form.position(slot, sass::Role::Value).is_some();
        if form.name == "P" && matches!(form.mnemonic, "PLOP3" | "UPLOP3") {
            return Depends::Table(["pa", "pb", "pc"].map(|p| f.psrc(p)), ["lut", "lut2"].map(|l| f.bits(l) as u8));
        }
        if matches!(form.mnemonic, "SEL" | "FSEL" | "USEL" | "UFSEL") {
            return Depends::Chooses(f.psrc("pp"));
        }
        if has("bop") && has("pp") && f.bits("bop") < 2 {
            return Depends::Joins(f.psrc("pp"), f.bits("bop") == 1);
        }
        let moved = copied(inst).map(Slot::of).and_then(|slot| effects.reads.iter().find(|r| r.slot == slot));
        match moved.filter(|r| r.count == 1) {
            Some(r) => Depends::Moves(place(r.file, r.first) as u16),
            None => Depends::Plainly,
        }
    }

    /// The predicates whose values matter.
    pub(crate) fn predicates(&self) -> impl Iterator<Item = PSrc> {
        let all: [Option<PSrc>; 3] = match self {
            Depends::Plainly | Depends::Moves(_) => [None; 3],
            Depends::Joins(p, _) | Depends::Chooses(p) => [Some(*p), None, None],
            Depends::Table(sources, _) => sources.map(Some),
        };
        all.into_iter().flatten()
    }

    /// Lanes in which the result is decided before the instruction reads this source.
    pub(crate) fn decided(&self, slot: Slot, warp: &Warp) -> u32 {
        match self {
            Depends::Joins(p, by) if slot != Slot::PP && slot != Slot::GUARD => {
                if *by {
                    value(*p, warp)
                } else {
                    !value(*p, warp)
                }
            }
            Depends::Chooses(p) if slot == Slot::A => !value(*p, warp),
            Depends::Chooses(p) if slot == Slot::B => value(*p, warp),
            _ => 0,
        }
    }

    /// Lanes in which each of two results is a written one; `written` tells it of a register.
    pub(crate) fn known(&self, warp: &Warp, written: impl Fn(usize) -> u32) -> [u32; 2] {
        match self {
            Depends::Plainly | Depends::Joins(..) => [u32::MAX; 2],
            Depends::Moves(place) => [written(usize::from(*place)); 2],
            Depends::Chooses(p) if p.index == 7 => [u32::MAX; 2],
            Depends::Chooses(p) => [written(place_of(*p)); 2],
            Depends::Table(sources, tables) => {
                let have = sources.map(|p| if p.index == 7 { u32::MAX } else { written(place_of(p)) });
                let values = sources.map(|p| value(p, warp));
                tables.map(|table| {
                    let mut may = [0; 2];
                    for row in 0..8u8 {
                        let wanted = |k: usize| if row >> (2 - k) & 1 == 1 { u32::MAX } else { 0 };
                        let can = (0..3).fold(u32::MAX, |can, k| can & (!have[k] | !(values[k] ^ wanted(k))));
                        may[usize::from(table >> row & 1)] |= can;
                    }
                    !(may[0] & may[1])
                })
            }
        }
    }
}
