//! The ends of the range of divisions, reciprocals and roots, where all of a kernel call one copy of the code: the
//! values, whatever the kernel keeps meanwhile and however its threads come there; schedules without faults; the length
//! relative to ptxas's code.

use crate::division::{A, B, ELEMENTS, OPS, OUT, Op, agrees, bytes_of, case, numbers};
use crate::figures::Figures;
use crate::machine::launch;
use crate::nvidia::ptxas;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{SmArch, decode};

/// What the kernel is like around its divisions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// All after each other, with their operands loaded before and their results stored after.
    Row,
    /// In a loop of three rounds.
    Loop,
    /// In both arms of a branch that half of the threads of each warp take, in opposite orders.
    Arms,
    /// After 40 values and five conditions that are used behind them.
    Kept,
    /// In a function, and again in the kernel that calls it.
    Called,
}

const SHAPES: [Shape; 5] = [Shape::Row, Shape::Loop, Shape::Arms, Shape::Kept, Shape::Called];
const ROUNDS: usize = 3;
const KEPT: usize = 40;
/// Bytes from one kept value of a thread to the next.
const APART: usize = 2048;
/// Where a second set of results lies, in bytes.
const SECOND: usize = 1 << 18;
const THREADS: usize = 512;

fn type_of(bytes: usize) -> &'static str {
    if bytes == 4 { "f32" } else { "f64" }
}

fn loads(n: usize, bytes: usize) -> String {
    let ty = type_of(bytes);
    let one = |k| {
        let at = k * bytes;
        format!("ld.global.{ty} %a{k}, [%d1+{at}]; ld.global.{ty} %b{k}, [%d2+{at}];\n")
    };
    (0..n).map(one).collect()
}

fn stores(n: usize, bytes: usize, further: usize) -> String {
    let ty = type_of(bytes);
    (0..n).map(|k| format!("st.global.{ty} [%d3+{}], %r{k};\n", k * bytes + further)).collect()
}

fn text(ops: &[String], bytes: usize, shape: Shape) -> String {
    let (ty, n) = (type_of(bytes), ops.len());
    let one = |(k, op): (usize, &String)| {
        let named = ["%a", "%b", "%r"].iter().fold(op.clone(), |t, r| t.replace(r, &format!("{r}{k}")));
        // The result before.
        format!("{};\n", named.replace('$', &format!("%r{}", k.max(1) - 1)))
    };
    let all: Vec<String> = ops.iter().enumerate().map(one).collect();
    let (row, back) = (all.concat(), all.iter().rev().cloned().collect::<String>());
    let (loads, stores, again) = (loads(n, bytes), stores(n, bytes, 0), stores(n, bytes, SECOND));
    let regs = format!(
        ".reg .b64 %d<9>; .reg .b32 %i<9>; .reg .pred %p<9>; .reg .{ty} %a<{n}>, %b<{n}>, %r<{n}>; .reg .b64 %k<{KEPT}>;\n"
    );
    let rounds = if shape == Shape::Loop { ROUNDS } else { 1 };
    let inner = match shape {
        Shape::Row => format!("{loads}{row}{stores}"),
        Shape::Loop => format!(
            "mov.u32 %i5, 0;\nround:\n{loads}{row}{stores}add.s64 %d1, %d1, {0}; add.s64 %d2, %d2, {0}; add.s64 %d3, %d3, {0};\n\
             add.u32 %i5, %i5, 1; setp.lt.u32 %p1, %i5, {ROUNDS}; @%p1 bra round;\n",
            n * bytes
        ),
        Shape::Arms => format!(
            "and.b32 %i5, %i2, 1; setp.ne.u32 %p1, %i5, 0;\n{loads}@%p1 bra other;\n{row}bra done;\nother:\n{back}done:\n{stores}"
        ),
        Shape::Kept => {
            let keep = |k| format!("ld.global.b64 %k{k}, [%d5+{}];\n", k * APART);
            let keep: String = (0..KEPT).map(keep).collect();
            let bit = |k| format!("and.b32 %i5, %i2, {}; setp.ne.u32 %p{k}, %i5, 0;\n", 1 << k);
            let bits: String = (0..5).map(bit).collect();
            let sum: String = (0..KEPT).map(|k| format!("xor.b64 %d6, %d6, %k{k};\n")).collect();
            let add: String = (0..5).map(|k| format!("@%p{k} add.u64 %d6, %d6, {};\n", 1000 + k)).collect();
            format!(
                "mul.wide.u32 %d6, %i2, 8; add.s64 %d5, %d7, %d6; add.s64 %d8, %d8, %d6;\n{keep}{bits}{loads}{row}{stores}\
                 mov.u64 %d6, 0;\n{sum}{add}st.global.b64 [%d8+{SECOND}], %d6;\n"
            )
        }
        Shape::Called => format!("call ends, (%d1, %d2, %d3);\n{loads}{row}{again}"),
    };
    let function = match shape {
        Shape::Called => format!(
            ".func ends(.reg .b64 %d1, .reg .b64 %d2, .reg .b64 %d3)\n{{\n.reg .{ty} %a<{n}>, %b<{n}>, %r<{n}>;\n{loads}{row}{stores}ret;\n}}\n"
        ),
        _ => String::new(),
    };
    format!(
        ".version 8.8\n.target sm_80\n.address_size 64\n{function}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 o)\n\
        {{\n{regs}ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d3, [o]; mov.u64 %d7, %d1; mov.u64 %d8, %d3;\n\
        mov.u32 %i1, %ctaid.x; mov.u32 %i2, %tid.x; mad.lo.u32 %i1, %i1, 256, %i2; mul.wide.u32 %d4, %i1, {};\n\
        add.s64 %d1, %d1, %d4; add.s64 %d2, %d2, %d4; add.s64 %d3, %d3, %d4;\n{inner}ret;\n}}\n",
        rounds * n * bytes
    )
}

