//! Single instructions on random words against plain readings of the manual: assembled by LLVM, run on 128 lanes.

use super::harness::{Launch, Loaded, Random, compile, inputs, launch, scratch};
use doorbell::emu::amdgpu::{Chip, Strict};

const LANES: usize = 128;

/// Kernels k0, k1, ...: each loads v1, v2, v3 (and s8..s11 from the first words), runs its instructions, stores v[4:5].
fn assemble(bodies: &[&str]) -> Loaded {
    let mut source = String::from(".text\n");
    for (n, body) in bodies.iter().enumerate() {
        source += &format!(
            ".globl k{n}\n.p2align 8\n.type k{n},@function\nk{n}:\ns_load_b128 s[4:7], s[0:1], 0\nv_lshlrev_b32 v10, 2, v0\n\
             v_lshlrev_b32 v11, 3, v0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\ns_waitcnt lgkmcnt(0)\ns_load_b128 s[8:11], s[4:5], 0\n\
             global_load_b32 v1, v10, s[4:5]\nglobal_load_b32 v2, v10, s[4:5] offset:512\n\
             global_load_b32 v3, v10, s[4:5] offset:1024\ns_waitcnt vmcnt(0) lgkmcnt(0)\n{body}\n\
             global_store_b64 v11, v[4:5], s[6:7]\ns_endpgm\n.fill 64, 4, 0\n"
        );
    }
    for n in 0..bodies.len() {
        source += &format!(
            ".rodata\n.p2align 6\n.amdhsa_kernel k{n}\n.amdhsa_next_free_vgpr 24\n.amdhsa_next_free_sgpr 32\n\
             .amdhsa_user_sgpr_kernarg_segment_ptr 1\n.amdhsa_float_denorm_mode_32 3\n.end_amdhsa_kernel\n"
        );
    }
    let dir = scratch("ops");
    let file = dir.join("ops.s");
    std::fs::write(&file, source).unwrap();
    let loaded = Loaded::new(Chip::Gfx1100, &compile(Chip::Gfx1100, &file, &[], &dir));
    std::fs::remove_dir_all(dir).unwrap();
    loaded
}

type Reference = fn(u32, u32, u32) -> u64;

/// Runs every row on several inputs; a reference sees the lane's three words.
fn check(rows: &[(&str, Reference)]) {
    let loaded = assemble(&rows.iter().map(|r| r.0).collect::<Vec<_>>());
    for seed in 0..4 {
        let input = inputs(3 * LANES, 0xabc0 + seed);
        for (n, (body, want)) in rows.iter().enumerate() {
            let name = format!("k{n}");
            let l = Launch {
                kernel: &name,
                input: &input,
                out_words: 2 * LANES as u32,
                groups: 1,
                local: LANES as u32,
                n: 0,
                strict: Strict::on(),
            };
            let (got, _) = launch(&loaded, &l).unwrap_or_else(|f| panic!("{body}: {f}"));
            for i in 0..LANES {
                let (a, b, c) = (input[i], input[i + LANES], input[i + 2 * LANES]);
                let have = u64::from(got[2 * i]) | u64::from(got[2 * i + 1]) << 32;
                assert_eq!(have, want(a, b, c), "{body} of {a:#x}, {b:#x}, {c:#x}");
            }
        }
    }
}

fn s24(v: u32) -> i64 {
    i64::from((v << 8) as i32 >> 8)
}

fn med(a: i64, b: i64, c: i64) -> u64 {
    let mut v = [a, b, c];
    v.sort_unstable();
    v[1] as u32 as u64
}

/// Saturating conversion written out.
fn to_i32(v: f32) -> u64 {
    if v.is_nan() {
        return 0;
    }
    let t = f64::from(v).trunc();
    (if t >= 2_147_483_647.0 {
        i32::MAX
    } else if t <= -2_147_483_648.0 {
        i32::MIN
    } else {
        t as i32
    }) as u32 as u64
}

fn to_u32(v: f32) -> u64 {
    if v.is_nan() || v <= 0.0 {
        0
    } else if f64::from(v) >= 4_294_967_295.0 {
        0xffff_ffff
    } else {
        f64::from(v).trunc() as u64
    }
}

