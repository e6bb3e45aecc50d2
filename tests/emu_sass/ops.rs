//! Single PTX instructions, assembled at both levels, against plain Rust.
//!
//! Each row is a statement over a, b, c (32 bits: `%a %b %c` as integers, `%fa %fb %fc` as floats; 64 bits: `%la %lb
//! %lc`, `%da %db %dc`) whose result is in `%r`, `%f`, `%l` or `%d`, and what it means, written from the PTX ISA's
//! text.

use crate::harness::{Size, address, launch};
use crate::kit::nvcc::{Level, assemble_for};
use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::Options;
use std::collections::BTreeSet;
use std::fmt::Write;

type Word = fn(u32, u32, u32) -> u32;
type Pair = fn(u64, u64, u64) -> u64;

fn s(v: u32) -> i32 {
    v as i32
}

fn f(v: u32) -> f32 {
    f32::from_bits(v)
}

fn d(v: u64) -> f64 {
    f64::from_bits(v)
}

fn ftz(v: f32) -> f32 {
    if v.is_subnormal() { 0f32.copysign(v) } else { v }
}

fn half(v: u32, k: u32) -> f64 {
    ::half::f16::from_bits((v >> (16 * k)) as u16).to_f64()
}

fn halves(op: impl Fn(u32) -> f64) -> u32 {
    let one = |k| u32::from(::half::f16::from_f64(op(k)).to_bits());
    one(0) | one(1) << 16
}

