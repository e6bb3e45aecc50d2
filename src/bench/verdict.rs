//! What measurements, checks and the driver say of a device, as one word with reasons.
//!
//! Each reason has a number that stays, and a remedy. What is expected of a device is learnt from records of the same
//! device or of others of its kind; nothing is typed in. A device that gave no result is UNKNOWN, never PASS.

use crate::burn;
use crate::record::{CaseRecord, DeviceRecord, Record, Status};
use serde::Serialize;
use serde_json::Value;

/// The word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    Pass,
    Warning,
    /// There is no verdict.
    Unknown,
    Critical,
}

impl Level {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Warning => "WARNING",
            Self::Unknown => "UNKNOWN",
            Self::Critical => "CRITICAL",
        }
    }

    /// The exit code of a program that gives this verdict.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Warning | Self::Critical => 1,
            Self::Unknown => 2,
        }
    }
}

/// A row of the table: number, level, what it means, what to do.
type Row = (u32, Level, &'static str, &'static str);

/// All reasons. Numbers are never used again for something else.
#[rustfmt::skip]
pub(crate) const REASONS: &[Row] = &[
    (101, Level::Unknown,  "the device cannot be opened", "see the message; `doorbell devices` lists what there is"),
    (102, Level::Unknown,  "nothing could be measured", "run `doorbell bench plan` to see what is left out and why"),
    (201, Level::Critical, "a kernel computed wrong values", "run `doorbell bench burn`; if it finds errors too, replace the device"),
    (202, Level::Critical, "the device hung", "look at the kernel's log, reset the device, run again; replace it if it hangs again"),
    (203, Level::Critical, "the device ended its work with a fault", "look at the kernel's log, reset the device, run again"),
    (204, Level::Warning,  "a case failed", "see the message"),
    (211, Level::Critical, "burning found wrong values", "replace the device"),
    (212, Level::Critical, "the device did not get through burning", "look at the kernel's log; replace the device if it happens again"),
    (301, Level::Critical, "memory has uncorrected errors", "reset the device to retire the pages; replace it if the count grows"),
    (302, Level::Warning,  "memory has corrected errors", "watch the count; replace the device if it grows"),
    (303, Level::Critical, "errors of memory were added while it was measured", "replace the device"),
    (304, Level::Critical, "the driver asks for a reset", "reset the device"),
    (401, Level::Warning,  "the link to the host is slower or narrower than both ends allow", "reseat the card, look at the slot and its riser"),
    (501, Level::Warning,  "the clock was low during samples", "look at power limit, cooling and load of other programs"),
    (502, Level::Warning,  "the firmware holds the clock back", "look at power limit and cooling"),
    (601, Level::Warning,  "a case is slower than the expected range", "compare with `doorbell bench compare`; look at clocks and the link"),
    (602, Level::Critical, "a case is far slower than the expected range", "look at clocks and the link; replace the device if they are good"),
];

/// A reason with what was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    pub number: u32,
    pub level: Level,
    pub text: &'static str,
    pub seen: String,
    pub remedy: &'static str,
}

/// A device's verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub device: String,
    pub level: Level,
    pub reasons: Vec<Reason>,
    /// Cases with a result, and those that a range was known for.
    pub measured: usize,
    pub expected: usize,
}

fn reason(number: u32, seen: impl Into<String>) -> Option<Reason> {
    let (number, level, text, remedy) = *REASONS.iter().find(|row| row.0 == number)?;
    Some(Reason { number, level, text, seen: seen.into(), remedy })
}

/// The verdict on a device that could not be opened.
#[must_use]
pub fn unopened(device: &str, why: &str) -> Verdict {
    let reasons: Vec<Reason> = reason(101, why).into_iter().collect();
    Verdict { device: device.into(), level: Level::Unknown, reasons, measured: 0, expected: 0 }
}

