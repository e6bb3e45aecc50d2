//! Random programs whose results have a known tolerance.
//!
//! Inputs are small multiples of a quarter, so that most arithmetic is exact and must agree to the bit. Each value
//! carries a bound of its size and of how far two right evaluations may differ; what jumps (comparisons, rounding,
//! casts to integers) is only done to exact values.

use super::program::{Along, Binary, Facts, Fold, Node, Program, Rng, Step, Unary};
use doorbell::tensor::prelude::*;

pub const SIZES: &[usize] = &[1, 2, 3, 5, 8, 17, 33];
/// Largest value of a program, and largest product of sizes inside a matmul.
const MAX_LEN: usize = 600;
const MAX_WORK: usize = 3000;
/// Floats stay below this.
const MAX_FLOAT: f64 = 4096.0;

/// Arithmetic that is as good as its sources: exact where they are.
const FLOAT_EXACT: &[Unary] = &[("neg", |x| x.neg()), ("abs", |x| x.abs()), ("relu", |x| x.relu())];
/// Jumps: for exact sources only.
const FLOAT_JUMPS: &[Unary] = &[
    ("floor", |x| x.floor()),
    ("ceil", |x| x.ceil()),
    ("trunc", |x| x.trunc()),
    ("round", |x| x.round()),
    ("sign", |x| x.sign()),
];
/// Results within 1 and slopes within 1.
const FLOAT_SMOOTH: &[Unary] = &[
    ("sin", |x| x.sin()),
    ("cos", |x| x.cos()),
    ("sigmoid", |x| x.sigmoid()),
    ("tanh", |x| x.tanh()),
    ("erf", |x| x.erf()),
    ("square().add(1.0).recip", |x| x.square().add(1.0).recip()),
    ("square().add(1.0).rsqrt", |x| x.square().add(1.0).rsqrt()),
    ("square().neg().exp", |x| x.square().neg().exp()),
];
/// Results within the size plus 1, slopes within 2.
const FLOAT_LINEAR: &[Unary] = &[
    ("gelu", |x| x.gelu()),
    ("silu", |x| x.silu()),
    ("square().add(1.0).sqrt", |x| x.square().add(1.0).sqrt()),
    ("square().add(1.0).log", |x| x.square().add(1.0).log()),
    ("softplus", |x| x.softplus()),
    ("leaky_relu(0.1)", |x| x.leaky_relu(0.1)),
];
const INT_UNARY: &[Unary] = &[
    ("neg", |x| x.neg()),
    ("abs", |x| x.abs()),
    ("bitnot", |x| x.bitnot()),
    ("sign", |x| x.sign()),
    ("relu", |x| x.relu()),
];
const ARITHMETIC: &[Binary] = &[
    ("add", |a, b| a.add(b)),
    ("sub", |a, b| a.sub(b)),
    ("mul", |a, b| a.mul(b)),
    ("maximum", |a, b| a.maximum(b)),
    ("minimum", |a, b| a.minimum(b)),
];
const INT_BINARY: &[Binary] =
    &[("bitand", |a, b| a.bitand(b)), ("bitor", |a, b| a.bitor(b)), ("bitxor", |a, b| a.bitxor(b))];
