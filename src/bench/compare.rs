//! Two records, case by case: SAME, FASTER, SLOWER or UNCLEAR.
//!
//! What disturbs a run makes it longer, and lasts: samples are not independent. So samples are cut into blocks in the
//! order of time, each block's low quantile is one observation (interrupted samples do not reach it), and the two
//! sides' observations are compared. The ratio's interval is the bootstrap of both sides' observations.
//!
//! A machine changes from run to run by more than it does within one (other pages, other neighbours). So SLOWER and
//! FASTER need a ratio beyond what runs differ by. Three records or more before the last one say what that is: then it
//! is the prediction interval of one more run of theirs, at 99 %. Fewer do not: it is `between`. They also need an
//! interval beyond the `least` change and sides that hardly overlap; SAME needs one within the tolerance; anything else
//! is UNCLEAR. Two programs on a machine that changes are better told apart in turns (`paired`).

use crate::case::Unit;
use crate::record::{CaseRecord, Record, Status};
use crate::stats::{Draw, quantile, sorted};
use serde::Serialize;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Judgement {
    Same,
    Faster,
    Slower,
    Unclear,
    /// The case gave a result before and none now.
    Broken,
    /// The case is in one of the records only, or had no result before.
    Missing,
}

impl Judgement {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Same => "SAME",
            Self::Faster => "FASTER",
            Self::Slower => "SLOWER",
            Self::Unclear => "UNCLEAR",
            Self::Broken => "BROKEN",
            Self::Missing => "MISSING",
        }
    }
}

/// Limits of the judgement.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A change below this share is of no interest.
    pub least: f64,
    /// An interval within this share of 1 is the same.
    pub same: f64,
    /// What two runs may differ by where the records do not say it.
    pub between: f64,
}

impl Default for Limits {
    fn default() -> Self {
        // 50 runs of 9 cases on a shared machine of two cores: 98.6 % of all two differ by less than a tenth.
        Self { least: 0.01, same: 0.025, between: 0.1 }
    }
}

/// One case of two records.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub device: String,
    pub id: String,
    pub judgement: Judgement,
    /// Time now over time before, with its 95 % interval.
    pub ratio: Option<f64>,
    pub interval: Option<(f64, f64)>,
    pub unit: Unit,
    pub before: Option<f64>,
    pub now: Option<f64>,
    pub reason: Option<String>,
}

/// Blocks of a pass.
const BLOCKS: usize = 8;
/// The quantile of a block that stands for it.
const QUANTILE: f64 = 0.2;
/// Fewest samples of a block.
const LEAST_SAMPLES: usize = 5;
/// Resamples.
const RESAMPLES: usize = 2000;

/// The observations of a case: the low quantile of each block.
#[must_use]
pub fn observations(passes: &[Vec<f64>]) -> Vec<f64> {
    let of_pass = |pass: &Vec<f64>| -> Vec<f64> {
        let blocks = (pass.len() / LEAST_SAMPLES).clamp(1, BLOCKS);
        let len = pass.len().div_ceil(blocks).max(1);
        pass.chunks(len).map(|block| quantile(&sorted(block), QUANTILE)).collect()
    };
    passes.iter().flat_map(of_pass).collect()
}

/// The ratio of the medians of two sides' observations, its interval, and the share of pairs in which `now` is larger
/// (half for a tie).
#[must_use]
pub fn ratio(before: &[f64], now: &[f64], seed: u64) -> (f64, (f64, f64), f64) {
    let mut draw = Draw(seed);
    let mut again = |list: &[f64]| {
        let picked: Vec<f64> = (0..list.len()).map(|_| list[draw.below(list.len())]).collect();
        level(&picked)
    };
    let ratios: Vec<f64> = (0..RESAMPLES).map(|_| again(now) / again(before)).collect();
    let ratios = sorted(&ratios);
    let pairs = before
        .iter()
        .flat_map(|b| now.iter().map(move |n| f64::from(u8::from(n > b)) + 0.5 * f64::from(u8::from(n == b))));
    let share = pairs.sum::<f64>() / (before.len() * now.len()).max(1) as f64;
    (level(now) / level(before), (quantile(&ratios, 0.025), quantile(&ratios, 0.975)), share)
}

/// The middle of a run's observations.
fn level(observations: &[f64]) -> f64 {
    quantile(&sorted(observations), 0.5)
}

/// Fewest records that say what runs differ by.
const LEAST_RECORDS: usize = 3;
/// 0.995 quantiles of Student's t distribution for 2 to 12 degrees of freedom (scipy.stats.t.ppf); for more, the last.
pub const STUDENT: [f64; 11] = [9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055];

