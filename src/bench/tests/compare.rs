//! The comparison on runs that are made up as a busy machine makes them: with noise, interruptions and slow drift, 200
//! comparisons of a program with itself say SLOWER or FASTER at most twice, and a delay of 3 % is found in 95 %.

use doorbell_bench::compare::{Judgement, Limits, judge, observations};
use doorbell_bench::stats::Draw;

/// A number near 0: the sum of twelve, as good as normal.
fn normal(draw: &mut Draw) -> f64 {
    (0..12).map(|_| draw.unit()).sum::<f64>() - 6.0
}

/// Samples of a run: nanoseconds around 1000, in order.
fn run(draw: &mut Draw, noise: f64, interrupted: f64, drift: f64, delay: f64) -> Vec<f64> {
    let (mut level, count) = (1.0 + 0.001 * normal(draw), 600);
    (0..count)
        .map(|_| {
            level += drift * normal(draw);
            let hit = if draw.unit() < interrupted { 1.0 + draw.unit() } else { 1.0 };
            // Noise makes a sample longer, seldom shorter.
            1000.0 * delay * level * (1.0 + noise * normal(draw).abs()) * hit
        })
        .collect()
}

/// Noise, share of interrupted samples, drift from one sample to the next.
const MACHINES: [(f64, f64, f64); 3] = [(0.005, 0.01, 0.00002), (0.02, 0.1, 0.00005), (0.01, 0.3, 0.0001)];

fn judgements(delay: f64) -> Vec<Judgement> {
    let mut draw = Draw(7);
    let one = |n: usize| {
        let (noise, interrupted, drift) = MACHINES[n % MACHINES.len()];
        let before = observations(&[run(&mut draw, noise, interrupted, drift, 1.0)]);
        let now = observations(&[run(&mut draw, noise, interrupted, drift, delay)]);
        judge(&before, &now, Limits::default()).0
    };
    (0..200).map(one).collect()
}

fn count(all: &[Judgement], which: Judgement) -> usize {
    all.iter().filter(|j| **j == which).count()
}

#[test]
fn two_hundred_comparisons_of_a_program_with_itself_hardly_ever_differ() {
    let all = judgements(1.0);
    let wrong = count(&all, Judgement::Slower) + count(&all, Judgement::Faster);
    assert!(wrong <= 2, "{wrong} of 200");
    assert!(count(&all, Judgement::Same) >= 180, "{} the same", count(&all, Judgement::Same));
}

#[test]
fn a_delay_of_three_percent_is_found_and_so_is_its_absence() {
    let found = count(&judgements(1.03), Judgement::Slower);
    assert!(found >= 190, "{found} of 200");
    let found = count(&judgements(0.97), Judgement::Faster);
    assert!(found >= 190, "{found} of 200");
}

#[test]
fn too_few_observations_are_unclear() {
    assert_eq!(judge(&[1.0, 1.0], &[2.0, 2.0, 2.0], Limits::default()).0, Judgement::Unclear);
}
