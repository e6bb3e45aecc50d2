//! Actions of the compute engine: windows, local memory, caches, launches, and semaphores ordered with its work.

use super::qmd::{ALIGN_BYTES, check_address};
use super::{Latched, MethodError, PushBuffer, Subchannel, VA_LIMIT, names};
use crate::bits::{Field, field, join, split};
use crate::packet::{EmitError, GpuVa, check_emit_align};

const ENGINE: &str = "compute engine";
const TO: Subchannel = Subchannel::COMPUTE;

const WAIT_FOR_IDLE: u16 = 0x110;
const REPORT_PAYLOAD_LOWER: u16 = 0x158;
const REPORT_ADDRESS_LOWER: u16 = 0x160;
const REPORT_EXECUTE: u16 = 0x168;
const SHARED_WINDOW_A: u16 = 0x2a0;
pub(super) const SEND_PCAS_A: u16 = 0x2b4;
const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;
const NON_THROTTLED_A: u16 = 0x2e4;
const LOCAL_MEMORY_A: u16 = 0x790;
const LOCAL_WINDOW_A: u16 = 0x7b0;
const INVALIDATE_SHADER_CACHES_NO_WFI: u16 = 0x1698;

const CACHE_INSTRUCTION: Field = field(0, 0, 0);
const CACHE_DATA: Field = field(0, 4, 4);
const CACHE_CONSTANT: Field = field(0, 12, 12);
const REPORT_STRUCTURE: Field = field(0, 3, 4);
const REPORT_64: Field = field(0, 12, 12);
/// Actions of SEND_SIGNALING_PCAS2_B: prefetch and schedule; invalidate, prefetch, copy and schedule.
const PCAS2_PREFETCH_SCHEDULE: u32 = 9;
const PCAS2_INVALIDATE_PREFETCH_COPY_SCHEDULE: u32 = 10;
/// Action of SEND_SIGNALING_PCAS_B: invalidate and schedule.
const PCAS_INVALIDATE_SCHEDULE: u32 = 3;

/// The method that submits a launch; it depends on the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pcas {
    /// Turing's method, which all chips have.
    Signaling,
    /// From Ampere on.
    Signaling2,
}

/// One action. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    WaitIdle,
    /// Sets the window of shared memory in the generic address space.
    SharedWindow(GpuVa),
    /// Sets the window of local memory in the generic address space.
    LocalWindow(GpuVa),
    /// Sets the buffer for all threads' local memory.
    LocalMemory(GpuVa),
    /// Sets the local memory per TPC, and the number of SMs that may use it.
    LocalMemorySize {
        tpc_bytes: u64,
        max_sms: u32,
    },
    /// Invalidates the SMs' caches without waiting for running work.
    InvalidateCaches {
        instruction: bool,
        data: bool,
        constant: bool,
    },
    /// Starts the grid of a QMD.
    Launch {
        qmd: GpuVa,
        pcas: Pcas,
    },
    /// Writes 8 bytes after all earlier grids and, with `timestamp`, the time in ns after these bytes. Not on Turing
    /// and GA100.
    Release {
        address: GpuVa,
        value: u64,
        timestamp: bool,
    },
}

impl Action {
    /// Appends the methods.
    ///
    /// # Errors
    /// Addresses that are misaligned or too high for their method.
    pub fn emit(&self, out: &mut PushBuffer) -> Result<(), EmitError> {
        match *self {
            Self::WaitIdle => out.methods(TO, WAIT_FOR_IDLE, &[0]),
            Self::SharedWindow(base) => out.methods(TO, SHARED_WINDOW_A, &super::upper_lower("shared window", base)?),
            Self::LocalWindow(base) => out.methods(TO, LOCAL_WINDOW_A, &super::upper_lower("local window", base)?),
            Self::LocalMemory(base) => out.methods(TO, LOCAL_MEMORY_A, &super::upper_lower("local memory", base)?),
            Self::LocalMemorySize { tpc_bytes, max_sms } => {
                let (packet, max) = ("local memory size", (1 << 40) - 1);
                if tpc_bytes > max {
                    return Err(EmitError::OverLimit { packet, field: "bytes a TPC", value: tpc_bytes, max });
                }
                if max_sms > 0x1ff {
                    return Err(EmitError::OverLimit { packet, field: "SMs", value: max_sms.into(), max: 0x1ff });
                }
                let [lo, hi] = split(tpc_bytes);
                out.methods(TO, NON_THROTTLED_A, &[hi, lo, max_sms])
            }
            Self::InvalidateCaches { instruction, data, constant } => {
                let mut w = [0];
                CACHE_INSTRUCTION.set(&mut w, "instruction", instruction.into())?;
                CACHE_DATA.set(&mut w, "data", data.into())?;
                CACHE_CONSTANT.set(&mut w, "constant", constant.into())?;
                out.methods(TO, INVALIDATE_SHADER_CACHES_NO_WFI, &w)
            }
            Self::Launch { qmd, pcas } => {
                check_address("SEND_PCAS_A", qmd)?;
                out.methods(TO, SEND_PCAS_A, &[(qmd.0 / ALIGN_BYTES) as u32])?;
                match pcas {
                    Pcas::Signaling => out.methods(TO, SEND_SIGNALING_PCAS_B, &[PCAS_INVALIDATE_SCHEDULE]),
                    Pcas::Signaling2 => out.methods(TO, SEND_SIGNALING_PCAS2_B, &[PCAS2_PREFETCH_SCHEDULE]),
                }
            }
            Self::Release { address, value, timestamp } => {
                check_emit_align("report semaphore", address, if timestamp { 16 } else { 8 })?;
                let [address_hi, address_lo] = super::upper_lower("report semaphore", address)?;
                let [lo, hi] = split(value);
                let mut w = [0];
                REPORT_STRUCTURE.set(&mut w, "structure", if timestamp { 0 } else { 2 })?;
                REPORT_64.set(&mut w, "64-bit payload", 1)?;
                out.methods(TO, REPORT_PAYLOAD_LOWER, &[lo, hi, address_lo, address_hi, w[0]])
            }
        }
    }
}