/// The verdict on a device of a record, by what was learnt from others.
#[must_use]
pub fn judge(device: &DeviceRecord, record: &Record, learnt: &[Record], burnt: Option<&burn::Report>) -> Verdict {
    let own: Vec<&CaseRecord> = record.results.iter().filter(|r| r.device == device.name).collect();
    let measured = own.iter().filter(|r| r.status == Status::Ok).count();
    let mut reasons: Vec<Reason> = Vec::new();
    if measured == 0 {
        reasons.extend(reason(102, format!("{} cases were tried", own.len())));
    }
    own.iter().for_each(|r| reasons.extend(of_case(r)));
    reasons.extend(burnt.into_iter().flat_map(of_burn));
    reasons.extend(of_state(&device.state, &device.state_after));
    let ranges: Vec<(&CaseRecord, (f64, f64))> =
        own.iter().filter_map(|r| Some((*r, range(r, device, learnt)?))).collect();
    reasons.extend(ranges.iter().filter_map(|(r, range)| of_range(r, *range)));
    let level = reasons.iter().map(|r| r.level).max().unwrap_or(Level::Pass);
    Verdict { device: device.name.clone(), level, reasons, measured, expected: ranges.len() }
}

fn of_case(r: &CaseRecord) -> Vec<Reason> {
    let seen = format!("{}: {}", r.id, r.reason.as_deref().unwrap_or_default());
    let number = match r.status {
        Status::Wrong => 201,
        Status::Hung => 202,
        Status::Lost => 203,
        Status::Failed => 204,
        Status::Ok if r.throttled > 0 => {
            let all = r.all_samples().len();
            return reason(501, format!("{}: {} of {all} samples", r.id, r.throttled)).into_iter().collect();
        }
        Status::Ok | Status::LeftOut => return Vec::new(),
    };
    reason(number, seen).into_iter().collect()
}

fn of_burn(report: &burn::Report) -> Vec<Reason> {
    let one = |f: &burn::Finding| {
        let number = if f.test == "device" { 212 } else { 211 };
        reason(number, format!("round {}: {}", f.round, f.text))
    };
    let mut all: Vec<Reason> = report.findings.iter().filter_map(one).collect();
    if all.is_empty() && !report.is_good() {
        all.extend(reason(212, format!("{} rounds, {} elements compared", report.rounds, report.elements)));
    }
    all
}

/// Counts of a pair in a state: corrected and uncorrected errors of memory.
fn errors(state: &Value) -> Option<(u64, u64)> {
    let pair = ["ecc_errors", "memory_errors"].iter().find_map(|name| state[*name].as_array())?;
    Some((pair.first()?.as_u64()?, pair.get(1)?.as_u64()?))
}

fn of_state(before: &Value, after: &Value) -> Vec<Reason> {
    let mut all = Vec::new();
    let now = if after.is_null() { before } else { after };
    if let Some((corrected, uncorrected)) = errors(now) {
        if uncorrected > 0 {
            all.extend(reason(301, format!("{uncorrected} since the driver was loaded")));
        }
        if corrected > 0 {
            all.extend(reason(302, format!("{corrected} since the driver was loaded")));
        }
        if errors(before).is_some_and(|(c, u)| corrected > c || uncorrected > u) {
            all.extend(reason(303, format!("now {corrected} corrected, {uncorrected} not")));
        }
    }
    if now["needs_reset"] == Value::Bool(true) {
        all.extend(reason(304, ""));
    }
    let link = &now["link"];
    let of = |name: &str| link[name].as_f64();
    if let (Some(speed), Some(lanes), Some(most_speed), Some(most_lanes)) =
        (of("gt_per_s"), of("lanes"), of("most_gt_per_s"), of("most_lanes"))
        && (lanes < most_lanes || speed < most_speed)
    {
        let seen = format!("{speed} GT/s x{lanes}, at most {most_speed} GT/s x{most_lanes}");
        all.extend(reason(401, seen));
    }
    let held = now["metrics"]["throttled_by"].as_array().filter(|why| !why.is_empty());
    let words = |why: &Vec<Value>| why.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    all.extend(held.and_then(|why| reason(502, words(why))));
    all
}