const WORDS: &[(&str, Word)] = &[
    ("add.s32 %r,%a,%b;", |a, b, _| a.wrapping_add(b)),
    ("sub.s32 %r,%a,%b;", |a, b, _| a.wrapping_sub(b)),
    ("mul.lo.s32 %r,%a,%b;", |a, b, _| a.wrapping_mul(b)),
    ("mul.hi.s32 %r,%a,%b;", |a, b, _| ((i64::from(s(a)) * i64::from(s(b))) >> 32) as u32),
    ("mul.hi.u32 %r,%a,%b;", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32),
    ("mad.hi.u32 %r,%a,%b,%c;", |a, b, c| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)),
    ("mul24.lo.s32 %r,%a,%b;", |a, b, _| (i64::from(s(a) << 8 >> 8) * i64::from(s(b) << 8 >> 8)) as u32),
    ("or.b32 %t,%b,1; div.u32 %r,%a,%t;", |a, b, _| a / (b | 1)),
    ("or.b32 %t,%b,1; rem.u32 %r,%a,%t;", |a, b, _| a % (b | 1)),
    ("or.b32 %t,%b,1; div.s32 %r,%a,%t;", |a, b, _| s(a).wrapping_div(s(b | 1)) as u32),
    ("or.b32 %t,%b,1; rem.s32 %r,%a,%t;", |a, b, _| s(a).wrapping_rem(s(b | 1)) as u32),
    ("min.s32 %r,%a,%b;", |a, b, _| s(a).min(s(b)) as u32),
    ("max.u32 %r,%a,%b;", |a, b, _| a.max(b)),
    ("abs.s32 %r,%a;", |a, _, _| s(a).wrapping_abs() as u32),
    ("lop3.b32 %r,%a,%b,%c,0xe8;", |a, b, c| a & b | b & c | a & c),
    ("shl.b32 %r,%a,%b;", |a, b, _| a.checked_shl(b).unwrap_or(0)),
    ("shr.u32 %r,%a,%b;", |a, b, _| a.checked_shr(b).unwrap_or(0)),
    ("shr.s32 %r,%a,%b;", |a, b, _| (s(a) >> b.min(31)) as u32),
    ("shf.l.wrap.b32 %r,%a,%b,%c;", |a, b, c| (((u64::from(b) << 32 | u64::from(a)) << (c & 31)) >> 32) as u32),
    ("shf.r.clamp.b32 %r,%a,%b,%c;", |a, b, c| ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32),
    ("popc.b32 %r,%a;", |a, _, _| a.count_ones()),
    ("clz.b32 %r,%a;", |a, _, _| a.leading_zeros()),
    ("brev.b32 %r,%a;", |a, _, _| a.reverse_bits()),
    ("bfind.u32 %r,%a;", |a, _, _| if a == 0 { u32::MAX } else { 31 - a.leading_zeros() }),
    ("bfind.s32 %r,%a;", |a, _, _| {
        let v = if s(a) < 0 { !a } else { a };
        if v == 0 { u32::MAX } else { 31 - v.leading_zeros() }
    }),
    ("bfe.u32 %r,%a,5,9;", |a, _, _| a >> 5 & 0x1ff),
    ("bfe.s32 %r,%a,5,9;", |a, _, _| (s(a) << 18 >> 23) as u32),
    ("bfi.b32 %r,%a,%b,8,4;", |a, b, _| b & !0xf00 | (a & 15) << 8),
    ("prmt.b32 %r,%a,%b,0x7a10;", |a, b, _| {
        let sign = if a >> 23 & 1 == 1 { 0xff } else { 0 };
        b >> 24 << 24 | sign << 16 | (a >> 8 & 0xff) << 8 | a & 0xff
    }),
    ("sad.s32 %r,%a,%b,%c;", |a, b, c| s(a).abs_diff(s(b)).wrapping_add(c)),
    ("dp4a.s32.u32 %r,%a,%b,%c;", |a, b, c| {
        (0..4).fold(c, |sum, k| {
            sum.wrapping_add(((a >> (8 * k)) as u8 as i8 as i32 * (b >> (8 * k) & 0xff) as i32) as u32)
        })
    }),
    ("setp.lt.s32 %p,%a,%b; selp.b32 %r,%b,%c,%p;", |a, b, c| if s(a) < s(b) { b } else { c }),
    ("cvt.rn.f32.s32 %f,%a;", |a, _, _| (s(a) as f32).to_bits()),
    ("cvt.rn.f32.u32 %f,%a;", |a, _, _| (a as f32).to_bits()),
    ("cvt.rzi.s32.f32 %r,%fa;", |a, _, _| f(a) as i32 as u32),
    ("cvt.rni.u32.f32 %r,%fa;", |a, _, _| f(a).round_ties_even() as u32),
    ("cvt.rmi.f32.f32 %f,%fa;", |a, _, _| f(a).floor().to_bits()),
    ("cvt.rzi.s8.f32 %r,%fa; cvt.s32.s8 %r,%r;", |a, _, _| i32::from(f(a) as i8) as u32),
    ("add.f32 %f,%fa,%fb;", |a, b, _| (f(a) + f(b)).to_bits()),
    ("add.ftz.f32 %f,%fa,%fb;", |a, b, _| ftz(ftz(f(a)) + ftz(f(b))).to_bits()),
    ("sub.f32 %f,%fa,%fb;", |a, b, _| (f(a) - f(b)).to_bits()),
    ("mul.f32 %f,%fa,%fb;", |a, b, _| (f(a) * f(b)).to_bits()),
    ("fma.rn.f32 %f,%fa,%fb,%fc;", |a, b, c| f(a).mul_add(f(b), f(c)).to_bits()),
    ("add.sat.f32 %f,%fa,%fb;", |a, b, _| {
        let v = f(a) + f(b);
        (if v.is_nan() { 0.0 } else { v.clamp(0.0, 1.0) + 0.0 }).to_bits()
    }),
    ("div.rn.f32 %f,%fa,%fb;", |a, b, _| (f(a) / f(b)).to_bits()),
    ("rcp.rn.f32 %f,%fa;", |a, _, _| (1.0 / f(a)).to_bits()),
    ("sqrt.rn.f32 %f,%fa;", |a, _, _| f(a).sqrt().to_bits()),
    ("neg.f32 %f,%fa;", |a, _, _| (-f(a)).to_bits()),
    ("abs.f32 %f,%fa;", |a, _, _| f(a).abs().to_bits()),
    ("min.f32 %f,%fa,%fb;", |a, b, _| f(a).min(f(b)).to_bits()),
    ("setp.leu.f32 %p,%fa,%fb; selp.b32 %r,%a,%b,%p;", |a, b, _| {
        let holds = f(a) <= f(b) || f(a).is_nan() || f(b).is_nan();
        if holds { a } else { b }
    }),
    ("add.f16x2 %r,%a,%b;", |a, b, _| halves(|k| half(a, k) + half(b, k))),
    ("mul.f16x2 %r,%a,%b;", |a, b, _| halves(|k| half(a, k) * half(b, k))),
    ("cvt.rn.f16x2.f32 %r,%fa,%fb;", |a, b, _| halves(|k| f64::from(if k == 0 { f(b) } else { f(a) }))),
];

