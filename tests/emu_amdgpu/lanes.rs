//! Lane shuffles, votes, the crossbar, bit fields, parts of floats and dot products reached through clang's builtins,
//! each against a plain reading of the manual written here.

use super::harness::{CLANG, Launch, Loaded, SIZE, compile, folder, inputs, launch, scratch};
use doorbell::emu::amdgpu::{Chip, Strict};

const GROUPS: u32 = 3;
const N: usize = (GROUPS * SIZE) as usize;

struct Case {
    chip: Chip,
    input: Vec<u32>,
    kernels: Loaded,
    strict: Strict,
}

fn wave(chip: Chip) -> usize {
    if chip == Chip::Gfx942 { 64 } else { 32 }
}

impl Case {
    fn new(chip: Chip, level: &str) -> Self {
        let dir = scratch("lanes");
        let source = folder().join("lanes.c");
        let kernels = Loaded::new(chip, &compile(chip, &source, &[level, "-munsafe-fp-atomics"], &dir));
        std::fs::remove_dir_all(dir).unwrap();
        Self { chip, input: inputs(4096, 0x1a9e5), kernels, strict: CLANG }
    }

    fn run(&self, kernel: &str, words: usize) -> Vec<u32> {
        let l = Launch {
            kernel,
            input: &self.input,
            out_words: words as u32,
            groups: GROUPS,
            local: SIZE,
            n: N as u32,
            strict: self.strict,
        };
        launch(&self.kernels, &l).unwrap_or_else(|f| panic!("{kernel}: {f}")).0
    }

    /// Compares result `k` of a kernel with a function of the wave's words and the lane.
    fn waves(&self, got: &[u32], k: usize, what: &str, want: impl Fn(&[u32], usize) -> u32) {
        let w = wave(self.chip);
        for i in 0..N {
            let words = &self.input[i / w * w..][..w];
            let expected = want(words, i % w);
            assert_eq!(got[k * N + i], expected, "{what}, {:?}, item {i}", self.chip);
        }
    }
}

fn each_chip(f: impl Fn(&Case)) {
    for chip in [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201] {
        f(&Case::new(chip, "-O2"));
    }
    f(&Case::new(Chip::Gfx1100, "-O0"));
}

/// A shuffle by source lane; `None` keeps the old value, or gives zero.
fn shuffled(w: &[u32], from: Option<usize>, old: u32) -> u32 {
    from.map_or(old, |n| w[n])
}

#[test]
fn dpp_moves_lanes_within_rows() {
    each_chip(|c| {
        let got = c.run("dpp_rows", 8 * N);
        let old = 0xabcd;
        c.waves(&got, 0, "quad_perm 3,2,1,0", |w, l| w[l / 4 * 4 + 3 - l % 4]);
        c.waves(&got, 1, "row_shl:1", |w, l| shuffled(w, (l % 16 < 15).then_some(l + 1), old));
        c.waves(&got, 2, "row_shr:3 bound_ctrl", |w, l| shuffled(w, (l % 16 >= 3).then(|| l - 3), 0));
        c.waves(&got, 3, "row_ror:5", |w, l| w[l / 16 * 16 + (l % 16 + 11) % 16]);
        c.waves(&got, 4, "row_mirror", |w, l| w[l ^ 15]);
        c.waves(&got, 5, "row_half_mirror", |w, l| w[l ^ 7]);
        c.waves(&got, 6, "row_mask 5", |w, l| {
            let on = 5 >> (l / 16) & 1 == 1;
            shuffled(w, (on && l % 16 >= 1).then(|| l - 1), old)
        });
        c.waves(&got, 7, "row_shl:15 bank_mask 6", |w, l| match 6 >> (l % 16 / 4) & 1 == 1 {
            false => old,
            true => shuffled(w, (l % 16 == 0).then(|| l + 15), 0),
        });
    });
}

#[test]
fn dpp_and_permlane_of_rdna_reach_shares_masks_and_other_rows() {
    for chip in [Chip::Gfx1100, Chip::Gfx1201] {
        let c = Case::new(chip, "-O2");
        let got = c.run("dpp_chip", 8 * N);
        c.waves(&got, 0, "row_share:3", |w, l| w[l / 16 * 16 + 3]);
        c.waves(&got, 1, "row_xmask:5", |w, l| w[l ^ 5]);
        c.waves(&got, 2, "dpp8", |w, l| w[l / 8 * 8 + (0x0039_c1a5 >> (3 * (l % 8)) & 7)]);
        c.waves(&got, 3, "permlane16", |w, l| {
            w[l / 16 * 16 + (0xfedc_ba89_7654_3210_u64 >> (4 * (l % 16)) & 15) as usize]
        });
        c.waves(&got, 4, "permlanex16", |w, l| {
            w[((l / 16) ^ 1) * 16 + (0x89ab_cdef_0123_4567_u64 >> (4 * (l % 16)) & 15) as usize]
        });
        c.waves(&got, 5, "permlane64 in wave32", |w, l| w[l]);
        c.waves(&got, 6, "row_share:15 row_mask 3", |w, l| w[l / 16 * 16 + 15]);
    }
}

