//! The simplifier against known cases and against evaluation.

use super::count_nodes;
use crate::uop::{AxisKind, ConstVal, DType, Op, UMap, UOp, eval_alu};
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

/// Value of `u` with leaves from `env`.
pub(super) fn eval(u: &UOp, env: &UMap<ConstVal>) -> ConstVal {
    let mut v: UMap<ConstVal> = UMap::default();
    for x in u.toposort() {
        let s: Vec<ConstVal> = x.src().iter().map(|s| v[s]).collect();
        let r = match (env.get(&x).copied(), x.as_const()) {
            (Some(c), _) | (_, Some(c)) => c,
            _ if x.op() == Op::Cast => crate::uop::cast_const(s[0], x.dtype().scalar),
            _ => {
                let t = if x.op().is_comparison() { x.src()[0].dtype() } else { x.dtype() };
                eval_alu(x.op(), t.scalar, &s).unwrap_or_else(|| panic!("{x:?}"))
            }
        };
        v.insert(x, r);
    }
    v[u]
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
    let order = UOp::sink([a.clone(), b.clone()]).toposort();
    let leaves: Vec<UOp> = order.into_iter().filter(|u| matches!(u.op(), Op::Var | Op::Range)).collect();
    let sizes: Vec<i128> = leaves.iter().map(|l| l.vmax() - l.vmin() + 1).collect();
    let total = sizes.iter().fold(1i128, |p, s| p.saturating_mul(*s));
    let exhaustive = total <= 2048;
    let mut rng = Rng(seed);
    for k in 0..if exhaustive { total } else { 300 } {
        let mut env: UMap<ConstVal> = UMap::default();
        let mut rest = k;
        let mut possible = true;
        for (l, n) in leaves.iter().zip(&sizes) {
            let mut v = if exhaustive {
                l.vmin() + rest % n
            } else {
                // The ends are where rules go wrong.
                match rng.below(4) {
                    0 => l.vmin() + (rng.below(3) as i128).min(n - 1),
                    1 => l.vmax() - (rng.below(3) as i128).min(n - 1),
                    _ => l.vmin() + (rng.next() as i128).rem_euclid(*n),
                }
            };
            rest /= n;
            if l.op() == Op::Range {
                let end = eval(&l.src()[0], &env).as_int().unwrap();
                if v >= end {
                    possible &= !exhaustive && end > 0;
                    v = v.rem_euclid(end.max(1));
                }
            }
            env.insert(l.clone(), ConstVal::Int(v));
        }
        if possible {
            let (x, y) = (eval(a, &env), eval(b, &env));
            assert!(x == y, "{} -> {}: {x:?} is not {y:?} at {env:?}", a.render(), b.render());
        }
    }
}

#[test]
fn known_cases_keep_their_value_get_the_known_bounds_and_are_no_larger() {
    let mut bad = Vec::new();
    for line in include_str!("cases.txt").lines().filter(|l| !l.starts_with('#')) {
        let [case, vars, e, bounds, want] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let vars: HashMap<&str, UOp> = vars
            .split_whitespace()
            .map(|v| {
                let p: Vec<&str> = v.split(':').collect();
                (p[0], UOp::var(p[0], p[1].parse().unwrap(), p[2].parse().unwrap()))
            })
            .collect();
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
