//! Packets as dwords, typed from docs/amd.md 2 and 3: a harness shares no packet writer with the drivers it tests.

use super::client::{Gfx, Ring};

/// Lower half of an address.
#[must_use]
pub(crate) const fn lo(va: u64) -> u32 {
    va as u32
}

/// Upper half of an address.
#[must_use]
pub(crate) const fn hi(va: u64) -> u32 {
    (va >> 32) as u32
}

/// PM4 WRITE_DATA of a dword to memory, confirmed.
#[must_use]
pub(crate) fn write_data(va: u64, value: u32) -> [u32; 5] {
    [0xc003_3700, 0x0010_0500, lo(va), hi(va), value]
}

/// PM4 RELEASE_MEM of 32 bits, no flush, no interrupt.
#[must_use]
pub(crate) fn release_mem(va: u64, value: u32) -> [u32; 8] {
    [0xc006_4900, 0x514, 0x2000_0000, lo(va), hi(va), value, 0, 0]
}

/// PM4 RELEASE_MEM of 64 bits.
#[must_use]
pub(crate) fn release_mem64(va: u64, value: u64) -> [u32; 8] {
    [0xc006_4900, 0x514, 0x4000_0000, lo(va), hi(va), lo(value), hi(value), 0]
}

/// PM4 RELEASE_MEM of the card's clock.
#[must_use]
pub(crate) fn release_clock(va: u64) -> [u32; 8] {
    [0xc006_4900, 0x514, 0x6000_0000, lo(va), hi(va), 0, 0, 0]
}

/// PM4 RELEASE_MEM to an event's slot, with the event's interrupt.
#[must_use]
pub(crate) fn release_event(slot: u64, event: u32) -> [u32; 8] {
    [0xc006_4900, 0x514, 0x2200_0000, lo(slot), hi(slot), event, 0, event]
}

/// PM4 WAIT_REG_MEM on memory: `function` 3 equal, 5 at least.
#[must_use]
pub(crate) fn wait_mem(function: u32, va: u64, reference: u32, mask: u32) -> [u32; 7] {
    [0xc005_3c00, 0x10 | function, lo(va), hi(va), reference, mask, 4]
}

/// PM4 COPY_DATA of a dword from memory to memory.
#[must_use]
pub(crate) fn copy_data(src: u64, dst: u64) -> [u32; 6] {
    [0xc004_4000, 0x0010_0502, lo(src), hi(src), lo(dst), hi(dst)]
}

/// PM4 COPY_DATA of the card's clock.
#[must_use]
pub(crate) fn copy_clock(dst: u64) -> [u32; 6] {
    [0xc004_4000, 0x0011_0509, 0, 0, lo(dst), hi(dst)]
}

/// PM4 DMA_DATA of a repeated dword.
#[must_use]
pub(crate) fn dma_fill(dst: u64, value: u32, bytes: u32) -> [u32; 7] {
    [0xc005_5000, 0x8000_0000 | 2 << 29, value, 0, lo(dst), hi(dst), bytes]
}

/// PM4 ATOMIC_MEM: TC_OP 15 adds 32 bits, 47 adds 64.
#[must_use]
pub(crate) fn atomic_mem(op: u32, va: u64, operand: u64) -> [u32; 9] {
    [0xc007_1e00, op, lo(va), hi(va), lo(operand), hi(operand), 0, 0, 0]
}

/// PM4 INDIRECT_BUFFER of so many dwords.
#[must_use]
pub(crate) fn indirect(va: u64, dwords: u32) -> [u32; 4] {
    [0xc002_3f00, lo(va), hi(va), dwords | 1 << 23]
}

/// PM4 COND_EXEC over so many dwords.
#[must_use]
pub(crate) fn cond_exec(va: u64, dwords: u32) -> [u32; 5] {
    [0xc003_2200, lo(va), hi(va), 0, dwords]
}