#[test]
fn dpp_of_cdna_crosses_rows() {
    let c = Case::new(Chip::Gfx942, "-O2");
    let got = c.run("dpp_chip", 8 * N);
    let old = 0xabcd;
    c.waves(&got, 0, "row_bcast:15 row_mask a", |w, l| {
        shuffled(w, (0xa >> (l / 16) & 1 == 1).then(|| l / 16 * 16 - 1), old)
    });
    c.waves(&got, 1, "row_bcast:31 row_mask c", |w, l| shuffled(w, (l >= 32).then_some(31), old));
    c.waves(&got, 2, "wave_shl:1 bound_ctrl", |w, l| shuffled(w, (l < 63).then_some(l + 1), 0));
    c.waves(&got, 3, "wave_shr:1", |w, l| shuffled(w, l.checked_sub(1), old));
    c.waves(&got, 4, "wave_rol:1", |w, l| w[(l + 1) % 64]);
    c.waves(&got, 5, "wave_ror:1", |w, l| w[(l + 63) % 64]);
    c.waves(&got, 6, "row_newbcast:3", |w, l| w[l / 16 * 16 + 3]);
}

#[test]
fn votes_and_lane_reads_see_the_active_lanes() {
    each_chip(|c| {
        let got = c.run("votes", 8 * N);
        let vote = |w: &[u32]| w.iter().enumerate().fold(0u64, |m, (l, v)| m | u64::from(v & 1) << l);
        c.waves(&got, 0, "ballot", |w, _| vote(w) as u32);
        c.waves(&got, 1, "ballot high", |w, _| (vote(w) >> 32) as u32);
        c.waves(&got, 2, "readfirstlane", |w, _| w[0]);
        c.waves(&got, 3, "readlane", |w, _| w[11]);
        c.waves(&got, 4, "mbcnt", |w, l| 100 + (vote(w) & ((1 << l) - 1)).count_ones());
        let first = |w: &[u32]| *w.iter().find(|v| **v & 2 != 0).unwrap();
        c.waves(&got, 5, "readfirstlane in a branch", |w, l| if w[l] & 2 != 0 { first(w) } else { 1 });
        c.waves(&got, 6, "row_shl in a branch", |w, l| {
            let active = |n: usize| w[n] & 2 != 0;
            let from = (l % 16 < 15 && active(l + 1)).then_some(l + 1);
            if active(l) { shuffled(w, from, 0x55) } else { 2 }
        });
        c.waves(&got, 7, "wavefrontsize", |w, _| w.len() as u32);
    });
}

#[test]
fn the_crossbar_permutes() {
    each_chip(|c| {
        let got = c.run("crossbar", 6 * N);
        c.waves(&got, 0, "ds_bpermute", |w, l| w[(l * 7 + 3) % w.len()]);
        c.waves(&got, 1, "ds_permute", |w, l| w[l ^ 5]);
        c.waves(&got, 2, "ds_swizzle xor 1", |w, l| w[l ^ 1]);
        c.waves(&got, 3, "ds_swizzle quad 3,2,1,0", |w, l| w[l ^ (0x1b >> (2 * (l % 4)) & 3) as usize ^ (l % 4)]);
        c.waves(&got, 4, "ds_swizzle and 3 xor 7", |w, l| w[l / 32 * 32 + (l & 3 ^ 7)]);
        c.waves(&got, 5, "ds_bpermute from an inactive lane", |_, l| if l % 2 == 1 { 0 } else { 9 });
    });
}

/// Words a, b, c of an item and the result's number.
fn items(c: &Case, kernel: &str, count: usize, want: impl Fn(u32, u32, u32, usize) -> Option<u32>) {
    let got = c.run(kernel, 16 * N);
    for i in 0..N {
        let (x, y, z) = (c.input[i], c.input[i + N], c.input[i + 7]);
        for k in 0..count {
            if let Some(w) = want(x, y, z, k) {
                assert_eq!(got[k * N + i], w, "{kernel} result {k} of {x:#x}, {y:#x}, {z:#x} on {:?}", c.chip);
            }
        }
    }
}

fn bytes(v: u32) -> [u32; 4] {
    v.to_le_bytes().map(u32::from)
}

fn differences(a: u32, b: u32) -> u32 {
    (0..4).map(|n| bytes(a)[n].abs_diff(bytes(b)[n])).sum()
}

