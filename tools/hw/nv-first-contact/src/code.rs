//! Kernels for the rungs, in PTX, and their assembly: by our assembler for the chips it knows, by NVIDIA's where
//! `--ptxas` names it.
//!
//! Kernels with clusters or the tensor memory accelerator come as ptxas's own cubins.

use crate::ladder::Climb;
use doorbell::elf::cubin::Arch;
use doorbell::engine::nvidia;
use doorbell::isa::Backend;
use doorbell::isa::ptx::Chip;
use doorbell::isa::sass;
use hw_contact::{Failure, fail};

/// Made by ptxas 13.5 for sm_90 of `tests/data/cubin/device.ptx`: `add`, `stack`, `clusters` (of two CTAs), `load`,
/// `hang`.
pub const PTXAS_SM90: &[u8] = include_bytes!("../../../../tests/data/cubin/device_sm90.cubin");

/// Made by ptxas 13.5 for sm_90a of `tests/data/cubin/tma.ptx`: `bulk`, `tensor`.
pub const PTXAS_TMA: &[u8] = include_bytes!("../../../../tests/data/cubin/tma_sm90a.cubin");

/// The cubin of all kernels below for the chip of that name.
///
/// # Errors
/// The assembler's message.
pub fn cubin(climb: &Climb, chip: &str) -> Result<Vec<u8>, Failure> {
    assemble(climb, chip, "rungs", TEXT)
}

/// The cubin of `box`, for Hopper.
///
/// # Errors
/// As [`cubin`].
pub fn box_cubin(climb: &Climb) -> Result<Vec<u8>, Failure> {
    assemble(climb, "sm_90", "box", BOX_TEXT)
}

fn assemble(climb: &Climb, chip: &str, name: &str, text: &str) -> Result<Vec<u8>, Failure> {
    let known = Chip::parse(chip).ok_or_else(|| Failure::from(format!("no PTX for {chip} here")))?;
    let code = nvidia(known, climb.args.ptxas.as_deref(), None);
    code.assemble(name, &text.replace("sm_90", chip)).map_err(fail)
}

/// Why there is no machine code for the climb's chip.
pub fn why_none(climb: &Climb) -> Option<String> {
    let chip = climb.chip?;
    // The software GPU executes what the assembler makes.
    let ours = Arch::parse(chip).is_some_and(|arch| sass::SmArch::of(arch).is_some());
    if climb.machine.is_software && !ours {
        return Some(format!("the software GPU executes no machine code of {chip}"));
    }
    (!ours && climb.args.ptxas.is_none()).then(|| format!("no assembler for {chip}: --ptxas names NVIDIA's"))
}

/// Words of the tile of [`BOX_TEXT`].
pub const BOX_WORDS: usize = 1024;

/// Copies a tile of 4 KiB at column x and row y by a map among the parameters, and copies it to out in shared memory's
/// order; 32 threads.
const BOX_TEXT: &str = "
.version 8.0
.target sm_90
.address_size 64

.visible .entry box(.param .u64 out, .param .u64 x, .param .u64 y, .param .align 64 .b8 map[128])
{
    .shared .align 1024 .b8 words[4096];
    .shared .align 8 .b8 bar[8];
    .reg .pred %p<3>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [x];
    ld.param.u32 %r2, [y];
    mov.b64 %rd2, map;
    cvta.param.u64 %rd3, %rd2;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, words;
    mov.u32 %r5, bar;
    setp.ne.u32 %p1, %r3, 0;
    @!%p1 mbarrier.init.shared::cta.b64 [%r5], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%p1 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 4096;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd3, {%r1, %r2}], [%r5];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0;
    @!%p2 bra WAIT;
    shl.b32 %r6, %r3, 2;
    add.u32 %r7, %r4, %r6;
    cvt.u64.u32 %rd4, %r6;
    add.u64 %rd1, %rd1, %rd4;
COPY:
    ld.shared.u32 %r8, [%r7];
    st.global.u32 [%rd1], %r8;
    add.u32 %r7, %r7, 128;
    add.u32 %r6, %r6, 128;
    add.u64 %rd1, %rd1, 128;
    setp.lt.u32 %p2, %r6, 4096;
    @%p2 bra COPY;
    ret;
}
";

const TEXT: &str = "
.version 8.0
.target sm_90
.address_size 64

.global .align 4 .u32 counter = 7;
.const .align 4 .b32 table[4] = {11, 22, 33, 44};
.extern .shared .align 16 .b8 dynamic[];

// Nothing.
.visible .entry nothing()
{
    ret;
}

// out[0] = 0x600d
.visible .entry store(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, 0x600d;
    st.global.u32 [%rd1], %r1;
    ret;
}

// out[0] = value
.visible .entry argument(.param .u64 out, .param .u64 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}

