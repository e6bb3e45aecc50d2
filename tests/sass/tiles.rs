//! Products whose tiles are copied ahead (PIPE): assembled, run on the software multiprocessor in strict mode, and held to sums of doubles.

use crate::machine::{Case, launch};
use crate::nvidia::ptxas;
use doorbell::codegen::{self, OptChoice, Program, Target};
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::emu::sass::Stats;
use doorbell::engine::tensors::words;
use doorbell::isa::ptx::{Buffers, Chip, render};
use doorbell::isa::sass::compile::assemble;
use doorbell::uop::{AxisKind, DType, Op, UOp};
use half::f16;

/// Rows, columns, steps; whether each operand lies by columns.
type Shape = ((i64, i64, i64), (bool, bool));

/// relu(a · b + bias).
fn product(shape: Shape) -> UOp {
    product_of(DType::F16, shape)
}

fn product_of(t: DType, ((m, n, k), turned): Shape) -> UOp {
    let axis = |n: i64, id, kind| UOp::range(UOp::int(n), id, kind);
    let (i, j, l) = (axis(m, 0, AxisKind::Loop), axis(n, 1, AxisKind::Loop), axis(k, 2, AxisKind::Reduce));
    let at = |row: &UOp, column: &UOp, (height, width): (i64, i64), turned: bool| {
        if turned { &(column * height) + row } else { &(row * width) + column }
    };
    let load = |slot, len: i64, at: UOp| UOp::param(slot, t, len as usize).index(&at).load().cast(DType::F32);
    let (a, b) = (load(1, m * k, at(&i, &l, (m, k), turned.0)), load(2, k * n, at(&l, &j, (k, n), turned.1)));
    let sum = (&a * &b).reduce(Op::Add, &[l]);
    let v = &sum + &UOp::param(3, DType::F32, n as usize).index(&j).load();
    let to = UOp::param(0, DType::F32, (m * n) as usize).index(&(&(&i * n) + &j));
    UOp::sink([to.store(&v.max(&v.const_like(0)), &[i, j])])
}

/// For a chip of so many multiprocessors.
fn compiled(ast: &UOp, way: &Way) -> (Program, String) {
    compiled_for("sm_90a", ast, way)
}

fn compiled_for(chip: &str, ast: &UOp, way: &Way) -> (Program, String) {
    let chip = Chip::parse(chip).expect("the chip");
    let own = chip.target();
    let target = Target { compute_units: way.units, box_copies: way.boxes && own.box_copies, ..own };
    let p = codegen::compile(ast, &target, &OptChoice::Heuristic, false).unwrap_or_else(|e| panic!("{e}"));
    let text = render(&p, chip, Buffers::Anywhere).unwrap_or_else(|e| panic!("{e}")).to_string();
    (p, text)
}

/// How products are done: multiprocessors of the chip, whether tiles may come in boxes, and what shows which matrix unit is used.
struct Way {
    units: u32,
    boxes: bool,
    unit: &'static str,
}

/// Those that fill a chip of one multiprocessor are for warpgroups.
const WARPS: Way = Way { units: 132, boxes: false, unit: "ldmatrix" };
const WARPGROUPS: Way = Way { units: 1, boxes: false, unit: "wgmma.mma_async" };
const BOXES: Way = Way { units: 1, boxes: true, unit: "cp.async.bulk.tensor.2d" };

/// Sixteenths from -2 to 2, the same every time.
fn values(len: i64, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % 33 - 16
    };
    (0..len).map(|_| next() as f32 / 8.0).collect()
}

/// The result's bytes after the kernel has run in strict mode, and what that took.
fn run(
    cubin: &[u8],
    p: &Program,
    text: &str,
    (a, b, bias): (&[f32], &[f32], &[f32]),
    results: i64,
) -> (Vec<u8>, Stats) {
    let halves = |v: &[f32]| v.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect::<Vec<u8>>();
    let floats = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let contents = [vec![0xee; 4 * results as usize], halves(a), halves(b), floats(bias)];
    let place = |k: usize| 0x7_0000_0000 + ((k as u64) << 32);
    let buffers: Vec<(u64, Vec<u8>)> = contents.into_iter().enumerate().map(|(k, b)| (place(k), b)).collect();
    let params = parameters(cubin, p, &buffers);
    let dynamic_bytes = if text.contains(".extern .shared") { p.local_bytes as u32 } else { 0 };
    let case = Case { grid: p.global, block: p.local, params, buffers: &buffers, dynamic_bytes };
    let (mut got, stats) = launch(cubin, &p.name, &case, true).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (got.swap_remove(0), stats)
}

