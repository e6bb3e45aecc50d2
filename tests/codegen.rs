//! Compiled programs against the interpreter of kernel graphs, under many opts and shapes.

use doorbell::codegen::{self, Opt, OptChoice, Target};
use doorbell::uop::{DType, Op, UOp};

mod codegen_agree;
mod codegen_kernels;
use codegen_agree::*;
use codegen_kernels::*;

#[test]
fn plain_loops_agree_with_the_kernel_graph() {
    for (name, k) in kernels() {
        assert_eq!(agrees(&k, &avx512(), &OptChoice::None), Ok(true), "{name}");
    }
}

#[test]
fn heuristic_opts_agree_with_the_kernel_graph() {
    for (name, k) in kernels() {
        for t in [avx512(), avx2(), Target { threads: 3, ..avx2() }] {
            if let Err(e) = agrees(&k, &t, &OptChoice::Heuristic) {
                panic!("{name}: {e}");
            }
        }
    }
}

#[test]
fn named_opts_apply_and_agree() {
    let cases: &[(&str, UOp, &str)] = &[
        ("add", add(100), "VECTORIZE(0,16) UPCAST(0,4)"),
        ("add in threads", add(100), "VECTORIZE(0,8) UPCAST(0,2) THREAD(0,3)"),
        ("add padded", add(10), "PADTO(0,16) VECTORIZE(0,16)"),
        ("matmul tile", matmul(13, 37, 6), "VECTORIZE(1,16) UPCAST(1,2) UPCAST(0,4)"),
        ("matmul unrolled", matmul(8, 32, 10), "VECTORIZE(1,8) UPCAST(0,4) UNROLL(2,4)"),
        ("matmul swapped", matmul(6, 40, 5), "SWAP(0,1) VECTORIZE(0,8) UPCAST(0,3) TILE(1,4)"),
        (
            "matmul with packed panels",
            matmul(13, 70, 9),
            "VECTORIZE(1,8) UPCAST(0,4) UPCAST(1,2) UNROLL(2,2) SWAP(0,1) STAGE(2,1)",
        ),
        ("matmul with both packed", matmul(8, 32, 9), "VECTORIZE(1,8) UPCAST(0,2) STAGE(1,0) STAGE(2,1) UPCAST(2,3)"),
        ("matmul packed in threads", matmul(12, 64, 5), "VECTORIZE(1,16) UPCAST(0,4) SWAP(0,1) STAGE(2,1) THREAD(1,3)"),
        ("gradient with bounds", conv_gradient(3, 9, 3, 5), "BOUND(2)"),
        ("gradient with bounds in threads", conv_gradient(16, 40, 7, 5), "VECTORIZE(0,16) BOUND(1) THREAD(0,3)"),
        ("sum in lanes", row_sum(5, 50), "VECTORIZE(1,16) UNROLL(1,2)"),
        ("softmax in lanes", softmax(3, 21), "VECTORIZE(1,8) VECTORIZE(2,8)"),
    ];
    for (name, k, opts) in cases {
        let list = opts.split(' ').map(|o| o.parse().unwrap()).collect();
        assert_eq!(agrees(k, &avx512(), &OptChoice::Given(list)), Ok(true), "{name}");
    }
}

/// Sixteen rows in tiles of six leave a tail with a loop of its own, which fills the panel again; with nothing left of
/// the sum's loop both read it at constant places.
#[test]
fn a_tail_reads_the_panel_that_its_own_loop_has_packed() {
    let (i, j, l) = (out(16, 0), out(32, 1), red(10, 2));
    let at = &(&i * 32) + &j;
    let x = &f32p(2, 160).index(&(&(&i * 10) + &l)).load() * &UOp::constant(DType::F32, 0.25);
    let y = f32p(3, 320).index(&(&(&j * 10) + &l)).load();
    let s = (&(&x + &x) * &y).reduce(Op::Add, &[l]);
    let positive = UOp::constant(DType::F32, 0.0).lt(&f32p(1, 512).index(&at).load());
    let zero = UOp::constant(DType::F32, 0.0);
    let k = UOp::sink([f32p(0, 512).index(&at).store(&positive.select(&s, &zero), &[i, j])]);
    let opts = "VECTORIZE(1,8) UPCAST(0,6) UPCAST(1,2) UNROLL(2,10) SWAP(0,1) STAGE(3,1)";
    let given = OptChoice::Given(opts.split(' ').map(|o| o.parse().unwrap()).collect());
    assert_eq!(agrees(&k, &avx2(), &given), Ok(true));
    // The same without lanes, and with another tail.
    for opts in
        ["UPCAST(0,6) UNROLL(2,10) SWAP(0,1) STAGE(3,1)", "UPCAST(0,5) UPCAST(1,3) UNROLL(2,10) SWAP(0,1) STAGE(3,1)"]
    {
        let given = OptChoice::Given(opts.split(' ').map(|o| o.parse().unwrap()).collect());
        assert_eq!(agrees(&k, &avx2(), &given), Ok(true), "{opts}");
    }
}

