//! The simplifier against known cases and against evaluation.

use super::divmod::count_nodes;
use crate::{AxisKind, ConstVal, DType, Op, UMap, UOp, eval_alu};
use smallvec::SmallVec;
use std::collections::HashMap;

/// Prefix notation → nodes. `(range0 e)` is a range with end e.
fn parse(text: &str, vars: &HashMap<&str, UOp>) -> UOp {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut pos = 0;
    let u = expr(&tokens, &mut pos, vars);
    assert_eq!(pos, tokens.len(), "{text}");
    u
}

fn expr(t: &[&str], pos: &mut usize, vars: &HashMap<&str, UOp>) -> UOp {
    let head = t[*pos];
    *pos += 1;
    if head != "(" {
        return match head {
            "true" => UOp::bool(true),
            "false" => UOp::bool(false),
            n => n.parse::<i64>().map_or_else(|_| vars[n].clone(), UOp::int),
        };
    }
    let op = t[*pos];
    *pos += 1;
    let mut a = Vec::new();
    while t[*pos] != ")" {
        a.push(expr(t, pos, vars));
    }
    *pos += 1;
    // Comparison of a bool with 0 or 1 is meant as one with false or true.
    if a.len() == 2 && a[0].dtype() != a[1].dtype() {
        a[1] = a[0].const_like(a[1].as_const().unwrap());
    }
    let alu = |op| UOp::alu(op, a.clone());
    match op {
        "+" => alu(Op::Add),
        "-" => alu(Op::Sub),
        "*" => alu(Op::Mul),
        "//" => alu(Op::FloorDiv),
        "%" => alu(Op::FloorMod),
        "<" => alu(Op::CmpLt),
        "!=" => alu(Op::CmpNe),
        "&" => alu(Op::And),
        "|" => alu(Op::Or),
        "^" => alu(Op::Xor),
        "<<" => alu(Op::Shl),
        ">>" => alu(Op::Shr),
        "max" => alu(Op::Max),
        "?" => alu(Op::Where),
        "neg" => alu(Op::Neg),
        "not" => a[0].not(),
        "int" => a[0].cast(DType::I32),
        r if r.starts_with("range") => UOp::range(&a[0], r[5..].parse().unwrap(), AxisKind::Loop),
        o => panic!("unknown {o}"),
    }
}

/// A graph in order of evaluation; sources as positions.
pub(super) struct Tape {
    nodes: Vec<(UOp, Vec<usize>)>,
}

impl Tape {
    pub(super) fn new(roots: &[UOp]) -> Tape {
        let order = crate::toposort_many(roots, |_| true);
        let at: UMap<usize> = order.iter().cloned().enumerate().map(|(k, u)| (u, k)).collect();
        Tape { nodes: order.into_iter().map(|u| (u.clone(), u.src().iter().map(|s| at[s]).collect())).collect() }
    }
    /// Value of every node; leaves that are no constants come from `leaf`, which sees the values so far.
    pub(super) fn run(&self, mut leaf: impl FnMut(&UOp, &[ConstVal], &[usize]) -> ConstVal) -> Vec<ConstVal> {
        let mut v: Vec<ConstVal> = Vec::with_capacity(self.nodes.len());
        for (x, src) in &self.nodes {
            let s: SmallVec<[ConstVal; 3]> = src.iter().map(|k| v[*k]).collect();
            let t = if x.op().is_comparison() { x.src()[0].dtype() } else { x.dtype() };
            let r = match x.op() {
                Op::Var | Op::Range => leaf(x, &v, src),
                Op::Cast => crate::cast_const(s[0], t.scalar),
                op => x.as_const().or_else(|| eval_alu(op, t.scalar, &s)).unwrap_or_else(|| panic!("{x:?}")),
            };
            v.push(r);
        }
        v
    }
    pub(super) fn position(&self, u: &UOp) -> usize {
        self.nodes.iter().position(|n| n.0 == *u).unwrap()
    }
}

