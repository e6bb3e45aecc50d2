//! Memory and thread ordering: what an instruction must not be moved across, besides its register dependencies.
//!
//! Most of it is determined by the form; for some loads it depends on their memory order.

use super::inst::Instruction;
use super::registers::{ABSENT, place};
use super::row::{Field, Pipe, Role};

/// How an instruction is ordered with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Free,
    /// Reads memory of these spaces. Of none, if that memory never changes: then it is ordered only after fences,
    /// because threads that must not read may exit there.
    Load(u8),
    /// Writes memory of these spaces.
    Store(u8),
    /// No memory access or interaction with other threads may be moved across it.
    Fence,
}

const GLOBAL: u8 = 1;
const SHARED: u8 = 2;
const LOCAL: u8 = 4;
/// Depends on which threads are active.
const WARP: u8 = 8;
const GENERIC: u8 = GLOBAL | SHARED | LOCAL;

/// The ordering that a form implies; weak loads, where the memory order matters.
#[derive(Clone, Copy, Debug)]
pub(super) struct FormOrder {
    order: Order,
    /// The field of a load's memory order, if that matters. A strong load counts as a store; loads of constants have no
    /// order.
    strength: u8,
    /// It only loads from memory into general registers.
    pub loads: bool,
}

pub(super) const fn of_form(mnemonic: &str, pipe: Pipe, fields: &[Field]) -> FormOrder {
    let asks = matches!(mnemonic.as_bytes(), b"LDG" | b"LD");
    let strength = if asks { place(fields, "sem", Role::Value) } else { ABSENT };
    let memory = matches!(pipe, Pipe::Global | Pipe::Shared);
    let loads = memory && matches!(mnemonic.as_bytes(), b"LDG" | b"LD" | b"LDS" | b"LDL");
    FormOrder { order: weak(mnemonic, pipe), strength, loads }
}

const fn weak(mnemonic: &str, pipe: Pipe) -> Order {
    let arithmetic = matches!(pipe, Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::ImadWide | Pipe::Half | Pipe::Double);
    if arithmetic && !matches!(mnemonic.as_bytes(), b"VOTE" | b"CS2R") {
        return Order::Free;
    }
    match mnemonic.as_bytes() {
        b"LDG" => Order::Load(GLOBAL),
        b"LD" => Order::Load(GENERIC),
        b"LDS" | b"LDSM" => Order::Load(SHARED),
        b"LDL" => Order::Load(LOCAL),
        b"STG" | b"LDGMC" | b"ATOMG" | b"REDG" | b"RED" => Order::Store(GLOBAL),
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
        b"ACQBULK" | b"PREEXIT" | b"USETMAXREG" | b"PMTRIG" | b"UGETNEXTWORKID" => Order::Fence,
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
