//! Actions of the host engine: semaphores, waits and memory barriers between channels and the system.

use super::{Latched, MethodError, PushBuffer, Subchannel, names};
use crate::bits::{Field, field, join, split};
use crate::packet::{EmitError, GpuVa, check_emit_align};

const ENGINE: &str = "host";

const SET_OBJECT: u16 = 0x00;
const NON_STALL_INTERRUPT: u16 = 0x20;
const MEM_OP_A: u16 = 0x28;
const MEM_OP_D: u16 = 0x34;
const SEM_ADDR_LO: u16 = 0x5c;
const SEM_PAYLOAD_LO: u16 = 0x64;
const SEM_EXECUTE: u16 = 0x6c;
const WFI: u16 = 0x78;

const OPERATION: Field = field(0, 0, 2);
const SWITCH_TSG: Field = field(0, 12, 12);
const RELEASE_WFI: Field = field(0, 20, 20);
const PAYLOAD_64: Field = field(0, 24, 24);
const TIMESTAMP: Field = field(0, 25, 25);
const EXECUTE: &[Field] = &[OPERATION, SWITCH_TSG, RELEASE_WFI, PAYLOAD_64, TIMESTAMP];
/// MEM_OP_D's operation, bits 31:27; 5 is MEMBAR.
const MEM_OPERATION: Field = field(0, 27, 31);

/// When an acquire is satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Equal = 0,
    /// Greater or equal, unsigned.
    AtLeast = 2,
    /// Greater or equal, modulo the word size.
    Circular = 3,
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Binds the subchannel to an engine's class.
    SetObject { subchannel: Subchannel, class: u32 },
    /// Waits for a semaphore of 64 bits.
    Acquire {
        address: GpuVa,
        value: u64,
        until: Until,
        /// Lets other channel groups run meanwhile.
        switch: bool,
    },
    /// Writes a semaphore: 8 bytes and, with `timestamp`, the time in ns after them.
    Release {
        address: GpuVa,
        value: u64,
        /// After all work of the channel's engines.
        wait_idle: bool,
        timestamp: bool,
    },
    /// Waits for the engines of this context, or of all contexts.
    WaitIdle { all: bool },
    /// Makes earlier stores visible to the system, or only to the GPU.
    Membar { system: bool },
    /// Raises the interrupt that wakes processes waiting for the channel's events.
    Interrupt,
}

impl Action {
    /// Appends the methods.
    ///
    /// # Errors
    /// A semaphore that is not at a multiple of 16, a class that is too large.
    pub fn emit(&self, out: &mut PushBuffer) -> Result<(), EmitError> {
        let host = Subchannel::HOST;
        match *self {
            Self::SetObject { subchannel, class } => out.methods(subchannel, SET_OBJECT, &[class]),
            Self::Acquire { address, value, until, switch } => {
                let mut w = [0];
                OPERATION.set(&mut w, "operation", until as u32)?;
                SWITCH_TSG.set(&mut w, "switch", switch.into())?;
                semaphore(out, address, value, w[0])
            }
            Self::Release { address, value, wait_idle, timestamp } => {
                let mut w = [0];
                OPERATION.set(&mut w, "operation", 1)?;
                RELEASE_WFI.set(&mut w, "wait for idle", wait_idle.into())?;
                TIMESTAMP.set(&mut w, "timestamp", timestamp.into())?;
                semaphore(out, address, value, w[0])
            }
            Self::WaitIdle { all } => out.methods(host, WFI, &[all.into()]),
            Self::Membar { system } => out.methods(host, MEM_OP_A, &[0, 0, u32::from(!system), 5 << 27]),
            Self::Interrupt => out.methods(host, NON_STALL_INTERRUPT, &[0]),
        }
    }
}

fn semaphore(out: &mut PushBuffer, address: GpuVa, value: u64, mut execute: u32) -> Result<(), EmitError> {
    check_emit_align("host semaphore", address, 16)?;
    let [hi, lo] = super::upper_lower("host semaphore", address)?;
    let [value_lo, value_hi] = split(value);
    execute |= PAYLOAD_64.mask();
    out.methods(Subchannel::HOST, SEM_ADDR_LO, &[lo, hi, value_lo, value_hi, execute])
}

/// The state of one channel's host engine: the methods written so far.
#[derive(Clone, Debug, Default)]
pub struct Host(Latched);

impl Host {
    /// Processes a write; returns the action that it starts.
    ///
    /// # Errors
    /// Unknown methods, and values that no [`Action`] has.
    pub fn write(&mut self, subchannel: Subchannel, method: u16, value: u32) -> Result<Option<Action>, MethodError> {
        if names::name_of(names::HOST, method).is_none() {
            return Err(MethodError::Unknown { engine: ENGINE, method, value });
        }
        self.0.set(method, value);
        Ok(match method {
            SET_OBJECT => Some(Action::SetObject { subchannel, class: value & 0xffff }),
            NON_STALL_INTERRUPT => Some(Action::Interrupt),
            WFI => Some(Action::WaitIdle { all: value & 1 == 1 }),
            MEM_OP_D => {
                let operation = MEM_OPERATION.get(&[value]);
                if operation != 5 {
                    let why = "only MEMBAR (5) is supported";
                    return Err(MethodError::Value {
                        engine: ENGINE,
                        name: "MEM_OP_D operation",
                        value: operation,
                        why,
                    });
                }
                Some(Action::Membar { system: self.0.get(MEM_OP_D - 4) & 7 == 0 })
            }
            SEM_EXECUTE => Some(self.execute(value)?),
            _ => None,
        })
    }

    fn execute(&self, value: u32) -> Result<Action, MethodError> {
        let refuse = |why| Err(MethodError::Value { engine: ENGINE, name: "SEM_EXECUTE", value, why });
        let known = EXECUTE.iter().fold(0, |mask, f| mask | f.mask());
        if value & !known != 0 {
            return refuse("reductions and reserved bits are not supported");
        }
        let address = GpuVa(join(self.0.get(SEM_ADDR_LO), self.0.get(SEM_ADDR_LO + 4)));
        if address.0 & 15 != 0 {
            return refuse("the semaphore is not at a multiple of 16 bytes");
        }
        let upper = if PAYLOAD_64.get(&[value]) == 1 { self.0.get(SEM_PAYLOAD_LO + 4) } else { 0 };
        let payload = join(self.0.get(SEM_PAYLOAD_LO), upper);
        let until = match OPERATION.get(&[value]) {
            0 => Until::Equal,
            1 => {
                let (wait_idle, timestamp) = (RELEASE_WFI.get(&[value]) == 1, TIMESTAMP.get(&[value]) == 1);
                return Ok(Action::Release { address, value: payload, wait_idle, timestamp });
            }
            2 => Until::AtLeast,
            3 => Until::Circular,
            _ => return refuse("the operation is not supported"),
        };
        Ok(Action::Acquire { address, value: payload, until, switch: SWITCH_TSG.get(&[value]) == 1 })
    }
}