/// SplitMix64: a seeded stream for choosing values and expressions.
pub(super) struct Rng(pub u64);
impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Compares the two at every assignment of the leaves when there are few, else at random ones.
/// A range takes values below its end, whatever that is under the assignment.
pub(super) fn assert_same(a: &UOp, b: &UOp, seed: u64) {
    let tape = Tape::new(&[a.clone(), b.clone()]);
    let leaves: Vec<UOp> =
        tape.nodes.iter().map(|n| n.0.clone()).filter(|u| matches!(u.op(), Op::Var | Op::Range)).collect();
    let total = leaves.iter().fold(1i128, |p, l| p.saturating_mul(l.vmax() - l.vmin() + 1));
    let exhaustive = total <= 1024;
    let (at_a, at_b) = (tape.position(a), tape.position(b));
    let mut rng = Rng(seed);
    for k in 0..if exhaustive { total } else { 200 } {
        let (mut rest, mut env) = (k, Vec::new());
        let mut possible = true;
        let v = tape.run(|l, v, src| {
            let n = l.vmax() - l.vmin() + 1;
            // The ends are where rules go wrong.
            let mut x = match rng.below(4) {
                _ if exhaustive => l.vmin() + rest % n,
                0 => l.vmin() + (rng.below(3) as i128).min(n - 1),
                1 => l.vmax() - (rng.below(3) as i128).min(n - 1),
                _ => l.vmin() + (rng.next() as i128).rem_euclid(n),
            };
            rest /= n;
            if l.op() == Op::Range {
                let end = v[src[0]].as_int().unwrap();
                possible &= end > 0;
                x = x.rem_euclid(end.max(1));
            }
            env.push((l.render(), x));
            ConstVal::Int(x)
        });
        if possible {
            let (x, y) = (v[at_a], v[at_b]);
            let inside = |u: &UOp, v: ConstVal| v.as_int().is_none_or(|i| u.vmin() <= i && i <= u.vmax());
            assert!(inside(a, x) && inside(b, y), "{} or {} leaves its bounds: {x:?}", a.render(), b.render());
            let nan = |v: ConstVal| v.as_f64().is_nan();
            if !(x == y || nan(x) && nan(y)) {
                panic!("{} -> {}: {x:?} is not {y:?} at {env:?}, seed {seed}", a.render(), b.render());
            }
        }
    }
}

#[test]
fn known_cases_keep_their_value_get_the_known_bounds_and_are_no_larger() {
    let mut bad = Vec::new();
    for line in include_str!("cases.txt").lines().filter(|l| !l.starts_with('#')) {
        let [case, vars, e, bounds, want] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let vars = variables(vars);
        let (e, want) = (parse(e, &vars), parse(want, &vars));
        let got = e.simplify();
        assert_same(&e, &got, 1);
        let b: Vec<i128> = bounds.split_whitespace().map(|x| x.parse().unwrap()).collect();
        let wide = got.vmin() < b[0] || got.vmax() > b[1];
        if wide || count_nodes(&got) > count_nodes(&want) {
            bad.push(format!(
                "{case}: {} -> {} [{}, {}], known {} {b:?}",
                e.render(),
                got.render(),
                got.vmin(),
                got.vmax(),
                want.render()
            ));
        }
    }
    assert!(bad.is_empty(), "{} worse:\n{}", bad.len(), bad.join("\n"));
}

/// A random expression of type `t` (the types of a grammar: index, one machine type, bool).
fn grow(rng: &mut Rng, t: DType, leaves: &[UOp], depth: u32) -> UOp {
    let here: Vec<&UOp> = leaves.iter().filter(|l| l.dtype() == t).collect();
    if depth == 0 || rng.below(8) == 0 {
        return match here.get(rng.below(here.len() as u64 + 1) as usize) {
            Some(l) => (*l).clone(),
            None => constant(rng, t),
        };
    }
    let sub = |rng: &mut Rng, t: DType| grow(rng, t, leaves, depth - 1);
    if t.is_bool() {
        let number = leaves[rng.below(leaves.len() as u64) as usize].dtype();
        let op = [Op::CmpLt, Op::CmpLt, Op::CmpLt, Op::CmpNe, Op::CmpEq, Op::And, Op::Or, Op::And, Op::Or, Op::Xor]
            [rng.below(10) as usize];
        let t = if op.is_comparison() { number } else { t };
        let u = UOp::alu(op, [sub(rng, t), sub(rng, t)]);
        return if rng.below(4) == 0 { u.not() } else { u };
    }
    let index = t == DType::INDEX;
    match rng.below(16) {
        0..4 => UOp::alu(Op::Add, [sub(rng, t), sub(rng, t)]),
        4 => UOp::alu(Op::Sub, [sub(rng, t), sub(rng, t)]),
        5 => UOp::alu(Op::Neg, [sub(rng, t)]),
        6 | 7 => UOp::alu(Op::Mul, [sub(rng, t), constant(rng, t)]),
        8 => UOp::alu(Op::Max, [sub(rng, t), sub(rng, t)]),
        9 => UOp::alu(Op::Where, [sub(rng, DType::BOOL), sub(rng, t), sub(rng, t)]),
        10 if !t.is_float() => UOp::alu(Op::FloorDiv, [sub(rng, t), sub(rng, t)]),
        10 => UOp::alu(Op::FDiv, [sub(rng, t), constant(rng, t)]),
        11 | 12 if index || t.is_int() => UOp::alu(Op::FloorDiv, [sub(rng, t), constant(rng, t)]),
        13 | 14 if index || t.is_int() => UOp::alu(Op::FloorMod, [sub(rng, t), constant(rng, t)]),
        15 if t.is_int() && !index => {
            let op = [Op::And, Op::Or, Op::Xor, Op::CDiv, Op::CMod][rng.below(5) as usize];
            UOp::alu(op, [sub(rng, t), sub(rng, t)])
        }
        _ => UOp::alu(Op::Mul, [sub(rng, t), sub(rng, t)]),
    }
}

