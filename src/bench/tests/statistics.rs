//! The statistics against numpy's and scipy's (`tools/references/statistics.py`).

use doorbell_bench::compare;
use doorbell_bench::stats::{Summary, bootstrap, median_interval, median_ranks, quantile, shift, sorted};
use serde::Deserialize;

#[derive(Deserialize)]
struct References {
    lists: Vec<List>,
    ranks: Vec<Ranks>,
    pairs: Vec<Pair>,
    shifts: Vec<Shift>,
    /// Quantiles of Student's t for 2 degrees of freedom and more.
    student: Vec<f64>,
}

#[derive(Deserialize)]
struct List {
    name: String,
    samples: Vec<f64>,
    quantiles: [f64; 6],
    mean: f64,
    bootstrap: (f64, f64),
    ranks: Option<(usize, usize)>,
}

#[derive(Deserialize)]
struct Ranks {
    n: usize,
    ranks: [Option<(usize, usize)>; 3],
}

#[derive(Deserialize)]
struct Pair {
    a: Vec<f64>,
    b: Vec<f64>,
    share: f64,
}

#[derive(Deserialize)]
struct Shift {
    differences: Vec<f64>,
    middle: f64,
    /// Of scipy's exact signed-rank test against 0.
    p: f64,
}

fn references() -> References {
    serde_json::from_str(include_str!("statistics.json")).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

#[test]
fn quantiles_and_mean_are_numpys() {
    for list in references().lists {
        let s = Summary::of(&list.samples).unwrap();
        let have = [s.min, s.q1, s.median, s.q3, s.p99, s.max];
        for (have, want) in have.iter().zip(list.quantiles) {
            assert!(close(*have, want), "{}: {have} {want}", list.name);
        }
        assert!(close(s.mean, list.mean) && s.n == list.samples.len(), "{}", list.name);
    }
}

#[test]
fn bootstrap_interval_is_scipys_as_far_as_its_draws_allow() {
    for list in references().lists {
        let sorted = sorted(&list.samples);
        let (low, high) = bootstrap(&sorted, 0.95, 20_000, 3);
        let room = 0.1 * (list.bootstrap.1 - list.bootstrap.0) + 1e-9;
        let near = |a: f64, b: f64| (a - b).abs() <= room;
        assert!(near(low, list.bootstrap.0) && near(high, list.bootstrap.1), "{}: {low} {high}", list.name);
        let s = Summary::of(&list.samples).unwrap();
        assert!(s.low <= s.median && s.median <= s.high, "{}", list.name);
    }
}

#[test]
fn exact_interval_has_the_ranks_of_scipys_binomial() {
    let all = references();
    for list in all.lists {
        let s = sorted(&list.samples);
        assert_eq!(median_ranks(s.len(), 0.95), list.ranks, "{}", list.name);
        assert_eq!(median_interval(&s, 0.95), list.ranks.map(|(a, b)| (s[a], s[b])), "{}", list.name);
    }
    for r in all.ranks {
        assert_eq!([0.9, 0.95, 0.99].map(|c| median_ranks(r.n, c)), r.ranks, "{}", r.n);
    }
}

#[test]
fn the_share_of_larger_pairs_is_mann_whitneys_u() {
    for pair in references().pairs {
        let (ratio, (low, high), share) = compare::ratio(&pair.a, &pair.b, 5);
        let middle = |list: &[f64]| quantile(&sorted(list), 0.5);
        assert!(close(share, pair.share), "{share} {}", pair.share);
        assert!(close(ratio, middle(&pair.b) / middle(&pair.a)) && low <= ratio && ratio <= high);
    }
}

#[test]
fn shift_of_pairs_is_scipys_signed_rank_test_turned_round() {
    for list in references().shifts {
        let holds_zero = |confidence: f64| {
            let (middle, (low, high)) = shift(&list.differences, confidence)?;
            assert!(close(middle, list.middle), "{middle} {}", list.middle);
            Some(low <= 0.0 && high >= 0.0)
        };
        // A shift of zero is out of the interval from the confidence on at which the test says so.
        let n = list.differences.len();
        assert_eq!(holds_zero(1.0 - list.p * 0.999), Some(true), "n {n}, p {}", list.p);
        assert_eq!(holds_zero(1.0 - list.p * 1.001), Some(false), "n {n}, p {}", list.p);
    }
    // Five of one sign have a probability of 1 in 16: no interval is surer.
    assert_eq!((shift(&[1.0; 5], 0.95), shift(&[1.0; 5], 0.93)), (None, Some((1.0, (1.0, 1.0)))));
}

#[test]
fn quantiles_of_students_t_are_scipys() {
    let student = references().student;
    assert_eq!(student.len(), compare::STUDENT.len());
    assert!(student.iter().zip(compare::STUDENT).all(|(want, have)| (want - have).abs() <= 5e-4), "{student:?}");
}
