//! Two runs side by side: kernels that came, went, became slower or faster. Kernels are the same if their graph is
//! (`key`) and their device; else if their names are.

use crate::report::{KernelTime, Report, printable, time};
use serde_json::{Value, json};
use std::fmt::Write;

/// A kernel in one run or in both.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// In the first run.
    pub before: Option<KernelTime>,
    /// In the second run.
    pub after: Option<KernelTime>,
}

impl Pair {
    /// Time of a launch in the second run by that in the first one.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let mean = |k: &KernelTime| k.ns as f64 / k.launches.max(1) as f64;
        Some(mean(self.after.as_ref()?) / mean(self.before.as_ref()?).max(1.0))
    }

    /// How much longer the kernel took in the second run in total.
    #[must_use]
    pub fn change_ns(&self) -> i64 {
        let ns = |k: &Option<KernelTime>| k.as_ref().map_or(0, |k| i64::try_from(k.ns).unwrap_or(i64::MAX));
        ns(&self.after) - ns(&self.before)
    }

    fn name(&self) -> &str {
        self.after.as_ref().or(self.before.as_ref()).map_or("", |k| &k.name)
    }
}

/// The kernels of two runs, those that changed most in total first.
#[must_use]
pub fn diff(before: &Report, after: &Report) -> Vec<Pair> {
    let mut left: Vec<Option<&KernelTime>> = before.kernels.iter().map(Some).collect();
    let mut found: Vec<Option<&KernelTime>> = vec![None; after.kernels.len()];
    let same_key = |a: &KernelTime, b: &KernelTime| a.key == b.key && a.device == b.device;
    let same_name = |a: &KernelTime, b: &KernelTime| a.name == b.name;
    for same in [&same_key as &dyn Fn(&KernelTime, &KernelTime) -> bool, &same_name] {
        for (k, a) in after.kernels.iter().enumerate().filter(|(k, _)| found[*k].is_none()).collect::<Vec<_>>() {
            if let Some(b) = left.iter_mut().find(|b| b.is_some_and(|b| same(a, b))) {
                found[k] = b.take();
            }
        }
    }
    let both = after.kernels.iter().zip(found).map(|(a, b)| Pair { before: b.cloned(), after: Some(a.clone()) });
    let gone = left.into_iter().flatten().map(|b| Pair { before: Some(b.clone()), after: None });
    let mut pairs: Vec<Pair> = both.chain(gone).collect();
    pairs.sort_by_key(|p| std::cmp::Reverse(p.change_ns().unsigned_abs()));
    pairs
}

/// As text, at most `most` kernels.
#[must_use]
pub fn to_text(pairs: &[Pair], most: usize) -> String {
    let mut text = String::new();
    let width = pairs.iter().take(most).map(|p| p.name().chars().count()).max().unwrap_or(0).clamp(6, 48);
    let _ = writeln!(text, "{:<width$} {:>14} {:>14} {:>8}", "kernel", "before", "after", "a launch");
    for p in pairs.iter().take(most) {
        let total = |k: &Option<KernelTime>| k.as_ref().map_or_else(|| "-".into(), |k| time(k.ns));
        let what = match (p.ratio(), &p.after) {
            (Some(ratio), _) => format!("x {ratio:.2}"),
            (None, Some(_)) => "new".into(),
            (None, None) => "gone".into(),
        };
        let name = printable(p.name());
        let _ = writeln!(text, "{name:<width$} {:>14} {:>14} {what:>8}", total(&p.before), total(&p.after));
    }
    let sum = |of: fn(&Pair) -> &Option<KernelTime>| pairs.iter().filter_map(|p| of(p).as_ref()).map(|k| k.ns).sum();
    let _ = writeln!(text, "{:<width$} {:>14} {:>14}", "total", time(sum(|p| &p.before)), time(sum(|p| &p.after)));
    text
}

/// As a JSON list.
#[must_use]
pub fn to_json(pairs: &[Pair]) -> Value {
    let one = |k: &Option<KernelTime>| k.as_ref().map(|k| json!({"name": k.name, "launches": k.launches, "ns": k.ns}));
    pairs
        .iter()
        .map(|p| json!({"name": p.name(), "before": one(&p.before), "after": one(&p.after), "ratio": p.ratio()}))
        .collect()
}
