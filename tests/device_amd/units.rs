//! Compute units that know five "instructions": enough to see that a launch arrives with its registers, code and
//! arguments. They replace the emulated ones where a test is about the driver's side; the code of a kernel is one dword
//! that selects what each work-item does.

use doorbell::emu::kfd::compute::{Compute, ComputeFault, Dispatch, Machine};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// `buffer[id] += value` for each work-item: arguments are an address and a value, 8 bytes each.
pub const ADD: u32 = 0x0add;
/// `buffer[0] += value` after `value` milliseconds.
pub const ADD_LATE: u32 = 0x1a7e;
/// Never ends.
pub const HANG: u32 = 0xdead;
/// Loads from the address that is its first argument.
pub const LOAD: u32 = 0x10ad;
/// No instruction at all.
pub const ILLEGAL: u32 = 0xffff_ffff;

/// Runs dispatches, and remembers them.
#[derive(Debug, Default)]
pub struct Units {
    pub seen: Mutex<Vec<Dispatch>>,
}

impl Compute for Units {
    fn run(&self, dispatch: &Dispatch, machine: &Machine<'_>) -> Result<(), ComputeFault> {
        self.seen.lock().unwrap().push(dispatch.clone());
        let memory = |fault| ComputeFault::Memory { fault, place: "kernel".into() };
        let [lo, hi] = [dispatch.user_data[0], dispatch.user_data[1]];
        let kernarg = u64::from(lo) | u64::from(hi) << 32;
        let argument = |n: u64| machine.vm.read_u64(kernarg + 8 * n).map_err(memory);
        let items: u64 =
            dispatch.groups.iter().zip(&dispatch.local).map(|(g, l)| u64::from(*g) * u64::from(*l)).product();
        match machine.vm.read_u32(dispatch.entry).map_err(memory)? {
            ADD => {
                let (buffer, value) = (argument(0)?, argument(1)?);
                for id in 0..items {
                    machine.vm.update_u32(buffer + 4 * id, |old| old.wrapping_add(value as u32)).map_err(memory)?;
                }
                Ok(())
            }
            ADD_LATE => {
                let (buffer, value) = (argument(0)?, argument(1)?);
                std::thread::sleep(std::time::Duration::from_millis(value));
                machine.vm.update_u32(buffer, |old| old.wrapping_add(value as u32)).map(|_| ()).map_err(memory)
            }
            LOAD => machine.vm.read_u32(argument(0)?).map(|_| ()).map_err(memory),
            HANG => {
                while !machine.stop.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                Err(ComputeFault::Stopped)
            }
            word => Err(ComputeFault::Illegal(format!("{word:#x}"))),
        }
    }
}

/// A kernel of one "instruction".
pub fn kernel(chip: &str, code: u32, private_bytes: u32) -> Vec<u8> {
    image(chip, &[code], private_bytes)
}

/// A kernel: descriptor, then code at the next 256 bytes.
pub fn image(chip: &str, code: &[u32], private_bytes: u32) -> Vec<u8> {
    let mut image = vec![0; 256 + 4 * code.len()];
    let mut put = |at: usize, value: u32| image[at..at + 4].copy_from_slice(&value.to_le_bytes());
    // The values that LLVM gives a kernel with a kernarg pointer and workgroup id x.
    let (rsrc1, properties) = match chip {
        "gfx942" => (0x00af_0080, 0x8),
        "gfx1201" => (0x600f_0000, 0x408),
        _ => (0x60af_0000, 0x408),
    };
    put(4, private_bytes);
    put(16, 256);
    put(48, rsrc1);
    put(52, 0x84 | u32::from(private_bytes > 0));
    put(56, properties);
    for (n, word) in code.iter().enumerate() {
        put(256 + 4 * n, *word);
    }
    image
}
