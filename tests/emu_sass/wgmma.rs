//! Matrix multiplies of a warpgroup against integer sums: every swizzle, both orders, all formats, from shared memory
//! and registers.
//!
//! The host lays the matrices out as the descriptors say, by the canonical layouts of the PTX ISA; a kernel copies them
//! to shared memory as they are. Values are small integers, so that every format's sums are exact.

use crate::harness::{Size, address, launch};
use crate::kit::Random;
use crate::kit::nvcc::{Level, assemble};
use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::Options;
use std::fmt::Write;

const COLUMNS: usize = 32;
const ROWS: usize = 64;
const B_AT: u64 = 0x8000;

/// The layout of a matrix in shared memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// 0, 32, 64 or 128 bytes.
    swizzle: u64,
    /// Rows (or columns) are contiguous, not the depth.
    transposed: bool,
    leading: u64,
    stride: u64,
}

impl Layout {
    const fn depth_first(swizzle: u64, leading: u64, stride: u64) -> Self {
        Self { swizzle, transposed: false, leading, stride }
    }

    const fn rows_first(swizzle: u64, leading: u64, stride: u64) -> Self {
        Self { swizzle, transposed: true, leading, stride }
    }

    fn descriptor(&self) -> u64 {
        let mode = [(0u64, 0u64), (128, 1), (64, 2), (32, 3)].iter().find(|m| m.0 == self.swizzle).unwrap().1;
        (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | mode << 62
    }

    /// The byte of an element, from the matrix's start, which is a multiple of 1024.
    fn place(&self, row: u64, depth: u64, bits: u64) -> u64 {
        let each = 128 / bits;
        let units = (self.swizzle / 16).max(1);
        let linear = match (self.transposed, self.swizzle) {
            (false, 0) => row % 8 * 16 + row / 8 * self.stride + depth / each * self.leading + depth % each * bits / 8,
            (false, _) => row % 8 * self.swizzle + row / 8 * self.stride + depth * bits / 8,
            (true, 0) => row % each * 2 + row / each * self.stride + depth % 8 * 16 + depth / 8 * self.leading,
            (true, _) => {
                row % each * 2
                    + row / each % units * 16
                    + row / (each * units) * self.leading
                    + depth % 8 * self.swizzle
                    + depth / 8 * self.stride
            }
        };
        linear ^ (linear >> 7 & (units - 1)) << 4
    }
}

struct Case {
    /// Of the instruction: `k16.f32.f16.f16`.
    shape: &'static str,
    /// After the predicate.
    tail: &'static str,
    bits: u64,
    /// Steps of 32 bytes along the depth, and how far a step moves both descriptors, in units of 16 bytes.
    steps: (u64, u64),
    a: Layout,
    b: Layout,
    from_registers: bool,
    /// Sums of f16, two in a register.
    packed: bool,
    neg_a: bool,
}

const K128: Layout = Layout::depth_first(128, 16, 1024);
const K64: Layout = Layout::depth_first(64, 16, 512);
const K32: Layout = Layout::depth_first(32, 16, 256);
/// Halves of a row 128 bytes apart, groups of 8 rows 256.
const K0: Layout = Layout::depth_first(0, 128, 256);

const fn case(shape: &'static str, tail: &'static str, bits: u64, a: Layout, b: Layout) -> Case {
    Case { shape, tail, bits, steps: (1, 2), a, b, from_registers: false, packed: false, neg_a: false }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { steps: (4, 2), ..case("k16.f32.f16.f16", "1,1,0,0", 16, K128, K128) },
    Case { steps: (2, 2), ..case("k16.f32.f16.f16", "1,1,0,0", 16, K64, K64) },
    case("k16.f32.f16.f16", "1,1,0,0", 16, K32, K32),
    case("k16.f32.f16.f16", "1,1,0,0", 16, K0, K0),
    Case { neg_a: true, ..case("k16.f32.bf16.bf16", "-1,1,0,0", 16, K128, K0) },
    case("k16.f32.f16.f16", "1,1,1,1", 16, Layout::rows_first(128, 4096, 1024), Layout::rows_first(64, 4096, 512)),
    case("k16.f32.bf16.bf16", "1,1,1,1", 16, Layout::rows_first(32, 512, 256), Layout::rows_first(0, 1024, 128)),
    Case { packed: true, ..case("k16.f16.f16.f16", "1,1,0,1", 16, K64, Layout::rows_first(64, 4096, 512)) },
    case("k8.f32.tf32.tf32", "1,1", 32, K128, K32),
    case("k32.f32.e4m3.e5m2", "1,1", 8, K128, K64),
    Case { packed: true, ..case("k32.f16.e5m2.e4m3", "1,1", 8, K0, K128) },
    Case { steps: (2, 2), ..case("k32.s32.s8.u8", "", 8, K128, K128) },
    case("k256.s32.b1.b1.and.popc", "", 1, K32, K128),
    Case { from_registers: true, ..case("k16.f32.f16.f16", "1,1,0", 16, K0, K128) },
    Case { from_registers: true, ..case("k32.s32.u8.s8", "", 8, K0, K64) },
    Case { from_registers: true, ..case("k8.f32.tf32.tf32", "1,1", 32, K0, K64) },
];

impl Case {
    fn registers(&self) -> usize {
        if self.packed { COLUMNS / 4 } else { COLUMNS / 2 }
    }

