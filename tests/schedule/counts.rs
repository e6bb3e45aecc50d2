//! Kernel counts, case by case, against what tinygrad schedules (`n`) and what its authors wish for (`goal`).
//! Inputs are realised; the numbers are those of the research notes' table (case numbers as there). Values are checked
//! too.

use crate::graphs::*;
use doorbell::uop::{DType, Op, UOp};

/// Case, kernels of ours, tinygrad's, goal of its authors (0: none noted).
pub struct Case {
    pub name: &'static str,
    pub ours: usize,
    pub n: usize,
    pub goal: usize,
}

pub fn case(name: &'static str, n: usize, goal: usize, roots: &[UOp]) -> Case {
    Case { name, ours: count(roots), n, goal }
}

#[test]
fn no_case_needs_more_kernels_than_tinygrad() {
    let cases: Vec<Case> =
        [plain(), reduces(), scalars(), norms(), indexing(), products(), training(), crate::tensors::cases()]
            .into_iter()
            .flatten()
            .collect();
    let mut table = String::new();
    for c in &cases {
        let goal = if c.goal == 0 { "-".into() } else { c.goal.to_string() };
        let mark = match c {
            c if c.ours > c.n => "MORE",
            c if c.goal > 0 && c.ours <= c.goal => "goal",
            c if c.ours < c.n => "fewer",
            _ => "",
        };
        table += &format!("{:<42} ours {:>2}  n {:>2}  goal {:>2}  {mark}\n", c.name, c.ours, c.n, goal);
    }
    println!("{table}");
    assert!(cases.iter().all(|c| c.ours <= c.n), "\n{table}");
}

fn plain() -> Vec<Case> {
    let x = input(&[16, 16]);
    let a = input(&[10]);
    let chain = un(Op::Sqrt, &relu(&add(&mul(&x, &x), &num(3.0))));
    let mut doubled = a.clone();
    for _ in 0..24 {
        doubled = add(&doubled, &doubled);
    }
    vec![
        case("1 reduce_doesnt_split", 1, 0, &[reshape(&reshape(&sum(&x, &[1]), &[4, 4]), &[16])]),
        case("3 contiguous of a buffer's view", 0, 0, &[contiguous(&reshape(&shrink(&x, &[(2, 4), (0, 16)]), &[32]))]),
        case("4 contiguous_view_realizes", 1, 0, &[contiguous(&expand(&a, &[3, 10]))]),
        case("35 elementwise chain", 1, 0, std::slice::from_ref(&chain)),
        case("35 elementwise chain and one reduce", 1, 0, &[sum(&transpose(&chain), &[0])]),
        case("35 diamond", 1, 0, &[sum(&mul(&add(&x, &num(1.0)), &add(&x, &num(2.0))), &[0, 1])]),
        case("53 dedup_outputs", 1, 0, &[add(&x, &x), add(&x, &x)]),
        case("60 24 doublings", 1, 0, &[doubled]),
    ]
}

fn reduces() -> Vec<Case> {
    let long = input(&[32768]);
    let (a, b, c) = (input(&[32, 32]), input(&[32, 32]), input(&[16, 1]));
    let row = |x: &UOp| sum(x, &[1]);
    let head = |x: &UOp| shrink(&row(x), &[(0, 16), (0, 1)]);
    let x3 = input(&[4, 6, 8]);
    let inner = relu(&squeeze(&sum(&x3, &[2]), &[2]));
    vec![
        case("5 preserve_multistage_reduce", 3, 0, &[max(&sub(&long, &max(&long, &[0])), &[0])]),
        case("7 multireduce_shrink", 1, 0, &[add(&add(&head(&a), &head(&b)), &c)]),
        case("13 ugly_reduceop_pairing", 2, 1, &[add(&row(&mul(&b, &row(&a))), &row(&mul(&a, &row(&a))))]),
        case("14 reduce_expand_reduce", 2, 1, &[row(&add(&a, &row(&a)))]),
        case("15 reduce_expand_reduce_expand", 3, 2, &[add(&a, &row(&add(&a, &row(&a))))]),
        case("16 multireduce_fusion_simple_parallel", 1, 0, &[add(&row(&a), &row(&b))]),
        case("23 pad_reduce", 1, 0, &[sum(&pad(&un(Op::Exp2, &a), &[(1, 1), (0, 3)]), &[0, 1])]),
        case("32 reduce_broadcast_not_recomputed", 2, 0, &[sub(&input(&[512, 512]), &mean(&input(&[512, 512]), &[0]))]),
        case("47 multistage_reduce", 1, 0, &[sum(&inner, &[1])]),
        case("47 multistage_reduce_fork", 2, 0, &[add(&sum(&inner, &[1]), &inner)]),
        case("58 two reduces, swizzled", 2, 1, &[add(&row(&a), &reshape(&sum(&b, &[0]), &[32, 1]))]),
    ]
}