#[test]
fn integer_instructions_follow_the_manual() {
    check(&[
        ("v_bfi_b32 v4, v1, v2, v3", |a, b, c| (a & b | !a & c).into()),
        ("v_mul_i32_i24 v4, v1, v2", |a, b, _| (s24(a) * s24(b)) as u32 as u64),
        ("v_mul_hi_i32_i24 v4, v1, v2", |a, b, _| ((s24(a) * s24(b)) >> 32) as u32 as u64),
        ("v_mad_i32_i24 v4, v1, v2, v3", |a, b, c| (s24(a) * s24(b) + c as i32 as i64) as u32 as u64),
        ("v_mad_u32_u24 v4, v1, v2, v3", |a, b, c| {
            ((a & 0xff_ffff) as u64 * (b & 0xff_ffff) as u64 + c as u64) & 0xffff_ffff
        }),
        ("v_mad_u64_u32 v[4:5], null, v1, v2, 7", |a, b, _| a as u64 * b as u64 + 7),
        ("v_mad_i64_i32 v[4:5], null, v1, v2, -3", |a, b, _| (a as i32 as i64 * b as i32 as i64 - 3) as u64),
        ("v_med3_i32 v4, v1, v2, v3", |a, b, c| med((a as i32).into(), (b as i32).into(), (c as i32).into())),
        ("v_med3_u32 v4, v1, v2, v3", |a, b, c| med(a.into(), b.into(), c.into())),
        ("v_add_nc_u32_e64 v4, v1, v2 clamp", |a, b, _| (a as u64 + b as u64).min(0xffff_ffff)),
        ("v_sub_nc_u32_e64 v4, v1, v2 clamp", |a, b, _| (a as i64 - b as i64).max(0) as u64),
        ("v_add_nc_i32 v4, v1, v2 clamp", |a, b, _| {
            (a as i32 as i64 + b as i32 as i64).clamp(i32::MIN.into(), i32::MAX.into()) as u32 as u64
        }),
        ("v_add_co_u32 v4, s12, v1, v2\nv_cndmask_b32 v5, 0, 1, s12", |a, b, _| a as u64 + b as u64),
        ("v_sub_co_u32 v4, s12, v1, v2\nv_cndmask_b32 v5, 0, 1, s12", |a, b, _| {
            (a as u64).wrapping_sub(b as u64) & 0x1_ffff_ffff
        }),
        ("v_cmp_lt_u32 vcc_lo, v1, v2\nv_add_co_ci_u32 v4, vcc_lo, v1, v3, vcc_lo", |a, b, c| {
            (a as u64 + c as u64 + u64::from(a < b)) & 0xffff_ffff
        }),
        ("v_lshlrev_b64 v[4:5], v3, v[1:2]", |a, b, c| (a as u64 | (b as u64) << 32) << (c & 63)),
        ("v_ashrrev_i64 v[4:5], v3, v[1:2]", |a, b, c| ((a as u64 | (b as u64) << 32) as i64 >> (c & 63)) as u64),
        ("v_cvt_pk_i16_i32 v4, v1, v2", |a, b, _| {
            let one = |v: u32| (v as i32).clamp(-32768, 32767) as u16 as u64;
            one(a) | one(b) << 16
        }),
        ("v_cvt_pk_u16_u32 v4, v1, v2", |a, b, _| a.min(65535) as u64 | (b.min(65535) as u64) << 16),
        ("v_xad_u32 v4, v1, v2, v3", |a, b, c| (a ^ b).wrapping_add(c).into()),
        ("v_lshl_or_b32 v4, v1, v2, v3", |a, b, c| (a << (b % 32) | c).into()),
        ("v_bfm_b32 v4, v1, v2", |a, b, _| (((1u64 << (a % 32)) - 1) << (b % 32)) & 0xffff_ffff),
        ("v_cls_i32 v4, v1", |a, _, _| {
            let same = (0..31).take_while(|n| a >> (30 - n) & 1 == a >> 31).count() as u32;
            if same == 31 { 0xffff_ffff } else { u64::from(same + 1) }
        }),
        ("v_mad_u16 v4, v1, v2, v3 op_sel:[1,0,0,0]", |a, b, c| {
            ((a >> 16) * (b & 0xffff)).wrapping_add(c) as u16 as u64
        }),
        ("v_pk_add_u16 v4, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]", |a, b, _| {
            let lo = (a >> 16).wrapping_add(b) & 0xffff;
            let hi = a.wrapping_add(b >> 16) & 0xffff;
            (lo | hi << 16).into()
        }),
        ("v_pk_sub_i16 v4, v1, v2 clamp", |a, b, _| {
            let one = |a: u32, b: u32| (a as i16).saturating_sub(b as i16) as u16 as u64;
            one(a, b) | one(a >> 16, b >> 16) << 16
        }),
    ]);
}