const PAIRS: &[(&str, Pair)] = &[
    ("add.s64 %l,%la,%lb;", |a, b, _| a.wrapping_add(b)),
    ("sub.s64 %l,%la,%lb;", |a, b, _| a.wrapping_sub(b)),
    ("mul.lo.s64 %l,%la,%lb;", |a, b, _| a.wrapping_mul(b)),
    ("mul.hi.u64 %l,%la,%lb;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64),
    ("mul.hi.s64 %l,%la,%lb;", |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
    ("or.b64 %l,%lb,1; div.u64 %l,%la,%l;", |a, b, _| a / (b | 1)),
    ("or.b64 %l,%lb,1; rem.s64 %l,%la,%l;", |a, b, _| (a as i64).wrapping_rem((b | 1) as i64) as u64),
    ("min.s64 %l,%la,%lb;", |a, b, _| (a as i64).min(b as i64) as u64),
    ("setp.gt.u64 %p,%la,%lb; selp.b64 %l,%lb,%lc,%p;", |a, b, c| if a > b { b } else { c }),
    ("cvt.u32.u64 %t,%lb; shl.b64 %l,%la,%t;", |a, b, _| a.checked_shl(b as u32).unwrap_or(0)),
    ("cvt.u32.u64 %t,%lb; shr.s64 %l,%la,%t;", |a, b, _| ((a as i64) >> (b as u32).min(63)) as u64),
    ("popc.b64 %t,%la; cvt.u64.u32 %l,%t;", |a, _, _| a.count_ones().into()),
    ("clz.b64 %t,%la; cvt.u64.u32 %l,%t;", |a, _, _| a.leading_zeros().into()),
    ("cvt.rn.f64.s64 %d,%la;", |a, _, _| (a as i64 as f64).to_bits()),
    ("cvt.rzi.s64.f64 %l,%da;", |a, _, _| if d(a).is_nan() { 1 << 63 } else { d(a) as i64 as u64 }),
    ("cvt.rn.f32.u64 %f,%la; cvt.f64.f32 %d,%f;", |a, _, _| f64::from(a as f32).to_bits()),
    ("cvt.rn.f32.f64 %f,%da; mov.b32 %t,%f; cvt.u64.u32 %l,%t;", |a, _, _| u64::from((d(a) as f32).to_bits())),
    ("add.f64 %d,%da,%db;", |a, b, _| (d(a) + d(b)).to_bits()),
    ("mul.f64 %d,%da,%db;", |a, b, _| (d(a) * d(b)).to_bits()),
    ("fma.rn.f64 %d,%da,%db,%dc;", |a, b, c| d(a).mul_add(d(b), d(c)).to_bits()),
    ("div.rn.f64 %d,%da,%db;", |a, b, _| (d(a) / d(b)).to_bits()),
    ("sqrt.rn.f64 %d,%da;", |a, _, _| d(a).sqrt().to_bits()),
    ("min.f64 %d,%da,%db;", |a, b, _| d(a).min(d(b)).to_bits()),
    ("setp.ge.f64 %p,%da,%db; selp.b64 %l,%la,%lb,%p;", |a, b, _| if d(a) >= d(b) { a } else { b }),
];

const THREADS: usize = 64;

/// Where a row's result is: the first destination that the last statement names.
fn result(text: &str) -> &'static str {
    let last = text.trim_end_matches(';').rsplit(';').next().unwrap_or(text);
    let to = last.split([' ', ',']).find(|p| p.starts_with('%')).unwrap_or("%r");
    ["%r", "%f", "%l", "%d"].into_iter().find(|r| *r == to).unwrap_or_else(|| panic!("{text}"))
}

fn module(arch: &str) -> String {
    let mut text = format!(".version 8.8\n.target {arch}\n.address_size 64\n");
    let all = WORDS.iter().map(|w| (w.0, 4)).chain(PAIRS.iter().map(|p| (p.0, 8)));
    for (number, (row, len)) in all.enumerate() {
        let (kind, integer, float) = if len == 4 { (32, "", "f") } else { (64, "l", "d") };
        let to = result(row);
        let _ = writeln!(
            text,
            ".visible .entry k{number}(.param .u64 pa,.param .u64 po)\n{{\n.reg .pred %p; .reg .b32 %a,%b,%c,%r,%t,%i; .reg .f32 %fa,%fb,%fc,%f;\n\
             .reg .b64 %la,%lb,%lc,%l,%pa,%po,%at; .reg .f64 %da,%db,%dc,%d;\n\
             ld.param.u64 %pa,[pa]; ld.param.u64 %po,[po]; mov.u32 %i,%tid.x; mul.wide.u32 %at,%i,{}; add.s64 %pa,%pa,%at;",
            3 * len
        );
        for (k, name) in ["a", "b", "c"].iter().enumerate() {
            let _ = writeln!(
                text,
                "ld.global.b{kind} %{integer}{name},[%pa+{}]; mov.b{kind} %{float}{name},%{integer}{name};",
                k * len
            );
        }
        let _ = writeln!(
            text,
            "{row}\nmul.wide.u32 %at,%i,{len}; add.s64 %po,%po,%at; st.global.b{kind} [%po],{to}; ret;\n}}"
        );
    }
    text
}

/// Edge values and random ones.
fn inputs(floats: bool, len: usize) -> Vec<u64> {
    let words =
        [0u32, 1, 2, 31, 32, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0x3f80_0000, 0xbf80_0000, 0x0000_0fff, 0x7f80_0000];
    let mut random = crate::kit::Random::new(0x5eed);
    (0..3 * THREADS)
        .map(|k| match (k % 4, floats, len) {
            (0, false, _) => u64::from(words[random.below(12) as usize]) * if len == 8 { 0x1_0000_0001 } else { 1 },
            (1, false, _) => random.below(64),
            (_, false, _) => random.next(),
            (0, true, 4) => u64::from(words[random.below(12) as usize]),
            (_, true, 4) => u64::from(((random.below(1 << 20) as f32 - 524_288.0) / 1000.0).to_bits()),
            (0, true, _) => {
                [0.0f64, 1.0, -1.5, 1e300, f64::INFINITY, 2f64.powi(-1030)][random.below(6) as usize].to_bits()
            }
            (_, true, _) => ((random.below(1 << 40) as f64 - 5e11) / 1e6).to_bits(),
        })
        .map(|v| if len == 4 { v & 0xffff_ffff } else { v })
        .collect()
}

/// Any two of "not a number" are the same.
fn same(row: &str, got: u64, want: u64, len: usize) -> bool {
    let nan = |v: u64| if len == 4 { f(v as u32).is_nan() } else { d(v).is_nan() };
    let halves_nan = |v: u64| (0..2).any(|k| half(v as u32, k).is_nan());
    let float = row.contains(if len == 4 { "f32" } else { "f64" });
    got == want || float && nan(got) && nan(want) || row.contains("f16x2") && halves_nan(got) && halves_nan(want)
}

#[test]
fn single_instructions_of_ptx_agree_with_rust_on_every_chip() {
    for arch in ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"] {
        agree(arch);
    }
}

