//! Programs of a GPU-shaped target (grid, workgroups, barriers), run thread by thread in the interpreter, against the
//! kernel graph.

use doorbell::codegen::target::Grid;
use doorbell::codegen::{self, Opt, OptChoice, Target, units};
use doorbell::engine::interp::{InterpError, Vars, run_program};
use doorbell::uop::{Arg, AxisKind, DType, Op, RangeArg, Scalar, UOp};

mod codegen_agree;
mod codegen_kernels;
use codegen_agree::*;
use codegen_kernels::*;

fn gpu() -> Target {
    Target::gpu("gpu", Grid::amd(32))
}

fn opts(text: &str) -> OptChoice {
    OptChoice::Given(text.split(' ').filter(|t| !t.is_empty()).map(|o| o.parse().unwrap()).collect())
}

#[test]
fn output_loops_become_workgroups_and_agree() {
    for (name, k) in kernels() {
        assert_eq!(agrees(&k, &gpu(), &OptChoice::None), Ok(true), "{name}");
    }
}

#[test]
fn named_opts_for_workgroups_apply_and_agree() {
    let cases = [
        ("add in workgroups", add(96), "LOCAL(0,32)"),
        ("add padded to a workgroup", add(37), "PADTO(0,32) LOCAL(0,32)"),
        ("add in vectors", add(256), "VECTORIZE(0,4) LOCAL(0,32)"),
        ("add upcast with a rest", add(101), "UPCAST(0,4)"),
        ("two axes of threads", add_2d(8, 24), "LOCAL(0,4) LOCAL(1,8)"),
        ("row sum by a group", row_sum(3, 64), "GROUP(1,16)"),
        ("row sum by a large group", row_sum(2, 96), "GROUP(1,32) UNROLL(2,3)"),
        ("row sum by groups side by side", row_sum(8, 24), "LOCAL(0,4) GROUP(2,8)"),
        ("row sum by waves of a group", row_sum(3, 256), "GROUP(1,128)"),
        ("row sum by waves of a group, rows side by side", row_sum(6, 256), "LOCAL(0,2) GROUP(2,64)"),
        ("row sum by three parts of waves", row_sum(3, 96), "GROUP(1,48)"),
        ("row sum by a group of no power of two", row_sum(3, 36), "GROUP(1,9)"),
        ("row sum of copies by waves of a group", row_sum(8, 128), "UPCAST(0,2) LOCAL(0,2) GROUP(2,64)"),
        ("columns in vectors by waves of a group", column_sum(128, 8), "VECTORIZE(0,4) GROUP(1,64)"),
        ("softmax by waves of groups", softmax(3, 256), "GROUP(2,128) GROUP(3,128) LOCAL(1,128)"),
        ("softmax by groups of different size", softmax(3, 256), "GROUP(2,64) GROUP(3,16) LOCAL(1,128)"),
        ("whether any of a row is large, by waves", any_large(3, 128), "GROUP(1,64)"),
        ("a group of all of a matrix, two axes", gated_sum(4, 64), "GROUP(0,4) GROUP(1,64)"),
        ("row sum, padded", row_sum(3, 35), "PADTO(1,16) GROUP(1,16)"),
        ("row sum of copies", row_sum(8, 32), "UPCAST(0,2) LOCAL(0,2) GROUP(2,8)"),
        ("row sum in vectors by a group", row_sum(3, 64), "VECTORIZE(1,4) GROUP(1,8)"),
        ("all of a matrix", gated_sum(4, 16), "GROUP(1,8)"),
        ("softmax by groups", softmax(3, 16), "GROUP(2,8) GROUP(3,8) LOCAL(1,8)"),
        ("nested by a group", nested(4, 6, 8), "GROUP(2,4)"),
        ("nested, inner by a group", nested(4, 6, 8), "GROUP(3,4)"),
        ("nested, outer by a group", nested(4, 6, 8), "GROUP(1,3)"),
        ("matmul", matmul(8, 16, 12), "LOCAL(0,4) LOCAL(1,8) UPCAST(0,2) UPCAST(0,2) UNROLL(2,4)"),
        ("matmul by groups", matmul(4, 8, 32), "LOCAL(1,4) GROUP(3,8) UPCAST(0,2)"),
        ("conv", conv(2, 4, 8), "LOCAL(1,16) UPCAST(0,4)"),
        ("more than three axes of threads", matmul(4, 4, 16), "LOCAL(0,2) LOCAL(0,2) LOCAL(0,2) GROUP(4,4)"),
    ];
    for (name, k, list) in cases {
        assert_eq!(agrees(&k, &gpu(), &opts(list)), Ok(true), "{name}: {list}");
    }
}

