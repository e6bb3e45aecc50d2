//! Products whose tiles are copied ahead (PIPE): assembled, run on the software multiprocessor in strict mode, and held
//! to sums of doubles.

use crate::machine::{Case, launch};
use crate::nvidia::{ptxas, ptxas_for};
use doorbell::codegen::{self, OptChoice, Program, Target};
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::emu::sass::Stats;
use doorbell::isa::nvidia::words;
use doorbell::isa::ptx::{Buffers, Chip, render};
use doorbell::isa::sass::compile::assemble;
use doorbell::uop::{AxisKind, ConstVal, DType, Op, Scalar, UOp, cast_const, from_bits, to_bits};

/// Rows, columns, steps; whether each operand is stored by columns.
type Shape = ((i64, i64, i64), (bool, bool));

/// What sums of products of such factors are.
fn sums(t: Scalar) -> Scalar {
    if t.is_float() { Scalar::F32 } else { Scalar::I32 }
}

/// relu(a · b + bias).
fn product(t: Scalar, ((m, n, k), turned): Shape) -> UOp {
    let (t, sum_type) = (DType::of(t), DType::of(sums(t)));
    let axis = |n: i64, id, kind| UOp::range(UOp::int(n), id, kind);
    let (i, j, l) = (axis(m, 0, AxisKind::Loop), axis(n, 1, AxisKind::Loop), axis(k, 2, AxisKind::Reduce));
    let at = |row: &UOp, column: &UOp, (height, width): (i64, i64), turned: bool| {
        if turned { &(column * height) + row } else { &(row * width) + column }
    };
    let load = |slot, len: i64, at: UOp| UOp::param(slot, t, len as usize).index(&at).load().cast(sum_type);
    let (a, b) = (load(1, m * k, at(&i, &l, (m, k), turned.0)), load(2, k * n, at(&l, &j, (k, n), turned.1)));
    let sum = (&a * &b).reduce(Op::Add, &[l]);
    let v = &sum + &UOp::param(3, sum_type, n as usize).index(&j).load();
    let to = UOp::param(0, sum_type, (m * n) as usize).index(&(&(&i * n) + &j));
    UOp::sink([to.store(&v.max(&v.const_like(0)), &[i, j])])
}

/// For a chip of so many multiprocessors.
fn compiled(ast: &UOp, way: &Way) -> (Program, String) {
    compiled_for("sm_90a", ast, way)
}

fn compiled_for(chip: &str, ast: &UOp, way: &Way) -> (Program, String) {
    let chip = Chip::parse(chip).expect("the chip");
    let own = chip.target();
    let tensor_cores = chip.tensor_cores(true);
    let target = Target { compute_units: way.units, tma_copies: way.tma && own.tma_copies, tensor_cores, ..own };
    let p = codegen::compile(ast, &target, &OptChoice::Heuristic, false).unwrap_or_else(|e| panic!("{e}"));
    let text = render(&p, chip, Buffers::Anywhere).unwrap_or_else(|e| panic!("{e}")).to_string();
    (p, text)
}

/// How products are done: multiprocessors of the chip, whether tiles may be copied by TMA, and what shows which matrix
/// unit is used.
struct Way {
    units: u32,
    tma: bool,
    unit: &'static str,
}

/// Those that fill a chip of one multiprocessor are for warpgroups.
const WARPS: Way = Way { units: 132, tma: false, unit: "ldmatrix" };
const WARPGROUPS: Way = Way { units: 1, tma: false, unit: "wgmma.mma_async" };
const TMA: Way = Way { units: 1, tma: true, unit: "cp.async.bulk.tensor.2d" };

/// Numbers as they are in memory.
struct Numbers {
    values: Vec<f64>,
    bytes: Vec<u8>,
}

