//! Instructions of kernels that ptxas compiles now, read by nvdisasm and by us.

use crate::nvidia::{disassemble, ptxas};
use doorbell::isa::sass::{decode, encode, parse_at, print_at};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The words of all kernels of a cubin: its sections .text.*. (The object crate refuses a cubin without program
/// headers.)
pub fn words(cubin: &[u8]) -> Vec<u128> {
    let number = |at: usize, len: usize| cubin[at..at + len].iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b));
    let (table, size, count, names) = (number(40, 8), number(58, 2), number(60, 2), number(62, 2));
    let header = |i: usize| table + i * size;
    let strings = number(header(names) + 24, 8);
    let mut words = Vec::new();
    for i in 0..count {
        let name = &cubin[strings + number(header(i), 4)..];
        if name.starts_with(b".text") {
            let (start, len) = (number(header(i) + 24, 8), number(header(i) + 32, 8));
            let code = cubin[start..start + len].chunks_exact(16);
            words.extend(code.map(|c| u128::from_le_bytes(c.try_into().expect("16 bytes"))));
        }
    }
    words
}

/// A small generator of random numbers, so that a seed names the kernels.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    pub fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const INTEGER: &[&str] = &[
    "add.s32",
    "sub.s32",
    "mul.lo.s32",
    "mul.hi.u32",
    "mul.hi.s32",
    "and.b32",
    "or.b32",
    "xor.b32",
    "min.s32",
    "max.u32",
    "shl.b32",
    "shr.u32",
    "shr.s32",
    "div.u32",
    "rem.s32",
    "div.s32",
    "mul24.lo.s32",
];
const INTEGER_THREE: &[&str] = &[
    "mad.lo.s32",
    "mad.hi.u32",
    "sad.u32",
    "prmt.b32",
    "lop3.b32",
    "shf.l.wrap.b32",
    "shf.r.clamp.b32",
    "bfe.u32",
    "bfe.s32",
];
const INTEGER_ONE: &[&str] =
    &["not.b32", "neg.s32", "abs.s32", "popc.b32", "clz.b32", "brev.b32", "bfind.u32", "bfind.shiftamt.s32"];
const FLOAT: &[&str] = &[
    "add.f32",
    "add.ftz.f32",
    "sub.f32",
    "mul.f32",
    "mul.ftz.sat.f32",
    "min.f32",
    "max.NaN.f32",
    "div.rn.f32",
    "div.approx.f32",
    "add.rz.f32",
    "mul.rm.f32",
    "copysign.f32",
];
const FLOAT_ONE: &[&str] = &[
    "neg.f32",
    "abs.f32",
    "sqrt.rn.f32",
    "sqrt.approx.ftz.f32",
    "rsqrt.approx.f32",
    "rcp.rn.f32",
    "rcp.approx.ftz.f32",
    "sin.approx.f32",
    "cos.approx.ftz.f32",
    "ex2.approx.f32",
    "lg2.approx.ftz.f32",
    "tanh.approx.f32",
    "cvt.rni.f32.f32",
    "cvt.rpi.f32.f32",
    "cvt.rzi.ftz.f32.f32",
];
const DOUBLE: &[&str] =
    &["add.f64", "sub.f64", "mul.f64", "min.f64", "max.f64", "add.rz.f64", "div.rn.f64", "mul.rp.f64"];