#[test]
fn random_opts_for_workgroups_agree_with_the_kernel_graph() {
    let mut state = 88172645463325252u64;
    let mut next = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut applied = 0;
    for round in 0..4 {
        for (name, k) in kernels() {
            let mut list: Vec<Opt> = vec![];
            for _ in 0..1 + next(5) {
                let axis = next(4) as usize;
                let opt = match next(9) {
                    0 => Opt::Upcast { axis, amount: 2 + next(3) as usize },
                    1 => Opt::Unroll { axis, amount: 2 + next(3) as usize },
                    2 => Opt::Vectorize { axis, amount: 2 << next(2) },
                    3 => Opt::PadTo { axis, amount: 2 << next(3) },
                    4 | 5 => Opt::Local { axis, amount: 2 << next(3) },
                    6 | 7 => Opt::Group { axis, amount: 2 + next(7) as usize },
                    _ => Opt::Tile { axis, amount: 2 + next(5) as usize },
                };
                list.push(opt);
                match agrees(&k, &gpu(), &OptChoice::Given(list.clone())) {
                    Ok(true) => applied += 1,
                    Ok(false) => drop(list.pop()),
                    Err(e) => panic!("round {round} {name}: {e}"),
                }
            }
        }
    }
    assert!(applied > 30, "{applied} lists of opts applied");
}

#[test]
fn a_group_of_one_wave_exchanges_its_values_without_memory() {
    let p = codegen::compile(&row_sum(3, 64), &gpu(), &opts("GROUP(1,16)"), false).unwrap();
    assert_eq!((p.global, p.local, p.local_bytes), ([3, 1, 1], [16, 1, 1], 0));
    assert_eq!((count(&p, Op::Barrier), count(&p, Op::WaveReduce)), (0, 1), "{}", text(&p.uops));
    assert_eq!(p.name, "r_3_16_4");
}

#[test]
fn waves_of_a_group_meet_at_one_barrier() {
    // Four waves of 32: each leaves one number.
    let p = codegen::compile(&row_sum(3, 256), &gpu(), &opts("GROUP(1,128)"), false).unwrap();
    assert_eq!((p.global, p.local, p.local_bytes), ([3, 1, 1], [128, 1, 1], 64));
    assert_eq!((count(&p, Op::Barrier), count(&p, Op::WaveReduce)), (1, 2), "{}", text(&p.uops));
    // Three times 16 threads: the last step is no power of two.
    let p = codegen::compile(&row_sum(3, 96), &gpu(), &opts("GROUP(1,48)"), false).unwrap();
    assert_eq!((count(&p, Op::Barrier), count(&p, Op::WaveReduce)), (1, 1), "{}", text(&p.uops));
}

#[test]
fn a_group_that_is_not_the_fastest_axis_goes_through_memory() {
    let t = Target { tensor_cores: units::RDNA3, ..gpu() };
    let k = half_matmul(DType::F16, (32, 64, 32));
    let p = codegen::compile(&k, &t, &opts("TC(0) GROUP(3,2)"), false).unwrap();
    assert_eq!((count(&p, Op::Barrier), count(&p, Op::WaveReduce)), (1, 0), "{}", text(&p.uops));
}

fn count(p: &codegen::Program, op: Op) -> usize {
    p.uops.iter().filter(|u| u.op() == op).count()
}

#[test]
fn a_group_inside_a_loop_meets_twice_a_round() {
    let p = codegen::compile(&nested(4, 6, 64), &gpu(), &opts("GROUP(3,64)"), false).unwrap();
    assert!(count(&p, Op::Barrier) >= 2, "{}", text(&p.uops));
}

