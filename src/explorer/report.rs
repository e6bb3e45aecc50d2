//! What took the time: kernels, copies, the host's stages, and why queues were idle.

use crate::{Events, ExplorerError, LabelKind, Limit, Record};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the time of a run went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Kernels, the one that took longest in total first.
    pub kernels: Vec<KernelTime>,
    /// Copies by name.
    pub copies: Vec<Stage>,
    /// Stages of the host.
    pub host: Vec<Stage>,
    /// Each queue.
    pub queues: Vec<Queue>,
}

/// All launches of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelTime {
    /// Number in [`Record::kernels`].
    pub kernel: usize,
    /// Its name.
    pub name: String,
    /// Its key, which is equal in other runs.
    pub key: String,
    /// The device.
    pub device: String,
    /// How often it was timed.
    pub launches: u64,
    /// In total.
    pub ns: u64,
    /// The fastest launch.
    pub fastest_ns: u64,
    /// Part of all kernels' time.
    pub share: f64,
    /// Arithmetic operations, 10^9 a second.
    pub gflops: f64,
    /// Bytes of distinct memory, 10^9 a second.
    pub gbytes: f64,
    /// Part of what the device can do for a kernel of this intensity; `None` if its limits were not measured.
    pub roofline: Option<f64>,
}

/// A stage of the host, or copies of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// In total.
    pub ns: u64,
}

/// A queue's time from its first event to its last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// The device.
    pub name: String,
    /// Kernels and copies ran.
    pub busy_ns: u64,
    /// Nothing was submitted: the host computed something else.
    pub host_ns: u64,
    /// Another queue ran, whose results may have been waited for.
    pub dependency_ns: u64,
    /// Between the commands of one submission.
    pub launch_ns: u64,
}

/// One event, from the columns of [`Events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub track: usize,
    pub label: usize,
    pub start: u64,
    pub end: u64,
    pub batch: u32,
}

impl Events {
    /// The events in rows; one whose track or label is missing is left out.
    pub(crate) fn rows(&self) -> Vec<Event> {
        let mut at = 0u64;
        let mut rows = Vec::with_capacity(self.start.len());
        for (k, start) in self.start.iter().enumerate() {
            at = at.saturating_add(*start);
            let of = |column: &[u32]| column.get(k).map(|n| *n as usize);
            let (Some(track), Some(label), Some(length)) = (of(&self.track), of(&self.label), self.length.get(k))
            else {
                continue;
            };
            if track < self.tracks.len() && label < self.labels.len() {
                let batch = self.batch.get(k).copied().unwrap_or(0);
                rows.push(Event { track, label, start: at, end: at.saturating_add(*length), batch });
            }
        }
        rows
    }
}

/// The report of a record.
///
/// # Errors
/// Its events are damaged.
pub fn report(record: &Record) -> Result<Report, ExplorerError> {
    let events: Events = record.part("events")?.unwrap_or_default();
    let rows = events.rows();
    let mut kernels: BTreeMap<usize, KernelTime> = BTreeMap::new();
    let (mut copies, mut host): (BTreeMap<&str, Stage>, BTreeMap<&str, Stage>) = Default::default();
    for e in &rows {
        let (label, ns) = (&events.labels[e.label], e.end - e.start);
        match (label.kind, label.kernel) {
            (LabelKind::Kernel, Some(kernel)) if kernel < record.kernels.len() => {
                let k = kernels.entry(kernel).or_insert_with(|| KernelTime {
                    kernel,
                    name: record.kernels[kernel].name.clone(),
                    key: record.kernels[kernel].key.clone(),
                    device: record.kernels[kernel].device.clone(),
                    fastest_ns: u64::MAX,
                    ..KernelTime::default()
                });
                k.launches += 1;
                k.ns += ns;
                k.fastest_ns = k.fastest_ns.min(ns);
            }
            (LabelKind::Host, _) => add(&mut host, &events.tracks[e.track], ns),
            _ => add(&mut copies, &label.text, ns),
        }
    }
    let total: u64 = kernels.values().map(|k| k.ns).sum();
    let mut kernels: Vec<KernelTime> = kernels.into_values().collect();
    for k in &mut kernels {
        rates(k, record, total);
    }
    kernels.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.name.cmp(&b.name)));
    let longest = |stages: BTreeMap<&str, Stage>| {
        let mut all: Vec<Stage> = stages.into_values().collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.ns));
        all
    };
    Ok(Report { kernels, copies: longest(copies), host: longest(host), queues: queues(&events, &rows) })
}

fn add<'a>(stages: &mut BTreeMap<&'a str, Stage>, name: &'a str, ns: u64) {
    let s = stages.entry(name).or_insert_with(|| Stage { name: name.into(), ..Stage::default() });
    s.count += 1;
    s.ns += ns;
}

fn rates(k: &mut KernelTime, record: &Record, total_ns: u64) {
    let of = &record.kernels[k.kernel];
    let mean_ns = k.ns as f64 / k.launches.max(1) as f64;
    k.share = k.ns as f64 / total_ns.max(1) as f64;
    k.gflops = of.flops as f64 / mean_ns.max(1.0);
    k.gbytes = of.unique_bytes as f64 / mean_ns.max(1.0);
    let limit = record.limits.iter().find(|l| l.device == k.device);
    k.roofline = limit.map(|l| roofline(l, of.flops, of.unique_bytes) / mean_ns.max(1.0));
}

