//! Products whose tiles are copied to shared memory ahead of the matrix unit.

use super::kernels::compiled;
use super::machine::{check, counted, rendered};
use crate::codegen_agree::buffers;
use crate::codegen_kernels::{byte_matmul, half_matmul};
use doorbell::codegen::Program;
use doorbell::isa::ptx::Buffers;
use doorbell::uop::{AxisKind, DType, Op, Scalar, UOp};

fn range(n: i64, id: u32, kind: AxisKind) -> UOp {
    UOp::range(UOp::int(n), id, kind)
}

/// How a product's operands lie, and what is done to them.
#[derive(Clone, Copy)]
pub struct Shape {
    pub batch: i64,
    pub size: (i64, i64, i64),
    /// Operands stored in the other order: a by columns, b by columns.
    pub turned: (bool, bool),
    /// a is F32 in memory and rounded when it is read.
    pub narrowed: bool,
}

pub const PLAIN: Shape = Shape { batch: 1, size: (64, 64, 64), turned: (false, false), narrowed: false };

/// relu(a · b + bias) of each matrix of a batch, summed in f32, or in i32 where the factors are whole numbers.
pub fn product(t: DType, s: Shape) -> UOp {
    let sum_type = if t.is_float() { DType::F32 } else { DType::I32 };
    let (m, n, k) = s.size;
    let (z, i, j) = (range(s.batch, 0, AxisKind::Loop), range(m, 1, AxisKind::Loop), range(n, 2, AxisKind::Loop));
    let l = range(k, 3, AxisKind::Reduce);
    let at = |rows: &UOp, columns: &UOp, (height, width): (i64, i64), turned: bool| {
        let place = if turned { &(columns * height) + rows } else { &(rows * width) + columns };
        &(&z * (height * width)) + &place
    };
    let a_type = if s.narrowed { DType::F32 } else { t };
    let a = UOp::param(1, a_type, (s.batch * m * k) as usize).index(&at(&i, &l, (m, k), s.turned.0)).load();
    let a = if s.narrowed { a.cast(t) } else { a };
    let b = UOp::param(2, t, (s.batch * n * k) as usize).index(&at(&l, &j, (k, n), s.turned.1)).load();
    let sum = (&a.cast(sum_type) * &b.cast(sum_type)).reduce(Op::Add, &[l]);
    let biased = &sum + &UOp::param(3, sum_type, n as usize).index(&j).load();
    let v = biased.max(&biased.const_like(0));
    let to = UOp::param(0, sum_type, (s.batch * m * n) as usize).index(&at(&i, &j, (m, n), false));
    UOp::sink([to.store(&v, &[z, i, j])])
}

fn words(ptx: &str, word: &str) -> usize {
    ptx.matches(word).count()
}

fn agrees(ast: &UOp, opts: &str) -> (Program, String) {
    let p = compiled(ast, "sm_90a", opts);
    let text = rendered(&p, "sm_90a", Buffers::Anywhere).0;
    check(&p, &[buffers(ast, 1)], &[], 1e-5);
    (p, text)
}

#[test]
fn tiles_are_copied_asynchronously_and_read_as_fragments() {
    for t in [DType::F16, DType::BF16] {
        for (opts, wait) in [
            ("TC(0) LOCAL(0,2) PIPE(4,2)", 0),
            ("TC(0) UPCAST(0,2) UPCAST(1,2) LOCAL(0,2) UNROLL(3,2) PIPE(3,3)", 1),
            ("TC(0) UPCAST(0,2) LOCAL(0,2) LOCAL(0,2) TILE(4,2) PIPE(5,4)", 2),
        ] {
            let (_, text) = agrees(&half_matmul(t, (64, 64, 64)), opts);
            assert!(words(&text, "cp.async.cg.shared.global") > 0 && words(&text, "ldmatrix.") > 0, "{opts}\n{text}");
            assert!(text.contains(&format!("cp.async.wait_group {wait};")), "{opts}\n{text}");
            // b is stored by rows: its fragments are transposed, a's are not.
            assert!(words(&text, ".x4.trans.shared") > 0 && words(&text, ".x4.shared") > 0, "{opts}");
        }
    }
}

