//! What an instruction must not be moved past, beside its registers: memory, other threads.
//!
//! Most of it the form tells, once for all its instructions; of some loads their strength decides.

use super::inst::Instruction;
use super::registers::{ABSENT, one_of, place};
use super::row::{Field, Pipe, Role};

/// How an instruction is ordered beside its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Free,
    /// Reads memory of these spaces; of none where nothing changes it: then it stays after fences alone, as threads may
    /// end there that must not read.
    Load(u8),
    /// Changes it.
    Store(u8),
    /// Nothing that touches memory or other threads crosses it.
    Fence,
}

const GLOBAL: u8 = 1;
const SHARED: u8 = 2;
const LOCAL: u8 = 4;
/// What depends on which threads run.
const WARP: u8 = 8;
const GENERIC: u8 = GLOBAL | SHARED | LOCAL;

/// What a form tells: weak loads, where that is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormOrder {
    order: Order,
    /// The field of a load's strength, where that decides: a strong one may be seen as a store, one of constants knows
    /// none.
    strength: u8,
    /// It loads from memory into general registers and does nothing else.
    pub loads: bool,
}

pub(super) const fn of_form(mnemonic: &str, pipe: Pipe, fields: &[Field]) -> FormOrder {
    let asks = one_of(mnemonic, &["LDG", "LD"]);
    let strength = if asks { place(fields, "sem", Role::Value) } else { ABSENT };
    let memory = matches!(pipe, Pipe::Global | Pipe::Shared);
    let loads = memory && one_of(mnemonic, &["LDG", "LD", "LDS", "LDL"]);
    FormOrder { order: weak(mnemonic, pipe), strength, loads }
}

const fn weak(mnemonic: &str, pipe: Pipe) -> Order {
    let arithmetic = matches!(pipe, Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::ImadWide | Pipe::Half | Pipe::Double);
    if arithmetic && !one_of(mnemonic, &["VOTE", "CS2R"]) {
        return Order::Free;
    }
    match mnemonic.as_bytes() {
        b"LDG" => Order::Load(GLOBAL),
        b"LD" => Order::Load(GENERIC),
        b"LDS" | b"LDSM" => Order::Load(SHARED),
        b"LDL" => Order::Load(LOCAL),
        b"STG" | b"ATOMG" | b"REDG" | b"RED" => Order::Store(GLOBAL),
        b"STS" | b"ATOMS" | b"STSM" | b"LDGDEPBAR" => Order::Store(SHARED),
        b"LDGSTS" => Order::Store(GLOBAL | SHARED),
        b"STL" => Order::Store(LOCAL),
        b"ST" | b"ATOM" => Order::Store(GENERIC),
        b"SHFL" | b"VOTE" | b"MATCH" | b"REDUX" | b"HMMA" | b"IMMA" | b"BMMA" | b"DMMA" | b"MOVM" | b"ELECT"
        | b"R2UR" | b"VOTEU" => Order::Load(WARP),
        _ if matches!(pipe, Pipe::Branch | Pipe::Bulk | Pipe::Gmma) => Order::Fence,
        b"SYNCS" | b"ARRIVES" | b"DEPBAR" | b"REDAS" | b"STAS" | b"UCGABAR_ARV" | b"UCGABAR_WAIT" | b"CGAERRBAR" => {
            Order::Fence
        }
        b"ACQBULK" | b"PREEXIT" | b"USETMAXREG" | b"PMTRIG" => Order::Fence,
        b"BAR" | b"B2R" | b"MEMBAR" | b"ERRBAR" | b"CCTL" | b"CS2R" | b"FENCE" | b"NOP" => Order::Fence,
        _ => Order::Free,
    }
}

/// How an instruction is ordered.
pub(super) fn order(inst: &Instruction) -> Order {
    let FormOrder { order, strength, .. } = inst.form().order;
    match order {
        Order::Load(spaces) if strength != ABSENT => match inst.text_at(usize::from(strength)) {
            "" => order,
            ".CONSTANT" if spaces == GLOBAL => Order::Load(0),
            _ => Order::Store(spaces),
        },
        _ => order,
    }
}
