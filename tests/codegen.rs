//! Compiled programs against the interpreter of kernel graphs, under many opts and shapes.

use doorbell::codegen::{self, CodegenError, Opt, OptChoice, Target, check};
use doorbell::engine::interp::{Vars, run_kernel, run_program};
use doorbell::uop::{Arg, Op, Scalar, UOp, from_bits, to_bits};

mod codegen_kernels;
use codegen_kernels::*;

/// Buffers of the kernel's parameters with small values that most sums keep exact.
fn buffers(ast: &UOp, seed: u64) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = vec![];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for u in ast.toposort() {
        let Arg::Param(slot, len) = *u.arg() else { continue };
        let slot = slot as usize;
        if out.len() <= slot {
            out.resize(slot + 1, vec![]);
        }
        let t = u.dtype().scalar;
        out[slot] = (0..len)
            .flat_map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let v = (state >> 33) as i64 % 9 - if t.is_unsigned() { 0 } else { 4 };
                to_bits(doorbell::uop::cast_const(v.into(), t), t).to_le_bytes().into_iter().take(t.size_bytes())
            })
            .collect();
    }
    out
}

fn same(t: Scalar, a: &[u8], b: &[u8]) -> Result<(), String> {
    let n = t.size_bytes();
    for (k, (x, y)) in a.chunks(n).zip(b.chunks(n)).enumerate() {
        let read = |c: &[u8]| {
            let mut w = [0u8; 8];
            w[..n].copy_from_slice(c);
            from_bits(u64::from_le_bytes(w), t).as_f64()
        };
        let (x, y) = (read(x), read(y));
        if x != y && !(x.is_nan() && y.is_nan()) && (x - y).abs() > 1e-5 * x.abs().max(y.abs()).max(1.0) {
            return Err(format!("element {k}: {x} and {y}"));
        }
    }
    Ok(())
}

fn dtype_of(ast: &UOp, slot: u32) -> Scalar {
    let found = ast.toposort().into_iter().find(|u| matches!(u.arg(), Arg::Param(s, _) if *s == slot));
    found.map_or(Scalar::U8, |u| u.dtype().scalar)
}

fn vars(ast: &UOp, value: i64) -> Vars {
    let names = ast.toposort().into_iter().filter_map(|u| match u.arg() {
        Arg::Var(n, lo, hi) => Some((n.to_string(), value.clamp(*lo, *hi))),
        _ => None,
    });
    names.collect()
}

/// Compiles and compares; `Ok(false)`: the opts do not apply.
fn agrees(ast: &UOp, target: &Target, choice: &OptChoice) -> Result<bool, String> {
    let p = match codegen::compile(ast, target, choice, false) {
        Ok(p) => p,
        Err(CodegenError::Opt { .. } | CodegenError::NoLanes(_) | CodegenError::TwoVectorAxes(_))
            if matches!(choice, OptChoice::Given(_)) =>
        {
            return Ok(false);
        }
        Err(e) => return Err(format!("{choice:?}: {e}\n{ast}")),
    };
    check::verify(&p.uops)?;
    for (seed, value) in [(1, 5), (2, i64::MAX)] {
        let mut want = buffers(ast, seed);
        let mut got = want.clone();
        let vars = vars(ast, value);
        run_kernel(ast, &mut want, &vars).map_err(|e| format!("kernel graph: {e}"))?;
        run_program(&p, &mut got, &vars).map_err(|e| format!("{choice:?} {}: {e}\n{}", p.name, text(&p.uops)))?;
        for (slot, (a, b)) in want.iter().zip(&got).enumerate() {
            same(dtype_of(ast, slot as u32), a, b)
                .map_err(|e| format!("{choice:?} {} slot {slot}: {e}\n{}", p.name, text(&p.uops)))?;
        }
    }
    Ok(true)
}

fn text(list: &[UOp]) -> String {
    let mut out = String::new();
    for (k, u) in list.iter().enumerate() {
        let src: Vec<String> =
            u.src().iter().map(|s| list.iter().position(|x| x == s).map_or("?".into(), |p| p.to_string())).collect();
        out += &format!("{k:4} {:?} {} {:?} [{}]\n", u.op(), u.dtype(), u.arg(), src.join(", "));
    }
    out
}

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
        ("sum in lanes", row_sum(5, 50), "VECTORIZE(1,16) UNROLL(1,2)"),
        ("softmax in lanes", softmax(3, 21), "VECTORIZE(1,8) VECTORIZE(2,8)"),
    ];
    for (name, k, opts) in cases {
        let list = opts.split(' ').map(|o| o.parse().unwrap()).collect();
        assert_eq!(agrees(k, &avx512(), &OptChoice::Given(list)), Ok(true), "{name}");
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
                let opt = match next(10) {
                    0 | 1 => Opt::Upcast { axis, amount: 2 + next(4) as usize },
                    2 => Opt::Unroll { axis, amount: 2 + next(4) as usize },
                    3 | 4 => Opt::Vectorize { axis, amount: 2 << next(4) },
                    5 => Opt::Thread { axis, amount: 2 + next(4) as usize },
                    6 => Opt::PadTo { axis, amount: 2 << next(3) },
                    7 => Opt::Stage { param: next(3) as usize, axis },
                    8 => Opt::Swap { axis, with: next(4) as usize },
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
fn a_big_matmul_packs_its_panels_and_splits_their_loop_over_threads() {
    let p = codegen::compile(&matmul(256, 512, 256), &Target { threads: 2, ..avx512() }, &OptChoice::Heuristic, false);
    let p = p.unwrap();
    assert!(p.opts.iter().any(|o| o == "STAGE(2,1)"), "{:?}", p.opts);
    assert_eq!((p.threads, p.local_bytes), (8, 256 * 64 * 4), "{:?}", p.opts);
}
