//! Compiled kernel graphs under opts, as PTX.

use super::machine::{List, check, rendered};
use crate::codegen_agree::{buffers, vars};
use crate::codegen_kernels::{kernels, matmul, row_sum};
use doorbell::codegen::{self, OptChoice, Program};
use doorbell::isa::ptx::{Buffers, CHIPS, Chip};
use doorbell::uop::{AxisKind, DType, Op, RangeArg, UOp};

/// The kernel compiled for a chip.
pub fn compiled(ast: &UOp, chip: &str, opts: &str) -> Program {
    let target = Chip::parse(chip).expect("a chip's name").target();
    let choice = match opts {
        "heuristic" => OptChoice::Heuristic,
        "" => OptChoice::None,
        list => OptChoice::Given(list.split(' ').map(|o| o.parse().unwrap()).collect()),
    };
    codegen::compile(ast, &target, &choice, false).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn kernels_agree_with_the_interpreter_under_heuristic_and_no_opts() {
    for (name, ast) in kernels() {
        for opts in ["", "heuristic"] {
            let p = compiled(&ast, "sm_90a", opts);
            for value in [5, i64::MAX] {
                let named = vars(&ast, value);
                let list: Vec<(&str, i64)> = named.iter().map(|(n, v)| (n.as_str(), *v)).collect();
                check(&p, &[buffers(&ast, 1), buffers(&ast, 2)], &list, 1e-5);
            }
            assert!(!name.is_empty());
        }
    }
}

/// A product of half types, summed in f32.
pub fn half_matmul(t: DType, (m, n, k): (i64, i64, i64)) -> UOp {
    let range = |size: i64, id: u32, kind: AxisKind| {
        UOp::new(Op::Range, DType::INDEX, [UOp::int(size)], doorbell::uop::Arg::Range(RangeArg { id, sub: 0, kind }))
    };
    let (i, j, l) = (range(m, 0, AxisKind::Loop), range(n, 1, AxisKind::Loop), range(k, 2, AxisKind::Reduce));
    let a = UOp::param(1, t, (m * k) as usize).index(&(&(&i * k) + &l)).load().cast(DType::F32);
    let b = UOp::param(2, t, (k * n) as usize).index(&(&(&l * n) + &j)).load().cast(DType::F32);
    let s = (&a * &b).reduce(Op::Add, &[l]);
    UOp::sink([UOp::param(0, DType::F32, (m * n) as usize).index(&(&(&i * n) + &j)).store(&s, &[i, j])])
}

#[test]
fn products_of_half_types_go_through_mma() {
    for t in [DType::F16, DType::BF16] {
        for (size, opts) in [
            ((18, 14, 20), "TC(0)"),
            ((32, 64, 32), "TC(0) UPCAST(0,2) UPCAST(0,2)"),
            ((32, 64, 32), "TC(0) GROUP(3,2)"),
            ((64, 64, 64), "heuristic"),
        ] {
            let ast = half_matmul(t, size);
            let p = compiled(&ast, "sm_90a", opts);
            assert!(rendered(&p, "sm_90a", Buffers::Anywhere).0.contains("mma.sync.aligned.m16n8k16"), "{opts}");
            check(&p, &[buffers(&ast, 1), buffers(&ast, 2)], &[], 1e-5);
        }
    }
}

#[test]
fn opts_for_blocks_and_shared_memory_agree() {
    let cases = [
        (row_sum(3, 64), "GROUP(1,16)"),
        (row_sum(2, 96), "GROUP(1,32) UNROLL(2,3)"),
        (row_sum(2, 256), "GROUP(1,128)"),
        (row_sum(6, 256), "LOCAL(0,2) GROUP(2,64)"),
        (row_sum(2, 96), "GROUP(1,48)"),
        (matmul(8, 16, 12), "LOCAL(0,4) LOCAL(1,8) TILE(4,4) STAGE(1,5) STAGE(2,5)"),
        (matmul(16, 16, 8), "UPCAST(0,2) UPCAST(1,2) LOCAL(0,4) LOCAL(1,4) TILE(4,4) STAGE(1,5) STAGE(2,5)"),
        (matmul(4, 32, 8), "VECTORIZE(1,4) LOCAL(0,4) LOCAL(0,8) TILE(2,4) STAGE(2,3)"),
    ];
    for (ast, opts) in cases {
        let p = compiled(&ast, "sm_75", opts);
        check(&p, &[buffers(&ast, 1), buffers(&ast, 2)], &[], 1e-5);
    }
}

/// Each thread leaves a number in a scratch area of `len` elements and takes it back.
fn through_area(len: usize) -> Program {
    const THREADS: u32 = 32;
    let size = UOp::constant(DType::I32, i64::from(THREADS));
    let lidx = UOp::new(Op::Special, DType::I32, [size], doorbell::uop::Arg::Str("lidx0".into()));
    let value = UOp::param(1, DType::F32, THREADS as usize).index(&lidx).load();
    let area = UOp::local(0, DType::F32, len);
    let kept = area.index(&lidx).store(&value, &[]);
    let back = area.index(&lidx).load();
    let mut list = List::default();
    list.add(&kept);
    list.add(&UOp::param(0, DType::F32, THREADS as usize).index(&lidx).store(&back, &[]));
    Program { local_bytes: 4 * len, ..list.program("through_area", THREADS) }
}

#[test]
fn more_than_48_kib_of_shared_memory_come_with_the_launch() {
    for (len, declared) in
        [(1 << 10, ".shared .align 16 .b8 through_area_shared[4096];"), (15_000 / 16 * 16, ".extern .shared")]
    {
        let p = through_area(len);
        let text = rendered(&p, "sm_90a", Buffers::Anywhere).0;
        assert!(text.contains(declared), "{text}");
        check(&p, &[vec![vec![0; 128], (0..128).collect()]], &[], 0.0);
        super::ptxas::assemble_at("-O1", "sm_90a", &text).unwrap();
    }
    let e = doorbell::isa::ptx::render(&through_area(1 << 15), Chip::parse("sm_86").unwrap(), Buffers::Anywhere)
        .unwrap_err();
    assert_eq!(e.to_string(), "through_area: 131072 bytes of shared memory, a block on sm_86 has 101376");
}

#[test]
fn the_same_kernel_has_the_same_text() {
    let ast = matmul(64, 64, 64);
    let text = || rendered(&compiled(&ast, "sm_80", "heuristic"), "sm_80", Buffers::Anywhere).0;
    assert_eq!(text(), text());
}

#[test]
fn aligned_buffers_need_one_body_only() {
    let p = compiled(&crate::codegen_kernels::add(1 << 12), "sm_90a", "heuristic");
    let count = |b: Buffers| rendered(&p, "sm_90a", b).0.matches("ret;").count();
    assert_eq!((count(Buffers::Anywhere), count(Buffers::Aligned)), (2, 1));
}

#[test]
fn a_matrix_unit_is_refused_where_there_is_none() {
    let p = compiled(&half_matmul(DType::F16, (16, 16, 16)), "sm_80", "TC(0)");
    let e = doorbell::isa::ptx::render(&p, &CHIPS[0], Buffers::Anywhere).unwrap_err();
    assert!(e.to_string().contains("on sm_75: the chip has no such matrix unit"), "{e}");
}
