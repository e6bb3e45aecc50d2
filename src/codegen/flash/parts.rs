//! An attention's kernel graph, taken apart.

use super::super::affine::AffineMemo;
use super::super::program::alignment;
use doorbell_uop::{AxisKind, ConstVal, DType, Op, Scalar, Srcs, UMap, UOp};

/// An operand in memory, by its position.
pub(super) struct Operand {
    pub address: UOp,
    /// The position without the two loops below.
    pub base: UOp,
    /// Elements between rows (of keys, queries or the result), and between columns.
    pub strides: [i64; 2],
}

impl Operand {
    /// The operand of a load or store at this index, whose rows and columns these loops count.
    pub(super) fn of(index: &UOp, loops: [&UOp; 2]) -> Option<Operand> {
        let [address, at] = index.src() else { return None };
        let mut memo = AffineMemo::default();
        let mut sum = memo.of(at).clone();
        let strides = loops.map(|r| sum.coef(r));
        sum.terms.retain(|(t, _)| loops.iter().all(|r| **r != *t));
        // A loop inside of another term is no stride.
        let plain = sum.terms.iter().all(|(t, _)| !loops.iter().any(|r| t.contains(r)));
        plain.then(|| Operand { address: address.clone(), base: sum.build(), strides })
    }
    pub(super) fn is_same(&self, o: &Operand) -> bool {
        self.address == o.address && self.base == o.base && self.strides == o.strides
    }
    pub(super) fn scalar(&self) -> Scalar {
        self.address.dtype().scalar
    }
    /// How many elements, at most `most`, lie beside each other and can be read at once, at any multiple of their
    /// number.
    pub(super) fn piece(&self, most: i64) -> i64 {
        let aligned = i64::from(alignment(&self.base));
        let fits = |n: &i64| *n <= most && *n <= aligned && self.strides[0] % n == 0;
        [8, 4, 2].into_iter().find(fits).filter(|_| self.strides[1] == 1).unwrap_or(1)
    }
    /// Whether it is better copied to scratch memory first: its elements have to be converted, or its rows lie so far
    /// apart that a block of them does not stay in the first-level cache.
    pub(super) fn is_crowded(&self, columns: i64) -> bool {
        self.scalar() != Scalar::F32 || self.strides[0] != columns || self.strides[1] != 1
    }
}

/// What an attention kernel computes, for each query `row` of each combination of the `outer` loops: the scores of all
/// keys, their softmax, and the sum of the rows of values with these weights.
pub(super) struct Parts {
    /// The loops around an attention, with their sizes.
    pub outer: Vec<(UOp, i64)>,
    pub row: UOp,
    pub rows: i64,
    /// The loop over keys in the score.
    pub key_loop: UOp,
    pub keys: i64,
    pub depth_len: i64,
    /// Columns of the values and of the result, if there is one.
    pub columns: i64,
    pub query: Operand,
    pub key: Operand,
    pub value: Option<Operand>,
    pub out: Option<Operand>,
    /// Where the logarithms of the sums of weights are stored, to base 2.
    pub log_sums: Option<Operand>,
    /// The score, and the product of query and key in it.
    pub score: UOp,
    pub product: UOp,
    /// Factor of the score in the exponent to base 2.
    pub factor: f64,
    /// Scores of keys beyond `row + n` are -inf.
    pub causal: Option<i64>,
    /// Loads of the score that lie in memory as the scores would: a row for each query, its keys beside each other.
    pub masks: Vec<(UOp, Operand)>,
}

pub(super) fn bare(u: &UOp) -> &UOp {
    let mut u = u;
    while u.op() == Op::Cast && u.dtype().is_float() && u.src()[0].dtype().is_float() {
        u = &u.src()[0];
    }
    u
}
pub(super) fn sum_over(u: &UOp) -> Option<(&UOp, &UOp)> {
    let [x, r] = u.src() else { return None };
    (u.op() == Op::Reduce && u.reduce_op() == Some(Op::Add)).then_some((x, r))
}
pub(super) fn length(r: &UOp) -> Option<i64> {
    r.src()[0].as_int()
}
pub(super) fn factors(u: &UOp) -> Option<[&UOp; 2]> {
    let [a, b] = u.src() else { return None };
    (u.op() == Op::Mul).then_some([bare(a), bare(b)])
}
/// The index of a load without a gate.
pub(super) fn index(u: &UOp) -> Option<&UOp> {
    (u.op() == Op::Load && u.src().len() == 1).then(|| &u.src()[0])
}