/// Addresses of the buffers, and behind them the matrices that boxes are copied of, where the file says.
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
    let ((m, n, k), turned) = shape;
    let (p, text) = compiled(&product(shape), way);
    assert!(text.contains("cp.async") && text.contains(way.unit), "{shape:?} {:?}", p.opts);
    let (a, b, bias) = (values(m * k, 1), values(k * n, 2), values(n, 3));
    let (got, _) = run(&assemble(&text), &p, &text, (&a, &b, &bias), m * n);
    for (at, word) in got.chunks_exact(4).enumerate() {
        let (i, j) = (at as i64 / n, at as i64 % n);
        let left = |l: i64| a[if turned.0 { l * m + i } else { i * k + l } as usize];
        let right = |l: i64| b[if turned.1 { j * k + l } else { l * n + j } as usize];
        let sum: f64 = (0..k).map(|l| f64::from(left(l)) * f64::from(right(l))).sum();
        let want = (sum + f64::from(bias[j as usize])).max(0.0);
        let got = f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{shape:?} row {i} column {j}: {got}, not {want}");
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
    assemble(text, Arch { sm: 90, specific: true }).unwrap_or_else(|e| panic!("{e}\n{text}"))
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

/// How many of the operands come in boxes: rows that are 16 bytes' multiples apart, cut off at edges too.
const BOXED: [(Shape, usize); 7] = [
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
fn tiles_that_come_in_boxes_make_the_same_products_in_both_assemblers_code() {
    for (shape, boxed) in BOXED {
        let (p, text) = compiled(&product(shape), &BOXES);
        assert_eq!(p.tensors.len(), boxed, "{shape:?} {:?}", p.opts);
        // A buffer that begins anywhere is copied by the threads.
        assert!(text.contains("cp.async.bulk") && text.contains("st.shared"), "{shape:?}\n{text}");
        let [a, b] = [holds(shape, &BOXES, ours), holds(shape, &BOXES, theirs)];
        assert!(a == b, "{shape:?}");
    }
}

/// Instructions that our code issues in two rounds of 64 steps of a block of 128 x 128, for as many multiply-adds as an `mma.sync.m16n8k16` does.
fn issued(chip: &str, way: &Way) -> f64 {
    let (m, n) = (128, 128);
    let counts = [256, 384].map(|k| {
        let (p, text) = compiled_for(chip, &product(((m, n, k), (false, false))), way);
        assert!(text.contains(way.unit), "{:?}", p.opts);
        let cubin = assemble(&text, Arch::parse(chip).expect("a chip")).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let stats = run(&cubin, &p, &text, (&values(m * k, 1), &values(k * n, 2), &values(n, 3)), m * n).1;
        stats.instructions as f64
    });
    (counts[1] - counts[0]) / (128.0 * 128.0 * 128.0 / (16.0 * 8.0 * 16.0))
}

#[test]
fn the_unit_of_warpgroups_takes_fewer_instructions_than_that_of_warps_and_fewest_with_boxes() {
    let warps = issued("sm_90", &Way { units: 1, ..WARPS });
    let [warpgroups, boxes] = [WARPGROUPS, BOXES].map(|way| issued("sm_90a", &way));
    println!(
        "instructions for each m16n8k16: {boxes:.2} with wgmma and TMA, {warpgroups:.2} with wgmma, {warps:.2} with mma.sync"
    );
    assert!(warpgroups <= 0.9 * warps, "{warpgroups} and {warps}");
    assert!(boxes <= 0.75 * warpgroups, "{boxes} and {warpgroups}");
}
