//! The checker on code written for it: a pair of instructions that a chip does not keep apart is named, and what keeps
//! it apart is enough. Each case is correct code; the marked line (`!`) is the one that must not be missing.

use doorbell::isa::amdgpu::{Chip, Target, assemble, check};

const ALL: &[Chip] = &Chip::ALL;
const GFX942: &[Chip] = &[Chip::Gfx942];
const GFX1100: &[Chip] = &[Chip::Gfx1100];
const GFX1201: &[Chip] = &[Chip::Gfx1201];
const RDNA: &[Chip] = &[Chip::Gfx1100, Chip::Gfx1201];

#[rustfmt::skip]
const CASES: &[(&str, &[Chip], &str)] = &[
    ("scalar load read", GFX942, "s_load_dwordx2 s[4:5], s[0:1], 0x0 |! s_waitcnt lgkmcnt(0) | s_mov_b32 s6, s4"),
    ("scalar load read", GFX1100, "s_load_b64 s[4:5], s[0:1], 0x0 |! s_waitcnt lgkmcnt(0) | s_mov_b32 s6, s5"),
    ("scalar load read", GFX1201, "s_load_b64 s[4:5], s[0:1], 0x0 |! s_wait_kmcnt 0x0 | s_mov_b32 s6, s5"),
    ("scalar load overwritten", GFX1201, "s_load_b64 s[4:5], s[0:1], 0x0 |! s_wait_kmcnt 0x0 | s_mov_b32 s5, 0"),
    ("scalar load into vcc, read unnamed", GFX1100, "s_load_b32 vcc_lo, s[0:1], 0x0 |! s_waitcnt lgkmcnt(0) | v_div_fmas_f32 v0, v1, v2, v3"),
    ("global load read", GFX942, "global_load_dword v1, v0, s[4:5] |! s_waitcnt vmcnt(0) | v_mov_b32 v2, v1"),
    ("the first of two global loads", GFX1100, "global_load_b32 v1, v0, s[4:5] | global_load_b32 v2, v0, s[4:5] |! s_waitcnt vmcnt(1) | v_mov_b32 v3, v1"),
    ("stores count on gfx942", GFX942, "global_load_dword v1, v0, s[4:5] | global_store_dword v0, v7, s[4:5] |! s_waitcnt vmcnt(1) | v_mov_b32 v3, v1"),
    ("global load overwritten", GFX1201, "global_load_b32 v1, v0, s[4:5] |! s_wait_loadcnt 0x0 | v_mov_b32 v1, 0"),
    ("global load stored", GFX1201, "global_load_b32 v1, v0, s[4:5] |! s_wait_loadcnt 0x0 | global_store_b32 v0, v1, s[4:5]"),
    ("LDS load read", GFX1201, "ds_load_b32 v1, v0 |! s_wait_dscnt 0x0 | v_mov_b32 v2, v1"),
    ("LDS load behind a scalar one", GFX942, "ds_read_b32 v1, v0 | ds_read_b32 v2, v0 | s_load_dword s4, s[0:1], 0x0 |! s_waitcnt lgkmcnt(0) | v_mov_b32 v3, v2 | v_mov_b32 v3, s4"),
    ("LDS store before a barrier", GFX1100, "ds_store_b32 v0, v1 |! s_waitcnt lgkmcnt(0) | s_barrier"),
    ("LDS store before a barrier", GFX1201, "ds_store_b32 v0, v1 |! s_wait_dscnt 0x0 | s_barrier_signal -1 | s_barrier_wait -1"),
    ("atomic with result", GFX1100, "global_atomic_add_u32 v1, v0, v2, s[4:5] glc |! s_waitcnt vmcnt(0) | v_mov_b32 v2, v1"),
    ("scratch load", GFX942, "scratch_load_dword v1, off, off |! s_waitcnt vmcnt(0) | v_mov_b32 v2, v1"),
    ("load read in the next turn of a loop", GFX1100, "top: | v_mov_b32 v2, v1 | global_load_b32 v1, v0, s[4:5] |! s_waitcnt vmcnt(0) | s_cbranch_scc1 top"),
    ("load on one of two paths", GFX1100, "s_cbranch_scc1 other | global_load_b32 v1, v0, s[4:5] |! s_waitcnt vmcnt(0) | other: | v_mov_b32 v2, v1"),

    ("transcendental result", GFX1100, "v_exp_f32 v1, v0 |! s_waitcnt_depctr 0xfff | v_add_f32 v2, v1, v1"),
    ("transcendental result after one other", GFX1100, "v_exp_f32 v1, v0 | v_log_f32 v3, v0 |! v_sqrt_f32 v4, v0 | v_add_f32 v2, v1, v1"),
    ("transcendental result in the next turn", GFX1100, "top: | v_add_f32 v2, v1, v1 | v_exp_f32 v1, v0 |! s_waitcnt_depctr 0xfff | s_cbranch_scc1 top"),
    ("matrix result as A", RDNA, "v_wmma_f32_16x16x16_f16 v[8:15], v[0:A], v[16:B], v[8:15] |! v_nop | v_wmma_f32_16x16x16_f16 v[24:31], v[8:C], v[16:B], v[24:31]"),
    ("v_cmpx before v_permlane", GFX1100, "v_cmpx_eq_u32 v0, v1 |! v_nop | v_permlanex16_b32 v2, v3, s0, s1"),

    ("kept scalar written by the scalar unit", GFX1201, "v_mov_b32 v0, s4 | s_mov_b32 s4, 0 |! s_wait_alu 0xfffe | v_mov_b32 v1, s4"),
    ("kept scalar read by the scalar unit", GFX1201, "v_mov_b32 v0, s4 | s_mov_b32 s5, 0 |! s_wait_alu 0xfffe | s_mov_b32 s6, s5"),
    ("kept scalar written by the vector unit", GFX1201, "v_mov_b32 v0, s4 | v_readfirstlane_b32 s4, v1 |! s_wait_alu 0xf1ff | v_mov_b32 v1, s4"),
    ("kept vcc written by the vector unit", GFX1201, "v_mov_b32 v0, vcc_lo | v_cmp_eq_u32 vcc_lo, v0, v1 |! s_wait_alu 0xfffd | v_cndmask_b32 v1, v0, v2, vcc_lo"),
    ("kept scalar in the next turn", GFX1201, "top: |! s_wait_alu 0xfffe | v_mov_b32 v0, s4 | s_add_co_i32 s4, s4, 1 | s_cbranch_scc1 top"),

    ("scalar of the vector unit, memory", GFX942, "v_readfirstlane_b32 s4, v0 | s_nop 3 |! s_nop 0 | global_load_dword v1, v2, s[4:5]"),
    ("scalar of the vector unit, vector unit", GFX942, "v_readfirstlane_b32 s4, v0 |! s_nop 1 | v_mov_b32 v1, s4"),
    ("mask", GFX942, "v_cmp_eq_u32 vcc, v0, v1 |! s_nop 1 | v_cndmask_b32 v2, v3, v4, vcc"),
    ("v_div_fmas", GFX942, "v_cmp_eq_u32 vcc, v0, v1 | s_nop 2 |! s_nop 0 | v_div_fmas_f32 v2, v3, v4, v5"),
    ("lane number", GFX942, "v_readfirstlane_b32 s4, v0 | s_nop 2 |! s_nop 0 | v_readlane_b32 s5, v1, s4"),
    ("lane read", GFX942, "v_mov_b32 v0, 0 |! s_nop 0 | v_readfirstlane_b32 s4, v0"),
    ("DPP", GFX942, "v_mov_b32 v0, 0 |! s_nop 1 | v_mov_b32_dpp v1, v0 row_shr:1 row_mask:0xf bank_mask:0xf"),
    ("EXEC before DPP", GFX942, "v_cmpx_eq_u32 vcc, v0, v1 | s_nop 3 |! s_nop 0 | v_mov_b32_dpp v1, v5 row_shr:1 row_mask:0xf bank_mask:0xf"),
    ("transcendental result", GFX942, "v_exp_f32 v1, v0 |! s_nop 0 | v_add_f32 v2, v1, v1"),
    ("high half written", GFX942, "v_min3_f16 v1, v0, v0, v0 op_sel:[0,0,0,1] |! s_nop 0 | v_mov_b32 v2, v1"),
    ("dot product", GFX942, "v_dot2_f32_f16 v1, v2, v3, v4 |! s_nop 2 | v_mov_b32 v5, v1"),
    ("data of a wide store", GFX942, "global_store_dwordx4 v0, v[4:7], s[4:5] |! s_nop 1 | v_mov_b32 v5, 0"),
    ("vector result for the matrix unit", GFX942, "v_mov_b32 v1, 0 |! s_nop 1 | v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], v[8:11]"),
    ("matrix result read", GFX942, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], v[8:11] | s_nop 5 |! s_nop 0 | v_mov_b32 v4, v11"),
    ("matrix result stored", GFX942, "v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31] | s_nop 9 |! s_nop 0 | global_store_dword v4, v20, s[4:5]"),
    ("matrix result as A", GFX942, "v_mfma_f32_16x16x4_f32 v[8:11], v0, v1, v[8:11] | s_nop 8 |! s_nop 0 | v_mfma_f32_16x16x4_f32 v[12:15], v8, v1, v[12:15]"),
    ("matrix result as another C", GFX942, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], v[8:11] | s_nop 3 |! s_nop 0 | v_mfma_f32_16x16x16_f16 v[10:13], v[0:1], v[2:3], v[10:13]"),
    ("matrix addend overwritten", GFX942, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], v[12:15] | s_nop 1 |! s_nop 0 | v_mov_b32 v12, 0"),
    ("doubles of the matrix unit", GFX942, "v_mfma_f64_16x16x4_f64 v[8:15], v[0:1], v[2:3], v[8:15] | s_nop 9 |! s_nop 0 | v_mov_b32 v20, v8"),
];