#[test]
fn refused_opts_name_the_axis_and_the_limit() {
    let cases = [
        (
            row_sum(3, 64),
            "GROUP(1,7)",
            "opt GROUP(1,7) does not apply: axis of size 64 is no multiple of 7 (PADTO makes it one)",
        ),
        (
            row_sum(3, 64),
            "GROUP(0,3)",
            "opt GROUP(0,3) does not apply: axis of size 3 is Loop, not a loop of a reduction",
        ),
        (add(4096), "LOCAL(0,2048)", "opt LOCAL(0,2048) does not apply: a workgroup has 2 to 1024 threads"),
        (add(4096), "LOCAL(3,8)", "opt LOCAL(3,8) does not apply: no axis 3, the kernel has 1"),
        (
            matmul(64, 64, 64),
            "LOCAL(0,32) LOCAL(1,64)",
            "opt LOCAL(1,64) does not apply: launch: 2048 threads in a workgroup, the target has at most 1024",
        ),
        (
            matmul(64, 64, 1024),
            "UPCAST(0,32) UPCAST(1,32) GROUP(2,1024)",
            "opt GROUP(2,1024) does not apply: launch: 131072 bytes of workgroup memory, the target has 65536",
        ),
    ];
    for (k, list, why) in cases {
        let e = codegen::compile(&k, &gpu(), &opts(list), false).unwrap_err();
        assert_eq!(e.to_string(), why);
    }
    let e = codegen::compile(&add(64), &avx2(), &opts("LOCAL(0,8)"), false).unwrap_err();
    assert_eq!(e.to_string(), "opt LOCAL(0,8) does not apply: the target has no workgroups");
}

#[test]
fn a_missing_barrier_is_a_race_to_the_interpreter() {
    let mut p = codegen::compile(&row_sum(3, 64), &gpu(), &opts("GROUP(1,64)"), false).unwrap();
    p.uops.retain(|u| u.op() != Op::Barrier);
    let mut bufs = buffers(&row_sum(3, 64), 1);
    let e = run_program(&p, &mut bufs, &Vars::new()).unwrap_err();
    assert!(matches!(e, InterpError::Race(_)), "{e}");
}

#[test]
fn a_loop_that_threads_leave_at_different_times_is_named() {
    let mut p = codegen::compile(&add(8), &gpu(), &opts("LOCAL(0,8)"), false).unwrap();
    let lidx = p.uops.iter().find(|u| u.op() == Op::Special).unwrap().clone();
    let r = UOp::new(Op::Range, lidx.dtype(), [lidx], Arg::Range(RangeArg { id: 9, sub: 0, kind: AxisKind::Loop }));
    p.uops.extend([r.clone(), UOp::new(Op::End, DType::VOID, [r], Arg::None)]);
    let e = run_program(&p, &mut buffers(&add(8), 1), &Vars::new()).unwrap_err();
    assert!(matches!(e, InterpError::Diverged(_)), "{e}");
}

/// Every matrix unit that is described, on a target of its wave.
fn matrix_units() -> Vec<(Target, DType)> {
    let with = |tensor_cores, wave| Target { tensor_cores, ..Target::gpu("gpu", Grid::amd(wave)) };
    let all = [with(units::RDNA3, 32), with(units::RDNA4, 32), with(units::CDNA3, 64), with(units::SM80, 32)];
    let all = all.into_iter().chain([Target { matrix_loads: true, ..with(units::SM80, 32) }]);
    let each = all.flat_map(|t| [(t.clone(), DType::F16), (t, DType::BF16)]);
    each.chain([(Target { tensor_cores: units::AMX, ..avx512() }, DType::BF16)]).collect()
}

fn uses_unit(k: &UOp, t: &Target, list: &str) -> bool {
    codegen::compile(k, t, &opts(list), false).unwrap().uops.iter().any(|u| u.op() == Op::Wmma)
}

#[test]
fn products_of_half_types_go_through_every_matrix_unit() {
    for (t, d) in matrix_units() {
        // Rows are padded to two tiles, columns and steps to one or two.
        let k = half_matmul(d, (18, 14, 20));
        assert_eq!(agrees(&k, &t, &opts("TC(0)")), Ok(true), "{:?}", t.tensor_cores[0].name);
        assert!(uses_unit(&k, &t, "TC(0)"));
    }
}

#[test]
fn products_of_fp8_and_tf32_go_through_nvidias_matrix_unit() {
    let t = Target { tensor_cores: units::SM89, ..Target::gpu("gpu", Grid::amd(32)) };
    for scalar in [Scalar::F8E4M3, Scalar::F8E5M2] {
        let k = half_matmul(DType::of(scalar), (18, 14, 40));
        assert_eq!(agrees(&k, &t, &opts("TC(0)")), Ok(true), "{scalar:?}");
        assert!(uses_unit(&k, &t, "TC(0)"));
    }
    let floats = half_matmul(DType::F32, (18, 14, 20));
    assert_eq!(agrees(&floats, &t, &opts("TC(0)")), Ok(true));
    assert!(uses_unit(&floats, &t, "TC(0)"));
    let exact = Target { tensor_cores: units::exact(units::SM89), ..t };
    assert_eq!(exact.tensor_cores.len() + 1, units::SM89.len());
    assert!(codegen::compile(&floats, &exact, &opts("TC(0)"), false).is_err());
}

