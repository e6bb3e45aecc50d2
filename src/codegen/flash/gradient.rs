//! The kernel graph of an attention's gradient, taken apart.
//!
//! The gradients of queries, keys and values are all sums of weighted rows, where a weight is computed from products of
//! rows: a gradient of the values is `sum(P * g)` over the queries, with `P` the weights of the attention and `g` the
//! gradient of its result; a gradient of keys or queries is `sum(D * q)` over the queries or `sum(D * k)` over the
//! keys, with `D = P * (g . v - mean) / sqrt(depth)`. `P` is `2^(score * factor - log_sum)`: nothing is rescaled.
//!
//! So a kernel has rows, which it computes sums for, and others, which it goes through: keys for the gradient of
//! queries, queries for those of keys and values, which one kernel computes since the weights are the same.

use super::parts::{Operand, bare, factors, hidden_beyond, index, length, seen, sum_over, unscaled, widened};
use doorbell_uop::{AxisKind, Op, Srcs, UMap, UOp};

/// A product of a row and another, summed along both.
pub(super) struct Pair {
    pub product: UOp,
    pub row: Operand,
    pub other: Operand,
    pub len: i64,
}

/// A result: the sum over others of their rows with these weights.
pub(super) struct Sum {
    pub weight: UOp,
    /// What the sum is multiplied by at the end.
    pub factor: f64,
    /// The pair whose others they are: 0, that of the scores; 1, that of the results.
    pub of: usize,
    pub columns: i64,
    pub out: Operand,
}

pub(super) struct Gradient {
    /// The loops around rows, with their sizes.
    pub outer: Vec<(UOp, i64)>,
    /// The loops around the others of a row: the results are summed over these as well.
    pub around: Vec<(UOp, i64)>,
    pub row: UOp,
    pub rows: i64,
    pub other: UOp,
    pub others: i64,
    /// Queries and keys; and, where their product occurs, what the result's gradient and values are. Of the latter
    /// there may be the others alone.
    pub scores: Pair,
    pub results: Option<Pair>,
    /// The others that the sums of the values' gradient are of.
    pub given: Option<Operand>,
    /// `2^exponent`, the weights of the attention.
    pub power: UOp,
    pub exponent: UOp,
    /// The exponent in f32 all through; and the same without the condition of `causal`, where it holds.
    pub wide: [UOp; 2],
    /// Rows are queries.
    pub by_query: bool,
    /// Scores of keys after `query + n` are -inf.
    pub causal: Option<i64>,
    pub sums: Vec<Sum>,
}

/// A store, taken apart.
struct Part {
    loops: Vec<UOp>,
    others: Vec<UOp>,
    weight: UOp,
    value: UOp,
    at: UOp,
}

impl Part {
    fn of(store: &UOp) -> Option<Part> {
        let (mut u, mut others) = (bare(&store.src()[1]), Vec::new());
        while let Some((x, r)) = sum_over(u) {
            others.push(r.clone());
            u = bare(x);
        }
        let [a, b] = factors(u)?;
        let (weight, value) = if a.op() == Op::Load { (b, a) } else { (a, b) };
        let loops = store.src()[2..].to_vec();
        let at = store.src()[0].clone();
        Some(Part { loops, others, weight: bare(weight).clone(), value: index(value)?.clone(), at })
    }

    /// The same with the loops over others of `o`.
    fn with_loops_of(self, o: &Part) -> Part {
        let map = self.others.iter().cloned().zip(o.others.iter().cloned()).filter(|(a, b)| a != b).collect();
        let [weight, value] = [&self.weight, &self.value].map(|u| u.substitute(&map));
        Part { others: o.others.clone(), weight, value, ..self }
    }
}

/// `score * factor - log_sum` with one factor, in one operation.
fn scaled_once(exponent: &UOp, change: impl Fn(UOp) -> UOp) -> UOp {
    let (Op::Sub, [score, log_sum]) = (exponent.op(), exponent.src()) else { return exponent.clone() };
    let (score, factor) = unscaled(score);
    let score = change(score);
    let minus = log_sum.binary(Op::Mul, &log_sum.const_like(-1.0));
    UOp::alu(Op::MulAcc, [score.clone(), score.const_like(factor), minus].into_iter().collect::<Srcs>())
}

impl Gradient {
    /// The gradient that a kernel computes, and that of the others, if it computes both.
    pub(super) fn of(ast: &UOp) -> Option<(Gradient, Option<Gradient>)> {
        let stores: Vec<&UOp> = ast.src().iter().collect();
        if let Some(all) = Gradient::of_stores(&stores) {
            return Some((all, None));
        }
        (0..stores.len()).find_map(|k| {
            let mut rest = stores.clone();
            let of_others = Gradient::of_stores(&[rest.remove(k)])?;
            let all = Gradient::of_stores(&rest)?;
            let turned = all.scores.row.is_same(&of_others.scores.other)
                && all.scores.other.is_same(&of_others.scores.row)
                && all.outer == of_others.outer;
            turned.then_some((all, Some(of_others)))
        })
    }