impl Parts {
    pub(super) fn of(ast: &UOp) -> Option<Parts> {
        let is_log_sum = |s: &&UOp| bare(&s.src()[1]).op() == Op::Add;
        let (log_sums, results): (Vec<&UOp>, Vec<&UOp>) = ast.src().iter().partition(is_log_sum);
        match (&results[..], &log_sums[..]) {
            ([result], []) => Parts::of_result(result),
            ([], [log_sum]) => Parts::of_log_sum(log_sum),
            ([result], [log_sum]) => {
                let (whole, parts) = (Parts::of_result(result)?, Parts::of_log_sum(log_sum)?);
                (whole.row == parts.row && whole.keys == parts.keys).then_some(())?;
                Some(Parts { log_sums: parts.log_sums, ..whole })
            }
            _ => None,
        }
    }

    fn of_result(store: &UOp) -> Option<Parts> {
        let loops = &store.src()[2..];
        let (weighted, at) = sum_over(bare(&store.src()[1]))?;
        let [a, b] = factors(weighted)?;
        // Only the weights depend on a row.
        let (weight, value) = if a.op() == Op::Load { (b, a) } else { (a, b) };
        let (value_at, weight) = (index(value)?, bare(weight));
        let [e, _] = (weight.op() == Op::FDiv).then(|| weight.src())? else { return None };
        let last = |r: &&UOp| value_at.contains(r) && !weight.contains(r);
        let column = loops.iter().rev().find(last).cloned()?;
        let around: Vec<UOp> = loops.iter().filter(|r| **r != column).cloned().collect();
        let parts = Parts::of_powers(bare(e), at, &around)?;
        let out = Operand::of(&store.src()[0], [&parts.row, &column])?;
        (out.strides[1] == 1 && weighted.dtype().scalar == Scalar::F32).then_some(())?;
        let value = Operand::of(value_at, [at, &column])?;
        Some(Parts { columns: length(&column)?, value: Some(value), out: Some(out), ..parts })
    }

    /// `log2(sum(e)) + m`, where m is the largest exponent.
    fn of_log_sum(store: &UOp) -> Option<Parts> {
        let [a, b] = bare(&store.src()[1]).src() else { return None };
        let log = [a, b].into_iter().find(|x| x.op() == Op::Log2)?;
        let (e, at) = sum_over(bare(&log.src()[0]))?;
        let parts = Parts::of_powers(bare(e), at, &store.src()[2..])?;
        let out = Operand::of(&store.src()[0], [&parts.row, &parts.row])?;
        Some(Parts { log_sums: Some(out), ..parts })
    }

    /// The scores in `2^((score - most) * factor)`, over these keys.
    fn of_powers(power: &UOp, at: &UOp, loops: &[UOp]) -> Option<Parts> {
        let power = power.src().first().filter(|_| power.op() == Op::Exp2)?;
        let [off, factor] = (power.op() == Op::Mul).then(|| power.src())? else { return None };
        let factor = factor.as_const().map(ConstVal::as_f64)?;
        let [score, most] = (off.op() == Op::Sub).then(|| off.src())? else { return None };
        if most.op() != Op::Reduce || most.reduce_op() != Some(Op::Max) {
            return None;
        }
        let product = score.toposort().into_iter().find(|u| sum_over(u).is_some())?;
        let (pair, along) = sum_over(&product)?;
        let sides = factors(pair)?;
        let [x, y] = [index(sides[0])?, index(sides[1])?];
        let (query_at, key_at) = if y.contains(at) && !x.contains(at) { (x, y) } else { (y, x) };
        let row = loops.iter().rev().find(|r| query_at.contains(r) && !key_at.contains(r)).cloned()?;
        if query_at.contains(at) || loops.iter().any(|r| r.range_arg().is_none_or(|a| a.kind != AxisKind::Loop)) {
            return None;
        }
        let outer = loops.iter().filter(|r| **r != row);
        [&product, score].iter().all(|u| u.dtype().scalar == Scalar::F32).then_some(())?;
        Some(Parts {
            outer: outer.map(|r| Some((r.clone(), length(r)?))).collect::<Option<_>>()?,
            rows: length(&row)?,
            keys: length(at)?,
            depth_len: length(along)?,
            columns: 0,
            query: Operand::of(query_at, [&row, along])?,
            key: Operand::of(key_at, [at, along])?,
            value: None,
            out: None,
            log_sums: None,
            causal: hidden_beyond(score, &row, at),
            masks: masks(score, &product, [&row, at]),
            key_loop: at.clone(),
            score: score.clone(),
            product: product.clone(),
            factor,
            row,
        })
    }
}

fn masks(score: &UOp, product: &UOp, loops: [&UOp; 2]) -> Vec<(UOp, Operand)> {
    let operands = product.toposort();
    let outside = score.toposort().into_iter().filter(|u| !operands.contains(u));
    let mask = |u: UOp| {
        let at = index(&u).filter(|at| loops.iter().all(|r| at.contains(r)))?;
        let lies = Operand::of(at, loops).filter(|o| o.strides[1] == 1)?;
        Some((u, lies))
    };
    outside.filter_map(mask).collect()
}