    fn depth(&self) -> u64 {
        self.steps.0 * 256 / self.bits
    }

    /// The formats of sum, A and B.
    fn formats(&self) -> Vec<&str> {
        self.shape.split('.').skip(1).collect()
    }

    fn kernel(&self, number: usize) -> String {
        let sums: Vec<String> = (0..self.registers()).map(|i| format!("%s{i}")).collect();
        let mut text = format!(
            ".visible .entry k{number}(.param .u64 pa,.param .u64 pb,.param .u64 pc,.param .u64 po,.param .u64 da,.param .u64 db,\
             .param .u32 scale)\n{{\n.shared .align 1024 .b8 sm[65536]; .reg .pred %p,%q; .reg .b32 %a<4>,%s<{}>,%w<4>,%i,%t,%at,%base;\n\
             .reg .b64 %pa,%pb,%pc,%po,%da,%db,%x;\n\
             ld.param.u64 %pa,[pa]; ld.param.u64 %pb,[pb]; ld.param.u64 %pc,[pc]; ld.param.u64 %po,[po];\n\
             ld.param.u64 %da,[da]; ld.param.u64 %db,[db]; ld.param.u32 %t,[scale]; setp.ne.u32 %p,%t,0; mov.u32 %t,%tid.x;\n\
             mov.u32 %base,sm; shl.b32 %i,%t,4; cvt.u64.u32 %x,%i; add.s64 %pa,%pa,%x; add.s64 %pb,%pb,%x;\n\
             L: add.u32 %at,%base,%i; ld.global.v4.b32 {{%w0,%w1,%w2,%w3}},[%pa]; st.shared.v4.b32 [%at],{{%w0,%w1,%w2,%w3}};\n\
             ld.global.v4.b32 {{%w0,%w1,%w2,%w3}},[%pb]; st.shared.v4.b32 [%at+{B_AT}],{{%w0,%w1,%w2,%w3}};\n\
             add.s64 %pa,%pa,2048; add.s64 %pb,%pb,2048; add.u32 %i,%i,2048; setp.lt.u32 %q,%i,{B_AT}; @%q bra L;\n\
             shr.u32 %base,%base,4; cvt.u64.u32 %x,%base; add.s64 %da,%da,%x; add.s64 %db,%db,%x; add.s64 %db,%db,{};\n\
             mul.wide.u32 %x,%t,{}; add.s64 %pc,%pc,%x; add.s64 %po,%po,%x;\n",
            self.registers(),
            B_AT >> 4,
            4 * self.registers(),
        );
        for (i, sum) in sums.iter().enumerate() {
            let _ = writeln!(text, "ld.global.b32 {sum},[%pc+{}];", 4 * i);
        }
        if self.from_registers {
            // The fragments lie before the sums' buffer, 16 bytes a thread.
            let _ =
                writeln!(text, "ld.param.u64 %x,[pc]; mul.wide.u32 %pa,%t,16; add.s64 %x,%x,%pa; add.s64 %x,%x,65536;");
            let _ = writeln!(text, "ld.global.v4.b32 {{%a0,%a1,%a2,%a3}},[%x];");
        }
        text += "fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;\n";
        let (sums_text, tail) =
            (sums.join(","), if self.tail.is_empty() { String::new() } else { format!(",{}", self.tail) });
        for step in 0..self.steps.0 {
            let a = if self.from_registers { "{%a0,%a1,%a2,%a3}" } else { "%da" };
            let adds = if step == 0 { "%p" } else { "1" };
            let shape = format!("m64n{COLUMNS}{}", self.shape);
            let _ = writeln!(
                text,
                "wgmma.mma_async.sync.aligned.{shape} {{{sums_text}}},{a},%db,{adds}{tail};\n\
                 add.s64 %da,%da,{0}; add.s64 %db,%db,{0};",
                self.steps.1
            );
        }
        text += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
        for (i, sum) in sums.iter().enumerate() {
            let _ = writeln!(text, "st.global.b32 [%po+{}],{sum};", 4 * i);
        }
        text + "ret;\n}\n"
    }
}

/// A small integer that the format has, and its bits.
fn value(format: &str, random: &mut Random) -> (i64, u64) {
    let signed = random.below(9) as i64 - 4;
    let float = signed as f64;
    match format {
        "f16" => (signed, u64::from(::half::f16::from_f64(float).to_bits())),
        "bf16" => (signed, u64::from(::half::bf16::from_f64(float).to_bits())),
        "tf32" => (signed, u64::from((float as f32).to_bits())),
        // Sign, exponent and fraction of 0, 1, 2, 3, 4.
        "e4m3" => {
            (signed, [0, 0x38, 0x40, 0x44, 0x48][signed.unsigned_abs() as usize] | if signed < 0 { 0x80 } else { 0 })
        }
        "e5m2" => {
            (signed, [0, 0x3c, 0x40, 0x42, 0x44][signed.unsigned_abs() as usize] | if signed < 0 { 0x80 } else { 0 })
        }
        "s8" => (signed * 20, (signed * 20) as u8 as u64),
        "u8" => (signed + 200, (signed + 200) as u64),
        _ => (signed & 1, (signed & 1) as u64),
    }
}

/// A matrix by rows of the depth, and its bytes as the layout has them.
fn matrix(rows: usize, case: &Case, layout: &Layout, format: &str, random: &mut Random) -> (Vec<i64>, Vec<u8>) {
    let (mut values, mut bytes) = (vec![], vec![0u8; 0x8000]);
    for row in 0..rows as u64 {
        for k in 0..case.depth() {
            let (v, bits) = value(format, random);
            values.push(v);
            let at = layout.place(row, k, case.bits) as usize;
            match case.bits {
                1 => bytes[at] |= (bits << (k % 8)) as u8,
                n => bytes[at..at + n as usize / 8].copy_from_slice(&bits.to_le_bytes()[..n as usize / 8]),
            }
        }
    }
    (values, bytes)
}

/// A in the registers of 128 threads, four each, as the PTX ISA's figures have it.
fn fragments(values: &[i64], case: &Case, format: &str) -> Vec<u8> {
    let (each, depth) = ((32 / case.bits) as usize, case.depth() as usize);
    let mut bytes = vec![];
    for thread in 0..128 {
        let (warp, lane) = (thread / 32, thread % 32);
        for register in 0..4 {
            let (row, first) =
                (16 * warp + lane / 4 + 8 * (register % 2), each * (lane % 4) + 4 * each * (register / 2));
            let mut word = 0u64;
            for e in 0..each {
                let v = values[row * depth + first + e];
                let bits = match format {
                    "f16" => u64::from(::half::f16::from_f64(v as f64).to_bits()),
                    "tf32" => u64::from((v as f32).to_bits()),
                    _ => v as u8 as u64,
                };
                word |= bits << (case.bits * e as u64);
            }
            bytes.extend_from_slice(&(word as u32).to_le_bytes());
        }
    }
    bytes
}

/// A sum in its format.
fn sum_bits(format: &str, v: i64) -> u32 {
    match format {
        "f32" => (v as f32).to_bits(),
        "f16" => u32::from(::half::f16::from_f64(v as f64).to_bits()),
        _ => v as i32 as u32,
    }
}

/// The words of all threads' sums.
fn words(case: &Case, format: &str, value: impl Fn(usize, usize) -> i64) -> Vec<u8> {
    let mut bytes = vec![];
    for thread in 0..128 {
        let (warp, lane) = (thread / 32, thread % 32);
        let element = |i: usize| {
            let (row, column) = (16 * warp + lane / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (lane % 4) + i % 2);
            sum_bits(format, value(row, column))
        };
        for i in 0..case.registers() {
            let word = if case.packed { element(2 * i) | element(2 * i + 1) << 16 } else { element(i) };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// Runs a case; an error names what differs.
fn run(case: &Case, number: usize, cubin: &Cubin, adds: bool) -> Result<(), String> {
    let mut random = Random::new(0x1234 + number as u64);
    let formats = case.formats();
    let (a, a_bytes) = matrix(ROWS, case, &case.a, formats[1], &mut random);
    let (b, b_bytes) = matrix(COLUMNS, case, &case.b, formats[2], &mut random);
    let c: Vec<i64> = (0..ROWS * COLUMNS).map(|_| random.below(64) as i64 - 32).collect();
    let mut c_bytes = words(case, formats[0], |row, column| c[row * COLUMNS + column]);
    if case.from_registers {
        c_bytes.resize(65536, 0);
        c_bytes.extend(fragments(&a, case, formats[1]));
    }
    let parameters = [
        address(0).to_le_bytes().to_vec(),
        address(1).to_le_bytes().to_vec(),
        address(2).to_le_bytes().to_vec(),
        address(3).to_le_bytes().to_vec(),
        case.a.descriptor().to_le_bytes().to_vec(),
        case.b.descriptor().to_le_bytes().to_vec(),
        u32::from(adds).to_le_bytes().to_vec(),
    ];
    let buffers = [a_bytes, b_bytes, c_bytes, vec![0; 128 * 4 * case.registers()]];
    let size = Size { grid: [1; 3], block: [128, 1, 1], ..Size::default() };
    let (after, _) = launch(cubin, &format!("k{number}"), size, &buffers, &parameters, &Options::default())
        .map_err(|e| e.to_string())?;
    let depth = case.depth() as usize;
    let want = words(case, formats[0], |row, column| {
        let product: i64 = (0..depth).map(|k| a[row * depth + k] * b[column * depth + k]).sum();
        let product = if case.neg_a { -product } else { product };
        product + if adds { c[row * COLUMNS + column] } else { 0 }
    });
    match after[3].iter().zip(&want).position(|(x, y)| x != y) {
        None => Ok(()),
        Some(at) => Err(format!("word {}: {:x?}, not {:x?}", at / 4, &after[3][at & !3..][..4], &want[at & !3..][..4])),
    }
}

#[test]
fn multiplies_of_a_warpgroup_agree_with_integer_sums_in_every_layout_and_format() {
    let mut text = ".version 8.8\n.target sm_90a\n.address_size 64\n".to_owned();
    CASES.iter().enumerate().for_each(|(number, case)| text += &case.kernel(number));
    let mut wrong = vec![];
    for level in Level::ALL {
        let cubin = Cubin::parse(&assemble(&text, level)).unwrap();
        for (number, case) in CASES.iter().enumerate() {
            for adds in [true, false] {
                if let Err(e) = run(case, number, &cubin, adds) {
                    wrong.push(format!("{number} {} {level:?} adds {adds}: {e}", case.shape));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