#[test]
fn products_of_bytes_are_summed_exactly_by_matrix_units() {
    let with = |tensor_cores, wave| Target { tensor_cores, ..Target::gpu("gpu", Grid::amd(wave)) };
    let units = [with(units::RDNA3, 32), with(units::RDNA4, 32), with(units::CDNA3, 64)];
    for t in &units {
        for d in [DType::I8, DType::U8].into_iter().filter(|d| *d == DType::I8 || t.tensor_cores.len() > 3) {
            for (size, list) in [
                ((18, 14, 20), "TC(0)"),
                ((16, 16, 64), "TC(0) UNROLL(1,2)"),
                ((16, 32, 10), "TC(0) UPCAST(0,2)"),
                ((32, 16, 10), "TC(0) LOCAL(0,2)"),
            ] {
                if d == DType::U8 && list != "TC(0)" {
                    continue;
                }
                let k = byte_matmul(d, size, DType::I32);
                assert_eq!(agrees(&k, t, &opts(list)), Ok(true), "{:?} {list}", t.tensor_cores[0].name);
                assert!(uses_unit(&k, t, list));
            }
            // Sums that are cut to a byte are those of cut products.
            let k = byte_matmul(d, (16, 16, 20), d);
            assert_eq!(agrees(&k, t, &opts("TC(0)")), Ok(true));
        }
    }
    // A product that has wrapped around before it is summed is not what the unit computes.
    let wrapped = codegen::compile(&wrapped_products(16), &units[0], &opts("TC(0)"), false).unwrap_err().to_string();
    assert!(wrapped.contains("has 0 sums"), "{wrapped}");
}

#[test]
fn tiles_of_a_matrix_unit_are_copied_grouped_and_spread_over_waves() {
    let t = Target { tensor_cores: units::RDNA3, ..gpu() };
    let k = half_matmul(DType::F16, (32, 64, 32));
    for list in [
        "TC(0) UPCAST(0,2) UPCAST(0,2)",
        "TC(0) UNROLL(3,2) LOCAL(1,2)",
        "TC(0) GROUP(3,2)",
        "TC(0) LOCAL(0,2) UPCAST(0,2) UNROLL(3,2)",
    ] {
        assert_eq!(agrees(&k, &t, &opts(list)), Ok(true), "{list}");
        assert!(uses_unit(&k, &t, list), "{list}");
    }
}

#[test]
fn tiles_go_through_buffers_of_workgroup_memory_on_every_unit() {
    let cases = [
        ((32, 16, 64), "TC(0) LOCAL(0,2) PIPE(2,3)"),
        // Edges, and rows that begin at odd places.
        ((30, 13, 61), "TC(0) LOCAL(0,2) PIPE(2,2)"),
        ((32, 16, 64), "TC(0) UPCAST(0,2) UNROLL(1,2) PIPE(1,4)"),
    ];
    let gpus = matrix_units().into_iter().step_by(2).filter(|(t, _)| t.has_grid());
    for ((t, d), (size, list)) in gpus.zip(cases.into_iter().cycle()) {
        let k = half_matmul(d, size);
        assert_eq!(agrees(&k, &t, &opts(list)), Ok(true), "{:?} {list}", t.tensor_cores[0].name);
        let p = codegen::compile(&k, &t, &opts(list), false).unwrap();
        let copies = p.uops.iter().filter(|u| u.op() == Op::Store && matches!(u.arg(), Arg::Stage(_))).count();
        assert!(copies > 0 && count(&p, Op::Barrier) == 1, "{:?} {list}", t.tensor_cores[0].name);
        assert_eq!(count(&p, Op::LoadMatrix) > 0, t.matrix_loads);
    }
}

#[test]
fn a_unit_that_does_not_fit_is_refused_with_the_number_of_ways() {
    let t = Target { tensor_cores: units::RDNA3, ..gpu() };
    let why = |k: &UOp, t: &Target, list: &str| codegen::compile(k, t, &opts(list), false).unwrap_err().to_string();
    assert_eq!(
        why(&matmul(16, 16, 16), &t, "TC(0)"),
        "opt TC(0) does not apply: the kernel has 0 sums of products that a matrix unit of the target could do"
    );
    assert_eq!(
        why(&half_matmul(DType::F16, (16, 16, 16)), &gpu(), "TC(0)"),
        "opt TC(0) does not apply: the target has no matrix unit"
    );
    assert!(why(&half_matmul(DType::F16, (16, 16, 16)), &t, "TC(9)").contains("has 2 sums"));
}