/// Room beyond what was seen: of one record alone a tenth, of several as much as they differ, a twentieth at least.
fn room(low: f64, high: f64, count: usize) -> f64 {
    if count == 1 { 0.1 } else { (high / low - 1.0).max(0.05) }
}

/// The times of a run that are expected of a case: learnt from records of devices of the same architecture and size.
fn range(r: &CaseRecord, device: &DeviceRecord, learnt: &[Record]) -> Option<(f64, f64)> {
    let alike =
        |d: &&DeviceRecord| (&d.arch, d.units, d.is_software) == (&device.arch, device.units, device.is_software);
    let of_record = |record: &Record| -> Vec<f64> {
        let names: Vec<&str> = record.devices.iter().filter(alike).map(|d| d.name.as_str()).collect();
        let is_of = |o: &&CaseRecord| names.contains(&o.device.as_str()) && o.together == r.together;
        let same = record.results.iter().filter(is_of).filter(|o| o.id == r.id && o.work == r.work);
        same.filter(|o| o.status == Status::Ok).filter_map(|o| o.ns.map(|ns| ns.median)).collect()
    };
    let times: Vec<f64> = learnt.iter().flat_map(of_record).collect();
    let low = times.iter().copied().reduce(f64::min)?;
    let high = times.iter().copied().reduce(f64::max)?;
    let room = room(low, high, times.len());
    Some((low / (1.0 + room), high * (1.0 + room)))
}

/// Slower than this many times the range's end is far slower.
const FAR: f64 = 1.25;

fn of_range(r: &CaseRecord, (low, high): (f64, f64)) -> Option<Reason> {
    let ns = r.ns?.median;
    let value = |ns: f64| r.unit.value(r.work, ns);
    let (unit, now) = (r.unit.symbol(), value(ns));
    let seen = format!("{}: {now:.4} {unit}, expected {:.4} to {:.4}", r.id, value(low), value(high));
    match ns {
        ns if ns > FAR * high => reason(602, seen),
        ns if ns > high => reason(601, seen),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_stand_once_and_levels_follow_the_worst() {
        let mut numbers: Vec<u32> = REASONS.iter().map(|row| row.0).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), REASONS.len());
        assert!(REASONS.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(Level::Critical > Level::Unknown && Level::Unknown > Level::Warning);
        assert_eq!([Level::Pass, Level::Warning, Level::Critical, Level::Unknown].map(Level::exit_code), [0, 1, 1, 2]);
    }

    fn numbers(before: &Value, after: &Value) -> Vec<u32> {
        of_state(before, after).iter().map(|r| r.number).collect()
    }

    #[test]
    fn states_of_both_vendors_are_judged() {
        assert_eq!(numbers(&Value::Null, &Value::Null), [0; 0]);
        let nv = |corrected, uncorrected, needs_reset| json!({"ecc_errors": [corrected, uncorrected], "needs_reset": needs_reset, "link": [5, 16]});
        assert_eq!(numbers(&nv(0, 0, false), &nv(0, 0, false)), [0; 0]);
        assert_eq!(numbers(&nv(1, 0, false), &nv(1, 0, false)), [302]);
        assert_eq!(numbers(&nv(0, 0, false), &nv(2, 1, true)), [301, 302, 303, 304]);
        let amd = |lanes, why: &[&str]| {
            json!({"memory_errors": [0, 0], "metrics": {"throttled_by": why},
                "link": {"gt_per_s": 32.0, "lanes": lanes, "most_gt_per_s": 32.0, "most_lanes": 16}})
        };
        assert_eq!(numbers(&amd(16, &[]), &amd(16, &[])), [0; 0]);
        assert_eq!(numbers(&amd(8, &[]), &amd(8, &["temperature"])), [401, 502]);
    }
}