fn constant(rng: &mut Rng, t: DType) -> UOp {
    if t.is_float() {
        let v = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, f64::INFINITY, f64::NAN, -2.0][rng.below(10) as usize];
        return UOp::constant(t, v);
    }
    if t.is_bool() {
        return UOp::bool(rng.below(2) == 0);
    }
    let v = match rng.below(4) {
        0 => rng.below(3) as i64 - 1,
        1 => [2, 3, 4, 6, 8, 12, 16][rng.below(7) as usize],
        _ => rng.below(30) as i64 - 8,
    };
    UOp::constant(t, v)
}

#[test]
fn random_index_expressions_keep_their_value() {
    let leaves = [UOp::var("a", 0, 7), UOp::var("b", -3, 4), UOp::var("c", 1, 5), UOp::range(6, 0, AxisKind::Loop)];
    let symbolic_end = UOp::range(&leaves[2], 1, AxisKind::Loop);
    let leaves: Vec<UOp> = leaves.into_iter().chain([symbolic_end]).collect();
    for seed in 0..rounds(2000) {
        let mut rng = Rng(seed);
        let t = if seed % 4 == 0 { DType::BOOL } else { DType::INDEX };
        let depth = 2 + rng.below(4) as u32;
        let e = grow(&mut rng, t, &leaves, depth);
        assert_same(&e, &e.simplify(), seed);
    }
}

#[test]
fn random_machine_expressions_keep_their_value() {
    for t in [DType::I8, DType::U8, DType::I32, DType::U32, DType::I64, DType::U64] {
        let v = |n, lo, hi| UOp::var(n, lo, hi).cast(t);
        let leaves = [v("a", 0, 200), v("b", -128, 127), v("c", 0, 9)];
        for seed in 0..rounds(300) {
            let mut rng = Rng(seed);
            let depth = 2 + rng.below(3) as u32;
            let e = grow(&mut rng, if seed % 5 == 0 { DType::BOOL } else { t }, &leaves, depth);
            assert_same(&e, &e.simplify(), seed);
        }
    }
}

#[test]
fn random_float_expressions_keep_nan_infinity_and_the_sign_of_zero() {
    let t = DType::F32;
    // Stand-ins for loads: a float per selector value.
    let special = [0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3.4e38, 1e-45, 7.25];
    let pick = |n: &str| {
        let s = UOp::var(n, 0, 9).cast(DType::I32);
        special.iter().enumerate().fold(UOp::constant(t, 2.0), |acc, (k, v)| {
            s.equal(&s.const_like(k as i64)).select(&UOp::constant(t, *v), &acc)
        })
    };
    let stand_ins = [
        UOp::new(Op::Contiguous, t, [UOp::int(0)], crate::Arg::None),
        UOp::new(Op::Detach, t, [UOp::int(0)], crate::Arg::None),
    ];
    let map: UMap<UOp> = stand_ins.iter().cloned().zip([pick("x"), pick("y")]).collect();
    for seed in 0..rounds(1500) {
        let mut rng = Rng(seed);
        let depth = 1 + rng.below(4) as u32;
        let e = grow(&mut rng, t, &stand_ins, depth);
        assert_same(&e.substitute(&map), &e.simplify().substitute(&map), seed);
    }
}

#[test]
fn a_fact_inside_a_loop_does_not_change_the_loop() {
    let c = UOp::var("c", 1, 5);
    let r = UOp::range(&c, 0, AxisKind::Loop);
    let given = c.equal(&UOp::int(5)).and(&r.lt(&UOp::int(3)));
    assert!(simplify_given_keeps(&given, &r), "a range's end was rewritten by its gate");
}
fn simplify_given_keeps(gate: &UOp, r: &UOp) -> bool {
    let out = super::simplify_given(gate, &(&(r * 7) + 3));
    out.contains(r) && gate.simplify().contains(r)
}