fn permuted(a: u32, b: u32, c: u32) -> u32 {
    let all = [bytes(b), bytes(a)].concat();
    let sign = |v: u32| if v & 0x80 != 0 { 255 } else { 0 };
    let one = |s: u32| match s {
        0..=7 => all[s as usize],
        8 => sign(all[1]),
        9 => sign(all[3]),
        10 => sign(all[5]),
        11 => sign(all[7]),
        12 => 0,
        _ => 255,
    };
    (0..4).fold(0, |out, n| out | one(bytes(c)[n]) << (8 * n))
}

#[test]
fn bit_fields_and_byte_sums_follow_the_manual() {
    each_chip(|case| {
        items(case, "fields", 12, |a, b, c, k| {
            let wide = u64::from(a) << 32 | u64::from(b);
            let (offset, width) = (b & 31, c & 31);
            let field = |v: i64| if width == 0 { 0 } else { v << (64 - width) >> (64 - width) };
            Some(match k {
                0 => (wide >> (c % 32)) as u32,
                1 => (wide >> (8 * (c % 4))) as u32,
                2 => permuted(a, b, c),
                3 => (a >> offset) & ((1u64 << width) - 1) as u32,
                4 => field(i64::from(a as i32 >> offset)) as u32,
                5 => differences(a, b).wrapping_add(c),
                6 => (0..4).fold(0, |out, n| out | ((bytes(a)[n] + bytes(b)[n] + (bytes(c)[n] & 1)) / 2) << (8 * n)),
                7 => (0..4)
                    .filter(|n| bytes(b)[*n] != 0)
                    .fold(c, |s, n| s.wrapping_add(bytes(a)[n].abs_diff(bytes(b)[n]))),
                8 => (a & 0xffff).abs_diff(b & 0xffff).wrapping_add((a >> 16).abs_diff(b >> 16)).wrapping_add(c),
                9 => (differences(a, b) << 16).wrapping_add(c),
                10 => (a as i32 >> (b & 31)) as u32,
                _ => {
                    let byte = ((a & 1023) as f32 * 0.3).round_ties_even().min(255.0) as u32;
                    let shift = 8 * (b & 3);
                    c & !(255 << shift) | byte << shift
                }
            })
        });
    });
}

fn one_nan(v: f32) -> u32 {
    if v.is_nan() { 0x7fc0_0000 } else { v.to_bits() }
}

/// 1 when the class of `v` is in the mask of v_cmp_class.
fn class(v: f32, mask: u32) -> u32 {
    use std::num::FpCategory::{Infinite, Nan, Normal, Subnormal, Zero};
    let negative = v.is_sign_negative();
    let bit = match v.classify() {
        Nan => {
            if v.to_bits() & 0x40_0000 == 0 {
                0
            } else {
                1
            }
        }
        Infinite => {
            if negative {
                2
            } else {
                9
            }
        }
        Normal => {
            if negative {
                3
            } else {
                8
            }
        }
        Subnormal => {
            if negative {
                4
            } else {
                7
            }
        }
        Zero => {
            if negative {
                5
            } else {
                6
            }
        }
    };
    mask >> bit & 1
}

#[test]
fn parts_of_floats_follow_the_manual() {
    each_chip(|case| {
        items(case, "float_parts", 7, |a, b, c, k| {
            let [x, y, z] = [a, b, c].map(f32::from_bits);
            let or = |v: f32, d: f32| if v.is_nan() { d } else { v };
            let exponent = |v: f32| {
                // By definition: v = m * 2^e with 0.5 <= |m| < 1.
                let mut e = 0;
                let mut m = f64::from(v).abs();
                while m >= 1.0 {
                    (m, e) = (m / 2.0, e + 1);
                }
                while m < 0.5 {
                    (m, e) = (m * 2.0, e - 1);
                }
                (m, e)
            };
            let ordinary = x.is_finite() && x != 0.0;
            Some(match k {
                0 => {
                    let mut v = [or(x, 1.0), or(y, 2.0), or(z, 3.0)];
                    v.sort_by(f32::total_cmp);
                    v[1].to_bits()
                }
                1 if ordinary => (exponent(x).0 as f32).copysign(x).to_bits(),
                1 => one_nan(x),
                2 if ordinary => exponent(x).1 as u32,
                2 => 0,
                3 if x.is_infinite() => return None,
                3 => one_nan((x - x.floor()).min(f32::from_bits(0x3f7f_ffff))),
                4 => class(x, 0x2a5),
                _ => return None,
            })
        });
    });
}