/// The least time that such a launch can take within a device's limits, in nanoseconds.
fn roofline(limit: &Limit, flops: u64, bytes: u64) -> f64 {
    let part = |work: u64, rate: f64| if rate > 0.0 { work as f64 / rate } else { 0.0 };
    part(flops, limit.gflops).max(part(bytes, limit.gbytes))
}

/// Busy and idle time of each track that has kernels or copies.
fn queues(events: &Events, rows: &[Event]) -> Vec<Queue> {
    let on_device = |e: &&Event| events.labels[e.label].kind != LabelKind::Host;
    let tracks: Vec<Vec<Event>> = (0..events.tracks.len())
        .map(|t| rows.iter().filter(on_device).filter(|e| e.track == t).copied().collect())
        .collect();
    let of = |(t, mine): (usize, &Vec<Event>)| {
        let mut q = Queue { name: events.tracks[t].clone(), ..Queue::default() };
        let others = merged(tracks.iter().enumerate().filter(|(o, _)| *o != t).flat_map(|(_, e)| e));
        let mut reached: Option<(u64, u32)> = None;
        for e in mine {
            let from = reached.map_or(e.start, |r| r.0);
            if e.start > from {
                let gap = e.start - from;
                let first = others.partition_point(|o| o.1 <= from);
                let during = others[first..].iter().take_while(|o| o.0 < e.start);
                let waited = during.map(|o| overlap((from, e.start), *o)).sum::<u64>().min(gap);
                q.dependency_ns += waited;
                let same = e.batch != 0 && reached.is_some_and(|r| r.1 == e.batch);
                *(if same { &mut q.launch_ns } else { &mut q.host_ns }) += gap - waited;
            }
            q.busy_ns += e.end.saturating_sub(e.start.max(from));
            reached = Some((from.max(e.end), e.batch));
        }
        q
    };
    tracks.iter().enumerate().filter(|(_, mine)| !mine.is_empty()).map(of).collect()
}

/// Times in which one of the events was under way, in order.
fn merged<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = events.map(|e| (e.start, e.end)).collect();
    all.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(all.len());
    for (start, end) in all {
        match out.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => out.push((start, end)),
        }
    }
    out
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

impl Report {
    /// As one JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let kernel = |k: &KernelTime| {
            json!({
                "name": k.name, "key": k.key, "device": k.device, "launches": k.launches, "ns": k.ns,
                "fastest_ns": k.fastest_ns, "share": k.share, "gflops": k.gflops, "gbytes": k.gbytes, "roofline": k.roofline,
            })
        };
        let stage = |s: &Stage| json!({"name": s.name, "count": s.count, "ns": s.ns});
        let queue = |q: &Queue| {
            json!({
                "name": q.name, "busy_ns": q.busy_ns, "host_ns": q.host_ns, "dependency_ns": q.dependency_ns,
                "launch_ns": q.launch_ns,
            })
        };
        json!({
            "kernels": self.kernels.iter().map(kernel).collect::<Vec<_>>(),
            "copies": self.copies.iter().map(stage).collect::<Vec<_>>(),
            "host": self.host.iter().map(stage).collect::<Vec<_>>(),
            "queues": self.queues.iter().map(queue).collect::<Vec<_>>(),
        })
    }

    /// As text, at most `most` kernels.
    #[must_use]
    pub fn to_text(&self, most: usize) -> String {
        let mut text = String::new();
        let shown = self.kernels.iter().take(most);
        let width = shown.clone().map(|k| k.name.chars().count()).max().unwrap_or(0).clamp(6, 48);
        let _ = writeln!(
            text,
            "{:<width$} {:<8} {:>8} {:>10} {:>6} {:>9} {:>8} {:>8} {:>6}",
            "kernel", "device", "launches", "total", "share", "mean", "GFLOP/s", "GB/s", "roof"
        );
        for k in shown {
            let roof = k.roofline.map_or_else(|| "-".into(), |r| format!("{:.0} %", 100.0 * r));
            let _ = writeln!(
                text,
                "{:<width$} {:<8} {:>8} {:>10} {:>5.1}% {:>9} {:>8.1} {:>8.1} {:>6}",
                printable(&k.name),
                printable(&k.device),
                k.launches,
                time(k.ns),
                100.0 * k.share,
                time(k.ns / k.launches.max(1)),
                k.gflops,
                k.gbytes,
                roof
            );
        }
        if self.kernels.len() > most {
            let _ = writeln!(text, "... and {} more kernels", self.kernels.len() - most);
        }
        for (what, stages) in [("copy", &self.copies), ("host", &self.host)] {
            for s in stages.iter().take(most) {
                let _ = writeln!(text, "{what} {:<24} {:>6} x {:>10}", printable(&s.name), s.count, time(s.ns));
            }
        }
        for q in &self.queues {
            let _ = writeln!(
                text,
                "queue {}: busy {}, idle for host {}, for other queues {}, between launches {}",
                printable(&q.name),
                time(q.busy_ns),
                time(q.host_ns),
                time(q.dependency_ns),
                time(q.launch_ns)
            );
        }
        text
    }
}

/// Without characters that would move a terminal's cursor.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A time with its unit.
pub(crate) fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.2} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}