fn f(v: u32) -> f32 {
    f32::from_bits(v)
}

fn ordered(v: u32) -> u32 {
    if f(v).is_nan() { 0x3f80_0000 } else { v }
}

#[test]
fn float_instructions_follow_the_manual() {
    // Words that are NaN are replaced by one first, where the result's NaN pattern is not the point.
    check(&[
        ("v_cvt_i32_f32 v4, v1", |a, _, _| to_i32(f(a))),
        ("v_cvt_u32_f32 v4, v1", |a, _, _| to_u32(f(a))),
        ("v_cvt_i32_f32 v4, |v1|", |a, _, _| to_i32(f(a).abs())),
        ("v_cvt_u32_f32 v4, -v1", |a, _, _| to_u32(-f(a))),
        ("v_max_f32 v4, 0.5, v1", |a, _, _| if f(a).is_nan() || f(a) < 0.5 { 0x3f00_0000 } else { a.into() }),
        (
            "v_min_f32 v4, -v1, 4.0",
            |a, _, _| if f(a).is_nan() || -f(a) > 4.0 { 0x4080_0000 } else { (a ^ 0x8000_0000).into() },
        ),
        ("v_add_f32 v4, v1, 0 clamp", |a, _, _| {
            let v = f(a);
            if v.is_nan() || v <= 0.0 { 0 } else { v.min(1.0).to_bits().into() }
        }),
        ("v_cmp_u_f32 vcc_lo, v1, v1\nv_cndmask_b32 v1, v1, 1.0, vcc_lo\nv_ldexp_f32 v4, v1, v2", |a, b, _| {
            let e = (b as i32).clamp(-1000, 1000);
            let v = f64::from(f(ordered(a)));
            // Two exact steps within the double's range, then one rounding.
            let half = 2f64.powi(e / 2);
            ((v * half * 2f64.powi(e - e / 2)) as f32).to_bits().into()
        }),
        ("v_cmp_class_f32 vcc_lo, v1, v2\nv_cndmask_b32 v4, 0, 1, vcc_lo", |a, b, _| {
            let v = f(a);
            let bit = if v.is_nan() {
                (a >> 22 & 1) as usize
            } else {
                let kind = if v.is_infinite() {
                    0
                } else if v == 0.0 {
                    3
                } else if v.is_subnormal() {
                    2
                } else {
                    1
                };
                if v.is_sign_negative() { 2 + kind } else { 9 - kind }
            };
            (b >> bit & 1).into()
        }),
        ("v_cvt_f32_ubyte2 v4, v1", |a, _, _| ((a >> 16 & 255) as f32).to_bits().into()),
        (
            "v_and_b32 v1, 0x7fffffff, v1\nv_min_f32 v1, 0x49000000, v1\ns_round_mode 15\nv_add_f32 v4, v1, 0.5",
            |a, _, _| {
                // Toward zero: the nearest result, one down where it is above the exact sum, which a double holds.
                let v = f(a).abs();
                let v = if v.is_nan() { f(0x4900_0000) } else { v.min(f(0x4900_0000)) };
                let exact = f64::from(v) + 0.5;
                let mut r = exact as f32;
                if f64::from(r) > exact || (v > 0.0 && v < 1e-17 && r > 0.5) {
                    r = r.next_down();
                }
                r.to_bits().into()
            },
        ),
        (
            "v_and_b32 v1, 0x3fffffff, v1\nv_and_b32 v2, 0x3fffffff, v2\ns_round_mode 1\nv_mul_f32 v4, v1, v2",
            |a, b, _| {
                let exact = f64::from(f(a & 0x3fff_ffff)) * f64::from(f(b & 0x3fff_ffff));
                let r = exact as f32;
                (if f64::from(r) < exact { r.next_up() } else { r }).to_bits().into()
            },
        ),
        (
            "s_denorm_mode 0\nv_cmp_u_f32 vcc_lo, v1, v1\nv_cndmask_b32 v1, v1, 1.0, vcc_lo\nv_mul_f32 v4, 1.0, v1",
            |a, _, _| {
                let v = ordered(a);
                u64::from(if f(v).is_subnormal() { v & 0x8000_0000 } else { v })
            },
        ),
    ]);
}

