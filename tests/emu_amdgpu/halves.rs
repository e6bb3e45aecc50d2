//! Instructions on halves of vector registers: the high halves of rotated words give what the low halves of the words
//! give, in the other half of the destination, and leave the half beside it.

use super::harness::{Launch, Loaded, assemble_halves, inputs, launch};
use doorbell::emu::amdgpu::{Chip, Strict};

const LANES: usize = 64;
/// In both halves of every destination before.
const OLD: u32 = 0x5a5a;

/// Operation, what its operands are: `h` half a register, `w` a whole one, `c` the compare's mask.
const OPS: &[(&str, &str)] = &[
    ("v_mov_b16", "hh"),
    ("v_not_b16", "hh"),
    ("v_add_f16", "hhh"),
    ("v_mul_f16", "hhh"),
    ("v_subrev_f16", "hhh"),
    ("v_ldexp_f16", "hhh"),
    ("v_fmac_f16", "hhh"),
    ("v_rcp_f16", "hh"),
    ("v_floor_f16", "hh"),
    ("v_frexp_exp_i16_f16", "hh"),
    ("v_frexp_mant_f16", "hh"),
    ("v_cvt_f16_u16", "hh"),
    ("v_cvt_i16_f16", "hh"),
    ("v_cvt_norm_u16_f16", "hh"),
    ("v_cvt_f16_f32", "hw"),
    ("v_sat_pk_u8_i16", "hw"),
    ("v_cvt_f32_f16", "wh"),
    ("v_cvt_i32_i16", "wh"),
    ("v_cvt_u32_u16", "wh"),
    ("v_cmp_lt_f16", "chh"),
    ("v_cmp_ge_i16", "chh"),
    ("v_cmp_ne_u16", "chh"),
    ("v_cmp_class_f16", "chh"),
];

/// The same without a short form.
const LONG: &[(&str, &str)] = &[
    ("v_add_nc_u16", "hhh"),
    ("v_sub_nc_i16", "hhh"),
    ("v_mul_lo_u16", "hhh"),
    ("v_lshlrev_b16", "hhh"),
    ("v_ashrrev_i16", "hhh"),
    ("v_max_i16", "hhh"),
    ("v_min_u16", "hhh"),
    ("v_and_b16", "hhh"),
    ("v_xor_b16", "hhh"),
    ("v_cndmask_b16", "hhhm"),
    ("v_fma_f16", "hhhh"),
    ("v_mad_u16", "hhhh"),
    ("v_mad_i16", "hhhh"),
    ("v_med3_i16", "hhhh"),
    ("v_max3_u16", "hhhh"),
    ("v_div_fixup_f16", "hhhh"),
    ("v_mad_u32_u16", "whhw"),
    ("v_mad_i32_i16", "whhw"),
    ("v_pack_b32_f16", "whh"),
    ("v_cvt_pk_norm_i16_f16", "whh"),
    ("v_alignbit_b32", "wwwh"),
    ("v_alignbyte_b32", "wwwh"),
];

/// What gfx1201's vector unit needs before it reads scalar registers again.
const SETTLE: &str = "s_wait_alu 0\n";

/// One instruction: halves of v1, v2, v3 into v4, or of their rotations v6, v7, v8 into v5.
fn line(chip: Chip, op: &str, form: &str, shape: &str, high: bool) -> String {
    let (dst, first, half) = if high { (5, 6, "h") } else { (4, 1, "l") };
    let operands = shape.chars().enumerate().map(|(n, kind)| match (n, kind) {
        (_, 'm') => "s12".to_owned(),
        (0, 'c') if form == "_e64" => "s13".to_owned(),
        (0, 'c') => "vcc_lo".to_owned(),
        (0, 'h') => format!("v{dst}.{half}"),
        (0, _) => format!("v{dst}"),
        (n, 'h') => format!("v{}.{half}", first + n - 1),
        (n, _) => format!("v{n}"),
    });
    let operands: Vec<String> = operands.collect();
    let dpp = if form == "_dpp" { " quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf" } else { "" };
    let compare = if shape.starts_with('c') {
        let mask = if form == "_e64" { "s13" } else { "vcc_lo" };
        let settle = if chip == Chip::Gfx1201 { SETTLE } else { "" };
        format!("\n{settle}v_cndmask_b32 v{dst}, 0, 1, {mask}")
    } else {
        String::new()
    };
    format!("{op}{form} {}{dpp}{compare}\n", operands.join(", "))
}

