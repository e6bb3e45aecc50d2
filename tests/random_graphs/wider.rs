//! Steps that are rarer in users' programs: identities with an effect, bits read as another type, windows, products of
//! windows, and what is put at places.

use super::generate::{Growing, held, largest};
use super::program::{Along, Binary, Facts, Fold, Step, Unary};
use doorbell::tensor::prelude::*;

/// The same value, by another way through the graph.
const SAME: &[Unary] = &[
    ("detach", |x| x.detach()),
    ("contiguous_backward", |x| x.contiguous_backward()),
    ("to(\"CPU:1\").to(it)", |x| x.to("CPU:1").to(&x.device())),
];
/// The elements in another order, some of them several times, or zeros.
const MOVED: &[Along] = &[
    ("unfold(2, 1)", |x, a| x.unfold(a, 2, 1)),
    ("roll(1)", |x, a| x.roll(1, a)),
    ("roll(-2)", |x, a| x.roll(-2, a)),
    ("repeat_interleave(2)", |x, a| x.repeat_interleave(2, a)),
    ("get(slice(.., 2))", |x, a| x.transpose(0, a).get(slice(0, None, 2)).transpose(0, a)),
    ("get(slice(.., -1))", |x, a| x.transpose(0, a).get(slice(None, None, -1)).transpose(0, a)),
    ("pad_mode(reflect)", |x, a| {
        let counts: Vec<(i64, i64)> =
            (0..x.ndim().unwrap_or(0) as i64).map(|k| if k == a { (1, 1) } else { (0, 0) }).collect();
        x.pad_mode(&counts, PadMode::Reflect)
    }),
    ("diagonal", |x, a| x.diagonal(0, a, if a == 0 { -1 } else { 0 })),
    ("tril", |x, _| x.tril(0)),
    ("triu", |x, _| x.triu(1)),
    ("max of pairs", |x, a| x.unfold(a, 2, 2).max(-1)),
];
const PROD: Fold = ("prod", |x, a| x.prod(a));
const TO_BITS: &[(Scalar, Scalar)] = &[
    (Scalar::I32, Scalar::U8),
    (Scalar::I64, Scalar::I32),
    (Scalar::I64, Scalar::U8),
    (Scalar::U8, Scalar::I32),
    (Scalar::I32, Scalar::I64),
    (Scalar::I32, Scalar::U32),
    (Scalar::U32, Scalar::I32),
];
/// Powers of bases from 1 on by exponents within 1.
const POWER: Binary = ("square().add(1.0).pow(that.tanh())", |a, b| a.square().add(1.0).pow(&b.tanh()));
const SLOPES: &[Unary] = &[("tan of a third of the sigmoid", |x| x.sigmoid().div(3.0).tan())];

impl Growing<'_> {
    pub(super) fn wider(&mut self, x: usize) -> Option<usize> {
        let n = self.nodes[x].clone();
        let rank = n.shape.len();
        match self.r.below(8) {
            0 | 1 => {
                let same = *self.r.pick(SAME);
                self.put(Step::Unary(same), vec![x], n.facts)
            }
            2 | 3 if rank > 0 => {
                let (f, axis) = (*self.r.pick(MOVED), self.r.below(rank) as i64);
                self.put(Step::Along(f, axis), vec![x], n.facts)
            }
            4 if n.dtype.is_int() => self.bits(x),
            4 if n.dtype.is_float() => self.smooth(x),
            5 if rank > 0 && n.dtype.is_int() => {
                let axes = self.axes(rank);
                self.put(Step::Fold(PROD, axes), vec![x], Facts { size: largest(n.dtype), grid: 0, error: 0.0 })
            }
            6 => self.convolved(x),
            _ => self.power(x),
        }
    }

    /// The bits of integers as other integers.
    fn bits(&mut self, x: usize) -> Option<usize> {
        let from = self.nodes[x].dtype;
        let to: Vec<Scalar> = TO_BITS.iter().filter(|(a, _)| *a == from).map(|(_, b)| *b).collect();
        if to.is_empty() {
            return None;
        }
        let to = *self.r.pick(&to);
        self.put(Step::Bitcast(to), vec![x], Facts { size: largest(to), grid: 0, error: 0.0 })
    }

    fn smooth(&mut self, x: usize) -> Option<usize> {
        let n = &self.nodes[x];
        let facts = held(Facts { size: 1.0, grid: 99, error: n.facts.error }, n.dtype, 40.0 + n.facts.size)?;
        let f = *self.r.pick(SLOPES);
        self.put(Step::Unary(f), vec![x], facts)
    }

    /// A base below 16 keeps the error of the logarithm in it small.
    fn power(&mut self, x: usize) -> Option<usize> {
        let n = self.nodes[x].clone();
        if !n.dtype.is_float() || n.dtype == Scalar::F16 || n.facts.size > 4.0 {
            return None;
        }
        let y = self.leaf_of(n.shape.clone(), n.dtype);
        let error = n.facts.error * 10.0 + self.nodes[y].facts.error * 60.0;
        let facts = held(Facts { size: 17.0, grid: 99, error }, n.dtype, 100.0)?;
        self.put(Step::Binary(POWER), vec![x, y], facts)
    }

    /// A convolution over the last axis.
    fn convolved(&mut self, x: usize) -> Option<usize> {
        let n = self.nodes[x].clone();
        let [_, channels, length] = n.shape[..] else { return None };
        if n.dtype == Scalar::Bool || channels > 5 || length < 2 {
            return None;
        }
        let y = self.leaf_of(vec![2, channels, 2], n.dtype);
        let y_facts = self.nodes[y].facts;
        let mut one = n;
        one.facts = Facts {
            size: one.facts.size * y_facts.size,
            grid: one.facts.grid + y_facts.grid,
            error: one.facts.error * y_facts.size,
        };
        let facts = self.summed(&one, 2 * channels)?;
        self.put(Step::Conv, vec![x, y], facts)
    }
}