fn scalars() -> Vec<Case> {
    let a = input(&[8, 8]);
    let s = sum(&a, &[0, 1]);
    let (s2, s4) = (add(&s, &num(2.0)), add(&s, &num(4.0)));
    let out0 = un(Op::Exp2, &s);
    let out1 = add(&s, &out0);
    let b = add(&a, &add(&out0, &out1));
    let t = sum(&b, &[0, 1]);
    let mid = max(&sub(&a, &out0), &[0, 1]);
    let again = un(Op::Exp2, &t);
    vec![
        case("8 reduce_same_size", 3, 1, &[s2.clone(), s4.clone(), mul(&s2, &s4)]),
        case("9 reduce_multiple_paths", 2, 1, &[out0.clone(), out1.clone()]),
        case("10 multireduce_multiple_paths", 4, 1, &[out0.clone(), out1.clone(), again.clone(), add(&t, &again)]),
        case("11 reduce_multiple_paths_midreduce", 4, 1, &[s.clone(), out0.clone(), mid.clone(), add(&s, &mid)]),
        case("36 cache_reduce_parent", 2, 0, &[sum(&sub(&a, &mean(&a, &[0, 1])), &[0, 1])]),
        case("49 reduce_shrink_child", 2, 1, &[add(&s, &shrink(&a, &[(0, 1), (0, 1)])), add(&s, &num(2.0))]),
    ]
}

fn norms() -> Vec<Case> {
    let (x, y) = (input(&[64, 64]), input(&[64, 64]));
    let std = |x: &UOp| un(Op::Sqrt, &var(x, &[1], 63.0));
    let ln = {
        let x = input(&[20, 5, 10, 10]);
        let x = reshape(&x, &[100, 100]);
        let d = sub(&x, &mean(&x, &[1]));
        let r = un(Op::Recip, &un(Op::Sqrt, &add(&var(&x, &[1], 100.0), &num(1e-5))));
        add(&mul(&mul(&d, &r), &input(&[100])), &input(&[100]))
    };
    let bn = {
        let x = input(&[1, 32, 4, 4]);
        let d = sub(&x, &mean(&x, &[0, 2, 3]));
        let r = un(Op::Recip, &un(Op::Sqrt, &add(&var(&x, &[0, 2, 3], 16.0), &num(1e-5))));
        add(&mul(&mul(&d, &r), &input(&[1, 32, 1, 1])), &input(&[1, 32, 1, 1]))
    };
    let scores = input(&[2, 4, 16, 16]);
    vec![
        case("17 std", 2, 1, &[std(&x)]),
        case("18 std + std", 3, 1, &[add(&std(&x), &std(&y))]),
        case("19 mean and std of two", 5, 1, &[add(&add(&mean(&x, &[1]), &std(&x)), &add(&mean(&y, &[1]), &std(&y)))]),
        case("21 layernorm", 3, 2, &[ln]),
        case("37 batchnorm train", 3, 0, &[bn]),
        case("43 softmax", 3, 1, &[softmax(&scores, 3)]),
        case("43 softmax then sum of rows", 4, 0, &[sum(&softmax(&x, 1), &[0, 1])]),
        case(
            "44 logsumexp",
            2,
            0,
            &[add(&un(Op::Log2, &sum(&un(Op::Exp2, &sub(&x, &max(&x, &[1]))), &[1])), &max(&x, &[1]))],
        ),
    ]
}

fn indexing() -> Vec<Case> {
    let x = input(&[12, 5]);
    let i = reshape(&buffer(DType::I32, 7), &[7, 1]);
    let hit = op(Op::CmpEq, &[&i, &reshape(&iota(12), &[1, 12]).cast(DType::I32)]);
    let picked =
        op(Op::Where, &[&reshape(&hit, &[7, 12, 1]), &expand(&reshape(&x, &[1, 12, 5]), &[7, 12, 5]), &num(0.0)]);
    let label = reshape(&buffer(DType::I32, 6), &[6, 1]);
    let logits = input(&[6, 4]);
    let shifted = sub(&logits, &max(&logits, &[1]));
    let logp = sub(&shifted, &un(Op::Log2, &sum(&un(Op::Exp2, &shifted), &[1])));
    let mask = op(Op::CmpEq, &[&label, &reshape(&iota(4), &[1, 4]).cast(DType::I32)]).cast(DType::F32);
    let argmax = {
        let x = input(&[4, 32]);
        let at = op(Op::CmpEq, &[&x, &max(&x, &[1])]).cast(DType::I32);
        let back = op(Op::Mul, &[&at, &sub_i(32, &iota(32).cast(DType::I32))]);
        back.reduce_axes(Op::Max, &[1])
    };
    vec![
        case("2 arange_sum", 1, 0, &[iota(6).cast(DType::I32).reduce_axes(Op::Add, &[0])]),
        case("25 indexing by a tensor", 1, 0, &[squeeze(&sum(&picked, &[1]), &[1])]),
        case("27 argmax", 2, 1, &[argmax]),
        case("28 sparse_categorical_crossentropy", 3, 0, &[mean(&sum(&mul(&logp, &mask), &[1]), &[0])]),
    ]
}