fn load(t: impl Into<DType>, slot: u32) -> UOp {
    UOp::param(slot, t.into(), 8).index(&UOp::int(i64::from(slot))).load()
}

#[test]
fn machine_types_fold_only_what_wrap_around_allows() {
    let (x, y) = (load(DType::I32, 1), load(DType::I32, 2));
    let same = [
        (&(&x + 3) + 4, &x + 7),
        (&(&x * 3) * 4, &x * 12),
        (&(&x + 3) + &y, &(&x + &y) + 3),
        (&(&x * 2) + &x, &x * 3),
        (&x - &x, x.const_like(0i64)),
        (&(&x + &y) - &x, y.clone()),
        (-&(-&x), x.clone()),
        (&(&x ^ 5) ^ 5, x.clone()),
        (&x & -1, x.clone()),
        (x.max(&x), x.clone()),
        (x.lt(&x), UOp::bool(false)),
        ((&x + 3).equal(&x.const_like(5i64)), x.equal(&x.const_like(2i64))),
    ];
    for (e, want) in same {
        assert_eq!(e.simplify(), want, "{}", e.render());
    }
    // x + 3 may wrap, so the order of x + 3 and 5 is not that of x and 2; nor is (x*4)//4 x.
    for e in [(&x + 3).lt(&x.const_like(5i64)), &(&x * 4) / 4] {
        assert_eq!(e.simplify(), e, "{}", e.render());
    }
    let bounded = UOp::var("v", 0, 10).cast(DType::I32);
    assert_eq!((&bounded + 3).lt(&bounded.const_like(5i64)).simplify(), bounded.lt(&bounded.const_like(2i64)));
    let u = UOp::var("u", 0, 255).cast(DType::U32);
    assert_eq!((&(&u & 0xffff_fffc) >> 2).simplify(), &u >> 2);
}

#[test]
fn a_machine_division_keeps_the_divisor_that_a_condition_makes_safe() {
    let (x, y) = (load(DType::I64, 0), load(DType::I64, 1));
    let (zero, one) = (UOp::constant(DType::I64, 0i64), UOp::constant(DType::I64, 1i64));
    let bad = y.equal(&zero);
    for op in [Op::CDiv, Op::CMod] {
        let q = bad.select(&zero, &x).binary(op, &bad.select(&one, &y)).simplify();
        assert!(q.op() == op && q.src()[1].op() == Op::Where, "{q:?}");
    }
}

#[test]
fn floats_keep_what_strictness_demands() {
    let x = load(DType::F32, 1);
    let c = |v: f64| UOp::constant(DType::F32, v);
    let changes = [
        (&x * &c(1.0), x.clone()),
        (&x + &c(-0.0), x.clone()),
        (&x - &c(0.0), x.clone()),
        (&x * &c(-1.0), -&x),
        (x.binary(Op::FDiv, &c(4.0)), &x * &c(0.25)),
        (&c(1.0) + &x, &x + &c(1.0)),
    ];
    for (e, want) in changes {
        assert_eq!(e.simplify(), want, "{}", e.render());
    }
    let div = |a: &UOp, b: &UOp| a.binary(Op::FDiv, b);
    for e in [&x + &c(0.0), &x * &c(0.0), &x - &x, div(&x, &x), div(&x, &c(3.0)), x.ne(&x), &(&x + &c(1.0)) + &c(2.0)] {
        assert_eq!(e.simplify(), e, "{}", e.render());
    }
    let fast = |e: &UOp| e.simplify_with(super::fast()).unwrap();
    assert_eq!(fast(&(&x * &c(0.0))), c(0.0));
    assert_eq!(fast(&(&(&x + &c(1.0)) + &c(2.0))), &x + &c(3.0));
}