/// Eighths from -2 to 2 as such a type has them, or whole numbers; the same every time.
fn numbers(t: Scalar, len: i64, seed: u64) -> Numbers {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let n = (state >> 33) as i64 % 33 - if t.is_unsigned() { 0 } else { 16 };
        let value = if t.is_float() { ConstVal::Float(n as f64 / 8.0) } else { ConstVal::Int(n.into()) };
        to_bits(cast_const(value, t), t)
    };
    let all: Vec<u64> = (0..len).map(|_| next()).collect();
    Numbers {
        values: all.iter().map(|bits| from_bits(*bits, t).as_f64()).collect(),
        bytes: all.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(t.size_bytes())).collect(),
    }
}

/// The result's bytes after the kernel has run in strict mode, and what that took.
fn run(
    cubin: &[u8],
    p: &Program,
    text: &str,
    (a, b, bias): (&Numbers, &Numbers, &Numbers),
    results: i64,
) -> (Vec<u8>, Stats) {
    let contents = [vec![0xee; 4 * results as usize], a.bytes.clone(), b.bytes.clone(), bias.bytes.clone()];
    let place = |k: usize| 0x7_0000_0000 + ((k as u64) << 32);
    let buffers: Vec<(u64, Vec<u8>)> = contents.into_iter().enumerate().map(|(k, b)| (place(k), b)).collect();
    let params = parameters(cubin, p, &buffers);
    let dynamic_bytes = if text.contains(".extern .shared") { p.local_bytes as u32 } else { 0 };
    let case = Case { grid: p.global, block: p.local, params, buffers: &buffers, dynamic_bytes };
    let (mut got, stats) = launch(cubin, &p.name, &case, true).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (got.swap_remove(0), stats)
}

/// Addresses of the buffers, followed by the matrices that TMA tiles are copied of, where the file has them.
fn parameters(cubin: &[u8], p: &Program, buffers: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let file = Cubin::parse(cubin).unwrap_or_else(|e| panic!("{e}"));
    let places = &file.kernel(&p.name).expect("the kernel").params;
    let maps = p.tensors.iter().map(|t| {
        let words = words(t, p.params[t.param].dtype.scalar).unwrap_or_else(|e| panic!("{e}"));
        [buffers[t.param].0].into_iter().chain(words).flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    });
    let all = buffers.iter().map(|b| b.0.to_le_bytes().to_vec()).chain(maps);
    let mut params = vec![];
    for (place, bytes) in places.iter().zip(all) {
        assert_eq!(place.len_bytes as usize, bytes.len());
        // The bank begins at a multiple of 256, parameters at 0x210 of it.
        assert!(bytes.len() == 8 || (place.offset + 0x210).is_multiple_of(64), "{place:?}");
        params.resize(place.offset as usize, 0);
        params.extend(bytes);
    }
    params
}

fn holds(shape: Shape, way: &Way, assemble: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    holds_for(Scalar::F16, shape, way, assemble)
}

fn holds_for(t: Scalar, shape: Shape, way: &Way, assemble: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    holds_on("sm_90a", t, shape, way, assemble)
}

fn holds_on(chip: &str, t: Scalar, shape: Shape, way: &Way, assemble: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
    let ((m, n, k), turned) = shape;
    let (p, text) = compiled_for(chip, &product(t, shape), way);
    // Bytes that lie along lines are turned by stores.
    let copied = t.size_bytes() == 1 && (turned.0 || !turned.1) || text.contains("cp.async");
    assert!(copied && text.contains(way.unit), "{t:?} {shape:?} {:?}", p.opts);
    let (a, b, bias) = (numbers(t, m * k, 1), numbers(t, k * n, 2), numbers(sums(t), n, 3));
    let (got, _) = run(&assemble(&text), &p, &text, (&a, &b, &bias), m * n);
    for (at, word) in got.chunks_exact(4).enumerate() {
        let (i, j) = (at as i64 / n, at as i64 % n);
        let left = |l: i64| a.values[if turned.0 { l * m + i } else { i * k + l } as usize];
        let right = |l: i64| b.values[if turned.1 { j * k + l } else { l * n + j } as usize];
        let sum: f64 = (0..k).map(|l| left(l) * right(l)).sum();
        let want = (sum + bias.values[j as usize]).max(0.0);
        let got = from_bits(u32::from_le_bytes([word[0], word[1], word[2], word[3]]).into(), sums(t)).as_f64();
        // Those of whole numbers are exact.
        let bound = if t.is_float() { 1e-5 * want.abs().max(1.0) } else { 0.0 };
        assert!((got - want).abs() <= bound, "{t:?} {shape:?} row {i} column {j}: {got}, not {want}");
    }
    got
}