#[test]
fn tiles_staged_by_all_threads_agree() {
    let cases = [
        ("both operands", matmul(8, 16, 12), "LOCAL(0,4) LOCAL(1,8) TILE(4,4) STAGE(1,5) STAGE(2,5)"),
        (
            "copies too",
            matmul(16, 16, 8),
            "UPCAST(0,2) UPCAST(1,2) LOCAL(0,4) LOCAL(1,4) TILE(4,4) STAGE(1,5) STAGE(2,5)",
        ),
        (
            "a tile that threads do not divide",
            matmul(6, 10, 9),
            "LOCAL(0,3) LOCAL(1,5) TILE(4,3) STAGE(1,5) STAGE(2,5)",
        ),
        ("with a group", matmul(4, 4, 32), "LOCAL(1,4) GROUP(2,4) TILE(3,4) STAGE(2,4)"),
        ("in vectors", matmul(4, 32, 8), "VECTORIZE(1,4) LOCAL(0,4) LOCAL(0,8) TILE(2,4) STAGE(2,3)"),
    ];
    for (name, k, list) in cases {
        assert_eq!(agrees(&k, &gpu(), &opts(list)), Ok(true), "{name}: {list}");
        let p = codegen::compile(&k, &gpu(), &opts(list), false).unwrap();
        let barriers = p.uops.iter().filter(|u| u.op() == Op::Barrier).count();
        assert!(p.local_bytes > 0 && barriers >= 2, "{name}: {barriers} barriers");
    }
    let t = Target { tensor_cores: units::RDNA3, ..gpu() };
    let list = "TC(0) LOCAL(0,2) STAGE(1,2) STAGE(2,2)";
    assert_eq!(agrees(&half_matmul(DType::F16, (16, 32, 32)), &t, &opts(list)), Ok(true));
}

#[test]
fn heuristic_opts_for_workgroups_agree_with_the_kernel_graph() {
    for (name, k) in kernels() {
        if let Err(e) = agrees(&k, &gpu(), &OptChoice::Heuristic) {
            panic!("{name}: {e}");
        }
    }
}

fn chosen(k: &UOp, t: &Target) -> String {
    codegen::compile(k, t, &OptChoice::Heuristic, false).unwrap().opts.join(" ")
}

#[test]
fn the_heuristic_chooses_what_suits_a_gpu() {
    let t = Target { tensor_cores: units::RDNA3, ..gpu() };
    assert_eq!(chosen(&add(1 << 20), &t), "VECTORIZE(0,4) LOCAL(0,128)");
    assert_eq!(chosen(&add(1001), &t), "PADTO(0,64) LOCAL(0,64)");
    assert_eq!(chosen(&row_sum(16, 4096), &t), "VECTORIZE(1,4) GROUP(1,256) UNROLL(2,4)");
    // Threads that each walk a row of their own would read a line of memory for every element.
    assert_eq!(chosen(&row_sum(1 << 14, 4096), &t), "VECTORIZE(1,4) GROUP(1,256) UNROLL(2,4)");
    assert_eq!(chosen(&row_sum(1 << 14, 64), &t), "LOCAL(0,64) GROUP(2,2) UNROLL(3,4)");
    assert_eq!(chosen(&column_sum(4096, 1 << 14), &t), "LOCAL(0,64) GROUP(2,2) UNROLL(3,4)");
    // Short axes are shared whole, and some of the next one.
    assert_eq!(chosen(&channel_sum(512, 64, 36), &t), "GROUP(2,36) GROUP(2,4) UNROLL(3,4)");
    // Sixteen threads a result, since a vector's are few; eight waves read neighbouring columns.
    assert_eq!(chosen(&matmul(1, 4096, 4096), &t), "VECTORIZE(0,4) LOCAL(0,16) GROUP(2,16) UNROLL(3,4)");
    assert_eq!(
        chosen(&matmul(512, 512, 512), &t),
        "UPCAST(1,4) UPCAST(0,4) LOCAL(1,16) LOCAL(0,16) TILE(4,16) STAGE(1,5) STAGE(2,5)"
    );
    assert_eq!(
        chosen(&matmul(4096, 4096, 512), &t),
        "VECTORIZE(1,4) UPCAST(1,2) UPCAST(0,8) LOCAL(1,16) LOCAL(0,16) TILE(4,16) STAGE(1,5) STAGE(2,5)"
    );
    assert_eq!(
        chosen(&product_of_rows(4096, 4096, 512), &t),
        "VECTORIZE(1,4) UPCAST(1,2) UPCAST(0,8) LOCAL(1,16) LOCAL(0,16) TILE(4,16) STAGE(1,5) STAGE(2,5)"
    );
    assert!(chosen(&half_matmul(DType::F16, (512, 512, 512)), &t).starts_with("TC(0) UPCAST"));
    let softmax = codegen::compile(&softmax(64, 1000), &t, &OptChoice::Heuristic, false).unwrap();
    assert_eq!((softmax.global, softmax.local), ([64, 1, 1], [256, 1, 1]), "{:?}", softmax.opts);
}

