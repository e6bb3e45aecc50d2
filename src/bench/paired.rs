//! Two programs in turns, case by case: SAME, FASTER, SLOWER or UNCLEAR.
//!
//! On a machine that changes, two records of different times differ by more than the programs do. So both programs run
//! again and again, each time in a new process (other pages, other places of the code), one right after the other and
//! in changing order: what lasts longer than a pair cancels out of its ratio. A case is judged after 12, 24, 48, 96
//! and 192 pairs by the middle of its ratios and Wilcoxon's interval of it, and leaves the runs when it is clear.
//!
//! Layer: starts programs; any that prints a record as its last line will do. Left out: programs of which one process
//! must not start while another one has the device.

use crate::compare::{Comparison, Judgement, Limits, missing};
use crate::record::{CaseRecord, Record, RecordError, Status};
use crate::stats::{quantile, shift, sorted};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Numbers of pairs after which a case is judged.
pub const LOOKS: [usize; 5] = [12, 24, 48, 96, 192];
/// Of the interval at each look: all together are wrong in less than one of 100 comparisons.
const CONFIDENCE: f64 = 0.9985;
/// The quantile of a run's samples that stands for it: interruptions do not reach it.
const QUANTILE: f64 = 0.2;

/// One of the two programs.
#[derive(Clone, Debug)]
pub struct Side {
    pub program: PathBuf,
    /// What comes before the words that choose cases.
    pub arguments: Vec<String>,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum PairedError {
    #[error("{program}: it could not be started: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{program}: its last line is no record: {why}{reported}")]
    Record { program: String, why: RecordError, reported: String },
    #[error("no case has these words")]
    NoCase,
}

impl Side {
    /// One process of it.
    ///
    /// # Errors
    /// The program does not start, or prints no record.
    pub fn run(&self, words: &[String]) -> Result<Record, PairedError> {
        let program = self.program.display().to_string();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(words).stdin(Stdio::null());
        let output = command.output().map_err(|source| PairedError::Start { program: program.clone(), source })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.trim_end().lines().last().unwrap_or_default();
        Record::parse("standard output", last).map_err(|why| {
            let reported = String::from_utf8_lossy(&output.stderr);
            let reported = reported.trim().lines().last().map_or_else(String::new, |line| format!("; it said: {line}"));
            PairedError::Record { program, why, reported }
        })
    }
}

/// Observes the pairs: called as they are measured.
pub trait Watch {
    /// Pair number `pair` begins, with so many cases that are not clear yet.
    fn begins(&mut self, _pair: usize, _cases: usize) {}
    /// A case is judged.
    fn judged(&mut self, _comparison: &Comparison) {}
    /// Whether to end now.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A case of both programs.
struct Case {
    /// Its record in the newer program.
    record: CaseRecord,
    /// Nanoseconds of a run in each pair: before, now.
    pairs: Vec<(f64, f64)>,
}

/// Runs both programs in turns until each case is clear or `most` pairs are over.
///
/// # Errors
/// A program that does not start or prints no record; words that choose no case.
pub fn run(
    [before, now]: [&Side; 2],
    words: &[String],
    most: usize,
    limits: Limits,
    watch: &mut dyn Watch,
) -> Result<Vec<Comparison>, PairedError> {
    let mut open: BTreeMap<Key, Case> = BTreeMap::new();
    let mut done = Vec::new();
    let mut end = |comparison: Comparison, watch: &mut dyn Watch| {
        watch.judged(&comparison);
        done.push(comparison);
    };
    let mut words = words.to_vec();
    for pair in 0..most {
        watch.begins(pair, open.len());
        let records = run_pair([before, now], &words, pair % 2 == 1);
        if watch.is_stopped() {
            break;
        }
        let records = records?;
        if pair == 0 {
            for comparison in join(&records, &mut open)? {
                end(comparison, watch);
            }
        }
        for broken in add(&records, &mut open) {
            end(broken, watch);
        }
        let count = pair + 1;
        if LOOKS.contains(&count) || count == most {
            let is_clear = |case: &Case| judge(&case.pairs, limits).0 != Judgement::Unclear;
            let clear: Vec<Key> = open.iter().filter(|(_, c)| is_clear(c)).map(|(key, _)| key.clone()).collect();
            clear.iter().filter_map(|key| open.remove(key)).for_each(|case| end(case.comparison(limits), watch));
        }
        if open.is_empty() {
            break;
        }
        words = open.keys().map(|(_, id)| id.clone()).collect();
    }
    open.into_values().for_each(|case| end(case.comparison(limits), watch));
    Ok(done)
}

/// One process of each, the newer first where `is_newer_first`.
fn run_pair([before, now]: [&Side; 2], words: &[String], is_newer_first: bool) -> Result<[Record; 2], PairedError> {
    if !is_newer_first {
        return Ok([before.run(words)?, now.run(words)?]);
    }
    let now = now.run(words)?;
    Ok([before.run(words)?, now])
}

/// Device and id.
type Key = (String, String);

fn key(record: &CaseRecord) -> Key {
    (record.device.clone(), record.id.clone())
}

fn find<'a>(record: &'a Record, key: &Key) -> Option<&'a CaseRecord> {
    record.results.iter().find(|r| (&r.device, &r.id) == (&key.0, &key.1))
}

