//! Order statistics, and intervals of the median.
//!
//! Quantiles are numpy's (linear between order statistics); the bootstrap interval is the percentile method, the
//! interval by order statistics is exact for any distribution (binomial), that of pairs is Wilcoxon's.
//! `tests/statistics.rs` compares all of them with scipy's.

use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 1000;
/// Most samples that a bootstrap draws from: more do not change the interval's digits that are shown.
const MOST: usize = 2000;

/// A summary of samples. All fields have the samples' unit but `n`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub min: f64,
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
    pub p99: f64,
    pub max: f64,
    pub mean: f64,
    /// 95 % interval of the median, by bootstrap.
    pub low: f64,
    pub high: f64,
}

impl Summary {
    /// Of samples in any order; `None` without any.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let q = |p: f64| quantile(&sorted, p);
        let (low, high) = bootstrap(&sorted, 0.95, RESAMPLES, 1);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let (q1, median, q3, p99) = (q(0.25), q(0.5), q(0.75), q(0.99));
        Some(Self { n: sorted.len(), min, q1, median, q3, p99, max, mean, low, high })
    }
}

/// Sorted copies.
#[must_use]
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The quantile `p` (0 to 1) of sorted samples, linear between neighbours; NaN without samples.
#[must_use]
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = p.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let (a, b) = (sorted[below], sorted[(below + 1).min(last)]);
    a + (b - a) * (at - at.floor())
}

/// A small generator of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Draw(pub u64);

impl Draw {
    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// In 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The interval of the median by the bootstrap's percentile method.
#[must_use]
pub fn bootstrap(sorted: &[f64], confidence: f64, resamples: usize, seed: u64) -> (f64, f64) {
    if sorted.len() < 2 {
        let only = sorted.first().copied().unwrap_or(f64::NAN);
        return (only, only);
    }
    let mut draw = Draw(seed);
    let thinned: Vec<f64>;
    let from = if sorted.len() > MOST {
        thinned = (0..MOST).map(|k| quantile(sorted, k as f64 / (MOST - 1) as f64)).collect();
        &thinned
    } else {
        sorted
    };
    let mut picked = vec![0usize; from.len()];
    let mut median = || {
        picked.fill(0);
        (0..from.len()).for_each(|_| picked[draw.below(from.len())] += 1);
        counted_median(from, &picked)
    };
    let medians: Vec<f64> = (0..resamples).map(|_| median()).collect();
    let medians = self::sorted(&medians);
    let tail = (1.0 - confidence) / 2.0;
    (quantile(&medians, tail), quantile(&medians, 1.0 - tail))
}

/// The median of sorted values, each taken so many times.
fn counted_median(sorted: &[f64], times: &[usize]) -> f64 {
    let n: usize = times.iter().sum();
    let (low, high) = ((n - 1) / 2, n / 2);
    let (mut seen, mut first) = (0, None);
    for (value, count) in sorted.iter().zip(times) {
        seen += count;
        if seen > low && first.is_none() {
            first = Some(*value);
        }
        if seen > high {
            return (first.unwrap_or(*value) + value) / 2.0;
        }
    }
    f64::NAN
}

/// The interval of the median by order statistics: the narrowest pair of ranks around the middle that holds it with at
/// least this probability. `None`: there are too few samples for any.
#[must_use]
pub fn median_interval(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let (low, high) = median_ranks(sorted.len(), confidence)?;
    Some((sorted[low], sorted[high]))
}

/// Ranks (from 0) of that interval.
#[must_use]
pub fn median_ranks(n: usize, confidence: f64) -> Option<(usize, usize)> {
    let tail = (1.0 - confidence) / 2.0;
    // The binomial distribution of n draws with probability 1/2, by logarithms.
    let mut term = -(n as f64) * std::f64::consts::LN_2;
    let (mut below, mut rank) = (0.0, None);
    for k in 0..n {
        below += term.exp();
        if below > tail {
            break;
        }
        rank = Some(k);
        term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    rank.map(|k| (k, n - 1 - k))
}

/// The middle of differences of pairs and its interval: the median of the means of all two of them (Hodges and
/// Lehmann), and the means at the ranks of Wilcoxon's signed-rank distribution, exact for symmetric differences.
/// `None`: there are too few differences for this confidence.
#[must_use]
pub fn shift(differences: &[f64], confidence: f64) -> Option<(f64, (f64, f64))> {
    let n = differences.len();
    let rank = signed_rank(n, (1.0 - confidence) / 2.0)?;
    let pairs = (0..n).flat_map(|i| (i..n).map(move |j| (differences[i] + differences[j]) / 2.0));
    let means = sorted(&pairs.collect::<Vec<f64>>());
    Some((quantile(&means, 0.5), (means[rank], means[means.len() - 1 - rank])))
}

/// The largest number of which the sum of ranks with positive sign is at most that with no more than this probability.
fn signed_rank(n: usize, tail: f64) -> Option<usize> {
    // Probabilities of each sum when each rank has either sign.
    let mut chances = vec![1.0];
    for rank in 1..=n {
        let mut next = vec![0.0; chances.len() + rank];
        for (sum, chance) in chances.iter().enumerate() {
            next[sum] += chance / 2.0;
            next[sum + rank] += chance / 2.0;
        }
        chances = next;
    }
    let below = chances.iter().scan(0.0, |below, chance| {
        *below += chance;
        Some(*below)
    });
    below.take_while(|below| *below <= tail).count().checked_sub(1)
}

/// Half the width of the median's interval as a share of the median; infinite where there is none.
#[must_use]
pub fn precision(sorted: &[f64], confidence: f64) -> f64 {
    let median = quantile(sorted, 0.5);
    match median_interval(sorted, confidence) {
        Some((low, high)) if median > 0.0 => (high - low) / 2.0 / median,
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_order_statistics() {
        let s = [1.0, 2.0, 4.0, 8.0];
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|p| quantile(&s, p)), [1.0, 1.75, 3.0, 5.0, 8.0]);
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!((one.n, one.low, one.high, one.p99), (1, 3.0, 3.0, 3.0));
    }

    #[test]
    fn few_samples_have_no_exact_interval() {
        assert_eq!((median_ranks(5, 0.95), median_ranks(6, 0.95)), (None, Some((0, 5))));
        assert_eq!(precision(&[1.0; 5], 0.95), f64::INFINITY);
        assert_eq!(precision(&[1.0; 50], 0.95), 0.0);
    }
}