    fn of_stores(stores: &[&UOp]) -> Option<Gradient> {
        let mut parts = stores.iter().map(|s| Part::of(s)).collect::<Option<Vec<Part>>>()?;
        // The one with both products first.
        parts.sort_by_key(|p| std::cmp::Reverse(p.weight.toposort().iter().filter(|u| sum_over(u).is_some()).count()));
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        let rest: Vec<Part> = parts.map(|p| p.with_loops_of(&first)).collect();
        let other = first.others.last()?;
        // A column is in the value that is summed alone, a row in the weights alone.
        let columns = std::iter::once(&first)
            .chain(&rest)
            .map(|p| p.loops.iter().rev().find(|r| p.value.contains(r) && !p.weight.contains(r)).cloned())
            .collect::<Option<Vec<UOp>>>()?;
        let nodes = first.weight.toposort();
        let power = nodes.iter().find(|u| u.op() == Op::Exp2)?.clone();
        let inside = power.toposort();
        let row = first.loops.iter().rev().find(|r| power.contains(r) && !first.value.contains(r)).cloned()?;
        let pair = |product: &UOp| {
            let (x, along) = sum_over(product)?;
            let sides = factors(x)?;
            let [a, b] = [index(sides[0])?, index(sides[1])?];
            let (mine, others) = if a.contains(&row) { (a, b) } else { (b, a) };
            (!mine.contains(other) && !others.contains(&row)).then_some(())?;
            Some(Pair {
                product: product.clone(),
                row: Operand::of(mine, [&row, along])?,
                other: Operand::of(others, [other, along])?,
                len: length(along)?,
            })
        };
        let products = || nodes.iter().filter(|u| sum_over(u).is_some());
        let scores = pair(products().find(|u| inside.contains(u))?)?;
        let results = match products().find(|u| !inside.contains(u)) {
            Some(product) => Some(pair(product)?),
            None => None,
        };
        let mut given = None;
        let mut sums = Vec::new();
        for (part, column) in std::iter::once(&first).chain(&rest).zip(&columns) {
            let same = [&first.weight, &power].contains(&&part.weight) && part.loops.contains(&row);
            (part.others == first.others && same).then_some(())?;
            let value = Operand::of(&part.value, [other, column])?;
            let out = Operand::of(&part.at, [&row, column])?;
            (out.strides[1] == 1).then_some(())?;
            let of = usize::from(!value.is_same(&scores.other));
            if of == 1 {
                results.as_ref().is_none_or(|r| value.is_same(&r.other)).then_some(())?;
                given = Some(value);
            }
            let (weight, factor) = unscaled(&part.weight);
            sums.push(Sum { weight, factor, of, columns: length(column)?, out });
        }
        let all = first.loops.iter().chain(&first.others);
        if all.clone().any(|r| r.range_arg().is_none_or(|a| !matches!(a.kind, AxisKind::Loop | AxisKind::Reduce))) {
            return None;
        }
        let exponent = &power.src()[0];
        let hidden = [(&row, other), (other, &row)].map(|(q, k)| hidden_beyond(exponent, q, k));
        let wide = widened(exponent, &scores.product, &mut UMap::default());
        let (query, key) = if hidden[1].is_none() { (&row, other) } else { (other, &row) };
        let sized = |r: &UOp| Some((r.clone(), length(r)?));
        let outer = first.loops.iter().filter(|r| **r != row && !columns.contains(r));
        Some(Gradient {
            outer: outer.map(sized).collect::<Option<_>>()?,
            around: first.others[..first.others.len() - 1].iter().map(sized).collect::<Option<_>>()?,
            rows: length(&row)?,
            others: length(other)?,
            by_query: hidden[1].is_none(),
            causal: hidden[0].or(hidden[1]),
            other: other.clone(),
            scores,
            results,
            given,
            exponent: scaled_once(exponent, |score| score),
            wide: [scaled_once(&wide, |score| score), scaled_once(&wide, |score| seen(&score, query, key))],
            power,
            sums,
            row,
        })
    }

    /// Whether the weights of a result are those of the attention.
    pub(super) fn is_plain(&self, sum: &Sum) -> bool {
        sum.weight == self.power
    }
    /// What is read for a row, whatever the other is.
    pub(super) fn of_rows(&self) -> Vec<UOp> {
        let nodes = self.wide.iter().chain(self.sums.iter().map(|s| &s.weight)).flat_map(UOp::toposort);
        let of_row = |u: &UOp| u.op() == Op::Load && u.contains(&self.row) && !u.contains(&self.other);
        let inside = [Some(&self.scores), self.results.as_ref()];
        let is_operand = |u: &UOp| inside.into_iter().flatten().any(|p| p.product.contains(u));
        let mut found: Vec<UOp> = Vec::new();
        for u in nodes.filter(|u| of_row(u) && !is_operand(u)) {
            if !found.contains(&u) {
                found.push(u);
            }
        }
        found
    }
    /// All operands and results.
    pub(super) fn operands(&self) -> impl Iterator<Item = &Operand> {
        let pairs = [Some(&self.scores), self.results.as_ref()].into_iter().flatten();
        pairs.flat_map(|p| [&p.row, &p.other]).chain(&self.given).chain(self.sums.iter().map(|s| &s.out))
    }
    /// The others of a pair.
    pub(super) fn others_of(&self, which: usize) -> Option<&Operand> {
        match (which, &self.results) {
            (0, _) => Some(&self.scores.other),
            (_, Some(pair)) => Some(&pair.other),
            (_, None) => self.given.as_ref(),
        }
    }
    /// Elements of a row of these others.
    pub(super) fn len_of(&self, which: usize) -> i64 {
        let sum = || self.sums.iter().find(|s| s.of == 1).map_or(0, |s| s.columns);
        if which == 0 { self.scores.len } else { self.results.as_ref().map_or_else(sum, |p| p.len) }
    }
}