#[test]
fn casts_collapse_when_the_middle_keeps_every_value() {
    let x = load(DType::I8, 1);
    assert_eq!(x.cast(DType::I32).cast(DType::F32).simplify(), x.cast(DType::F32));
    assert_eq!(x.cast(DType::I32).cast(DType::I8).simplify(), x);
    let wide = load(DType::I64, 1);
    assert_eq!(wide.cast(DType::I32).cast(DType::I8).simplify(), wide.cast(DType::I8));
    for e in [wide.cast(DType::I8).cast(DType::I64), load(DType::F64, 1).cast(DType::F32).cast(DType::F64)] {
        assert_eq!(e.simplify(), e, "narrowing is no identity");
    }
    let f = load(DType::F32, 2);
    assert_eq!(f.bitcast(DType::I32).bitcast(DType::F32).simplify(), f);
    let b = load(DType::I32, 3);
    let a = &b & 255;
    let narrow = &a.cast(DType::I64) * &a.cast(DType::I64);
    assert_eq!(narrow.simplify(), (&a * &a).cast(DType::I64));
    let overflows = &b.cast(DType::I64) * &b.cast(DType::I64);
    assert_eq!(overflows.simplify(), overflows);
}

#[test]
fn gates_that_are_known_go_and_facts_do_not_enter_loads() {
    let r = UOp::range(8, 0, AxisKind::Loop);
    let p = UOp::param(0, DType::F32, 8);
    let alt = UOp::constant(DType::F32, 2.0);
    let gated = |g: &UOp| p.index_gated(&r, g).load_or(&alt);
    assert_eq!(gated(&r.lt(&UOp::int(8))).simplify().src()[0].src().len(), 2);
    assert_eq!(gated(&r.lt(&UOp::int(0))).simplify(), alt);
    // The load is executed for every r, so the condition around it must not reach its gate.
    let cond = r.lt(&UOp::int(4));
    let e = cond.select(&gated(&cond), &alt);
    assert!(e.simplify().any(|u| u.op() == Op::Index && u.src().len() == 3), "{}", e.simplify().render());
}

#[test]
fn a_tensor_that_folds_to_a_constant_keeps_its_shape() {
    let b = UOp::buffer(DType::I32, crate::BufferRef::new(6, "CPU".into()));
    let zero = (&b * &UOp::constant(DType::I32, 0i64)).simplify();
    assert_eq!(zero.shape(), b.shape());
    assert!(!zero.contains(&b));
}

/// `DEEP=1` multiplies the number of random cases.
fn rounds(n: u64) -> u64 {
    if std::env::var_os("DEEP").is_some() { n * 50 } else { n }
}

fn variables<'a>(text: &'a str) -> HashMap<&'a str, UOp> {
    let one = |v: &'a str| {
        let p: Vec<&str> = v.split(':').collect();
        (p[0], UOp::var(p[0], p[1].parse().unwrap(), p[2].parse().unwrap()))
    };
    text.split_whitespace().map(one).collect()
}

#[test]
fn known_indices_under_a_gate_keep_their_value_there_and_are_no_larger() {
    let mut bad = Vec::new();
    for line in include_str!("valid_cases.txt").lines().filter(|l| !l.starts_with('#')) {
        let [case, vars, gate, idx, want] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let vars = variables(vars);
        let (gate, idx, want) = (parse(gate, &vars), parse(idx, &vars), parse(want, &vars));
        let got = super::simplify_given(&gate, &idx);
        let zero = UOp::int(0);
        assert_same(&gate.select(&idx, &zero), &gate.select(&got, &zero), 3);
        if count_nodes(&got) > count_nodes(&want) {
            let (i, g, w) = (idx.simplify().render(), got.render(), want.render());
            bad.push(format!("{case}: given {} {i} -> {g}, known {w}", gate.simplify().render()));
        }
    }
    assert!(bad.is_empty(), "{} worse:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn clauses_simplify_one_another_in_any_order() {
    let r0 = UOp::range(2, 0, AxisKind::Loop);
    let (v0, v1) = (r0.lt(&UOp::int(1)), (&(&(&r0 * 5) + 1) % 6).lt(&UOp::int(5)));
    assert_eq!(v0.and(&v1).simplify(), v0.simplify());
    assert_eq!(v1.and(&v0).simplify(), v0.simplify());
    let (g0, g1, r) = (UOp::var("gidx0", 0, 12), UOp::var("gidx1", 0, 12), UOp::range(4, 0, AxisKind::Loop));
    let alu = &g1 + &(&r * 13);
    let v = [
        (&(&g0 + 11) % 14).lt(&UOp::int(11)),
        (&(&alu + &(&(&g0 + 39) / 42)) % 14).lt(&UOp::int(11)),
        g0.lt(&UOp::int(3)),
        alu.lt(&UOp::int(42)),
    ];
    for k in 0..4 {
        let all = v[k].and(&v[(k + 1) % 4]).and(&v[(k + 2) % 4]).and(&v[(k + 3) % 4]);
        assert_eq!(all.simplify(), UOp::bool(false), "rotation {k}");
    }
}