/// SDMA FENCE: memory type 3 from gfx10 on.
#[must_use]
pub(crate) fn fence(gfx: Gfx, va: u64, value: u32) -> [u32; 4] {
    [if gfx == Gfx::Gfx942 { 5 } else { 0x0003_0005 }, lo(va), hi(va), value]
}

/// SDMA COPY_LINEAR.
#[must_use]
pub(crate) fn sdma_copy(src: u64, dst: u64, bytes: u32) -> [u32; 7] {
    [1, bytes.wrapping_sub(1), 0, lo(src), hi(src), lo(dst), hi(dst)]
}

/// SDMA CONST_FILL in dwords.
#[must_use]
pub(crate) fn sdma_fill(dst: u64, value: u32, bytes: u32) -> [u32; 5] {
    [0x8000_000b, lo(dst), hi(dst), value, bytes - 1]
}

/// SDMA WRITE of two dwords.
#[must_use]
pub(crate) fn sdma_write(dst: u64, values: [u32; 2]) -> [u32; 6] {
    [2, lo(dst), hi(dst), 1, values[0], values[1]]
}

/// SDMA POLL_REGMEM on memory until at least a value.
#[must_use]
pub(crate) fn sdma_poll(va: u64, value: u32) -> [u32; 6] {
    [0xd000_0008, lo(va), hi(va), value, u32::MAX, 0x0fff_0004]
}

/// SDMA TIMESTAMP.
#[must_use]
pub(crate) fn sdma_timestamp(va: u64) -> [u32; 3] {
    [0x020d, lo(va), hi(va)]
}

/// SDMA ATOMIC: 64-bit addition.
#[must_use]
pub(crate) fn sdma_add(va: u64, operand: u64) -> [u32; 8] {
    [0x5e00_000a, lo(va), hi(va), lo(operand), hi(operand), 0, 0, 0]
}

/// SDMA TRAP with a context.
#[must_use]
pub(crate) fn sdma_trap(context: u32) -> [u32; 2] {
    [6, context]
}

/// AQL barrier-and packet with a completion signal.
#[must_use]
pub(crate) fn barrier_and(signals: [u64; 2], completion: u64) -> [u32; 16] {
    let mut words = [0; 16];
    words[0] = 0x1503;
    for (at, signal) in signals.into_iter().enumerate() {
        (words[2 + 2 * at], words[3 + 2 * at]) = (lo(signal), hi(signal));
    }
    (words[14], words[15]) = (lo(completion), hi(completion));
    words
}

/// Something that stores `value` at `va` on any kind of ring but AQL.
#[must_use]
pub(crate) fn signal(ring: Ring, gfx: Gfx, va: u64, value: u32) -> Vec<u32> {
    match ring {
        Ring::Sdma => fence(gfx, va, value).to_vec(),
        Ring::Pm4 | Ring::Aql => release_mem(va, value).to_vec(),
    }
}