#[test]
fn products_of_all_layouts_and_edges_agree_under_the_heuristic() {
    let shape = |batch, size, turned, narrowed| Shape { batch, size, turned, narrowed };
    for (s, copies) in [
        (shape(1, (32, 64, 64), (false, false), false), "cp.async.cg"),
        (shape(1, (64, 64, 64), (true, false), false), "cp.async.cg"),
        (shape(1, (64, 64, 64), (false, true), false), "cp.async.cg"),
        (shape(3, (32, 64, 64), (true, true), false), "cp.async.cg"),
        // Edges: a multiple of 8, of 4, of 2, and of nothing.
        (shape(1, (56, 56, 72), (false, false), false), "cp.async.cg"),
        (shape(1, (60, 52, 100), (false, false), false), ", 8, "),
        (shape(2, (58, 62, 70), (false, true), false), ", 4, "),
        (shape(1, (55, 61, 67), (true, false), false), "st.shared"),
        // A cast that is made during the copy.
        (shape(1, (64, 64, 64), (false, false), true), "st.shared"),
    ] {
        let (p, text) = agrees(&product(DType::F16, s), "heuristic");
        assert!(p.opts.iter().any(|o| o.starts_with("PIPE")), "{:?} {:?}", s.size, p.opts);
        assert!(text.contains("ldmatrix") && text.contains(copies), "{:?} {copies}\n{text}", s.size);
    }
}

#[test]
fn products_of_bytes_are_exact() {
    for t in [DType::I8, DType::U8] {
        let (_, text) = agrees(&byte_matmul(t, (64, 32, 128), DType::I32), "TC(0) LOCAL(0,2) LOCAL(1,2) PIPE(4,3)");
        assert!(text.contains("m16n8k32") && text.contains("ldmatrix"), "{text}");
        agrees(&byte_matmul(t, (34, 40, 96), DType::I32), "TC(0) LOCAL(0,3) PIPE(3,2)");
    }
}

#[test]
fn products_of_fp8_are_summed_in_f32() {
    for (scalar, unit) in [(Scalar::F8E4M3, "f32.e4m3.e4m3.f32"), (Scalar::F8E5M2, "f32.e5m2.e5m2.f32")] {
        let t = DType::of(scalar);
        for (s, opts) in [
            (Shape { turned: (false, true), size: (64, 32, 128), ..PLAIN }, "TC(0) LOCAL(0,2) LOCAL(1,2) PIPE(4,3)"),
            (Shape { size: (34, 40, 96), batch: 2, ..PLAIN }, "heuristic"),
            (Shape { size: (16, 16, 64), ..PLAIN }, "TC(0)"),
        ] {
            let (_, text) = agrees(&product(t, s), opts);
            assert!(text.contains(&format!("m16n8k32.row.col.{unit}")), "{text}");
        }
    }
    // Older chips decode what they read and have no such unit.
    let old = compiled(&product(DType::of(Scalar::F8E4M3), PLAIN), "sm_86", "heuristic");
    assert!(!rendered(&old, "sm_86", Buffers::Anywhere).0.contains("mma.sync"));
}

#[test]
fn a_pipe_in_a_loop_and_one_longer_than_its_sum_agree() {
    // Rounds inside another loop of the sum; more buffers than rounds.
    agrees(&half_matmul(DType::F16, (32, 32, 128)), "TC(0) TILE(3,4) PIPE(3,2)");
    agrees(&half_matmul(DType::F16, (32, 32, 128)), "TC(0) TILE(3,4) PIPE(4,3)");
    agrees(&half_matmul(DType::F16, (32, 32, 32)), "TC(0) PIPE(3,4)");
}

/// a · b in f32, of which the product of row i and step l counts where l < i + 7, if asked for.
fn plain_product(gated: bool) -> UOp {
    const N: i64 = 64;
    let (i, j) = (range(N, 0, AxisKind::Loop), range(N, 1, AxisKind::Loop));
    let l = range(N, 2, AxisKind::Reduce);
    let load = |k: u32, row: &UOp, column: &UOp| {
        UOp::param(k, DType::F32, (N * N) as usize).index(&(&(row * N) + column)).load()
    };
    let both = &load(1, &i, &l) * &load(2, &l, &j);
    let both = if gated { l.lt(&(&i + 7)).select(&both, &both.const_like(0)) } else { both };
    let to = UOp::param(0, DType::F32, (N * N) as usize).index(&(&(&i * N) + &j));
    UOp::sink([to.store(&both.reduce(Op::Add, &[l]), &[i, j])])
}

/// Products that are added to the register that they are written to, without a condition and with one.
fn in_place(text: &str) -> [usize; 2] {
    let is_in_place = |line: &&str| {
        let words: Vec<&str> = line.split("fma.rn.f32").collect();
        let operands = words.get(1).map_or(Vec::new(), |w| w.trim().trim_end_matches(';').split(", ").collect());
        operands.len() == 4 && operands[0] == operands[3]
    };
    let lines = || text.lines().filter(is_in_place);
    let guarded = lines().filter(|l| l.trim().starts_with('@')).count();
    [lines().count() - guarded, guarded]
}