fn agree(arch: &str) {
    let text = module(arch);
    let (mut wrong, mut forms) = (vec![], BTreeSet::new());
    for level in Level::ALL {
        let cubin = Cubin::parse(&assemble_for(&text, arch, level)).unwrap();
        let all = WORDS.iter().map(|w| (w.0, 4)).chain(PAIRS.iter().map(|p| (p.0, 8)));
        for (number, (row, len)) in all.enumerate() {
            let values = inputs(row.contains(",%f") || row.contains(",%d"), len);
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()[..len].to_vec()).collect();
            let size = Size { grid: [1; 3], block: [THREADS as u32, 1, 1], ..Size::default() };
            let parameters = [0, 1].map(|k| address(k).to_le_bytes().to_vec());
            let buffers = [bytes, vec![0; len * THREADS]];
            let name = format!("k{number}");
            let (after, stats) = launch(&cubin, &name, size, &buffers, &parameters, &Options::default())
                .unwrap_or_else(|e| panic!("{row} on {arch} {level:?}: {e}"));
            forms.extend(stats.forms);
            for (t, chunk) in after[1].chunks_exact(len).enumerate() {
                let [a, b, c] = [values[3 * t], values[3 * t + 1], values[3 * t + 2]];
                let got = chunk.iter().rev().fold(0, |v, byte| v << 8 | u64::from(*byte));
                let want = match number.checked_sub(WORDS.len()) {
                    None => u64::from(WORDS[number].1(a as u32, b as u32, c as u32)),
                    Some(pair) => PAIRS[pair].1(a, b, c),
                };
                if !same(row, got, want, len) {
                    wrong.push(format!("{row} on {arch} {level:?} of {a:#x} {b:#x} {c:#x}: {got:#x}, not {want:#x}"));
                    break;
                }
            }
        }
    }
    println!("{} statements, {} forms of instructions", WORDS.len() + PAIRS.len(), forms.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