#[test]
fn heuristic_opts_of_larger_kernels_agree_with_the_kernel_graph() {
    let cases = [
        ("rows in vectors", row_sum(3, 2048)),
        ("rows of a softmax in vectors", softmax(2, 1024)),
        ("short axes", channel_sum(8, 3, 6)),
        ("short axes, longer", channel_sum(16, 2, 36)),
        ("a vector and a matrix", matmul(1, 64, 128)),
        ("an odd number of short rows", add_2d(7, 36)),
        ("a product in blocks", matmul(128, 128, 32)),
        ("a product with a transposed factor", product_of_rows(128, 128, 32)),
    ];
    for (name, k) in cases {
        assert_eq!(agrees(&k, &gpu(), &OptChoice::Heuristic), Ok(true), "{name}");
    }
}

/// Products of the rows of two matrices.
fn product_of_rows(m: i64, n: i64, k: i64) -> UOp {
    let (i, j, l) = (out(m, 0), out(n, 1), red(k, 2));
    let a = f32p(1, m * k).index(&(&(&i * k) + &l)).load();
    let b = f32p(2, n * k).index(&(&(&j * k) + &l)).load();
    let s = (&a * &b).reduce(Op::Add, &[l]);
    UOp::sink([f32p(0, m * n).index(&(&(&i * n) + &j)).store(&s, &[i, j])])
}

/// The sum of each channel of a batch of rows.
fn channel_sum(batch: i64, channels: i64, len: i64) -> UOp {
    let (c, b, l) = (out(channels, 0), red(batch, 1), red(len, 2));
    let at = &(&(&(&b * channels) + &c) * len) + &l;
    let s = f32p(1, batch * channels * len).index(&at).load().reduce(Op::Add, &[b, l]);
    UOp::sink([f32p(0, channels).index(&c).store(&s, &[c])])
}

/// Whether some element of each row is above a number.
fn any_large(m: i64, n: i64) -> UOp {
    let (i, l) = (out(m, 0), red(n, 1));
    let x = f32p(1, m * n).index(&(&(&i * n) + &l)).load();
    let any = UOp::constant(DType::F32, 3.0).lt(&x).reduce(Op::Max, &[l]);
    UOp::sink([UOp::param(0, DType::BOOL, m as usize).index(&i).store(&any, &[i])])
}

#[test]
fn bools_of_a_group_are_combined_by_waves_as_numbers() {
    let p = codegen::compile(&any_large(3, 128), &gpu(), &opts("GROUP(1,32)"), false).unwrap();
    assert_eq!((count(&p, Op::Barrier), count(&p, Op::WaveReduce)), (0, 1), "{}", text(&p.uops));
}

/// Sum down each column.
fn column_sum(m: i64, n: i64) -> UOp {
    let (j, l) = (out(n, 0), red(m, 1));
    let s = f32p(1, m * n).index(&(&(&l * n) + &j)).load().reduce(Op::Add, &[l]);
    UOp::sink([f32p(0, n).index(&j).store(&s, &[j])])
}

#[test]
fn a_search_tries_workgroups_and_groups() {
    let beam = codegen::Beam { width: 1, fast_math: false };
    // Pretends that a kernel takes as long as its workgroups and loops.
    let time = |p: &codegen::Program| {
        let loops = p.uops.iter().filter(|u| u.op() == Op::Range).map(|u| u.vmax() as u64 + 1).product::<u64>();
        Some(std::time::Duration::from_micros(p.global.iter().map(|n| *n as u64).product::<u64>() * 100 + loops))
    };
    let p = beam.search(&row_sum(8, 24), &gpu(), &(), time).unwrap();
    assert!(p.opts.iter().any(|o| o.starts_with("LOCAL") || o.starts_with("GROUP")), "{:?}", p.opts);
    assert!(p.local[0] > 1);
}
