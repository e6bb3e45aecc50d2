//! Large reductions to few results, in two stages: partial results that many cores can compute, then those. A variance
//! takes two stages as well, not two for its mean and two more.

use super::devices::{DeviceTraits, SMALL_WORK};
use crate::uop::{Dim, Op, UOp};

/// Input elements for one output element from which on a split pays (as tinygrad has it).
const RATIO: i64 = 32768;

/// Input elements for one output element from which on a sum of products is split: the data that all outputs read again
/// and again then stays in a cache, a block of the inputs at a time.
const DEEP: i64 = 1 << 14;
/// Input elements of one output in such a block.
const BLOCK: i64 = 1 << 11;

/// A product both sides of which are read for many outputs.
pub(crate) fn is_contraction(x: &UOp) -> bool {
    let spread = |u: &UOp| {
        let mut u = u;
        loop {
            match u.op() {
                Op::Expand => return true,
                Op::Cast | Op::Contiguous => {}
                op if op.is_movement() => {}
                _ => return false,
            }
            u = &u.src()[0];
        }
    };
    x.op() == Op::Mul && x.dtype().is_float() && x.src().iter().all(spread)
}

/// A tensor-level reduce as two, if it is large and has little else to share out on its device; itself otherwise.
pub(crate) fn split(reduce: UOp, device: &DeviceTraits) -> UOp {
    let Some(cut) = Blocks::of(&reduce, device) else { return reduce };
    let (Some(x), Some(op)) = (reduce.src().first(), reduce.reduce_op()) else { return reduce };
    if let Some(merged) = cut.squares(&reduce, x) {
        return merged;
    }
    cut.total(op, &cut.partial(op, &cut.wide(x)))
}

/// How a large reduction is cut: one of its axes into parts.
struct Blocks {
    /// The reduced axes.
    axes: Vec<usize>,
    axis: usize,
    /// Elements of one part: what one partial result is made of.
    len: i64,
    /// The shape with the parts as an axis of its own, before the rest of that axis.
    wide: Vec<i64>,
    /// The shape of the partial results, with as many axes as the input.
    kept: Vec<i64>,
}

fn sizes(d: &[i64]) -> impl Iterator<Item = UOp> + '_ {
    d.iter().map(|d| UOp::int(*d))
}

impl Blocks {
    fn of(reduce: &UOp, device: &DeviceTraits) -> Option<Blocks> {
        let x = reduce.src().first()?;
        let shape = x.shape().iter().map(Dim::as_int).collect::<Option<Vec<i64>>>()?;
        let axes: Vec<usize> = reduce.axes().iter().map(|a| *a as usize).collect();
        let size = |keep: bool| {
            let axis = |(k, d): (usize, &i64)| if axes.contains(&k) == keep { *d } else { 1 };
            shape.iter().enumerate().map(axis).fold(1i64, i64::saturating_mul)
        };
        let (inputs, outputs) = (size(true), size(false));
        let large = inputs.saturating_mul(outputs) as u64 > SMALL_WORK;
        let few = inputs >= RATIO && large && (outputs as u64) < device.few_results();
        let deep = inputs >= DEEP && (64..=1 << 17).contains(&outputs) && is_contraction(x);
        if !few && !deep {
            return None;
        }
        let factor = |d: i64| {
            if few {
                return (8..=256).rev().find(|f| d % f == 0 && d > *f);
            }
            (2..=256).find(|f| d % f == 0 && inputs / f <= BLOCK && f * outputs <= 1 << 23)
        };
        let (axis, parts) = axes.iter().find_map(|a| Some((*a, factor(shape[*a])?)))?;
        let mut wide = shape.clone();
        wide.insert(axis, parts);
        wide[axis + 1] = shape[axis] / parts;
        let kept = |(k, d): (usize, &i64)| match k {
            k if k == axis => parts,
            k if axes.contains(&k) => 1,
            _ => *d,
        };
        let kept = shape.iter().enumerate().map(kept).collect();
        Some(Blocks { axes, axis, len: inputs / parts, wide, kept })
    }