/// The cases that both have, into `open`; what one of them has not, or cannot do, as comparisons.
fn join([before, now]: &[Record; 2], open: &mut BTreeMap<Key, Case>) -> Result<Vec<Comparison>, PairedError> {
    let mut rest = Vec::new();
    for record in now.results.iter().filter(|r| r.status != Status::LeftOut) {
        match find(before, &key(record)) {
            None => rest.push(missing(record, "the program before has no such case")),
            Some(old) if old.status != Status::Ok => rest.push(missing(record, "it gave no result before")),
            Some(old) if old.work != record.work && record.status == Status::Ok => {
                rest.push(missing(record, "the work is not the same"));
            }
            Some(_) => drop(open.insert(key(record), Case { record: record.clone(), pairs: Vec::new() })),
        }
    }
    let gone = before.results.iter().filter(|r| r.status == Status::Ok && find(now, &key(r)).is_none());
    rest.extend(gone.map(|r| missing(r, "it is not in the newer program")));
    if open.is_empty() && rest.is_empty() { Err(PairedError::NoCase) } else { Ok(rest) }
}

/// Adds a pair to each open case; those that gave no result now leave as broken.
fn add([before, now]: &[Record; 2], open: &mut BTreeMap<Key, Case>) -> Vec<Comparison> {
    let mut broken = Vec::new();
    open.retain(|key, case| {
        let level = |r: &CaseRecord| (r.status == Status::Ok).then(|| quantile(&sorted(&r.all_samples()), QUANTILE));
        let old = find(before, key).and_then(level);
        let new = find(now, key);
        match (old, new.and_then(level)) {
            (Some(old), Some(new)) => case.pairs.push((old, new)),
            // The program before failed once: this pair says nothing.
            (None, Some(_)) => {}
            (_, None) => {
                let why = new.and_then(|r| r.reason.clone()).unwrap_or_else(|| "it gave no result".into());
                broken.push(Comparison { judgement: Judgement::Broken, ..missing(&case.record, &why) });
                return false;
            }
        }
        true
    });
    broken
}

/// What pairs of times say, with the ratio now over before and its interval.
#[must_use]
pub fn judge(pairs: &[(f64, f64)], limits: Limits) -> (Judgement, f64, (f64, f64)) {
    let logs: Vec<f64> = pairs.iter().map(|(before, now)| (now / before).ln()).collect();
    let Some((middle, (low, high))) = shift(&logs, CONFIDENCE) else {
        let middle = quantile(&sorted(&logs), 0.5);
        return (Judgement::Unclear, middle.exp(), (0.0, f64::INFINITY));
    };
    let (least, same) = (limits.least.ln_1p(), limits.same.ln_1p());
    let judgement = match () {
        () if low > 0.0 && middle > least => Judgement::Slower,
        () if high < 0.0 && middle < -least => Judgement::Faster,
        () if low > -same && high < same => Judgement::Same,
        () => Judgement::Unclear,
    };
    (judgement, middle.exp(), (low.exp(), high.exp()))
}

impl Case {
    fn comparison(self, limits: Limits) -> Comparison {
        let (judgement, ratio, interval) = judge(&self.pairs, limits);
        let (unit, work) = (self.record.unit, self.record.work);
        let value = |side: fn(&(f64, f64)) -> f64| {
            let all: Vec<f64> = self.pairs.iter().map(side).collect();
            Some(unit.value(work, quantile(&sorted(&all), 0.5))).filter(|v| v.is_finite())
        };
        let (before, now) = (value(|pair| pair.0), value(|pair| pair.1));
        let few = self.pairs.len() < LOOKS[0];
        let reason = few.then(|| format!("{} pairs are too few", self.pairs.len()));
        let (ratio, interval) = (Some(ratio).filter(|r| r.is_finite()), (!few).then_some(interval));
        Comparison { judgement, ratio, interval, before, now, reason, ..missing(&self.record, "") }
    }
}
