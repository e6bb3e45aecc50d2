//! The kernels that are measured, in PTX; the same machine code is given to CUDA.

use crate::Args;
use doorbell::engine::nvidia;
use doorbell::isa::Backend;
use doorbell::isa::ptx::Chip;
use hw_contact::{Failure, fail};

/// Threads of a block, for all that is launched here.
pub const BLOCK: u32 = 128;

/// The text for a chip.
pub fn text(chip: &str) -> String {
    TEXT.replace("sm_90", chip)
}

/// The cubin for a chip.
///
/// # Errors
/// The assembler's message.
pub fn cubin(args: &Args, chip: &str) -> Result<Vec<u8>, Failure> {
    let known = Chip::parse(chip).ok_or_else(|| Failure::from(format!("no PTX for {chip} here")))?;
    nvidia(known, args.ptxas.as_deref(), None).assemble("nv-check", &text(chip)).map_err(fail)
}

const TEXT: &str = "
.version 8.0
.target sm_90
.address_size 64

// Nothing.
.visible .entry nothing()
{
    ret;
}

// Clocks of the SM and ns of the GPU, from one end of a loop to the other.
.visible .entry clocks(.param .u64 out, .param .u64 rounds)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [rounds];
    mov.u64 %rd2, %globaltimer;
    mov.u64 %rd3, %clock64;
    mov.u32 %r2, 1;
LOOP:
    mad.lo.u32 %r2, %r2, %r2, %r1;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra LOOP;
    mov.u64 %rd4, %globaltimer;
    mov.u64 %rd5, %clock64;
    sub.u64 %rd6, %rd4, %rd2;
    sub.u64 %rd7, %rd5, %rd3;
    st.global.u64 [%rd1], %rd6;
    st.global.u64 [%rd1+8], %rd7;
    st.global.u32 [%rd1+16], %r2;
    ret;
}
";