    fn wide(&self, x: &UOp) -> UOp {
        x.movement(Op::Reshape, sizes(&self.wide))
    }
    /// One result a part, with the axes of `wide`.
    fn partial(&self, op: Op, wide: &UOp) -> UOp {
        let inner: Vec<usize> = self.axes.iter().map(|a| if *a >= self.axis { a + 1 } else { *a }).collect();
        wide.reduce_axes(op, &inner)
    }
    /// The partial results with the axes of the input.
    fn narrow(&self, partial: &UOp) -> UOp {
        partial.movement(Op::Reshape, sizes(&self.kept))
    }
    fn total(&self, op: Op, partial: &UOp) -> UOp {
        self.narrow(partial).reduce_axes(op, &[self.axis])
    }

    /// A sum of squared distances to the mean of the same elements, as in a variance: each part sums the distances to
    /// its own mean, so that the whole mean is not waited for, and parts are merged by the distances of their means
    /// (Chan, Golub and LeVeque):
    /// `sum (x - mean)^2 = sum over parts of sum (x - mean of part)^2 + len * (mean of part - mean)^2`.
    /// As exact as two passes over everything, and two kernels where those would be four.
    fn squares(&self, reduce: &UOp, x: &UOp) -> Option<UOp> {
        let [d, again] = x.src() else { return None };
        let is_square = reduce.reduce_op() == Some(Op::Add) && x.op() == Op::Mul && d == again;
        let [y, all] = d.src() else { return None };
        if !is_square || d.op() != Op::Sub || all.op() != Op::Expand {
            return None;
        }
        let mean = &all.src()[0];
        let partial = self.partial(Op::Add, &self.wide(y));
        let is_mean = mean.op() == Op::FDiv && mean.src()[0] == self.total(Op::Add, &partial);
        let count = mean.src().get(1)?.as_const()?.as_f64();
        if !is_mean || count != (self.len * self.kept[self.axis]) as f64 {
            return None;
        }
        let number = UOp::constant(y.dtype(), self.len as f64);
        let wide_mean = partial.binary(Op::FDiv, &number).movement(Op::Expand, sizes(&self.wide));
        let off = self.wide(y).binary(Op::Sub, &wide_mean);
        let inside = self.total(Op::Add, &self.partial(Op::Add, &(&off * &off)));
        let part_mean = self.narrow(&partial).binary(Op::FDiv, &number);
        let apart = part_mean.binary(Op::Sub, &mean.movement(Op::Expand, sizes(&self.kept)));
        // A sum of its own: with the mean in it, the sums inside the parts would wait for the mean.
        let between = (&apart * &apart).reduce_axes(Op::Add, &[self.axis]);
        Some(&inside + &between.binary(Op::Mul, &number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uop::{BufferRef, DType};

    #[test]
    fn a_large_sum_to_a_scalar_becomes_two_and_a_small_one_stays() {
        let sum = |n: usize| UOp::buffer(DType::F32, BufferRef::new(n, "CPU".into())).reduce_axes(Op::Add, &[0]);
        let (cpu, big) = (DeviceTraits::default(), sum(1 << 20));
        let two = split(big.clone(), &cpu);
        assert_eq!(two.shape(), big.shape());
        assert_eq!(two.src()[0].src()[0].op(), Op::Reduce);
        assert_eq!(two.src()[0].shape(), [Dim::Int(256)]);
        let small = sum(1000);
        assert_eq!(split(small.clone(), &cpu), small);
    }

    #[test]
    fn a_deep_product_is_summed_in_blocks_and_a_sum_of_rows_is_not() {
        let buffer = |shape: &[i64]| {
            let n = shape.iter().product::<i64>() as usize;
            let flat = UOp::buffer(DType::F32, BufferRef::new(n, "CPU".into()));
            flat.movement(Op::Reshape, shape.iter().map(|d| UOp::int(*d)))
        };
        let wide = |x: UOp| x.movement(Op::Expand, [32, 48, 1 << 15].map(UOp::int));
        let product = &wide(buffer(&[32, 1, 1 << 15])) * &wide(buffer(&[1, 48, 1 << 15]));
        let blocks = split(product.reduce_axes(Op::Add, &[2]), &DeviceTraits::default());
        assert_eq!(blocks.shape(), [Dim::Int(32), Dim::Int(48), Dim::Int(1)]);
        assert_eq!(blocks.src()[0].shape(), [Dim::Int(32), Dim::Int(48), Dim::Int(16)]);
        let rows = (&buffer(&[128, 1 << 15]) * &buffer(&[128, 1 << 15])).reduce_axes(Op::Add, &[1]);
        assert_eq!(split(rows.clone(), &DeviceTraits::default()), rows);
    }
}