const INT_DIVIDE: &[Binary] = &[
    ("div_floor", |a, b| a.div_floor(b)),
    ("div_trunc", |a, b| a.div_trunc(b)),
    ("modulo", |a, b| a.modulo(b)),
    ("fmod", |a, b| a.fmod(b)),
];
const DIVIDE: Binary = ("div(1.0 + that²)", |a, b| a.div(&b.square().add(1.0)));
const COMPARE: &[Binary] = &[
    ("lt", |a, b| a.lt(b)),
    ("le", |a, b| a.le(b)),
    ("eq", |a, b| a.eq(b)),
    ("ne", |a, b| a.ne(b)),
    ("gt", |a, b| a.gt(b)),
];
const FOLDS: &[Fold] = &[
    ("sum", |x, a| x.sum(a)),
    ("sum_keep", |x, a| x.sum_keep(a)),
    ("max", |x, a| x.max(a)),
    ("min_keep", |x, a| x.min_keep(a)),
    ("mean", |x, a| x.mean(a)),
    ("mean_keep", |x, a| x.mean_keep(a)),
];
const BOOL_FOLDS: &[Fold] = &[("any", |x, a| x.any(a)), ("all", |x, a| x.all(a)), ("sum", |x, a| x.sum(a))];
const SOFTMAX: &[Along] = &[("softmax", |x, a| x.softmax(a))];
const CUMSUM: Along = ("cumsum", |x, a| x.cumsum(a));
/// The same values in another arrangement.
const ORDERED: &[Along] = &[
    ("cummax", |x, a| x.cummax(a).0),
    ("sort", |x, a| x.sort(a, false).0),
    ("sort descending", |x, a| x.sort(a, true).0),
];
const ARGS: &[Along] = &[
    ("argmax", |x, a| x.argmax(a)),
    ("argmin", |x, a| x.argmin(a)),
    ("argsort", |x, a| x.argsort(a, false)),
    ("cummin places", |x, a| x.cummin(a).1),
];

const DTYPES: &[Scalar] = &[
    Scalar::F32,
    Scalar::F32,
    Scalar::F32,
    Scalar::F32,
    Scalar::F32,
    Scalar::F64,
    Scalar::F16,
    Scalar::I32,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::Bool,
];

/// The program of a seed; smaller for smaller `sizes` and `steps`.
pub fn program(seed: u64, sizes: &[usize], steps: usize) -> Program {
    let mut g = Growing { r: Rng(seed), sizes, nodes: Vec::new(), made: Vec::new(), dead: Vec::new() };
    for _ in 0..1 + g.r.below(3) {
        g.leaf();
    }
    let want = g.nodes.len() + 1 + g.r.below(steps);
    for _ in 0..20 * steps {
        if g.nodes.len() >= want {
            break;
        }
        g.grow();
    }
    let last = g.nodes.len() - 1;
    let mut outputs = vec![last];
    for k in 0..last {
        let unused = !g.nodes.iter().any(|n| n.src.contains(&k));
        if matches!(g.nodes[k].step, Step::Assign) || (unused && g.r.one_in(2)) || g.r.one_in(8) {
            outputs.push(k);
        }
    }
    // An input that is assigned to later is no output: its handle stands for the new value.
    outputs.retain(|k| !g.dead.contains(k));
    let assigns = g.nodes.iter().any(|n| matches!(n.step, Step::Assign));
    Program { nodes: g.nodes, outputs, together: assigns || !g.r.one_in(4) }.pruned()
}

pub(super) struct Growing<'a> {
    pub(super) r: Rng,
    sizes: &'a [usize],
    pub(super) nodes: Vec<Node>,
    pub(super) made: Vec<Tensor>,
    /// Inputs that have been assigned to.
    dead: Vec<usize>,
}

pub(super) fn epsilon(t: Scalar) -> f64 {
    match t {
        Scalar::F16 => 2f64.powi(-11),
        Scalar::F64 => 2f64.powi(-53),
        _ => 2f64.powi(-24),
    }
}

pub(super) fn largest(t: Scalar) -> f64 {
    match t {
        Scalar::Bool => 1.0,
        Scalar::U8 => 255.0,
        Scalar::I32 | Scalar::U32 => 2f64.powi(32),
        Scalar::I64 | Scalar::U64 => 2f64.powi(64),
        _ => MAX_FLOAT,
    }
}

