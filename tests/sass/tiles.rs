//! Products whose tiles are copied ahead (PIPE): assembled, run on the software multiprocessor in strict mode, and held to sums of doubles.

use crate::machine::{Case, launch};
use crate::nvidia::ptxas;
use doorbell::codegen::{self, OptChoice, Program};
use doorbell::elf::cubin::Arch;
use doorbell::isa::ptx::{Buffers, Chip, render};
use doorbell::isa::sass::compile::assemble;
use doorbell::uop::{AxisKind, DType, Op, UOp};
use half::f16;

/// Rows, columns, steps; whether each operand lies by columns.
type Shape = ((i64, i64, i64), (bool, bool));

/// relu(a · b + bias).
fn product(((m, n, k), turned): Shape) -> UOp {
    let axis = |n: i64, id, kind| UOp::range(UOp::int(n), id, kind);
    let (i, j, l) = (axis(m, 0, AxisKind::Loop), axis(n, 1, AxisKind::Loop), axis(k, 2, AxisKind::Reduce));
    let at = |row: &UOp, column: &UOp, (height, width): (i64, i64), turned: bool| {
        if turned { &(column * height) + row } else { &(row * width) + column }
    };
    let load = |slot, len: i64, at: UOp| UOp::param(slot, DType::F16, len as usize).index(&at).load().cast(DType::F32);
    let (a, b) = (load(1, m * k, at(&i, &l, (m, k), turned.0)), load(2, k * n, at(&l, &j, (k, n), turned.1)));
    let sum = (&a * &b).reduce(Op::Add, &[l]);
    let v = &sum + &UOp::param(3, DType::F32, n as usize).index(&j).load();
    let to = UOp::param(0, DType::F32, (m * n) as usize).index(&(&(&i * n) + &j));
    UOp::sink([to.store(&v.max(&v.const_like(0)), &[i, j])])
}

fn compiled(ast: &UOp) -> (Program, String) {
    let chip = Chip::parse("sm_90a").expect("the chip");
    let p = codegen::compile(ast, &chip.target(), &OptChoice::Heuristic, false).unwrap_or_else(|e| panic!("{e}"));
    let text = render(&p, chip, Buffers::Anywhere).unwrap_or_else(|e| panic!("{e}")).to_string();
    (p, text)
}

/// Sixteenths from -2 to 2, the same every time.
fn values(len: i64, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % 33 - 16
    };
    (0..len).map(|_| next() as f32 / 8.0).collect()
}

/// The result's bytes after the kernel has run in strict mode.
fn run(cubin: &[u8], p: &Program, text: &str, (a, b, bias): (&[f32], &[f32], &[f32]), results: i64) -> Vec<u8> {
    let halves = |v: &[f32]| v.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect::<Vec<u8>>();
    let floats = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let contents = [vec![0xee; 4 * results as usize], halves(a), halves(b), floats(bias)];
    let place = |k: usize| 0x7_0000_0000 + ((k as u64) << 32);
    let buffers: Vec<(u64, Vec<u8>)> = contents.into_iter().enumerate().map(|(k, b)| (place(k), b)).collect();
    let params = buffers.iter().flat_map(|b| b.0.to_le_bytes()).collect();
    let dynamic_bytes = if text.contains(".extern .shared") { p.local_bytes as u32 } else { 0 };
    let case = Case { grid: p.global, block: p.local, params, buffers: &buffers, dynamic_bytes };
    let (mut got, _) = launch(cubin, &p.name, &case, true).unwrap_or_else(|e| panic!("{e}\n{text}"));
    got.swap_remove(0)
}

fn holds(shape: Shape, assemble: impl Fn(&str) -> Vec<u8>) {
    let ((m, n, k), turned) = shape;
    let (p, text) = compiled(&product(shape));
    assert!(text.contains("cp.async") && text.contains("ldmatrix"), "{shape:?} {:?}", p.opts);
    let (a, b, bias) = (values(m * k, 1), values(k * n, 2), values(n, 3));
    let got = run(&assemble(&text), &p, &text, (&a, &b, &bias), m * n);
    for (at, word) in got.chunks_exact(4).enumerate() {
        let (i, j) = (at as i64 / n, at as i64 % n);
        let left = |l: i64| a[if turned.0 { l * m + i } else { i * k + l } as usize];
        let right = |l: i64| b[if turned.1 { j * k + l } else { l * n + j } as usize];
        let sum: f64 = (0..k).map(|l| f64::from(left(l)) * f64::from(right(l))).sum();
        let want = (sum + f64::from(bias[j as usize])).max(0.0);
        let got = f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{shape:?} row {i} column {j}: {got}, not {want}");
    }
}

const SHAPES: [Shape; 5] = [
    ((64, 64, 64), (false, false)),
    ((64, 64, 128), (true, true)),
    ((128, 64, 64), (false, true)),
    // Edges that pieces of 16 bytes end at, and of 8.
    ((72, 56, 104), (false, false)),
    ((60, 52, 100), (true, false)),
];

#[test]
fn products_made_by_nvidias_assembler_are_those_of_doubles() {
    SHAPES.into_iter().for_each(|s| holds(s, |text| ptxas(text, "-O3")));
}

#[test]
fn products_made_by_our_assembler_are_those_of_doubles() {
    let ours = |text: &str| assemble(text, Arch { sm: 90, specific: true }).unwrap_or_else(|e| panic!("{e}\n{text}"));
    SHAPES.into_iter().for_each(|s| holds(s, ours));
}