#[test]
fn random_opts_agree_with_the_kernel_graph() {
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
            for _ in 0..1 + next(4) {
                let axis = next(4) as usize;
                let opt = match next(11) {
                    0 | 1 => Opt::Upcast { axis, amount: 2 + next(4) as usize },
                    2 => Opt::Unroll { axis, amount: 2 + next(4) as usize },
                    3 | 4 => Opt::Vectorize { axis, amount: 2 << next(4) },
                    5 => Opt::Thread { axis, amount: 2 + next(4) as usize },
                    6 => Opt::PadTo { axis, amount: 2 << next(3) },
                    7 => Opt::Stage { param: next(3) as usize, axis },
                    8 => Opt::Bound { axis },
                    9 => Opt::Swap { axis, with: next(4) as usize },
                    _ => Opt::Tile { axis, amount: 2 + next(5) as usize },
                };
                list.push(opt);
                match agrees(&k, &avx512(), &OptChoice::Given(list.clone())) {
                    Ok(true) => applied += 1,
                    Ok(false) => drop(list.pop()),
                    Err(e) => panic!("round {round} {name}: {e}"),
                }
            }
        }
    }
    assert!(applied > 40, "{applied} lists of opts applied");
}

#[test]
fn the_heuristic_tiles_a_matmul_and_keeps_vectors_whole() {
    let p = codegen::compile(&matmul(64, 96, 32), &avx512(), &OptChoice::Heuristic, false).unwrap();
    assert_eq!(p.uops.iter().filter(|u| u.op() == Op::Acc).count(), 24);
    assert!(p.uops.iter().all(|u| !matches!(u.op(), Op::Stack | Op::Gep)), "{}", text(&p.uops));
}

#[test]
fn conditions_become_bounds_and_what_copies_decide_is_gone() {
    let bound = [Opt::Bound { axis: 2 }];
    let p = codegen::compile(&conv_gradient(3, 9, 3, 5), &avx512(), &OptChoice::Given(bound.to_vec()), false).unwrap();
    assert!(
        p.uops.iter().all(|u| u.op() != Op::Where && !(u.op() == Op::Load && u.src().len() > 1)),
        "{}",
        text(&p.uops)
    );
    let many = conv_gradient(32, 10, 4, 128);
    assert_eq!(agrees(&many, &avx512(), &OptChoice::Heuristic), Ok(true));
    let lanes = codegen::compile(&many, &avx512(), &OptChoice::Heuristic, false).unwrap();
    assert!(lanes.opts.iter().any(|o| o == "VECTORIZE(0,16)"), "{:?}", lanes.opts);
    assert!(lanes.uops.iter().all(|u| u.op() != Op::Where), "{:?}\n{}", lanes.opts, text(&lanes.uops));
}

#[test]
fn a_loop_whose_bounds_depend_on_another_keeps_that_one_whole() {
    let list = [Opt::Bound { axis: 2 }, Opt::Vectorize { axis: 1, amount: 8 }];
    let refused = codegen::compile(&conv_gradient(3, 9, 3, 5), &avx512(), &OptChoice::Given(list.to_vec()), false);
    assert!(refused.unwrap_err().to_string().contains("bounds of another loop"));
}

#[test]
fn threads_do_not_share_the_copying_to_scratch_memory() {
    let list = [Opt::Stage { param: 1, axis: 0 }, Opt::Thread { axis: 1, amount: 3 }];
    let refused = codegen::compile(&nested(3, 4, 5), &avx512(), &OptChoice::Given(list.to_vec()), false);
    assert!(refused.unwrap_err().to_string().contains("scratch memory"));
}

#[test]
fn a_big_matmul_packs_its_panels_and_splits_their_loop_over_threads() {
    let p = codegen::compile(&matmul(256, 512, 256), &Target { threads: 2, ..avx512() }, &OptChoice::Heuristic, false);
    let p = p.unwrap();
    assert!(p.opts.iter().any(|o| o == "STAGE(2,1)"), "{:?}", p.opts);
    assert_eq!((p.threads, p.local_bytes), (8, 256 * 64 * 4), "{:?}", p.opts);
}
