//! Instructions that change the program counter or wait: decoded here, executed in `path`.

use super::fault::{R, not_modelled};
use super::operand::{Fields, PSrc, Src};
use doorbell_ptx::sass::Value;

/// What a branch does with its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Lanes whose predicate is true.
    Each,
    /// All, if any lane's does.
    Any,
    /// All, if every lane's does.
    All,
    /// All, if lanes of the mask in that uniform register are missing.
    Divergent(u8),
    /// All, if none is missing.
    Convergent(u8),
}

/// Barrier number, count or lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Fixed(u32),
    Register(u8),
}

/// What BAR does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierOp {
    Sync,
    Arrive,
    /// Sync, and a predicate of all threads is reduced: 0 counted, 1 all, 2 any.
    Reduce(u64, PSrc),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To a fixed distance from the next instruction.
    Branch {
        taken: Taken,
        pp: PSrc,
        up: PSrc,
        distance: i64,
    },
    /// To a register pair plus a distance, from the next instruction or from 0.
    Indirect {
        pp: PSrc,
        register: u8,
        distance: i64,
        relative: bool,
    },
    /// The same of a pair of uniform registers.
    UniformIndirect {
        pp: PSrc,
        register: u8,
        distance: i64,
    },
    /// To an address.
    Absolute {
        pp: PSrc,
        address: u64,
    },
    Exit {
        pp: PSrc,
    },
    /// BSSY.
    Enter {
        pp: PSrc,
        barrier: u8,
    },
    /// BSYNC.
    Converge {
        pp: PSrc,
        barrier: u8,
    },
    Break {
        pp: PSrc,
        barrier: u8,
    },
    /// WARPSYNC of these lanes.
    WarpSync {
        pp: PSrc,
        mask: Number,
    },
    Barrier {
        op: BarrierOp,
        number: Number,
        count: Number,
    },
    /// The cluster's barrier: arrive, wait.
    ClusterArrive,
    ClusterWait,
}

pub(super) fn distance(f: Fields) -> R<i64> {
    match f.0.operand("t").map(|o| o.value) {
        Some(Value::Distance(d)) => Ok(d),
        _ => not_modelled(format!("target of {}", f.0.form().mnemonic)),
    }
}

/// None: an instruction that does neither.
pub(super) fn lower(f: Fields) -> R<Option<Flow>> {
    let (pp, barrier) = (f.psrc("pp"), (f.bits("b") & 15) as u8);
    let form = f.0.form();
    Ok(Some(match form.mnemonic {
        "BRA" => branch(f)?,
        "CALL" if form.name == "RELI" => {
            Flow::Branch { taken: Taken::Each, pp, up: f.psrc("up"), distance: distance(f)? }
        }
        "CALL" if form.name == "ABSI" => Flow::Absolute { pp, address: distance(f)?.cast_unsigned() },
        "CALL" | "RET" | "BRX" => {
            let relative = !form.name.starts_with("ABS");
            Flow::Indirect { pp, register: f.register("a")?, distance: distance(f)?, relative }
        }
        "BRXU" => Flow::UniformIndirect { pp, register: f.uniform("a")?, distance: distance(f)? },
        "EXIT" | "KILL" => Flow::Exit { pp },
        "BSSY" => Flow::Enter { pp, barrier },
        "BSYNC" => Flow::Converge { pp, barrier },
        "BREAK" => Flow::Break { pp, barrier },
        "WARPSYNC" if form.name.ends_with('R') => Flow::WarpSync { pp, mask: Number::Register(f.register("a")?) },
        "WARPSYNC" if form.name == "I" => Flow::WarpSync { pp, mask: Number::Fixed(f.bits("m") as u32) },
        "WARPSYNC" => Flow::WarpSync { pp, mask: Number::Fixed(u32::MAX) },
        "BAR" => bar(f)?,
        "UCGABAR_ARV" => Flow::ClusterArrive,
        "UCGABAR_WAIT" => Flow::ClusterWait,
        _ => return Ok(None),
    }))
}

fn branch(f: Fields) -> R<Flow> {
    let taken = match f.text("dv") {
        ".DIV" => Taken::Divergent(f.uniform("u").or_else(|_| f.uniform("up"))?),
        ".CONV" => Taken::Convergent(f.uniform("u").or_else(|_| f.uniform("up"))?),
        _ if f.has("any") => Taken::Any,
        ".U" => Taken::All,
        _ => Taken::Each,
    };
    Ok(Flow::Branch { taken, pp: f.psrc("pp"), up: f.psrc("up"), distance: distance(f)? })
}

fn number(f: Fields, slot: &str) -> R<Number> {
    if f.0.operand(slot).is_none() {
        return Ok(Number::Fixed(0));
    }
    match f.src(slot)?.src {
        Src::R(255) => Ok(Number::Fixed(0)),
        Src::R(r) => Ok(Number::Register(r)),
        Src::Imm(v, _) => Ok(Number::Fixed(v)),
        _ => not_modelled("number of a barrier"),
    }
}

fn bar(f: Fields) -> R<Flow> {
    let op = match f.0.form().name {
        "ARV" | "RARV" => BarrierOp::Arrive,
        "RED" => BarrierOp::Reduce(f.bits("op"), f.psrc("pp")),
        "RR" | "IR" if f.text("md") == ".ARV" => BarrierOp::Arrive,
        _ => BarrierOp::Sync,
    };
    Ok(Flow::Barrier { op, number: number(f, "b")?, count: number(f, "c")? })
}