/// The unit's results within one unit in the last place of the exact function, denormals treated as zero.
#[test]
fn transcendental_functions_are_close() {
    each_chip(|case| {
        let got = case.run("float_parts", 14 * N);
        let quiet = |v: f32| if v.abs() < f32::MIN_POSITIVE { 0.0_f32.copysign(v) } else { v };
        for i in 0..N {
            let a = case.input[i];
            let x = f64::from(quiet(f32::from_bits(a)));
            let (s, t) = (f32::from_bits(a & 0x807f_ffff | 0x3f00_0000), f32::from_bits(a & 0x807f_ffff | 0x4000_0000));
            let turn = |v: f32| f64::from(v) * std::f64::consts::TAU;
            let wanted = [1.0 / x, 1.0 / x.sqrt(), x.exp2(), x.log2(), turn(s).sin(), turn(t).cos(), x.sqrt()];
            for (n, exact) in wanted.into_iter().enumerate() {
                let have = f32::from_bits(got[(7 + n) * N + i]);
                let close = match exact {
                    e if e.is_nan() => have.is_nan(),
                    e if e.abs() < f64::from(f32::MIN_POSITIVE) => have == 0.0,
                    e if e.abs() > f64::from(f32::MAX) => have == f32::INFINITY.copysign(e as f32),
                    e => {
                        (f64::from(have) - e).abs() <= e.abs() * 1.2e-7 + 1e-12 * f64::from(u8::from(n == 4 || n == 5))
                    }
                };
                assert!(close, "function {n} of {a:#x}: {have} for {exact} on {:?}", case.chip);
            }
        }
    });
}

#[test]
fn dot_products_follow_the_manual() {
    each_chip(|case| {
        items(case, "dots", 6, |a, b, c, k| {
            let nibbles = |v: u32| (0..8).map(move |n| v >> (4 * n) & 15);
            let u4: u64 = bytes(a).iter().zip(bytes(b)).map(|(x, y)| u64::from(x * y)).sum();
            let u8s: u64 = nibbles(a).zip(nibbles(b)).map(|(x, y)| u64::from(x * y)).sum();
            let s4: i64 = a
                .to_le_bytes()
                .iter()
                .zip(b.to_le_bytes())
                .map(|(x, y)| i64::from(*x as i8) * i64::from(y as i8))
                .sum();
            let sign = |v: u32| i64::from((v << 28) as i32 >> 28);
            let s8: i64 = nibbles(a).zip(nibbles(b)).map(|(x, y)| sign(x) * sign(y)).sum();
            let c_high = c | 0xffff_0000;
            Some(match k {
                0 => (u4 + u64::from(c)) as u32,
                1 => (u8s + u64::from(c)) as u32,
                2 => (u4 + u64::from(c_high)).min(u32::MAX.into()) as u32,
                3 => (s4 + i64::from(c as i32)) as u32,
                4 => (s8 + i64::from(c as i32)) as u32,
                _ => {
                    let [x0, x1, y0, y1] = [a & 15, a >> 4 & 15, b & 15, b >> 4 & 15].map(|v| v as f32);
                    (x0 * y0 - x1 * y1 + (c & 255) as f32).to_bits()
                }
            })
        });
    });
}

#[test]
fn float_atomics_add_up_in_memory_and_lds() {
    each_chip(|case| {
        let got = case.run("float_atomics", 64);
        let mut global = [0.0f32; 4];
        let mut local = [[0.0f32; 4]; GROUPS as usize];
        for i in 0..N {
            let v = case.input[i];
            global[(v & 3) as usize] += (case.input[i + 1] & 255) as f32;
            local[i / SIZE as usize][(v >> 4 & 3) as usize] += (case.input[i + 2] & 255) as f32;
        }
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(got[..4], bits(&global));
        assert_eq!(got[8..8 + 4 * GROUPS as usize], bits(local.as_flattened()));
    });
}

#[test]
fn buffers_give_zero_and_drop_stores_beyond_their_range() {
    each_chip(|case| {
        let got = case.run("buffers", 6 * N);
        let bytes: Vec<u8> = case.input.iter().flat_map(|w| w.to_le_bytes()).take(1024).collect();
        let load = |at: usize, len: usize| match bytes.get(at..at + len) {
            Some(part) => part.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b)),
            None => 0,
        };
        for i in 0..N {
            let whole = |at: usize, words: usize| -> Vec<u32> {
                (0..words).map(|k| if at + 4 * words <= 1024 { load(at + 4 * k, 4) } else { 0 }).collect()
            };
            let (two, four) = (whole(8 * i, 2), whole(4 * i + 16, 4));
            let sum = four.iter().zip([1u32, 3, 5, 7]).fold(0u32, |s, (v, m)| s.wrapping_add(v.wrapping_mul(m)));
            let want = [load(4 * i, 4), load(i + 3, 1), load(2 * i + 64, 2), two[0] ^ two[1], sum];
            for (k, w) in want.into_iter().enumerate() {
                assert_eq!(got[k * N + i], w, "result {k} of item {i} on {:?}", case.chip);
            }
            let v = case.input[i];
            let stored = if i < N - 16 { v } else { 0 };
            assert_eq!(got[5 * N + i], stored, "store of item {i} on {:?}", case.chip);
        }
    });
}