fn sub_i(n: i64, x: &UOp) -> UOp {
    op(Op::Sub, &[&UOp::constant(x.dtype(), n), x]).clone()
}

fn products() -> Vec<Case> {
    let (a, b, c, d) = (input(&[8, 16]), input(&[16, 12]), input(&[8, 16]), input(&[16, 12]));
    let (q, k, v) = (input(&[4, 2, 16, 8]), input(&[4, 2, 16, 8]), input(&[4, 2, 16, 8]));
    let p = softmax(&mul(&matmul(&q, &transpose(&k)), &num(0.35)), 3);
    let (x, w1, w2) = (input(&[1, 2, 8, 8]), input(&[3, 2, 3, 3]), input(&[4, 3, 3, 3]));
    let conv = relu(&conv2d(&x, &w1));
    vec![
        case("12 scaled dot product attention", 4, 1, &[matmul(&p, &v)]),
        case("20 multimatmul_fusion", 1, 0, &[add(&matmul(&a, &b), &matmul(&c, &d))]),
        case("41 conv relu", 1, 0, std::slice::from_ref(&conv)),
        case("41 two convs", 2, 0, &[relu(&conv2d(&conv, &w2))]),
    ]
}

fn training() -> Vec<Case> {
    // Linear, squared error, Adam: gradients by hand.
    let (x, w, y) = (input(&[16, 8]), buffer(DType::F32, 32), input(&[16, 4]));
    let w2 = reshape(&w, &[8, 4]);
    let e = sub(&matmul(&x, &w2), &y);
    let g = reshape(&matmul(&transpose(&x), &mul(&e, &num(2.0 / 64.0))), &[32]);
    let (m, v) = (buffer(DType::F32, 32), buffer(DType::F32, 32));
    let m2 = assign(&m, &add(&mul(&m, &num(0.9)), &mul(&g, &num(0.1))));
    let v2 = assign(&v, &add(&mul(&v, &num(0.99)), &mul(&mul(&g, &g), &num(0.01))));
    let step = mul(&m2, &un(Op::Recip, &add(&un(Op::Sqrt, &op(Op::Max, &[&v2, &num(0.0)])), &num(1e-3))));
    let w3 = assign(&w, &sub(&w, &mul(&step, &num(0.1))));
    let loss = mean(&mul(&e, &e), &[0, 1]);
    vec![case("45 linear and Adam step", 13, 0, &[loss, m2, v2, w3])]
}

#[test]
fn sizes_decide_what_shares_a_kernel() {
    let kernels = |roots: &[UOp]| plan(roots).kernel_count();
    let x = input(&[2048, 1024]);
    assert_eq!(kernels(&[sum(&input(&[1 << 26]), &[0])]), 2, "partial sums keep the cores busy");
    assert_eq!(kernels(&[softmax(&x, 1)]), 1, "rows are independent");
    assert_eq!(kernels(&[sub(&x, &mean(&x, &[0]))]), 2, "columns would be walked against the layout");
    let flat = input(&[1 << 20]);
    assert_eq!(kernels(&[sub(&flat, &max(&flat, &[0]))]), 3, "one loop for all would run on one core");
    let (q, k, v) = (input(&[8, 128, 64]), input(&[8, 128, 64]), input(&[8, 128, 64]));
    let p = softmax(&matmul(&q, &transpose(&k)), 2);
    assert_eq!(kernels(&[matmul(&p, &v)]), 3, "an exponential is not computed again for each column of the product");
    let w = input(&[1024, 256]);
    assert_eq!(
        kernels(&[softmax(&matmul(&relu(&x), &w), 1)]),
        2,
        "a product is not computed again for each pass over its rows"
    );
    assert_eq!(kernels(&[sum(&relu(&matmul(&x, &w)), &[1])]), 2, "a product of two matrices keeps its own loops");
}