fn program(chip: Chip, bodies: &[String]) -> Loaded {
    let wait = if chip == Chip::Gfx1201 { "s_wait_loadcnt 0\ns_wait_kmcnt 0" } else { "s_waitcnt vmcnt(0) lgkmcnt(0)" };
    let mut source = String::from(".text\n");
    for (n, body) in bodies.iter().enumerate() {
        source += &format!(
            ".globl k{n}\n.p2align 8\n.type k{n},@function\nk{n}:\ns_load_b128 s[4:7], s[0:1], 0\nv_and_b32 v0, 0x3ff, v0\n\
             v_lshlrev_b32 v10, 2, v0\nv_lshlrev_b32 v11, 3, v0\nv_mov_b32 v4, 0x{OLD:x}{OLD:x}\nv_mov_b32 v5, v4\n{wait}\n\
             s_mov_b32 s12, 0x3c5a96a5\ns_nop 0\n\
             global_load_b32 v1, v10, s[4:5]\nglobal_load_b32 v2, v10, s[4:5] offset:256\n\
             global_load_b32 v3, v10, s[4:5] offset:512\n{wait}\nv_alignbit_b32 v6, v1, v1, 16\n\
             v_alignbit_b32 v7, v2, v2, 16\nv_alignbit_b32 v8, v3, v3, 16\n{body}\n\
             global_store_b64 v11, v[4:5], s[6:7]\ns_endpgm\n.fill 64, 4, 0\n"
        );
    }
    for n in 0..bodies.len() {
        source += &format!(
            ".rodata\n.p2align 6\n.amdhsa_kernel k{n}\n.amdhsa_next_free_vgpr 24\n.amdhsa_next_free_sgpr 32\n\
             .amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_float_denorm_mode_32 3\n.end_amdhsa_kernel\n"
        );
    }
    Loaded::new(chip, &assemble_halves(chip, &source))
}

fn mirrored(chip: Chip) {
    let forms = OPS.iter().flat_map(|op| ["_e32", "_e64", "_dpp"].map(|form| (*op, form)));
    let forms = forms.filter(|((_, shape), form)| !(*form == "_dpp" && shape.starts_with('c')));
    let all: Vec<_> = forms.chain(LONG.iter().map(|op| (*op, ""))).collect();
    let bodies: Vec<String> = all
        .iter()
        .map(|((op, shape), form)| line(chip, op, form, shape, false) + &line(chip, op, form, shape, true))
        .collect();
    let loaded = program(chip, &bodies);
    let input = inputs(3 * LANES, 0x4a1f);
    for (n, ((_, shape), _)) in all.iter().enumerate() {
        let (kernel, body) = (format!("k{n}"), &bodies[n]);
        let (local, out_words) = (LANES as u32, 2 * LANES as u32);
        let l = Launch { kernel: &kernel, input: &input, out_words, groups: 1, local, n: 0, strict: Strict::on() };
        let (got, _) = launch(&loaded, &l).unwrap_or_else(|f| panic!("{chip:?} {body}: {f}"));
        let mut changed = 0;
        for pair in got.chunks(2) {
            let want = if shape.starts_with('h') { pair[0].rotate_left(16) } else { pair[0] };
            assert_eq!(pair[1], want, "{chip:?} {body}");
            assert!(!shape.starts_with('h') || pair[0] >> 16 == OLD, "{chip:?} {body}: {:#x}", pair[0]);
            changed += u32::from(pair[0] != OLD << 16 | OLD);
        }
        assert!(changed > 8, "{chip:?} {body}");
    }
}

#[test]
fn high_halves_do_what_low_ones_do_on_gfx1100() {
    mirrored(Chip::Gfx1100);
}

#[test]
fn high_halves_do_what_low_ones_do_on_gfx1201() {
    mirrored(Chip::Gfx1201);
}

/// v_swap_b16 exchanges any two halves.
#[test]
fn halves_are_swapped() {
    for chip in [Chip::Gfx1100, Chip::Gfx1201] {
        let bodies =
            ["v_mov_b32 v4, v1\nv_mov_b32 v5, v2\nv_swap_b16 v4.l, v5.h\nv_swap_b16 v4.h, v4.l"].map(String::from);
        let input = inputs(3 * LANES, 7);
        let (local, out_words) = (LANES as u32, 2 * LANES as u32);
        let l = Launch { kernel: "k0", input: &input, out_words, groups: 1, local, n: 0, strict: Strict::on() };
        let (got, _) = launch(&program(chip, &bodies), &l).unwrap();
        for (i, pair) in got.chunks(2).enumerate() {
            let (a, b) = (input[i], input[i + LANES]);
            assert_eq!(pair, [b & 0xffff_0000 | a >> 16, a << 16 | b & 0xffff]);
        }
    }
}
