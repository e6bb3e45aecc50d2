//! Kernels for the rungs, assembled by `isa::amdgpu` in each chip's spelling.
//!
//! Written for gfx1100; a table has the other chips' names of an instruction. `%wait` waits for everything, `%ids` puts
//! the workgroup's numbers into s8, s9 and s10 (docs/amd.md 4.4; from s4, so before anything is loaded there),
//! `%barrier` is the workgroup's barrier (on gfx1201 s_barrier_signal -1 and s_barrier_wait -1, as words). The argument
//! block's address is in s[0:1].

use crate::explain::{Failure, fail};
use doorbell::elf::amdgpu::KernelSpec;
use doorbell::isa::amdgpu::{Chip, Target, assemble};

/// Offset of the code in an image, after its descriptor.
const ENTRY: usize = 256;

/// The properties of a kernel other than its text.
#[derive(Clone, Copy, Default)]
pub struct Needs {
    pub lds_bytes: u32,
    pub scratch_bytes: u32,
    /// Vector registers; 32 if 0.
    pub vgprs: u32,
}

/// gfx1100's word, gfx942's, gfx1201's.
const SPELLINGS: &[[&str; 3]] = &[
    ["s_load_b64", "s_load_dwordx2", "s_load_b64"],
    ["s_load_b128", "s_load_dwordx4", "s_load_b128"],
    ["s_add_i32", "s_add_i32", "s_add_co_i32"],
    ["v_add_nc_u32", "v_add_u32", "v_add_nc_u32"],
    ["v_sub_nc_u32", "v_sub_u32", "v_sub_nc_u32"],
    ["global_load_b32", "global_load_dword", "global_load_b32"],
    ["global_store_b32", "global_store_dword", "global_store_b32"],
    ["global_store_b64", "global_store_dwordx2", "global_store_b64"],
    ["global_atomic_add_u32", "global_atomic_add", "global_atomic_add_u32"],
    ["scratch_load_b32", "scratch_load_dword", "scratch_load_b32"],
    ["scratch_store_b32", "scratch_store_dword", "scratch_store_b32"],
    ["ds_load_b32", "ds_read_b32", "ds_load_b32"],
    ["ds_store_b32", "ds_write_b32", "ds_store_b32"],
    [
        "%wait",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
        "s_wait_loadcnt 0x0\ns_wait_storecnt 0x0\ns_wait_dscnt 0x0\ns_wait_kmcnt 0x0",
    ],
    ["%barrier", "s_barrier", ".long 0xbe804ec1\n.long 0xbf94ffff"],
    [
        "%ids",
        "s_mov_b32 s8, s2\ns_mov_b32 s9, s3\ns_mov_b32 s10, s4",
        "s_mov_b32 s8, ttmp9\ns_and_b32 s9, ttmp7, 0xffff\ns_lshr_b32 s10, ttmp7, 16",
    ],
];
/// gfx1100's own forms of the words with %.
const GFX1100: &[(&str, &str)] = &[
    ("%wait", "s_waitcnt vmcnt(0) lgkmcnt(0)\ns_waitcnt_vscnt null, 0x0"),
    ("%barrier", "s_barrier"),
    ("%ids", "s_mov_b32 s8, s2\ns_mov_b32 s9, s3\ns_mov_b32 s10, s4"),
];

/// The text as a chip spells it.
fn spelled(chip: Chip, text: &str) -> String {
    let word = |word: &str| -> String {
        let column = match chip {
            Chip::Gfx1100 => return GFX1100.iter().find(|g| g.0 == word).map_or(word, |g| g.1).into(),
            Chip::Gfx942 => 1,
            Chip::Gfx1201 => 2,
        };
        SPELLINGS.iter().find(|s| s[0] == word).map_or(word, |s| s[column]).into()
    };
    let line = |line: &str| match line.trim().split_once(' ') {
        Some((op, rest)) => format!("{} {rest}\n", word(op)),
        None => format!("{}\n", word(line.trim())),
    };
    text.lines().filter(|l| !l.trim().is_empty()).map(line).collect()
}

/// Descriptor and code of a kernel for the chip of that name.
///
/// # Errors
/// A chip without an assembler, a text that does not assemble.
pub fn image(chip: &str, text: &str, needs: Needs) -> Result<Vec<u8>, Failure> {
    let unknown = || Failure::from(format!("no kernels for {chip} here"));
    let gpu = Chip::parse(chip).ok_or_else(unknown)?;
    let words = assemble(Target::of(gpu), &spelled(gpu, text)).map_err(fail)?.words;
    let spec = KernelSpec {
        gpu,
        wave32: !gpu.is_gfx9(),
        vgprs: if needs.vgprs == 0 { 32 } else { needs.vgprs },
        acc_vgprs: 0,
        sgprs: 32,
        lds_bytes: needs.lds_bytes,
        scratch_bytes: needs.scratch_bytes,
        kernarg_bytes: 32,
        user_sgprs: 2,
        workgroup_ids: [true; 3],
        workitem_dims: 3,
    };
    let mut descriptor = spec.descriptor();
    descriptor.entry_offset_bytes = ENTRY as i64;
    let mut out = descriptor.emit().to_vec();
    out.resize(ENTRY, 0);
    out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    Ok(out)
}