const SHAPES: [Shape; 5] = [
    ((64, 64, 64), (false, false)),
    ((64, 64, 128), (true, true)),
    ((128, 64, 64), (false, true)),
    // Edges that pieces of 16 bytes end at, and of 8.
    ((72, 56, 104), (false, false)),
    ((60, 52, 100), (true, false)),
];

/// Those that fill a chip of one multiprocessor, so that warpgroups do them.
const LARGE: [Shape; 5] = [
    ((256, 128, 128), (false, false)),
    ((128, 128, 320), (true, true)),
    ((64, 64, 256), (false, true)),
    ((120, 120, 190), (true, false)),
    ((60, 52, 132), (false, false)),
];

fn ours(text: &str) -> Vec<u8> {
    ours_for("sm_90a", text)
}

fn ours_for(chip: &str, text: &str) -> Vec<u8> {
    assemble(text, Arch::parse(chip).expect("a chip")).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn theirs(text: &str) -> Vec<u8> {
    ptxas(text, "-O3")
}

#[test]
fn products_made_by_nvidias_assembler_are_those_of_doubles() {
    SHAPES.into_iter().for_each(|s| drop(holds(s, &WARPS, theirs)));
}

#[test]
fn products_made_by_our_assembler_are_those_of_doubles() {
    SHAPES.into_iter().for_each(|s| drop(holds(s, &WARPS, ours)));
}

#[test]
fn products_of_warpgroups_made_by_nvidias_assembler_are_those_of_doubles() {
    LARGE.into_iter().for_each(|s| drop(holds(s, &WARPGROUPS, theirs)));
}

#[test]
fn products_of_warpgroups_made_by_our_assembler_are_those_of_doubles() {
    LARGE.into_iter().for_each(|s| drop(holds(s, &WARPGROUPS, ours)));
}

/// How many of the operands are copied by TMA: rows that are multiples of 16 bytes apart, cut off at edges too.
const TMA_SHAPES: [(Shape, usize); 7] = [
    (((256, 128, 192), (false, false)), 2),
    (((128, 128, 320), (true, true)), 2),
    (((64, 64, 256), (false, true)), 2),
    // More rounds than buffers, three times.
    (((64, 64, 832), (true, false)), 2),
    // Edges of rows, columns and steps.
    (((120, 56, 184), (false, false)), 2),
    (((120, 120, 184), (true, true)), 2),
    // Rows of b are 120 bytes apart: threads copy them.
    (((64, 60, 192), (false, false)), 1),
];

#[test]
fn tiles_that_come_by_tma_make_the_same_products_in_both_assemblers_code() {
    for (shape, maps) in TMA_SHAPES {
        let (p, text) = compiled(&product(Scalar::F16, shape), &TMA);
        assert_eq!(p.tensors.len(), maps, "{shape:?} {:?}", p.opts);
        // A buffer that begins anywhere is copied by the threads.
        assert!(text.contains("cp.async.bulk") && text.contains("st.shared"), "{shape:?}\n{text}");
        let [a, b] = [holds(shape, &TMA, ours), holds(shape, &TMA, theirs)];
        assert!(a == b, "{shape:?}");
    }
}

/// Products of bytes: edges that pieces of 16 bytes end at, of 4, and of nothing; the last is transposed during the
/// copy.
const OF_BYTES: [Shape; 4] = [
    ((128, 128, 384), (false, true)),
    ((56, 120, 400), (false, true)),
    ((60, 52, 260), (false, true)),
    ((64, 64, 256), (true, false)),
];

#[test]
fn products_of_bytes_are_exact_in_both_assemblers_code() {
    for (n, shape) in OF_BYTES.into_iter().enumerate() {
        let t = if n % 2 == 0 { Scalar::I8 } else { Scalar::U8 };
        for way in [&WARPGROUPS, &TMA].into_iter().filter(|w| !w.tma || n < 2) {
            let [a, b] = [holds_for(t, shape, way, ours), holds_for(t, shape, way, theirs)];
            assert!(a == b, "{t:?} {shape:?}");
        }
    }
}

#[test]
fn products_of_fp8_are_those_of_doubles_in_both_assemblers_code() {
    let way = &Way { unit: "m16n8k32.row.col.f32.e", ..WARPS };
    for (chip, t) in
        [("sm_89", Scalar::F8E4M3), ("sm_90a", Scalar::F8E4M3), ("sm_90a", Scalar::F8E5M2), ("sm_120", Scalar::F8E5M2)]
    {
        for shape in [((64, 64, 128), (false, true)), ((40, 24, 96), (false, false))] {
            let a = holds_on(chip, t, shape, way, |text| ours_for(chip, text));
            let b = holds_on(chip, t, shape, way, |text| ptxas_for(text, chip, "-O3"));
            assert!(a == b, "{chip} {t:?} {shape:?}");
        }
    }
}

#[test]
fn products_of_tf32_are_those_of_doubles_in_both_assemblers_code() {
    let warps = &Way { unit: "m16n8k8.row.col.f32.tf32", ..WARPS };
    for (chip, shape, way) in [
        ("sm_86", ((64, 64, 64), (false, true)), warps),
        ("sm_90a", ((56, 60, 60), (false, false)), warps),
        ("sm_120", ((64, 64, 64), (true, false)), warps),
        ("sm_90a", ((128, 128, 96), (false, true)), &WARPGROUPS),
        ("sm_90a", ((60, 52, 68), (true, false)), &WARPGROUPS),
        ("sm_90a", ((120, 120, 100), (false, true)), &TMA),
    ] {
        let a = holds_on(chip, Scalar::F32, shape, way, |text| ours_for(chip, text));
        let b = holds_on(chip, Scalar::F32, shape, way, |text| ptxas_for(text, chip, "-O3"));
        assert!(a == b, "{chip} {shape:?}");
    }
}

/// Instructions that our code issues in two rounds of 64 steps of a block of 128 x 128, for as many multiply-adds as an
/// `mma.sync.m16n8k16` does.
fn issued(chip: &str, way: &Way) -> f64 {
    let (t, m, n) = (Scalar::F16, 128, 128);
    let counts = [256, 384].map(|k| {
        let (p, text) = compiled_for(chip, &product(t, ((m, n, k), (false, false))), way);
        assert!(text.contains(way.unit), "{:?}", p.opts);
        let cubin = ours_for(chip, &text);
        let of = (&numbers(t, m * k, 1), &numbers(t, k * n, 2), &numbers(sums(t), n, 3));
        let stats = run(&cubin, &p, &text, of, m * n).1;
        stats.instructions as f64
    });
    (counts[1] - counts[0]) / (128.0 * 128.0 * 128.0 / (16.0 * 8.0 * 16.0))
}

#[test]
fn the_unit_of_warpgroups_takes_fewer_instructions_than_that_of_warps_and_fewest_with_tma() {
    let warps = issued("sm_90", &Way { units: 1, ..WARPS });
    let [warpgroups, tma] = [WARPGROUPS, TMA].map(|way| issued("sm_90a", &way));
    println!(
        "instructions for each m16n8k16: {tma:.2} with wgmma and TMA, {warpgroups:.2} with wgmma, {warps:.2} with mma.sync"
    );
    assert!(warpgroups <= 0.9 * warps, "{warpgroups} and {warps}");
    assert!(tma <= 0.75 * warpgroups, "{tma} and {warpgroups}");
}