/// What is right without anything between.
#[rustfmt::skip]
const FINE: &[(&str, &[Chip], &str)] = &[
    ("nothing open", ALL, "v_mov_b32 v0, s4 | s_mov_b32 s6, 0 | v_mov_b32 v1, s6"),
    ("address overwritten after issue", GFX1100, "global_load_b32 v1, v0, s[4:5] | v_mov_b32 v0, 0"),
    ("two loads into one register", GFX1201, "global_load_b32 v1, v0, s[4:5] | global_load_b32 v1, v0, s[6:7]"),
    ("store data overwritten", GFX942, "global_store_dword v0, v1, s[4:5] | v_mov_b32 v1, 0"),
    ("matrix accumulation", GFX942, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], v[8:11] | v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], v[8:11]"),
    ("matrix accumulation", RDNA, "v_wmma_f32_16x16x16_f16 v[8:15], v[0:A], v[16:B], v[8:15] | v_wmma_f32_16x16x16_f16 v[8:15], v[0:A], v[16:B], v[8:15]"),
    ("scalar settled by a scalar load", GFX1201, "v_mov_b32 v0, s4 | s_mov_b32 s4, 0 | s_load_b32 s8, s[0:1], 0x0 | v_mov_b32 v1, s4"),
    ("scalar unit waits for the vector unit", GFX1201, "v_mov_b32 v0, s4 | v_readfirstlane_b32 s4, v1 | s_mov_b32 s6, s4"),
    ("unreachable", ALL, "s_branch end | v_mov_b32 v0, 0 | end:"),
];

