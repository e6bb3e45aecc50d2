//! The comparisons on runs that are made up as a shared machine makes them: noise, interruptions, drift within a run
//! and from run to run, a level of its own for each process (2 % about the mean, as 50 runs of 9 cases on such a
//! machine had). 200 comparisons of a program with itself say SLOWER or FASTER at most twice; in turns a delay of 3 %
//! is found in 95 %.

use doorbell_bench::compare::{Judgement, Limits, judge, observations};
use doorbell_bench::paired::{self, LOOKS};
use doorbell_bench::stats::Draw;

/// A number near 0: the sum of twelve, as good as normal.
fn normal(draw: &mut Draw) -> f64 {
    (0..12).map(|_| draw.unit()).sum::<f64>() - 6.0
}

/// A machine of which processes and times differ.
struct Machine {
    draw: Draw,
    /// Its speed now.
    level: f64,
    noise: f64,
    interrupted: f64,
    /// Drift from one sample to the next.
    drift: f64,
    /// Change from one process to the next.
    between: f64,
}

impl Machine {
    fn all() -> [Self; 3] {
        let of = |noise, interrupted, drift, between, seed| Self {
            draw: Draw(seed),
            level: 1.0,
            noise,
            interrupted,
            drift,
            between,
        };
        [of(0.005, 0.01, 0.00002, 0.001, 7), of(0.02, 0.1, 0.00005, 0.02, 8), of(0.01, 0.3, 0.0001, 0.02, 9)]
    }

    /// Samples of a process: nanoseconds around 1000, in order.
    fn process(&mut self, count: usize, delay: f64) -> Vec<f64> {
        // The machine comes back to its mean, slowly.
        self.level = 1.0 + 0.7 * (self.level - 1.0) + 0.7 * self.between * normal(&mut self.draw);
        let (own, mut drift) = (1.0 + 0.7 * self.between * normal(&mut self.draw), 1.0);
        (0..count)
            .map(|_| {
                drift += self.drift * normal(&mut self.draw);
                let hit = if self.draw.unit() < self.interrupted { 1.0 + self.draw.unit() } else { 1.0 };
                // Noise makes a sample longer, seldom shorter.
                1000.0 * delay * self.level * own * drift * (1.0 + self.noise * normal(&mut self.draw).abs()) * hit
            })
            .collect()
    }

    /// A record's observations.
    fn record(&mut self, delay: f64) -> Vec<f64> {
        observations(&[self.process(600, delay)])
    }

    /// A case of two programs in turns.
    fn turns(&mut self, delay: f64) -> Judgement {
        let level = |samples: &[f64]| observations(&[samples.to_vec()]).iter().sum::<f64>();
        let mut pairs = Vec::new();
        for pair in 0..LOOKS[LOOKS.len() - 1] {
            let is_newer_first = pair % 2 == 1;
            let first = level(&self.process(60, if is_newer_first { delay } else { 1.0 }));
            let second = level(&self.process(60, if is_newer_first { 1.0 } else { delay }));
            pairs.push(if is_newer_first { (second, first) } else { (first, second) });
            if LOOKS.contains(&pairs.len()) {
                let judgement = paired::judge(&pairs, Limits::default()).0;
                if judgement != Judgement::Unclear {
                    return judgement;
                }
            }
        }
        Judgement::Unclear
    }
}

/// How often each of `judgement`'s answers is `which`, in 200.
fn count(which: &[Judgement], mut judgement: impl FnMut(&mut Machine) -> Judgement) -> usize {
    let mut machines = Machine::all();
    (0..200).filter(|n| which.contains(&judgement(&mut machines[n % 3]))).count()
}

const CHANGED: [Judgement; 2] = [Judgement::Slower, Judgement::Faster];

#[test]
fn two_hundred_comparisons_of_a_program_with_itself_hardly_ever_differ() {
    let wrong = count(&CHANGED, |m| m.turns(1.0));
    assert!(wrong <= 2, "{wrong} of 200 in turns");
    let one_record = |m: &mut Machine| judge(&[m.record(1.0)], &m.record(1.0), Limits::default()).0;
    let wrong = count(&CHANGED, one_record);
    assert!(wrong <= 2, "{wrong} of 200 with one record");
    let several = |m: &mut Machine| {
        let before: Vec<_> = (0..8).map(|_| m.record(1.0)).collect();
        judge(&before, &m.record(1.0), Limits::default()).0
    };
    let wrong = count(&CHANGED, several);
    assert!(wrong <= 2, "{wrong} of 200 with several records");
    let same = count(&[Judgement::Same], |m| m.turns(1.0));
    assert!(same >= 180, "{same} of 200 the same");
}

#[test]
fn in_turns_a_delay_of_three_percent_is_found_and_so_is_its_absence() {
    let found = count(&[Judgement::Slower], |m| m.turns(1.03));
    assert!(found >= 190, "{found} of 200");
    let found = count(&[Judgement::Faster], |m| m.turns(1.0 / 1.03));
    assert!(found >= 190, "{found} of 200");
}

#[test]
fn between_records_a_change_is_found_that_is_larger_than_what_runs_differ_by() {
    let found = count(&[Judgement::Slower], |m| judge(&[m.record(1.0)], &m.record(1.25), Limits::default()).0);
    assert!(found >= 190, "{found} of 200 with one record");
    // On the steady machine alone: several records say that it is steady.
    let mut steady = Machine::all().into_iter().next().unwrap();
    let mut several = || {
        let before: Vec<_> = (0..8).map(|_| steady.record(1.0)).collect();
        judge(&before, &steady.record(1.03), Limits::default()).0
    };
    let found = (0..100).filter(|_| several() == Judgement::Slower).count();
    assert!(found >= 95, "{found} of 100 with several records");
}

#[test]
fn too_few_observations_are_unclear() {
    let judged = judge(&[vec![1.0, 1.0]], &[2.0, 2.0, 2.0], Limits::default());
    assert_eq!(judged.0, Judgement::Unclear);
    let judged = paired::judge(&[(1.0, 2.0); 9], Limits::default());
    assert_eq!(judged.0, Judgement::Unclear);
}