/// Words of the kernel, and how many of them call.
fn words(cubin: &[u8]) -> (Vec<u128>, usize) {
    let file = Cubin::parse(cubin).expect("a cubin");
    let words: Vec<u128> =
        file.code(&file.kernels[0]).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect();
    let calls = words.iter().filter(|w| decode(**w).is_ok_and(|i| i.form().mnemonic == "CALL")).count();
    (words, calls)
}

/// Where buffers lie, and their bytes.
type Buffers = [(u64, Vec<u8>); 3];

/// The operands, and them in memory.
fn buffers(bytes: usize, seed: u64) -> ([Vec<u64>; 2], Buffers) {
    let (a, b) = (numbers(bytes, 77 * seed), numbers(bytes, 1001 * seed));
    let all = [(A, bytes_of(&a, bytes)), (B, bytes_of(&b, bytes)), (OUT, vec![0; SECOND + ELEMENTS * bytes])];
    ([a, b], all)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Assembles a kernel, has its schedule checked, runs it and compares what it leaves; how many calls it has.
fn run(ops: &[&Op], shape: Shape, chip: SmArch, seed: u64) -> usize {
    run_with(ops, shape, chip, seed, |text| text)
}

/// The same of a changed text.
fn run_with(ops: &[&Op], shape: Shape, chip: SmArch, seed: u64, change: impl Fn(String) -> String) -> usize {
    let (bytes, n) = (ops[0].bytes, ops.len());
    let texts: Vec<String> = ops.iter().map(|o| o.text.to_owned()).collect();
    let what = || format!("{chip}, {shape:?}, {n} of {}", ops[0].text);
    let cubin =
        assemble(&change(text(&texts, bytes, shape)), chip.arch()).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let (code, calls) = words(&cubin);
    let found = check_for(&code, chip, Trust::Safe).expect("instructions");
    assert!(found.is_empty(), "{}: {}", what(), found[0]);
    let ([a, b], all) = buffers(bytes, seed);
    let (left, _) = launch(&cubin, "k", &case(&all, THREADS / 256), true).unwrap_or_else(|e| panic!("{}: {e}", what()));
    let rounds = if shape == Shape::Loop { ROUNDS } else { 1 };
    for further in [0, SECOND].into_iter().take(if shape == Shape::Called { 2 } else { 1 }) {
        for k in 0..THREADS * n * rounds {
            let (got, want) = (word(&left[2][further + k * bytes..][..bytes]), (ops[k % n].exact)(a[k], b[k]));
            assert!(
                agrees(bytes, got, want),
                "{}: {} of {:x} and {:x}: {got:x}, not {want:x}",
                what(),
                ops[k % n].text,
                a[k],
                b[k]
            );
        }
    }
    for t in (0..256).filter(|_| shape == Shape::Kept) {
        let kept = (0..KEPT).fold(0, |sum, k| sum ^ word(&all[0].1[8 * t + APART * k..][..8]));
        let want = (0..5).filter(|k| t >> k & 1 == 1).fold(kept, |sum, k| sum + 1000 + k as u64);
        assert_eq!(word(&left[2][SECOND + 8 * t..][..8]), want, "{}: what thread {t} kept", what());
    }
    calls
}

#[test]
fn places_that_share_code_have_the_right_values_and_keep_all_others() {
    let chips = [SmArch::Sm80, SmArch::Sm89, SmArch::Sm90, SmArch::Sm120];
    for (seed, chip) in (1..).zip(chips) {
        for shape in SHAPES {
            for op in &OPS {
                for n in [1, 2, 7, 14] {
                    let calls = run(&vec![op; n], shape, chip, seed);
                    // The function has places of its own.
                    let (copies, own) = match shape {
                        Shape::Called => (2, 1),
                        Shape::Arms => (2, 0),
                        _ => (1, 0),
                    };
                    let places = if n * copies == 1 || shape == Shape::Called && n == 1 { 0 } else { n * copies };
                    // Loops may be unrolled.
                    let more = shape == Shape::Loop && calls >= places;
                    assert!(calls == places + own || more, "{chip} {shape:?} {n} of {}: {calls} calls", op.text);
                }
            }
            for all in [&OPS[..3], &OPS[3..]] {
                let mixed: Vec<&Op> = all.iter().cycle().take(8).collect();
                run(&mixed, shape, chip, seed);
            }
        }
    }
}

/// With few registers, values that are kept are spilled, and where the shared code finds no registers each place has
/// its own.
#[test]
fn few_registers_change_no_value() {
    let mut shared = [0; 2];
    for op in &OPS {
        for registers in [24, 32, 40, 64, 100, 108, 112, 116, 128] {
            let limit = format!(".param .u64 o)\n.maxnreg {registers}\n");
            let calls =
                run_with(&[op; 7], Shape::Kept, SmArch::Sm90, 6, |text| text.replace(".param .u64 o)\n", &limit));
            println!("at most {registers} registers, {}: {calls} calls", op.text);
            shared[usize::from(calls == 0)] += 1;
        }
    }
    assert!(shared[0] > 10 && shared[1] > 10, "{shared:?}");
}

/// In other directions the values are those of kernels with one division each, which has the code in place.
#[test]
fn places_that_share_code_round_in_each_direction_as_one_place_does() {
    for op in &OPS[3..] {
        for rounding in [".rz", ".rm", ".rp"] {
            let op_text = op.text.replace(".rn", rounding);
            let ([..], all) = buffers(8, 3);
            let left = |n: usize| {
                let cubin = assemble(&text(&vec![op_text.clone(); n], 8, Shape::Row), SmArch::Sm90.arch());
                let cubin = cubin.unwrap_or_else(|e| panic!("{op_text}: {e}"));
                assert_eq!(words(&cubin).1, if n == 1 { 0 } else { n }, "{op_text}");
                let (left, _) = launch(&cubin, "k", &case(&all, 8 / n), true).unwrap_or_else(|e| panic!("{e}"));
                left[2][..8 * 256 * 8].to_vec()
            };
            let (one, four) = (left(1), left(4));
            let other = (0..one.len() / 8).find(|k| one[8 * k..][..8] != four[8 * k..][..8]);
            assert_eq!(other, None, "{op_text}: element whose value is another");
        }
    }
}

/// In a row, each from the last one's result, and side by side: in both cases ptxas calls one function.
#[test]
fn kernels_of_many_divisions_are_not_much_longer_than_those_of_ptxas() {
    for (op, bound) in OPS.iter().zip([0.8, 0.82, 0.92, 0.95, 1.25, 0.95]) {
        for n in [1, 2, 7, 14] {
            let from = if op.text.contains("%a") { "%a" } else { "%b" };
            let chain = |k: usize| if k == 0 { op.text.to_owned() } else { op.text.replace(from, "$") };
            for (name, texts) in
                [("side by side", vec![op.text.to_owned(); n]), ("in a row", (0..n).map(chain).collect())]
            {
                let text = text(&texts, op.bytes, Shape::Row);
                let (_, all) = buffers(op.bytes, 9);
                let figures = |cubin: &[u8]| {
                    let (_, stats) = launch(cubin, "k", &case(&all, 1), false).unwrap_or_else(|e| panic!("{e}"));
                    Figures::of(cubin, "k", &stats).0
                };
                let ours = figures(&assemble(&text, Arch { sm: 90, specific: true }).expect("assembles"));
                let theirs = figures(&ptxas(&text, "-O3"));
                println!(
                    "{:<24} {n:>2} {name:<12}: words {} {} ({:.2}), registers {} {}, executed {} {}, cycles {} {}",
                    op.text,
                    ours[0],
                    theirs[0],
                    ours[0] / theirs[0],
                    ours[1],
                    theirs[1],
                    ours[2],
                    theirs[2],
                    ours[3],
                    theirs[3]
                );
                assert!(
                    ours[0] <= bound * theirs[0],
                    "{} {n} {name}: {} instructions, ptxas's code {}",
                    op.text,
                    ours[0],
                    theirs[0]
                );
            }
        }
    }
}