/// The facts once the value is held in `t`; `None`: too large for comfort.
pub(super) fn held(f: Facts, t: Scalar, rounds: f64) -> Option<Facts> {
    if !t.is_float() {
        return Some(Facts { size: f.size.min(largest(t)), grid: 0, error: 0.0 });
    }
    if !(f.size <= MAX_FLOAT && f.error <= 0.1) {
        return None;
    }
    if f.error == 0.0 && f.grid < 60 && f.size * 2f64.powi(f.grid) <= 0.5 / epsilon(t) {
        return Some(f);
    }
    Some(Facts { size: f.size, grid: 99, error: f.error + 2.0 * rounds * epsilon(t) * f.size.max(1e-3) })
}

fn len(shape: &[usize]) -> usize {
    shape.iter().product()
}

impl Growing<'_> {
    fn shape(&mut self) -> Vec<usize> {
        loop {
            let rank = *self.r.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
            let s: Vec<usize> = (0..rank).map(|_| *self.r.pick(self.sizes)).collect();
            if len(&s) <= MAX_LEN {
                return s;
            }
        }
    }

    fn leaf(&mut self) {
        if self.r.one_in(10) {
            let n = *self.r.pick(self.sizes);
            self.put(Step::Arange(n), vec![], Facts { size: n as f64, grid: 0, error: 0.0 });
            return;
        }
        let shape = self.shape();
        let dtype = *self.r.pick(DTYPES);
        self.leaf_of(shape, dtype);
    }

    pub(super) fn leaf_of(&mut self, shape: Vec<usize>, dtype: Scalar) -> usize {
        let (low, high, step) = bounds(dtype);
        let facts = Facts { size: high as f64 * step, grid: 2, error: 0.0 };
        let step = if self.r.one_in(12) {
            Step::Full { shape, value: self.r.below(3) as f64, dtype }
        } else {
            Step::Input { seed: self.r.next(), low, high, step, shape, dtype }
        };
        self.put(step, vec![], facts).unwrap_or(0)
    }

    /// Integers that are positions of an axis of `n`, or just outside.
    fn index(&mut self, shape: Vec<usize>, n: usize) -> Option<usize> {
        let dtype = *self.r.pick(&[Scalar::I32, Scalar::I64]);
        let n = n as i64;
        let step = Step::Input { seed: self.r.next(), low: -n - 1, high: n, step: 1.0, shape, dtype };
        self.put(step, vec![], Facts { size: n as f64 + 1.0, grid: 0, error: 0.0 })
    }

    /// Adds the node if the Tensor has no fault and is small enough.
    pub(super) fn put(&mut self, step: Step, src: Vec<usize>, facts: Facts) -> Option<usize> {
        let sources: Vec<&Tensor> = src.iter().map(|s| &self.made[*s]).collect();
        let t = step.build(&sources);
        let shape: Vec<usize> = t.shape().ok()?.iter().map(|d| d.max() as usize).collect();
        let dtype = t.dtype().ok()?.strong();
        if len(&shape) > MAX_LEN || shape.len() > 5 {
            return None;
        }
        self.nodes.push(Node { step, src, shape, dtype, facts });
        self.made.push(t);
        Some(self.nodes.len() - 1)
    }

    /// A node to build on: a late one rather than an early one.
    fn any(&mut self) -> usize {
        loop {
            let n = self.nodes.len();
            let k = if self.r.one_in(3) { self.r.below(n) } else { n - 1 - self.r.below(n.min(3)) };
            if !self.dead.contains(&k) {
                return k;
            }
        }
    }

    /// Another node that broadcasts with `a`, made if there is none.
    fn partner(&mut self, a: usize) -> usize {
        for _ in 0..4 {
            let b = self.any();
            if fits(&self.nodes[a].shape, &self.nodes[b].shape) {
                return b;
            }
        }
        let mut shape = self.nodes[a].shape.clone();
        for d in &mut shape {
            if self.r.one_in(4) {
                *d = 1;
            }
        }
        let skip = if self.r.one_in(4) { self.r.below(shape.len() + 1) } else { 0 };
        let dtype = if self.r.one_in(3) { *self.r.pick(DTYPES) } else { self.nodes[a].dtype };
        self.leaf_of(shape.split_off(skip), dtype)
    }

    fn grow(&mut self) -> Option<usize> {
        let x = self.any();
        match self.r.below(23) {
            0..=3 => self.unary(x),
            4..=7 => self.binary(x),
            8 => self.compare(x),
            9 => self.select(x),
            10 => self.cast(x),
            11..=14 => self.movement(x),
            15 | 16 => self.fold(x),
            17 => self.along(x),
            18 => self.product(x),
            19..=21 => self.wider(x),
            _ => self.join(x),
        }
    }

    fn unary(&mut self, x: usize) -> Option<usize> {
        let (f, t) = (self.nodes[x].facts, self.nodes[x].dtype);
        if t == Scalar::Bool {
            return self.put(Step::Unary(("logical_not", |x| x.logical_not())), vec![x], f);
        }
        if !t.is_float() {
            if self.r.one_in(2) {
                let u = *self.r.pick(INT_UNARY);
                return self.put(Step::Unary(u), vec![x], Facts { size: largest(t), ..f });
            }
            let name = *self.r.pick(&["add", "mul", "div_floor", "div_trunc", "modulo", "shl", "shr"]);
            let n = 1 + self.r.below(7) as i64;
            let n = if !unsigned(t) && !name.starts_with("sh") && self.r.one_in(3) { -n } else { n };
            return self.put(Step::Scalar(name, n), vec![x], Facts { size: largest(t), ..f });
        }
        let (u, f) = match self.r.below(4) {
            0 => (*self.r.pick(FLOAT_EXACT), f),
            1 if f.error == 0.0 => (*self.r.pick(FLOAT_JUMPS), Facts { size: f.size + 1.0, grid: 0, error: 0.0 }),
            2 => {
                let facts = held(Facts { size: 1.0, grid: 99, error: f.error }, t, wear(t, f.size))?;
                (*self.r.pick(FLOAT_SMOOTH), facts)
            }
            _ => {
                let facts = held(Facts { size: f.size + 1.0, grid: 99, error: 2.0 * f.error }, t, wear(t, f.size))?;
                (*self.r.pick(FLOAT_LINEAR), facts)
            }
        };
        self.put(Step::Unary(u), vec![x], f)
    }

    fn binary(&mut self, a: usize) -> Option<usize> {
        let b = self.partner(a);
        let (x, y) = (self.nodes[a].facts, self.nodes[b].facts);
        let t = Scalar::promote(self.nodes[a].dtype, self.nodes[b].dtype).strong();
        if t == Scalar::Bool || (!t.is_float() && self.r.one_in(3)) {
            let list = if t != Scalar::Bool && self.r.one_in(2) { INT_DIVIDE } else { INT_BINARY };
            let op = *self.r.pick(list);
            return self.put(Step::Binary(op), vec![a, b], Facts { size: largest(t), grid: 0, error: 0.0 });
        }
        if t.is_float() && self.r.one_in(5) {
            let error = x.error + 2.0 * x.size * y.error;
            let facts = held(Facts { size: x.size, grid: 99, error }, t, 8.0 + y.size)?;
            return self.put(Step::Binary(DIVIDE), vec![a, b], facts);
        }
        let op = *self.r.pick(ARITHMETIC);
        let facts = if op.0 == "mul" {
            let error = x.error * y.size + y.error * x.size + x.error * y.error;
            Facts { size: x.size * y.size, grid: x.grid + y.grid, error }
        } else {
            Facts { size: x.size + y.size, grid: x.grid.max(y.grid), error: x.error + y.error }
        };
        let facts = if t.is_float() {
            held(facts, t, 2.0)?
        } else {
            Facts { size: facts.size.min(largest(t)), ..held(facts, t, 1.0)? }
        };
        let facts = if !t.is_float() && (facts.size >= largest(t) || t == Scalar::U8) {
            Facts { size: largest(t), ..facts }
        } else {
            facts
        };
        self.put(Step::Binary(op), vec![a, b], facts)
    }

    fn compare(&mut self, a: usize) -> Option<usize> {
        let b = self.partner(a);
        let exact = self.nodes[a].facts.error == 0.0 && self.nodes[b].facts.error == 0.0;
        // Both sides are promoted to one type first: an integer must survive that.
        let t = Scalar::promote(self.nodes[a].dtype, self.nodes[b].dtype).strong();
        let safe = !t.is_float() || [a, b].iter().all(|k| self.nodes[*k].facts.size * 4.0 <= 0.5 / epsilon(t));
        if !exact || !safe {
            return None;
        }
        let op = *self.r.pick(COMPARE);
        self.put(Step::Binary(op), vec![a, b], Facts { size: 1.0, grid: 0, error: 0.0 })
    }

    fn select(&mut self, a: usize) -> Option<usize> {
        let b = self.partner(a);
        let known = (0..self.nodes.len()).rev().find(|k| {
            self.nodes[*k].dtype == Scalar::Bool
                && fits(&self.nodes[*k].shape, &self.nodes[a].shape)
                && !self.dead.contains(k)
        });
        let c = match known {
            Some(k) => k,
            None => {
                let shape = self.nodes[a].shape.clone();
                self.leaf_of(shape, Scalar::Bool)
            }
        };
        let (x, y) = (self.nodes[a].facts, self.nodes[b].facts);
        let t = Scalar::promote(self.nodes[a].dtype, self.nodes[b].dtype).strong();
        let facts = Facts { size: x.size.max(y.size), grid: x.grid.max(y.grid), error: x.error.max(y.error) };
        let facts = held(facts, t, 1.0)?;
        self.put(Step::Where, vec![c, a, b], facts)
    }

    fn cast(&mut self, x: usize) -> Option<usize> {
        let (f, from) = (self.nodes[x].facts, self.nodes[x].dtype);
        let to = *self.r.pick(DTYPES);
        if from.is_float() && !to.is_float() && f.error != 0.0 {
            return None;
        }
        if from.is_float() && to == Scalar::U8 {
            return None; // a negative float has no u8
        }
        let size = if to.is_float() || f.size <= largest(to) && !unsigned(to) { f.size } else { largest(to) };
        let facts = held(Facts { size, ..f }, to, 1.0)?;
        self.put(Step::Cast(to), vec![x], facts)
    }

    fn movement(&mut self, x: usize) -> Option<usize> {
        let (f, shape) = (self.nodes[x].facts, self.nodes[x].shape.clone());
        let rank = shape.len();
        let step = match self.r.below(8) {
            0 => Step::Reshape(self.reshaped(&shape)),
            1 | 2 if rank > 0 => {
                let mut order: Vec<i64> = (0..rank as i64).collect();
                for k in (1..rank).rev() {
                    order.swap(k, self.r.below(k + 1));
                }
                Step::Permute(order)
            }
            3 => {
                let mut to: Vec<usize> =
                    shape.iter().map(|d| if *d == 1 { *self.r.pick(self.sizes) } else { *d }).collect();
                if rank < 4 && self.r.one_in(2) {
                    to.insert(0, *self.r.pick(self.sizes));
                }
                Step::Expand(to)
            }
            4 if rank > 0 => Step::Pad((0..rank).map(|_| (self.r.below(3) as i64, self.r.below(3) as i64)).collect()),
            5 if rank > 0 => {
                let keep = shape.iter().map(|d| {
                    let a = self.r.below(*d);
                    (a as i64, (a + 1 + self.r.below(d - a)) as i64)
                });
                Step::Shrink(keep.collect())
            }
            6 if rank > 0 => Step::Flip(self.axes(rank)),
            _ => return self.effect(x),
        };
        self.put(step, vec![x], f)
    }

    /// A copy in memory, or an assignment to an input.
    fn effect(&mut self, x: usize) -> Option<usize> {
        let f = self.nodes[x].facts;
        let target = (0..self.nodes.len()).find(|k| {
            let n = &self.nodes[*k];
            matches!(n.step, Step::Input { .. })
                && n.shape == self.nodes[x].shape
                && n.dtype == self.nodes[x].dtype
                && *k != x
                && !self.dead.contains(k)
        });
        match target {
            Some(k) if self.r.one_in(2) => {
                self.dead.push(k);
                self.put(Step::Assign, vec![k, x], f)
            }
            _ => self.put(Step::Contiguous, vec![x], f),
        }
    }

    fn reshaped(&mut self, shape: &[usize]) -> Vec<usize> {
        let mut out = shape.to_vec();
        match self.r.below(4) {
            0 => vec![len(shape)],
            1 if out.len() >= 2 => {
                let k = self.r.below(out.len() - 1);
                let d = out.remove(k);
                out[k] *= d;
                out
            }
            2 if out.iter().any(|d| *d > 1) => {
                let k = out.iter().position(|d| *d > 1).unwrap_or(0);
                let p = (2..=out[k]).find(|p| out[k].is_multiple_of(*p)).unwrap_or(1);
                out[k] /= p;
                out.insert(if self.r.one_in(2) { k } else { k + 1 }, p);
                out
            }
            _ => {
                out.insert(self.r.below(shape.len() + 1), 1);
                out
            }
        }
    }

    pub(super) fn axes(&mut self, rank: usize) -> Vec<i64> {
        let mut out: Vec<i64> = (0..rank as i64).filter(|_| self.r.one_in(2)).collect();
        if out.is_empty() {
            out.push(self.r.below(rank) as i64);
        }
        out
    }

    fn fold(&mut self, x: usize) -> Option<usize> {
        let n = self.nodes[x].clone();
        if n.shape.is_empty() {
            return None;
        }
        let axes = self.axes(n.shape.len());
        let count: usize = axes.iter().map(|a| n.shape[*a as usize]).product();
        let fold = *self.r.pick(if n.dtype == Scalar::Bool { BOOL_FOLDS } else { FOLDS });
        let facts = match fold.0 {
            "sum" | "sum_keep" => self.summed(&n, count)?,
            "mean" | "mean_keep" => {
                let t = if n.dtype.is_float() { n.dtype } else { Scalar::F32 };
                held(Facts { grid: 99, ..n.facts }, t, 2.0 + count as f64)?
            }
            _ => n.facts,
        };
        self.put(Step::Fold(fold, axes), vec![x], facts)
    }

    pub(super) fn summed(&self, n: &Node, count: usize) -> Option<Facts> {
        let c = count as f64;
        let f = Facts { size: n.facts.size * c, grid: n.facts.grid, error: n.facts.error * c };
        let f = if n.dtype.is_float() { held(f, n.dtype, c)? } else { f };
        // Integers may wrap.
        Some(if n.dtype.is_float() { f } else { Facts { size: f.size.max(largest(n.dtype)), grid: 0, error: 0.0 } })
    }

    fn along(&mut self, x: usize) -> Option<usize> {
        let n = self.nodes[x].clone();
        if n.shape.is_empty() || n.dtype == Scalar::Bool {
            return None;
        }
        let axis = self.r.below(n.shape.len());
        let size = n.shape[axis];
        let (f, facts) = match self.r.below(5) {
            0 if n.dtype.is_float() => {
                let facts = Facts { size: 1.0, grid: 99, error: 3.0 * n.facts.error };
                (*self.r.pick(SOFTMAX), held(facts, n.dtype, 16.0 + n.facts.size + size as f64)?)
            }
            1 if n.facts.error == 0.0 => (*self.r.pick(ARGS), Facts { size: size as f64, grid: 0, error: 0.0 }),
            2 => (*self.r.pick(ORDERED), n.facts),
            _ => (CUMSUM, self.summed(&n, size)?),
        };
        self.put(Step::Along(f, axis as i64), vec![x], facts)
    }

    fn product(&mut self, x: usize) -> Option<usize> {
        let a = self.nodes[x].clone();
        let k = *a.shape.last()?;
        if a.dtype == Scalar::Bool {
            return None;
        }
        let m = *self.r.pick(self.sizes);
        if len(&a.shape) * m > MAX_WORK {
            return None;
        }
        let mut shape = vec![k, m];
        if a.shape.len() == 3 && self.r.one_in(2) {
            shape.insert(0, a.shape[0]);
        }
        let y = self.leaf_of(shape, a.dtype);
        let b = self.nodes[y].facts;
        let one = Node {
            facts: Facts { size: a.facts.size * b.size, grid: a.facts.grid + b.grid, error: a.facts.error * b.size },
            ..a
        };
        let facts = self.summed(&one, k)?;
        self.put(Step::Matmul, vec![x, y], facts)
    }

    fn join(&mut self, x: usize) -> Option<usize> {
        let n = self.nodes[x].clone();
        let rank = n.shape.len();
        let axis = self.r.below(rank.max(1));
        if rank > 0 && self.r.one_in(2) {
            let mut shape = n.shape.clone();
            if self.r.one_in(2) {
                shape[axis] = *self.r.pick(self.sizes);
                let i = self.index(shape, n.shape[axis])?;
                return self.put(Step::Gather(axis as i64), vec![x, i], n.facts);
            }
            let size = *self.r.pick(self.sizes);
            let i = self.index(vec![size], n.shape[0])?;
            return self.put(Step::Pick, vec![x, i], n.facts);
        }
        let same = (0..self.nodes.len()).find(|k| {
            let o = &self.nodes[*k];
            o.shape == n.shape && o.dtype == n.dtype && *k != x && !self.dead.contains(k)
        });
        let other = match same {
            Some(k) => k,
            None => {
                let mut shape = n.shape.clone();
                if rank > 0 && self.r.one_in(2) {
                    shape[axis] = *self.r.pick(self.sizes);
                }
                self.leaf_of(shape, n.dtype)
            }
        };
        let o = self.nodes[other].facts;
        let facts =
            Facts { size: n.facts.size.max(o.size), grid: n.facts.grid.max(o.grid), error: n.facts.error.max(o.error) };
        let both = if self.r.one_in(2) { vec![x, other] } else { vec![other, x] };
        if rank == 0 || (self.nodes[other].shape == n.shape && self.r.one_in(2)) {
            let at = self.r.below(rank + 1) as i64;
            return self.put(Step::Stack(at), both, facts);
        }
        self.put(Step::Cat(axis as i64), both, facts)
    }
}

fn unsigned(t: Scalar) -> bool {
    matches!(t, Scalar::U8 | Scalar::U32 | Scalar::U64)
}

/// Roundings that a composed function may make; half floats go through each of them.
fn wear(t: Scalar, size: f64) -> f64 {
    if t == Scalar::F16 { 12.0 + size } else { 24.0 + 2.0 * size }
}

/// Low, high and step of the inputs of a type.
pub fn bounds(t: Scalar) -> (i64, i64, f64) {
    match t {
        Scalar::Bool => (0, 1, 1.0),
        Scalar::U8 | Scalar::U32 | Scalar::U64 => (0, 255, 1.0),
        t if t.is_float() => (-8, 8, 0.25),
        _ => (-9, 9, 1.0),
    }
}

fn fits(a: &[usize], b: &[usize]) -> bool {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], k: usize| s.len().checked_sub(k + 1).map_or(1, |i| s[i]);
    let dims: Vec<(usize, usize)> = (0..rank).map(|k| (at(a, k), at(b, k))).collect();
    dims.iter().all(|(x, y)| x == y || *x == 1 || *y == 1)
        && dims.iter().map(|(x, y)| x.max(y)).product::<usize>() <= MAX_LEN
}