// Two words a thread, in order of blocks and threads: block numbers and thread numbers, 8 and 10 bits each.
.visible .entry ids(.param .u64 out)
{
    .reg .b32 %r<24>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ctaid.y;
    mov.u32 %r3, %ctaid.z;
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %tid.y;
    mov.u32 %r6, %tid.z;
    mov.u32 %r7, %nctaid.x;
    mov.u32 %r8, %nctaid.y;
    mov.u32 %r9, %ntid.x;
    mov.u32 %r10, %ntid.y;
    mov.u32 %r11, %ntid.z;
    mad.lo.u32 %r12, %r3, %r8, %r2;
    mad.lo.u32 %r12, %r12, %r7, %r1;
    mul.lo.u32 %r13, %r9, %r10;
    mul.lo.u32 %r13, %r13, %r11;
    mad.lo.u32 %r14, %r6, %r10, %r5;
    mad.lo.u32 %r14, %r14, %r9, %r4;
    mad.lo.u32 %r15, %r12, %r13, %r14;
    shl.b32 %r16, %r2, 8;
    shl.b32 %r17, %r3, 16;
    or.b32 %r18, %r1, %r16;
    or.b32 %r18, %r18, %r17;
    shl.b32 %r19, %r5, 10;
    shl.b32 %r20, %r6, 20;
    or.b32 %r21, %r4, %r19;
    or.b32 %r21, %r21, %r20;
    mul.wide.u32 %rd2, %r15, 8;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r18;
    st.global.u32 [%rd3+4], %r21;
    ret;
}

// a[id] += b[id]
.visible .entry add(.param .u64 a, .param .u64 b)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    ld.global.u32 %r6, [%rd5];
    add.u32 %r7, %r5, %r6;
    st.global.u32 [%rd4], %r7;
    ret;
}

// out[i] = 1023 - i, through shared memory, by 1024 threads; then once more around.
.visible .entry shared(.param .u64 out)
{
    .shared .align 4 .b8 words[4096];
    .reg .b32 %r<12>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, words;
    shl.b32 %r3, %r1, 2;
    add.u32 %r4, %r2, %r3;
    st.shared.u32 [%r4], %r1;
    bar.sync 0;
    mov.u32 %r5, 4092;
    sub.u32 %r6, %r5, %r3;
    add.u32 %r7, %r2, %r6;
    ld.shared.u32 %r8, [%r7];
    bar.sync 0;
    st.shared.u32 [%r4], %r8;
    bar.sync 0;
    ld.shared.u32 %r9, [%r4];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r9;
    ret;
}

// Each of 32 threads stores at both ends of `bytes` of dynamic shared memory and reads its neighbour's.
.visible .entry dynamics(.param .u64 out, .param .u64 bytes)
{
    .reg .b32 %r<16>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [bytes];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, dynamic;
    shl.b32 %r4, %r2, 2;
    add.u32 %r5, %r3, %r4;
    add.u32 %r6, %r5, %r1;
    st.shared.u32 [%r5], %r2;
    xor.b32 %r7, %r2, 0x55;
    st.shared.u32 [%r6+-128], %r7;
    bar.sync 0;
    xor.b32 %r8, %r4, 124;
    add.u32 %r9, %r3, %r8;
    add.u32 %r10, %r9, %r1;
    ld.shared.u32 %r11, [%r9];
    ld.shared.u32 %r12, [%r10+-128];
    shl.b32 %r13, %r12, 16;
    or.b32 %r14, %r11, %r13;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r14;
    ret;
}

// out[id] = id, through a stack of 2 KiB.
.visible .entry stack(.param .u64 out)
{
    .local .align 16 .b8 frame[2048];
    .reg .b32 %r<10>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    and.b32 %r5, %r4, 511;
    mul.wide.u32 %rd2, %r5, 4;
    mov.u64 %rd3, frame;
    add.u64 %rd4, %rd3, %rd2;
    st.local.u32 [%rd4], %r4;
    ld.local.u32 %r6, [%rd4];
    mul.wide.u32 %rd5, %r4, 4;
    add.u64 %rd6, %rd1, %rd5;
    st.global.u32 [%rd6], %r6;
    ret;
}

// out[id] = table[id mod 4] + counter, the table by its bank.
.visible .entry globals(.param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 3;
    mul.wide.u32 %rd2, %r2, 4;
    mov.u64 %rd3, table;
    add.u64 %rd4, %rd3, %rd2;
    ld.const.u32 %r3, [%rd4];
    mov.u64 %rd5, counter;
    ld.global.u32 %r4, [%rd5];
    add.u32 %r5, %r3, %r4;
    mul.wide.u32 %rd6, %r1, 4;
    add.u64 %rd7, %rd1, %rd6;
    st.global.u32 [%rd7], %r5;
    ret;
}

// counter[0] += 1 for each thread
.visible .entry atomics(.param .u64 counters)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [counters];
    mov.u32 %r1, 1;
    atom.global.add.u32 %r2, [%rd1], %r1;
    ret;
}

// Stores to the given address.
.visible .entry wild(.param .u64 address)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}

// Never ends.
.visible .entry endless()
{
    .reg .pred %p;
    .reg .b32 %r;
    mov.u32 %r, %clock;
L:
    setp.ne.u32 %p, %r, 0;
    mov.u32 %r, %clock;
    @%p bra L;
    bra L;
}
";
