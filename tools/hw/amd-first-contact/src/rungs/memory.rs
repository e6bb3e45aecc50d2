//! Memory of every kind: allocated, mapped, written and read by the host, freed.

use crate::explain::{Failure, fail};
use crate::ladder::Climb;
use doorbell::device::amd::Placement;
use doorbell_ioctl::abi::kfd;
use doorbell_ioctl::port::{CallError, Errno, Mapped};
use std::sync::Arc;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub fn memory(climb: &mut Climb) -> Result<String, Failure> {
    let core = climb.core()?;
    let quick = [4 * KIB, 64 * KIB, 2 * MIB, 16 * MIB];
    let thorough = [4 * KIB, 64 * KIB, 2 * MIB, 64 * MIB, 1 << 30];
    let sizes: &[u64] = if climb.is_quick() { &quick } else { &thorough };
    for placement in [Placement::Host, Placement::Vram, Placement::Pinned] {
        for size in sizes {
            let bo = core
                .bo(*size, placement)
                .map_err(|e| Failure::from(format!("{placement:?} of {size:#x} bytes: {e}")))?;
            if placement != Placement::Vram {
                let view = bo.view().map_err(fail)?;
                for at in [0, size / 2, size - 8] {
                    let value = (at ^ 0x0123_4567_89ab_cdef).to_le_bytes();
                    view.write(at, &value).map_err(fail)?;
                    let mut back = [0; 8];
                    view.read(at, &mut back).map_err(fail)?;
                    if back != value {
                        return Err(format!("{placement:?}: the host reads {back:x?} for {value:x?} at {at:#x}").into());
                    }
                }
            }
        }
    }
    let visible = match visible_vram(climb) {
        Ok(()) => "visible VRAM too",
        Err(CallError { errno: Errno::EINVAL, .. }) => "visible VRAM refused: small BAR",
        Err(e) => return Err(format!("visible VRAM: {e}").into()),
    };
    Ok(format!("GTT, VRAM and pinned memory up to {} MiB, {visible}", sizes[sizes.len() - 1] >> 20))
}

/// VRAM that the host reads and writes through the BAR.
fn visible_vram(climb: &Climb) -> Result<(), CallError> {
    let refused = |errno| CallError { name: "visible VRAM", errno };
    let core = climb.core().map_err(|_| refused(Errno::ENODEV))?;
    let (driver, len) = (&core.driver, 64 * KIB);
    let range = Mapped::reserve(driver.port(), len, 4096).map_err(refused)?;
    let flags = kfd::ALLOC_MEM_FLAGS_VRAM | kfd::ALLOC_MEM_FLAGS_PUBLIC | kfd::ALLOC_MEM_FLAGS_WRITABLE;
    let mut args = kfd::AllocMemoryOfGpu {
        va_addr: range.base().0,
        size: len,
        gpu_id: core.node.gpu_id,
        flags,
        ..Default::default()
    };
    driver.call(&kfd::ALLOC_MEMORY_OF_GPU, &mut args)?;
    let seen = range.back(core.render, args.mmap_offset).and_then(|range| {
        let range = Arc::new(range);
        let view = range.view()?;
        let bad = |_| Errno::EFAULT;
        view.write_u64(8, 0x600d_600d).map_err(bad)?;
        view.read_u64(8).map_err(bad)
    });
    let freed = driver.call(&kfd::FREE_MEMORY_OF_GPU, &mut kfd::FreeMemoryOfGpu { handle: args.handle });
    match seen.map_err(refused)? {
        0x600d_600d => freed,
        _ => Err(refused(Errno::EIO)),
    }
}