/// Scalar instructions on s8, s9 (and the pair), result in s12, and SCC.
#[test]
fn scalar_instructions_follow_the_manual() {
    type Scalar = fn(u32, u32) -> (u32, bool);
    let rows: &[(&str, Scalar)] = &[
        ("s_add_u32 s12, s8, s9", |a, b| (a.wrapping_add(b), u64::from(a) + u64::from(b) > 0xffff_ffff)),
        ("s_sub_u32 s12, s8, s9", |a, b| (a.wrapping_sub(b), b > a)),
        ("s_add_i32 s12, s8, s9", |a, b| {
            ((a as i32).overflowing_add(b as i32).0 as u32, (a as i32).overflowing_add(b as i32).1)
        }),
        ("s_sub_i32 s12, s8, s9", |a, b| {
            ((a as i32).overflowing_sub(b as i32).0 as u32, (a as i32).overflowing_sub(b as i32).1)
        }),
        ("s_min_i32 s12, s8, s9", |a, b| ((a as i32).min(b as i32) as u32, (a as i32) < b as i32)),
        ("s_max_u32 s12, s8, s9", |a, b| (a.max(b), a > b)),
        ("s_bfe_u32 s12, s8, 0x70003", |a, _| (a >> 3 & 127, a >> 3 & 127 != 0)),
        ("s_bfe_i32 s12, s8, 0x90005", |a, _| {
            let v = (a << 18) as i32 >> 23;
            (v as u32, v != 0)
        }),
        ("s_absdiff_i32 s12, s8, s9", |a, b| {
            let v = (a as i32).wrapping_sub(b as i32).wrapping_abs() as u32;
            (v, v != 0)
        }),
        ("s_lshl3_add_u32 s12, s8, s9", |a, b| {
            ((a << 3).wrapping_add(b), (u64::from(a) << 3) + u64::from(b) > 0xffff_ffff)
        }),
        ("s_bcnt1_i32_b32 s12, s8", |a, _| (a.count_ones(), a != 0)),
        ("s_not_b32 s12, s8", |a, _| (!a, a != u32::MAX)),
        ("s_cmp_lt_i32 s8, s9\ns_cselect_b32 s12, s8, s9", |a, b| {
            ((a as i32).min(b as i32) as u32, (a as i32) < b as i32)
        }),
        ("s_bitcmp1_b32 s8, s9\ns_mov_b32 s12, s9", |a, b| (b, a >> (b & 31) & 1 == 1)),
        ("s_cmp_eq_u32 s8, s8\ns_addc_u32 s12, s8, s9", |a, b| {
            (a.wrapping_add(b).wrapping_add(1), u64::from(a) + u64::from(b) + 1 > 0xffff_ffff)
        }),
        ("s_and_not1_b32 s12, s8, s9", |a, b| (a & !b, a & !b != 0)),
    ];
    let bodies: Vec<String> = rows
        .iter()
        .map(|r| format!("{}\ns_cselect_b32 s13, 1, 0\nv_mov_b32 v4, s12\nv_mov_b32 v5, s13", r.0))
        .collect();
    let loaded = assemble(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let mut random = Random(31);
    for _ in 0..12 {
        let input = inputs(3 * LANES, random.next());
        for (n, (body, want)) in rows.iter().enumerate() {
            let name = format!("k{n}");
            let l = Launch {
                kernel: &name,
                input: &input,
                out_words: 2 * 32,
                groups: 1,
                local: 32,
                n: 0,
                strict: Strict::on(),
            };
            let (got, _) = launch(&loaded, &l).unwrap_or_else(|f| panic!("{body}: {f}"));
            let (a, b) = (input[0], input[1]);
            assert_eq!((got[0], got[1] == 1), want(a, b), "{body} of {a:#x}, {b:#x}");
        }
    }
}