/// The state of one channel's compute engine: the methods written so far.
#[derive(Clone, Debug, Default)]
pub struct Compute(Latched);

impl Compute {
    /// Processes a write; returns the action that it starts or sets up.
    ///
    /// # Errors
    /// Unknown methods, and values that no [`Action`] has.
    pub fn write(&mut self, method: u16, value: u32) -> Result<Option<Action>, MethodError> {
        let Some(name) = names::name_of(names::COMPUTE, method) else {
            return Err(MethodError::Unknown { engine: ENGINE, method, value });
        };
        let refuse = |why| Err(MethodError::Value { engine: ENGINE, name, value, why });
        self.0.set(method, value);
        let pair = |upper| GpuVa(join(value, self.0.get(upper)));
        Ok(match method {
            WAIT_FOR_IDLE => Some(Action::WaitIdle),
            m if m == SHARED_WINDOW_A + 4 => Some(Action::SharedWindow(pair(SHARED_WINDOW_A))),
            m if m == LOCAL_WINDOW_A + 4 => Some(Action::LocalWindow(pair(LOCAL_WINDOW_A))),
            m if m == LOCAL_MEMORY_A + 4 => Some(Action::LocalMemory(pair(LOCAL_MEMORY_A))),
            m if m == NON_THROTTLED_A + 8 => {
                Some(Action::LocalMemorySize { tpc_bytes: self.0.address(NON_THROTTLED_A).0, max_sms: value & 0x1ff })
            }
            INVALIDATE_SHADER_CACHES_NO_WFI => Some(Action::InvalidateCaches {
                instruction: CACHE_INSTRUCTION.get(&[value]) == 1,
                data: CACHE_DATA.get(&[value]) == 1,
                constant: CACHE_CONSTANT.get(&[value]) == 1,
            }),
            SEND_SIGNALING_PCAS_B if value == PCAS_INVALIDATE_SCHEDULE => Some(self.launch(Pcas::Signaling)),
            SEND_SIGNALING_PCAS2_B
                if matches!(value, PCAS2_PREFETCH_SCHEDULE | PCAS2_INVALIDATE_PREFETCH_COPY_SCHEDULE | 2 | 3) =>
            {
                Some(self.launch(Pcas::Signaling2))
            }
            SEND_SIGNALING_PCAS_B | SEND_SIGNALING_PCAS2_B => return refuse("the QMD is not scheduled by it"),
            REPORT_EXECUTE => {
                if value & !(REPORT_STRUCTURE.mask() | REPORT_64.mask() | 4) != 0 {
                    return refuse("only plain releases are supported");
                }
                let address = GpuVa(join(self.0.get(REPORT_ADDRESS_LOWER), self.0.get(REPORT_ADDRESS_LOWER + 4)));
                let upper = if REPORT_64.get(&[value]) == 1 { self.0.get(REPORT_PAYLOAD_LOWER + 4) } else { 0 };
                let payload = join(self.0.get(REPORT_PAYLOAD_LOWER), upper);
                Some(Action::Release { address, value: payload, timestamp: REPORT_STRUCTURE.get(&[value]) == 0 })
            }
            _ => None,
        })
    }

    fn launch(&self, pcas: Pcas) -> Action {
        let qmd = u64::from(self.0.get(SEND_PCAS_A)) * ALIGN_BYTES;
        debug_assert!(qmd < VA_LIMIT);
        Action::Launch { qmd: GpuVa(qmd), pcas }
    }
}