#[test]
fn plain_products_are_copied_ahead_and_stay_in_their_registers() {
    for (opts, wait) in [
        ("UPCAST(1,4) UPCAST(0,4) LOCAL(1,8) LOCAL(0,8) TILE(4,16) PIPE(5,2)", 0),
        ("UPCAST(1,4) UPCAST(0,4) LOCAL(1,8) LOCAL(0,8) TILE(4,16) PIPE(5,3) UNROLL(4,4)", 1),
        ("VECTORIZE(1,4) UPCAST(0,4) LOCAL(1,8) LOCAL(0,8) TILE(4,8) PIPE(5,2) UNROLL(4,8)", 0),
    ] {
        for gated in [false, true] {
            let (_, text) = agrees(&plain_product(gated), opts);
            assert!(words(&text, "cp.async.") > 0, "{opts}\n{text}");
            assert!(text.contains(&format!("cp.async.wait_group {wait};")), "{opts}\n{text}");
            let [plain, guarded] = in_place(&text);
            let (some, none) = if gated { (guarded, plain) } else { (plain, guarded) };
            assert!(some >= 16 && none == 0, "{opts} gated {gated}: {some} {none}\n{text}");
            assert_eq!(words(&text, "add.rn.f32"), 0, "{opts} gated {gated}\n{text}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    let refused = |opts: &str| {
        let list = opts.split(' ').map(|o| o.parse().unwrap()).collect();
        let target = doorbell::isa::ptx::Chip::parse("sm_90a").unwrap().target();
        let ast = half_matmul(DType::F16, (64, 64, 64));
        let given = doorbell::codegen::OptChoice::Given(list);
        doorbell::codegen::compile(&ast, &target, &given, false).unwrap_err().to_string()
    };
    assert!(refused("PIPE(2,3)").contains("LOCAL, TILE or TC comes first"), "{}", refused("PIPE(2,3)"));
    assert!(refused("TC(0) PIPE(3,1)").contains("2 to 8 buffers"));
    assert!(refused("TC(0) PIPE(0,3)").contains("needs a loop of a reduction"));
}

#[test]
fn shared_memory_is_read_and_filled_without_bank_conflicts() {
    for turned in [(false, false), (true, true)] {
        let ast = product(DType::F16, Shape { size: (128, 64, 64), turned, ..PLAIN });
        let p = compiled(&ast, "sm_90a", "TC(0) UPCAST(0,4) UPCAST(1,2) LOCAL(0,2) LOCAL(0,2) UNROLL(3,2) PIPE(3,2)");
        let c = counted(&p, "sm_90a", &buffers(&ast, 1));
        assert_eq!((c.passes, c.mma), (c.fewest, 128 * 64 * 64 / (16 * 8 * 16)), "{turned:?} {c:?}");
    }
}

/// A 3x3 convolution of a padded image: the sum runs over channels and window.
pub fn half_conv((channels, h, w, outputs): (i64, i64, i64, i64)) -> UOp {
    let (o, p) = (range(outputs, 0, AxisKind::Loop), range(h * w, 1, AxisKind::Loop));
    let [c, ky, kx] = [(channels, 2), (3, 3), (3, 4)].map(|(n, id)| range(n, id, AxisKind::Reduce));
    let (y, x) = (&(&p / w) + &(&ky - &UOp::int(1)), &(&p % w) + &(&kx - &UOp::int(1)));
    let inside = |v: &UOp, n: i64| v.lt(&UOp::int(n)).and(&UOp::int(-1).lt(v));
    let image = UOp::param(1, DType::F16, (channels * h * w) as usize)
        .index_gated(&(&(&(&(&c * h) + &y) * w) + &x), &inside(&y, h).and(&inside(&x, w)))
        .load_or(&UOp::constant(DType::F16, 0.0));
    let place = &(&(&(&(&o * channels) + &c) * 3 + ky.clone()) * 3) + &kx;
    let weight = UOp::param(2, DType::F16, (outputs * channels * 9) as usize).index(&place).load();
    let sum = (&image.cast(DType::F32) * &weight.cast(DType::F32)).reduce(Op::Add, &[c, ky, kx]);
    UOp::sink([UOp::param(0, DType::F32, (outputs * h * w) as usize)
        .index(&(&(&o * (h * w)) + &p))
        .store(&sum, &[o, p])])
}

#[test]
fn a_convolution_is_a_product_whose_window_is_gathered_into_tiles() {
    let (p, text) = agrees(&half_conv((32, 6, 6, 32)), "heuristic");
    assert!(p.opts.iter().any(|o| o.starts_with("PIPE")), "{:?}", p.opts);
    assert!(text.contains("ldmatrix") && text.contains("mma.sync"));
}
