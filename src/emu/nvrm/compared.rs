//! Grids that run twice: with all checks on a copy of memory, then without checks on memory itself. Different bits end
//! the channel as a finding does.

use super::units::VmBus;
use crate::sass::{self, Access, Bus, Decoder, Fault, Launch, MemoryFault, Options};
use crate::stores::Stores;
use crate::vm::Vm;
use doorbell_ioctl::port::DeviceView;
use std::sync::atomic::AtomicBool;

/// Why a grid ended.
pub(super) enum Ended {
    Fault(Fault),
    Differs(String),
}

/// Runs a grid twice, interpreted and with what the decoder translates, each time on one thread, so that the CTAs come
/// in the same order.
pub(super) fn run(
    grid: &Launch,
    vm: &Vm,
    stop: &AtomicBool,
    options: &Options,
    decoders: [&Decoder; 2],
) -> Result<(), Ended> {
    let (checked, fast) = (Stores::default(), Stores::default());
    let strict = Options { strict: true, shared_order: true, threads: 1, ..*options };
    let plain = Options { strict: false, shared_order: false, ..strict };
    sass::run_decoded(grid, &Copied(VmBus(vm), &checked), stop, &strict, decoders[0]).map_err(Ended::Fault)?;
    sass::run_decoded(grid, &Noted(VmBus(vm), &fast), stop, &plain, decoders[1]).map_err(Ended::Fault)?;
    // What cannot be read any more was unmapped meanwhile, which is a mistake of its own.
    let read = |va: u64, bytes: &mut [u8]| {
        let _ = vm.read_bytes(va, bytes);
    };
    checked.difference(&fast, read).map_or(Ok(()), |difference| Err(Ended::Differs(difference.to_string())))
}

/// Memory, of which stores change a copy.
struct Copied<'a>(VmBus<'a>, &'a Stores);

impl Bus for Copied<'_> {
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.read(va, bytes)?;
        self.1.over(va, bytes);
        Ok(())
    }

    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.0.allows(va, bytes.len(), Access::Write)?;
        self.1.store(va, bytes);
        Ok(())
    }

    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        self.0.allows(va, len_bytes as usize, Access::Atomic)?;
        let mut memory = [0; 8];
        let memory = &mut memory[..len_bytes.min(8) as usize];
        self.0.read(va, memory)?;
        Ok(self.1.update(va, memory, change))
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
}

/// Memory, of which stores are noted.
struct Noted<'a>(VmBus<'a>, &'a Stores);

impl Bus for Noted<'_> {
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.read(va, bytes)
    }

    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.0.write(va, bytes)?;
        self.1.store(va, bytes);
        Ok(())
    }

    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        let old = self.0.update(va, len_bytes, change)?;
        // The value does not matter: memory has it.
        self.1.store(va, &[0; 8][..len_bytes.min(8) as usize]);
        Ok(old)
    }

    /// For loads alone: stores are noted.
    fn view(&self, va: u64, access: Access) -> Option<(u64, DeviceView)> {
        matches!(access, Access::Read | Access::Fetch).then(|| self.0.view(va, access))?
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::SmArch;
    use crate::translate::{Block, Translated, Translation, Translator};
    use crate::vm::{Mapping, Rights};
    use std::sync::Arc;

    const CODE: u64 = 0x1_0000;
    const DATA: u64 = 0x2_0000;

    /// Code that executes nothing, and sets the first lane's bit in a buffer of the warp: of R0, or P0.
    #[derive(Clone, Copy)]
    struct Wrong(usize);

    impl Translator for Wrong {
        fn translate(&self, _: &Block) -> Option<Box<dyn Translated>> {
            Some(Box::new(*self))
        }
    }

    impl Translated for Wrong {
        fn run(&self, buffers: &mut [&mut [u32]], _: &[Option<DeviceView>]) {
            buffers[self.0][0] |= 1;
            // Instructions that were executed.
            buffers[4][1] = 0;
        }
    }

    fn twice(guard: &str, translation: Translation) -> (Result<(), String>, u32) {
        let text = format!(
            "[B------:R-:W0:Y:S05] S2R R0, SR_TID.X ;
            [B------:R-:W-:Y:S05] MOV R2, 0x20000 ;
            [B------:R-:W-:Y:S05] MOV R3, RZ ;
            [B------:R-:W-:Y:S13] ISETP.NE.AND P0, PT, RZ, RZ, PT ;
            [B------:R-:W1:Y:S05] S2R R4, SR_TID.X ;
            [B------:R-:W-:Y:S05] MOV R5, RZ ;
            [B01----:R-:W-:Y:S05] {guard}STG.E [R2], R0 ;
            [B------:R-:W-:Y:S05] EXIT ;"
        );
        let words = doorbell_ptx::sass::assemble_for(&text, SmArch::Sm80).unwrap();
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let vm = Vm::default();
        let rights = Rights { write: true, atomic: true, execute: true };
        let map = |va, bytes: &[u8]| {
            let view = DeviceView::of_bytes(bytes);
            assert!(vm.map(va, Mapping { view, rights, handle: va, queue_refs: 0, revoked: false }));
        };
        map(CODE, &code);
        map(DATA, &[9; 64]);
        let grid = Launch {
            chip: SmArch::Sm80,
            entry: CODE,
            grid: [1; 3],
            block: [1, 1, 1],
            cluster: [1; 3],
            registers: 16,
            barriers: 1,
            shared_bytes: 0,
            local_bytes: 0,
            banks: [None; 8],
        };
        let decoder = Decoder::translated(translation).after(1);
        let stop = AtomicBool::new(false);
        let ended = run(&grid, &vm, &stop, &Options::default(), [&Decoder::default(), &decoder]);
        let text = |ended| match ended {
            Ended::Fault(fault) => format!("{fault}"),
            Ended::Differs(text) => text,
        };
        (ended.map_err(text), vm.read_u32(DATA).unwrap())
    }

    fn differs(what: &str) -> Result<(), String> {
        Err(format!("with checks and without, a kernel leaves different bits: at 0x20000 {what} without"))
    }

    #[test]
    fn code_that_leaves_other_bits_without_checks_is_found() {
        assert_eq!(twice("", Translation::default()), (Ok(()), 0));
        assert_eq!(twice("", Translation(Some(Arc::new(Wrong(0))))), (differs("0x00 with, 0x01"), 1));
    }

    #[test]
    fn a_store_without_checks_alone_is_found() {
        assert_eq!(twice("@P0 ", Translation::default()), (Ok(()), 0x0909_0909));
        assert_eq!(twice("@P0 ", Translation(Some(Arc::new(Wrong(2))))), (differs("nothing with, 0x00"), 0));
    }
}
