//! Methods as dwords, typed from docs/nv.md 3: a harness shares no encoder with the drivers it tests.

/// Host semaphore release of 64 bits with its time, after WFI (docs/nv.md 3.3).
#[must_use]
pub(crate) fn release(va: u64, value: u64) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, value as u32, (value >> 32) as u32, 0x0310_0001]
}

/// Windows of shared and local memory in the generic address space, above all buffers (docs/nv.md 2.1).
#[must_use]
pub(crate) fn windows() -> [u32; 6] {
    [0x2002_20a8, 0x7294, 0, 0x2002_21ec, 0x7293, 0]
}

/// Host semaphore acquire: at least, 64 bits, switch.
#[must_use]
pub(crate) fn acquire(va: u64, value: u64) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, value as u32, (value >> 32) as u32, 0x0100_1002]
}

/// A copy of bytes: offsets, length, LAUNCH.
#[must_use]
pub(crate) fn copy(src: u64, dst: u64, bytes: u32) -> [u32; 9] {
    let [src_hi, dst_hi] = [src, dst].map(|va| (va >> 32) as u32);
    [0x2004_8100, src_hi, src as u32, dst_hi, dst as u32, 0x2001_8106, bytes, 0x2001_80c0, 0x182]
}

/// A header of an operation that is reserved: the host ends the channel with code 32. (Operation 7 would end the push
/// buffer.)
pub(crate) const BAD_HEADER: u32 = 0xc000_0000;
