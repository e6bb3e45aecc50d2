//! Seeded random graphs: values of schedules against the reference interpreter.

use crate::graphs::*;
use doorbell::uop::{Op, UOp};

struct Rng(u64);
impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

const MAX_LEN: i64 = 600;

/// One more node on top of `pool`.
fn grow(r: &mut Rng, pool: &[UOp]) -> UOp {
    let x = pool[r.below(pool.len())].clone();
    let s = ints(&x);
    let n = s.len();
    let numel: i64 = s.iter().product();
    let axis = if n > 0 { r.below(n) } else { 0 };
    match r.below(12) {
        0 | 1 if n > 0 => [sum(&x, &[axis]), mean(&x, &[axis])][r.below(2)].clone(),
        2 if n > 0 => max(&x, &[axis]),
        3 if n > 1 => {
            let mut order: Vec<usize> = (0..n).collect();
            order.swap(axis, r.below(n));
            x.permute(&order)
        }
        4 if n > 0 => {
            let spans: Vec<_> = s.iter().map(|_| (r.below(2) as i64, r.below(3) as i64)).collect();
            let grown: i64 = s.iter().zip(&spans).map(|(d, p)| d + p.0 + p.1).product();
            if grown <= MAX_LEN { pad(&x, &spans) } else { x }
        }
        5 if n > 0 => {
            let span = |r: &mut Rng, d: i64| {
                let a = r.below(d as usize) as i64;
                (a, a + 1 + r.below((d - a) as usize) as i64)
            };
            shrink(&x, &s.iter().map(|d| span(r, *d)).collect::<Vec<_>>())
        }
        6 if n > 0 => x.flip(&[axis]),
        7 => {
            // Split the size into other factors.
            let mut left = numel;
            let mut d = Vec::new();
            for f in [2, 3, 4, 5] {
                if left % f == 0 && r.below(2) == 0 {
                    d.push(f);
                    left /= f;
                }
            }
            d.insert(r.below(d.len() + 1), left);
            reshape(&x, &d)
        }
        8 if n > 0 && s.contains(&1) => {
            let d: Vec<i64> = s.iter().map(|d| if *d == 1 { 1 + r.below(4) as i64 } else { *d }).collect();
            if d.iter().product::<i64>() <= MAX_LEN { expand(&x, &d) } else { x }
        }
        9 if r.below(3) == 0 => contiguous(&x),
        9 | 10 => {
            let y = pool.iter().filter(|y| fits(&ints(y), &s)).collect::<Vec<_>>();
            let y = y[r.below(y.len())].clone();
            op([Op::Add, Op::Mul, Op::Max, Op::Sub][r.below(4)], &[&x, &y])
        }
        _ => mul(&relu(&x), &num(0.5)),
    }
}

/// Whether two shapes broadcast to something small.
fn fits(a: &[i64], b: &[i64]) -> bool {
    let rank = a.len().max(b.len());
    let at = |s: &[i64], k: usize| s.len().checked_sub(k + 1).map_or(1, |i| s[i]);
    let dims: Vec<(i64, i64)> = (0..rank).map(|k| (at(a, k), at(b, k))).collect();
    dims.iter().all(|(x, y)| x == y || *x == 1 || *y == 1)
        && dims.iter().map(|(x, y)| x.max(y)).product::<i64>() <= MAX_LEN
}

#[test]
fn random_graphs_have_the_values_of_the_reference() {
    let base = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let seeds = base.map_or(0..150u64, |s| s..s + 1);
    for seed in seeds {
        println!("SEED={seed}");
        let mut r = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut pool = vec![input(&[4, 6]), input(&[6]), input(&[4, 1]), input(&[2, 3, 4])];
        for _ in 0..4 + r.below(16) {
            let u = grow(&mut r, &pool);
            pool.push(u);
        }
        let count = 1 + r.below(3);
        let roots: Vec<UOp> = (0..count).map(|k| pool[pool.len() - 1 - k].clone()).collect();
        check(&roots);
    }
}