const HALF: &[&str] = &[
    "add.f16x2",
    "sub.f16x2",
    "mul.f16x2",
    "min.f16x2",
    "max.NaN.f16x2",
    "add.bf16x2",
    "mul.bf16x2",
    "max.bf16x2",
    "mul.ftz.sat.f16x2",
];
const COMPARE: &[&str] = &[
    "eq.s32",
    "ne.u32",
    "lt.s32",
    "ge.u32",
    "gt.s32",
    "le.u32",
    "lt.f32",
    "geu.f32",
    "neu.ftz.f32",
    "num.f32",
    "nan.f32",
];
const ATOMIC: &[&str] =
    &["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "exch.b32", "inc.u32", "dec.u32"];
const SCOPE: &[&str] = &["relaxed.gpu", "acq_rel.gpu", "relaxed.cta", "relaxed.sys", "release.gpu"];

/// One statement over r0..r15 (integers), f0..f15, d0..d7, h0..h7 and the pointer p0.
fn statement(random: &mut Random) -> String {
    let (i, j, k, l) = (random.below(16), random.below(16), random.below(16), random.below(16));
    let (d, e, g) = (random.below(8), random.below(8), random.below(8));
    let immediate = random.below(1 << 20);
    let offset = 4 * random.below(4000);
    match random.below(30) {
        0 | 1 => format!("{} r{i},r{j},r{k};", random.of(INTEGER)),
        2 | 3 => format!("{} r{i},r{j},{immediate};", random.of(INTEGER)),
        4 | 5 => match random.of(INTEGER_THREE) {
            "lop3.b32" => format!("lop3.b32 r{i},r{j},r{k},r{l},{};", random.below(256)),
            op => format!("{op} r{i},r{j},r{k},r{l};"),
        },
        6 => format!("{} r{i},r{j};", random.of(INTEGER_ONE)),
        7 | 8 => format!("{} f{i},f{j},f{k};", random.of(FLOAT)),
        9 => format!("{} f{i},f{j},0f{:08x};", random.of(FLOAT), 0x3f00_0000 + 512 * immediate),
        10 | 11 => format!("{} f{i},f{j};", random.of(FLOAT_ONE)),
        12 => format!("fma.{}.f32 f{i},f{j},f{k},f{l};", random.of(&["rn", "rz", "rm", "rp", "rn.ftz", "rn.sat"])),
        13 | 14 => format!("{} d{d},d{e},d{g};", random.of(DOUBLE)),
        15 => format!("fma.rn.f64 d{d},d{e},d{g},d{};", random.below(8)),
        16 | 17 => format!("{} h{d},h{e},h{g};", random.of(HALF)),
        18 => format!(
            "fma.rn.{} h{d},h{e},h{g},h{d};",
            random.of(&["f16x2", "relu.f16x2", "bf16x2", "relu.bf16x2", "ftz.f16x2"])
        ),
        19 => {
            let compare = random.of(COMPARE);
            let file = if compare.ends_with("f32") { 'f' } else { 'r' };
            format!("setp.{compare} q{},{file}{i},{file}{j}; selp.b32 r{k},r{l},r{i},q{};", d % 4, e % 4)
        }
        20 => format!("@q{} add.s32 r{i},r{j},{};", d % 4, random.below(100)),
        21 => match random.below(6) {
            0 => format!("cvt.rn.f32.s32 f{i},r{j};"),
            1 => format!("cvt.rzi.s32.f32 r{i},f{j};"),
            2 => format!("cvt.f64.f32 d{d},f{i};"),
            3 => format!("cvt.rn.f32.f64 f{i},d{d};"),
            4 => format!("cvt.rni.u32.f64 r{i},d{d};"),
            _ => format!("cvt.rn.f16x2.f32 h{d},f{i},f{j};"),
        },
        22 => format!(
            "ld.global{}.u32 r{i},[p0+{offset}];",
            random.of(&["", ".nc", ".relaxed.gpu", ".volatile", ".L1::no_allocate"])
        ),
        23 => format!(
            "st.global.b32 [p0+{offset}],r{i}; ld.global.v4.f32 {{f0,f1,f2,f3}},[p0+{}];",
            16 * random.below(900)
        ),
        24 => format!(
            "st.shared.u8 [s+{}],r{i}; ld.shared.v2.u32 {{r{i},r{}}},[s+{}];",
            random.below(900),
            (i + 1) % 16,
            8 * random.below(100)
        ),
        25 => format!(
            "atom.{}.global.{} r{i},[p0+{offset}],r{j}; red.global.add.f32 [p0+{offset}],f{i};",
            random.of(SCOPE),
            random.of(ATOMIC)
        ),
        26 => format!(
            "shfl.sync.{}.b32 r{i},r{j},{},31,-1; vote.sync.ballot.b32 r{k},q{},-1;",
            random.of(&["idx", "up", "down", "bfly"]),
            random.below(32),
            d % 4
        ),
        27 => format!(
            "bar.sync {}; redux.sync.{} r{i},r{j},-1;",
            random.below(16),
            random.of(&["add.u32", "min.s32", "max.u32", "and.b32"])
        ),
        28 => {
            format!("dp4a.{} r{i},r{j},r{k},r{l}; activemask.b32 r{l};", random.of(&["u32.u32", "s32.u32", "s32.s32"]))
        }
        _ => format!("mad.wide.s32 p1,r{i},{immediate},p1; add.s64 p1,p1,{offset}; cvt.u32.u64 r{j},p1;"),
    }
}

/// A kernel of random statements whose results all leave it.
fn kernel(number: usize, random: &mut Random) -> String {
    let mut text = format!(
        ".visible .entry k{number}(.param .u64 a,.param .u32 n)\n{{\n.reg .pred q<4>; .reg .b32 r<16>,h<8>; .reg .f32 f<16>; .reg .f64 d<8>; .reg .b64 p<4>;\n\
         .shared .align 16 .b8 s[4096];\nld.param.u64 p0,[a]; cvta.to.global.u64 p0,p0; ld.param.u32 r0,[n]; mov.u32 r1,%tid.x; mov.u32 r2,%ctaid.y; mov.u32 r3,%laneid;\n\
         mul.wide.u32 p1,r1,4; add.s64 p0,p0,p1;\n"
    );
    for i in 0..4 {
        let _ = writeln!(text, "setp.lt.u32 q{i},r{i},77;");
    }
    for i in 4..16 {
        let _ = writeln!(text, "ld.global.u32 r{i},[p0+{}];", 4 * i);
    }
    for i in 0..16 {
        let _ = writeln!(text, "ld.global.f32 f{i},[p0+{}];", 64 + 4 * i);
    }
    for i in 0..8 {
        let _ = writeln!(text, "ld.global.f64 d{i},[p0+{}]; ld.global.b32 h{i},[p0+{}];", 128 + 8 * i, 256 + 4 * i);
    }
    for block in 0..3 {
        let _ = writeln!(text, "@q{block} bra L{block};");
        for _ in 0..14 {
            let _ = writeln!(text, "{}", statement(random));
        }
        let _ = writeln!(text, "L{block}:");
    }
    for i in 0..16 {
        let _ = writeln!(text, "st.global.b32 [p0+{}],r{i}; st.global.f32 [p0+{}],f{i};", 4 * i, 64 + 4 * i);
    }
    for i in 0..8 {
        let _ = writeln!(text, "st.global.f64 [p0+{}],d{i}; st.global.b32 [p0+{}],h{i};", 128 + 8 * i, 256 + 4 * i);
    }
    text + "ret;\n}\n"
}

pub fn module(seed: u64, kernels: usize) -> String {
    module_for(seed, kernels, "sm_90a")
}

pub fn module_for(seed: u64, kernels: usize, arch: &str) -> String {
    let mut random = Random(seed);
    let mut text = format!(".version 8.8\n.target {arch}\n.address_size 64\n");
    (0..kernels).for_each(|n| text += &kernel(n, &mut random));
    // Sums and products of bfloats are instructions from sm_90 on.
    let new = arch.starts_with("sm_9") || arch.starts_with("sm_1");
    if new { text } else { text.replace("add.bf16x2", "max.bf16x2").replace("mul.bf16x2", "min.bf16x2") }
}

/// Decodes, prints, parses and encodes the distinct words of a cubin and compares with nvdisasm; returns their number.
fn agree(cubin: &[u8], seen: &mut BTreeSet<u128>) {
    let fresh: Vec<u128> = words(cubin).into_iter().filter(|w| seen.insert(*w)).collect();
    for (i, (word, theirs)) in fresh.iter().zip(disassemble(&fresh)).enumerate() {
        let address = 16 * i as u64;
        let theirs = theirs.unwrap_or_else(|| panic!("nvdisasm refuses {word:032x}"));
        let inst = decode(*word).unwrap_or_else(|e| panic!("{theirs}: {e}"));
        assert_eq!(print_at(&inst, address), theirs, "{word:032x}");
        assert_eq!(encode(&inst), Ok(*word), "{theirs}");
        let mut parsed = parse_at(&theirs, address).unwrap_or_else(|e| panic!("{theirs}: {e}"));
        parsed.control = inst.control;
        assert_eq!(encode(&parsed).map(|w| format!("{w:032x}")), Ok(format!("{word:032x}")), "{theirs}");
    }
}

#[test]
fn random_kernels_compiled_by_ptxas_read_as_nvdisasm_reads_them() {
    let mut seen = BTreeSet::new();
    for (seed, level) in [(0x5a55_1001, "-O3"), (0x5a55_1002, "-O1"), (0x5a55_1003, "-O2")] {
        println!("seed {seed:#x} {level}");
        agree(&ptxas(&module(seed, 16), level), &mut seen);
    }
    println!("{} distinct instructions", seen.len());
    assert!(seen.len() >= 5_000, "only {} distinct instructions", seen.len());
}

#[test]
fn tensor_instructions_compiled_by_ptxas_read_as_nvdisasm_reads_them() {
    let mut seen = BTreeSet::new();
    agree(&ptxas(include_str!("../data/sass/tensor.ptx"), "-O3"), &mut seen);
    println!("{} distinct instructions", seen.len());
    assert!(seen.len() >= 100, "only {} distinct instructions", seen.len());
}