/// `out[64 * workgroup + lane] = 64 * workgroup + lane + 1`, kernarg in s[0:1]; llvm-mc 19.
#[rustfmt::skip]
const STORE_GFX11: &[u8] = &[
    0x00, 0x01, 0x04, 0xf4, 0x00, 0x00, 0x00, 0xf8, // s_load_b64 s[4:5], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x36, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x00, 0x00, 0x46, 0xd6, 0x02, 0x0c, 0x01, 0x04, // v_lshl_add_u32 v0, s2, 6, v0
    0x81, 0x00, 0x02, 0x4a,                         // v_add_nc_u32 v1, 1, v0
    0x82, 0x00, 0x00, 0x30,                         // v_lshlrev_b32 v0, 2, v0
    0x07, 0xfc, 0x89, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x00, 0x00, 0x6a, 0xdc, 0x00, 0x01, 0x04, 0x00, // global_store_b32 v0, v1, s[4:5]
    0x00, 0x00, 0xb0, 0xbf,                         // s_endpgm
];
#[rustfmt::skip]
const STORE_GFX942: &[u8] = &[
    0x00, 0x01, 0x06, 0xc0, 0x00, 0x00, 0x00, 0x00, // s_load_dwordx2 s[4:5], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x26, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x00, 0x00, 0xfd, 0xd1, 0x02, 0x0c, 0x01, 0x04, // v_lshl_add_u32 v0, s2, 6, v0
    0x81, 0x00, 0x02, 0x68,                         // v_add_u32 v1, 1, v0
    0x82, 0x00, 0x00, 0x24,                         // v_lshlrev_b32 v0, 2, v0
    0x7f, 0xc0, 0x8c, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x00, 0x80, 0x70, 0xdc, 0x00, 0x01, 0x04, 0x00, // global_store_dword v0, v1, s[4:5]
    0x00, 0x00, 0x81, 0xbf,                         // s_endpgm
];
#[rustfmt::skip]
const STORE_GFX12: &[u8] = &[
    0x00, 0x21, 0x00, 0xf4, 0x00, 0x00, 0x00, 0xf8, // s_load_b64 s[4:5], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x36, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x00, 0x00, 0x46, 0xd6, 0x75, 0x0c, 0x01, 0x04, // v_lshl_add_u32 v0, ttmp9, 6, v0
    0x81, 0x00, 0x02, 0x4a,                         // v_add_nc_u32 v1, 1, v0
    0x82, 0x00, 0x00, 0x30,                         // v_lshlrev_b32 v0, 2, v0
    0x00, 0x00, 0xc7, 0xbf,                         // s_wait_kmcnt 0x0
    0x04, 0x80, 0x06, 0xee, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, // global_store_b32 v0, v1, s[4:5]
    0x00, 0x00, 0xb0, 0xbf,                         // s_endpgm
];

/// The storing kernel of a generation.
#[must_use]
pub(crate) fn store_kernel(gfx: Gfx) -> &'static [u8] {
    match gfx {
        Gfx::Gfx11 => STORE_GFX11,
        Gfx::Gfx942 => STORE_GFX942,
        Gfx::Gfx12 => STORE_GFX12,
    }
}

/// A branch to itself.
#[must_use]
pub(crate) fn endless_kernel(gfx: Gfx) -> &'static [u8] {
    match gfx {
        Gfx::Gfx942 => &[0xff, 0xff, 0x82, 0xbf],
        Gfx::Gfx11 | Gfx::Gfx12 => &[0xff, 0xff, 0xa0, 0xbf],
    }
}

/// RSRC1 of docs/amd.md 4.3 for the smallest allocation, and the register of RSRC3.
#[must_use]
pub(crate) fn rsrc(gfx: Gfx) -> (u32, u32) {
    match gfx {
        Gfx::Gfx11 => (0x60bf_0000, 0x228),
        Gfx::Gfx942 => (0x00af_0080, 0x22d),
        Gfx::Gfx12 => (0x600f_0000, 0x228),
    }
}

/// PM4 dispatch of workgroups of 64 in the steps of docs/amd.md 2.5, as far as registers are not zero anyway.
#[must_use]
pub(crate) fn dispatch(gfx: Gfx, entry: u64, kernarg: u64, groups: [u32; 3], lanes: [u32; 3]) -> Vec<u32> {
    let (rsrc1, rsrc3) = rsrc(gfx);
    let initiator = if gfx == Gfx::Gfx942 { 0x5 } else { 0x8005 };
    let [x, y, z] = groups;
    [
        &[0xc002_7600, 0x20c, lo(entry >> 8), hi(entry >> 8)][..],
        &[0xc002_7600, 0x212, rsrc1, 0x84],
        &[0xc001_7600, rsrc3, 0],
        &[0xc002_7600, 0x240, lo(kernarg), hi(kernarg)],
        &[0xc003_7600, 0x207, lanes[0], lanes[1], lanes[2]],
        &[0xc003_1500, x, y, z, initiator],
        &[0xc000_4600, 0x407],
    ]
    .concat()
}