impl Parts {
    /// The score in f32 all through, without rounding to half types in between.
    pub(super) fn wide_score(&self) -> UOp {
        widened(&self.score, &self.product, &mut UMap::default())
    }
}

/// A value in f32 all through, down to this product.
pub(super) fn widened(u: &UOp, product: &UOp, known: &mut UMap<UOp>) -> UOp {
    if !u.dtype().is_float() || u == product {
        return u.clone();
    }
    if let Some(done) = known.get(u) {
        return done.clone();
    }
    let made = match (u.op(), u.src(), u.as_const()) {
        (Op::Cast, [x], _) if x.dtype().is_float() => widened(x, product, known),
        (_, _, Some(c)) => UOp::constant(DType::of(Scalar::F32), c.as_f64()),
        (op, src, _) if op.is_alu() => UOp::alu(op, src.iter().map(|s| widened(s, product, known)).collect::<Srcs>()),
        _ => u.cast(Scalar::F32),
    };
    known.insert(u.clone(), made.clone());
    made
}

/// A score as a positive factor of something else, which -inf stays -inf with.
pub(super) fn unscaled(score: &UOp) -> (UOp, f64) {
    let plain = || (score.clone(), 1.0);
    let factor = |u: &UOp| u.as_const().map(ConstVal::as_f64).filter(|c| *c > 0.0 && c.is_finite());
    match (score.op(), score.src()) {
        (Op::Mul, [x, c]) | (Op::FDiv, [x, c]) => {
            let Some(c) = factor(c) else { return plain() };
            let (x, n) = unscaled(x);
            (x, if score.op() == Op::Mul { n * c } else { n / c })
        }
        (Op::Where, [keep, x, low]) if is_lowest(low) => {
            let (x, n) = unscaled(x);
            (keep.select(&x, &x.const_like(f64::NEG_INFINITY)), n)
        }
        _ => plain(),
    }
}

/// The score without the condition that hides keys beyond `row + n`, where it holds.
pub(super) fn seen(score: &UOp, row: &UOp, key: &UOp) -> UOp {
    match (score.op(), score.src()) {
        (Op::Where, [c, x, low]) if is_lowest(low) && beyond(c, row, key).is_some() => seen(x, row, key),
        (Op::Where, [c, x, low]) if is_lowest(low) => c.select(&seen(x, row, key), low),
        (Op::Add | Op::Cast, src) => score.with_src(src.iter().map(|s| seen(s, row, key)).collect::<Srcs>()),
        _ => score.clone(),
    }
}

fn is_lowest(u: &UOp) -> bool {
    bare(u).as_const().is_some_and(|c| c.as_f64() == f64::NEG_INFINITY)
}

/// `n`, if scores of keys beyond `row + n` are -inf whatever else they depend on.
pub(super) fn hidden_beyond(score: &UOp, row: &UOp, key: &UOp) -> Option<i64> {
    let mut todo = vec![score];
    while let Some(u) = todo.pop() {
        match (u.op(), u.src()) {
            (Op::Cast, [x]) => todo.push(x),
            // -inf stays -inf when something finite is added, subtracted or multiplied by something positive.
            (Op::Add, [a, b]) => todo.extend([a, b]),
            (Op::Sub, [a, _]) => todo.push(a),
            (Op::Mul, [a, c]) if c.as_const().is_some_and(|c| c.as_f64() > 0.0) => todo.push(a),
            (Op::Where, [c, x, low]) if is_lowest(low) => match beyond(c, row, key) {
                Some(n) => return Some(n),
                None => todo.push(x),
            },
            _ => {}
        }
    }
    None
}

/// `n`, if the condition fails for keys beyond `row + n`: `not row + n < key`.
fn beyond(condition: &UOp, row: &UOp, key: &UOp) -> Option<i64> {
    let [less, truth] = (condition.op() == Op::CmpNe).then(|| condition.src())? else { return None };
    let [a, b] = (less.op() == Op::CmpLt && truth.as_const() == Some(ConstVal::Bool(true))).then(|| less.src())? else {
        return None;
    };
    let plain = |u: &UOp| if u.op() == Op::Cast { u.src()[0].clone() } else { u.clone() };
    let mut memo = AffineMemo::default();
    let apart = memo.of(&(&plain(b) - &plain(a))).clone();
    let both = apart.terms.len() == 2 && apart.coef(key) == 1 && apart.coef(row) == -1;
    both.then_some(-apart.constant)
}
