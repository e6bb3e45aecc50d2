//! Kernels compiled and compared with the interpreter of kernel graphs.

use super::*;
use crate::uop::{AxisKind, DType};

fn target() -> Target {
    Target {
        name: "test",
        vector_bytes: 64,
        vector_regs: 32,
        threads: 1,
        index64: true,
        local_bytes: 1 << 20,
        has_grid: false,
        cache_bytes: 1 << 20,
    }
}

fn out(n: i64, id: u32) -> UOp {
    UOp::range(n, id, AxisKind::Loop)
}
fn red(n: i64, id: u32) -> UOp {
    UOp::range(n, id, AxisKind::Reduce)
}
fn f32p(slot: u32, len: usize) -> UOp {
    UOp::param(slot, DType::F32, len)
}

fn add(n: i64) -> UOp {
    let r = out(n, 0);
    let v = &f32p(1, n as usize).index(&r).load() + &f32p(2, n as usize).index(&r).load();
    UOp::sink([f32p(0, n as usize).index(&r).store(&v, &[r])])
}

fn matmul(m: i64, n: i64, k: i64) -> UOp {
    let (i, j, l) = (out(m, 0), out(n, 1), red(k, 2));
    let a = f32p(1, (m * k) as usize).index(&(&(&i * k) + &l)).load();
    let b = f32p(2, (k * n) as usize).index(&(&(&l * n) + &j)).load();
    let s = (&a * &b).reduce(Op::Add, &[l]);
    UOp::sink([f32p(0, (m * n) as usize).index(&(&(&i * n) + &j)).store(&s, &[i, j])])
}

fn softmax(m: i64, n: i64) -> UOp {
    let (i, j, l) = (out(m, 0), out(n, 1), red(n, 2));
    let x = |c: &UOp| f32p(1, (m * n) as usize).index(&(&(&i * n) + c)).load();
    let max = x(&l).reduce(Op::Max, &[l.clone()]);
    let e = |c: &UOp| UOp::alu(Op::Exp2, [x(c).binary(Op::Sub, &max)]);
    let sum = e(&l).reduce(Op::Add, &[l.clone()]);
    let v = e(&j).binary(Op::FDiv, &sum);
    UOp::sink([f32p(0, (m * n) as usize).index(&(&(&i * n) + &j)).store(&v, &[i, j])])
}

#[test]
fn plain_loops_of_a_softmax_are_three_in_a_row_loop() {
    for k in [add(10), matmul(4, 5, 6), softmax(3, 7)] {
        let p = compile(&k, &target(), &OptChoice::None, false).unwrap();
        check::verify(&p.uops).unwrap();
    }
}