fn source(chip: Chip, text: &str, marked: bool) -> String {
    // Sixteen halves of A and B take twice the registers on gfx11.
    let (a, b, c) = if chip == Chip::Gfx1100 { ("7", "23", "15") } else { ("3", "19", "11") };
    let lines = text.split('|').filter(|l| marked || !l.starts_with('!')).map(|l| l.trim_start_matches('!').trim());
    let body: Vec<&str> = lines.collect();
    let body = body.join("\n").replace("[0:A]", &format!("[0:{a}]")).replace(":B]", &format!(":{b}]"));
    format!("{}\ns_endpgm\n", body.replace("[8:C]", &format!("[8:{c}]")))
}

fn code(chip: Chip, text: &str, marked: bool) -> Vec<u8> {
    let source = source(chip, text, marked);
    let done = assemble(Target::of(chip), &source).unwrap_or_else(|e| panic!("{}: {e}\n{source}", chip.name()));
    done.words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn what_comes_too_early_is_named_and_what_keeps_it_apart_is_enough() {
    for (name, chips, text) in CASES {
        assert!(text.contains("|!"), "{name}");
        for chip in *chips {
            let target = Target::of(*chip);
            assert_eq!(check(target, &code(*chip, text, true)), Ok(()), "{name} on {}", chip.name());
            assert!(check(target, &code(*chip, text, false)).is_err(), "{name} on {}: {text}", chip.name());
        }
    }
}

#[test]
fn what_needs_nothing_between_is_left_alone() {
    for (name, chips, text) in FINE {
        for chip in *chips {
            assert_eq!(check(Target::of(*chip), &code(*chip, text, true)), Ok(()), "{name} on {}", chip.name());
        }
    }
}

#[test]
fn a_computed_jump_and_bytes_that_are_no_code_are_refused() {
    for chip in Chip::ALL {
        let target = Target::of(chip);
        let jump = check(target, &code(chip, "s_setpc_b64 s[4:5]", true)).unwrap_err();
        assert!(jump.to_string().contains("it is not known where this goes"), "{jump}");
        let error = check(target, &[0xff; 8]).unwrap_err();
        assert!(error.to_string().starts_with("byte 0x0"), "{error}");
    }
}