/// Nothing.
pub const END: &str = "s_endpgm";
/// `out[0] = 0x600d`
pub const STORE: &str = "
    s_load_b64 s[4:5], s[0:1], 0x0
    v_mov_b32 v0, 0
    v_mov_b32 v1, 0x600d
    %wait
    global_store_b32 v0, v1, s[4:5]
    s_endpgm";
/// `out[0] = low dword of the second argument`
pub const STORE_ARGUMENT: &str = "
    s_load_b128 s[4:7], s[0:1], 0x0
    v_mov_b32 v0, 0
    %wait
    v_mov_b32 v1, s6
    global_store_b32 v0, v1, s[4:5]
    s_endpgm";
/// For groups of 8 x 4 x 2: `out[linear] = (group's numbers x | y << 8 | z << 16, v0 as the hardware filled it)`; the
/// second argument is the grid's x and y.
pub const IDS: &str = "
    %ids
    s_load_b128 s[4:7], s[0:1], 0x0
    %wait
    s_mul_i32 s11, s10, s7
    s_add_i32 s11, s11, s9
    s_mul_i32 s11, s11, s6
    s_add_i32 s11, s11, s8
    s_lshl_b32 s11, s11, 6
    s_lshl_b32 s9, s9, 8
    s_lshl_b32 s10, s10, 16
    s_or_b32 s8, s8, s9
    s_or_b32 s8, s8, s10
    v_and_b32 v1, 0x3ff, v0
    v_bfe_u32 v2, v0, 10, 10
    v_bfe_u32 v3, v0, 20, 10
    v_lshl_add_u32 v1, v2, 3, v1
    v_lshl_add_u32 v1, v3, 5, v1
    v_add_nc_u32 v1, s11, v1
    v_lshlrev_b32 v1, 3, v1
    v_mov_b32 v4, s8
    v_mov_b32 v5, v0
    global_store_b64 v1, v[4:5], s[4:5]
    s_endpgm";
/// `a[i] += b[i]`, groups of 64.
pub const ADD: &str = "
    %ids
    s_load_b128 s[4:7], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    s_lshl_b32 s8, s8, 6
    v_add_nc_u32 v0, s8, v0
    v_lshlrev_b32 v0, 2, v0
    %wait
    global_load_b32 v1, v0, s[4:5]
    global_load_b32 v2, v0, s[6:7]
    %wait
    v_add_nc_u32 v1, v1, v2
    global_store_b32 v0, v1, s[4:5]
    s_endpgm";
/// A group of 1024: each work-item stores its number in LDS, all wait at the barrier, each reads its mirror's.
pub const LDS: &str = "
    s_load_b64 s[4:5], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    ds_store_b32 v1, v0
    %wait
    %barrier
    v_sub_nc_u32 v2, 0xffc, v1
    ds_load_b32 v3, v2
    %wait
    global_store_b32 v1, v3, s[4:5]
    s_endpgm";
/// `out[0] += 1` by every work-item.
pub const ATOMIC: &str = "
    s_load_b64 s[4:5], s[0:1], 0x0
    v_mov_b32 v0, 0
    v_mov_b32 v1, 1
    %wait
    global_atomic_add_u32 v0, v1, s[4:5]
    s_endpgm";
/// Groups of 64: each work-item puts its number through its own scratch.
pub const SCRATCH: &str = "
    %ids
    s_load_b64 s[4:5], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    s_lshl_b32 s8, s8, 6
    v_add_nc_u32 v0, s8, v0
    scratch_store_b32 off, v0, off offset:12
    %wait
    v_lshlrev_b32 v1, 2, v0
    scratch_load_b32 v2, off, off offset:12
    %wait
    global_store_b32 v1, v2, s[4:5]
    s_endpgm";
/// A group of 32 with 256 registers: a number goes through the last of them.
pub const REGISTERS: &str = "
    s_load_b64 s[4:5], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_xor_b32 v255, 0x55, v0
    v_mov_b32 v254, v255
    %wait
    global_store_b32 v1, v254, s[4:5]
    s_endpgm";
/// A group of 32: each lane reads the number of lane 31 - itself.
pub const PERMUTE: &str = "
    s_load_b64 s[4:5], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_sub_nc_u32 v2, 0x7c, v1
    ds_bpermute_b32 v3, v2, v0
    %wait
    global_store_b32 v1, v3, s[4:5]
    s_endpgm";
/// Loads from the address that is its argument.
pub const LOAD: &str = "
    s_load_b64 s[4:5], s[0:1], 0x0
    v_mov_b32 v0, 0
    %wait
    global_load_b32 v1, v0, s[4:5]
    %wait
    s_endpgm";
/// Continues at address 0.
pub const JUMP: &str = "
    s_mov_b64 s[4:5], 0
    s_setpc_b64 s[4:5]
    s_endpgm";
/// No instruction of any chip.
pub const ILLEGAL: &str = ".long 0xffffffff";
/// For ever.
pub const LOOP: &str = "again: s_branch again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_assembles_for_every_chip() {
        let all =
            [END, STORE, STORE_ARGUMENT, IDS, ADD, LDS, ATOMIC, SCRATCH, REGISTERS, PERMUTE, LOAD, JUMP, ILLEGAL, LOOP];
        for chip in ["gfx1100", "gfx942", "gfx1201"] {
            for text in all {
                if let Err(e) = image(chip, text, Needs::default()) {
                    panic!("{chip}: {}\n{text}", e.what);
                }
            }
        }
        assert!(image("gfx90a", END, Needs::default()).is_err());
    }
}