/// What one more run may differ by from the mean of those before, as a difference of logarithms; `None` of too few.
fn reach(levels: &[f64]) -> Option<f64> {
    let n = levels.len();
    let student = STUDENT[n.checked_sub(LEAST_RECORDS)?.min(STUDENT.len() - 1)];
    let logs: Vec<f64> = levels.iter().map(|level| level.ln()).collect();
    let mean = logs.iter().sum::<f64>() / n as f64;
    let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    Some(student * (variance * (1.0 + 1.0 / n as f64)).sqrt())
}

/// What the observations of runs before and of one now say, with the ratio of the times and its interval.
#[must_use]
pub fn judge(before: &[Vec<f64>], now: &[f64], limits: Limits) -> (Judgement, f64, (f64, f64)) {
    let all: Vec<f64> = before.concat();
    let (ratio, (low, high), share) = ratio(&all, now, 1);
    let levels: Vec<f64> = before.iter().map(|run| level(run)).collect();
    let reach = reach(&levels).unwrap_or_else(|| limits.between.ln_1p()).max(limits.least.ln_1p());
    let judgement = match () {
        () if all.len() < 3 || now.len() < 3 => Judgement::Unclear,
        () if low > 1.0 + limits.least && ratio.ln() > reach && share > 0.9 => Judgement::Slower,
        () if high < 1.0 - limits.least && ratio.ln() < -reach && share < 0.1 => Judgement::Faster,
        () if low > 1.0 - limits.same && high < 1.0 + limits.same => Judgement::Same,
        () => Judgement::Unclear,
    };
    (judgement, ratio, (low, high))
}

/// All cases of the records before and the one now.
#[must_use]
pub fn compare(before: &[Record], now: &Record, limits: Limits) -> Vec<Comparison> {
    let mut all: Vec<Comparison> = now.results.iter().map(|r| one(&known(before, r), r, limits)).collect();
    let good = before.iter().flat_map(|b| &b.results).filter(|r| r.status == Status::Ok);
    for r in good {
        if !all.iter().any(|c| (&c.device, &c.id) == (&r.device, &r.id)) {
            let unopened = now.results.iter().find(|n| n.device == r.device && n.is_unopened());
            all.push(match unopened {
                Some(n) => Comparison { judgement: Judgement::Broken, reason: n.reason.clone(), ..gone(r) },
                None => gone(r),
            });
        }
    }
    all
}

fn known<'a>(before: &'a [Record], now: &CaseRecord) -> Vec<&'a CaseRecord> {
    let same = |r: &&CaseRecord| (&r.device, &r.id) == (&now.device, &now.id) && r.status == Status::Ok;
    before.iter().filter_map(|record| record.results.iter().find(same)).collect()
}

pub(crate) fn missing(r: &CaseRecord, why: &str) -> Comparison {
    Comparison {
        device: r.device.clone(),
        id: r.id.clone(),
        judgement: Judgement::Missing,
        ratio: None,
        interval: None,
        unit: r.unit,
        before: None,
        now: r.value,
        reason: Some(why.into()),
    }
}

fn gone(r: &CaseRecord) -> Comparison {
    Comparison { before: r.value, now: None, ..missing(r, "it is not in the new record") }
}

fn one(before: &[&CaseRecord], now: &CaseRecord, limits: Limits) -> Comparison {
    if before.is_empty() {
        return missing(now, "there is no result to compare with");
    }
    let runs: Vec<Vec<f64>> = before.iter().map(|r| observations(&r.samples)).collect();
    let old = runs.concat();
    let value = |work: f64, list: &[f64]| Some(now.unit.value(work, quantile(&sorted(list), 0.5)));
    let blank = missing(now, "");
    if now.status != Status::Ok {
        let reason = now.reason.clone().or_else(|| Some(now.status.word().into()));
        return Comparison { judgement: Judgement::Broken, before: value(now.work, &old), reason, ..blank };
    }
    if before.iter().any(|r| r.work != now.work) {
        return missing(now, "the work is not the same");
    }
    if before.iter().any(|r| r.together != now.together) {
        return missing(now, "other devices ran it at the same time on one side");
    }
    let new = observations(&now.samples);
    let (judgement, ratio, interval) = judge(&runs, &new, limits);
    let (before, now) = (value(now.work, &old), value(now.work, &new));
    Comparison { judgement, ratio: Some(ratio), interval: Some(interval), before, now, reason: None, ..blank }
}

/// Whether a comparison is a reason to fail.
#[must_use]
pub fn fails(all: &[Comparison]) -> bool {
    all.iter().any(|c| matches!(c.judgement, Judgement::Slower | Judgement::Broken))
}
